"""The router on Spark: Arrow batches in, rows of packs out. Runs in `mapInArrow`."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from thetastream import arrow
from thetastream.spec import JoinSpec
from thetastream.steering.tables import Tables
from thetastream.topology import wire
from thetastream.topology.dispatch import Dispatcher
from thetastream.topology.table import Table
from thetastream.topology.wire import Kind, PackRow

PACK_BYTES = 8 * 1024**2
"""Arrow bytes of a stream that are routed together; a pack is a part of them."""

UNIT_BYTES = 64 * 1024
"""The same for each unit, where there are many of them: small packs cost as much as large ones."""

MOST_BYTES = 16 * PACK_BYTES
"""The same, at most: a pack is one value for Spark, which has no room for 2 GiB in it."""


def route(
    spec: JoinSpec,
    tables: Tables,
    stream: int,
    batches: Iterator[pa.RecordBatch],
    number: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield packs for the units from a task's rows, then a heartbeat for units without one.

    `number` is that of the micro-batch: with a live table all of its tasks, and tasks that run
    again, route by one version.
    """
    table = tables.of_batch(number)
    rows = (batch for batch in batches if batch.num_rows)
    return wire.batches(_rows(spec, table, stream, rows))


def _rows(
    spec: JoinSpec, table: Table, stream: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[PackRow]:
    dispatchers = [Dispatcher(spec, table, stage, stream) for stage in spec.stages]
    silent = set(table.active(0))
    least = max(PACK_BYTES, min(MOST_BYTES, len(silent) * UNIT_BYTES))
    made = {"version": table.version, "digest": table.digest}
    for batch in _gathered(batches, least):
        for stage, dispatcher in enumerate(dispatchers):
            for unit, _, role, some in dispatcher.dispatch(batch):
                by = unit if stage == 0 else table.through(0, unit)
                silent.discard(by)
                yield wire.row(
                    stage,
                    unit,
                    Kind.TUPLES,
                    by=by,
                    stream=stream,
                    role=role,
                    rows=some.num_rows,
                    blob=arrow.to_bytes(some),
                    **made,
                )
    for unit in sorted(silent):
        yield wire.row(0, unit, Kind.HEARTBEAT, stream=stream, **made)


def _gathered(batches: Iterator[pa.RecordBatch], least: int) -> Iterator[pa.RecordBatch]:
    """Spark's small batches put together to so many bytes, and huge ones cut."""
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
            if size >= least:
                yield arrow.concat(waiting)
                waiting, size = [], 0
    if waiting:
        yield arrow.concat(waiting)
