"""Sealed files of a stream's log: Arrow files that never change, named by what they hold.

`00000000000000000000-000000065536-1a2b3c4d.arrow` holds the tuples 0 to 65,535, and its bytes have
that CRC-32. They are not compressed, so that a reader of a few columns touches only their pages.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from thetastream.arrow import concat, stretches
from thetastream.errors import ForgottenError, SiteDataError
from thetastream.transport.disk import sync_folder, temporary_name

BATCH_ROWS = 65_536
"""Rows of one batch in a sealed file, unless a push brought more of them."""
BATCH_BYTES = 4 * 1024**2
"""Arrow bytes of one, unless a single row is larger: a reader holds a batch at a time."""
RESTORE = (
    "restore the stream's folder from a copy, or move it away: the stream then begins anew, under"
    " another id, and readers are told so"
)


class Segment:
    """One sealed file; its checksum is compared when it is first read."""

    def __init__(
        self, folder: Path, first: int, rows: int, size: int, crc: int, newest: int
    ) -> None:
        """`newest`: when its last tuple was taken in, in microseconds since 1970."""
        self.path = folder / f"{first:020d}-{rows:012d}-{crc:08x}.arrow"
        self.first = first
        self.rows = rows
        self.size = size
        self.crc = crc
        self.newest = newest
        self.forgotten = False
        """Whether its file is being removed."""
        self._verified = False

    @property
    def stop(self) -> int:
        """The number after its last tuple."""
        return self.first + self.rows

    @property
    def row(self) -> tuple[int, int, int, int, int]:
        """What the catalogue has of it."""
        return self.first, self.rows, self.size, self.crc, self.newest

    @classmethod
    def write(
        cls, folder: Path, first: int, batches: Sequence[pa.RecordBatch], *, newest: int
    ) -> Segment:
        """A sealed file of the batches; durable when this returns."""
        temporary = temporary_name(folder / "sealed")
        try:
            with open(
                temporary, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)
            ) as file:
                with pa.ipc.new_file(pa.PythonFile(file, "w"), batches[0].schema) as writer:
                    for batch in evenly(batches):
                        writer.write_batch(batch)
                file.flush()
                os.fsync(file.fileno())
            rows = sum(batch.num_rows for batch in batches)
            with pa.memory_map(str(temporary)) as written:
                crc = zlib.crc32(written.read_buffer())
                segment = cls(folder, first, rows, written.size(), crc, newest)
            os.replace(temporary, segment.path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(folder)
        return segment

    def check_size(self) -> None:
        """Raise SiteDataError if the file is missing or has another size."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            size = -1
        if size != self.size:
            raise self._damaged()

    def batches(self, start: int, stop: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The tuples from `start` up to `stop` that it holds, each batch with its first number."""
        first = self.first
        for batch in self.open():
            begin, end = max(start, first), min(stop, first + batch.num_rows)
            if begin < end:
                yield begin, batch.slice(begin - first, end - begin)
            first += batch.num_rows

    def open(self) -> list[pa.RecordBatch]:
        """Its batches, in memory that is mapped to the file as long as they are used."""
        try:
            file = pa.memory_map(str(self.path))
        except (pa.ArrowException, OSError):
            if not self.forgotten:
                raise self._damaged() from None
            raise ForgottenError(
                f"tuples {self.first} to {self.stop - 1} have been forgotten",
                hint="raise the site's retain, or read sooner",
            ) from None
        if not self._verified and zlib.crc32(file.read_buffer()) != self.crc:
            raise self._damaged()
        try:
            reader = pa.ipc.open_file(file)
            batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        except (pa.ArrowException, OSError):
            raise self._damaged() from None
        if sum(batch.num_rows for batch in batches) != self.rows:
            raise self._damaged()
        self._verified = True
        return batches

    def _damaged(self) -> SiteDataError:
        return SiteDataError(
            f"{self.path} is damaged: tuples {self.first} to {self.stop - 1} cannot be read",
            hint=RESTORE,
        )


def evenly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of some size: pushes may have been of a row each, or large."""
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for start, stop in stretches(batch, BATCH_BYTES):
            part = batch.slice(start, stop - start)
            if group and (rows + part.num_rows > BATCH_ROWS or size + part.nbytes > BATCH_BYTES):
                yield concat(group)
                group, rows, size = [], 0, 0
            group.append(part)
            rows += part.num_rows
            size += part.nbytes
    if group:
        yield concat(group)
