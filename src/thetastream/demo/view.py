"""What the demo shows while it runs: a live table in a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import thetastream as ts
from thetastream.demo.job import BATCHES, Job

POLL = 0.25
"""Seconds between two looks at the query."""
BAR = 20
"""Characters of a full load bar: the table still fits into 80 columns."""
SHOWN_UNITS = 16
"""Rows of the table; the busiest units come first when there are more."""


class View(Protocol):
    """Something that follows a job."""

    def follow(self, job: Job) -> None:
        """Returns when the job has joined everything."""


def best_view() -> View:
    """The live table where the output is a terminal."""
    return LiveView(Console()) if sys.stdout.isatty() else LineView()


class LineView:
    """One line per batch."""

    def follow(self, job: Job) -> None:
        shown = -1
        left = True
        while left:
            left = job.poll()
            for batch in sorted(number for number in job.batches if number > shown):
                print(line(job.batches[batch]), flush=True)
                shown = batch
            if left:
                time.sleep(POLL)


class LiveView:
    """A table that is redrawn in place."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def follow(self, job: Job) -> None:
        with Live(draw(job), console=self.console, auto_refresh=False) as live:
            left = True
            while left:
                left = job.poll()
                live.update(draw(job), refresh=True)
                if left:
                    time.sleep(POLL)


def line(report: ts.BatchMetrics) -> str:
    """A batch in one line."""
    busy = " ".join(f"{unit.busy:.2f}" for unit in report.units)
    return (
        f"batch {report.batch:3d}  {report.rows_in:8,d} rows in  "
        f"{report.rows_per_second:9,.0f} rows/s  {report.results:9,d} results  "
        f"state {report.stored_rows:9,d} rows {size(report.stored_bytes):>9}  "
        f"event-time lag {seconds(report.lag):>6}  units busy {busy} s"
    )


def draw(job: Job) -> RenderableType:
    """The table: totals, the newest batch, and each unit's load in it."""
    reports = [job.batches[number] for number in sorted(job.batches)]
    latest = reports[-1] if reports else None
    facts = Table.grid(padding=(0, 2))
    for _ in range(3):
        facts.add_column(justify="right", no_wrap=True)
        facts.add_column(justify="left", no_wrap=True)

    def row(*cells: str) -> None:
        facts.add_row(*(Text(cell, "bold" if at % 2 else "dim") for at, cell in enumerate(cells)))

    if latest is None:
        facts.add_row(Text("waiting for the first batch ...", "dim"))
    else:
        row(
            *("rows in/s", f"{latest.rows_per_second:,.0f}"),
            *("results", f"{sum(report.results for report in reports):,}"),
            *("state rows", f"{latest.stored_rows:,}"),
        )
        row(
            *("rows in", f"{sum(report.rows_in for report in reports):,}"),
            *("late", f"{sum(report.late for report in reports):,}"),
            *("state bytes", size(latest.stored_bytes)),
        )
        row(
            *("event-time lag", seconds(latest.lag)),
            *("batch took", f"{latest.seconds:.1f} s"),
            *("watermark", f"{latest.watermark:%H:%M:%S}" if latest.watermark else "-"),
        )
    title = f"orders ⋈ rides   batch {len(reports)} of {BATCHES}, {job.producer.written} written"
    parts: list[RenderableType] = [facts]
    if latest is not None:
        parts += [Text(), units(latest)]
    return Panel(Group(*parts), title=title, title_align="left", expand=False)


def units(report: ts.BatchMetrics) -> Table:
    """Each unit's load in one batch; the longest bar is the busiest unit."""
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for name in ("unit", "load", "busy", "rows in", "results", "state rows", "state"):
        table.add_column(name, justify="left" if name == "load" else "right", no_wrap=True)
    loads = sorted(report.units, key=lambda unit: unit.unit)
    if len(loads) > SHOWN_UNITS:
        loads = sorted(loads, key=lambda unit: -unit.busy)[:SHOWN_UNITS]
    longest = max((unit.busy for unit in loads), default=0.0) or 1.0
    for unit in loads:
        filled = round(unit.busy / longest * BAR)
        bar = Text("█" * filled, "blue")
        bar.append("░" * (BAR - filled), "dim")
        table.add_row(
            str(unit.unit),
            bar,
            f"{unit.busy:.2f} s",
            f"{unit.rows_in:,}",
            f"{unit.results:,}",
            f"{unit.stored_rows:,}",
            size(unit.stored_bytes),
        )
    return table


def seconds(length: float | None) -> str:
    """A length of time, rounded; a dash while it is not known."""
    return "-" if length is None else f"{length:.0f} s"


def size(count: float) -> str:
    """Bytes as a short text."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} GiB"
