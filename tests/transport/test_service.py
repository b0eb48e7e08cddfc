"""A site over a real socket: what it serves, and whom."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from tests.transport.conftest import Running
from tests.transport.tuples import SCHEMA, ids, rides
from thetastream.errors import (
    OptionError,
    SiteChangedError,
    SiteError,
    SiteRequestError,
    SiteUnreachableError,
)
from thetastream.transport.client import SiteClient
from thetastream.transport.messages import Limits
from thetastream.transport.requests import RangeRequest, in_pieces, to_note

Start = Callable[..., Running]
Connect = Callable[..., SiteClient]
TOKEN = "a-token-of-32-characters-0123456"
PUSH_TOKEN = "another-token-of-32-characters-01"


def table(rows: int, first: int = 0) -> pa.Table:
    return pa.Table.from_batches([rides(first, rows)])


def test_what_is_pushed_can_be_read(run_site: Start, connect: Connect) -> None:
    client = connect(run_site().address)
    assert client.push("rides", table(1000)) == (0, 1000, 1)
    assert client.push("rides", rides(1000, 500)) == (1000, 500, 2)
    info = client.stream("rides")
    assert (info.first, info.next, info.time, info.schema) == (0, 1500, "at", SCHEMA)
    whole = list(client.read("rides", 0, 1500))
    assert ids(whole) == list(range(1500))
    assert pa.Table.from_batches(whole).drop_columns("_number").equals(table(1500))
    some = list(client.read("rides", 990, 1010, columns=["at"], compression=None))
    assert some[0].schema.names == ["_number", "at"]
    assert [number for batch in some for number in batch.column(0).to_pylist()] == list(
        range(990, 1010)
    )
    assert list(client.read("rides", 7, 7)) == []
    (bare,) = client.read("rides", 5, 9, columns=[])
    assert bare.to_pydict() == {"_number": [5, 6, 7, 8]}
    assert client.health() == ""


def test_tuples_by_number(run_site: Start, connect: Connect) -> None:
    client = connect(run_site().address, limits=Limits(numbers=100))
    client.push("rides", table(3000))
    wanted = np.array([5, 2999, 5, 0, *range(100, 400)])
    found = client.fetch("rides", wanted, columns=["id"])
    assert found.column("id").to_pylist() == sorted(set(wanted.tolist()))
    assert found.column("_number").equals(found.column("id"))
    assert client.fetch("rides", np.zeros(0, dtype=np.int64)).num_rows == 0


def test_a_filter_is_evaluated_at_the_site(run_site: Start, connect: Connect) -> None:
    client = connect(run_site().address)
    client.push("rides", table(20_000))
    before = client.bytes_received
    where = {"op": "=", "left": {"column": "id"}, "right": {"value": 12_345}}
    assert ids(list(client.read("rides", 0, 20_000, where=where))) == [12_345]
    filtered = client.bytes_received - before
    assert len(list(client.read("rides", 0, 20_000))) > 0
    assert client.bytes_received - before - filtered > 20 * filtered
    with pytest.raises(SiteRequestError, match="no operation"):
        list(client.read("rides", 0, 1, where={"op": "eval"}))


def test_bytes_are_counted_in_both_directions(run_site: Start, connect: Connect) -> None:
    client = connect(run_site().address)
    pushed = table(50_000)
    client.push("rides", pushed)
    assert pushed.nbytes < client.bytes_sent < pushed.nbytes * 1.2
    before, sent = client.bytes_received, client.bytes_sent
    list(client.read("rides", 0, 50_000, compression=None))
    assert pushed.nbytes < client.bytes_received - before < pushed.nbytes * 1.6
    assert client.bytes_sent - sent < 20_000


def test_mistakes_are_answered_by_name(run_site: Start, connect: Connect) -> None:
    client = connect(run_site().address)
    with pytest.raises(SiteRequestError, match="no stream 'nowhere'"):
        client.push("nowhere", table(1))
    with pytest.raises(SiteRequestError, match="no tuples yet"):
        list(client.read("rides", 0, 1))
    with pytest.raises(SiteRequestError, match="no timestamp 'at'"):
        client.push("rides", pa.table({"id": [1]}))
    client.push("rides", table(10))
    with pytest.raises(SiteRequestError, match="do not have the stream's columns"):
        client.push("rides", pa.table({"id": [1]}))
    with pytest.raises(SiteRequestError, match="no column 'tip'"):
        list(client.read("rides", 0, 1, columns=["tip"]))
    with pytest.raises(SiteChangedError, match="tuple 10 is not there"):
        list(client.read("rides", 0, 11))
    with pytest.raises(SiteChangedError, match="set up anew"):
        list(client.read("rides", 0, 1, id="another"))
    assert ids(list(client.read("rides", 0, 10))) == list(range(10))


@pytest.mark.parametrize(
    "ticket",
    [
        b"",
        b"\xff",
        b"[]",
        b"NaN",
        b'{"ask":"range"}',
        b'{"ask":"range","stream":"rides","start":-1,"stop":3}',
        b'{"ask":"range","stream":"rides","start":true,"stop":3}',
        b'{"ask":"range","stream":"rides","start":0,"stop":1e3}',
        b'{"ask":"range","stream":"rides","start":0,"stop":99999999999999999999}',
        b'{"ask":"range","stream":"rides","start":0,"stop":3,"columns":"id"}',
        b'{"ask":"range","stream":"rides","start":0,"stop":3,"columns":[1]}',
        b'{"ask":"range","stream":"rides","start":0,"stop":3,"numbered":1}',
        b'{"ask":"range","stream":"rides","start":0,"stop":3,"numbered":false,"where":{}}',
        b'{"ask":"range","stream":"rides","start":0,"stop":3,"compression":"gzip"}',
        b'{"ask":"range","stream":"rides","start":0,"stop":3,"run":"rm"}',
        b'{"ask":"range","stream":"../rides","start":0,"stop":3}',
        b'{"ask":"range","stream":"rides","start":3,"stop":0}',
        b'{"ask":"numbers","stream":"rides","numbers":[0.5]}',
        b'{"ask":"numbers","stream":"rides","numbers":[1,0]}',
        b'{"ask":"numbers","stream":"rides","numbers":[9223372036854775807,1]}',
        b'{"ask":"numbers","stream":"rides","numbers":' + str([1] * 200_000).encode() + b"}",
        b"[" * 100_000,
        b" " * (1024**2 + 1),
    ],
    ids=lambda ticket: repr(ticket[:70]),
)
def test_tickets_that_are_refused(run_site: Start, ticket: bytes) -> None:
    running = run_site()
    running.site.push("rides", rides(0, 3), crc=None, writer="", sequence=0)
    with flight.FlightClient(running.address) as client:
        with pytest.raises(flight.FlightServerError) as error:
            client.do_get(flight.Ticket(ticket)).read_all()
        assert json.loads(error.value.extra_info)["kind"] == "request"
        good = RangeRequest("rides", 0, 3).to_bytes()
        assert client.do_get(flight.Ticket(good)).read_all().num_rows == 3


def test_any_flight_client_can_push_and_ask(run_site: Start) -> None:
    running = run_site()
    data = rides(0, 10).serialize()
    with flight.FlightClient(running.address) as client:
        about = flight.FlightDescriptor.for_command(b'{"ask":"push","stream":"rides","sequence":0}')
        writer, answers = client.do_put(about, SCHEMA)
        note = b'{"bytes":%d,"crc":%d}\n' % (data.size, zlib.crc32(data))
        writer.write_metadata(note + data.to_pybytes()[:100])
        writer.write_metadata(data.slice(100))
        assert json.loads(answers.read().to_pybytes()) == {"first": 0, "rows": 10}
        writer.close()
        (status,) = client.do_action(flight.Action("status", b""))
        assert json.loads(status.body.to_pybytes())["streams"]["rides"]["next"] == 10
        assert {action.type for action in client.list_actions()} == {"status", "health"}
        with pytest.raises(flight.FlightServerError, match="no action"):
            list(client.do_action(flight.Action("shutdown", b"")))


def test_a_batch_in_one_message_is_refused(run_site: Start) -> None:
    """Arrow would decompress it before anybody could look at its size."""
    running = run_site()
    with flight.FlightClient(running.address) as client:
        about = flight.FlightDescriptor.for_command(b'{"ask":"push","stream":"rides","sequence":0}')
        writer, answers = client.do_put(about, SCHEMA)
        writer.write_batch(rides(0, 10))
        assert answers.read() is None
        with pytest.raises(flight.FlightServerError, match="does not understand the request"):
            writer.close()
    assert running.site.logs["rides"].next == 0


def test_a_wrong_checksum_stores_nothing(run_site: Start) -> None:
    running = run_site()
    with pytest.raises(flight.FlightServerError, match="fails its checksum"):
        pushed_raw(running, rides(0, 10), crc=1)
    assert running.site.logs["rides"].next == 0


def test_a_request_that_is_too_long_is_refused_by_name(run_site: Start, connect: Connect) -> None:
    """gRPC refuses it before the site sees it; to try again would not help."""
    running = run_site(limits=Limits(request_bytes=1000))
    client = connect(running.address, patience=60)
    client.push("rides", table(10))
    where = {"op": "=", "left": {"column": "zone"}, "right": {"value": "x" * 2_000_000}}
    with pytest.raises(SiteRequestError, match=r"longer than the site .* takes"):
        list(client.read("rides", 0, 1, where=where))


def test_an_unexpected_error_says_nothing_of_itself(
    run_site: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = run_site()
    client = connect(running.address, patience=0.1)

    def fail() -> str:
        raise RuntimeError("a secret")

    monkeypatch.setattr(running.site, "problem", fail)
    with pytest.raises(SiteUnreachableError, match="an error inside the site") as error:
        client.health()
    assert "secret" not in str(error.value)


# -- a push that is sent again --------------------------------------------------------------------


def test_a_writer_that_starts_again(run_site: Start, connect: Connect) -> None:
    running = run_site()
    first = connect(running.address).push("rides", table(5), writer="gate 7", sequence=41)
    again = connect(running.address).push("rides", table(5), writer="gate 7", sequence=41)
    assert first == again == (0, 5, 42)
    with pytest.raises(OptionError, match="a writer without a sequence"):
        connect(running.address).push("rides", table(5), writer="gate 7")
    with pytest.raises(OptionError, match="nothing to push"):
        connect(running.address).push("rides", table(0))


def test_a_large_push_is_cut(run_site: Start, connect: Connect) -> None:
    client = connect(run_site().address)
    rows = table(300_000)
    pushed = client.push("rides", rows)
    assert (pushed.first, pushed.rows) == (0, 300_000)
    assert pushed.sequence > 2
    assert ids(list(client.read("rides", 0, 300_000, columns=["id"]))) == list(range(300_000))


# -- limits ---------------------------------------------------------------------------------------


def test_limits_of_a_push(run_site: Start, connect: Connect) -> None:
    running = run_site(limits=Limits(batch_rows=100, batch_bytes=100_000))
    client = connect(running.address)
    with pytest.raises(SiteRequestError, match="at most 100 rows"):
        client.push("rides", table(101))
    wide = rides(0, 1).set_column(2, "zone", pa.array(["x" * 200_000]))
    with pytest.raises(SiteRequestError, match=r"at most 97.66 KB"):
        client.push("rides", wide)
    assert client.push("rides", table(100)).rows == 100


def test_small_batches_take_no_map_each(run_site: Start, connect: Connect) -> None:
    """The log keeps them until they are sealed, and a process may have 65,530 maps."""
    client = connect(run_site().address)

    def maps() -> int:
        return Path("/proc/self/maps").read_text().count("/dev/zero")

    client.push("rides", rides(0, 1))
    before = maps()
    for first in range(1, 30):
        client.push("rides", rides(first, 1))
    assert maps() <= before
    client.push("rides", table(100_000, 30))
    assert ids(list(client.read("rides", 0, 1030))) == list(range(1030))


def test_a_push_without_rows_is_refused(run_site: Start) -> None:
    site = run_site().site
    with pytest.raises(SiteRequestError, match="without rows"):
        site.push("rides", rides(0, 0), crc=None, writer="w", sequence=1)
    assert site.logs["rides"].positions("writer ") == {}


def test_so_many_requests_at_a_time(run_site: Start, connect: Connect) -> None:
    """A reader that does not read keeps its place; the others have to come again."""
    running = run_site(limits=Limits(requests=2))
    connect(running.address).push("rides", table(400_000))
    ticket = flight.Ticket(RangeRequest("rides", 0, 400_000).to_bytes())
    with flight.FlightClient(running.address) as slow:
        readers = [slow.do_get(ticket) for _ in range(2)]
        for reader in readers:
            reader.read_chunk()
        with pytest.raises(SiteUnreachableError, match="too many requests"):
            list(connect(running.address, patience=0.5).read("rides", 0, 1))
        # Questions about the site have places of their own.
        assert connect(running.address).health() == ""
        for reader in readers:
            reader.cancel()
    patient = connect(running.address)
    assert ids(list(patient.read("rides", 0, 1))) == [0]


def test_a_site_that_sends_too_much_is_not_believed(run_site: Start, connect: Connect) -> None:
    running = run_site()
    connect(running.address).push("rides", table(5000))
    greedy = connect(running.address, limits=Limits(batch_rows=100), patience=0.3)
    with pytest.raises(SiteError, match="a batch of 5,000 rows"):
        list(greedy.read("rides", 0, 5000))


# -- security -------------------------------------------------------------------------------------


def test_without_the_token_nothing_is_answered(run_site: Start, connect: Connect) -> None:
    running = run_site(read_token=TOKEN, push_token=PUSH_TOKEN)
    for token in (None, "b" + TOKEN[1:], TOKEN + "x", TOKEN[:-1]):
        client = connect(running.address, token=token)
        for ask in (
            client.status,
            client.health,
            lambda client=client: client.push("rides", table(1)),
        ):
            with pytest.raises(SiteRequestError, match="refuses the token") as error:
                ask()
            assert TOKEN not in str(error.value)
    assert running.site.logs["rides"].next == 0


def test_a_token_for_reading_and_one_for_pushing(run_site: Start, connect: Connect) -> None:
    running = run_site(read_token=TOKEN, push_token=PUSH_TOKEN)
    reader, pusher = (connect(running.address, token=token) for token in (TOKEN, PUSH_TOKEN))
    with pytest.raises(SiteRequestError, match="allows to read, and not to push") as error:
        reader.push("rides", table(1))
    assert "push_token_file" in error.value.hint
    assert pusher.push("rides", table(2)).rows == 2
    assert ids(list(reader.read("rides", 0, 2))) == [0, 1]
    for ask in (
        lambda: list(pusher.read("rides", 0, 2)),
        lambda: pusher.fetch("rides", np.array([1])),
    ):
        with pytest.raises(SiteRequestError, match="allows to push, and not to read") as error:
            ask()
        assert PUSH_TOKEN not in str(error.value)
    for client in (reader, pusher):
        assert client.health() == ""
        shown = json.dumps(client.status()) + repr(running.config)
        assert TOKEN not in shown
        assert PUSH_TOKEN not in shown


def certificate(folder: Path, name: str = "localhost") -> tuple[bytes, bytes]:
    """A certificate that signs itself, and its key."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1"),
            *("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")),
        ],
        check=True,
        capture_output=True,
    )
    return (folder / f"{name}.pem").read_bytes(), (folder / f"{name}.key").read_bytes()


