"""Parts kept outside the state store, because reading them there is slow.

Two levels: parts opened in this worker process, and uncompressed Arrow files that all workers of a
host map into memory. Both are only caches: part ids are unique and their content never changes, so
an entry can be missing but not stale, and a file that fails its checksum is thrown away.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import tempfile
import time
import zlib
from collections import OrderedDict
from pathlib import Path

import pyarrow as pa

from thetastream.index.layout import Layout, Stored

_HEADER = struct.Struct("<8sI52x")
_MAGIC = b"tstream1"
_ABANDONED_SECONDS = 3600
_WORKER_ROWS = 1 << 24
"""Rows of parts a worker keeps open; their files are shared, their search structures are not."""


class PartCache:
    """The caches of one join on one host."""

    def __init__(self, token: str, limit: int) -> None:
        """`token` names the join; `limit` bounds the files in bytes, 0 for no files."""
        self._limit = limit
        self._folder = cache_root() / token
        self._open: OrderedDict[str, Stored] = OrderedDict()
        self._rows = 0
        if limit:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _remove_abandoned(self._folder)

    def get(self, name: str, layout: Layout) -> Stored | None:
        """The part, if a cache has it."""
        part = self._open.get(name)
        if part is not None:
            self._open.move_to_end(name)
            return part
        if not self._limit:
            return None
        data = self._read(name)
        if data is None:
            return None
        part = layout.decode(data)
        self._remember(name, part)
        return part

    def put(self, name: str, part: Stored) -> None:
        """Keep a part."""
        if self._limit:
            self._write(name, part.to_bytes())
        self._remember(name, part)

    def drop(self, name: str) -> None:
        """Forget a part."""
        part = self._open.pop(name, None)
        if part is not None:
            self._rows -= _weight(part)
        if self._limit:
            with contextlib.suppress(FileNotFoundError):
                self._path(name).unlink()

    def _remember(self, name: str, part: Stored) -> None:
        if name in self._open:
            return
        self._open[name] = part
        self._rows += _weight(part)
        while self._rows > _WORKER_ROWS and len(self._open) > 1:
            _, oldest = self._open.popitem(last=False)
            self._rows -= _weight(oldest)

    def _path(self, name: str) -> Path:
        if not set(name) <= set("0123456789abcdef-"):
            raise ValueError(f"not a part id: {name!r}")
        return self._folder / name

    def _read(self, name: str) -> pa.Buffer | None:
        path = self._path(name)
        try:
            with pa.memory_map(str(path)) as file:
                data = file.read_buffer()
        except (FileNotFoundError, OSError):
            return None
        if data.size <= _HEADER.size:
            return None
        magic, checksum = _HEADER.unpack(data.slice(0, _HEADER.size))
        body = data.slice(_HEADER.size)
        if magic != _MAGIC or zlib.crc32(body) != checksum:
            path.unlink(missing_ok=True)
            return None
        return body

    def _write(self, name: str, body: pa.Buffer) -> None:
        path = self._path(name)
        with contextlib.suppress(OSError):
            if path.stat().st_size == _HEADER.size + body.size:
                return
        try:
            used = sum(entry.stat().st_size for entry in os.scandir(self._folder))
            if used + body.size > self._limit:
                return
            handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=".")
            with os.fdopen(handle, "wb") as file:
                file.write(_HEADER.pack(_MAGIC, zlib.crc32(body)))
                file.write(body)
            os.replace(temporary, path)
        except OSError:
            # A full or vanished disk costs time, not results: the state store has every part.
            return


def _weight(part: Stored) -> int:
    return len(part) + part.pairs


def cache_root() -> Path:
    """The folder of this user's caches on this host."""
    root = Path(tempfile.gettempdir()) / f"thetastream-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    owner = root.stat()
    if owner.st_uid != os.getuid() or owner.st_mode & 0o077:
        raise PermissionError(f"{root} is not this user's own folder")
    return root


def _remove_abandoned(own: Path) -> None:
    """Remove the caches of joins that have not written for an hour."""
    os.utime(own)
    deadline = time.time() - _ABANDONED_SECONDS
    for folder in own.parent.iterdir():
        with contextlib.suppress(OSError):
            if folder != own and folder.stat().st_mtime < deadline:
                shutil.rmtree(folder, ignore_errors=True)
