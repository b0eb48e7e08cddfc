"""The rest of the tuples that are in results: asked for by number, each once, and kept for a while.

A task gathers its results, and then asks each site once for all that it lacks. What was fetched
stays in the worker's memory, because a tuple that has matched often matches again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream import arrow
from thetastream.transport.feed import WIRE, Feed, report_row, wire_report
from thetastream.transport.link import Counted, borrowed
from thetastream.transport.messages import NUMBER

GATHERED_BYTES = 64 * 1024**2
"""Arrow bytes of results that are looked at together."""
GATHERED_ROWS = 1_000_000
OUT_BYTES = 16 * 1024**2
"""Arrow bytes of completed results that leave at a time."""
KEPT_BYTES = 128 * 1024**2
"""Arrow bytes of fetched tuples that a worker keeps of one stream."""
MOST_CHUNKS = 32
"""Pieces in which they are kept before they are put together."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Errand:
    """What is fetched of one stream for results."""

    feed: Feed
    number: str
    """The column of results that has the tuple's number."""
    fetched: tuple[tuple[str, str], ...]
    """Columns of the stream, and their names in completed results."""

    @property
    def columns(self) -> list[str]:
        """The columns that are fetched."""
        return [name for name, _ in self.fetched]


@dataclass
class _Chunk:
    numbers: Numbers
    rows: pa.RecordBatch
    used: int = 0


@dataclass
class Kept:
    """Fetched tuples of one stream, as many as there is room for."""

    most_bytes: int = KEPT_BYTES
    _chunks: list[_Chunk] = field(default_factory=list)
    _turn: int = 0

    def find(self, wanted: Numbers) -> tuple[list[pa.RecordBatch], Numbers]:
        """What is kept of these tuples, and the numbers of the others; numbers ascend."""
        self._turn += 1
        found, left = [], wanted
        for chunk in self._chunks:
            if not len(left):
                break
            places = np.searchsorted(chunk.numbers, left)
            places[places == len(chunk.numbers)] = 0
            hit = chunk.numbers[places] == left
            if hit.any():
                chunk.used = self._turn
                found.append(chunk.rows.take(pa.array(places[hit])))
                left = left[~hit]
        return found, left

    def add(self, rows: pa.RecordBatch) -> None:
        """Keep these tuples, by ascending number, and drop those that were not used for longest."""
        if rows.num_rows:
            self._chunks.append(_Chunk(_numbers(rows), rows, self._turn))
        while self._chunks and sum(chunk.rows.nbytes for chunk in self._chunks) > self.most_bytes:
            self._chunks.remove(min(self._chunks, key=lambda chunk: chunk.used))
        if len(self._chunks) > MOST_CHUNKS:
            rows = _sorted([chunk.rows for chunk in self._chunks])
            self._chunks = [_Chunk(_numbers(rows), rows, self._turn)]

    @property
    def rows(self) -> int:
        """How many tuples are kept."""
        return sum(len(chunk.numbers) for chunk in self._chunks)


_KEPT: dict[tuple[str, str, str, tuple[str, ...]], Kept] = {}
"""What this process keeps, by site, stream, its id and the columns."""


def complete(
    errands: Sequence[Errand], batches: Iterable[pa.RecordBatch], target: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The results with the columns that they lack, then a report for each errand."""
    spent = [[0, 0, 0] for _ in errands]
    for some in _gathered(batches):
        tuples = []
        for errand, cost in zip(errands, spent, strict=True):
            numbers = np.unique(_numbers(some, errand.number))
            rows, more = _fetched(errand, numbers)
            tuples.append(rows)
            for place, count in enumerate(more):
                cost[place] += count
        yield from _completed(errands, some, tuples, target)
    for errand, (rows, sent, received) in zip(errands, spent, strict=True):
        if rows:
            report = wire_report(errand.feed, "fetch", rows=rows, sent=sent, received=received)
            yield report_row(report, target)


def _fetched(errand: Errand, wanted: Numbers) -> tuple[pa.RecordBatch, tuple[int, int, int]]:
    """These tuples by ascending number; and how many came over the wire, in how many bytes."""
    feed = errand.feed
    place = feed.link.address, feed.stream, feed.id, tuple(errand.columns)
    kept = _KEPT.setdefault(place, Kept())
    found, left = kept.find(wanted)
    cost = (0, 0, 0)
    if len(left):
        with feed.naming(), borrowed(feed.link) as client:
            counted = Counted(client)
            table = client.fetch(
                feed.stream, left, columns=errand.columns, id=feed.id, schema=feed.schema
            )
            cost = len(left), counted.sent, counted.received
        batch = arrow.concat(table.to_batches())
        kept.add(batch)
        found.append(batch)
    return _sorted(found), cost


def _completed(
    errands: Sequence[Errand],
    results: pa.RecordBatch,
    tuples: Sequence[pa.RecordBatch],
    target: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    places = [
        np.searchsorted(_numbers(rows), _numbers(results, errand.number))
        for errand, rows in zip(errands, tuples, strict=True)
    ]
    sizes = arrow.row_bytes(results)
    for rows, place in zip(tuples, places, strict=True):
        sizes = sizes + arrow.row_bytes(rows)[place]
    upto = np.cumsum(sizes)
    start, before = 0, 0
    while start < results.num_rows:
        stop = max(start + 1, int(np.searchsorted(upto, before + OUT_BYTES, "right")))
        columns = dict(zip(results.schema.names, results.slice(start, stop - start), strict=True))
        for errand, rows, place in zip(errands, tuples, places, strict=True):
            some = rows.take(pa.array(place[start:stop]))
            columns |= {to: some.column(name) for name, to in errand.fetched}
        columns[WIRE] = pa.nulls(stop - start, pa.string())
        batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        yield arrow.converted(batch, target)
        start, before = stop, int(upto[stop - 1])


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if waiting and (size + batch.nbytes > GATHERED_BYTES or rows > GATHERED_ROWS):
            yield arrow.concat(waiting)
            waiting, size, rows = [], 0, 0
        waiting.append(batch)
        size += batch.nbytes
        rows += batch.num_rows
    if waiting:
        yield arrow.concat(waiting)


def _sorted(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    rows = arrow.concat(parts)
    return rows.take(pa.array(np.argsort(_numbers(rows))))


def _numbers(rows: pa.RecordBatch, column: str = NUMBER) -> Numbers:
    found: Numbers = rows.column(column).to_numpy(zero_copy_only=False)
    return found
