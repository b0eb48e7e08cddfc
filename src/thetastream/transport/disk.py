"""Files that survive a crash and that only their owner can read."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, all of them the owner's only."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        # Those above that are not ours to read were there before.
        with suppress(PermissionError):
            sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, not only what they name."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_file(path: Path) -> BinaryIO:
    """Open a file for writing that is not there yet."""
    return os.fdopen(os.open(path, _NEW, 0o600), "wb")


def write_new(path: Path, data: bytes | memoryview) -> None:
    """Write a file that is not there yet, durably; its name is not durable yet."""
    with create_file(path) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def temporary_name(path: Path) -> Path:
    """A hidden name beside the path, which nobody else uses."""
    return path.parent / f".{path.name}.{secrets.token_hex(8)}"


def write_file(path: Path, data: bytes | memoryview) -> None:
    """Write a file whole or not at all, in the place of one that may be there."""
    temporary = temporary_name(path)
    try:
        write_new(temporary, data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def is_private(path: Path) -> bool:
    """Whether nobody but the owner can read or change the file."""
    return path.stat().st_mode & 0o077 == 0
