"""Arrow in bytes and back: the one form in which tuples travel and are stored."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
_PLAIN = pa.ipc.IpcWriteOptions()


def to_bytes(batch: pa.RecordBatch, *, compress: bool = False) -> pa.Buffer:
    """The batch as an Arrow IPC stream of one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_LZ4 if compress else _PLAIN) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def from_bytes(data: pa.Buffer | bytes) -> pa.RecordBatch:
    """The batch in an Arrow IPC stream of one batch; the columns point into `data` if they can."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One contiguous batch of all the rows."""
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches)
