"""Probing: which stored tuples of a part match which probing tuples.

Two binary searches per tuple and part give a contiguous range of candidates; ranges are expanded to
pairs in chunks of bounded size, and the remaining ranges filter the pairs. A range that the part's
smallest and largest keys already satisfy is not looked at again: this is how the window is verified
only in sub-indexes that are partly outside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from thetastream.index.bounds import Interval, interval
from thetastream.index.encoding import Bools, Int64s
from thetastream.index.part import Part, Tuples
from thetastream.spec import JoinSpec

Pairs = tuple[Int64s, Int64s]
"""Positions among the probing tuples, and in the part."""


class Found(NamedTuple):
    """Probing tuples, each with a range of a part in which its partners are."""

    rows: Int64s
    begin: Int64s
    end: Int64s
    pending: list[tuple[int, Interval]]
    """What a pair must satisfy besides: a key of the stored tuple, and where it must lie."""

    @property
    def candidates(self) -> int:
        """Pairs in the ranges."""
        return int((self.end - self.begin).clip(0).sum())

    def take(self, which: Int64s) -> Found:
        """Some of the probing tuples."""
        pending = [(key, bounds.rows(which)) for key, bounds in self.pending]
        return Found(self.rows[which], self.begin[which], self.end[which], pending)

    def split(self, part: Part) -> tuple[Found, Found]:
        """Those whose whole range matches, and those whose pairs must be looked at."""
        settled = np.ones(len(self.rows), dtype=bool)
        for key, bounds in self.pending:
            settled &= (bounds.first <= part.low[key]) & (bounds.last >= part.high[key])
        sure = self.take(np.flatnonzero(settled))
        return sure._replace(pending=[]), self.take(np.flatnonzero(~settled))

    def pairs(self, part: Tuples, limit: int) -> Iterator[Pairs]:
        """The matching pairs, at most `limit` at a time."""
        for probing, stored in expand(self.begin, self.end, limit):
            if self.pending:
                keep = _satisfied(part, self.pending, probing, stored)
                probing, stored = probing[keep], stored[keep]
            if len(probing):
                yield self.rows[probing], stored


class Probe:
    """Probing tuples of one stream, sorted, with what they ask of the other stream's keys."""

    def __init__(self, spec: JoinSpec, new: int, stored: int, tuples: Tuples) -> None:
        """`tuples` are of the stream `new`, in the order that its edge with `stored` has."""
        edge = spec.edge(new, stored)
        mine, other = edge.side(new), edge.side(stored)
        self.tuples = tuples
        self.order = edge.order(stored)
        """The order in which stored tuples are searched."""
        self._equality = edge.order(new).equality
        keys = spec.streams[new].keys
        self._rules: list[tuple[int, Interval]] = []
        for rule in edge.ranges:
            own = rule.of(mine)
            bounds = interval(rule, mine == 0, tuples.keys[own], keys[own])
            self._rules.append((rule.of(other), bounds))

    def satisfied(self, stored: Tuples, pairs: Pairs) -> Bools:
        """Which of some pairs with stored tuples in any order match."""
        probing, partners = pairs
        keep = np.ones(len(probing), dtype=bool)
        equality = self.order.equality
        if self._equality is not None and equality is not None:
            keep &= self.tuples.keys[self._equality][probing] == stored.keys[equality][partners]
        for key, bounds in self._rules:
            values = stored.keys[key][partners]
            keep &= (values >= bounds.first[probing]) & (values <= bounds.last[probing])
        return keep

    @property
    def needles(self) -> Int64s | None:
        """The probing tuples' own keys of the equality; None if there is none."""
        return None if self._equality is None else self.tuples.keys[self._equality]

    def table(self, rows: Int64s, stored: Tuples, start: int, stop: int) -> Bools:
        """Which of some probing tuples (lines) match which stored ones from start to before stop.

        Every pair is looked at, in whatever order the stored tuples are.
        """
        keep = np.ones((len(rows), stop - start), dtype=bool)
        equality = self.order.equality
        if self._equality is not None and equality is not None:
            needles = self.tuples.keys[self._equality][rows]
            keep &= needles[:, None] == stored.keys[equality][None, start:stop]
        for key, bounds in self._rules:
            values = stored.keys[key][None, start:stop]
            keep &= values >= bounds.first[rows][:, None]
            keep &= values <= bounds.last[rows][:, None]
        return keep

    def search(self, part: Part, rows: Int64s) -> Found:
        """The range of stored tuples of each of the candidates `rows`."""
        low, high = part.low, part.high
        rules = [(key, bounds.rows(rows)) for key, bounds in self._rules]
        pending = [(key, bounds) for key, bounds in rules if not bounds.covers(low[key], high[key])]
        if part.order.equality is not None and self._equality is not None:
            needles = self.tuples.keys[self._equality][rows]
            drive = _pop_drive(pending, part.order.range)
            hits, begin, end = _search_group(part, needles, drive)
            rows = rows[hits]
            pending = [(key, bounds.rows(hits)) for key, bounds in pending]
        elif part.order.range is not None:
            drive = _pop_drive(pending, part.order.range)
            begin, end = _search_range(part, len(rows), drive)
        else:
            begin = np.zeros(len(rows), dtype=np.int64)
            end = np.full(len(rows), len(part), dtype=np.int64)
        return Found(rows, begin, end, pending)

    def among(self, values: Int64s) -> Pairs | None:
        """The stretch of some sorted values of the driving key that each probing tuple may match:
        where it begins, and ends; None if nothing bounds that key."""
        for key, bounds in self._rules:
            if key == self.order.range:
                first = np.searchsorted(values, bounds.first, "left")
                return first, np.searchsorted(values, bounds.last, "right")
        return None

    def search_values(self, part: Part, rows: Int64s, starts: Int64s, stretches: Pairs) -> Found:
        """The range of stored tuples of each of the candidates `rows`, from the stretches of values
        that `among` found and where the tuples of each value start in the part."""
        low, high = part.low, part.high
        rules = [(key, bounds.rows(rows)) for key, bounds in self._rules]
        _pop_drive(rules, part.order.range)
        pending = [(key, bounds) for key, bounds in rules if not bounds.covers(low[key], high[key])]
        return Found(rows, starts[stretches[0][rows]], starts[stretches[1][rows]], pending)

    def candidates(self, low: Sequence[int], high: Sequence[int]) -> Int64s:
        """Probing tuples that a part's smallest and largest keys do not rule out."""
        equality = self.order.equality
        count = len(self.tuples)
        start, stop = 0, count
        if self._equality is not None and equality is not None:
            needles = self.tuples.keys[self._equality]
            start = int(np.searchsorted(needles, low[equality], "left"))
            stop = int(np.searchsorted(needles, high[equality], "right"))
        alive = None
        for key, bounds in self._rules:
            first, last = bounds.first[start:stop], bounds.last[start:stop]
            possible = (first <= high[key]) & (last >= low[key])
            if not possible.all():
                alive = possible if alive is None else alive & possible
        if alive is None:
            return np.arange(start, stop, dtype=np.int64)
        return np.flatnonzero(alive) + start


