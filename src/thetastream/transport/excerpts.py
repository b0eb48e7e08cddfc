"""Reading a range of a log: chosen columns in pieces, or single tuples by their numbers.

An excerpt has what held its range when it was made. Later appends, and forgetting, do not change
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.arrow import stretches
from thetastream.transport.catalogue import Entry
from thetastream.transport.filters import Filter
from thetastream.transport.messages import chosen_schema, numbered, with_numbers
from thetastream.transport.segments import Segment, evenly

Part = Segment | Entry
"""What holds some tuples of a log: a sealed file, or an entry of its catalogue."""


def end_of(part: Part) -> int:
    """The number behind the last tuple of the part."""
    return part.stop if isinstance(part, Segment) else part.first + int(part.batch.num_rows)


def _between(numbers: npt.NDArray[np.int64], start: int, stop: int) -> npt.NDArray[np.int64]:
    begin, end = np.searchsorted(numbers, [start, stop])
    return numbers[begin:end]


class Piece(NamedTuple):
    """What was found among the tuples from `start` up to `stop`; their numbers come first."""

    start: int
    stop: int
    batch: pa.RecordBatch


@dataclass(frozen=True)
class Excerpt:
    """The parts of a log that hold a range of numbers."""

    parts: list[Part]
    schema: pa.Schema
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
        # Files without any of them are not opened.
        parts = [part for part in self.parts if len(_between(numbers, part.first, end_of(part)))]
        for first, batch in replace(self, parts=parts)._batches(0, int(numbers[-1]) + 1):
            wanted = _between(numbers, first, first + batch.num_rows)
            rows = numbered(batch.select(names).take(pa.array(wanted - first)), pa.array(wanted))
            for piece in self._pieces(rows, first, first + batch.num_rows):
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

        Entries come in batches of some size: pushes may have been of a row each.
        """
        run: list[pa.RecordBatch] = []
        first = end = 0
        for part in self.parts:
            if isinstance(part, Segment):
                yield from part.batches(start, stop)
                continue
            begin = max(start, part.first)
            if begin != end:
                yield from _evenly_from(first, run)
                run, first = [], begin
            end = min(stop, end_of(part))
            run.append(part.batch.slice(begin - part.first, end - begin))
        yield from _evenly_from(first, run)


def _evenly_from(first: int, run: list[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Entries without a gap between them, in batches of some size with their first numbers."""
    for batch in evenly(run):
        yield first, batch
        first += batch.num_rows
