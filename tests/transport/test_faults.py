"""Links that fail: every tuple comes exactly once, or there is a clear error in time."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.transport.conftest import Running
from tests.transport.proxy import Proxy
from tests.transport.tuples import Clock, ids, rides
from thetastream.errors import (
    ForgottenError,
    SiteChangedError,
    SiteDataError,
    SiteError,
    SiteUnreachableError,
)
from thetastream.transport.client import SiteClient

Start = Callable[..., Running]
Connect = Callable[..., SiteClient]
ROWS = 30_000


@pytest.fixture
def through() -> Iterator[Callable[..., Proxy]]:
    """Makes proxies in front of a site."""
    with ExitStack() as stack:

        def make(running: Running, **more: Any) -> Proxy:
            found = Proxy(running.service.port, **more)
            stack.callback(found.close)
            return found

        yield make


def filled(running: Running, rows: int = ROWS) -> None:
    for first in range(0, rows, 10_000):
        running.site.push("rides", rides(first, 10_000), crc=None, writer="", sequence=0)


def read(client: SiteClient, rows: int = ROWS) -> list[int]:
    return ids(list(client.read("rides", 0, rows, compression=None)))


def test_a_slow_and_distant_link(run_site: Start, connect: Connect, through: Any) -> None:
    running = run_site()
    filled(running)
    proxy = through(running, rate=1_500_000, latency=0.01)
    # The whole answer takes longer than a connection may be silent: bytes still move.
    client = connect(proxy.address, stall=0.4, patience=3)
    begun = time.monotonic()
    assert read(client) == list(range(ROWS))
    assert time.monotonic() - begun > 0.5


@pytest.mark.parametrize("after", [0, 500, 20_000, 300_000, 700_000])
def test_a_link_that_is_cut(run_site: Start, connect: Connect, through: Any, after: int) -> None:
    running = run_site()
    filled(running)
    proxy = through(running)
    proxy.cut_after = after
    assert read(connect(proxy.address)) == list(range(ROWS))
    assert proxy.cuts == 1


def test_numbers_over_a_link_that_is_cut(run_site: Start, connect: Connect, through: Any) -> None:
    running = run_site()
    filled(running)
    proxy = through(running)
    client = connect(proxy.address)
    wanted = np.arange(0, ROWS, 2)
    for after in (1000, 300_000):
        proxy.passed, proxy.cut_after = 0, after
        found = client.fetch("rides", wanted, compression=None)
        assert found.column("id").to_pylist() == wanted.tolist()
    assert proxy.cuts == 2


def test_a_push_whose_acknowledgement_is_lost(
    run_site: Start, connect: Connect, through: Any
) -> None:
    """Cut at many places of the answer: each row is stored once, however often it was sent."""
    running = run_site()
    proxy = through(running)
    client = connect(proxy.address)
    expected = 0
    for after in range(1, 160, 10):
        proxy.passed, proxy.cut_after = 0, after
        assert client.push("rides", rides(expected, 10)) == (expected, 10, expected // 10 + 1)
        expected += 10
    assert proxy.cuts > 3
    assert read(client, expected) == list(range(expected))


def test_a_link_that_changes_bytes(run_site: Start, connect: Connect, through: Any) -> None:
    """Wherever a byte is changed, what is read is right."""
    running = run_site()
    filled(running)
    proxy = through(running)
    client = connect(proxy.address)
    assert read(client) == list(range(ROWS))
    size = proxy.passed
    for place in np.linspace(10, size, 12).astype(int).tolist():
        proxy.passed, proxy.corrupt_at = 0, place
        assert read(connect(proxy.address)) == list(range(ROWS)), place


def test_a_link_that_always_changes_bytes(run_site: Start, connect: Connect, through: Any) -> None:
    running = run_site()
    filled(running)
    proxy = through(running)
    client = connect(proxy.address, patience=1.0, stall=1.0)
    client.stream("rides")
    proxy.always_corrupt = True
    begun = time.monotonic()
    with pytest.raises(SiteError) as error:
        read(client)
    assert isinstance(error.value, SiteDataError | SiteUnreachableError)
    assert time.monotonic() - begun < 8
    assert "attempt" in str(error.value)


def test_a_half_open_connection_is_given_up(
    run_site: Start, connect: Connect, through: Any
) -> None:
    running = run_site()
    filled(running)
    proxy = through(running)
    client = connect(proxy.address, stall=0.4, patience=1.5)
    reading = client.read("rides", 0, ROWS, compression=None)
    next(reading)
    proxy.silent = True
    begun = time.monotonic()
    with pytest.raises(SiteUnreachableError, match="does not answer"):
        client.status()
    assert time.monotonic() - begun < 5


def test_a_half_open_connection_that_recovers(
    run_site: Start, connect: Connect, through: Any
) -> None:
    running = run_site()
    filled(running)
    proxy = through(running)
    proxy.silent = True
    client = connect(proxy.address, stall=0.4, patience=10)

    def recover() -> None:
        time.sleep(1.0)
        proxy.silent = False

    thread = threading.Thread(target=recover)
    thread.start()
    assert read(client) == list(range(ROWS))
    thread.join()


def test_a_site_that_is_not_there(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    begun = time.monotonic()
    with pytest.raises(SiteUnreachableError, match="thetastream site health"):
        connect(f"127.0.0.1:{port}", patience=0.5).status()
    assert time.monotonic() - begun < 3


def test_something_else_listens_there(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    one, _ = server.accept()
                except OSError:
                    return
                with one:
                    one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        client = connect(f"127.0.0.1:{server.getsockname()[1]}", patience=0.5, stall=1)
        with pytest.raises(SiteError):
            client.status()
        server.shutdown(socket.SHUT_RDWR)


def test_a_site_that_restarts(run_site: Start, connect: Connect) -> None:
    running = run_site()
    filled(running)
    port = running.service.port
    client = connect(running.address, patience=20)
    reading = client.read("rides", 0, ROWS, compression=None)
    found = [next(reading)]
    running.stop()

    def again() -> None:
        time.sleep(0.5)
        run_site(port=port)

    thread = threading.Thread(target=again)
    thread.start()
    found += list(reading)
    thread.join()
    assert ids(found) == list(range(ROWS))
    assert client.push("rides", rides(ROWS, 5)).first == ROWS


def test_a_site_that_lost_its_disk(run_site: Start, connect: Connect) -> None:
    running = run_site()
    filled(running)
    client = connect(running.address)
    assert read(client) == list(range(ROWS))
    running.stop()
    shutil.rmtree(running.config.dir)
    anew = run_site(port=running.service.port)
    filled(anew)
    with pytest.raises(SiteChangedError, match="set up anew"):
        list(client.read("rides", 0, ROWS))
    with pytest.raises(SiteChangedError, match="set up anew"):
        client.fetch("rides", np.array([1]))


def test_damage_on_the_disk_is_not_asked_for_again(run_site: Start, connect: Connect) -> None:
    running = run_site()
    filled(running)
    running.site.logs["rides"].seal()
    (path,) = (running.config.dir / "rides").glob("*.arrow")
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    begun = time.monotonic()
    with pytest.raises(SiteDataError, match=path.name):
        list(connect(running.address, patience=60).read("rides", 0, ROWS))
    assert time.monotonic() - begun < 5


def test_what_is_forgotten_is_said(run_site: Start, connect: Connect) -> None:
    clock = Clock()
    running = run_site(retain=1, clock=clock)
    filled(running)
    log = running.site.logs["rides"]
    log.seal()
    clock.wait(1_000_000)
    running.site.push("rides", rides(ROWS, 5), crc=None, writer="", sequence=0)
    log.maintain()
    client = connect(running.address)
    assert client.stream("rides").first == ROWS
    with pytest.raises(ForgottenError, match=f"{ROWS} is the first that is kept"):
        list(client.read("rides", ROWS - 1, ROWS + 1))
    with pytest.raises(ForgottenError):
        client.fetch("rides", np.array([0, ROWS]))
    found = client.fetch("rides", np.array([ROWS]))
    assert isinstance(found, pa.Table)
    assert found.column("id").to_pylist() == [ROWS]
