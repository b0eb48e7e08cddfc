"""Messages that no client of ours sends, to a site in a process of its own."""

from __future__ import annotations

import json
import signal
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random

import grpc
import numpy as np
import pyarrow as pa
import pytest

from tests.transport import filter_fuzz
from tests.transport.rawflight import (
    DO_ACTION,
    DO_GET,
    DO_PUT,
    Flat,
    beginning,
    field,
    joined,
    note,
    parted,
    pushing,
)
from tests.transport.test_kill import Process
from tests.transport.tuples import SCHEMA, rides
from thetastream.errors import SiteDataError, SiteRequestError
from thetastream.transport.client import SiteClient
from thetastream.transport.headers import MAX_FIELDS, check_batch, check_schema
from thetastream.transport.messages import checksum, read_batch, read_schema
from thetastream.transport.requests import PushRequest, RangeRequest

ROWS = 40
MEMORY = 320 * 1024**2
AT_ONCE = 16


def serve(folder: Path) -> Process:
    file = folder / "site.toml"
    file.write_text(
        'dir = "site"\nlisten = "127.0.0.1:0"\n'
        f"[limits]\nmemory_bytes = {MEMORY}\nbatch_bytes = {16 * 1024**2}\nidle_seconds = 5\n"
        '[streams.rides]\ntime = "at"\npush = true\n[streams.types]\ntime = "at"\npush = true\n'
    )
    return Process(file)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Process]:
    process = serve(tmp_path)
    yield process
    assert process.end(signal.SIGTERM) == 0, "it did not survive"


