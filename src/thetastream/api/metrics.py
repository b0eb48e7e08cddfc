"""What a running join did: each batch's rows, results, state, streams and the load of its units."""

from __future__ import annotations

import dataclasses
import html
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, SupportsIndex, overload

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from thetastream.api import hot_text
from thetastream.api.observed import texts
from thetastream.api.transports import transport_notes
from thetastream.api.wires import (
    SITES_HEAD,
    SiteLoad,
    added,
    site_loads,
    site_row,
)
from thetastream.planner import html_table, text_notes, text_table
from thetastream.runtime.dataflow import INNER, OBSERVATION
from thetastream.steering.frequent import gain, told_keys, worst_balance
from thetastream.steering.policy import SplitKey

SHOWN_BATCHES = 20
"""Batches in a table: the newest."""
HEAVY_KEYS = 3
"""Most frequent keys of a batch that are named."""
UNEVEN = 1.3
"""Times its share that the busiest unit may get before there is a note on it."""
ENOUGH_ROWS = 100
"""Rows per unit from which on their balance is meaningful."""


@dataclass(frozen=True, kw_only=True)
class HeavyKey:
    """A frequent value of the equality's key, and how many rows of the batch have it. In a
    stream-aware join, of the key of the inequality or the band.

    >>> ts.metrics(query)[0].heavy
    (HeavyKey(stream='orders', key='7', rows=3),)
    """

    stream: str
    key: str
    """The value, or those of the columns that were hashed; "hash ..." where results carry none."""
    rows: int


@dataclass(frozen=True, kw_only=True)
class StreamLoad:
    """One stream in one batch.

    >>> [(stream.stream, stream.rows_in) for stream in ts.metrics(query)[0].streams]
    [('orders', 4), ('rides', 2)]
    """

    stream: str
    rows_in: int
    """Rows that reached the join: those that a condition on the stream alone lets through, and
    whose keys and time are not NULL."""
    late: int
    """Those of them that were older than the watermark, and dropped."""
    newest: datetime | None
    """The newest event time so far; None before there is one, and without a window."""
    watermark: datetime | None
    """That time minus the stream's delay. The query uses the lowest of its streams."""


