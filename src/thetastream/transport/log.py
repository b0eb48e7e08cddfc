"""The durable log of one stream: tuples with dense numbers from 0, which are never used twice.

    floor             the first number that is not forgotten (JSON)
    taken             names of files that are wholly taken in, a line each
    *-*-*.arrow       sealed files, oldest first
    journal-…         what has come since

An append is durable when it returns. When a journal is large or old enough it is sealed: first the
Arrow file is written, then the journal that follows, then the old journal goes; a crash between any
two of these leaves a state that the next start understands. No network here, and no clock: the
caller says what time it is.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.errors import ForgottenError, SiteChangedError, SiteDataError, SiteRequestError
from thetastream.transport.disk import make_folder, sync_folder, write_file
from thetastream.transport.excerpts import Excerpt, OpenFiles, Part, Piece, end_of
from thetastream.transport.filters import Filter
from thetastream.transport.journal import PREFIX, Entry, Head, Journal, Writer
from thetastream.transport.messages import stream_schema
from thetastream.transport.segments import Segment
from thetastream.transport.taken import TakenFiles

MAX_WRITERS = 1_000
"""Writers whose last push is remembered; the one that has been silent for longest goes first."""


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """When a log seals its journal, and when it forgets."""

    retain: int | None = None
    """Microseconds for which a tuple is kept after it was taken in; None for ever."""
    seal_bytes: int = 32 * 1024**2
    seal_after: int | None = None
    """Microseconds after which a journal is sealed even if it is small: files are forgotten whole.
    None: only its size counts."""
    message_bytes: int = 1024**2
    """Arrow bytes of one batch that is read, unless a single tuple is larger."""


class Log:
    """The tuples of one stream, on disk."""

    def __init__(self, folder: Path, options: LogOptions | None = None) -> None:
        """Open the log, or create it; raises SiteDataError if tuples have been lost."""
        self._folder = folder
        self._options = options or LogOptions()
        self._lock = threading.RLock()
        make_folder(folder)
        self._floor = self._read_floor()
        self._taken = TakenFiles(folder / "taken")
        self._segments = self._read_segments()
        self._newest = {segment.first: segment.newest() for segment in self._segments}
        self._journal, entries = self._read_journal()
        head = self._journal.head
        self.id = head.id
        """Made when the log was created: numbers mean something only together with it."""
        self.problem = ""
        """What went wrong with the files last, for the status."""
        self._schema = head.schema
        self._writers = dict(head.writers)
        self._partial = dict(head.partial)
        self._positions = dict(head.positions)
        self._entries: list[Entry] = []
        self._open = OpenFiles()
        self._next = head.first
        for entry in entries:
            self._remember(entry)

    # -- what there is --------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema | None:
        """The stream's columns; None before the first tuple."""
        return self._schema

    @property
    def first(self) -> int:
        """The first number that is retained."""
        return self._floor

    @property
    def next(self) -> int:
        """The number that the next tuple will get."""
        return self._next

    def size(self) -> int:
        """Bytes on disk."""
        with self._lock:
            return self._journal.size + sum(segment.size for segment in self._segments)

    def files(self) -> int:
        """How many sealed files there are."""
        return len(self._segments)

    def is_taken(self, name: str) -> bool:
        """Whether a file is wholly taken in."""
        return name in self._taken

    def partly_taken(self, name: str) -> tuple[int, int]:
        """Rows of a file that are taken in already, and the file's size then; 0, 0 if none are."""
        return self._partial.get(name, (0, 0))

    def positions(self) -> dict[str, int]:
        """What each source that counts goes on with."""
        with self._lock:
            return dict(self._positions)

    # -- to add ---------------------------------------------------------------------------------

    def append(
        self, batch: pa.RecordBatch, *, at: int, writer: str = "", sequence: int = 0
    ) -> tuple[int, int]:
        """Store a batch durably; its first number, and how many tuples.

        A batch that the writer has sent before, by its sequence, keeps its numbers and is not
        stored again.
        """
        note: dict[str, Any] = {"at": at}
        with self._lock:
            if writer:
                known = self._writers.get(writer)
                if known is not None and sequence == known.sequence:
                    if known.rows != batch.num_rows:
                        raise SiteRequestError(
                            f"push {sequence} of writer {writer!r} had {known.rows:,} rows before",
                            hint="use a new sequence for new rows",
                        )
                    return known.first, known.rows
                if known is not None and sequence < known.sequence:
                    raise SiteRequestError(
                        f"writer {writer!r} sends push {sequence} after {known.sequence}",
                        hint="count pushes upwards; two programs need two names of writers",
                    )
                note |= {"writer": writer, "sequence": sequence}
            return self._append(note, batch), batch.num_rows

    def append_of_file(
        self, batch: pa.RecordBatch, *, at: int, name: str, upto: int, size: int, complete: bool
    ) -> int:
        """Store rows of a file, and in the same step that they are taken in; the first number."""
        note = {"at": at, "file": name, "upto": upto, "size": size, "complete": complete}
        with self._lock:
            if name in self._taken or upto - batch.num_rows != self.partly_taken(name)[0]:
                raise ValueError(f"rows of {name} are taken in twice or not in order")
            return self._append(note, batch)

    def append_with_positions(
        self, batch: pa.RecordBatch, *, at: int, positions: Mapping[str, int]
    ) -> int:
        """Store rows, and in the same step how far their source has come; the first number."""
        with self._lock:
            for name, position in positions.items():
                if position < self._positions.get(name, 0):
                    raise ValueError(f"{name} goes back to {position}")
            return self._append({"at": at, "positions": dict(positions)}, batch)

    def _append(self, note: dict[str, Any], batch: pa.RecordBatch) -> int:
        if self._schema is None:
            self._begin(stream_schema(batch.schema))
        entry = Entry(self._next, note, batch)
        self._journal.append(entry.first, note, batch)
        self._remember(entry)
        if self._journal.size >= self._options.seal_bytes:
            try:
                self.seal()
            except OSError as error:
                # The entry is stored, whatever becomes of this; the next append tries again.
                self.problem = f"the journal cannot be sealed: {error}"
        return entry.first

    def _begin(self, schema: pa.Schema) -> None:
        """Fix the columns of a stream that has had no tuples."""
        head = replace(self._journal.head, schema=schema)
        self._journal.close()
        self._journal = Journal.create(self._folder, head)
        self._schema = schema

    def _remember(self, entry: Entry) -> None:
        """Make a stored entry visible."""
        note = entry.note
        if "writer" in note:
            # Taken out first, so that the order is that of the last pushes.
            self._writers.pop(note["writer"], None)
            self._writers[note["writer"]] = Writer(
                note["sequence"], entry.first, entry.batch.num_rows
            )
            while len(self._writers) > MAX_WRITERS:
                del self._writers[next(iter(self._writers))]
        if "file" in note:
            if note["complete"]:
                self._partial.pop(note["file"], None)
                self._taken.add(note["file"])
            else:
                self._partial[note["file"]] = (note["upto"], note["size"])
        self._positions |= note.get("positions", {})
        if entry.batch.num_rows:
            self._entries.append(entry)
        self._next = entry.first + entry.batch.num_rows

    # -- to seal and to forget ------------------------------------------------------------------

    def maintain(self, now: int) -> None:
        """Seal a journal that is old, and forget what is past the retention, in whole files."""
        with self._lock:
            age = self._options.seal_after
            if self._entries and age is not None and self._entries[0].note["at"] + age <= now:
                self.seal()
            retain = self._options.retain
            if retain is None:
                return
            old = 0
            while (
                old < len(self._segments) and self._newest[self._segments[old].first] + retain < now
            ):
                old += 1
            if old:
                self._forget(self._segments[:old])

    def seal(self) -> None:
        """Turn the journal into an Arrow file and begin another."""
        with self._lock:
            if not self._entries:
                return
            newest = self._entries[-1].note["at"]
            segment = Segment.write(
                self._folder,
                self._entries[0].first,
                [entry.batch for entry in self._entries],
                newest=newest,
            )
            try:
                self._taken.store()
                head = self._head(self.id, self._schema)
                journal = Journal.create(self._folder, head)
            except BaseException:
                # The journal goes on, so nothing else may hold its tuples or follow it.
                Journal.path_of(self._folder, self._next).unlink(missing_ok=True)
                segment.path.unlink(missing_ok=True)
                raise
            old, self._journal = self._journal, journal
            self._segments = [*self._segments, segment]
            self._newest[segment.first] = newest
            self._entries = []
            self.problem = ""
            old.close()
            old.path.unlink(missing_ok=True)
            sync_folder(self._folder)

    def _head(self, id: str, schema: pa.Schema | None) -> Head:
        """The head of the journal that comes next."""
        return Head(id, self._next, schema, self._writers, self._partial, self._positions)

    def _forget(self, segments: Sequence[Segment]) -> None:
        self._floor = segments[-1].stop
        self._segments = self._segments[len(segments) :]
        self._open.drop(segments)
        # The floor first: a file that is missing above it has been lost, not forgotten.
        write_file(self._folder / "floor", json.dumps({"floor": self._floor}).encode())
        for segment in segments:
            segment.path.unlink(missing_ok=True)
            del self._newest[segment.first]
        sync_folder(self._folder)

    def close(self) -> None:
        """Close the journal; everything is durable already."""
        with self._lock:
            self._journal.close()

    # -- to read --------------------------------------------------------------------------------

    def read(
        self,
        start: int,
        stop: int,
        *,
        columns: list[str] | None = None,
        where: Filter | None = None,
    ) -> Iterator[Piece]:
        """The chosen columns of tuples `start` up to `stop` that a filter keeps, in pieces.

        The pieces cover the range without a gap, also where nothing is kept.
        """
        if start > stop or start < 0:
            raise SiteRequestError(
                f"there is no range of numbers {start} to {stop}", hint="give the smaller one first"
            )
        found = self._excerpt(start, stop)
        return iter(()) if found is None else found.read(start, stop, columns, where)

    def fetch(
        self, numbers: npt.NDArray[np.int64], *, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The tuples with these numbers, which ascend, each once; their numbers come first."""
        if len(numbers) == 0:
            return iter(())
        if int(numbers[0]) < 0 or bool(np.any(np.diff(numbers) <= 0)):
            raise SiteRequestError("the numbers do not ascend", hint="sort them, each once")
        found = self._excerpt(int(numbers[0]), int(numbers[-1]) + 1)
        return iter(()) if found is None else found.fetch(numbers, columns)

    def _excerpt(self, start: int, stop: int) -> Excerpt | None:
        """What holds the range; None before the first tuple of the stream."""
        parts, schema = self._snapshot(start, stop), self._schema
        if schema is None:
            return None
        return Excerpt(parts, schema, self._open, self._options.message_bytes)

    def _snapshot(self, start: int, stop: int) -> list[Part]:
        """What holds the range now; later appends and forgetting do not change it."""
        with self._lock:
            if start < self._floor:
                raise ForgottenError(
                    f"tuple {start} has been forgotten: {self._floor} is the first that is kept",
                    hint="raise the site's retain, or read sooner",
                )
            if stop > self._next:
                raise SiteChangedError(
                    f"tuple {stop - 1} is not there: the next one will be {self._next}",
                    hint="if it was there before, the site has lost its disk or an older copy of"
                    " it was restored: what was read from it since must be read again",
                )
            everything: list[Part] = [*self._segments, *self._entries]
        return [part for part in everything if end_of(part) > start and part.first < stop]

    # -- to begin where a process before this one has stopped -------------------------------------

    def _read_floor(self) -> int:
        path = self._folder / "floor"
        try:
            return int(json.loads(path.read_bytes())["floor"])
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, KeyError, TypeError):
            raise self._lost(f"{path} cannot be read") from None

    def _read_segments(self) -> list[Segment]:
        found = []
        for path in sorted(self._folder.iterdir()):
            if path.name.startswith("."):
                # What was being written when a process ended.
                path.unlink()
                continue
            segment = Segment.at(path)
            if segment is not None and segment.stop <= self._floor:
                path.unlink()
            elif segment is not None:
                found.append(segment)
        expected = self._floor
        for segment in found:
            if segment.first != expected:
                raise self._lost(f"the file that begins with tuple {expected} is missing")
            expected = segment.stop
        return found

    def _read_journal(self) -> tuple[Journal, list[Entry]]:
        sealed = self._segments[-1].stop if self._segments else self._floor
        paths = sorted(self._folder.glob(f"{PREFIX}*"))
        if not paths:
            if self._segments or self._floor:
                raise self._lost("the journal is missing")
            return Journal.create(self._folder, Head(secrets.token_hex(16), 0)), []
        journal, entries = Journal.recover(paths[-1])
        if journal.head.first == sealed:
            for old in paths[:-1]:
                old.unlink()
            return journal, entries
        if not self._segments or journal.head.first != self._segments[-1].first:
            raise self._lost(f"the tuples from {sealed} to {journal.head.first - 1} are missing")
        return self._replace_sealed(journal, entries, sealed), []

    def _replace_sealed(self, old: Journal, entries: list[Entry], sealed: int) -> Journal:
        """The journal after one that was sealed just before the process ended."""
        end = entries[-1].first + entries[-1].batch.num_rows if entries else old.head.first
        if end != sealed:
            raise self._lost(f"{old.path} and the file that was made of it differ")
        head = old.head
        self._writers, self._partial = dict(head.writers), dict(head.partial)
        self._positions = dict(head.positions)
        self._entries = []
        self._next = sealed
        for entry in entries:
            self._remember(entry)
        self._taken.store()
        journal = Journal.create(self._folder, self._head(head.id, head.schema))
        old.close()
        old.path.unlink()
        sync_folder(self._folder)
        return journal

    def _lost(self, what: str) -> SiteDataError:
        return SiteDataError(
            f"the log in {self._folder} is not complete: {what}",
            hint="restore the site's folder, or remove it and take everything in again",
        )
