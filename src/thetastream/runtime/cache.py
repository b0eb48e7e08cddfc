"""Parts kept outside the state store, because reading them there is slow.

Two levels: parts opened in this worker process, and uncompressed Arrow files that all workers of a
host map into memory. Both are only caches: part ids are unique and their content never changes, so
an entry can be missing but not stale, and a file that fails its checksum is thrown away.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass

from thetastream.index.footprint import footprint
from thetastream.index.part import Part
from thetastream.index.protocol import Decoder, Stored
from thetastream.runtime.cachefiles import CacheFiles

WORKER_BYTES = 1 << 30
"""Bytes of the parts that a worker keeps open, of all its joins, with their search structures."""

SERVED_JOINS = 8
IDLE_SECONDS = 600
"""A worker forgets a join when it serves another one, and has served so many others since or has
not served it for so long."""

TOUCH_SECONDS = 60
"""After this long a part that is used again counts as used on the disk as well."""


@dataclass(slots=True)
class _Entry:
    part: Stored
    touched: float
    size: int = 0
    """Bytes in memory when they were last counted."""


class _Opened:
    """The parts of all joins that this worker process has open, least recently used first.

    A part grows when it is searched: it keeps what was worked out from it. So it is counted again
    when the next one is used.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        self.bytes = 0

    def get(self, token: str, name: str) -> _Entry | None:
        self._count_latest()
        entry = self._entries.get((token, name))
        if entry is not None:
            self._entries.move_to_end((token, name))
        return entry

    def put(self, token: str, name: str, part: Stored) -> None:
        self._count_latest()
        self.drop(token, name)
        owned = part.detached() if isinstance(part, Part) else part
        self._entries[token, name] = _Entry(owned, time.monotonic())
        self._count_latest()

    def drop(self, token: str, name: str) -> None:
        entry = self._entries.pop((token, name), None)
        if entry is not None:
            self.bytes -= entry.size

    def _count_latest(self) -> None:
        """Count the part that was used last again, and let go of others if there are too many."""
        if not self._entries:
            return
        latest = next(reversed(self._entries.values()))
        self.bytes -= latest.size
        latest.size = footprint(latest.part)
        self.bytes += latest.size
        while self.bytes > self._limit and len(self._entries) > 1:
            self.drop(*next(iter(self._entries)))

    def release(self, token: str) -> None:
        for key in [key for key in self._entries if key[0] == token]:
            self.drop(*key)


class PartCache:
    """The caches of one join on one host."""

    def __init__(self, token: str, limit: int, opened: _Opened) -> None:
        """`token` names the join; `limit` bounds the files in bytes, 0 for no files."""
        self._token = token
        self._opened = opened
        self._files = CacheFiles(token, limit) if limit else None
        self.served = time.monotonic()

    def get(self, name: str, decoder: Decoder) -> Stored | None:
        """The part, if a cache has it."""
        entry = self._opened.get(self._token, name)
        if entry is not None:
            self._touch(name, entry)
            return entry.part
        data = None if self._files is None else self._files.read(name)
        if data is None:
            return None
        part = decoder.decode(data)
        self._opened.put(self._token, name, part)
        return part

    def put(self, name: str, part: Stored) -> None:
        """Keep a part."""
        if self._files is not None:
            self._files.write(name, part.to_bytes())
        self._opened.put(self._token, name, part)

    def drop(self, name: str) -> None:
        """Forget a part."""
        self._opened.drop(self._token, name)
        if self._files is not None:
            self._files.drop(name)

    def close(self) -> None:
        """Let go of everything; the files stay for others, as long as there is room."""
        self._opened.release(self._token)
        if self._files is not None:
            self._files.close()

    def _touch(self, name: str, entry: _Entry) -> None:
        now = time.monotonic()
        if self._files is not None and now - entry.touched > TOUCH_SECONDS:
            entry.touched = now
            self._files.touch(name)


class Caches:
    """The caches of the joins that a worker process serves, whichever partitions it gets."""

    def __init__(self, limit: int = WORKER_BYTES) -> None:
        """`limit` bounds the parts that are kept open, in bytes of memory."""
        self._opened = _Opened(limit)
        self._joins: OrderedDict[str, PartCache] = OrderedDict()

    def of(self, token: str, limit: int) -> PartCache:
        """The cache of a join; those of joins that are no longer served are released."""
        cache = self._joins.setdefault(token, PartCache(token, limit, self._opened))
        self._joins.move_to_end(token)
        cache.served = time.monotonic()
        while len(self._joins) > 1:
            oldest = next(iter(self._joins.values()))
            idle = cache.served - oldest.served > IDLE_SECONDS
            if not idle and len(self._joins) <= SERVED_JOINS:
                break
            self._joins.popitem(last=False)[1].close()
        return cache

    def clear(self) -> None:
        """Release all of them."""
        while self._joins:
            self._joins.popitem()[1].close()
