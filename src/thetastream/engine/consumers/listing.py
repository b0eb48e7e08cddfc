"""Results, listed: each with the carried columns of all its members."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from thetastream import arrow
from thetastream.engine.consumers import Consumer
from thetastream.engine.protocol import Emit, Instruction, Pass, Report
from thetastream.index.encoding import Int64s
from thetastream.index.packing import compact
from thetastream.index.part import Part, Tuples
from thetastream.index.probe import Found
from thetastream.spec import NEWEST, JoinSpec, Meeting, is_carried, result_column

EMIT_BYTES = 16 * 1024**2
"""Arrow bytes of results that leave the unit at a time."""


class Member(NamedTuple):
    """Tuples of one stream that are part of results, and which of them."""

    stream: int
    tuples: Tuples
    rows: Int64s


class Listing(Consumer):
    """Results leave the unit.

    Small batches are put together: each that leaves costs a turn through Spark. That copies them,
    so that a quarter of what may leave at a time is enough.
    """

    def __init__(self, spec: JoinSpec, report: Report, chunk_rows: int) -> None:
        self._spec = spec
        self._report = report
        self._chunk_rows = chunk_rows
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._size = 0

    def limit(self, *sides: Tuples) -> int:
        """Results that are made at a time, so that their bytes are bounded too."""
        width = sum(1 + int(side.batch.nbytes) // max(1, len(side)) for side in sides)
        return max(1, min(take_limit(self._chunk_rows, *sides), EMIT_BYTES // width))

    def take(
        self, meeting: Meeting, tuples: Tuples, part: Part, found: Found
    ) -> Iterator[Instruction]:
        """The pairs are results."""
        for probing, partners in found.pairs(part, self.limit(tuples, part)):
            mine = Member(meeting.new, tuples, probing)
            yield from self.add((mine, Member(meeting.stored, part, partners)))

    def add(self, members: Sequence[Member]) -> Iterator[Instruction]:
        """Results of the members, row by row."""
        self._report.results += len(members[0].rows)
        ordered = sorted(members, key=lambda member: member.stream)
        batches, rows = [m.tuples.batch for m in ordered], [m.rows for m in ordered]
        yield from self.put(result_batch(batches, rows, newest_column(self._spec, ordered)))

    def put(self, batch: pa.RecordBatch) -> Iterator[Instruction]:
        """Rows that leave."""
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._size += batch.nbytes
        if 4 * self._rows >= self._chunk_rows or 4 * self._size >= EMIT_BYTES:
            yield from self.finish()

    def finish(self) -> Iterator[Instruction]:
        """What waits leaves."""
        if self._waiting:
            self._report.out_bytes += self._size
            yield Emit(tuple(self._waiting))
            self._waiting, self._rows, self._size = [], 0, 0


class Passing(Listing):
    """Results of a first stage, which leave through a unit of the last."""

    def __init__(self, spec: JoinSpec, report: Report, chunk_rows: int, unit: int) -> None:
        super().__init__(spec, report, chunk_rows)
        self._unit = unit

    def add(self, members: Sequence[Member]) -> Iterator[Instruction]:
        """Results of the members, row by row."""
        ordered = sorted(members, key=lambda member: member.stream)
        data = factored(ordered, newest_column(self._spec, ordered))
        self._report.results += len(members[0].rows)
        self._report.out_bytes += data.size
        yield Pass(self._unit, len(members[0].rows), data)


def newest_column(spec: JoinSpec, members: Sequence[Member]) -> pa.Array | None:
    """The last microsecond of the slice that each result's newest member is in."""
    if spec.newest is None:
        return None
    times = []
    for member in members:
        key = spec.streams[member.stream].newest
        if key is not None:
            times.append(member.tuples.keys[key][member.rows])
    ends = (np.maximum.reduce(times) // spec.newest + 1) * spec.newest - 1
    return pa.array(ends).cast(pa.timestamp("us", tz="UTC"))


def result_batch(
    batches: Sequence[pa.RecordBatch], rows: Sequence[Int64s], newest: pa.Array | None
) -> pa.RecordBatch:
    """Results with the carried columns of each stream, from rows of the streams' batches."""
    columns: list[pa.Array] = []
    names: list[str] = []
    for stream, (batch, mine) in enumerate(zip(batches, rows, strict=True)):
        indices = pa.array(mine)
        for number, name in enumerate(carried(batch)):
            columns.append(batch.column(name).take(indices))
            names.append(result_column(stream, number))
    if newest is not None:
        columns.append(newest)
        names.append(NEWEST)
    return pa.RecordBatch.from_arrays(columns, names)


def carried(batch: pa.RecordBatch) -> list[str]:
    """The names of the columns that results carry, in their order; keys are beside them."""
    return [name for name in batch.schema.names if is_carried(name)]


def take_limit(chunk_rows: int, *sides: Tuples) -> int:
    """Results that can be made at a time, whichever tuples they are of."""
    widest = sum(side.widest for side in sides)
    return max(1, min(chunk_rows, arrow.SAFE_BYTES // max(1, widest)))


def factored(members: Sequence[Member], newest: pa.Array | None) -> pa.Buffer:
    """Results as the members that occur in them, each once, and rows of them.

    They are a fraction of the size of the results, which have every member many times.
    """
    batches, indices, names = [], [], []
    for member in members:
        used, rows = compact(member.tuples, member.rows)
        batches.append(used.batch.select(carried(used.batch)))
        indices.append(pa.array(rows, pa.int32()))
        names.append(str(member.stream))
    if newest is not None:
        indices.append(newest)
        names.append(NEWEST)
    return arrow.sections_to_bytes(*batches, pa.RecordBatch.from_arrays(indices, names))


def unfactored(data: pa.Buffer | bytes) -> pa.RecordBatch:
    """The results in what `factored` made."""
    *batches, indices = arrow.sections_from_bytes(data)
    rows = [np.asarray(indices.column(str(stream))) for stream in range(len(batches))]
    newest = indices.column(NEWEST) if NEWEST in indices.schema.names else None
    return result_batch(batches, rows, newest)
