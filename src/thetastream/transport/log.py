"""The durable log of one stream: tuples with dense numbers, which are never used twice.

An append is durable when it returns. Tuples come from sources, each with a position that grows: a
writer and its sequence, a file and its rows, a partition of a topic and its offset. What was taken
in and how far its source has come are one transaction of the log's catalogue, so that what comes
again is stored once. When there are enough entries they are sealed: they become an Arrow file that
never changes, entered in the transaction that removes them. No network here.

Age is measured by the time of the newest entry, and the log's own clock follows it at no more than
twice the speed of time itself: a clock of the machine that jumps ahead makes nothing old at once.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.errors import ForgottenError, SiteChangedError, SiteError, SiteRequestError
from thetastream.sizes import format_size
from thetastream.transport.catalogue import (
    FORMAT,
    Catalogue,
    Entry,
    Source,
    State,
    columns_of,
    key_of,
    put,
)
from thetastream.transport.digests import content_digest
from thetastream.transport.disk import make_folder
from thetastream.transport.excerpts import Excerpt, Part, Piece, end_of
from thetastream.transport.filters import Filter
from thetastream.transport.messages import stream_schema
from thetastream.transport.segments import Segment

Clock = Callable[[], int]
"""Microseconds: since 1970, or since any moment for a clock that never jumps."""

WRITER, FILE, TOPIC = "writer ", "file ", "topic "
"""What the names of sources begin with."""
REMEMBER = 7 * 24 * 3_600_000_000
"""Microseconds of the log's clock for which a source is remembered after it was last seen."""
_LOOK = REMEMBER // 168
"""Microseconds of the log's clock between two looks at which sources are forgotten."""
_LONGEST_PROBLEM = 300
"""Characters of an error in a status."""
_SPEED = 2
"""How much faster than time itself the log's clock may catch up."""


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """When a log seals its entries, when it forgets, and when it takes nothing in."""

    retain: int | None = None
    """Microseconds for which a tuple is kept, up to the newest one; None for ever."""
    retain_bytes: int | None = None
    """Bytes above which the oldest sealed files are forgotten; None for any number."""
    seal_bytes: int = 32 * 1024**2
    """Bytes of entries that are sealed at once."""
    seal_entries: int = 10_000
    """Entries that are sealed at once, however small: each takes memory beside its bytes."""
    seal_after: int | None = None
    """Microseconds after which entries are sealed even if they are few: files are forgotten whole.
    None: only their size and their number count."""
    message_bytes: int = 1024**2
    """Arrow bytes of one batch that is read, unless a single tuple is larger."""
    writers: int = 100_000
    """Writers that are remembered at a time; pushes of others are refused."""
    free_bytes: int = 0
    """Bytes of the disk that stay free: below, nothing is taken in."""


def now() -> int:
    """The time of the machine."""
    return time.time_ns() // 1000


def monotonic() -> int:
    """A time that never jumps."""
    return time.monotonic_ns() // 1000


