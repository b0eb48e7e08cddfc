"""The rows that travel between the tasks of a join: one for each pack.

Packs for a later stage ride through the units of the first, so that a stream is read once; what a
stage hands on has the same columns. Everything a row says is in a column of its own. No column has
NULLs: pandas reads integers beside one as floats, which do not hold each microsecond.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

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
    kind: int
    stream: int = 0
    role: int = 0
    version: int = 0
    digest: int = 0
    """Of the table by which it was routed."""
    watermark: int = 0
    """In microseconds, of a mark."""
    rows: int = 0
    blob: bytes | pa.Buffer = b""


_SMALL = ("key", "stage", "unit", "kind", "stream", "role")
SCHEMA = pa.schema(
    [
        *((name, pa.int32()) for name in _SMALL),
        *((name, pa.int64()) for name in ("version", "digest", "watermark", "rows")),
        ("blob", pa.binary()),
    ]
)


def row(stage: int, unit: int, kind: Kind, by: int | None = None, **fields: Any) -> PackRow:
    """A row for a unit; `by` is the unit of an earlier stage that hands it on."""
    return PackRow(unit_key(unit if by is None else by), stage, unit, kind, **fields)


def handed_on(given: Sequence[Any]) -> PackRow:
    """A row that was for a later stage, on its way to its own unit."""
    found = PackRow(*given)
    return found._replace(key=unit_key(int(found.unit)))


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
    kinds = [field.type for field in SCHEMA][:-1]
    columns = [pa.array(values, kind) for values, kind in zip(plain, kinds, strict=True)]
    return pa.RecordBatch.from_arrays([*columns, _binary(blobs)], schema=SCHEMA)


def _binary(blobs: Sequence[bytes | pa.Buffer]) -> pa.Array:
    if len(blobs) == 1:
        data = blobs[0] if isinstance(blobs[0], pa.Buffer) else pa.py_buffer(blobs[0])
        offsets = pa.array([0, data.size], pa.int32()).buffers()[1]
        return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, data])
    return pa.array([bytes(memoryview(blob)) for blob in blobs], pa.binary())
