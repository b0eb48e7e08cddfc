"""The files of a control directory: on a disk, on HDFS, or in an object store.

A file is written as a unit and can be read while it is replaced. `create` makes a file only if
there is none, in one step: that is what keeps two publishers from overwriting each other. On a disk
the files are the owner's only; elsewhere the file system's own rules hold.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

from pyarrow import fs

from thetastream.errors import ControlError
from thetastream.transport.disk import (
    make_folder,
    sync_folder,
    temporary_name,
    write_file,
    write_new,
)

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
_DISK = ("", "file")
_HDFS = ("hdfs", "viewfs")
_RETRY: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=30)}
"""For object stores: an unreachable one is an error within a minute."""
_OBJECTS = ("s3", "s3a", "gs", "abfs", "abfss", "az")


class Files(Protocol):
    """Operations on a file system; names are relative, with slashes."""

    def read(self, name: str) -> bytes | None:
        """Return a file's content; None if there is none."""

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Write a file, in the place of one that may be there."""

    def create(self, name: str, data: bytes | memoryview) -> bool:
        """Write a file unless there is one, in one step; return whether there was none."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def rename(self, name: str, target: str) -> None:
        """Give a file or folder another name."""


class LocalFiles:
    """Files on a disk."""

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

    def create(self, name: str, data: bytes | memoryview) -> bool:
        path = self._root / name
        if path.exists():
            return False
        make_folder(path.parent)
        temporary = temporary_name(path)
        try:
            write_new(temporary, data)
            return self._link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def _link(self, temporary: Path, path: Path) -> bool:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise ControlError(
                f"the file system of {self._root} cannot create a file only if there is none",
                detail=f"  it has no hard links: {error.strerror}",
                hint="put the control directory on another disk (ext4, xfs, NFS), on HDFS, or in an"
                " object store",
            ) from error
        sync_folder(path.parent)
        return True

    def names(self, folder: str) -> list[str]:
        try:
            entries = os.listdir(self._root / folder)
        except FileNotFoundError:
            return []
        return sorted(name for name in entries if not name.startswith("."))

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._root / name)

    def rename(self, name: str, target: str) -> None:
        make_folder((self._root / target).parent)
        os.rename(self._root / name, self._root / target)


class HadoopFiles:
    """Files on HDFS, whose rename refuses a name that is taken."""

    def __init__(self, system: Any, root: str) -> None:
        self._system = system
        self._root = root.rstrip("/")

    def read(self, name: str) -> bytes | None:
        try:
            with self._system.open_input_stream(f"{self._root}/{name}") as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes | memoryview) -> None:
        if not self.create(name, data):
            self.remove(name)
            self.create(name, data)

    def create(self, name: str, data: bytes | memoryview) -> bool:
        path = f"{self._root}/{name}"
        folder, _, last = path.rpartition("/")
        self._system.create_dir(folder, recursive=True)
        temporary = f"{folder}/.{last}.{secrets.token_hex(8)}"
        with self._system.open_output_stream(temporary) as file:
            file.write(data)
        try:
            self._system.move(temporary, path)
        except OSError:
            with suppress(OSError):
                self._system.delete_file(temporary)
            if self._system.get_file_info(path).type == fs.FileType.NotFound:
                raise
            return False
        return True

    def names(self, folder: str) -> list[str]:
        selector = fs.FileSelector(f"{self._root}/{folder}", allow_not_found=True)
        entries = [info.base_name for info in self._system.get_file_info(selector)]
        return sorted(name for name in entries if not name.startswith("."))

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._system.delete_file(f"{self._root}/{name}")

    def rename(self, name: str, target: str) -> None:
        self._system.create_dir(f"{self._root}/{target}".rpartition("/")[0], recursive=True)
        self._system.move(f"{self._root}/{name}", f"{self._root}/{target}")


