"""Cached parts as files: bounded, owner-only, shared by all worker processes of a host.

A folder for each join. A worker that serves a join holds a shared lock on its folder, so that
others can tell which joins nobody serves any more. File times say when a file was last used. From
time to time whoever writes looks at what is there: files that were not used for long go, whoever
left them, and the least recently used ones while there is more than the limit.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import struct
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from thetastream.errors import SettingError

_HEADER = struct.Struct("<8sI52x")
_MAGIC = b"tstream1"

UNUSED_SECONDS = 3600
"""A file that no worker has used for so long is removed."""

LOOK_SECONDS = 600
LOOK_SHARE = 16
"""A worker looks at the files again after it has written a sixteenth of the limit, or after ten
minutes: looking takes time in proportion to their number."""

LOW_WATER = 3 / 4
"""What is left of the limit once it was passed, so that it is not passed by the next file."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class _File(NamedTuple):
    """A file in the folder of a join; the least recently used one is the smallest."""

    used: float
    size: int
    path: str


class CacheFiles:
    """The files of one join on one host. Any of them may be gone at any time."""

    def __init__(self, token: str, limit: int) -> None:
        """`token` names the join; `limit` bounds its files and those that nobody serves."""
        self._folder = _root_path() / token
        self._limit = limit
        self._lock: int | None = None
        self._size = 0
        self._written = 0
        self._looked: float | None = None

    def read(self, name: str) -> pa.Buffer | None:
        """What was written under that name, mapped into memory; None if it is not there."""
        path = self._path(name)
        try:
            self._open()
            if not stat.S_ISREG(path.lstat().st_mode):
                return None
            with pa.memory_map(str(path)) as file:
                data = file.read_buffer()
        except OSError:
            return None
        body = _body(data)
        if body is None:
            self.drop(name)
            return None
        self.touch(name)
        return body

    def write(self, name: str, body: pa.Buffer) -> None:
        """Keep the bytes if there is room; a full or vanished disk costs time, not results."""
        path = self._path(name)
        size = _HEADER.size + body.size
        with contextlib.suppress(OSError):
            if path.lstat().st_size == size:
                return
        if size > self._limit:
            return
        for _ in range(2):
            try:
                self._open()
                if self._is_time_to_look(size):
                    self._look(size)
                _write(path, body)
                self._size += size
                self._written += size
                return
            except FileNotFoundError:
                # Somebody has removed the folder: once more, with a new one.
                self.close()
            except OSError:
                return

    def names(self) -> list[str]:
        """The names under which something was written, by this process or by others."""
        names = (Path(file.path).name for file in _files(self._folder))
        return [name for name in names if not name.startswith(".")]

    def drop(self, name: str) -> None:
        """Remove the file of that name."""
        path = self._path(name)
        with contextlib.suppress(OSError):
            self._size -= path.lstat().st_size
            path.unlink()

    def touch(self, name: str) -> None:
        """The file was used."""
        with contextlib.suppress(OSError):
            os.utime(self._path(name))
            os.utime(self._folder)

    def close(self) -> None:
        """The join is no longer served here, until it is again."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _path(self, name: str) -> Path:
        if not set(name) <= set("0123456789abcdef-"):
            raise ValueError(f"not a part id: {name!r}")
        return self._folder / name

    def _open(self) -> None:
        """Make the folder if there is none, check whose it is, and say that it is used."""
        if self._lock is not None:
            return
        cache_root()
        with contextlib.suppress(FileExistsError):
            self._folder.mkdir(mode=0o700)
        self._lock = os.open(self._folder, _FOLDER)
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    def _is_time_to_look(self, more: int) -> bool:
        return (
            self._looked is None
            or self._size + more > self._limit
            or self._written * LOOK_SHARE > self._limit
            or time.monotonic() - self._looked > LOOK_SECONDS
        )

    def _look(self, more: int) -> None:
        """See what there is, remove what is old, and make room for `more` bytes."""
        self._looked = time.monotonic()
        self._written = 0
        cache_root()  # what is removed is in our own folder
        files = sorted([*_files(self._folder), *_left_alone(self._folder)])
        self._size = sum(file.size for file in files)
        room = self._limit - more
        if self._size > room:
            room = min(room, int(self._limit * LOW_WATER))
        oldest = time.time() - UNUSED_SECONDS
        for file in files:
            if self._size <= room and file.used >= oldest:
                break
            with contextlib.suppress(OSError):
                os.unlink(file.path)
            self._size -= file.size


def cache_root() -> Path:
    """The folder of this user's caches on this host; made if there is none."""
    root = _root_path()
    with contextlib.suppress(FileExistsError):
        root.mkdir(mode=0o700)
    found = root.lstat()  # not of what a link points to
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not own or found.st_mode & 0o077:
        raise SettingError(
            f"{root} is not a folder of this user alone",
            detail="  Runs are cached there, and nobody else may read or change them.",
            hint="remove it, set TMPDIR to another folder on the workers, or turn the cache off "
            "with JoinOptions(cache_bytes=0)",
        )
    return root


def _root_path() -> Path:
    return Path(tempfile.gettempdir()) / f"thetastream-{os.getuid()}"


def _files(folder: Path) -> Iterator[_File]:
    """The files in a folder, unfinished ones too."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if not stat.S_ISDIR(found.st_mode):
                    yield _File(found.st_mtime, found.st_size, entry.path)


def _left_alone(own: Path) -> Iterator[_File]:
    """The files of joins that no worker serves; folders that were not used for long are removed."""
    oldest = time.time() - UNUSED_SECONDS
    with contextlib.suppress(OSError), os.scandir(own.parent) as entries:
        for entry in entries:
            if entry.name == own.name or not entry.is_dir(follow_symlinks=False):
                continue
            with contextlib.suppress(OSError):
                used = entry.stat(follow_symlinks=False).st_mtime
                if _is_served(entry.path):
                    continue
                if used < oldest:
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    yield from _files(Path(entry.path))


def _is_served(folder: str) -> bool:
    """Whether some worker has the folder locked."""
    found = os.open(folder, _FOLDER)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(found)
    return False


def _body(data: pa.Buffer) -> pa.Buffer | None:
    """What follows the header, if it is what was written."""
    if data.size <= _HEADER.size:
        return None
    magic, checksum = _HEADER.unpack(data.slice(0, _HEADER.size))
    body = data.slice(_HEADER.size)
    return body if magic == _MAGIC and zlib.crc32(body) == checksum else None


def _write(path: Path, body: pa.Buffer) -> None:
    """The file, all of it at once: a name never stands for half a file."""
    unfinished = path.with_name(f".{secrets.token_hex(8)}")
    handle = os.open(unfinished, _NEW_FILE, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_HEADER.pack(_MAGIC, zlib.crc32(body)))
            file.write(body)
        os.replace(unfinished, path)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