def channel_to(site: Process) -> grpc.Channel:
    return grpc.insecure_channel(
        site.address.removeprefix("grpc://"),
        options=[("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)],
    )


# -- bytes that were changed ----------------------------------------------------------------------


def changed(random: np.random.Generator, number: int) -> bytes:
    """A batch with some other bytes; in every third message they say what the rest means."""
    parts = [np.frombuffer(one, np.uint8).copy() for one in parted(rides(0, ROWS).serialize())]
    which = parts[0] if number % 3 == 0 else parts[1]
    places = random.integers(0, len(which), random.integers(1, 9))
    which[places] ^= random.integers(1, 256, len(places)).astype(np.uint8)
    header, body = (one.tobytes() for one in parts)
    return joined(header, body[: random.integers(0, len(body))] if number % 5 == 0 else body)


@pytest.mark.parametrize(
    ("messages", "honest"), [(2_000, True), (1_000, False)], ids=["damaged", "hostile"]
)
def test_changed_messages_do_no_harm(site: Process, messages: int, honest: bool) -> None:
    """With the checksum of what they were, nothing is stored; with their own, only batches."""
    random = np.random.default_rng(5)
    crc = checksum(rides(0, ROWS)) if honest else None
    acknowledged = refused = 0
    with SiteClient(site.address) as client:
        client.push("rides", rides(0, ROWS))
        with channel_to(site) as channel:
            put = channel.stream_stream(DO_PUT)
            for number in range(messages):
                sent = pushing(changed(random, number), f"writer {number}", crc=crc)
                try:
                    acknowledged += len(list(put(iter(sent), timeout=30)))
                except grpc.RpcError:
                    refused += 1
        assert client.health() == ""
        info = client.stream("rides")
        stored = pa.Table.from_batches(client.read("rides", 0, info.next))
        assert client.push("rides", rides(ROWS, 5)).first == info.next
    stored.validate(full=True)
    assert stored.drop_columns(["_number"]).schema.equals(SCHEMA)
    assert acknowledged + refused == messages
    if honest:
        assert (acknowledged, stored.num_rows) == (0, ROWS)
    else:
        assert acknowledged > 0, "whoever computes the checksum may send other values"
        assert refused > messages // 4


# -- headers --------------------------------------------------------------------------------------


def schema_header(names: bytes, layers: int, wide: int) -> bytes:
    """A schema of columns that all refer to the same ones below them, and these to the same."""
    flat = Flat()
    message = flat.table(5)
    flat.refer(0, message[0] - 8)
    flat.put(message[0], "<h", 4)
    flat.put(message[1], "<B", 1)
    schema = flat.table(2)
    flat.refer(message[2], schema[0] - 8)
    # Its other members are empty lists.
    above = schema[1]
    for layer in range(layers):
        elements = flat.vector(wide)
        flat.refer(above, elements - 4)
        column = flat.table(6)
        for number in range(wide):
            flat.refer(elements + 4 * number, column[0] - 8)
        last = layer == layers - 1
        flat.put(column[2], "<B", 2 if last else 13)
        kind = flat.table(2)
        if last:
            flat.put(kind[0], "<i", 64)
            flat.put(kind[1], "<B", 1)
        flat.refer(column[3], kind[0] - 8)
        flat.refer(column[0], flat.text(names))
        # A dictionary would be a table; a place of zero bytes is read as none.
        _drop(flat, column[0] - 8, 4)
        above = column[5]
        if last:
            _drop(flat, column[0] - 8, 5)
    _drop(flat, message[0] - 8, 4)
    return bytes(flat.data)


def _drop(flat: Flat, table: int, slot: int) -> None:
    """Let a table lack a member."""
    (back,) = struct.unpack_from("<i", flat.data, table)
    flat.put(table - back + 4 + 2 * slot, "<H", 0)


def test_a_schema_that_refers_to_itself_is_refused_before_arrow_reads_it() -> None:
    plain = schema_header(b"x", 1, 1)
    expected = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    assert read_schema(memoryview(plain)) == expected
    for header in (
        schema_header(b"x", 1, MAX_FIELDS + 1),
        schema_header(b"x", 8, 30),
        schema_header(b"x", 40, 1),
        schema_header(b"x" * 100_000, 1, 1),
    ):
        assert len(header) < 200_000
        with pytest.raises(SiteRequestError, match=r"column|name"):
            check_schema(memoryview(header))
    with_metadata = parted(SCHEMA.with_metadata({"a": "b"}).serialize())[0]
    with pytest.raises(SiteRequestError, match="metadata"):
        read_schema(memoryview(with_metadata))
    dictionary = pa.schema([("x", pa.dictionary(pa.int8(), pa.string()))])
    with pytest.raises(SiteRequestError, match="dictionary"):
        read_schema(memoryview(parted(dictionary.serialize())[0]))


def test_any_header_is_read_or_refused() -> None:
    """Cut anywhere, and with any bytes changed, there is no other error."""
    random = np.random.default_rng(1)
    batch, schema = rides(0, ROWS).serialize().to_pybytes(), parted(SCHEMA.serialize())[0]
    for check, data, reach in ((check_batch, batch, 600), (check_schema, schema, len(schema))):
        check(memoryview(data))
        refused = 0
        for number in range(3_000):
            other = np.frombuffer(data, np.uint8).copy()
            places = random.integers(0, reach, random.integers(1, 6))
            other[places] = random.choice([0, 1, 127, 128, 255, 8], len(places))
            raw = other.tobytes()[: random.integers(0, reach) if number % 4 == 0 else None]
            try:
                check(memoryview(raw))
            except (SiteDataError, SiteRequestError):
                refused += 1
        assert refused > 1_000


def test_buffers_that_overlap_are_refused() -> None:
    """Each column could be the whole message, and all of them together a thousand times that."""
    data = rides(0, ROWS).serialize().to_pybytes()
    (size,) = struct.unpack_from("<i", data, 4)
    body = len(data) - 8 - size
    places = [at for at in range(8, 8 + size - 16) if _is_buffer(data, at, body)]
    assert len(places) > 4
    overlapping = bytearray(data)
    for at in places:
        struct.pack_into("<qq", overlapping, at, 0, body)
    with pytest.raises(SiteDataError, match="not a batch of Arrow's"):
        read_batch(bytes(overlapping), SCHEMA, crc=None)


def _is_buffer(data: bytes, at: int, body: int) -> bool:
    start, length = struct.unpack_from("<qq", data, at)
    return at % 8 == 0 and start % 8 == 0 and length > 0 and 0 <= start <= body - length


# -- memory ---------------------------------------------------------------------------------------


@cache
def bomb(compression: str) -> bytes:
    """A batch of about 110 MB, in a few hundred kilobytes."""
    rows = 4_000_000
    zeros = pa.array(np.zeros(rows, np.int64))
    offsets = pa.py_buffer(bytes(4 * rows + 4))
    zone = pa.StringArray.from_buffers(rows, offsets, pa.py_buffer(b""))
    batch = pa.RecordBatch.from_arrays(
        [zeros, zeros.cast(pa.float64()), zone, zeros.cast(SCHEMA.field("at").type)], schema=SCHEMA
    )
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, SCHEMA, options=options) as writer:
        writer.write_batch(batch)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages.read_next_message()
    message = messages.read_next_message()
    return joined(message.metadata.to_pybytes(), message.body.to_pybytes())


COMMAND = PushRequest("rides", "w", 1).to_bytes()
LARGE = bytes(64 * 1024**2)


def one_message(random: Random) -> tuple[str, list[bytes]]:
    """A batch as Flight itself would send it, and as a site once took it."""
    header, body = parted(pa.py_buffer(bomb(random.choice(["lz4", "zstd"]))))
    note = field(3, b'{"crc":1}')
    return DO_PUT, [beginning(COMMAND), field(2, header) + note + field(1000, body)]


def in_pieces(random: Random) -> tuple[str, list[bytes]]:
    return DO_PUT, pushing(bomb(random.choice(["lz4", "zstd"])))


def too_long(random: Random) -> tuple[str, list[bytes]]:
    """Messages that are too long by themselves, of every call."""
    first = random.choice([[], [beginning(COMMAND)], [beginning(COMMAND), note(2**24)]])
    method = random.choice([DO_PUT, DO_GET, DO_ACTION])
    size = random.choice([2 * 1024**2, 8 * 1024**2, len(LARGE)])
    content = field(random.choice([1, 2, 3, 1000]), LARGE[:size])
    return method, [*(first if method == DO_PUT else []), content]


def announced(random: Random) -> tuple[str, list[bytes]]:
    """Batches that never come, come in part, or are longer than announced."""
    size = random.choice([0, 1, 2**20, 2**24, 2**24 + 2**19, 2**31, 2**62, 2**63 - 1])
    pieces = [field(3, LARGE[: random.choice([0, 1, 1000, 2**18])])] * random.choice([0, 1, 40])
    return DO_PUT, [beginning(COMMAND), note(size), *pieces]


def schemas(random: Random) -> tuple[str, list[bytes]]:
    names = b"x" * random.choice([1, 200_000])
    header = schema_header(names, random.choice([1, 2, 9]), random.choice([3, 20, 50_000]))
    return DO_PUT, [beginning(COMMAND, header[:900_000]), note(8), field(3, bytes(8))]


def tickets(random: Random) -> tuple[str, list[bytes]]:
    """JSON that becomes much more than it was."""
    start = b'{"ask":"range","stream":"rides","start":0,"stop":1,"where":'
    inner, end = random.choice(
        [
            (b"[" + b"[]," * 340_000 + b"[]]", b"}"),
            (b"[" + b"{}," * 340_000 + b"{}]", b"}"),
            (b"[" * 500_000, b""),
            (b'{"op":"and","of":[' + b'{"op":"not"},' * 70_000 + b"1]}", b"}"),
            (b'"' + b"\\ud83d\\ude00" * 80_000 + b'"', b"}"),
            (b"1" * 4_000, b"}"),
            (b"1" * 100_000, b"}"),
        ]
    )
    return random.choice([(DO_GET, [field(1, start + inner + end)]), (DO_PUT, [beginning(inner)])])


def garbage(random: Random) -> tuple[str, list[bytes]]:
    method = random.choice([DO_PUT, DO_GET, DO_ACTION])
    # Often fields without content: each of them costs two bytes.
    content = random.choice([random.randbytes(200), b"\x08\x01" * 300_000, b"\x0a\x00" * 300_000])
    return method, [content] * random.choice([1, 3])


ATTACKS: list[Callable[[Random], tuple[str, list[bytes]]]] = [
    *(one_message, in_pieces, too_long, announced, schemas, tickets, garbage)
]


def attacked(site: Process, seed: int, count: int, outcome: Counter[str]) -> None:
    """Send this many hostile messages, one after the other."""
    random = Random(seed)
    with channel_to(site) as channel:
        for _ in range(count):
            attack = random.choice(ATTACKS)
            method, messages = attack(random)
            gzip = grpc.Compression.Gzip if random.random() < 0.1 else None
            call = channel.stream_stream(method)(iter(messages), timeout=60, compression=gzip)
            try:
                answers = list(call)
            except grpc.RpcError as error:
                outcome[f"{attack.__name__}: {error.code().name}"] += 1
            else:
                raise AssertionError((attack.__name__, answers[:1]))


def filtered(site: Process, seed: int, count: int) -> None:
    """Read with random filters on columns of all types."""
    random = Random(seed)
    names = [*filter_fuzz.columns(), "at"]
    with SiteClient(site.address) as client:
        for _ in range(count):
            value = filter_fuzz.value(random)
            side = {"column": random.choice(names)}
            where = {"op": random.choice(list(filter_fuzz.OPS)), "left": side}
            with suppress(SiteRequestError):
                list(client.read("types", 0, 4, where={**where, "right": {"value": value}}))


def stalled(site: Process, ending: threading.Event) -> None:
    """Ask for everything, and read none of it."""
    ticket = field(1, RangeRequest("rides", 0, 300_000).to_bytes())
    with channel_to(site) as channel:
        calls = [channel.stream_stream(DO_GET)(iter([ticket])) for _ in range(8)]
        ending.wait()
        for call in calls:
            call.cancel()


def peak_bytes(site: Process) -> int:
    """The most memory that the process has had."""
    for line in Path(f"/proc/{site.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def besieged(site: Process, messages: int, filters: int) -> None:
    """Many hostile clients at once: the site survives, and needs no more than it may."""
    types = pa.record_batch({**filter_fuzz.columns(), "at": pa.array([0] * 4, pa.timestamp("us"))})
    with SiteClient(site.address) as client:
        client.push("rides", pa.Table.from_batches([rides(0, 300_000)]))
        client.push("types", types)
    outcome: Counter[str] = Counter()
    ending = threading.Event()
    with ThreadPoolExecutor(AT_ONCE + 3) as threads:
        work = [threads.submit(stalled, site, ending)]
        try:
            sieges = [
                threads.submit(attacked, site, seed, messages // AT_ONCE, outcome)
                for seed in range(AT_ONCE)
            ]
            sieges += [threads.submit(filtered, site, seed, filters // 2) for seed in range(2)]
            for siege in sieges:
                siege.result()
        finally:
            ending.set()
        work[0].result()
    print(json.dumps(outcome, indent=1), f"{peak_bytes(site) / 2**20:.0f} MB")
    with SiteClient(site.address) as client:
        assert client.health() == ""
        assert client.push("rides", rides(300_000, 5)).first == 300_000
    assert peak_bytes(site) <= 1.5 * MEMORY


def test_memory_stays_within_its_budget(site: Process) -> None:
    besieged(site, messages=480, filters=200)


@pytest.mark.chaos
def test_memory_stays_within_its_budget_for_long(site: Process) -> None:
    besieged(site, messages=8_000, filters=2_000)
