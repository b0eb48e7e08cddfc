"""The router on Spark: Arrow batches in, packs out. Runs in `mapInArrow`."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from thetastream import arrow
from thetastream.graph import TriSpec
from thetastream.runtime.unitkeys import unit_key
from thetastream.spec import JoinSpec
from thetastream.topology.dispatcher import Dispatcher
from thetastream.topology.tri import TriDispatcher, relayed

PACK_BYTES = 8 * 1024**2
"""Arrow bytes of a stream that are routed together; a pack is a part of them."""

MOST_BYTES = 16 * PACK_BYTES
"""The same, at most: a pack is one value for Spark, which has no room for 2 GiB in it."""

PACK_DDL = "unit int, stream int, role int, rows bigint, blob binary"
PACK_SCHEMA = pa.schema(
    [
        ("unit", pa.int32()),
        ("stream", pa.int32()),
        ("role", pa.int32()),
        ("rows", pa.int64()),
        ("blob", pa.binary()),
    ]
)
HEARTBEAT = 0
"""The role of a pack without tuples: it gives its unit a turn, to expire what is old."""


def route(
    spec: JoinSpec, stream: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Packs for the units from the stream's batches, then a heartbeat for units without one."""
    dispatcher = Dispatcher(spec, stream)
    silent = set(range(dispatcher.units))
    for batch in _gathered(batches):
        for pack in dispatcher.dispatch(batch):
            silent.discard(pack.unit)
            yield _row(pack.unit, stream, pack.role, pack.batch)
    yield from _heartbeats(silent, stream)


def route_three(
    spec: TriSpec, stream: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Packs for the units of a three-way join from the stream's batches.

    Those for a second stage are handed on by the first, so that the stream is read once.
    """
    first, *others = (TriDispatcher(stage, stream) for stage in spec.stages)
    silent = set(first.units)
    for batch in _gathered(batches):
        for pack in first.dispatch(batch):
            silent.discard(pack.unit)
            yield _row(pack.unit, stream, pack.role, pack.batch)
        for dispatcher in others:
            for pack in dispatcher.dispatch(batch):
                by = pack.unit % len(first.units)
                yield _row(by, stream, relayed(pack.role, pack.unit), pack.batch)
    yield from _heartbeats(silent, stream)


def _heartbeats(units: set[int], stream: int) -> Iterator[pa.RecordBatch]:
    for unit in sorted(units):
        yield _row(unit, stream, HEARTBEAT, None)


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Spark's small batches put together, and huge ones cut."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        for start, stop in arrow.stretches(batch, MOST_BYTES):
            some = batch.slice(start, stop - start)
            if waiting and size + some.nbytes > MOST_BYTES:
                yield arrow.concat(waiting)
                waiting, size = [], 0
            waiting.append(some)
            size += some.nbytes
            if size >= PACK_BYTES:
                yield arrow.concat(waiting)
                waiting, size = [], 0
    if waiting:
        yield arrow.concat(waiting)


def _row(unit: int, stream: int, role: int, batch: pa.RecordBatch | None) -> pa.RecordBatch:
    blob = pa.py_buffer(b"") if batch is None else arrow.to_bytes(batch)
    offsets = pa.array([0, blob.size], pa.int32()).buffers()[1]
    column = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, blob])
    rows = 0 if batch is None else batch.num_rows
    return pa.RecordBatch.from_arrays(
        [
            pa.array([unit_key(unit)], pa.int32()),
            pa.array([stream], pa.int32()),
            pa.array([role], pa.int32()),
            pa.array([rows], pa.int64()),
            column,
        ],
        schema=PACK_SCHEMA,
    )