def test_tls(run_site: Start, connect: Connect, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    other, _ = certificate(tmp_path, "other")
    running = run_site(read_token=TOKEN, push_token=PUSH_TOKEN, tls_cert=cert, tls_key=key)
    assert running.address.startswith("grpc+tls://")
    client = connect(running.address, token=TOKEN, tls_roots=cert)
    connect(running.address, token=PUSH_TOKEN, tls_roots=cert).push("rides", table(2000))
    assert ids(list(client.read("rides", 0, 2000))) == list(range(2000))
    # A certificate that is not trusted, one of another name, and no TLS at all.
    port = running.service.port
    for address, roots in (
        (running.address, other),
        (f"grpc+tls://127.0.0.2:{port}", cert),
        (f"grpc://127.0.0.1:{port}", None),
    ):
        with pytest.raises(SiteUnreachableError):
            connect(address, token=TOKEN, tls_roots=roots, patience=0.3).status()


def test_mutual_tls(run_site: Start, connect: Connect, tmp_path: Path) -> None:
    """A client without a certificate, or with one that nobody trusts, gets no answer."""
    cert, key = certificate(tmp_path)
    own = certificate(tmp_path, "client")
    other = certificate(tmp_path, "other")
    running = run_site(
        read_token=TOKEN, push_token=PUSH_TOKEN, tls_cert=cert, tls_key=key, tls_client_ca=own[0]
    )

    def client(token: str, pair: tuple[bytes, bytes] | None, **more: Any) -> SiteClient:
        given = {} if pair is None else {"tls_cert": pair[0], "tls_key": pair[1]}
        return connect(running.address, token=token, tls_roots=cert, **given, **more)

    client(PUSH_TOKEN, own).push("rides", table(10))
    assert ids(list(client(TOKEN, own).read("rides", 0, 10))) == list(range(10))
    for pair in (None, other):
        with pytest.raises(SiteUnreachableError):
            client(TOKEN, pair, patience=0.3).status()
    with pytest.raises(OptionError, match="a certificate without its key"):
        connect(running.address, token=TOKEN, tls_cert=own[0])


@pytest.mark.parametrize("more", [{}, {"token": TOKEN}, {"tls_roots": b"x"}])
def test_a_client_sends_nothing_in_the_clear(more: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="encrypted only"):
        SiteClient("192.0.2.1:8815", **more)


# -- hostile bytes on the socket ------------------------------------------------------------------


def test_hostile_bytes_leave_a_site_that_works(run_site: Start, connect: Connect) -> None:
    """Garbage on the socket, and Arrow messages that were changed on their way."""
    running = run_site()
    client = connect(running.address)
    client.push("rides", table(100))
    random = np.random.default_rng(3)
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", running.service.port)) as raw:
            raw.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[: random.integers(0, 25)])
            raw.sendall(random.bytes(200))
    batch = rides(100, 40)
    crc = zlib.crc32(batch.serialize())
    zones = batch.column("zone").buffers()
    for number in range(40):
        # Changed values with the former checksum, or texts that are none without a checksum.
        text = bytearray(zones[2].to_pybytes())
        text[random.integers(0, 150)] = 0xFF
        changed = pa.StringArray.from_buffers(40, zones[1], pa.py_buffer(bytes(text)), zones[0])
        sent = batch.set_column(2, "zone", changed)
        with pytest.raises(flight.FlightServerError) as error:
            pushed_raw(running, sent, crc if number % 2 else None)
        assert json.loads(error.value.extra_info)["kind"] == "data"
    assert client.stream("rides").next == 100
    assert ids(list(client.read("rides", 0, 100))) == list(range(100))