class ObjectFiles:
    """Objects in a store that can refuse to overwrite one: S3, Google Cloud Storage, Azure."""

    def __init__(self, store: Any) -> None:
        """`store`: one of `obstore`, below whose prefix all names are."""
        self._store = store

    def read(self, name: str) -> bytes | None:
        try:
            return bytes(self._call("get", name).bytes())
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes | memoryview) -> None:
        self._call("put", name, bytes(data))

    def create(self, name: str, data: bytes | memoryview) -> bool:
        try:
            self._call("put", name, bytes(data), mode="create")
        except FileExistsError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        objects = self._call("list_with_delimiter", folder)["objects"]
        return sorted(entry["path"].rpartition("/")[2] for entry in objects)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._call("delete", name)

    def rename(self, name: str, target: str) -> None:
        self._call("rename", name, target)

    def _call(self, operation: str, *arguments: Any, **more: Any) -> Any:
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        try:
            return getattr(self._store, operation)(*arguments, **more)
        except (AlreadyExistsError, PreconditionError):
            raise FileExistsError(arguments[0]) from None
        except BaseError as error:
            # Not its text, which may have an address with a signature in it.
            raise OSError(f"the object store fails: {type(error).__name__}") from None


class NamedFiles:
    """Files that say which control directory they are of when they cannot be used."""

    def __init__(self, files: Files, directory: str) -> None:
        """`directory`: its name as it is shown to people."""
        self._files = files
        self._directory = directory

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation: Callable[..., Any] = getattr(self._files, name)

        def call(file: str, *data: Any) -> Any:
            try:
                return operation(file, *data)
            except (IsADirectoryError, NotADirectoryError):
                # Something else is in the place of a file: whoever asks knows what that means.
                raise
            except OSError as error:
                # Not the error's text, which may have a URI with a password in it.
                why = os.strerror(error.errno) if error.errno else type(error).__name__
                raise ControlError(
                    f"the control directory {self._directory} cannot be used",
                    detail=f"  {name} {file}: {why}",
                    hint="whoever runs the query or asks for a change must be able to read and"
                    " write there: check the path, its permissions and the space that is left",
                ) from error

        return call


def full_path(path: str) -> str:
    """Return the path as every process understands it, independent of its working directory."""
    scheme = urlsplit(path).scheme
    if scheme not in _DISK:
        return path.rstrip("/")
    return str(Path(urlsplit(path).path if scheme else path).expanduser().absolute())


def without_secrets(path: str) -> str:
    """Return the path without user name, password and arguments, for messages."""
    parts = urlsplit(path)
    if not parts.scheme:
        return path
    host = parts.netloc if _names_container(path) else parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def _names_container(path: str) -> bool:
    """Return whether what stands before the host is the name of a container of Azure."""
    parts = urlsplit(path)
    return parts.scheme in ("abfs", "abfss") and parts.password is None


def open_files(path: str) -> Files:
    """Return the files below a path, `/var/lib/rides`, or a URI, `s3://bucket/rides`."""
    parts = urlsplit(path)
    if parts.scheme in _DISK:
        return _named(LocalFiles(Path(full_path(path))), path)
    why = "  a file cannot be created there in one step, and only if there is none"
    try:
        if parts.scheme in _HDFS:
            return _named(HadoopFiles(*fs.FileSystem.from_uri(path)), path)
        plain = parts.username is None or _names_container(path)
        if parts.scheme in _OBJECTS and plain and not parts.query:
            from obstore.store import from_url

            return _named(ObjectFiles(from_url(path, retry_config=_RETRY)), path)
        if parts.scheme in _OBJECTS:
            why = "  its URI has a user or settings in it, which belong into the environment"
    except ModuleNotFoundError:
        why = "  the package obstore is missing: pip install obstore, on workers as well"
    except Exception as error:  # of Arrow, of obstore, and of what they call
        # Not the error's text, which may repeat a password.
        why = f"  {type(error).__name__}"
    raise ControlError(
        f"{without_secrets(path)} cannot hold a control directory",
        detail=why,
        hint="give a path on a disk, or a URI that begins with hdfs://, s3://, gs:// or abfs://,"
        " with credentials and settings in the environment (AWS_ENDPOINT, ...)",
    )


def _named(files: Files, path: str) -> Files:
    return cast("Files", NamedFiles(files, without_secrets(path)))
