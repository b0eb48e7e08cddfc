"""The open end of a stream's log: a file that batches are appended to, each with its checksum.

    journal:  "TSJOURN1", length and CRC-32 of the head, head (JSON)
    entry:    "TSEN", lengths, first number, rows, CRC-32 of all of it, note (JSON), batch (Arrow)

The head has everything that must outlive the files before it: the stream's id, its schema, the
first number, and what is known of writers, files and topics. A journal is created whole, so only
its end can be torn: by a process that was killed, or a machine that lost power, before an append
was acknowledged. That end is cut off. Damage anywhere else is refused, since it would lose tuples.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from thetastream.errors import SiteDataError, SiteError
from thetastream.transport.disk import write_file
from thetastream.transport.messages import Limits, decode

FORMAT = 1
PREFIX = "journal-"
_MAGIC = b"TSJOURN1"
_HEAD = struct.Struct("<8sII")
_MARK = b"TSEN"
_ENTRY = struct.Struct("<4sIQqII")
"""Mark, bytes of the note, bytes of the batch, first number, rows, CRC-32."""
_MAX_HEAD = 64 * 1024**2
_OWN = Limits(batch_bytes=2**62, batch_rows=2**31)
"""Batches that were taken in once are not measured again."""


class Writer(NamedTuple):
    """The last push of a writer: asked for again, it is answered again and not stored twice."""

    sequence: int
    first: int
    rows: int


@dataclass(frozen=True)
class Head:
    """What a journal begins with."""

    id: str
    first: int
    schema: pa.Schema | None = None
    writers: dict[str, Writer] = field(default_factory=dict)
    partial: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Files of which only some rows are taken in: how many, and the file's size."""
    positions: dict[str, int] = field(default_factory=dict)
    """Sources that count: what each goes on with."""

    def to_bytes(self) -> bytes:
        """The head as a journal begins with it."""
        schema = self.schema
        text = json.dumps(
            {
                "format": FORMAT,
                "id": self.id,
                "first": self.first,
                "schema": None if schema is None else _base64(schema.serialize()),
                "writers": {name: list(writer) for name, writer in self.writers.items()},
                "partial": {name: list(rows) for name, rows in self.partial.items()},
                "positions": self.positions,
            }
        ).encode()
        return _HEAD.pack(_MAGIC, len(text), zlib.crc32(text)) + text


class Entry(NamedTuple):
    """One appended batch."""

    first: int
    note: dict[str, Any]
    batch: pa.RecordBatch


class Journal:
    """A journal that is open for appending."""

    def __init__(self, path: Path, head: Head, end: int) -> None:
        self.path = path
        self.head = head
        self.size = end
        self._broken = ""
        self._file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    @staticmethod
    def path_of(folder: Path, first: int) -> Path:
        """The file of the journal that begins with this number."""
        return folder / f"{PREFIX}{first:020d}"

    @classmethod
    def create(cls, folder: Path, head: Head) -> Journal:
        """A journal without entries, in the place of one that may begin at the same number."""
        path = cls.path_of(folder, head.first)
        data = head.to_bytes()
        write_file(path, data)
        return cls(path, head, len(data))

    @classmethod
    def recover(cls, path: Path) -> tuple[Journal, list[Entry]]:
        """A journal as a process before this one has left it, without a torn end."""
        data = path.read_bytes()
        head, start = _read_head(path, data)
        entries = []
        end = start
        for entry, after in _entries(path, data, head, start):
            entries.append(entry)
            end = after
        if end < len(data) and _is_followed(data, end):
            raise SiteDataError(
                f"{path} is damaged at byte {end}",
                detail="  entries that were acknowledged lie behind the damage",
                hint="restore the site's folder, or remove it and take everything in again",
            )
        journal = cls(path, head, end)
        # What is served must be durable, and so must the cut.
        os.ftruncate(journal._file, end)
        os.fsync(journal._file)
        return journal, entries

    def append(self, first: int, note: dict[str, Any], batch: pa.RecordBatch) -> None:
        """Write an entry; it is durable when this returns, and not there when it raises."""
        if self._broken:
            raise SiteError(f"{self.path} cannot be written: {self._broken}", hint=_RESTART)
        text = json.dumps(note).encode()
        body = batch.serialize()
        fields = (_MARK, len(text), body.size, first, batch.num_rows)
        crc = zlib.crc32(body, zlib.crc32(text, zlib.crc32(_ENTRY.pack(*fields, 0))))
        try:
            self._write(_ENTRY.pack(*fields, crc) + text, self.size)
            end = self._write(memoryview(body), self.size + _ENTRY.size + len(text))
        except OSError as error:
            self._undo()
            raise SiteError(
                f"{self.path} cannot be written: {error.strerror}",
                hint="make room on the disk; what was not acknowledged has to be sent again",
            ) from None
        try:
            os.fdatasync(self._file)
        except OSError as error:
            # The system may have dropped what it could not write: its state is not known.
            self._broken = str(error.strerror)
            raise SiteError(f"{self.path} cannot be written: {error}", hint=_RESTART) from None
        self.size = end

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, data: bytes | memoryview, at: int) -> int:
        rest = memoryview(data)
        while rest:
            count = os.pwrite(self._file, rest, at)
            rest, at = rest[count:], at + count
        return at

    def _undo(self) -> None:
        try:
            os.ftruncate(self._file, self.size)
        except OSError as error:
            self._broken = str(error.strerror)


