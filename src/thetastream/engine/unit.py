"""A processing unit, without IO: packs of one batch in, instructions out.

Within a batch a unit handles all of the first stream, then all of the second: the micro-batch is
the punctuation of BiStream's order-consistent protocol. A tuple of the first stream probes what
earlier batches stored; a tuple of the second also probes what this batch brought of the first. So
each pair is found once, where the one that came first is stored, when the other probes.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from thetastream import arrow
from thetastream.engine.manifest import Manifest
from thetastream.engine.view import SLICE_COLUMN, View
from thetastream.index.chain import Chain, Run
from thetastream.index.encoding import Int64s
from thetastream.index.part import Part, PartMeta, SortOrder, Tuples
from thetastream.index.probe import Probe
from thetastream.spec import JoinSpec
from thetastream.topology.dispatcher import Pack
from thetastream.topology.routes import HOME, PROBE, STORE

PART_BYTES = 12 * 1024**2
"""Arrow bytes of a part before compression: the state store's channel needs about ten times a
value's size in memory, and a probe wants few parts."""

EMIT_BYTES = 16 * 1024**2
"""Arrow bytes of results that leave the unit at a time."""

HEAVY_HITTERS = 3
"""Most frequent keys that a report names."""


@dataclass(frozen=True)
class Emit:
    """Results leave the unit."""

    batches: tuple[pa.RecordBatch, ...]


@dataclass(frozen=True)
class PutPart:
    """A part is to be stored."""

    meta: PartMeta
    data: pa.Buffer
    part: Part


@dataclass(frozen=True)
class PutView:
    """A view that is not sent yet is to be stored."""

    meta: PartMeta
    data: pa.Buffer


@dataclass(frozen=True)
class DropPart:
    """A part is no longer needed."""

    meta: PartMeta


@dataclass(frozen=True)
class PutManifest:
    """The manifest is to be stored; the last word on the unit's state."""

    text: str


@dataclass
class Report:
    """A unit's load in one batch."""

    unit: int
    rows_in: int = 0
    probes: int = 0
    results: int = 0
    out_bytes: int = 0
    late: int = 0
    stored_rows: int = 0
    stored_bytes: int = 0
    runs: int = 0
    busy: float = 0.0
    heavy: list[tuple[int, int]] = field(default_factory=list)


Instruction = Emit | PutPart | PutView | DropPart | PutManifest | Report


