"""Charts of a query's routing. Needs matplotlib, of the extra `demo`; nothing else of `api` does.

Figures are made with matplotlib's object interface: no window opens, and nothing is left behind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from thetastream.api.control_text import span
from thetastream.errors import SettingError

try:
    from matplotlib import style
    from matplotlib.axes import Axes
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
except ImportError as missing:
    raise SettingError(
        f"a plot needs {missing.name}", hint="pip install matplotlib; print(...) needs nothing"
    ) from missing

if TYPE_CHECKING:
    from thetastream.api.control import Change, Sample, Status

WIDTH = 8.0
"""Inches."""
NAMED = 10
"""Units whose lines have a name beside the chart; colours repeat beyond that."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Told apart by colour-blind readers (the palette of Okabe and Ito)."""
SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB")
STYLES = ("-", "--", "-.", ":")
LOOK: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.grid.axis": "y",
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "font.family": "DejaVu Sans",  # Comes with matplotlib: the same on every machine.
    "font.size": 9,
    "grid.color": "#e5e7eb",
    "text.parse_math": False,
}


def status_chart(status: Status) -> Figure:
    """Stored bytes of each unit and the number of units over time, and the groups of each unit."""
    with style.context(["default", LOOK]):
        figure = Figure(figsize=(WIDTH, 8.0), layout="constrained")
        figure.suptitle(
            f"Routing tables: version {status.version}, {status.step}", x=0.01, ha="left"
        )
        loads, units, groups = figure.subplots(3, 1)
        _loads(loads, status.samples)
        _units(units, status.samples)
        _groups(groups, status)
        figure.align_ylabels([loads, units, groups])
    return figure


def history_chart(history: Sequence[Change]) -> Figure:
    """The units of each stream over time, with a mark where a change began."""
    with style.context(["default", LOOK]):
        figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title("Units of each stream")
        axes.set_ylabel("units")
        streams = list(dict.fromkeys(name for change in history for name in change.units))
        for number, stream in enumerate(streams):
            points = [
                (change.begun, change.units[stream]) for change in history if stream in change.units
            ]
            end = span(history)[1]
            points.append((max(end, points[-1][0]), points[-1][1]))
            times, counts = zip(*points, strict=True)
            # Streams often have the same units: a line below another one is wider, and is seen.
            width = 1.5 + 2.0 * min(len(streams) - 1 - number, 4)
            axes.step(
                _days(times), counts, where="post", label=stream, linewidth=width, **_look(number)
            )
            axes.plot(
                _days(times[:-1]), counts[:-1], "o", color=_look(number)["color"], markersize=4
            )
        _over_time(axes, [change.begun for change in history])
        _whole(axes)
        _legend(axes, "stream", len(streams))
    return figure


def _loads(axes: Axes, samples: Sequence[Sample]) -> None:
    axes.set_title("Stored bytes of each unit")
    largest = max((max(one.loads.values(), default=0) for one in samples), default=0)
    power = min(int(math.log(max(largest, 1), 1024)), len(SIZES) - 1)
    axes.set_ylabel(SIZES[power])
    units = sorted({unit for sample in samples for unit in sample.loads})
    for number, unit in enumerate(units):
        mine = [sample for sample in samples if unit in sample.loads]
        axes.plot(
            _days([_instant(sample.at) for sample in mine]),
            [sample.loads[unit] / 1024**power for sample in mine],
            label=str(unit) if number < NAMED else None,
            **_look(number),
        )
    _over_time(axes, [_instant(sample.at) for sample in samples])
    axes.set_ylim(0, None if largest else 1)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    _legend(axes, "unit", len(units))


def _units(axes: Axes, samples: Sequence[Sample]) -> None:
    axes.set_title("Units that have a turn in each batch")
    axes.set_ylabel("units")
    times = [_instant(sample.at) for sample in samples]
    axes.step(_days(times), [sample.units for sample in samples], where="post", color=COLOURS[0])
    _over_time(axes, times)
    _whole(axes)


def _groups(axes: Axes, status: Status) -> None:
    axes.set_title("Groups that each unit holds")
    axes.set_ylabel("groups")
    axes.set_xlabel("unit")
    count = len(status.streams)
    width = 0.8 / max(count, 1)
    for number, one in enumerate(status.streams):
        shift = (number - (count - 1) / 2) * width
        axes.bar(
            [unit + shift for unit in one.groups],
            list(one.groups.values()),
            width,
            color=COLOURS[number % len(COLOURS)],
            label=one.stream,
        )
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    _legend(axes, "stream", count)


def _over_time(axes: Axes, times: Sequence[datetime]) -> None:
    axes.set_xlabel("time (UTC)")
    if len(set(times)) < 2:
        # An axis of time needs some; what there is to see is the height.
        axes.set_xticks(_days(times[:1]), [f"{time:%H:%M:%S}" for time in times[:1]])
        return
    locator = AutoDateLocator(tz=UTC, minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)


def _whole(axes: Axes) -> None:
    axes.set_ylim(0, None)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))


def _legend(axes: Axes, title: str, count: int) -> None:
    """Beside the chart, where it covers nothing."""
    if count > 1:
        more = f"{title}\n({NAMED} of {count})" if title == "unit" and count > NAMED else title
        axes.legend(title=more, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)


def _look(number: int) -> dict[str, Any]:
    count = len(COLOURS)
    return {"color": COLOURS[number % count], "linestyle": STYLES[number // count % len(STYLES)]}


def _days(times: Sequence[datetime]) -> list[float]:
    """The times as matplotlib's axes count them."""
    return [float(date2num(time)) for time in times]  # type: ignore[no-untyped-call]


def _instant(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
