"""The batches of a query, as `ts.metrics` has them: plain values that are printed as tables."""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import SupportsIndex, overload

from thetastream.api import hot_text
from thetastream.api.loads import HeavyKey, StreamLoad, UnitLoad
from thetastream.api.metrics_notes import balance_notes, idle_notes, late_notes, shares
from thetastream.api.metrics_text import (
    HEAD,
    KEYS_HEAD,
    STREAMS_HEAD,
    batch_row,
    stream_row,
    work_rows,
)
from thetastream.api.transports import transport_notes
from thetastream.api.wires import SITES_HEAD, SiteLoad, added, site_row
from thetastream.planner import html_table, text_notes, text_table
from thetastream.steering.policy import SplitKey

SHOWN_BATCHES = 20
"""Batches in a table: the newest."""
HEAVY_KEYS = 3
"""Most frequent keys of a batch that are named."""


@dataclass(frozen=True, kw_only=True)
class BatchMetrics:
    """One batch of a query.

    >>> batch = ts.metrics(query)[0]
    >>> batch.rows_in, batch.results, batch.late
    (6, 3, 0)
    >>> batch.newest.isoformat()
    '2026-01-01T00:00:03+00:00'
    """

    batch: int
    rows_in: int
    """Rows that the query read from its sources."""
    seconds: float
    results: int
    """Pairs that left the units, before what the kernel cannot decide is re-checked."""
    late: int
    """Tuples older than the watermark, dropped."""
    stored_rows: int
    stored_bytes: int
    watermark: datetime | None
    newest: datetime | None
    """The newest event time so far, of any stream."""
    streams: tuple[StreamLoad, ...]
    """What came of each stream, and up to which time; in the order of the join."""
    units: tuple[UnitLoad, ...]
    """Empty for a batch without rows, and when Spark did not deliver the reports."""
    gathered_from: int = 0
    """Units that the batch's results come from."""
    hot: tuple[SplitKey, ...] = ()
    """The keys that were split, or had been and were not drained yet."""
    balance: tuple[float, float] | None = None
    """How many times its share of the visiting rows the busiest unit had, with hot keys and as it
    would have been without; the worst join of several. None without such keys."""
    sites: tuple[SiteLoad, ...] = ()
    """What went over the wire, for each stream that is at a site."""

    @property
    def rows_per_second(self) -> float:
        """Rows read per second of the batch."""
        return self.rows_in / self.seconds if self.seconds else 0.0

    @property
    def lag(self) -> float | None:
        """Seconds by which the watermark trails the newest event time; None while either is
        unknown."""
        if self.newest is None or self.watermark is None:
            return None
        return max(0.0, (self.newest - self.watermark).total_seconds())

    @property
    def heavy(self) -> tuple[HeavyKey, ...]:
        """The most frequent equality keys of the batch, over all units."""
        found: Counter[tuple[str, str]] = Counter()
        for unit in self.units:
            found.update({(item.stream, item.key): item.rows for item in unit.heavy})
        return tuple(
            HeavyKey(stream=stream, key=key, rows=rows)
            for (stream, key), rows in found.most_common(HEAVY_KEYS)
        )

    @property
    def imbalance(self) -> float | None:
        """How many times its share of the rows the busiest unit got: 1.0 is even, and with two
        units 2.0 means all rows on one. None without rows."""
        return max((share.times for share in shares([self])), default=None)

    @property
    def excess(self) -> float | None:
        """Rows that the busiest unit got more than the mean of its join. None without rows."""
        return max((share.excess for share in shares([self])), default=None)

    @property
    def updates_per_row(self) -> float | None:
        """How often a row was written into an index, on average: more than once if units keep
        copies, and where runs are merged. None without rows."""
        rows = sum(unit.rows_in for unit in self.units)
        return sum(unit.updates for unit in self.units) / rows if rows else None

    def __str__(self) -> str:
        return str(Metrics([self]))


