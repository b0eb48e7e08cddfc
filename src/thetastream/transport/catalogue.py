"""The catalogue of a stream's log: a SQLite database, and a mark of what was acknowledged.

    acknowledged    the log's id, how many changes it has had, and the next number
    log.db          log       its format, id and columns
                    state     how far it has come, written with every change
                    entries   batches that are not sealed yet
                    segments  sealed files
                    sources   where tuples came from, and how far each source has been taken in

SQLite silently ends its write-ahead log at the first frame that is damaged, and pages of its main
file have no checksums. So each row has one of its own, and the mark is written after each
commit: a database with fewer changes than the mark has lost what was acknowledged.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from thetastream.errors import SiteDataError, SiteError
from thetastream.transport.disk import create_file, sync_folder, write_file
from thetastream.transport.messages import Limits, decode
from thetastream.transport.segments import RESTORE, Segment

FORMAT = 2
MARK = "acknowledged"
DATABASE = "log.db"
_PRAGMAS = (
    # No other process writes it, so that the index of the write-ahead log needs no file.
    "locking_mode = EXCLUSIVE",
    "page_size = 8192",
    "auto_vacuum = NONE",
    # Some builds overwrite what is deleted, which would write each entry again.
    "secure_delete = OFF",
    "journal_mode = WAL",
    "synchronous = FULL",
    # Pages, of which there are 16 MB.
    "wal_autocheckpoint = 2048",
)
_WRONG = (sqlite3.Error, SiteError, pa.ArrowException, ValueError, TypeError, OverflowError)
"""What reading rows of a damaged database raises."""
_NOT_DAMAGE = ("BUSY", "CANTOPEN", "FULL", "IOERR", "NOMEM", "PERM", "READONLY")
_COLUMNS = {
    "log": "one INTEGER PRIMARY KEY, format INTEGER, id TEXT, columns BLOB",
    "state": "one INTEGER PRIMARY KEY, changes INTEGER, floor INTEGER, next INTEGER,"
    " newest INTEGER, clock INTEGER",
    "entries": "first INTEGER PRIMARY KEY, rows INTEGER, at INTEGER, data_crc INTEGER",
    "segments": "first INTEGER PRIMARY KEY, rows INTEGER, size INTEGER, file_crc INTEGER,"
    " newest INTEGER",
    "sources": "name BLOB PRIMARY KEY, position INTEGER, first INTEGER, rows INTEGER,"
    " digest BLOB, seen INTEGER, note TEXT",
}
_TABLES = [
    f"CREATE TABLE {name} ({columns}, crc INTEGER{', data BLOB' * (name == 'entries')})"
    f"{' WITHOUT ROWID' * (name == 'sources')}"
    for name, columns in _COLUMNS.items()
]
_INSERTS = {
    name: f"INSERT OR REPLACE INTO {name} VALUES ({', '.join('?' * (table.count(',') + 1))})"
    for name, table in zip(_COLUMNS, _TABLES, strict=True)
}
_OWN = Limits(batch_bytes=2**62, batch_rows=2**31)
"""Batches that were taken in once are not measured again."""


class State(NamedTuple):
    """How far a log has come."""

    changes: int = 0
    floor: int = 0
    """The first number that is kept."""
    next: int = 0
    newest: int = 0
    """When the last tuple was taken in, in microseconds since 1970; it never goes back."""
    clock: int = 0
    """The log's own time, which follows `newest`, but does not jump."""


FIRST = State(changes=1)
"""Of a log without tuples."""


class Entry(NamedTuple):
    """A batch that is not sealed yet."""

    first: int
    at: int
    batch: pa.RecordBatch
    size: int
    """Bytes as it is stored."""

    @property
    def row(self) -> tuple[int, int, int]:
        """First number, rows and time."""
        return self.first, self.batch.num_rows, self.at


class Source(NamedTuple):
    """How far a source has been taken in, and its last batch."""

    position: int
    first: int
    rows: int
    digest: bytes
    """Of the content of the last batch."""
    seen: int
    """When, by the time of entries."""
    note: str = ""
    """Whatever else the source has to remember."""


@dataclass
class Content:
    """Everything that a catalogue holds."""

    id: str
    state: State
    schema: pa.Schema | None
    """None before the first tuple."""
    entries: list[Entry]
    segments: list[Segment]
    sources: dict[str, Source]