class Store(Protocol):
    """What a unit may ask of its stored state."""

    def part(self, meta: PartMeta, order: SortOrder, stream: int) -> Part:
        """A part of a stream."""

    def view(self, meta: PartMeta) -> pa.RecordBatch:
        """A view that was not sent yet."""


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
        self._orders = [SortOrder.of(spec, stream) for stream in range(len(spec.streams))]
        self._fresh: dict[str, Part] = {}
        self._report = Report(number)
        self._view = None if spec.view is None else View(spec)

    def process(self, packs: Iterable[Pack], watermark: int | None) -> Iterator[Instruction]:
        """Join the packs of a batch with each other and with what is stored."""
        started = time.perf_counter()
        manifest = self._manifest
        manifest.sequence += 1
        dropped: list[PartMeta] = []
        for chain in manifest.chains:
            dropped += chain.expire(watermark)
        by_stream: list[list[Pack]] = [[] for _ in self._spec.streams]
        for pack in packs:
            by_stream[pack.stream].append(pack)
        for stream, mine in enumerate(by_stream):
            probing, storing = self._sorted(stream, mine, watermark)
            if probing is not None:
                found = _gathered(self._probe(stream, probing), self._chunk_rows)
                yield from map(self._emitted, found)
            if storing is not None:
                manifest.chains[stream].insert(self._run(stream, storing))
        if self._view is not None:
            yield from self._send(self._view)
        for stream, chain in enumerate(manifest.chains):
            dropped += self._merge(stream, chain)
        for meta in dropped:
            if self._fresh.pop(meta.id, None) is None:
                yield DropPart(meta)
        yield from self._write()
        yield PutManifest(manifest.write(self._spec))
        yield self._finished(started)

    def _emitted(self, emit: Emit) -> Emit:
        self._report.out_bytes += sum(batch.nbytes for batch in emit.batches)
        return emit

    def _sorted(
        self, stream: int, packs: Sequence[Pack], watermark: int | None
    ) -> tuple[Tuples | None, Tuples | None]:
        """The stream's tuples that probe and those that are stored, late ones left out."""
        kept = [
            (pack.role, self._on_time(stream, pack, watermark))
            for pack in packs
            if pack.batch.num_rows
        ]
        kept = [(role, tuples) for role, tuples in kept if len(tuples)]
        order = self._orders[stream]
        probing = _joined([tuples for role, tuples in kept if role & PROBE], order)
        if all(role & PROBE and role & STORE for role, _ in kept):
            return probing, probing
        return probing, _joined([tuples for role, tuples in kept if role & STORE], order)

    def _on_time(self, stream: int, pack: Pack, watermark: int | None) -> Tuples:
        tuples = Tuples.encode(pack.batch, self._spec, stream)
        time_key = self._spec.streams[stream].time
        home = bool(pack.role & HOME)
        if home:
            self._report.rows_in += len(tuples)
        if watermark is None or time_key is None:
            return tuples
        on_time = tuples.keys[time_key] >= watermark
        late = len(tuples) - int(np.count_nonzero(on_time))
        if late == 0:
            return tuples
        if home:
            self._report.late += late
        return tuples.take(np.flatnonzero(on_time))

    def _probe(self, stream: int, tuples: Tuples) -> Iterator[pa.RecordBatch]:
        stored = 1 - stream
        self._report.probes += len(tuples)
        probe = Probe(self._spec, stream, tuples)
        for meta in self._manifest.chains[stored].parts():
            rows = probe.candidates(meta.low, meta.high, self._orders[stored].equality)
            if len(rows) == 0:
                continue
            part = self._part(meta, stored)
            if self._view is not None:
                found = probe.search(part, rows)
                self._report.results += self._view.add(
                    stream, tuples, part, found, self._chunk_rows
                )
                spilled = self._view.spilled()
                if spilled is not None:
                    yield spilled
                continue
            width = _row_bytes(tuples) + _row_bytes(part)
            limit = max(1, min(self._chunk_rows, EMIT_BYTES // width))
            for probing, partners in probe.matches(part, rows, limit):
                self._report.results += len(probing)
                if stream == 0:
                    yield self._result(tuples, probing, part, partners)
                else:
                    yield self._result(part, partners, tuples, probing)

    def _result(
        self, left: Tuples, left_rows: Int64s, right: Tuples, right_rows: Int64s
    ) -> pa.RecordBatch:
        columns: list[pa.Array] = []
        names: list[str] = []
        for stream, (tuples, rows) in enumerate(((left, left_rows), (right, right_rows))):
            indices = pa.array(rows)
            for number in range(len(self._spec.streams[stream].columns)):
                columns.append(tuples.batch.column(f"c_{number}").take(indices))
                names.append(f"s{stream}_{number}")
        if self._spec.newest is not None:
            columns.append(self._newest(left, left_rows, right, right_rows))
            names.append(SLICE_COLUMN)
        return pa.RecordBatch.from_arrays(columns, names)

    def _newest(
        self, left: Tuples, left_rows: Int64s, right: Tuples, right_rows: Int64s
    ) -> pa.Array:
        first, second = (stream.time for stream in self._spec.streams)
        assert first is not None
        assert second is not None
        assert self._spec.newest is not None
        times = np.maximum(left.keys[first][left_rows], right.keys[second][right_rows])
        times = (times // self._spec.newest + 1) * self._spec.newest - 1
        return pa.array(times).cast(pa.timestamp("us", tz="UTC"))

    def _part(self, meta: PartMeta, stream: int) -> Part:
        fresh = self._fresh.get(meta.id)
        return fresh if fresh is not None else self._store.part(meta, self._orders[stream], stream)

    def _run(self, stream: int, tuples: Tuples) -> Run:
        """Sorted tuples as a run of parts; nothing is written yet, it may still be merged."""
        rows = len(tuples)
        step = max(1, min(rows, rows * PART_BYTES // max(1, tuples.batch.nbytes)))
        metas = []
        for start in range(0, rows, step):
            piece = tuples.slice(start, min(start + step, rows))
            part = Part(piece.batch, piece.keys, self._orders[stream])
            name = f"{self._manifest.sequence}-{self._number}-{stream}-{len(self._fresh)}"
            meta = PartMeta(id=name, rows=len(part), bytes=0, low=part.low, high=part.high)
            self._fresh[name] = part
            self._note_heavy(part)
            metas.append(meta)
        return Run(tuple(metas))

    def _merge(self, stream: int, chain: Chain) -> list[PartMeta]:
        dropped = []
        while (due := chain.merge_due()) is not None:
            sub, runs = due
            parts = [self._part(meta, stream) for run in runs for meta in run.parts]
            merged = _joined(parts, self._orders[stream])
            assert merged is not None
            dropped += chain.replace(sub, runs, self._run(stream, merged))
        return dropped

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
        yield PutView(manifest.pending, data)

    def _write(self) -> Iterator[PutPart]:
        """Write the parts that this batch made and that are still needed."""
        for chain in self._manifest.chains:
            for sub in chain.subs:
                for position, run in enumerate(sub.runs):
                    if not any(meta.id in self._fresh for meta in run.parts):
                        continue
                    metas = []
                    for meta in run.parts:
                        part = self._fresh[meta.id]
                        data = arrow.to_bytes(part.batch, compress=True)
                        checksum = zlib.crc32(data)
                        final = replace(
                            meta,
                            id=f"{meta.id}-{checksum:08x}",
                            bytes=data.size,
                            checksum=checksum,
                        )
                        metas.append(final)
                        yield PutPart(final, data, part)
                    sub.runs[position] = Run(tuple(metas))

    def _note_heavy(self, part: Part) -> None:
        if part.order.equality is None:
            return
        keys, starts = part.groups
        counts = np.diff(starts)
        top = np.argsort(counts)[-HEAVY_HITTERS:]
        found = [(int(keys[i]), int(counts[i])) for i in top if counts[i] > 1]
        heavy = sorted(self._report.heavy + found, key=lambda item: -item[1])
        self._report.heavy = heavy[:HEAVY_HITTERS]

    def _finished(self, started: float) -> Report:
        report = self._report
        parts = [meta for chain in self._manifest.chains for meta in chain.parts()]
        report.stored_rows = sum(meta.rows for meta in parts)
        report.stored_bytes = sum(meta.bytes for meta in parts)
        report.runs = sum(len(sub.runs) for chain in self._manifest.chains for sub in chain.subs)
        report.busy = time.perf_counter() - started
        return report


def _gathered(batches: Iterator[pa.RecordBatch], chunk_rows: int) -> Iterator[Emit]:
    """Small batches of results put together: each that leaves costs a turn through Spark."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= chunk_rows or size >= EMIT_BYTES:
            yield Emit(tuple(waiting))
            waiting, rows, size = [], 0, 0
    if waiting:
        yield Emit(tuple(waiting))


def _row_bytes(tuples: Tuples) -> int:
    return 1 + int(tuples.batch.nbytes) // max(1, len(tuples))


def _joined(tuples: Sequence[Tuples], order: SortOrder) -> Tuples | None:
    """All the tuples together, in the order of a run."""
    if not tuples:
        return None
    if len(tuples) == 1:
        return tuples[0].sorted(order)
    batch = arrow.concat([item.batch for item in tuples])
    keys = [np.concatenate(columns) for columns in zip(*(t.keys for t in tuples), strict=True)]
    return Tuples(batch, keys).sorted(order)
