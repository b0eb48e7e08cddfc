"""The rest of the tuples that are in results: asked for by number, each once, and kept for a while.

A task gathers its results, and then asks each site once for all that it lacks. What was fetched
stays in the worker's memory, because a tuple that has matched often matches again, and on a shelf
where the other workers of the host find it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream import arrow
from thetastream.transport.access import Counted, borrowed
from thetastream.transport.feed import WIRE, Feed, report_row, wire_report
from thetastream.transport.messages import NUMBER

GATHERED_BYTES = 64 * 1024**2
"""Arrow bytes of results that are looked at together."""
GATHERED_ROWS = 1_000_000
OUT_BYTES = 16 * 1024**2
"""Arrow bytes of completed results that leave at a time."""
KEPT_BYTES = 128 * 1024**2
"""Arrow bytes of fetched tuples that a worker keeps of one stream."""
SEEN_BYTES = 16 * 1024**2
"""Bytes of numbers that are remembered of tuples that came whole, to count how many match."""
SEEN_SHARE = 8
"""On a host's disk they take one part in so many of the room for a stream's tuples."""
MOST_SEEN = 16
"""Streams of queries, of which a worker remembers them."""
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
    """Columns of the stream, and their names in completed results. Where results have such a column
    already, it is filled for tuples that came whole, whose number is -1 - n."""

    @property
    def columns(self) -> list[str]:
        """The columns that are fetched."""
        return [name for name, _ in self.fetched]


class Shelf(Protocol):
    """Where the workers of a host find what one of them has fetched; it may lose anything."""

    def names(self) -> list[str]:
        """The names of what is there."""

    def read(self, name: str) -> pa.Buffer | None:
        """What is there under a name, as it was written; None if it is gone."""

    def write(self, name: str, body: pa.Buffer) -> None:
        """Put something there, if there is room."""


@dataclass(frozen=True)
class Shelves:
    """The shelves of a host for one query."""

    shelf: Callable[[str, int], Shelf]
    """One by its name, and by the bytes that it may take."""
    room: int
    """The bytes that there are for each stream."""


@dataclass(eq=False)
class _Chunk:
    numbers: Numbers
    rows: pa.RecordBatch
    used: int = 0


@dataclass
class Kept:
    """Fetched tuples of one stream, as many as there is room for."""

    most_bytes: int = KEPT_BYTES
    shelf: Shelf | None = None
    _known: set[str] = field(default_factory=set)
    """Names on the shelf that were read or written."""
    _chunks: list[_Chunk] = field(default_factory=list)
    _turn: int = 0

    def find(self, wanted: Numbers) -> tuple[list[pa.RecordBatch], Numbers]:
        """What is kept of these tuples, and the numbers of the others; numbers ascend."""
        self._turn += 1
        found, left = self._find(self._chunks, wanted)
        if len(left) and self.shelf is not None:
            more, left = self._find(self._taken(self.shelf, left), left)
            found += more
            self._bound()
        return found, left

    def _find(
        self, chunks: Iterable[_Chunk], wanted: Numbers
    ) -> tuple[list[pa.RecordBatch], Numbers]:
        found, left = [], wanted
        for chunk in chunks:
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

    def _taken(self, shelf: Shelf, wanted: Numbers) -> Iterator[_Chunk]:
        """What others have put on the shelf, of the tuples that are wanted."""
        names = shelf.names()
        self._known &= set(names)
        for name in names:
            first, last = (int(place, 16) for place in name.split("-")[:2])
            if name in self._known or last < wanted[0] or first > wanted[-1]:
                continue
            self._known.add(name)
            body = shelf.read(name)
            if body is not None:
                rows = arrow.from_bytes(body)
                self._chunks.append(_Chunk(_numbers(rows), rows, self._turn))
                yield self._chunks[-1]

    def add(self, rows: pa.RecordBatch) -> None:
        """Keep these tuples, by ascending number, and drop those that were not used for longest."""
        if rows.num_rows:
            numbers = _numbers(rows)
            self._chunks.append(_Chunk(numbers, rows, self._turn))
            if self.shelf is not None:
                name = f"{numbers[0]:x}-{numbers[-1]:x}-{secrets.token_hex(8)}"
                self._known.add(name)
                self.shelf.write(name, arrow.to_bytes(rows))
        self._bound()

    def _bound(self) -> None:
        if len(self._chunks) > MOST_CHUNKS:
            rows = _sorted([chunk.rows for chunk in self._chunks])
            self._chunks = [_Chunk(_numbers(rows), rows, self._turn)]
        while sum(chunk.rows.nbytes for chunk in self._chunks) > self.most_bytes:
            chunk = min(self._chunks, key=lambda chunk: chunk.used)
            self._chunks.remove(chunk)
            if chunk.rows.nbytes > self.most_bytes // 2 and len(chunk.numbers) > 1:
                # Not all at once: tuples with small numbers leave their window first.
                newer = np.arange(len(chunk.numbers) // 2, len(chunk.numbers))
                rows = chunk.rows.take(pa.array(newer))
                self._chunks.append(_Chunk(_numbers(rows), rows, chunk.used))

    @property
    def rows(self) -> int:
        """How many tuples are kept."""
        return sum(len(chunk.numbers) for chunk in self._chunks)


_SEEN: dict[tuple[str, str, str, str], Kept] = {}
"""Numbers of tuples that came whole and were in results, by site, stream, its id and the query."""
_KEPT: dict[tuple[str, str, str, tuple[str, ...]], Kept] = {}
"""What this process keeps, by site, stream, its id and the columns."""


def complete(
    errands: Sequence[Errand],
    batches: Iterable[pa.RecordBatch],
    target: pa.Schema,
    shelves: Shelves | None = None,
) -> Iterator[pa.RecordBatch]:
    """The results with the columns that they lack, then a report for each errand."""
    kept = [_kept(errand, f"{number}", shelves) for number, errand in enumerate(errands)]
    seen = [_seen(errand, f"{number}-seen", shelves) for number, errand in enumerate(errands)]
    spent = [Spent() for _ in errands]
    for some in _gathered(batches):
        tuples = []
        for errand, mine, known, cost in zip(errands, kept, seen, spent, strict=True):
            numbers = np.unique(_numbers(some, errand.number))
            lacking = numbers[numbers >= 0]
            # They descend, the largest number first.
            cost.matched += _first_seen(known, (-1 - numbers[numbers < 0])[::-1])
            tuples.append(_fetched(errand, mine, lacking, cost) if len(lacking) else None)
        yield from _completed(errands, some, tuples, target)
    for errand, cost in zip(errands, spent, strict=True):
        if cost.rows or cost.hits or cost.matched:
            yield report_row(wire_report(errand.feed, "fetch", **vars(cost)), target)


@dataclass
class Spent:
    """What a task spent on fetching tuples of one stream."""

    rows: int = 0
    sent: int = 0
    received: int = 0
    hits: int = 0
    """Tuples that were there already."""
    matched: int = 0
    """Tuples that came whole and are in a result for the first time."""
    seconds: float = 0.0
    """That the link took."""


def _kept(errand: Errand, name: str, shelves: Shelves | None) -> Kept:
    feed = errand.feed
    place = feed.access.address, feed.stream, feed.id, tuple(errand.columns)
    if place not in _KEPT:
        shelf = None
        if shelves is not None:
            shelf = shelves.shelf(name, shelves.room - shelves.room // SEEN_SHARE)
        _KEPT[place] = Kept(shelf=shelf)
    return _KEPT[place]


def _fetched(errand: Errand, kept: Kept, wanted: Numbers, cost: Spent) -> pa.RecordBatch:
    """These tuples by ascending number."""
    feed = errand.feed
    found, left = kept.find(wanted)
    cost.hits += len(wanted) - len(left)
    if len(left):
        began = monotonic()
        with feed.naming(), borrowed(feed.access) as client:
            counted = Counted(client)
            table = client.fetch(
                feed.stream, left, columns=errand.columns, id=feed.id, schema=feed.schema
            )
            cost.rows += len(left)
            cost.sent += counted.sent
            cost.received += counted.received
        cost.seconds = round(cost.seconds + monotonic() - began, 6)
        batch = arrow.concat(table.to_batches())
        kept.add(batch)
        found.append(batch)
    return _sorted(found)


def _seen(errand: Errand, name: str, shelves: Shelves | None) -> Kept:
    feed = errand.feed
    place = feed.access.address, feed.stream, feed.id, feed.token
    if place not in _SEEN:
        shelf = None
        if shelves is not None:
            shelf = shelves.shelf(name, min(SEEN_BYTES, shelves.room // SEEN_SHARE))
        if len(_SEEN) >= MOST_SEEN:
            # A worker outlives its queries.
            del _SEEN[next(iter(_SEEN))]
        _SEEN[place] = Kept(most_bytes=SEEN_BYTES, shelf=shelf)
    return _SEEN[place]


def _first_seen(seen: Kept, numbers: Numbers) -> int:
    """How many of these tuples have not been in a result before, on this host.

    With the next batch, the results of a tuple may come to another worker.
    """
    if not len(numbers):
        return 0
    _, new = seen.find(numbers)
    seen.add(pa.record_batch({NUMBER: new}))
    return len(new)


def _completed(
    errands: Sequence[Errand],
    results: pa.RecordBatch,
    tuples: Sequence[pa.RecordBatch | None],
    target: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    fillers = [
        _Filler(errand, results, rows)
        for errand, rows in zip(errands, tuples, strict=True)
        if rows is not None
    ]
    sizes = arrow.row_bytes(results)
    for filler in fillers:
        sizes = sizes + filler.sizes()
    upto = np.cumsum(sizes)
    start, before = 0, 0
    while start < results.num_rows:
        stop = max(start + 1, int(np.searchsorted(upto, before + OUT_BYTES, "right")))
        columns = dict(zip(results.schema.names, results.slice(start, stop - start), strict=True))
        for filler in fillers:
            columns |= filler.columns(columns, start, stop)
        columns[WIRE] = pa.nulls(stop - start, pa.string())
        batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        yield arrow.converted(batch, target)
        start, before = stop, int(upto[stop - 1])


class _Filler:
    """Puts fetched tuples of one stream beside results."""

    def __init__(self, errand: Errand, results: pa.RecordBatch, rows: pa.RecordBatch) -> None:
        self._errand = errand
        self._rows = rows
        numbers = _numbers(results, errand.number)
        self._lacks = numbers >= 0
        self._places = np.searchsorted(_numbers(rows), numbers)

    def sizes(self) -> Numbers:
        """Arrow bytes that are added to each result."""
        found = np.zeros(len(self._places), dtype=np.int64)
        found[self._lacks] = arrow.row_bytes(self._rows)[self._places[self._lacks]]
        return found

    def columns(self, known: Mapping[str, pa.Array], start: int, stop: int) -> dict[str, pa.Array]:
        """The fetched columns of some results."""
        lacks, places = self._lacks[start:stop], self._places[start:stop]
        if lacks.all():
            some = self._rows.take(pa.array(places))
            return {to: some.column(name) for name, to in self._errand.fetched}
        found = {}
        behind = np.where(lacks, places + (stop - start), np.arange(stop - start))
        for name, to in self._errand.fetched:
            own = known[to]
            fetched = arrow.cast(self._rows.column(name), own.type)
            found[to] = pa.concat_arrays([own, fetched]).take(pa.array(behind))
        return found


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
