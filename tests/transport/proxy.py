"""A link that is slow, far, cut, silent or noisy, between a client and a site."""

from __future__ import annotations

import threading
import time

from thetastream.transport.wire import Relay


class Proxy(Relay):
    """Passes bytes on at a limited rate and late, and spoils them on request."""

    def __init__(self, port: int, *, rate: float | None = None, latency: float = 0.0) -> None:
        """`rate`: bytes per second and direction; `latency`: seconds, one way."""
        self.rate = rate
        self.latency = latency
        self.cut_after: int | None = None
        """Bytes from the site after which all connections are cut, once."""
        self.corrupt_at: int | None = None
        """The byte from the site that is changed, once."""
        self.always_corrupt = False
        self.silent = False
        """Swallows everything, with the connection open."""
        self.passed = 0
        """Bytes from the site."""
        self.cuts = 0
        self._guard = threading.Lock()
        super().__init__("127.0.0.1", port)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def passing(self, data: bytes, *, up: bool) -> bytes:
        time.sleep(self.latency + (len(data) / self.rate if self.rate else 0.0))
        if self.silent:
            return b""
        if up:
            return data
        with self._guard:
            return self._spoiled(data)

    def _spoiled(self, data: bytes) -> bytes:
        before = self.passed
        self.passed += len(data)
        if self.cut_after is not None and self.passed > self.cut_after:
            self.cut_after = None
            self.cuts += 1
            self.cut()
            raise OSError("cut")
        place = None if self.corrupt_at is None else self.corrupt_at - before
        if place is not None and 0 <= place < len(data):
            self.corrupt_at = None
            return _flipped(data, place)
        if self.always_corrupt and len(data) > 60:
            return _flipped(data, len(data) // 2)
        return data


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]
