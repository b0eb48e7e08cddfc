"""Reading a range of a log: chosen columns in pieces, or single tuples by their numbers.

An excerpt has what held its range when it was made. Later appends, and forgetting, do not change
it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.arrow import concat, stretches
from thetastream.transport.filters import Filter
from thetastream.transport.journal import Entry
from thetastream.transport.messages import chosen_schema, numbered, with_numbers
from thetastream.transport.segments import BATCH_ROWS, Segment

MAX_OPEN = 100
"""Sealed files of a stream that are open at the same time."""

Part = Segment | Entry
"""What holds some tuples of a log: a sealed file, or an entry of its journal."""


def end_of(part: Part) -> int:
    """The number behind the last tuple of the part."""
    return part.stop if isinstance(part, Segment) else part.first + int(part.batch.num_rows)


class Piece(NamedTuple):
    """What was found among the tuples from `start` up to `stop`; their numbers come first."""

    start: int
    stop: int
    batch: pa.RecordBatch


class OpenFiles:
    """The sealed files of a log that are open, of which there are only so many."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[Segment] = []

    def use(self, segment: Segment) -> None:
        """Open the segment, and close what was not used for longest.

        Who still reads a file that is closed keeps what it has of it.
        """
        with self._lock:
            self._open = [one for one in self._open if one is not segment]
            while len(self._open) >= MAX_OPEN:
                self._open.pop(0).release()
            self._open.append(segment)

    def drop(self, segments: Sequence[Segment]) -> None:
        """Forget these."""
        with self._lock:
            self._open = [one for one in self._open if one not in segments]


@dataclass(frozen=True)
class Excerpt:
    """The parts of a log that hold a range of numbers."""

    parts: list[Part]
    schema: pa.Schema
    files: OpenFiles
    message_bytes: int
    """Arrow bytes of one batch that is read, unless a single tuple is larger."""

    def read(
        self, start: int, stop: int, columns: list[str] | None, where: Filter | None
    ) -> Iterator[Piece]:
        """The chosen columns of the tuples that a filter keeps; pieces cover the range."""
        names = chosen_schema(self.schema, columns).names
        for first, batch in self._batches(start, stop):
            if where is None:
                chosen = with_numbers(batch.select(names), first)
            else:
                mask = where(batch)
                numbers = np.arange(first, first + batch.num_rows, dtype=np.int64)
                kept = pa.array(numbers).filter(mask)
                chosen = numbered(batch.select(names).filter(mask), kept)
            yield from self._pieces(chosen, first, first + batch.num_rows)

    def fetch(
        self, numbers: npt.NDArray[np.int64], columns: list[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """The tuples with these numbers, which ascend."""
        names = chosen_schema(self.schema, columns).names
        for first, batch in self._batches(int(numbers[0]), int(numbers[-1]) + 1):
            begin, end = np.searchsorted(numbers, [first, first + batch.num_rows])
            wanted = numbers[begin:end]
            if len(wanted):
                rows = batch.select(names).take(pa.array(wanted - first))
                found = numbered(rows, pa.array(wanted))
                for piece in self._pieces(found, first, first + batch.num_rows):
                    yield piece.batch

    def _pieces(self, batch: pa.RecordBatch, start: int, stop: int) -> Iterator[Piece]:
        """The batch in pieces that one message can hold; between them they cover the range."""
        cuts = list(stretches(batch, self.message_bytes))
        numbers = batch.column(0)
        for place, (begin, end) in enumerate(cuts):
            upto = stop if place == len(cuts) - 1 else numbers[end].as_py()
            yield Piece(start, upto, batch.slice(begin, end - begin))
            start = upto
        if start < stop:
            yield Piece(start, stop, batch.slice(0, 0))

    def _batches(self, start: int, stop: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The tuples of the range in their order, each batch with its first number.

        Small entries come together: pushes may have been of a row each.
        """
        group: list[pa.RecordBatch] = []
        first = rows = 0
        for part in self.parts:
            if isinstance(part, Segment):
                self.files.use(part)
                yield from part.batches(start, stop)
                continue
            begin, end = max(start, part.first), min(stop, end_of(part))
            if not group:
                first = begin
            group.append(part.batch.slice(begin - part.first, end - begin))
            rows += end - begin
            if rows >= BATCH_ROWS:
                yield first, concat(group)
                group, rows = [], 0
        if group:
            yield first, concat(group)