class Metrics(list[BatchMetrics]):
    """Batches of a query, oldest first: a list that is printed as a table, with notes.

    >>> batches = ts.metrics(query)
    >>> isinstance(batches, list), batches.notes
    (True, [])
    >>> print(batches[:1])  # doctest: +ELLIPSIS
      batch  rows in  seconds ... imbalance
          0        6 ...
    <BLANKLINE>
    Streams in batch 0
      stream  rows in  late    newest time (UTC)      watermark (UTC)
      orders        4     0  2026-01-01 00:00:03  2025-12-31 23:59:03
      rides         2     0  2026-01-01 00:00:01  2025-12-31 23:59:01
    <BLANKLINE>
    Units in batch 0
      rows of the busiest unit above the mean ...
    <BLANKLINE>
    Most frequent keys
      stream  key  rows
      orders  7       3
    """

    @property
    def notes(self) -> list[str]:
        """What deserves a look, and what to do about it."""
        gained = hot_text.balance_note(self[-1].balance) if self else []
        transports = transport_notes([batch.sites for batch in self])
        found = [*late_notes(self), *idle_notes(self), *balance_notes(self)]
        return [*found, *gained, *transports]

    def __str__(self) -> str:
        if not self:
            return "no batches yet"
        lines = text_table([HEAD, *map(batch_row, self[-SHOWN_BATCHES:])], right=len(HEAD))
        if len(self) > SHOWN_BATCHES:
            lines.append(f"  ({len(self) - SHOWN_BATCHES} earlier batches are not shown)")
        if self[-1].streams:
            lines += ["", f"Streams in batch {self[-1].batch}"]
            rows = map(stream_row, self[-1].streams)
            lines += text_table([STREAMS_HEAD, *rows], right=len(STREAMS_HEAD) - 1)
        if self._work:
            lines += ["", f"Units in batch {self._worked}", *text_table(self._work, right=1)]
        if self._sites:
            lines += ["", "Sites", *text_table([SITES_HEAD, *self._sites], right=6)]
        if self._heavy:
            lines += ["", "Most frequent keys", *text_table([KEYS_HEAD, *self._heavy], right=1)]
        if self[-1].hot:
            lines += ["", f"Hot keys in batch {self[-1].batch}"]
            lines += text_table([hot_text.HEAD, *hot_text.key_rows(self[-1].hot)])
        if self.notes:
            lines += ["", "Notes", *text_notes(self.notes)]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [html_table(HEAD, map(batch_row, self[-SHOWN_BATCHES:]))]
        if self and self[-1].streams:
            parts.append(html_table(STREAMS_HEAD, map(stream_row, self[-1].streams)))
        if self._work:
            parts.append(html_table(("units", f"batch {self._worked}"), self._work))
        if self._sites:
            parts.append(html_table(SITES_HEAD, self._sites))
        if self._heavy:
            parts.append(html_table(KEYS_HEAD, self._heavy))
        if self and self[-1].hot:
            parts.append(html_table(hot_text.HEAD, hot_text.key_rows(self[-1].hot)))
        parts += [f"<p>{html.escape(note)}</p>" for note in self.notes]
        return f"<div>{''.join(parts)}</div>"

    @property
    def _last(self) -> BatchMetrics | None:
        """The newest batch whose units reported rows."""
        return next((batch for batch in reversed(self) if batch.excess is not None), None)

    @property
    def _worked(self) -> int:
        return -1 if self._last is None else self._last.batch

    @property
    def _work(self) -> list[tuple[str, ...]]:
        """How the units shared that batch."""
        return [] if self._last is None else work_rows(self._last)

    @property
    def _sites(self) -> list[tuple[str, ...]]:
        """What went over the wire in all these batches."""
        return [site_row(load) for load in added(load for batch in self for load in batch.sites)]

    @property
    def _heavy(self) -> list[tuple[str, ...]]:
        """The frequent keys of the newest batch that has any."""
        for batch in reversed(self):
            if batch.units:
                return [(item.stream, item.key, f"{item.rows:,}") for item in batch.heavy]
        return []

    @overload
    def __getitem__(self, index: SupportsIndex) -> BatchMetrics: ...
    @overload
    def __getitem__(self, index: slice) -> Metrics: ...
    def __getitem__(self, index: SupportsIndex | slice) -> BatchMetrics | Metrics:
        if isinstance(index, slice):
            return Metrics(super().__getitem__(index))
        return super().__getitem__(index)
