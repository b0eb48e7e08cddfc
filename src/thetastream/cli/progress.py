"""What a running job shows: a line that is redrawn in a terminal, plain lines, or JSON."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple, TextIO

from pyspark.sql.streaming.query import StreamingQuery

import thetastream as ts

POLL = 0.2
"""Seconds between two looks at the query."""


class View:
    """Shows batches as they are committed: here, one line per batch."""

    def __init__(self, out: TextIO) -> None:
        self.out = out

    def batch(self, batch: ts.BatchMetrics) -> None:
        """A batch was committed."""
        print(line(batch), file=self.out, flush=True)

    def close(self) -> None:
        """Nothing follows, and every line is complete."""


class Json(View):
    """One JSON object per batch, for machines."""

    def batch(self, batch: ts.BatchMetrics) -> None:
        fields = {
            "batch": batch.batch,
            "rows_in": batch.rows_in,
            "seconds": batch.seconds,
            "results": batch.results,
            "late": batch.late,
            "stored_rows": batch.stored_rows,
            "stored_bytes": batch.stored_bytes,
            "watermark": _iso(batch.watermark),
            "lag": batch.lag,
            "busy": [unit.busy for unit in batch.units],
            "streams": [
                {
                    "stream": stream.stream,
                    "rows_in": stream.rows_in,
                    "late": stream.late,
                    "newest": _iso(stream.newest),
                    "watermark": _iso(stream.watermark),
                }
                for stream in batch.streams
            ],
        }
        print(json.dumps(fields), file=self.out, flush=True)


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


class Live(View):
    """The newest batch and the totals, redrawn in place."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self.rows = self.results = 0

    def batch(self, batch: ts.BatchMetrics) -> None:
        self.rows += batch.rows_in
        self.results += batch.results
        text = f"{line(batch)}   total {self.rows:,} rows, {self.results:,} results"
        # Back to the start of the line, and clear what was there.
        print(f"\r\x1b[2K{text}", end="", file=self.out, flush=True)

    def close(self) -> None:
        print(file=self.out, flush=True)


def best_view(out: TextIO, *, as_json: bool) -> View:
    """JSON if asked for; a redrawn line on a terminal, otherwise plain lines."""
    if as_json:
        return Json(out)
    return Live(out) if out.isatty() else View(out)


def line(batch: ts.BatchMetrics) -> str:
    """A batch in one line."""
    return (
        f"batch {batch.batch}: {batch.rows_in:,} rows in {batch.seconds:.1f} s,"
        f" {batch.results:,} results, state {batch.stored_rows:,} rows"
        f" {batch.stored_bytes / 1024**2:.1f} MiB, late {batch.late:,}"
    )


class Totals(NamedTuple):
    """What a run took in, and where it ended."""

    rows: int = 0
    late: int = 0
    stored: int = 0
    watermark: datetime | None = None

    def plus(self, batch: ts.BatchMetrics) -> Totals:
        """The same after another batch."""
        return Totals(
            self.rows + batch.rows_in,
            self.late + batch.late,
            batch.stored_rows,
            batch.watermark or self.watermark,
        )


def still_open(totals: Totals, *, windowed: bool, grouped: bool) -> str | None:
    """What later rows can still add to the results; None where nothing waits for them.

    `windowed`: the join has a window; `grouped`: what is written are whole windows of time.
    """
    if grouped and totals.rows:
        if totals.watermark is None:
            over = "no time window has ended yet"
        else:
            over = f"time windows that end after {totals.watermark.isoformat()} are still open"
        return f"{over}: each is written when later rows move the watermark past its end"
    if windowed and totals.stored:
        return (
            f"the join's window is still open: {totals.stored:,} stored rows can still match"
            " later rows"
        )
    return None


def follow(query: StreamingQuery, view: View, stop_asked: Callable[[], bool]) -> Totals:
    """Shows the query's batches until it ends, or stops it after the batch that is running."""
    shown = -1
    totals = Totals()
    asked_at: int | None = None
    while True:
        active = query.isActive
        for batch in ts.metrics(query):
            if batch.batch > shown:
                shown = batch.batch
                totals = totals.plus(batch)
                view.batch(batch)
        if not active:
            return totals
        if stop_asked():
            idle = not query.status.get("isTriggerActive", False)
            if asked_at is None:
                asked_at = shown
            # A batch that had begun is committed first; between two batches nothing is lost.
            if idle or shown > asked_at:
                query.stop()
                return totals
        time.sleep(POLL)


def announce(text: str, *, as_json: bool) -> None:
    """A remark beside the output: never among the JSON."""
    print(text, file=sys.stderr if as_json else sys.stdout, flush=True)


@contextmanager
def plain_warnings(hide: Callable[[str], str]) -> Iterator[None]:
    """Shows the library's warnings as the command's own, without a line of Python.

    `hide` takes what nobody may see out of a text.
    """
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, ts.ThetastreamWarning):
                print(f"warning: {hide(str(message))}", file=sys.stderr, flush=True)
            else:
                usual(message, category, *where, **more)

        warnings.showwarning = show
        yield
