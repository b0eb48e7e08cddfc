"""A processing unit, without IO: packs of one batch in, instructions out.

Within a batch a unit handles all of the first stream, then all of the second: the micro-batch is
the punctuation of BiStream's order-consistent protocol. A tuple of the first stream probes what
earlier batches stored; a tuple of the second also probes what this batch brought of the first. So
each pair is found once, where the one that came first is stored, when the other probes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from thetastream import arrow
from thetastream.engine.arrivals import Arrivals
from thetastream.engine.manifest import Manifest
from thetastream.engine.protocol import (
    DropPart,
    Emit,
    Instruction,
    PutManifest,
    PutPart,
    Report,
    Store,
)
from thetastream.engine.shelf import Shelf
from thetastream.engine.view import View
from thetastream.index.encoding import Int64s
from thetastream.index.layout import TupleLayout
from thetastream.index.part import PartMeta, SortOrder, Tuples, bundled
from thetastream.index.probe import Probe
from thetastream.spec import NEWEST, JoinSpec, StreamSpec, is_carried, result_column
from thetastream.topology.dispatcher import Pack
from thetastream.topology.routes import HOME, PROBE, STORE

EMIT_BYTES = 16 * 1024**2
"""Arrow bytes of results that leave the unit at a time."""


class Unit:
    """One unit during one batch."""

    def __init__(
        self, spec: JoinSpec, number: int, manifest: Manifest, store: Store, *, chunk_rows: int
    ) -> None:
        self._spec = spec
        self._number = number
        self._manifest = manifest
        self._store = store
        self._chunk_rows = chunk_rows
        self._layouts = [
            TupleLayout(stream, SortOrder.of(spec, number))
            for number, stream in enumerate(spec.streams)
        ]
        self._shelf = Shelf(number, manifest, self._layouts, store)
        self._report = Report(number)
        self._arrivals = Arrivals(spec.streams)
        self._view = None if spec.view is None else View(spec)

    def process(self, packs: Iterable[Pack], watermark: int | None) -> Iterator[Instruction]:
        """Join the packs of a batch with each other and with what is stored."""
        manifest = self._manifest
        manifest.sequence += 1
        self._shelf.expire(watermark)
        by_stream: list[list[Pack]] = [[] for _ in self._spec.streams]
        for pack in packs:
            by_stream[pack.stream].append(pack)
        for stream, mine in enumerate(by_stream):
            probing, storing = self._sorted(stream, mine, watermark)
            for tuples in probing:
                found = gathered(self._probe(stream, tuples), self._chunk_rows)
                yield from map(self._emitted, found)
            for tuples in storing:
                self._shelf.store(stream, tuples)
        if self._view is not None:
            yield from self._send(self._view)
        self._shelf.merge()
        yield from self._shelf.written()
        yield PutManifest(manifest.write(self._spec))
        for stream, chain in enumerate(manifest.chains):
            self._arrivals.kept(stream, chain.parts())
        yield with_totals(self._report, self._arrivals, manifest)

    def _emitted(self, emit: Emit) -> Emit:
        self._report.out_bytes += sum(batch.nbytes for batch in emit.batches)
        return emit

    def _sorted(
        self, stream: int, packs: Sequence[Pack], watermark: int | None
    ) -> tuple[list[Tuples], list[Tuples]]:
        """The stream's tuples that probe and those that are stored, late ones left out.

        Each in one piece, or in several if the batch is huge.
        """
        kept = [
            (pack.role, self._on_time(stream, pack, watermark))
            for pack in packs
            if pack.batch.num_rows
        ]
        kept = [(role, tuples) for role, tuples in kept if len(tuples)]
        order = self._layouts[stream].order
        probing = _in_order([tuples for role, tuples in kept if role & PROBE], order)
        storing = probing
        if not all(role & PROBE and role & STORE for role, _ in kept):
            storing = _in_order([tuples for role, tuples in kept if role & STORE], order)
        # A matrix stores tuples in other units than their home, too.
        at_home = all(role & HOME for role, _ in kept if role & STORE)
        home = [] if at_home else [tuples for role, tuples in kept if role & HOME]
        for tuples in storing if at_home else _in_order(home, order):
            self._arrivals.keys(stream, tuples, order.equality)
        return probing, storing

    def _on_time(self, stream: int, pack: Pack, watermark: int | None) -> Tuples:
        described = self._spec.streams[stream]
        tuples = Tuples.encode(pack.batch, described)
        found = on_time(tuples, described, watermark)
        if pack.role & HOME:
            late = len(tuples) - len(found)
            self._report.rows_in += len(tuples)
            self._report.late += late
            self._arrivals.add(stream, tuples, late)
        return found

    def _probe(self, stream: int, tuples: Tuples) -> Iterator[pa.RecordBatch]:
        stored = 1 - stream
        self._report.probes += len(tuples)
        probe = Probe(self._spec, stream, tuples)
        for meta in self._shelf.metas(stored):
            rows = probe.candidates(meta.low, meta.high, self._layouts[stored].order.equality)
            if len(rows) == 0:
                continue
            part = self._shelf.tuples(stored, meta)
            if self._view is not None:
                found = probe.search(part, rows)
                limit = take_limit(self._chunk_rows, tuples, part)
                self._report.results += self._view.add(stream, tuples, part, found, limit)
                spilled = self._view.spilled()
                if spilled is not None:
                    yield spilled
                continue
            limit = chunk_limit(self._chunk_rows, tuples, part)
            for probing, partners in probe.matches(part, rows, limit):
                self._report.results += len(probing)
                if stream == 0:
                    yield self._result(tuples, probing, part, partners)
                else:
                    yield self._result(part, partners, tuples, probing)

    def _result(
        self, left: Tuples, left_rows: Int64s, right: Tuples, right_rows: Int64s
    ) -> pa.RecordBatch:
        members = ((left, left_rows), (right, right_rows))
        newest = newest_column(self._spec.streams, members, self._spec.newest)
        return result_batch([left.batch, right.batch], [left_rows, right_rows], newest)

    def _send(self, view: View) -> Iterator[Instruction]:
        """The view leaves, or is kept until enough batches are in it."""
        manifest = self._manifest
        assert self._spec.view is not None
        old = manifest.pending
        due = manifest.sequence % self._spec.view.every == 0
        if not due and not view:
            return
        if old is not None:
            view.take_back(self._store.view(old))
            manifest.pending = None
            yield DropPart(old)
        rows = view.rows()
        if rows is None:
            return
        if due:
            yield self._emitted(Emit((rows,)))
            return
        data = arrow.to_bytes(rows, compress=True)
        checksum = zlib.crc32(data)
        manifest.pending = PartMeta(
            id=f"{manifest.sequence}-{self._number}-2-0-{checksum:08x}",
            rows=rows.num_rows,
            bytes=data.size,
            low=(),
            high=(),
            checksum=checksum,
        )
        yield PutPart(manifest.pending, data)


def gathered(batches: Iterator[pa.RecordBatch], chunk_rows: int) -> Iterator[Emit]:
    """Small batches of results put together: each that leaves costs a turn through Spark.

    Putting them together copies them, so that a quarter of what may leave at a time is enough.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if 4 * rows >= chunk_rows or 4 * size >= EMIT_BYTES:
            yield Emit(tuple(waiting))
            waiting, rows, size = [], 0, 0
    if waiting:
        yield Emit(tuple(waiting))


