"""The link to a site, on which bytes are counted and a dead connection is noticed.

Flight does not say how many bytes it sends, nor when the last one came. So a client speaks to a
relay inside its own process, which passes everything on, counts it, and cuts the connection when
an answer is awaited and nothing has moved for too long: a half-open connection would wait forever.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic

CHUNK = 256 * 1024
_TICK = 0.1
"""Seconds between two looks at what has moved."""


class Relay:
    """Passes what comes to a port of this machine on to another address, and back."""

    def __init__(self, host: str, port: int, *, connect_within: float = 10.0) -> None:
        self._target = (host, port)
        self._connect_within = connect_within
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._closed = False
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(_TICK)
        self.port = int(self._server.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, name="relay", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Break all connections; later ones are passed on again."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for one in pair:
                _close(one)

    def close(self) -> None:
        """Break all connections and take no more."""
        self._closed = True
        self._thread.join()
        self._server.close()
        self.cut()

    def passing(self, data: bytes, *, up: bool) -> bytes:
        """What is passed on instead of the data; `up`: towards the site."""
        return data

    def tick(self) -> None:
        """Called about ten times per second."""

    def _accept(self) -> None:
        while not self._closed:
            self.tick()
            try:
                near, _ = self._server.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            near.settimeout(None)
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(self._target, timeout=self._connect_within)
        except OSError:
            _close(near)
            return
        far.settimeout(None)
        for one in (near, far):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._pairs.append((near, far))
        back = threading.Thread(target=self._pump, args=(far, near, False), daemon=True)
        back.start()
        self._pump(near, far, True)
        back.join()
        with self._lock, suppress(ValueError):
            self._pairs.remove((near, far))
        near.close()
        far.close()

    def _pump(self, source: socket.socket, target: socket.socket, up: bool) -> None:
        try:
            while data := source.recv(CHUNK):
                data = self.passing(data, up=up)
                target.sendall(data)
        except OSError:
            pass
        finally:
            # Both ends: Flight never half-closes, so whoever stops has gone.
            for one in (source, target):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)


class Wire(Relay):
    """A relay that counts, and that cuts a connection on which nothing moves."""

    def __init__(self, host: str, port: int, *, stall: float) -> None:
        self.sent = 0
        """Bytes towards the site, with everything that the protocols add."""
        self.received = 0
        self._stall = stall
        self._moved = monotonic()
        self._waiting = 0
        super().__init__(host, port, connect_within=stall)

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """While inside, something must move from time to time."""
        self._moved = monotonic()
        with self._lock:
            self._waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1

    def passing(self, data: bytes, *, up: bool) -> bytes:
        """Counts the data."""
        self._moved = monotonic()
        # One thread per direction of a connection, and a client has one connection at a time.
        if up:
            self.sent += len(data)
        else:
            self.received += len(data)
        return data

    def tick(self) -> None:
        """Cuts what has stalled."""
        if self._waiting and monotonic() - self._moved > self._stall:
            self._moved = monotonic()
            self.cut()


def _close(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