@dataclass(frozen=True, kw_only=True)
class UnitLoad:
    """One unit in one batch.

    >>> sum(unit.stored_rows for unit in ts.metrics(query)[0].units)
    6
    """

    unit: int
    rows_in: int
    """Tuples that the unit is home to."""
    probes: int
    """Tuples that looked for partners here."""
    results: int
    out_bytes: int
    """Bytes of results, or of the view, that left the unit."""
    late: int
    stored_rows: int
    stored_bytes: int
    runs: int
    busy: float
    """Seconds of CPU time for the unit's own work."""
    entries: int = 0
    """Stored intermediate results of a three-way join: hub packs, or pairs if not packed."""
    pairs: int = 0
    """Pairs in them."""
    heavy: tuple[HeavyKey, ...] = ()
    """The most frequent equality keys among the unit's rows of this batch."""
    version: int = 0
    """The oldest version of a live routing table by which its rows were routed."""
    draining: int = 0
    """Stored rows that would now be stored in another unit."""
    join: int = 0
    """The number of its join in a tree, or of its stage in a chain of three streams."""
    compared: int = 0
    """Pairs of a probing and a stored tuple that the indexes looked at, and steps of searches."""
    updates: int = 0
    """Tuples that were written into indexes, once more with each merge."""


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
        shares = _shares([self])
        return max((share.times for share in shares), default=None)

    @property
    def excess(self) -> float | None:
        """Rows that the busiest unit got more than the mean of its join. None without rows."""
        return max((share.excess for share in _shares([self])), default=None)

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
        found = [*_late_notes(self), *_idle_notes(self), *_balance_notes(self)]
        return [*found, *gained, *transports]

    def __str__(self) -> str:
        if not self:
            return "no batches yet"
        lines = text_table([_HEAD, *map(_batch_row, self[-SHOWN_BATCHES:])], right=len(_HEAD))
        if len(self) > SHOWN_BATCHES:
            lines.append(f"  ({len(self) - SHOWN_BATCHES} earlier batches are not shown)")
        if self[-1].streams:
            lines += ["", f"Streams in batch {self[-1].batch}"]
            rows = map(_stream_row, self[-1].streams)
            lines += text_table([_STREAMS_HEAD, *rows], right=len(_STREAMS_HEAD) - 1)
        if self._work:
            lines += ["", f"Units in batch {self._worked}", *text_table(self._work, right=1)]
        if self._sites:
            lines += ["", "Sites", *text_table([SITES_HEAD, *self._sites], right=6)]
        if self._heavy:
            lines += ["", "Most frequent keys", *text_table([_KEYS_HEAD, *self._heavy], right=1)]
        if self[-1].hot:
            lines += ["", f"Hot keys in batch {self[-1].batch}"]
            lines += text_table([hot_text.HEAD, *hot_text.key_rows(self[-1].hot)])
        if self.notes:
            lines += ["", "Notes", *text_notes(self.notes)]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [html_table(_HEAD, map(_batch_row, self[-SHOWN_BATCHES:]))]
        if self and self[-1].streams:
            parts.append(html_table(_STREAMS_HEAD, map(_stream_row, self[-1].streams)))
        if self._work:
            parts.append(html_table(("units", f"batch {self._worked}"), self._work))
        if self._sites:
            parts.append(html_table(SITES_HEAD, self._sites))
        if self._heavy:
            parts.append(html_table(_KEYS_HEAD, self._heavy))
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
        return [] if self._last is None else _work_rows(self._last)

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


def metrics(query: StreamingQuery) -> Metrics:
    """The query's recent batches, oldest first; `print` shows them as a table.

    >>> for batch in ts.metrics(query):
    ...     if batch.rows_in:
    ...         print(batch.batch, batch.rows_in, batch.results, batch.stored_rows)
    0 6 3 6
    """
    batches = Metrics()
    for progress in query.recentProgress:
        batches.append(_batch(progress, batches[-1] if batches else None))
    return batches


def _batch(progress: StreamingQueryProgress, last: BatchMetrics | None) -> BatchMetrics:
    observed = progress.observedMetrics or {}
    reports = list(_reports(observed))
    told = [(int(one.get("join", 0)), one) for one in map(json.loads, report_texts(observed))]
    units = [report.unit for report in reports]
    sites, markers = site_loads(progress.observedMetrics or {})
    times = progress.eventTime or {}
    watermark = _time(times.get("watermark"))
    if watermark is not None and watermark.timestamp() <= 0:
        watermark = None
    streams = _streams(reports, () if last is None else last.streams)
    seen = [_time(times.get("max")), None if last is None else last.newest]
    seen += [stream.newest for stream in streams]
    found = BatchMetrics(
        batch=progress.batchId,
        rows_in=max(0, progress.numInputRows - markers),
        seconds=(progress.durationMs or {}).get("triggerExecution", 0) / 1000,
        results=sum(report.unit.results for report in reports if not report.inner),
        late=sum(unit.late for unit in units),
        stored_rows=sum(unit.stored_rows for unit in units),
        stored_bytes=sum(unit.stored_bytes for unit in units),
        watermark=watermark,
        newest=max((time for time in seen if time is not None), default=None),
        streams=streams,
        units=tuple(units),
        gathered_from=sum(report.unit.results > 0 for report in reports if not report.inner),
        hot=told_keys(told),
        balance=worst_balance(gain(told)),
        sites=sites,
    )
    if not units and last is not None:
        # No unit had a turn, so the state is what it was.
        return replace(found, stored_rows=last.stored_rows, stored_bytes=last.stored_bytes)
    return found


