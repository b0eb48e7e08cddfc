"""Parquet files that appear in a folder, each taken in exactly once, in the order of their names.

How many rows of a file are taken in is stored in the same step as its tuples. A file that is not
whole or does not fit the stream is left out, named in the site's status, and looked at again when
it changes. The name of a file is remembered while the file lies in the folder, and a week longer;
nothing is forgotten while the folder is empty, as it is when its disk is not mounted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from thetastream.arrow import stretches
from thetastream.errors import SiteDataError, SiteRequestError
from thetastream.transport.log import FILE, Log
from thetastream.transport.messages import Limits, checked, stream_schema

CHUNK_BYTES = 8 * 1024**2
"""Arrow bytes of a file that are stored at a time."""
CHUNK_ROWS = 131_072
_MOST_REFUSED = 100
"""Files that a status names; there may be more."""


class FolderSource:
    """The files of one folder, for one log."""

    kind = "folder"

    def __init__(self, log: Log, folder: Path, time: str, limits: Limits) -> None:
        self.refused: dict[str, str] = {}
        """Files that are left out, and why."""
        self.problem = ""
        """Why the folder cannot be looked at."""
        self._log = log
        self._folder = folder
        self._time = time
        # A file's batches are cut here; only a single row may be too large.
        self._limits = replace(limits, batch_rows=CHUNK_ROWS)
        self._seen: dict[str, tuple[int, int]] = {}
        self._taken: set[str] = set()
        """Files in the folder that are wholly taken in."""

    def close(self) -> None:
        """Nothing stays open between two looks."""

    def poll(self, now: int) -> int:
        """Take in what is new; how many tuples."""
        try:
            names = sorted(path.name for path in self._folder.iterdir())
            self.problem = ""
        except OSError as error:
            self.problem = f"{self._folder} cannot be read: {error.strerror}"
            return 0
        names = [name for name in names if name.endswith(".parquet") and name[0] not in "._"]
        if names:
            self._log.keep_sources(FILE, set(names))
        self._taken &= set(names)
        self._seen = {name: self._seen[name] for name in self._seen.keys() & set(names)}
        rows = 0
        for gone in self.refused.keys() - set(names):
            del self.refused[gone]
        for name in names:
            if self._is_taken(name):
                continue
            path = self._folder / name
            try:
                facts = path.stat()
            except OSError:
                continue
            state = (facts.st_mtime_ns, facts.st_size)
            if self._seen.get(name) == state:
                continue
            try:
                rows += self._take(path, facts.st_size)
            except _LeftOutError as error:
                self._seen[name] = state
                if len(self.refused) < _MOST_REFUSED:
                    self.refused[name] = str(error)
            else:
                self._seen.pop(name, None)
                self.refused.pop(name, None)
        return rows

    def _is_taken(self, name: str) -> bool:
        if name not in self._taken:
            source = self._log.source(FILE + name)
            if source is not None and source.position == _rows_and_size(source.note)[0]:
                self._taken.add(name)
        return name in self._taken

    def _take(self, path: Path, size: int) -> int:
        """Store what is new in a file; errors of the log are not the file's."""
        rows = 0
        chunks = self._fresh(path, size)
        while True:
            try:
                chunk = next(chunks, None)
            except (SiteRequestError, SiteDataError) as error:
                raise _LeftOutError(str(error)) from None
            if chunk is None:
                return rows
            batch, upto, note = chunk
            self._log.append(batch, source=FILE + path.name, position=upto, note=note)
            rows += int(batch.num_rows)

    def _fresh(self, path: Path, size: int) -> Iterator[tuple[pa.RecordBatch, int, str]]:
        """Rows that are not stored yet, each batch with the rows up to its end and its note."""
        source = self._log.source(FILE + path.name)
        before = 0 if source is None else source.position
        if source is not None and _rows_and_size(source.note)[1] != size:
            raise SiteDataError(
                f"{path.name} has changed after {before:,} of its rows were taken in",
                hint="put its former content back, and new rows into a new file",
            )
        schema, total = self._check(path)
        note = f"{total} {size}"
        upto = 0
        for batch in _chunks(path, schema):
            upto += batch.num_rows
            if upto > before:
                # A file that was begun is cut as it was then, so this never leaves rows out.
                fresh = batch.slice(batch.num_rows - min(batch.num_rows, upto - before))
                yield self._usable(fresh, schema), upto, note
        if total == 0:
            yield pa.RecordBatch.from_pylist([], schema), 0, note

    def _check(self, path: Path) -> tuple[pa.Schema, int]:
        """The stream's schema and the number of rows, after a look at every value of the file."""
        try:
            with pq.ParquetFile(path) as file:
                found = stream_schema(file.schema_arrow)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _unreadable(path, error) from None
        schema = self._log.schema
        if schema is None:
            schema = found
            check_time(schema, self._time)
        kinds = dict(zip(found.names, found.types, strict=True))
        if kinds != dict(zip(schema.names, schema.types, strict=True)):
            raise SiteRequestError(
                f"{path.name} does not have the stream's columns",
                detail=f"  {', '.join(f'{one} {kind}' for one, kind in kinds.items())[:400]}",
                hint="write files with the same columns and types",
            )
        total = 0
        for batch in _chunks(path, schema):
            self._usable(batch, schema)
            total += batch.num_rows
        return schema, total

    def _usable(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        return checked(batch, schema, crc=None, limits=self._limits)


class _LeftOutError(Exception):
    """A file cannot be taken in as it is."""


def check_time(schema: pa.Schema, time: str) -> None:
    """Refuses a stream without its event time."""
    if time not in schema.names or not pa.types.is_timestamp(schema.field(time).type):
        raise SiteRequestError(
            f"the tuples have no timestamp {time!r}, which is the stream's time",
            hint="name a column of timestamps as the time of the stream, in the site's file",
        )


def _chunks(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file, cut in the same places whenever it is read."""
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=CHUNK_ROWS, use_threads=False):
                plain = pa.RecordBatch.from_arrays(
                    [batch.column(name) for name in schema.names], schema=schema
                )
                for start, stop in stretches(plain, CHUNK_BYTES):
                    yield plain.slice(start, stop - start)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise _unreadable(path, error) from None


def _rows_and_size(note: str) -> tuple[int, int]:
    """The rows of a file and its bytes, as they were when it was begun."""
    rows, size = note.split()
    return int(rows), int(size)


def _unreadable(path: Path, error: Exception) -> SiteDataError:
    text = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    return SiteDataError(
        f"{path.name} is not a whole Parquet file",
        detail=f"  {text}",
        hint="write files under another name and rename them when they are whole",
    )