def _pop_drive(pending: list[tuple[int, Interval]], drive: int | None) -> Interval | None:
    """The first pending interval on the key the part is sorted by; it no longer needs filtering."""
    for position, (key, bounds) in enumerate(pending):
        if key == drive:
            del pending[position]
            return bounds
    return None


def _search_range(part: Part, count: int, drive: Interval | None) -> Pairs:
    if drive is None:
        return np.zeros(count, dtype=np.int64), np.full(count, len(part), dtype=np.int64)
    assert part.order.range is not None
    keys = part.keys[part.order.range]
    begin = np.searchsorted(keys, drive.first, "left")
    end = np.searchsorted(keys, drive.last, "right")
    return begin, end


def _search_group(
    part: Part, needles: Int64s, drive: Interval | None
) -> tuple[Int64s, Int64s, Int64s]:
    """Probing tuples whose key the part has, and their range of candidates in it."""
    distinct, starts = part.groups
    group = np.searchsorted(distinct, needles)
    group[group == len(distinct)] = 0
    hits = np.flatnonzero(distinct[group] == needles)
    group = group[hits]
    if drive is None:
        return hits, starts[group], starts[group + 1]
    assert part.order.range is not None
    low, high = part.low[part.order.range], part.high[part.order.range]
    known, bits = part.ranks
    if known is None:
        first = np.clip(drive.first[hits], low, _after(high)) - low
        last = np.clip(drive.last[hits], _before(low), high) - low
    else:
        first = np.searchsorted(known, drive.first[hits], "left")
        last = np.searchsorted(known, drive.last[hits], "right") - 1
    base = group << bits
    begin = np.searchsorted(part.positions, base + first, "left")
    end = np.searchsorted(part.positions, base + last, "right")
    return hits, begin, end


def _after(key: int) -> int:
    return min(key + 1, np.iinfo(np.int64).max)


def _before(key: int) -> int:
    return max(key - 1, np.iinfo(np.int64).min)


def _satisfied(
    part: Tuples, pending: list[tuple[int, Interval]], probing: Int64s, stored: Int64s
) -> Bools:
    keep = np.ones(len(probing), dtype=bool)
    for key, bounds in pending:
        keys = part.keys[key][stored]
        keep &= (keys >= bounds.first[probing]) & (keys <= bounds.last[probing])
    return keep


def expand(begin: Int64s, end: Int64s, limit: int) -> Iterator[Pairs]:
    """All (tuple, position) with begin <= position < end, at most `limit` at a time."""
    counts = end - begin
    rows = np.flatnonzero(counts > 0)
    if len(rows) == 0:
        return
    counts, begin = counts[rows], begin[rows]
    upto = np.cumsum(counts)
    total = int(upto[-1])
    if total == len(rows):
        for start in range(0, total, limit):
            yield rows[start : start + limit], begin[start : start + limit]
        return
    for start in range(0, total, limit):
        stop = min(start + limit, total)
        first = int(np.searchsorted(upto, start, "right"))
        final = int(np.searchsorted(upto, stop, "left"))
        some = counts[first : final + 1].copy()
        origin = begin[first : final + 1].copy()
        skipped = start - (int(upto[first]) - int(counts[first]))
        some[0] -= skipped
        origin[0] += skipped
        some[-1] -= int(upto[final]) - stop
        ends = np.cumsum(some)
        stored = np.arange(stop - start, dtype=np.int64) + np.repeat(origin - (ends - some), some)
        yield np.repeat(rows[first : final + 1], some), stored
