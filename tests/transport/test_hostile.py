"""Changed Arrow messages from the network, to a site in a process of its own."""

from __future__ import annotations

import signal
import struct
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pyarrow as pa
import pytest

from tests.transport.test_kill import Process
from tests.transport.tuples import SCHEMA, rides
from thetastream.transport.client import SiteClient
from thetastream.transport.messages import checksum
from thetastream.transport.requests import PushRequest, to_note

ROWS = 40
DO_PUT = "/arrow.flight.protocol.FlightService/DoPut"


def field(number: int, value: bytes) -> bytes:
    """A field of bytes, as protobuf writes it."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def parted(message: pa.Buffer) -> tuple[bytes, bytes]:
    """The header and the body of a message of Arrow's, without what comes before them."""
    data = message.to_pybytes()
    (size,) = struct.unpack_from("<i", data, 4)
    return data[8 : 8 + size], data[8 + size :]


def data(header: bytes, body: bytes, note: bytes = b"", command: bytes | None = None) -> bytes:
    """What Flight sends for one message; the first has the request."""
    # A descriptor of the type CMD.
    first = b"" if command is None else field(1, b"\x08\x02" + field(2, command))
    return first + field(2, header) + (field(3, note) if note else b"") + field(1000, body)


def changed(random: np.random.Generator, number: int) -> tuple[bytes, bytes]:
    """A batch with some other bytes; in every third message they say what the rest means."""
    parts = [np.frombuffer(one, np.uint8).copy() for one in parted(rides(0, ROWS).serialize())]
    which = parts[0] if number % 3 == 0 else parts[1]
    places = random.integers(0, len(which), random.integers(1, 9))
    which[places] ^= random.integers(1, 256, len(places)).astype(np.uint8)
    header, body = (one.tobytes() for one in parts)
    return header, body[: random.integers(0, len(body))] if number % 5 == 0 else body


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Process]:
    file = tmp_path / "site.toml"
    file.write_text(
        'dir = "site"\nlisten = "127.0.0.1:0"\n[streams.rides]\ntime = "at"\npush = true\n'
    )
    process = Process(file)
    yield process
    assert process.end(signal.SIGTERM) == 0, "it did not survive"


@pytest.mark.parametrize(
    ("messages", "checked"), [(2_000, True), (1_000, False)], ids=["damaged", "hostile"]
)
def test_changed_messages_do_no_harm(site: Process, messages: int, checked: bool) -> None:
    """With the checksum of what they were, nothing else is stored; without, only whole batches."""
    random = np.random.default_rng(5)
    schema, _ = parted(SCHEMA.serialize())
    note = to_note(crc=checksum(rides(0, ROWS))) if checked else b""
    acknowledged = refused = 0
    with SiteClient(site.address) as client:
        client.push("rides", rides(0, ROWS))
        with grpc.insecure_channel(site.address.removeprefix("grpc://")) as channel:
            put = channel.stream_stream(DO_PUT)
            for number in range(messages):
                command = PushRequest("rides", f"writer {number}", 1).to_bytes()
                sent = [
                    data(schema, b"", command=command),
                    data(*changed(random, number), note=note),
                ]
                try:
                    acknowledged += len(list(put(iter(sent), timeout=30)))
                except grpc.RpcError:
                    refused += 1
        assert client.health() == ""
        info = client.stream("rides")
        stored = pa.Table.from_batches(client.read("rides", 0, info.next))
        assert client.push("rides", rides(ROWS, 5)).first == info.next
    assert refused > messages // 4
    stored.validate(full=True)
    assert stored.drop_columns(["_number"]).schema.equals(SCHEMA)
    if checked:
        # Only bytes between columns, or that nobody reads, can change without an effect.
        assert acknowledged < messages // 2
        assert stored.num_rows == ROWS * (1 + acknowledged)
        found = stored.drop_columns(["_number"]).combine_chunks()
        for start in range(0, stored.num_rows, ROWS):
            assert found.slice(start, ROWS).to_pylist() == rides(0, ROWS).to_pylist()
    else:
        assert acknowledged > 0, "who computes no checksum may send other values"
        assert acknowledged + refused == messages