def pushed_raw(running: Running, batch: pa.RecordBatch, crc: int | None) -> bytes:
    """The acknowledgement of a batch that is sent without looking at it."""
    about = flight.FlightDescriptor.for_command(b'{"ask":"push","stream":"rides","sequence":0}')
    data = batch.serialize()
    with flight.FlightClient(running.address) as sender:
        writer, answers = sender.do_put(about, batch.schema)
        note = to_note(bytes=data.size, crc=zlib.crc32(data) if crc is None else crc)
        for message in in_pieces(note, data):
            writer.write_metadata(message)
        answer = answers.read()
        writer.close()
        assert answer is not None
        return bytes(answer.to_pybytes())


# -- one process ----------------------------------------------------------------------------------


def test_two_processes_cannot_serve_one_folder(run_site: Start) -> None:
    running = run_site()
    with pytest.raises(SiteError, match="another process serves the site"):
        run_site()
    running.stop()
    run_site()


def test_pushes_from_many_threads(run_site: Start, connect: Connect) -> None:
    running = run_site()

    def push(number: int) -> None:
        client = connect(running.address)
        for place in range(5):
            client.push("rides", rides(number * 1000 + place * 10, 10))

    threads = [threading.Thread(target=push, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client = connect(running.address)
    found = ids(list(client.read("rides", 0, 200)))
    assert sorted(found) == sorted(
        number * 1000 + place for number in range(4) for place in range(50)
    )


@pytest.mark.parametrize("error", [MemoryError(), ValueError("of a connector")])
def test_no_error_ends_the_maintenance(
    run_site: Start, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    site = run_site().site
    again, problems = threading.Event(), []

    def fail() -> None:
        problems.append(site.problem())
        if len(problems) > 1:
            again.set()
        raise error

    monkeypatch.setattr(site.logs["rides"], "maintain", fail)
    site.start()
    assert again.wait(20), "the thread has ended"
    assert problems[1].startswith(type(error).__name__)
    assert str(error) in problems[1]


def test_a_site_that_works_says_so_again(run_site: Start, connect: Connect) -> None:
    running = run_site()
    running.site.start()
    client = connect(running.address)
    running.site.logs["rides"].problem = "no room"
    assert client.health() == "no room"
    running.site.logs["rides"].problem = ""
    time.sleep(0.1)
    assert client.health() == ""
    assert os.stat(running.config.dir).st_mode & 0o077 == 0
