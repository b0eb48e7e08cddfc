"""How a site is reached: a value that can be sent to a worker and never shows its token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from thetastream.transport.client import SiteClient

MOST_CLIENTS = 8
"""Connections that a process keeps when nobody uses them."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """The address of a site, and what is needed to talk to it."""

    address: str
    token: str | None = field(default=None, repr=False)
    tls_roots: bytes | None = field(default=None, repr=False)
    tls_cert: bytes | None = field(default=None, repr=False)
    tls_key: bytes | None = field(default=None, repr=False)
    patience: float = 60.0
    stall: float = 10.0

    def connect(self) -> SiteClient:
        """A client of its own, which the caller closes."""
        return SiteClient(
            self.address,
            token=self.token,
            tls_roots=self.tls_roots,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            patience=self.patience,
            stall=self.stall,
        )


class Counted:
    """Bytes on the wire since it was made."""

    def __init__(self, client: SiteClient) -> None:
        self._client = client
        self._before = client.bytes_sent, client.bytes_received

    @property
    def sent(self) -> int:
        """Bytes towards the site."""
        return self._client.bytes_sent - self._before[0]

    @property
    def received(self) -> int:
        """Bytes from the site."""
        return self._client.bytes_received - self._before[1]


@contextmanager
def borrowed(access: Access) -> Iterator[SiteClient]:
    """A client that stays connected for the next who needs one.

    A worker runs many short tasks, and a new connection costs several round trips. One that has
    failed is not kept.
    """
    kept = _FREE.setdefault(access, [])
    client = kept.pop() if kept else access.connect()
    try:
        yield client
    except BaseException:
        client.close()
        raise
    if sum(map(len, _FREE.values())) < MOST_CLIENTS:
        _FREE.setdefault(access, []).append(client)
    else:
        client.close()


_FREE: dict[Access, list[SiteClient]] = {}
"""Clients that nobody uses at the moment, in this process."""