class Mark:
    """The file that says what was acknowledged."""

    def __init__(self, folder: Path) -> None:
        """Read it; raises SiteDataError if it is damaged, FileNotFoundError if there is none."""
        text = (folder / MARK).read_bytes()
        fields = text.split()
        try:
            self.id = fields[0].decode("ascii")
            self.changes, self.next = int(fields[1]), int(fields[2])
            if text != self._text(self.id, self.changes, self.next):
                raise ValueError
        except (IndexError, ValueError):
            raise damaged(folder, f"the file {MARK} is damaged") from None
        self._file = os.open(folder / MARK, os.O_WRONLY | os.O_CLOEXEC)
        self._synced = 0

    @staticmethod
    def _text(id: str, changes: int, number: int) -> bytes:
        text = f"{id} {changes:020d} {number:020d}".encode()
        return b"%b %08x\n" % (text, zlib.crc32(text))

    @classmethod
    def create(cls, folder: Path) -> None:
        """Make the mark of a new log, durably and in one step."""
        write_file(folder / MARK, cls._text(secrets.token_hex(16), 0, 0))

    def write(self, state: State) -> None:
        """Note what is acknowledged; a process that is killed does not lose it."""
        os.pwrite(self._file, self._text(self.id, state.changes, state.next), 0)
        self.changes, self.next = state.changes, state.next

    def sync(self) -> None:
        """Make it durable, if it has changed."""
        if self._synced != self.changes:
            os.fdatasync(self._file)
            self._synced = self.changes

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class Catalogue:
    """The catalogue of a log, open for changes."""

    def __init__(self, folder: Path) -> None:
        """Open it, or create it; raises SiteDataError if anything was lost."""
        self._folder = folder
        self._path = folder / DATABASE
        self.broken = ""
        """Why nothing can be changed any more."""
        if not (folder / MARK).exists():
            if not all(path.name.startswith(".") for path in folder.iterdir()):
                raise damaged(folder, f"the file {MARK} is missing")
            Mark.create(folder)
        self._mark = Mark(folder)
        try:
            if self._mark.changes == 0:
                # Nothing was acknowledged before the log was created completely.
                _create(self._path, self._mark.id)
                self._mark.write(FIRST)
                self._mark.sync()
            self.content = self._complete(read(self._path))
            self.state = self.content.state
            with _naming_failures(folder):
                self._db = _connect(self._path, "rw")
            self._remove_leftovers()
        except BaseException:
            self._mark.close()
            raise

    def _complete(self, content: Content) -> Content:
        state, mark = content.state, self._mark
        if content.id != mark.id:
            raise damaged(self._folder, f"{DATABASE} and {MARK} are of different logs")
        if state.next < mark.next:
            lost = f"tuples {state.next} to {mark.next - 1}"
            raise damaged(self._folder, f"{lost} were acknowledged and are missing")
        if state.changes < mark.changes:
            raise damaged(self._folder, f"its last {mark.changes - state.changes} changes are lost")
        for segment in content.segments:
            segment.check_size()
        return content

    def _remove_leftovers(self) -> None:
        """Remove what processes before this one have not finished."""
        kept = {segment.path.name for segment in self.content.segments}
        for other in self._folder.iterdir():
            unfinished = other.name.startswith(".") or other.suffix == ".arrow"
            if unfinished and other.name not in kept and other.is_file():
                other.unlink()

    @contextmanager
    def change(self, **fields: int) -> Iterator[sqlite3.Connection]:
        """A transaction with which the state gets these values; durable when this returns.

        Raises SiteError if the disk does not take it: then nothing has changed.
        """
        if self.broken:
            raise SiteError(
                f"the log in {self._folder} cannot be written: {self.broken}",
                hint="check the disk, and start the site again",
            )
        state = self.state._replace(changes=self.state.changes + 1, **fields)
        try:
            with _naming_failures(self._folder):
                self._db.execute("BEGIN")
                yield self._db
                put(self._db, "state", 1, *state)
                self._db.execute("COMMIT")
        except BaseException:
            self._undo()
            raise
        self.state = state
        with suppress(OSError):
            # The change is durable. Until `sync` writes the mark, losing it would go unnoticed.
            self._mark.write(state)

    def _undo(self) -> None:
        """End a transaction that failed, and make sure that nothing of it is left."""
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            (changes,) = self._db.execute("SELECT changes FROM state").fetchone()
            if changes != self.state.changes:
                self.broken = "it is not certain what was stored"
        except sqlite3.Error as error:
            self.broken = str(error)

    def sync(self) -> None:
        """Make the mark durable; raises OSError if the disk does not take it."""
        if self._mark.changes != self.state.changes:
            self._mark.write(self.state)
        self._mark.sync()

    def size(self) -> int:
        """Bytes of the database on the disk."""
        return sum(path.stat().st_size for path in self._folder.glob(f"{DATABASE}*"))

    def close(self) -> None:
        """Close the database and the mark."""
        self._db.close()
        with suppress(OSError):
            self.sync()
        self._mark.close()


# -- rows -----------------------------------------------------------------------------------------


def row_crc(*values: object) -> int:
    """The checksum of a row's values: numbers, texts and bytes."""
    return zlib.crc32(repr(values).encode())


def put(db: sqlite3.Connection, table: str, *values: object, data: pa.Buffer | None = None) -> None:
    """Add a row, or write it anew; `data` belongs to the table of entries."""
    more = () if data is None else (data,)
    db.execute(_INSERTS[table], (*values, row_crc(*values), *more))


