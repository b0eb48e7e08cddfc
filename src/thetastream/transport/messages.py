"""What a batch of tuples may be, and how it is checked before anything uses it.

Arrow's own format has no checksum: a flipped bit in a number is another number. So each batch
travels and is stored with the CRC-32 of its serialised form, which is the same on both ends.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from thetastream.errors import SiteDataError, SiteRequestError
from thetastream.sizes import format_size
from thetastream.transport.headers import check_batch, check_schema

NUMBER = "_number"
"""The column with the numbers of tuples, first in everything that a site serves."""

MAX_DEPTH = 8
"""How deep types may be nested."""
MAX_COLUMNS = 1_000
MAX_NAME = 255
"""Characters in the name of a column."""

PIECE_BYTES = 1024**2
"""Bytes of a pushed batch that travel as one message."""

_PLAIN = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_decimal128,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_date32,
    pa.types.is_timestamp,
)
_BAD_ARROW = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError, TypeError)
"""What Arrow raises for bytes that are not its own."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one request may ask for or bring."""

    batch_bytes: int = 64 * 1024**2
    """Arrow bytes of one pushed batch."""
    batch_rows: int = 1_000_000
    request_bytes: int = 1024**2
    """Bytes of a request's own text."""
    numbers: int = 100_000
    """Tuples that one request may name by their numbers."""
    requests: int = 32
    """Requests that are answered at the same time, beside questions about the site."""
    message_bytes: int = 1024**2
    """Arrow bytes of one message that is sent, unless a single tuple is larger."""
    connections: int = 256
    idle_seconds: int = 120
    """Seconds without a message after which a call or a connection is ended."""
    memory_bytes: int = 1024**3
    """Memory of all requests together; those that need more than is left wait, or come again."""


def checksum(batch: pa.RecordBatch) -> int:
    """The CRC-32 of the batch as Arrow writes it."""
    return zlib.crc32(batch.serialize())


def stream_schema(schema: pa.Schema) -> pa.Schema:
    """The schema as a stream keeps it; raises SiteRequestError for what no stream can have."""
    if not 0 < len(schema) <= MAX_COLUMNS:
        raise SiteRequestError(
            f"a stream of {len(schema)} columns", hint=f"send 1 to {MAX_COLUMNS} columns"
        )
    names = schema.names
    for name in names:
        if name == NUMBER or not 0 < len(name) <= MAX_NAME or not name.isprintable():
            raise SiteRequestError(
                f"a column cannot be called {name[:MAX_NAME]!r}",
                hint=f"give it another name; {NUMBER} is the number that the site gives a tuple",
            )
        if names.count(name) > 1:
            raise SiteRequestError(f"two columns are called {name!r}", hint="rename one of them")
    for field in schema:
        _check_type(field.type, field.name, MAX_DEPTH)
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _check_type(kind: pa.DataType, column: str, depth: int) -> None:
    if depth and any(test(kind) for test in _PLAIN):
        return
    nested = (
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_struct(kind)
        or pa.types.is_map(kind)
    )
    if not depth or not nested or kind.num_fields == 0:
        raise SiteRequestError(
            f"column {column!r} has the type {str(kind)[:MAX_NAME]}, which a site does not keep",
            hint="cast it to a number, a text, a date, a timestamp, or a list or struct of these",
        )
    for number in range(kind.num_fields):
        _check_type(kind.field(number).type, column, depth - 1)


def checked(
    batch: pa.RecordBatch, schema: pa.Schema, *, crc: int | None, limits: Limits
) -> pa.RecordBatch:
    """The batch, fit for use: raises SiteDataError for bytes that are not a batch of the schema."""
    if batch.num_rows > limits.batch_rows:
        raise SiteRequestError(
            f"a batch of {batch.num_rows:,} rows",
            hint=f"send at most {limits.batch_rows:,} rows at a time",
        )
    found = batch.schema
    if found.names != schema.names or found.types != schema.types:
        raise SiteRequestError(
            "the rows do not have the stream's columns",
            detail=f"  {_described(found)}\n  instead of {_described(schema)}",
            hint="send the same columns, with the same types and in the same order",
        )
    try:
        # Before anything else reads a value: offsets could point anywhere.
        batch.validate(full=True)
        size = batch.nbytes
        if size > limits.batch_bytes:
            raise SiteRequestError(
                f"a batch of {format_size(size)}",
                hint=f"send at most {format_size(limits.batch_bytes)} at a time",
            )
        wrong = crc is not None and checksum(batch) != crc
        plain = pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    except _BAD_ARROW as error:
        raise SiteDataError(
            "a batch is damaged",
            detail=f"  {str(error).splitlines()[0][:200] if str(error) else type(error).__name__}",
            hint="send it again",
        ) from None
    if wrong:
        raise SiteDataError("a batch fails its checksum", hint="send it again")
    return plain


def decode(
    data: bytes | pa.Buffer, schema: pa.Schema, *, crc: int | None, limits: Limits
) -> pa.RecordBatch:
    """A batch from its serialised form, checked; `crc` is that of the bytes themselves."""
    return checked(read_batch(data, schema, crc=crc), schema, crc=None, limits=limits)


def read_batch(data: bytes | pa.Buffer, schema: pa.Schema, *, crc: int | None) -> pa.RecordBatch:
    """A batch from its serialised form, which shares the memory of the bytes; it is not checked."""
    if crc is not None and zlib.crc32(data) != crc:
        raise SiteDataError("a batch fails its checksum", hint="send it again")
    check_batch(memoryview(data))
    try:
        return pa.ipc.read_record_batch(pa.py_buffer(data), schema)
    except _BAD_ARROW as error:
        raise _not_arrow(error) from None


def read_schema(header: bytes) -> pa.Schema:
    """The schema of what is pushed, from the header of its message."""
    check_schema(memoryview(header))
    prefix = b"\xff\xff\xff\xff" + len(header).to_bytes(4, "little")
    try:
        return pa.ipc.read_schema(pa.py_buffer(prefix + header))
    except _BAD_ARROW as error:
        raise _not_arrow(error) from None


def _not_arrow(error: BaseException) -> SiteDataError:
    return SiteDataError(
        "bytes are not a batch of Arrow's",
        detail=f"  {type(error).__name__}",
        hint="send them again",
    )


def with_numbers(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """The batch with a column of its numbers in front."""
    numbers = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
    return numbered(batch, numbers)


def numbered(batch: pa.RecordBatch, numbers: pa.Array) -> pa.RecordBatch:
    """The batch with a column of these numbers in front."""
    return pa.RecordBatch.from_arrays(
        [numbers, *batch.columns], schema=numbered_schema(batch.schema)
    )


def without_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without its first column, which has the numbers."""
    return batch.select(batch.schema.names[1:])


def numbered_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of what a site serves."""
    return pa.schema([pa.field(NUMBER, pa.int64()), *schema])


def chosen_schema(schema: pa.Schema, columns: list[str] | None) -> pa.Schema:
    """The stream's schema with the chosen columns only, in their order."""
    if columns is None:
        return schema
    for name in columns:
        if name not in schema.names:
            raise SiteRequestError(
                f"the stream has no column {name!r}",
                hint=f"its columns are {', '.join(schema.names)}",
            )
        if columns.count(name) > 1:
            raise SiteRequestError(f"column {name!r} is asked for twice", hint="ask for it once")
    return pa.schema([schema.field(name) for name in columns])


def _described(schema: pa.Schema) -> str:
    text = ", ".join(f"{field.name} {field.type}" for field in schema)
    return text if len(text) <= 400 else f"{text[:400]}…"
