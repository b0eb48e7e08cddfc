"""Charts of the benchmarks and of the demo, in one look, as SVG text.

Needs matplotlib, of the extra `demo`. Texts become outlines and have margins of their own, so they
look alike and stay apart wherever the file is shown; the same data give the same file.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

WIDTH = 7.5
"""Inches: 720 pixels in a browser, about what a README shows."""
LINE = 0.17
"""Inches that a line of text takes."""
NAME, TITLE = 30, 76
"""Characters after which a name and a title go on in another line."""
FAR = 20.0
"""Beyond this ratio of the largest to the smallest value, a linear axis would hide the small."""
OURS, OTHERS = "#0072b2", "#7f8793"
STEPS = (1, 2, 2.5, 5, 10)
"""What the marks of a linear axis are multiples of."""
COLOURS = (OURS, "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Told apart by colour-blind readers (the palette of Okabe and Ito)."""
MARKS = "osD^vPX"

Points = Sequence[tuple[float, ...]]
"""Each x and y, or x, y and the ends of y's spread."""

LOOK: Mapping[str, Any] = {
    "axes.axisbelow": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "font.family": "DejaVu Sans",  # Comes with matplotlib: the same on every machine.
    "font.size": 9,
    "grid.color": "#e5e7eb",
    "svg.fonttype": "path",
    "svg.hashsalt": "thetastream",
    "text.parse_math": False,
}