# -- reports ------------------------------------------------------------------------------------


_REPORTED = {field.name for field in dataclasses.fields(UnitLoad)}
"""What of a report is shown; the rest is for whoever steers the join."""


class _Report(NamedTuple):
    """A unit's report, and the streams that it counts."""

    unit: UnitLoad
    streams: Sequence[tuple[str, int, int, int | None, int | None]]
    inner: bool
    """Whether the results are a stream of another join."""


def _reports(observed: dict[str, Any]) -> Iterator[_Report]:
    """The reports of the units, in the order of their joins."""
    found: dict[tuple[bool, int, str, int], dict[str, Any]] = {}
    for name, row in observed.items():
        if name.startswith(OBSERVATION):
            for text in texts(row):
                fields = json.loads(text)
                stage, unit = fields.pop("stage"), fields["unit"]
                # A stage that Spark ran again reports again.
                found[not name.startswith(INNER), stage, name, unit] = fields
    joins = sorted({place[:3] for place in found})
    for place in sorted(found):
        fields = found[place]
        heavy = tuple(
            HeavyKey(stream=stream, key=key, rows=rows) for stream, key, rows in fields.pop("heavy")
        )
        streams = fields.pop("streams")
        known = {name: value for name, value in fields.items() if name in _REPORTED}
        load = UnitLoad(heavy=heavy, **(known | {"join": joins.index(place[:3])}))
        yield _Report(load, streams, inner=not place[0])


def report_texts(observed: dict[str, Any]) -> Iterator[str]:
    """The units' reports among the observed metrics of a batch, as they were written."""
    for name, row in observed.items():
        if name.startswith(OBSERVATION):
            yield from texts(row)


def _streams(reports: Iterable[_Report], before: Sequence[StreamLoad]) -> tuple[StreamLoad, ...]:
    """What the units counted of each stream, on top of what was known of it."""
    found = {item.stream: replace(item, rows_in=0, late=0) for item in before}
    for report in reports:
        for name, rows, late, micros, delay in report.streams:
            old = found.get(name) or StreamLoad(
                stream=name, rows_in=0, late=0, newest=None, watermark=None
            )
            new = replace(old, rows_in=old.rows_in + rows, late=old.late + late)
            newest = _instant(micros)
            if newest is not None and (old.newest is None or newest > old.newest):
                mark = None if delay is None else _earlier(newest, delay)
                new = replace(new, newest=newest, watermark=mark)
            found[name] = new
    return tuple(found.values())


def _instant(micros: int | None) -> datetime | None:
    """Microseconds since 1970 as a time; None where Python has none so far away."""
    if micros is None:
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    except OverflowError:
        return None


def _earlier(time: datetime, delay: int) -> datetime | None:
    try:
        return time - timedelta(milliseconds=delay)
    except OverflowError:
        return None


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


# -- notes --------------------------------------------------------------------------------------


class _Share(NamedTuple):
    """The busiest unit of a join."""

    join: int
    unit: int
    rows: int
    total: int
    units: int

    @property
    def times(self) -> float:
        return self.rows * self.units / self.total

    @property
    def excess(self) -> float:
        return self.rows - self.total / self.units


def _shares(batches: Iterable[BatchMetrics]) -> list[_Share]:
    """The busiest unit of each join, over some batches."""
    rows: dict[int, Counter[int]] = defaultdict(Counter)
    for batch in batches:
        for unit in batch.units:
            rows[unit.join][unit.unit] += unit.rows_in
    found = []
    for join, counted in sorted(rows.items()):
        fullest, most = counted.most_common(1)[0]
        if most:
            found.append(_Share(join, fullest, most, counted.total(), len(counted)))
    return found