def columns_of(schema: pa.Schema | None) -> bytes | None:
    """The columns of a stream as they are stored; None before the first tuple."""
    return None if schema is None else schema.serialize().to_pybytes()


def key_of(name: str) -> bytes:
    """The name of a source as it is stored: names of files and of writers need not be text."""
    return name.encode("utf-8", "surrogatepass")


def _rows(db: sqlite3.Connection, table: str) -> Iterator[list[Any]]:
    """The rows by their first column; raises ValueError at one that is not as it was written."""
    place = _COLUMNS[table].count(",") + 1
    for row in db.execute(f"SELECT * FROM {table} ORDER BY 1"):
        if row_crc(*row[:place]) != row[place]:
            raise ValueError(f"a row of {table} is damaged")
        yield [*row[:place], *row[place + 1 :]]


# -- databases ------------------------------------------------------------------------------------


def _create(path: Path, id: str) -> None:
    """Write a database without tuples, in the place of one that was begun; durable on return."""
    for other in path.parent.glob(f"{path.name}*"):
        other.unlink()
    create_file(path).close()
    with _naming_failures(path.parent), closing(_connect(path, "rw")) as db:
        db.execute("BEGIN")
        for table in _TABLES:
            db.execute(table)
        put(db, "log", 1, FORMAT, id, None)
        put(db, "state", 1, *FIRST)
        db.execute("COMMIT")
    sync_folder(path.parent)


def read(path: Path) -> Content:
    """Return all that a database holds; raises SiteDataError unless it is as it was written.

    A database that is refused stays as it is: it is opened for reading only.
    """
    if not path.exists():
        raise damaged(path.parent, f"{path.name} is missing")
    wal = path.with_name(f"{path.name}-wal")
    if wal.exists():
        # What is served must be durable: a process may have ended before its commit was.
        with open(wal, "rb") as file:
            os.fsync(file.fileno())
    try:
        with open(path, "rb") as file:
            if file.read(20)[18:] != b"\2\2":
                # Versions for writing and reading: with others, SQLite would only read it.
                raise ValueError(f"the head of {path.name} is damaged")
        with closing(_connect(path, "ro")) as db:
            return _read(db, path)
    except _WRONG as error:
        raise _failure(path.parent, error) from None
    finally:
        path.with_name(f"{path.name}-shm").unlink(missing_ok=True)


def _read(db: sqlite3.Connection, path: Path) -> Content:
    if db.execute("PRAGMA quick_check").fetchall() != [("ok",)]:
        raise ValueError(f"{path.name} is damaged")
    tables = db.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL ORDER BY rowid")
    if [sql for (sql,) in tables] != _TABLES:
        raise ValueError(f"{path.name} has other tables than those of this release")
    ((_, form, id, columns),) = _rows(db, "log")
    ((_, *state),) = _rows(db, "state")
    if form != FORMAT:
        raise ValueError(f"its format is {form}, and this release reads {FORMAT}")
    schema = None if columns is None else pa.ipc.read_schema(pa.py_buffer(columns))
    content = Content(
        id=id,
        state=State(*state),
        schema=schema,
        entries=[
            Entry(first, at, decode(data, schema, crc=crc, limits=_OWN), len(data))
            for first, _, at, crc, data in _rows(db, "entries")
        ],
        segments=[Segment(path.parent, *row) for row in _rows(db, "segments")],
        sources={
            name.decode("utf-8", "surrogatepass"): Source(*values)
            for name, *values in _rows(db, "sources")
        },
    )
    expected = content.state.floor
    for first, rows in (
        *((segment.first, segment.rows) for segment in content.segments),
        *((entry.first, entry.batch.num_rows) for entry in content.entries),
        (content.state.next, 0),
    ):
        if first != expected:
            raise ValueError(f"tuples {expected} to {first - 1} are missing or damaged")
        expected += rows
    return content


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=0)
    try:
        for pragma in _PRAGMAS if mode == "rw" else ():
            db.execute(f"PRAGMA {pragma}").fetchall()
    except BaseException:
        db.close()
        raise
    return db


# -- errors ---------------------------------------------------------------------------------------


def damaged(folder: Path, what: str) -> SiteDataError:
    """The error for a log that has lost something."""
    return SiteDataError(
        f"the log in {folder} is not complete: {what}",
        hint=RESTORE,
    )


@contextmanager
def _naming_failures(folder: Path) -> Iterator[None]:
    """Raise what SQLite reports as an error of the site's."""
    try:
        yield
    except sqlite3.Error as error:
        raise _failure(folder, error) from None


def _failure(folder: Path, error: BaseException) -> SiteError:
    if isinstance(error, SiteError):
        return error
    name = getattr(error, "sqlite_errorname", "")
    if name.removeprefix("SQLITE_").startswith(_NOT_DAMAGE):
        return SiteError(
            f"the log in {folder} cannot be used: {error} ({name})",
            hint="make room on the disk, or check it; what was not acknowledged has to be sent"
            " again",
        )
    return damaged(folder, str(error).splitlines()[0] if str(error) else type(error).__name__)
