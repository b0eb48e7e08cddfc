"""Messages of Flight, written byte by byte, as no client of ours would send them."""

from __future__ import annotations

import struct
import zlib

import pyarrow as pa

from tests.transport.tuples import SCHEMA
from thetastream.transport.messages import PIECE_BYTES
from thetastream.transport.requests import PushRequest, to_note

SERVICE = "/arrow.flight.protocol.FlightService/"
DO_PUT, DO_GET, DO_ACTION = (f"{SERVICE}{name}" for name in ("DoPut", "DoGet", "DoAction"))


def varint(value: int) -> bytes:
    written = b""
    while value > 127:
        written += bytes([value & 127 | 128])
        value >>= 7
    return written + bytes([value])


def field(number: int, value: bytes) -> bytes:
    """A field of bytes, as protobuf writes it."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def parted(message: pa.Buffer) -> tuple[bytes, bytes]:
    """The header and the body of a message of Arrow's, without what comes before them."""
    data = message.to_pybytes()
    (size,) = struct.unpack_from("<i", data, 4)
    return data[8 : 8 + size], data[8 + size :]


def joined(header: bytes, body: bytes) -> bytes:
    """A message of Arrow's of its two parts."""
    padded = header + bytes(-len(header) % 8)
    return struct.pack("<Ii", 0xFFFFFFFF, len(padded)) + padded + body


def beginning(command: bytes, schema: bytes | None = None) -> bytes:
    """The first message of a push: a descriptor of the type CMD, and the header of a schema."""
    header = parted(SCHEMA.serialize())[0] if schema is None else schema
    return field(1, b"\x08\x02" + field(2, command)) + field(2, header)


def note(size: int, crc: int = 0, piece: bytes = b"x") -> bytes:
    """The message that announces a batch, with its first piece."""
    return field(3, to_note(bytes=size, crc=crc) + b"\n" + piece)


def pushing(data: bytes, writer: str = "w", *, crc: int | None = None) -> list[bytes]:
    """All messages of a push of one batch in its serialised form."""
    return [
        beginning(PushRequest("rides", writer, 1).to_bytes()),
        note(len(data), zlib.crc32(data) if crc is None else crc, data[:PIECE_BYTES]),
        *(
            field(3, data[at : at + PIECE_BYTES])
            for at in range(PIECE_BYTES, len(data), PIECE_BYTES)
        ),
    ]


class Flat:
    """A flatbuffer whose tables can be referred to as often as one likes."""

    def __init__(self) -> None:
        self.data = bytearray(8)

    def table(self, slots: int) -> list[int]:
        """Add a table; the places of its members, eight bytes each, all of them present."""
        self._align()
        index = len(self.data)
        size = 8 + 8 * slots
        self.data += struct.pack("<HH", 4 + 2 * slots, size)
        self.data += b"".join(struct.pack("<H", 8 + 8 * slot) for slot in range(slots))
        self._align()
        at = len(self.data)
        self.data += struct.pack("<i", at - index) + bytes(size - 4)
        return [at + 8 + 8 * slot for slot in range(slots)]

    def vector(self, count: int, width: int = 4) -> int:
        """Add a list of empty elements; the place of the first."""
        self._align()
        self.data += struct.pack("<II", 0, count) + bytes(count * width)
        return len(self.data) - count * width

    def text(self, text: bytes) -> int:
        """Add a text; its place."""
        self._align()
        self.data += struct.pack("<I", len(text)) + text + b"\0"
        return len(self.data) - len(text) - 5

    def put(self, at: int, form: str, value: int) -> None:
        struct.pack_into(form, self.data, at, value)

    def refer(self, at: int, to: int) -> None:
        """Let the member or element at a place refer to what is at another behind it."""
        self.put(at, "<I", to - at)

    def _align(self) -> None:
        self.data += bytes(-len(self.data) % 8)