def newest_column(
    streams: Sequence[StreamSpec], members: Sequence[tuple[Tuples, Int64s]], length: int | None
) -> pa.Array | None:
    """The last microsecond of the slice that each result's newest member is in."""
    if length is None:
        return None
    times = []
    for stream, (tuples, rows) in zip(streams, members, strict=True):
        assert stream.newest is not None
        times.append(tuples.keys[stream.newest][rows])
    ends = (np.maximum.reduce(times) // length + 1) * length - 1
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


def chunk_limit(chunk_rows: int, *sides: Tuples) -> int:
    """Results that are made at a time, so that their bytes are bounded too."""
    width = sum(1 + int(side.batch.nbytes) // max(1, len(side)) for side in sides)
    return max(1, min(take_limit(chunk_rows, *sides), EMIT_BYTES // width))


def take_limit(chunk_rows: int, *sides: Tuples) -> int:
    """Results that can be made at a time, whichever tuples they are of."""
    widest = sum(side.widest for side in sides)
    return max(1, min(chunk_rows, arrow.SAFE_BYTES // max(1, widest)))


def on_time(tuples: Tuples, stream: StreamSpec, watermark: int | None) -> Tuples:
    """The tuples that the watermark has not passed; what another join made is never late."""
    if watermark is None or stream.time is None or stream.is_join_result:
        return tuples
    kept = tuples.keys[stream.time] >= watermark
    return tuples if kept.all() else tuples.take(np.flatnonzero(kept))


def with_totals(report: Report, arrivals: Arrivals, manifest: Manifest) -> Report:
    """The report with what came and what the unit now stores."""
    report.streams, report.heavy = arrivals.streams(), arrivals.heavy()
    parts = [meta for chain in manifest.chains for meta in chain.parts()]
    report.stored_rows = sum(meta.rows for meta in parts)
    report.stored_bytes = sum(meta.bytes for meta in parts)
    report.runs = sum(len(sub.runs) for chain in manifest.chains for sub in chain.subs)
    return report


def _in_order(tuples: Sequence[Tuples], order: SortOrder) -> list[Tuples]:
    """All the tuples together, in the order of a run."""
    return [some.sorted(order) for some in bundled(tuples)]
