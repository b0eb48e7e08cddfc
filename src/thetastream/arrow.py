"""Arrow in bytes and back: the one form in which tuples travel and are stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
_PLAIN = pa.ipc.IpcWriteOptions()


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
    with pa.ipc.open_stream(data) as reader:
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
        with pa.ipc.open_stream(source) as reader:
            found += list(reader)
    return found


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One contiguous batch of all the rows."""
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches)