def _balance_notes(batches: Sequence[BatchMetrics]) -> Iterator[str]:
    frequent = next((batch.heavy for batch in reversed(batches) if batch.units), ())
    many = bool(batches) and len(batches[-1].streams) > 2
    for share in _shares(batches):
        if share.times < UNEVEN or share.total < ENOUGH_ROWS * share.units:
            continue
        note = (
            f"Unit {share.unit} got {share.rows:,} of {share.total:,} rows,"
            f" {share.times:.1f} times its share of {share.units} units:"
        )
        if many:
            yield f'{note} topology="random" spreads rows evenly, but sends each to more units.'
        elif frequent:
            yield (
                f"{note} there are few keys, or frequent ones such as {frequent[0].key!r} of"
                f' {frequent[0].stream}. hot_keys="auto" splits frequent keys, topology="contrand"'
                " spreads the rows of all, and more hot_units spread those of hot_values."
            )
        else:
            yield f"{note} use a smaller bucket_width to get more buckets, or fewer units."


def _idle_notes(batches: Sequence[BatchMetrics]) -> Iterator[str]:
    """Streams that bring nothing while others do."""
    counted = [batch for batch in batches if any(item.rows_in for item in batch.streams)]
    if not counted:
        return
    for stream in counted[-1].streams:
        silent = 0
        for batch in reversed(counted):
            if any(item.rows_in for item in batch.streams if item.stream == stream.stream):
                break
            silent += 1
        if not silent:
            continue
        since = f"{stream.stream} brought no rows in the last {silent} batches that had rows"
        marks = [item.watermark for item in counted[-1].streams if item.watermark is not None]
        if stream.newest is None:
            yield f"{since}: no result can leave before it does."
        elif stream.watermark is not None and stream.watermark == min(marks):
            yield (
                f"{since}: its newest time, {_shown(stream.newest)}, holds the watermark back, and"
                " the state of the other streams grows."
            )
        else:
            yield f"{since}; its newest time is {_shown(stream.newest)}."


def _late_notes(batches: Sequence[BatchMetrics]) -> Iterator[str]:
    late = sum(batch.late for batch in batches)
    if late:
        yield (
            f"{late:,} rows came after the watermark and were dropped: raise delay, or check the"
            " order in which the sources deliver their rows."
        )


# -- tables -------------------------------------------------------------------------------------

_HEAD = (
    *("batch", "rows in", "seconds", "rows/s", "results", "late", "stored rows", "stored bytes"),
    *("watermark (UTC)", "lag (s)", "imbalance"),
)
_STREAMS_HEAD = ("stream", "rows in", "late", "newest time (UTC)", "watermark (UTC)")
_KEYS_HEAD = ("stream", "key", "rows")


def _batch_row(batch: BatchMetrics) -> tuple[str, ...]:
    return (
        str(batch.batch),
        f"{batch.rows_in:,}",
        f"{batch.seconds:.2f}",
        f"{batch.rows_per_second:,.0f}",
        f"{batch.results:,}",
        f"{batch.late:,}",
        f"{batch.stored_rows:,}",
        f"{batch.stored_bytes:,}",
        _shown(batch.watermark),
        "-" if batch.lag is None else f"{batch.lag:,.1f}",
        "-" if batch.imbalance is None else f"{batch.imbalance:.2f}",
    )


def _work_rows(batch: BatchMetrics) -> list[tuple[str, ...]]:
    # Of a tree, results come from the units of its last join.
    units = Counter(unit.join for unit in batch.units)
    return [
        ("rows of the busiest unit above the mean", f"{batch.excess or 0:,.1f}"),
        ("units that results come from", f"{batch.gathered_from} of {units[max(units)]}"),
        ("index updates per row", f"{batch.updates_per_row or 0:.2f}"),
    ]


def _stream_row(stream: StreamLoad) -> tuple[str, ...]:
    return (
        stream.stream,
        f"{stream.rows_in:,}",
        f"{stream.late:,}",
        _shown(stream.newest),
        _shown(stream.watermark),
    )


def _shown(time: datetime | None) -> str:
    return "-" if time is None else time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
