"""Messages of Arrow Flight as they travel: the few fields of protobuf that a site needs."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from thetastream.errors import SiteRequestError

SERVICE = "/arrow.flight.protocol.FlightService/"
_MOST_FIELDS = 16
_LONGEST_VARINT = 10
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
"""How a field is written."""


class FlightData(NamedTuple):
    """One message of a push."""

    command: bytes
    """What the first message asks for."""
    header: memoryview
    body: memoryview
    metadata: memoryview


def read_data(message: bytes) -> FlightData:
    """A message of a push; raises SiteRequestError for bytes that are none."""
    fields = _read(message)
    descriptor = _read(fields.get(1, b""))
    return FlightData(
        bytes(descriptor.get(2, b"")),
        *(memoryview(fields.get(number, b"")) for number in (2, 1000, 3)),
    )


def read_ticket(message: bytes) -> bytes:
    """The ticket of a DoGet."""
    return bytes(_read(message).get(1, b""))


def read_action(message: bytes) -> str:
    """The name of an action."""
    return bytes(_read(message).get(1, b"")).decode("utf-8", "replace")


def write_schema(schema: pa.Schema) -> bytes:
    """The first message of an answer."""
    header, body = _parts(schema.serialize())
    return _written((2, header), (1000, body))


def write_batch(batch: pa.RecordBatch, note: bytes, options: pa.ipc.IpcWriteOptions) -> bytes:
    """A batch of an answer with its note."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages.read_next_message()
    message = messages.read_next_message()
    return _written((2, message.metadata), (3, note), (1000, message.body))


def write_bytes(*values: bytes) -> bytes:
    """The answer to a push or an action, or the description of one."""
    return _written(*enumerate(values, 1))


def _parts(message: pa.Buffer) -> tuple[memoryview, memoryview]:
    data = memoryview(message)
    end = 8 + int.from_bytes(data[4:8], "little")
    return data[8:end], data[end:]


def _read(message: bytes | memoryview) -> dict[int, memoryview]:
    """The fields that hold bytes, by their numbers."""
    data = memoryview(message)
    fields: dict[int, memoryview] = {}
    at = 0
    for _ in range(_MOST_FIELDS):
        if at == len(data):
            return fields
        key, at = _varint(data, at)
        form = key & 7
        if form == _VARINT:
            _, at = _varint(data, at)
            continue
        if form == _BYTES:
            size, at = _varint(data, at)
        elif form in (_EIGHT, _FOUR):
            size = 8 if form == _EIGHT else 4
        else:
            break
        if size > len(data) - at:
            break
        if form == _BYTES:
            fields[key >> 3] = data[at : at + size]
        at += size
    raise _wrong()


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return value, at + place + 1
    raise _wrong()


def _written(*fields: tuple[int, bytes | memoryview | pa.Buffer]) -> bytes:
    parts: list[bytes | memoryview | pa.Buffer] = []
    for number, value in fields:
        parts += [_to_varint(number << 3 | _BYTES), _to_varint(len(memoryview(value))), value]
    return b"".join(map(memoryview, parts))


def _to_varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)


def _wrong() -> SiteRequestError:
    return SiteRequestError(
        "the site does not understand the request: it is no message of Flight's",
        hint="use the client of the same release",
    )