def brief(error: Exception) -> str:
    """The error in a line of a status; errors that are not the site's own with their type."""
    text = next(iter(str(error).splitlines()), "")[:_LONGEST_PROBLEM]
    if isinstance(error, SiteError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class Log:
    """The tuples of one stream, on disk."""

    def __init__(
        self,
        folder: Path,
        options: LogOptions | None = None,
        *,
        clock: Clock = now,
        monotonic: Clock = monotonic,
    ) -> None:
        """Open the log, or create it; raises SiteDataError if anything in it has been lost."""
        self._folder = folder
        self._options = options or LogOptions()
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.RLock()
        make_folder(folder)
        self._catalogue = Catalogue(folder)
        content = self._catalogue.content
        self.id = content.id
        """The epoch of the log: numbers mean something only together with it."""
        self.problem = ""
        """What went wrong with the files last, for the status."""
        self._schema = content.schema
        self._entries = content.entries
        self._segments = content.segments
        self._sources = content.sources
        self._unsealed = sum(entry.size for entry in self._entries)
        self._looked = monotonic()
        self._allowed = 0
        """Microseconds that the log's clock may go ahead."""
        self._due = dict.fromkeys((WRITER, FILE), 0)
        """When sources of a kind are looked at again, by the log's clock."""

    # -- what there is --------------------------------------------------------------------------

    @property
    def _state(self) -> State:
        return self._catalogue.state

    @property
    def schema(self) -> pa.Schema | None:
        """The stream's columns; None before the first tuple."""
        return self._schema

    @property
    def first(self) -> int:
        """The first number that is retained."""
        return self._state.floor

    @property
    def next(self) -> int:
        """The number that the next tuple will get."""
        return self._state.next

    def size(self) -> int:
        """Bytes on disk."""
        with self._lock:
            return self._catalogue.size() + sum(segment.size for segment in self._segments)

    def files(self) -> int:
        """How many sealed files there are."""
        return len(self._segments)

    def source(self, name: str) -> Source | None:
        """How far a source has been taken in; None before its first batch."""
        return self._sources.get(name)

    def positions(self, kind: str) -> dict[str, int]:
        """The position of each source of a kind, by its name within the kind."""
        with self._lock:
            return {
                name.removeprefix(kind): source.position
                for name, source in self._sources.items()
                if name.startswith(kind)
            }

    # -- to add ---------------------------------------------------------------------------------

    def append(
        self,
        batch: pa.RecordBatch,
        *,
        source: str = "",
        position: int = 0,
        note: str = "",
        data: pa.Buffer | None = None,
        crc: int | None = None,
    ) -> tuple[int, int]:
        """Store a batch durably; its first number, and how many tuples.

        `source` and `position`: where the batch comes from, and what identifies it there; a batch
        without rows moves the position only. The last batch of a source may come again: it keeps
        its numbers and is not stored again. `data` is the batch as it is serialised, if the caller
        has it, and `crc` its CRC-32.
        """
        data = batch.serialize() if data is None else data
        crc = zlib.crc32(data) if crc is None else crc
        digest = content_digest(batch) if source else b""
        with self._lock:
            before = self._sources.get(source)
            if before is not None and position <= before.position:
                return _repeated(source, position, before, batch.num_rows, digest)
            if before is None and source.startswith(WRITER):
                self._check_writers()
            self._check_space(data.size)
            state, rows = self._state, batch.num_rows
            first, at = state.next, max(self._clock(), state.newest)
            schema = self._schema or stream_schema(batch.schema)
            after = Source(position, first, rows, digest, at, note)
            entry = Entry(first, at, batch, data.size)
            # The first tuple of all sets the log's clock.
            times = {"newest": at, "clock": state.clock or at} if rows else {}
            with self._catalogue.change(next=first + rows, **times) as db:
                if self._schema is None:
                    put(db, "log", 1, FORMAT, self.id, columns_of(schema))
                if source:
                    put(db, "sources", key_of(source), *after)
                if rows:
                    put(db, "entries", *entry.row, crc, data=data)
            self._schema = schema
            if source:
                self._sources[source] = after
            if rows:
                self._entries.append(entry)
                self._unsealed += data.size
            if self._is_full() and not self.problem:
                try:
                    self.seal()
                except Exception as error:
                    # The entry is stored, whatever becomes of this; `maintain` tries again.
                    self.problem = f"entries cannot be sealed: {brief(error)}"
            return first, rows

    def _is_full(self) -> bool:
        options = self._options
        return self._unsealed >= options.seal_bytes or len(self._entries) >= options.seal_entries

    def _check_writers(self) -> None:
        # A stream that is pushed to has no other sources.
        if len(self._sources) >= self._options.writers:
            raise SiteRequestError(
                f"{len(self._sources):,} writers have pushed to the stream in the last week, and"
                " the site remembers no more",
                hint="keep one SiteClient open for many pushes, or give push() the name of a"
                " writer that stays the same",
            )

    def _check_space(self, size: int) -> None:
        floor = self._options.free_bytes
        if not floor:
            return
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        if free - size < floor:
            raise SiteError(
                f"the disk of {self._folder} has {format_size(free)} free, and"
                f" {format_size(floor)} of it stay free",
                hint="make room on the disk, or lower free_bytes in the site's file",
            )

    # -- to seal and to forget ------------------------------------------------------------------

    def maintain(self) -> None:
        """Seal entries that are many or old, and forget what is past the retention."""
        with self._lock:
            self._advance()
            age, entries = self._options.seal_after, self._entries
            now = max(self._clock(), self._state.newest)
            old = bool(entries) and age is not None and entries[0].at + age <= now
            if old or self._is_full():
                self.seal()
            self._forget(self._segments[: self._count_old()])
            self._forget_sources(WRITER, ())
            self._catalogue.sync()

    def _advance(self) -> None:
        """Let the log's clock follow the newest entry, as fast as it may.

        While nothing comes, time is saved up, so that a pause is no jump.
        """
        looked, self._looked = self._looked, self._monotonic()
        state, elapsed = self._state, max(0, self._looked - looked)
        behind = state.newest - state.clock
        self._allowed += _SPEED * elapsed if behind else elapsed
        if behind:
            step = min(behind, self._allowed)
            self._allowed = self._allowed - step if step < behind else 0
            # Stored with the next change: a clock that is behind forgets later.
            self._catalogue.state = state._replace(clock=state.clock + step)

    def seal(self) -> None:
        """Turn all entries into an Arrow file."""
        with self._lock:
            if not self._entries:
                return
            segment = Segment.write(
                self._folder,
                self._entries[0].first,
                [entry.batch for entry in self._entries],
                newest=self._entries[-1].at,
            )
            try:
                with self._catalogue.change() as db:
                    db.execute("DELETE FROM entries")
                    put(db, "segments", *segment.row)
            except Exception:
                if not self._catalogue.broken:
                    segment.path.unlink(missing_ok=True)
                raise
            # New lists: who reads has the old ones.
            self._segments = [*self._segments, segment]
            self._entries = []
            self._unsealed = 0
            self.problem = ""

    def _count_old(self) -> int:
        """How many sealed files are past the retention, from the oldest on."""
        options = self._options
        size = self._unsealed + sum(segment.size for segment in self._segments)
        horizon = None if options.retain is None else self._state.clock - options.retain
        for count, segment in enumerate(self._segments):
            old = horizon is not None and segment.newest < horizon
            if not old and (options.retain_bytes is None or size <= options.retain_bytes):
                return count
            size -= segment.size
        return len(self._segments)

    def _forget(self, segments: Sequence[Segment]) -> None:
        if not segments:
            return
        floor = segments[-1].stop
        # The catalogue first: a file that it names and that is missing has been lost.
        with self._catalogue.change(floor=floor) as db:
            db.execute("DELETE FROM segments WHERE first < ?", (floor,))
        self._segments = self._segments[len(segments) :]
        for segment in segments:
            # What stays is removed by the next start.
            segment.forgotten = True
            segment.path.unlink(missing_ok=True)

    def keep_sources(self, kind: str, names: Collection[str]) -> None:
        """Note which sources of a kind are there still; forget others after some time."""
        with self._lock:
            self._forget_sources(kind, names)

    def _forget_sources(self, kind: str, present: Collection[str]) -> None:
        state = self._state
        if state.clock < self._due[kind]:
            return
        self._due[kind] = state.clock + _LOOK
        changed: dict[str, Source | None] = {}
        for name, source in self._sources.items():
            if name.startswith(kind) and name.removeprefix(kind) in present:
                # Not more often than necessary: each is a change of the catalogue.
                if source.seen + REMEMBER // 7 < state.clock:
                    changed[name] = source._replace(seen=state.clock)
            elif name.startswith(kind) and source.seen + REMEMBER < state.clock:
                changed[name] = None
        if not changed:
            return
        with self._catalogue.change() as db:
            for name, after in changed.items():
                db.execute("DELETE FROM sources WHERE name = ?", (key_of(name),))
                if after is not None:
                    put(db, "sources", key_of(name), *after)
        sources = {**self._sources, **changed}
        self._sources = {name: source for name, source in sources.items() if source is not None}

    def close(self) -> None:
        """Close the catalogue; everything is durable already."""
        with self._lock:
            self._catalogue.close()

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
        excerpt = self._excerpt(start, stop)
        return iter(()) if excerpt is None else excerpt.read(start, stop, columns, where)

    def fetch(
        self, numbers: npt.NDArray[np.int64], *, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The tuples with these numbers, which ascend, each once; their numbers come first."""
        if len(numbers) == 0:
            return iter(())
        if int(numbers[0]) < 0 or bool(np.any(np.diff(numbers) <= 0)):
            raise SiteRequestError("the numbers do not ascend", hint="sort them, each once")
        excerpt = self._excerpt(int(numbers[0]), int(numbers[-1]) + 1)
        return iter(()) if excerpt is None else excerpt.fetch(numbers, columns)

    def _excerpt(self, start: int, stop: int) -> Excerpt | None:
        """What holds the range; None before the first tuple of the stream."""
        parts, schema = self._snapshot(start, stop), self._schema
        if schema is None:
            return None
        return Excerpt(parts, schema, self._options.message_bytes)

    def _snapshot(self, start: int, stop: int) -> list[Part]:
        """What holds the range now; later appends and forgetting do not change it."""
        with self._lock:
            if start < self.first:
                raise ForgottenError(
                    f"tuple {start} has been forgotten: {self.first} is the first that is kept",
                    hint="raise the site's retain, or read sooner",
                )
            if stop > self.next:
                raise SiteChangedError(
                    f"tuple {stop - 1} is not there: the next one will be {self.next}",
                    hint="if it was there before, the site has lost its disk or an older copy of"
                    " it was restored: what was read from it since must be read again",
                )
            everything: list[Part] = [*self._segments, *self._entries]
        return [part for part in everything if end_of(part) > start and part.first < stop]


def _repeated(
    source: str, position: int, before: Source, rows: int, digest: bytes
) -> tuple[int, int]:
    """The numbers of a batch that was stored already; raises SiteRequestError for any other."""
    if position < before.position:
        raise SiteRequestError(
            f"{source}: {position} comes after {before.position}",
            hint="count pushes upwards; two programs need two names of writers",
        )
    if rows != before.rows or digest != before.digest:
        raise SiteRequestError(
            f"{source}: {position} came before with other rows", hint="use a new one for new rows"
        )
    return before.first, before.rows
