"""Sites that listen on this machine, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.transport.tuples import Clock
from thetastream.transport.addresses import Address
from thetastream.transport.client import SiteClient
from thetastream.transport.config import SiteConfig, StreamConfig
from thetastream.transport.service import SiteService
from thetastream.transport.site import Site


class Running:
    """A site with its server; it can be stopped and started again."""

    def __init__(self, config: SiteConfig, clock: Clock | None = None) -> None:
        self.config = config
        clocks = {} if clock is None else {"clock": clock.wall, "monotonic": clock.steady}
        self.site = Site(config, **clocks)
        self.service = SiteService(self.site)
        self._is_open = True

    @property
    def address(self) -> str:
        return str(self.service.address)

    def stop(self) -> None:
        if self._is_open:
            self._is_open = False
            self.service.shutdown()
            self.site.close()


@pytest.fixture
def run_site(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts a site with a stream that is pushed to."""
    with ExitStack() as stack:

        def start(folder: Path | None = None, port: int = 0, **more: Any) -> Running:
            streams = more.pop("streams", {"rides": StreamConfig("rides", "at")})
            clock = more.pop("clock", None)
            tls = "tls_cert" in more
            address = Address("127.0.0.1", port, tls)
            config = SiteConfig(folder or tmp_path / "site", address, streams, **more)
            found = Running(config, clock)
            stack.callback(found.stop)
            return found

        yield start


@pytest.fixture
def connect() -> Iterator[Callable[..., SiteClient]]:
    """Makes clients that are closed at the end."""
    with ExitStack() as stack:

        def make(address: str, **more: Any) -> SiteClient:
            return stack.enter_context(SiteClient(address, **{"patience": 5.0, **more}))

        yield make