@dataclass(frozen=True)
class Bar:
    """A value with the spread of its runs and a note; without a value, the note says why."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""

    @property
    def label(self) -> str:
        """What stands at the end of the row."""
        shown = "" if self.value is None else number(self.value)
        return ", ".join(filter(None, (shown, self.note)))


def number(value: float) -> str:
    """A value as a short text: 1234567 becomes 1.23M."""
    # Rounded first: 999.9 thousand is shown as 1M, not as 1e+03k.
    value = float(f"{value:.3g}")
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def svg(figure: Figure) -> str:
    """The figure as the text of an SVG file, without a date and without a version."""
    text = io.StringIO()
    with _look():
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    # Paths come with blanks at the ends of their lines.
    return re.sub(r" +$", "", text.getvalue(), flags=re.MULTILINE)


def bar_chart(
    title: str, bars: Sequence[Bar], *, label: str, about: str = "", ours: str = ""
) -> Figure:
    """One row per bar, ours in another colour; values far apart are dots on a logarithmic axis.

    A bar's length means nothing where the axis has no zero; the distance of two dots is a ratio.
    """
    names = [fill(bar.name, NAME) for bar in bars]
    notes = [fill(bar.label, NAME) for bar in bars]
    with _look():
        figure, axes = _figure(title, LINE * len(bars) * (_lines(names + notes) + 0.7) + 0.4)
        known = [(at, bar, bar.value) for at, bar in enumerate(bars) if bar.value is not None]
        least = min((value for _, _, value in known), default=0.0)
        most = max((value for _, _, value in known), default=0.0)
        logarithmic = least > 0 and most / least > FAR
        for at, bar, value in known:
            colour = OTHERS if ours and bar.name != ours else OURS
            if logarithmic:
                axes.plot(value, at, "o", color=colour, markersize=8)
            else:
                axes.barh(at, value, height=0.6, color=colour)
            if bar.low is not None and bar.high is not None and bar.high > bar.low:
                axes.hlines(at, bar.low, bar.high, color="black", linewidth=1.2, zorder=3)
        if logarithmic:
            _logarithmic(axes)
            axes.grid(axis="y", linestyle=":", color=OTHERS)
        else:
            axes.set_xlim(0, None if most else 1)
            axes.xaxis.set_major_locator(MaxNLocator(6, steps=STEPS))
            axes.xaxis.set_major_formatter(_mark)
        axes.grid(axis="x")
        axes.set_xlabel(f"{label}{', logarithmic' if logarithmic else ''}{about}")
        axes.set_ylim(max(len(bars), 1) - 0.4, -0.6)
        axes.set_yticks(range(len(bars)), names)
        # The labels are those of a second axis: outside the marks, and measured by the layout.
        right = axes.secondary_yaxis("right")
        right.set_yticks(range(len(bars)), notes)
        for side in (axes.yaxis, right.yaxis):
            side.set_tick_params(length=0)
            for bar, text in zip(bars, side.get_ticklabels(), strict=True):
                text.set_fontweight("bold" if bar.name == ours else "normal")
        right.spines["right"].set_visible(False)
    return figure


def line_chart(
    title: str,
    series: Mapping[str, Points],
    *,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
) -> Figure:
    """Lines over a common x axis, from zero; beside them their names, if there are several."""
    shown = {fill(name, NAME): points for name, points in series.items() if points}
    names = list(shown) if len(shown) > 1 else []
    rows = sum(name.count("\n") + 1.5 for name in names)
    with _look():
        figure, axes = _figure(title, max(2.1, LINE * rows))
        for at, points in enumerate(shown.values()):
            xs, ys, *spread = zip(*points, strict=True)
            colour, mark = COLOURS[at % len(COLOURS)], MARKS[at % len(MARKS)]
            every = max(1, len(xs) // 30)
            axes.plot(xs, ys, color=colour, marker=mark, markersize=4, markevery=every)
            if spread:
                axes.vlines(xs, *spread, color=colour, linewidth=1.2)
        if log_x and shown:
            _logarithmic(axes)
        else:
            _whole(axes)
        if log_y and any(point[1] > 0 for points in shown.values() for point in points):
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_ylim(
                0, None if any(point[1] for points in shown.values() for point in points) else 1
            )
            axes.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
        axes.yaxis.set_major_formatter(_mark)
        axes.grid(axis="y")
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        if names:
            figure.legend(axes.lines, names, loc="outside right upper", frameon=False)
    return figure


def heat_map(
    title: str, rows: Sequence[tuple[str, Sequence[float]]], *, x_label: str, unit: str
) -> Figure:
    """A row of cells for each name; the darker a cell, the nearer to the largest value."""
    names = [fill(name, NAME) for name, _ in rows]
    cells = [list(values) for _, values in rows]
    with _look():
        figure, axes = _figure(title, LINE * len(rows) * (_lines(names) + 0.3) + 0.6)
        if cells and cells[0]:
            high = max(map(max, cells)) or 1.0
            edges = ([at - 0.5 for at in range(len(of) + 1)] for of in (cells[0], cells))
            mesh = axes.pcolormesh(*edges, cells, cmap="Blues", vmin=0, vmax=high)
            ticks = MaxNLocator(3, steps=STEPS)
            figure.colorbar(mesh, ax=axes, label=unit, ticks=ticks, format=FuncFormatter(_mark))
        axes.set_yticks(range(len(rows)), names)
        axes.invert_yaxis()
        _whole(axes)
        axes.set_xlabel(x_label)
    return figure


def panels(
    title: str,
    xs: Sequence[float],
    rows: Sequence[tuple[str, Sequence[float], Sequence[float]]],
    *,
    x_label: str,
    shaded: tuple[float, float] | None = None,
) -> Figure:
    """Lines below each other over a common x axis: each a name, its values, and limits."""
    with _look():
        figure, axes = _figure(title, 1.4 * len(rows))
        figure.delaxes(axes)
        below = figure.subplots(len(rows), 1, sharex=True, squeeze=False)
        for at, (axes, (name, values, limits)) in enumerate(zip(below[:, 0], rows, strict=True)):
            axes.plot(xs, values, color=COLOURS[at % len(COLOURS)], drawstyle="steps-post")
            for limit in limits:
                axes.axhline(limit, color=OTHERS, linestyle=":", linewidth=1)
            if shaded is not None:
                axes.axvspan(*shaded, color="#f1f3f5", zorder=0)
            axes.set_ylim(0, 1.15 * max([*values, *limits, 1e-9]))
            axes.yaxis.set_major_locator(MaxNLocator(4, steps=STEPS))
            axes.yaxis.set_major_formatter(_mark)
            axes.grid(axis="y")
            axes.set_ylabel(name)
        _whole(below[-1, 0])
        below[-1, 0].set_xlabel(x_label)
        figure.align_ylabels()
    return figure


def _look() -> AbstractContextManager[None]:
    """The look, whatever the reader's own settings of matplotlib are."""
    return style.context(["default", dict(LOOK)])


def _figure(title: str, height: float) -> tuple[Figure, Axes]:
    """An empty figure whose axes are as high as given, in inches, below the title."""
    heading = fill(title, TITLE)
    figure = Figure(
        figsize=(WIDTH, height + 0.55 + LINE * (heading.count("\n") + 1)), layout="constrained"
    )
    figure.suptitle(heading, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    return figure, figure.add_subplot()


def _lines(texts: Sequence[str]) -> int:
    return max((text.count("\n") + 1 for text in texts), default=1)


def _logarithmic(axes: Axes) -> None:
    """Makes the x axis logarithmic, with marks that are about equally far apart."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0), numticks=8))
    axes.xaxis.set_major_formatter(_mark)
    axes.xaxis.set_minor_formatter(NullFormatter())


def _whole(axes: Axes) -> None:
    """Marks the x axis with whole numbers, in full: batches of a long run differ late."""
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=STEPS, integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _mark(value: float, position: float | None) -> str:
    return number(value)
