"""The rows that travel between the tasks of a join: one for each pack.

Packs for a later stage ride through the units of the first, so that a stream is read once; what a
stage hands on has the same columns. Everything a row says is in a column of its own. No column has
NULLs: pandas reads integers beside one as floats, which do not hold each microsecond.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from thetastream.topology.unitkeys import unit_key

BATCH_BYTES = 1 << 20
"""Small packs are put together in record batches of about this many bytes."""


class Kind(enum.IntEnum):
    """What a row brings."""

    HEARTBEAT = 0
    """Nothing: it gives its unit a turn, to expire what is old."""
    TUPLES = 1
    """Tuples of a stream, in the roles that the row says."""
    FORWARDED = 2
    """Packs of the stage before, of tuples that have met."""
    RESULT = 3
    """Results of the stage before, on their way out."""
    MARK = 4
    """The watermark of the stage before."""


class PackRow(NamedTuple):
    """One row."""

    key: int
    """The grouping key of the unit that gets it now."""
    stage: int
    """The stage that it is for."""
    unit: int
    """The unit of that stage."""
    stream: int
    kind: int
    role: int
    version: int
    """Of the table by which it was routed."""
    watermark: int
    """In microseconds, of a mark."""
    rows: int
    blob: bytes | pa.Buffer


_FIELDS = (
    ("key", "int", pa.int32()),
    ("stage", "int", pa.int32()),
    ("unit", "int", pa.int32()),
    ("stream", "int", pa.int32()),
    ("kind", "int", pa.int32()),
    ("role", "int", pa.int32()),
    ("version", "bigint", pa.int64()),
    ("watermark", "bigint", pa.int64()),
    ("rows", "bigint", pa.int64()),
    ("blob", "binary", pa.binary()),
)
DDL = ", ".join(f"{name} {kind}" for name, kind, _ in _FIELDS)
"""The columns as Spark reads them."""
SCHEMA = pa.schema([(name, kind) for name, _, kind in _FIELDS])
NAMES = tuple(name for name, _, _ in _FIELDS)


def row(
    stage: int,
    unit: int,
    kind: Kind,
    *,
    by: int | None = None,
    stream: int = 0,
    role: int = 0,
    version: int = 0,
    watermark: int = 0,
    rows: int = 0,
    blob: bytes | pa.Buffer = b"",
) -> PackRow:
    """A row for a unit; `by` is the unit of an earlier stage that hands it on."""
    key = unit_key(unit if by is None else by)
    return PackRow(key, stage, unit, stream, kind, role, version, watermark, rows, blob)


def batches(rows: Iterable[PackRow]) -> Iterator[pa.RecordBatch]:
    """The rows as Arrow batches: large ones alone, without a copy, small ones together."""
    waiting: list[PackRow] = []
    size = 0
    for one in rows:
        length = len(one.blob) if isinstance(one.blob, bytes) else one.blob.size
        if length >= BATCH_BYTES:
            yield _batch([one])
            continue
        waiting.append(one)
        size += length
        if size >= BATCH_BYTES:
            yield _batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting)


def _batch(rows: Sequence[PackRow]) -> pa.RecordBatch:
    *plain, blobs = zip(*rows, strict=True)
    columns = [
        pa.array(values, kind) for values, (_, _, kind) in zip(plain, _FIELDS[:-1], strict=True)
    ]
    return pa.RecordBatch.from_arrays([*columns, _binary(blobs)], schema=SCHEMA)


def _binary(blobs: Sequence[bytes | pa.Buffer]) -> pa.Array:
    if len(blobs) == 1:
        data = blobs[0] if isinstance(blobs[0], pa.Buffer) else pa.py_buffer(blobs[0])
        offsets = pa.array([0, data.size], pa.int32()).buffers()[1]
        return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, data])
    return pa.array([bytes(memoryview(blob)) for blob in blobs], pa.binary())
