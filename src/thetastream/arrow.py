"""Arrow in bytes and back, and how many bytes: the one form in which tuples travel and are stored.

Texts have offsets of 32 bits, so that a column of one batch holds less than 2 GiB. Whoever puts
batches together or repeats rows of them stays below `SAFE_BYTES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

SAFE_BYTES = 512 * 1024**2
"""Arrow bytes of rows that are put together or made at a time."""

# A task has one core. Handing each buffer of a small batch to other threads takes eight times as
# long as doing it.
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_PLAIN = pa.ipc.IpcWriteOptions(use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


def to_bytes(*batches: pa.RecordBatch, compress: bool = False) -> pa.Buffer:
    """The batches, of one schema, as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    options = _LZ4 if compress else _PLAIN
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def read_batches(data: pa.Buffer | bytes) -> Iterator[pa.RecordBatch]:
    """The batches in an Arrow IPC stream; their columns point into `data` if they can."""
    with pa.ipc.open_stream(data, options=_READ) as reader:
        yield from reader


def from_bytes(data: pa.Buffer | bytes) -> pa.RecordBatch:
    """The only batch in an Arrow IPC stream."""
    (batch,) = read_batches(data)
    return batch


def sections_to_bytes(*batches: pa.RecordBatch, compress: bool = False) -> pa.Buffer:
    """Batches of different schemas, one Arrow IPC stream after the other."""
    sink = pa.BufferOutputStream()
    options = _LZ4 if compress else _PLAIN
    for batch in batches:
        with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)
    return sink.getvalue()


def sections_from_bytes(data: pa.Buffer | bytes) -> list[pa.RecordBatch]:
    """The batches that `sections_to_bytes` wrote."""
    source = pa.BufferReader(data)
    found = []
    while source.tell() < source.size():
        with pa.ipc.open_stream(source, options=_READ) as reader:
            found += list(reader)
    return found


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One contiguous batch of all the rows."""
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches)


def converted(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns of `target`, by name and in its types; those it lacks are NULL.

    Times may lose what is finer than the unit of the target.
    """
    columns = []
    for field in target:
        if field.name not in batch.schema.names:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        columns.append(cast(batch.column(field.name), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=target)


def cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column in that type; times may lose what is finer than its unit."""
    if column.type == kind:
        return column
    return pc.cast(column, options=pc.CastOptions(target_type=kind, allow_time_truncate=True))


def stretches(batch: pa.RecordBatch, limit: int) -> Iterator[tuple[int, int]]:
    """Where to cut the batch: stretches of rows of at most `limit` bytes, or of a single row."""
    rows = int(batch.num_rows)
    if rows == 0:
        return
    if batch.nbytes <= limit:
        yield 0, rows
        return
    upto = np.cumsum(row_bytes(batch))
    start, before = 0, 0
    while start < rows:
        stop = max(start + 1, int(np.searchsorted(upto, before + limit, "right")))
        yield start, stop
        start, before = stop, int(upto[stop - 1])


def row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Arrow bytes of each row, without what says where its values are."""
    total = np.zeros(batch.num_rows, dtype=np.int64)
    total += _row_bytes(batch.columns)
    return total


def widest(batch: pa.RecordBatch) -> int:
    """The same of the largest row."""
    return int(np.max(_row_bytes(batch.columns), initial=0)) if batch.num_rows else 0


def offsets(column: pa.Array) -> npt.NDArray[np.int64]:
    """Where each text or list begins, and where the last one ends."""
    kind = column.type
    large = (
        pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_list(kind)
    )
    if len(column) == 0:
        return np.zeros(1, dtype=np.int64)
    found = np.frombuffer(column.buffers()[1], dtype=np.int64 if large else np.int32)
    return found[column.offset : column.offset + len(column) + 1].astype(np.int64)


def is_text(kind: pa.DataType) -> bool:
    """Whether the values are bytes of any number."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )


def is_list(kind: pa.DataType) -> bool:
    """Whether the values are lists or maps."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind))


def _row_bytes(columns: Iterable[pa.Array]) -> npt.NDArray[np.int64] | int:
    """Bytes of each row; one number where all are alike."""
    return sum(map(_value_bytes, columns), 0)


def _value_bytes(column: pa.Array) -> npt.NDArray[np.int64] | int:
    """Bytes of each value; one number where all are alike."""
    kind = column.type
    if is_text(kind):
        return np.diff(offsets(column))
    if pa.types.is_struct(kind):
        return _row_bytes(column.flatten())
    if is_list(kind):
        places = offsets(column)
        begin, end = int(places[0]), int(places[-1])
        inner = _value_bytes(column.values.slice(begin, end - begin))
        if isinstance(inner, int):
            return np.diff(places) * inner
        upto = np.concatenate([[0], np.cumsum(inner)])
        return np.diff(upto[places - begin])
    return -(-int(column.nbytes) // max(1, len(column)))
