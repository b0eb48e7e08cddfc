"""The status and the history of a query's routing as people read them: text, or HTML."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from thetastream.api import hot_text
from thetastream.planner import html_table, text_notes, text_table
from thetastream.topology.live import Step

if TYPE_CHECKING:
    from thetastream.api.control import Change, Sample, Status

BAR = 20
"""Characters of a full bar."""
WIDEST = 60
"""Characters of a line of blocks, and of a reason in a table."""
SHOWN_UNITS = 32
"""Units of a stream that are listed one by one."""
SHOWN_CHANGES = 20
"""Changes that are listed; a list can be cut to see others."""
BLOCKS = "▁▂▃▄▅▆▇█"

DRAIN = "still to drain"
STEPS = {
    Step.SETTLED: "No change is under way.",
    Step.ANNOUNCE: "A change is announced: rows are still stored where they were, and already"
    " probe the units that will store them.",
    Step.SWITCH: "Rows are stored in their new places. The old places are still probed until they"
    " are empty.",
    Step.TAKE: "The new places take in the rows that the old ones have exported.",
    Step.FORGET: "The old places are empty and are no longer probed.",
}
"""What each step means."""


# -- the status ---------------------------------------------------------------------------------


def status_text(status: Status) -> str:
    """A status as lines of text."""
    lines = [_title(status), *text_table(_facts(status)), ""]
    lines += ["Units, and how many groups each of them holds", *text_table(_unit_lines(status))]
    if status.hot:
        lines += ["", "Hot keys", *text_table([hot_text.HEAD, *hot_text.key_rows(status.hot)])]
    if status.draining:
        lines += ["", "Still to drain", *text_table([_DRAIN_HEAD, *_drain_rows(status)], right=4)]
    if len(status.samples) > 1:
        first, last = status.samples[0].batch, status.samples[-1].batch
        lines += ["", f"Batches {first} to {last}", *text_table(_trends(status.samples))]
    lines += ["", "Notes", *text_notes(_notes(status))]
    return "\n".join(lines)


def status_html(status: Status) -> str:
    """A status as tables."""
    parts = [
        f"<p><b>{html.escape(_title(status))}</b></p>",
        html_table(("", ""), _facts(status)),
        html_table(_UNITS_HEAD, _unit_rows(status)),
    ]
    if status.hot:
        parts.append(html_table(hot_text.HEAD, hot_text.key_rows(status.hot)))
    if status.draining:
        parts.append(html_table(_DRAIN_HEAD, _drain_rows(status)))
    if len(status.samples) > 1:
        parts.append(html_table(("", "", ""), _trends(status.samples)))
    parts += [f"<p>{html.escape(note)}</p>" for note in _notes(status)]
    return f"<div>{''.join(parts)}</div>"


def status_line(status: Status) -> str:
    """A status in one line."""
    units = ", ".join(f"{one.stream} {len(one.units)}" for one in status.streams)
    parts = [f"version {status.version}, {status.step}", f"units: {units}"]
    if status.batch is not None:
        parts.insert(0, f"batch {status.batch}")
    if not status.settled:
        parts.append(rest(status))
    elif status.problem:
        parts.append(f"problem: {status.problem}")
    return "; ".join(parts)


def rest(status: Status) -> str:
    """What a change that is under way waits for, in words."""
    if status.problem:
        return f"the query's process cannot publish: {status.problem}"
    if status.step == Step.SETTLED.value:
        if status.waiting:
            many = "request waits" if status.waiting == 1 else "requests wait"
            return f"{status.waiting} {many} for the next batch"
        return "nothing is under way"
    left = [f"unit {one.unit} has {one.rows:,} rows" for one in status.draining if one.rows]
    if left:
        return f"{DRAIN}: {', '.join(left)}"
    if not status.confirmed or any(one.rows is None for one in status.draining):
        # A batch without rows shows nothing: its routers had nothing to route.
        return "a batch with rows has to show that all routers use this version"
    return "the next step follows with the next batch"


_UNITS_HEAD = ("stream", "unit", "groups", "")
_DRAIN_HEAD = ("join", "stage", "unit", "rows left")


def _title(status: Status) -> str:
    return f"Routing tables: version {status.version}, {status.step}"


def _facts(status: Status) -> list[tuple[str, str]]:
    change = f"{status.change}, by {status.by}: {_short(status.why)}"
    batch = "none was heard of yet"
    if status.batch is not None:
        batch = f"{status.batch}, committed {shown(status.at)} UTC"
    found = [
        ("directory", status.path),
        ("last change", change),
        ("last batch", batch),
        ("units", f"at most {status.max_units}"),
    ]
    if status.waiting:
        found.append(("waiting requests", f"{status.waiting:,}"))
    if status.problem:
        found.append(("problem", status.problem))
    return found


def _notes(status: Status) -> Iterator[str]:
    yield STEPS[Step(status.step)]
    waits = rest(status)
    if not status.settled and not waits.startswith(DRAIN):
        yield f"{waits[0].upper()}{waits[1:]}."
    elif status.problem:
        yield f"The query's process could not publish: {status.problem}."
    yield from hot_text.balance_note(status.balance)


def _unit_lines(status: Status) -> list[tuple[str, ...]]:
    """The rows with numbers aligned to the right and a bar behind them."""
    rows = [_UNITS_HEAD, *_unit_rows(status)]
    widths = [max(len(row[place]) for row in rows) for place in (1, 2)]
    return [
        (row[0], row[1].rjust(widths[0]), row[2].rjust(widths[1]), row[3])
        if row[1]
        else (row[0], "", "", row[3])
        for row in rows
    ]


def _unit_rows(status: Status) -> Iterator[tuple[str, ...]]:
    most = max((max(one.groups.values()) for one in status.streams), default=1)
    several = len({one.join for one in status.streams}) > 1
    for one in status.streams:
        name = f"{one.stream} (join {one.join})" if several else one.stream
        for number, (unit, groups) in enumerate(one.groups.items()):
            if number == SHOWN_UNITS:
                yield "", "", "", f"({len(one.groups) - SHOWN_UNITS} more units are not shown)"
                break
            yield "" if number else name, str(unit), f"{groups:,}", bar(groups, most)


def _drain_rows(status: Status) -> Iterator[tuple[str, ...]]:
    for one in status.draining:
        rows = "not heard of" if one.rows is None else f"{one.rows:,}"
        yield str(one.join), str(one.stage), str(one.unit), rows


def _trends(samples: Sequence[Sample]) -> Iterator[tuple[str, ...]]:
    units = [sample.units for sample in samples]
    stored = [sample.stored_bytes for sample in samples]
    rows = [sample.rows_in for sample in samples]
    yield "units", sparkline(units), _span([str(min(units)), str(max(units))])
    yield "stored bytes", sparkline(stored), _span([size(min(stored)), size(max(stored))])
    yield "rows in", sparkline(rows), _span([f"{min(rows):,}", f"{max(rows):,}"])


def _span(ends: Sequence[str]) -> str:
    return ends[0] if ends[0] == ends[1] else f"from {ends[0]} to {ends[1]}"


# -- the history --------------------------------------------------------------------------------


def history_text(history: Sequence[Change]) -> str:
    """Changes as a table, and the units of each stream over time."""
    if not history:
        return "no changes"
    shown_ones = history[-SHOWN_CHANGES:]
    lines = text_table(_aligned([_HISTORY_HEAD, *map(_change_row, shown_ones)]))
    if len(history) > SHOWN_CHANGES:
        lines.append(f"  ({len(history) - SHOWN_CHANGES} earlier changes are not shown)")
    if len(history) > 1:
        first, last = span(history)
        lines += ["", f"Units from {shown(first)} to {shown(last)} UTC"]
        for stream, counts in units_over_time(history, WIDEST).items():
            ends = _span([str(min(counts)), str(max(counts))])
            lines += text_table([(stream, sparkline(counts), ends)])
    return "\n".join(lines)


def history_html(history: Sequence[Change]) -> str:
    """Changes as a table."""
    return f"<div>{html_table(_HISTORY_HEAD, map(_change_row, history))}</div>"


_HISTORY_HEAD: tuple[str, ...] = (
    *("change", "begun (UTC)", "by", "what", "why", "seconds", "to drain", "units afterwards"),
)


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """The rows with their numbers aligned to the right."""
    widths = {
        place: max(len(row[place]) for row in rows)
        for place, name in enumerate(_HISTORY_HEAD)
        if name in ("change", "seconds", "to drain")
    }
    for row in rows:
        yield tuple(cell.rjust(widths.get(place, 0)) for place, cell in enumerate(row))


def _change_row(change: Change) -> tuple[str, ...]:
    seconds = "under way" if change.seconds is None else f"{change.seconds:,.1f}"
    return (
        str(change.change),
        shown(change.begun),
        change.by,
        _short(change.what) or "-",
        "-" if change.why == change.what else _short(change.why),
        "-" if not change.what else seconds,
        "-" if change.drained is None else f"{change.drained:,.1f}",
        ", ".join(f"{stream} {units}" for stream, units in change.units.items()),
    )


def span(history: Sequence[Change]) -> tuple[datetime, datetime]:
    """From the first change to the end of the last, as far as it has come."""
    last = history[-1]
    return history[0].begun, last.begun if last.ended is None else last.ended


def units_over_time(history: Sequence[Change], points: int) -> dict[str, list[int]]:
    """The units of each stream at equal distances in time."""
    first, last = span(history)
    found: dict[str, list[int]] = {stream: [] for stream in history[-1].units}
    for point in range(points):
        at = first + (last - first) * point / max(1, points - 1)
        known = [change for change in history if change.begun <= at]
        for stream, counts in found.items():
            counts.append((known or history)[-1].units.get(stream, 0))
    return found


# -- texts --------------------------------------------------------------------------------------


def bar(value: float, most: float) -> str:
    """A bar as long as the value's share of the most; not empty unless there is nothing."""
    return "█" * max(round(BAR * value / most), 1 if value else 0) if most else ""


def sparkline(values: Sequence[float]) -> str:
    """The values as blocks of their height above zero; the largest of several that share one."""
    if len(values) > WIDEST:
        count = len(values)
        cuts = [count * place // WIDEST for place in range(WIDEST + 1)]
        values = [max(values[a:b]) for a, b in pairwise(cuts)]
    most = max(values, default=0)
    if not most:
        return BLOCKS[0] * len(values)
    return "".join(BLOCKS[round((len(BLOCKS) - 1) * value / most)] for value in values)


def size(value: float) -> str:
    """A number of bytes as people say it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def shown(time: datetime | None) -> str:
    """A time in UTC, to the second."""
    return "-" if time is None else time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _short(text: str) -> str:
    """One line of bounded length; what does not print could do something to a terminal."""
    line = "".join(char if char.isprintable() else " " for char in text)
    return line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…"
