"""Giving up what a log has lost: what can be read is kept, under new numbers and a new id.

Numbers of a log have no gaps, and none is used for another tuple. So what is left begins behind
all numbers that were ever given, in another epoch: readers of the old one get an error that names
the change. The old database stays as it is until the new one takes its place, which is one step.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from thetastream.errors import SiteDataError, SiteError, SiteRequestError
from thetastream.transport.catalogue import (
    WRONG,
    Content,
    Entry,
    Mark,
    State,
    create,
    read,
    read_about,
    read_entries,
    read_sources,
    reading,
)
from thetastream.transport.excerpts import Part, end_of
from thetastream.transport.log import WRITER, Log
from thetastream.transport.segments import Segment

T = TypeVar("T")


class Accepted(NamedTuple):
    """What is left of a log."""

    kept: int
    """Tuples that could be read."""
    lost: int
    """Tuples that could not."""
    first: int
    """The first number of what is left."""


def accept_loss(folder: Path) -> Accepted:
    """Begin another epoch with what can be read; raises SiteRequestError if nothing is lost."""
    if not folder.is_dir():
        raise SiteRequestError(f"there is no log in {folder}", hint="check the stream's name")
    if _is_complete(folder):
        raise SiteRequestError(
            f"the log in {folder} has lost nothing", hint="there is nothing to accept"
        )
    mark = None
    with suppress(FileNotFoundError, SiteDataError):
        mark = Mark(folder)
        mark.close()
    old = _salvaged(folder, mark)
    parts = _without_overlaps([*old.segments, *old.entries])
    first = max([old.state.next, mark.next if mark else 0, *map(end_of, parts)])
    new = Content(os.urandom(16).hex(), schema=old.schema)
    moved: list[tuple[range, int]] = []
    """Old numbers of each part, and by how much they grow."""
    number = first
    for part in parts:
        moved.append((range(part.first, end_of(part)), number - part.first))
        if isinstance(part, Segment):
            new.segments.append(_linked(part, number))
        else:
            new.entries.append(part._replace(first=number))
        number += end_of(part) - part.first
    times = [part.newest if isinstance(part, Segment) else part.at for part in parts]
    newest = max([old.state.newest, *times])
    new.state = State(1, first, number, newest, old.state.clock or newest)
    for name, source in old.sources.items():
        by = next((by for numbers, by in moved if source.first in numbers), None)
        if by is not None:
            new.sources[name] = source._replace(first=source.first + by)
        elif not source.rows or source.first < old.state.floor or not name.startswith(WRITER):
            # What a writer has lost it may send again; a file or a topic goes on where it was.
            new.sources[name] = source
    create(folder, new)
    read(folder / f"{new.id}.db")
    Mark.replace(folder, new.id, new.state)
    Log(folder).close()
    kept = number - first
    return Accepted(kept, first - old.state.floor - kept, first)


def _is_complete(folder: Path) -> bool:
    try:
        log = Log(folder)
        try:
            for _ in log.read(log.first, log.next, columns=[]):
                pass
        finally:
            log.close()
    except SiteDataError:
        return False
    return True


def _salvaged(folder: Path, mark: Mark | None) -> Content:
    """What can be read of a log, with its numbers."""
    best = Content("")
    files = [Segment.at(path) for path in sorted(folder.glob("*.arrow"))]
    segments = [segment for segment in files if segment is not None and _is_readable(segment)]
    paths = [folder / f"{mark.id}.db"] if mark else sorted(folder.glob("*.db"))
    for path in paths:
        with suppress(*WRONG), reading(path) as db:
            content = _rows_of(db, segments)
            best = max(best, content, key=lambda one: one.state.next)
    best.segments = [segment for segment in segments if segment.stop > best.state.floor]
    if best.schema is None and best.segments:
        best.schema = best.segments[0].open()[0].schema
    return best


def _rows_of(db: sqlite3.Connection, segments: list[Segment]) -> Content:
    content = Content("", schema=segments[0].open()[0].schema if segments else None)
    with suppress(*WRONG):
        content = read_about(db)
    content.entries = list(_readable(read_entries(db, content.schema)))
    content.sources = dict(_readable(read_sources(db)))
    return content


def _readable(rows: Iterator[T]) -> Iterator[T]:
    """The rows up to a page that is damaged."""
    with suppress(*WRONG):
        yield from rows


def _is_readable(segment: Segment) -> bool:
    try:
        segment.open()
    except SiteError:
        return False
    return True


def _without_overlaps(parts: list[Part]) -> list[Part]:
    """The parts in the order of their numbers; a file may hold what entries hold, too."""
    kept: list[Part] = []
    for part in sorted(parts, key=lambda part: (part.first, isinstance(part, Entry))):
        if not kept or part.first >= end_of(kept[-1]):
            kept.append(part)
    return kept


def _linked(segment: Segment, first: int) -> Segment:
    """The same file under the name that its new numbers give it."""
    folder = segment.path.parent
    linked = Segment(folder, first, segment.rows, segment.size, segment.crc, segment.newest)
    linked.path.unlink(missing_ok=True)
    os.link(segment.path, linked.path)
    return linked
