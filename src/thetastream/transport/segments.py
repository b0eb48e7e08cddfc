"""Sealed files of a stream's log: Arrow files that never change, named by what they hold.

`00000000000000000000-000000065536-1a2b3c4d.arrow` holds the tuples 0 to 65,535, and its bytes have
that CRC-32. They are not compressed, so that a reader of a few columns touches only their pages.
"""

from __future__ import annotations

import json
import os
import re
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from thetastream.arrow import concat
from thetastream.errors import ForgottenError, SiteDataError
from thetastream.transport.disk import sync_folder, temporary_name, write_new

BATCH_ROWS = 65_536
"""Rows of one batch in a sealed file."""
_NAME = re.compile(r"(\d{20})-(\d{12})-([0-9a-f]{8})\.arrow", re.ASCII)
_ABOUT = b"thetastream"


class Segment:
    """One sealed file; it is opened, and its checksum compared, when it is first read."""

    def __init__(self, path: Path, first: int, rows: int, crc: int, size: int) -> None:
        self.path = path
        self.first = first
        self.rows = rows
        self.size = size
        self._crc = crc
        self._lock = threading.Lock()
        self._batches: list[pa.RecordBatch] | None = None
        self._verified = False

    @property
    def stop(self) -> int:
        """The number after its last tuple."""
        return self.first + self.rows

    @classmethod
    def at(cls, path: Path) -> Segment | None:
        """The segment with the name; None if it is no segment's."""
        found = _NAME.fullmatch(path.name)
        if found is None:
            return None
        size = path.stat().st_size
        return cls(path, int(found[1]), int(found[2]), int(found[3], 16), size)

    @classmethod
    def write(
        cls, folder: Path, first: int, batches: Sequence[pa.RecordBatch], *, newest: int
    ) -> Segment:
        """A sealed file of the batches; durable when this returns. `newest`: when the last came."""
        about = {_ABOUT: json.dumps({"newest": newest}).encode()}
        schema = batches[0].schema.with_metadata(about)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            for batch in _evenly(batches):
                writer.write_batch(batch.replace_schema_metadata(about))
        data = memoryview(sink.getvalue())
        rows = sum(batch.num_rows for batch in batches)
        crc = zlib.crc32(data)
        path = folder / f"{first:020d}-{rows:012d}-{crc:08x}.arrow"
        temporary = temporary_name(path)
        try:
            write_new(temporary, data)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(folder)
        return cls(path, first, rows, crc, len(data))

    def newest(self) -> int:
        """When its last tuple was taken in, in microseconds since 1970."""
        try:
            with pa.memory_map(str(self.path)) as file:
                about = pa.ipc.open_file(file).schema.metadata[_ABOUT]
                return int(json.loads(about)["newest"])
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
            raise self._damaged() from None

    def batches(self, start: int, stop: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The tuples from `start` up to `stop` that it holds, each batch with its first number."""
        first = self.first
        for batch in self._opened():
            begin, end = max(start, first), min(stop, first + batch.num_rows)
            if begin < end:
                yield begin, batch.slice(begin - first, end - begin)
            first += batch.num_rows

    def release(self) -> None:
        """Close the file, as soon as nobody reads it; it can be read again."""
        with self._lock:
            self._batches = None

    def _opened(self) -> list[pa.RecordBatch]:
        with self._lock:
            if self._batches is None:
                self._batches = self._open()
            return self._batches

    def _open(self) -> list[pa.RecordBatch]:
        try:
            file = pa.memory_map(str(self.path))
        except FileNotFoundError:
            raise ForgottenError(
                f"tuples {self.first} to {self.stop - 1} have been forgotten",
                hint="raise the site's retain, or read sooner",
            ) from None
        if not self._verified and zlib.crc32(file.read_buffer()) != self._crc:
            raise self._damaged()
        try:
            reader = pa.ipc.open_file(file)
            found = [
                reader.get_batch(number).replace_schema_metadata(None)
                for number in range(reader.num_record_batches)
            ]
        except (pa.ArrowException, OSError):
            raise self._damaged() from None
        if sum(batch.num_rows for batch in found) != self.rows:
            raise self._damaged()
        self._verified = True
        return found

    def _damaged(self) -> SiteDataError:
        return SiteDataError(
            f"{self.path} is damaged: tuples {self.first} to {self.stop - 1} cannot be read",
            hint="restore the file from a copy of the site's folder",
        )


def _evenly(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of some size, as pushes may have been of a row each."""
    group: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        group.append(batch)
        rows += batch.num_rows
        if rows >= BATCH_ROWS:
            yield concat(group)
            group, rows = [], 0
    if group:
        yield concat(group)