_RESTART = "check the disk, and start the site again"


def _read_head(path: Path, data: bytes) -> tuple[Head, int]:
    try:
        magic, length, crc = _HEAD.unpack_from(data)
        text = data[_HEAD.size : _HEAD.size + length]
        if magic != _MAGIC or length > _MAX_HEAD or zlib.crc32(text) != crc:
            raise ValueError
        found = json.loads(text)
        if found["format"] != FORMAT:
            raise SiteDataError(
                f"{path} has the format {found['format']}, and this release reads {FORMAT}",
                hint="use the release that wrote it",
            )
        encoded = found["schema"]
        schema = None
        if encoded is not None:
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded)))
        head = Head(
            id=found["id"],
            first=found["first"],
            schema=schema,
            writers={name: Writer(*writer) for name, writer in found["writers"].items()},
            partial={name: (rows[0], rows[1]) for name, rows in found["partial"].items()},
            positions={name: int(at) for name, at in found.get("positions", {}).items()},
        )
    except (struct.error, ValueError, KeyError, TypeError, pa.ArrowException):
        raise SiteDataError(
            f"{path} is damaged: it does not begin as a journal does",
            hint="restore the site's folder, or remove it and take everything in again",
        ) from None
    return head, _HEAD.size + length


def _entries(path: Path, data: bytes, head: Head, start: int) -> Iterator[tuple[Entry, int]]:
    """The entries up to the first that is not whole, each with where it ends."""
    expected = head.first
    while (found := _entry_at(data, start)) is not None:
        first, rows, text, body, end = found
        if first != expected or head.schema is None:
            raise SiteDataError(
                f"{path} is damaged: number {first} follows {expected - 1}",
                hint="restore the site's folder, or remove it and take everything in again",
            )
        batch = decode(body, head.schema, crc=None, limits=_OWN)
        yield Entry(first, json.loads(text), batch), end
        start, expected = end, first + rows


def _entry_at(data: bytes, start: int) -> tuple[int, int, bytes, bytes, int] | None:
    """First number, rows, note, batch and end of the entry; None if it is not whole."""
    if start + _ENTRY.size > len(data):
        return None
    mark, noted, size, first, rows, crc = _ENTRY.unpack_from(data, start)
    note_at = start + _ENTRY.size
    body_at = note_at + noted
    end = body_at + size
    if mark != _MARK or end > len(data):
        return None
    head = _ENTRY.pack(mark, noted, size, first, rows, 0)
    if zlib.crc32(memoryview(data)[note_at:end], zlib.crc32(head)) != crc:
        return None
    return first, rows, data[note_at:body_at], data[body_at:end], end


def _is_followed(data: bytes, start: int) -> bool:
    """Whether a whole entry lies anywhere behind the place."""
    place = data.find(_MARK, start + 1)
    while place >= 0:
        if _entry_at(data, place) is not None:
            return True
        place = data.find(_MARK, place + 1)
    return False


def _base64(data: pa.Buffer) -> str:
    return base64.b64encode(data).decode("ascii")
