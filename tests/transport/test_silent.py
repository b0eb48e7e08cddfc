"""Clients that connect and then say nothing: they do not keep others out."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from time import monotonic, sleep

import grpc
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from tests.transport.conftest import Running
from tests.transport.rawflight import DO_ACTION
from tests.transport.tuples import SCHEMA, ids, rides
from thetastream.errors import SiteUnreachableError
from thetastream.transport.client import SiteClient
from thetastream.transport.messages import Limits
from thetastream.transport.requests import RangeRequest

Start = Callable[..., Running]
Connect = Callable[..., SiteClient]
PUSH = flight.FlightDescriptor.for_command(b'{"ask":"push","stream":"rides","sequence":0}')


def silent_pushes(running: Running, stack: ExitStack, count: int) -> None:
    """Pushes that never send a batch; a call each, on a connection each."""
    for _ in range(count):
        options = [("grpc.use_local_subchannel_pool", 1)]
        client = stack.enter_context(flight.FlightClient(running.address, generic_options=options))
        writer, _ = client.do_put(PUSH, SCHEMA)
        # Whoever closes it would read the error that has ended it.
        stack.push(suppress(flight.FlightError, pa.ArrowException))
        stack.callback(writer.close)


def drain(reader: flight.FlightStreamReader) -> None:
    """Read to the end. `read_all` would take a call that was ended for a Ctrl-C."""
    with suppress(StopIteration):
        while True:
            reader.read_chunk()


def wait_until(condition: Callable[[], bool]) -> None:
    end = monotonic() + 20
    while not condition():
        assert monotonic() < end
        sleep(0.02)


def test_silent_clients_do_not_keep_others_out(run_site: Start, connect: Connect) -> None:
    limits = Limits(idle_seconds=2)
    running = run_site(limits=limits)
    with ExitStack() as stack:
        for _ in range(40):
            place = ("127.0.0.1", running.service.port)
            stack.enter_context(socket.create_connection(place))
        silent_pushes(running, stack, limits.requests)
        # All places are taken, and no more come in.
        wait_until(lambda: running.service.calls == limits.requests)
        hurried = connect(running.address, patience=0.1)
        with pytest.raises(SiteUnreachableError, match="too many requests"):
            hurried.push("rides", rides(0, 10))
        # The site still answers for itself.
        assert connect(running.address, patience=0.5).health() == ""
        assert "rides" in connect(running.address, patience=0.5).status()["streams"]
        # And when they have been silent for long enough, their places are free.
        assert connect(running.address, patience=30).push("rides", rides(0, 10)).rows == 10


def test_silent_questions_do_not_keep_others_out(run_site: Start, connect: Connect) -> None:
    """Calls for a status whose question never comes."""
    running = run_site()
    address = running.address.removeprefix("grpc://")
    with grpc.insecure_channel(address) as channel, ExitStack() as stack:
        ending = stack.enter_context(_Never())
        ask = channel.stream_stream(DO_ACTION)
        calls = [ask(ending) for _ in range(20)]
        assert connect(running.address, patience=30).health() == ""
        for call in calls:
            call.cancel()


class _Never:
    """Messages that do not come before the end."""

    def __init__(self) -> None:
        self._ending = threading.Event()

    def __enter__(self) -> _Never:
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()

    def __iter__(self) -> _Never:
        return self

    def __next__(self) -> bytes:
        self._ending.wait()
        raise StopIteration


def test_a_reader_that_does_not_read_loses_its_place(run_site: Start, connect: Connect) -> None:
    running = run_site(limits=Limits(requests=1, idle_seconds=1))
    for first in range(0, 400_000, 100_000):
        running.site.push("rides", rides(first, 100_000), crc=None, writer="", sequence=0)
    ticket = flight.Ticket(RangeRequest("rides", 0, 400_000).to_bytes())
    with flight.FlightClient(running.address) as slow:
        reader = slow.do_get(ticket)
        reader.read_chunk()
        patient = connect(running.address, patience=30)
        assert ids(list(patient.read("rides", 0, 1))) == [0]
        with pytest.raises((flight.FlightError, pa.ArrowException)):
            drain(reader)


def test_a_slow_reader_goes_on_where_it_was(run_site: Start, connect: Connect) -> None:
    """A client of ours that was busy for longer than the site waits misses nothing."""
    running = run_site(limits=Limits(idle_seconds=1))
    for first in range(0, 400_000, 100_000):
        running.site.push("rides", rides(first, 100_000), crc=None, writer="", sequence=0)
    client = connect(running.address, patience=0.5)
    reading = client.read("rides", 0, 400_000, columns=["id", "zone"], compression=None)
    batches = [next(reading)]
    wait_until(lambda: not running.service.calls)
    batches += reading
    assert ids(batches) == list(range(400_000))


def test_a_client_that_was_idle_just_works(run_site: Start, connect: Connect) -> None:
    """Its connection is gone; it makes another without being asked to."""
    running = run_site(limits=Limits(idle_seconds=1))
    client = connect(running.address, patience=5)
    client.push("rides", rides(0, 10))
    sleep(2.5)
    assert client.push("rides", rides(10, 10)).first == 10
    assert json.dumps(client.status())


def test_connections_are_limited(run_site: Start, connect: Connect) -> None:
    running = run_site(limits=Limits(connections=3, idle_seconds=2))
    place = ("127.0.0.1", running.service.port)
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(place)) for _ in range(10)]
        # Those above the limit are closed at once.
        closed = []
        for one in held:
            one.settimeout(0.5)
            try:
                while one.recv(4096):
                    pass
                closed.append(one)
            except TimeoutError:
                continue
            except ConnectionError:
                closed.append(one)
        assert len(closed) >= 7
        assert connect(running.address, patience=30).health() == ""
