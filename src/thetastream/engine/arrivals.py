"""What a batch brings to a unit, counted for its report: rows, times and frequent keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from thetastream.index.encoding import Int64s
from thetastream.index.part import PartMeta, Tuples
from thetastream.spec import StreamSpec, carried_column

HEAVY_HITTERS = 3
"""Most frequent keys of a stream that a report names."""
SHOWN = 40
"""Characters of a key's value that a report shows."""

StreamRow = tuple[str, int, int, int | None, int | None]
"""A stream's name, its rows, those that were late, its newest time in microseconds, and the delay
of its watermark in milliseconds."""
HeavyRow = tuple[str, str, int]
"""A stream's name, the value of a key, and how many of the batch's rows have it."""


class Arrivals:
    """The tuples of one batch that a unit is home to."""

    def __init__(self, streams: Sequence[StreamSpec]) -> None:
        self._streams = streams
        self._rows = [0] * len(streams)
        self._late = [0] * len(streams)
        self._newest: list[int | None] = [None] * len(streams)
        self._frequent: list[dict[int, tuple[int, str]]] = [{} for _ in streams]

    def add(self, stream: int, tuples: Tuples, late: int) -> None:
        """Count tuples of a stream, so many of them late."""
        self._rows[stream] += len(tuples)
        self._late[stream] += late
        time = self._streams[stream].time
        if time is not None and len(tuples):
            self._seen(stream, int(tuples.keys[time].max()))

    def kept(self, stream: int, parts: Iterable[PartMeta]) -> None:
        """Take note of the times that are stored: batches before this one brought them."""
        time = self._streams[stream].time
        if time is not None:
            for part in parts:
                self._seen(stream, part.high[time])

    def keys(self, stream: int, tuples: Tuples, key: int | None) -> None:
        """Take note of the most frequent values of a key; the tuples are sorted by it."""
        if key is None or len(tuples) == 0:
            return
        values = tuples.keys[key]
        starts, counts = stretches(tuples, key)
        found = self._frequent[stream]
        for place in np.argpartition(counts, -min(HEAVY_HITTERS, len(counts)))[-HEAVY_HITTERS:]:
            value, count = int(values[starts[place]]), int(counts[place])
            before, text = found.get(value, (0, ""))
            text = text or shown(self._streams[stream], key, tuples, int(starts[place]))
            found[value] = (before + count, text)

    def streams(self) -> list[StreamRow]:
        """What came of each stream; what another join made is none."""
        counted = zip(self._streams, self._rows, self._late, self._newest, strict=True)
        return [
            (stream.name, rows, late, newest, stream.delay)
            for stream, rows, late, newest in counted
            if not stream.is_join_result
        ]

    def heavy(self) -> list[HeavyRow]:
        """The keys that came more than once, the most frequent first."""
        found = [
            (stream.name, text, count)
            for stream, mine in zip(self._streams, self._frequent, strict=True)
            for count, text in sorted(mine.values(), reverse=True)[:HEAVY_HITTERS]
            if count > 1
        ]
        return sorted(found, key=lambda item: -item[2])

    def _seen(self, stream: int, time: int) -> None:
        newest = self._newest[stream]
        self._newest[stream] = time if newest is None else max(newest, time)


def stretches(tuples: Tuples, key: int) -> tuple[Int64s, Int64s]:
    """Where each value of a key begins among tuples that are sorted by it, and how often it comes;
    worked out once, however often it is asked for."""
    name = ("stretches of a key", key)
    if name not in tuples.memo:
        values = tuples.keys[key]
        starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
        tuples.memo[name] = starts, np.diff(np.r_[starts, len(values)])
    found: tuple[Int64s, Int64s] = tuples.memo[name]
    return found


def shown(stream: StreamSpec, number: int, tuples: Tuples, row: int) -> str:
    """A key's value as people read it; of a hash, what was hashed, if the tuple carries it."""
    key = stream.keys[number]
    if not key.of:
        return _text(tuples.batch.column(stream.key_column(number)), row)
    places = [_carried(stream, name) for name in key.of]
    known = [_text(tuples.batch.column(carried_column(at)), row) for at in places if at is not None]
    if len(known) < len(places):
        return f"hash {int(tuples.keys[number][row]) % (1 << 64):016x}"
    return ", ".join(known)


def _carried(stream: StreamSpec, name: str) -> int | None:
    """The place of one of the stream's own columns among those that travel."""
    own = ".".join(f"`{part.replace('`', '``')}`" for part in (stream.name, name))
    for place, column in enumerate(stream.columns):
        if (column.sql is None and column.name == name) or column.sql == own:
            return place
    return None


def _text(column: pa.Array, row: int) -> str:
    """A value in a line, cut where it is long; nothing in a report may fail."""
    column = column.slice(row, 1)
    instant = pa.types.is_timestamp(column.type) and column.type.tz is not None
    if instant:
        # In UTC: a worker need not know the session's time zone.
        column = column.cast(pa.timestamp(column.type.unit))
    try:
        value = column[0].as_py()
    except (ValueError, OverflowError, KeyError):
        return "a value that Python cannot show"
    text = printable(value[:SHOWN].hex() if isinstance(value, bytes) else str(value))
    return f"{text} UTC" if instant else text


def printable(text: str) -> str:
    """One short line of it; what does not print could do something to a terminal."""
    line = "".join(sign if sign.isprintable() else "?" for sign in text[: SHOWN + 1])
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"
