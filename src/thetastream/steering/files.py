"""The files of a control directory: on this machine's disk, or on any file system of pyarrow.

A file is written whole or not at all, and read by others while it is replaced. On a local disk the
files are the owner's only; elsewhere the file system's own rules hold.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from thetastream.errors import ControlError
from thetastream.transport.disk import (
    make_folder,
    sync_folder,
    temporary_name,
    write_file,
    write_new,
)

_PATTERN = "*?[]{}\\"
"""What Spark takes for more than itself in a path."""


class Files(Protocol):
    """What is asked of a file system; names are relative, with slashes."""

    def read(self, name: str) -> bytes | None:
        """A file's content; None if there is none."""

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Write a file, whole, in the place of one that may be there."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a file that is not there yet; whether it was not."""

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder, sorted."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""


class LocalFiles:
    """Files on this machine's disk."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, name: str) -> bytes | None:
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes | memoryview) -> None:
        path = self._root / name
        make_folder(path.parent)
        write_file(path, data)

    def create(self, name: str, data: bytes) -> bool:
        path = self._root / name
        make_folder(path.parent)
        temporary = temporary_name(path)
        write_new(temporary, data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        sync_folder(path.parent)
        return True

    def names(self, folder: str) -> list[str]:
        try:
            found = os.listdir(self._root / folder)
        except FileNotFoundError:
            return []
        return sorted(name for name in found if not name.startswith("."))

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._root / name)


class ArrowFiles:
    """Files on a file system that pyarrow reaches: HDFS, S3, GCS, Azure."""

    def __init__(self, system: Any, root: str, *, renames: bool) -> None:
        """`renames`: a file is written elsewhere and renamed; object stores write whole objects."""
        self._system = system
        self._root = root.rstrip("/")
        self._renames = renames

    def read(self, name: str) -> bytes | None:
        try:
            with self._system.open_input_stream(f"{self._root}/{name}") as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes | memoryview) -> None:
        path = f"{self._root}/{name}"
        folder, _, last = path.rpartition("/")
        if not self._renames:
            self._put(path, data)
            return
        self._system.create_dir(folder, recursive=True)
        temporary = f"{folder}/.{last}.{secrets.token_hex(8)}"
        self._put(temporary, data)
        try:
            self._system.move(temporary, path)
        except OSError:
            # Not every file system renames onto a file that is there.
            self.remove(name)
            self._system.move(temporary, path)

    def create(self, name: str, data: bytes) -> bool:
        # Not in one step: whoever relies on it holds the lease, and reads again what is there.
        if self.read(name) is not None:
            return False
        self.write(name, data)
        return True

    def names(self, folder: str) -> list[str]:
        path = f"{self._root}/{folder}"
        selector = fs.FileSelector(path, allow_not_found=True)
        found = [info.base_name for info in self._system.get_file_info(selector) if info.is_file]
        return sorted(name for name in found if not name.startswith("."))

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._system.delete_file(f"{self._root}/{name}")

    def _put(self, path: str, data: bytes | memoryview) -> None:
        with self._system.open_output_stream(path) as file:
            file.write(data)


class NamedFiles:
    """Files of a control directory that say which one it is when they cannot be used."""

    def __init__(self, files: Files, directory: str) -> None:
        """`directory`: the name that people are shown."""
        self._files = files
        self._directory = directory

    def read(self, name: str) -> bytes | None:
        with self._naming("read", name):
            return self._files.read(name)

    def write(self, name: str, data: bytes | memoryview) -> None:
        with self._naming("written", name):
            self._files.write(name, data)

    def create(self, name: str, data: bytes) -> bool:
        with self._naming("written", name):
            return self._files.create(name, data)

    def names(self, folder: str) -> list[str]:
        with self._naming("read", folder):
            return self._files.names(folder)

    def remove(self, name: str) -> None:
        with self._naming("written", name):
            self._files.remove(name)

    @contextmanager
    def _naming(self, what: str, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # Not the whole error: it may have a URI with a password in it.
            why = os.strerror(error.errno) if error.errno else type(error).__name__
            raise ControlError(
                f"the control directory {self._directory} cannot be {what}",
                detail=f"  {name}: {why}",
                hint="whoever runs the query or asks for a change must be able to read and write"
                " there: check the path, its permissions and the space that is left",
            ) from error


def full_path(path: str) -> str:
    """The path as every process understands it, wherever that was started."""
    scheme = urlsplit(path).scheme
    if scheme not in ("", "file"):
        return path.rstrip("/")
    return str(Path(urlsplit(path).path if scheme else path).expanduser().absolute())


def spark_path(path: str) -> str:
    """The same path as Spark names it."""
    found = urlsplit(path)
    if any(sign in (found.path if found.scheme else path) for sign in _PATTERN):
        raise ControlError(
            f"the path of a control directory has a character of {_PATTERN}",
            hint="Spark would take it for a pattern; choose another path",
        )
    if found.scheme in ("", "file"):
        return f"file://{full_path(path)}"
    # Hadoop's client for S3 has another name than pyarrow's, and settings of its own.
    scheme = "s3a" if found.scheme == "s3" else found.scheme
    return f"{scheme}://{found.netloc.rpartition('@')[2]}{found.path}"


def without_secrets(path: str) -> str:
    """The path without a user's name, password or other arguments, for messages."""
    found = urlsplit(path)
    if not found.scheme:
        return path
    return f"{found.scheme}://{found.netloc.rpartition('@')[2]}{found.path}"


def open_files(path: str) -> Files:
    """The files below a path, `/var/lib/rides`, or a URI, `s3://bucket/rides`."""
    scheme = urlsplit(path).scheme
    if scheme in ("", "file"):
        return NamedFiles(LocalFiles(Path(full_path(path))), without_secrets(path))
    try:
        system, root = fs.FileSystem.from_uri(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        # Not the whole error: a URI may have a password in it.
        raise ControlError(
            f"no file system for a control directory that begins with {scheme}://",
            detail=f"  {type(error).__name__}",
            hint="give a path, or a URI that pyarrow.fs.FileSystem.from_uri takes: s3://, gs://,"
            " abfs://, hdfs://",
        ) from None
    files = ArrowFiles(system, root, renames=scheme in ("hdfs", "viewfs"))
    return NamedFiles(files, without_secrets(path))
