"""A unit's local view: aggregates over its results, made without listing the pairs.

The first phase of BiStream's two-phase aggregation. Where all stored tuples of a range match,
counts, sums and extremes come from folds over the range: of the stored values for each probing
tuple when the groups are the probing stream's, the other way round when they are the stored
stream's. Pairs that must be looked at one by one are listed in chunks and folded at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt

import numpy as np
import pyarrow.compute as pc

from thetastream.engine.consumers.cells import (
    Operands,
    Side,
    Sides,
    fold_by_probing,
    listed,
    operands_of,
    scattered,
)
from thetastream.engine.consumers.totals import Totals
from thetastream.index.encoding import Bools, Int64s
from thetastream.index.operands import Selection
from thetastream.index.part import Part, Tuples
from thetastream.index.probe import Found, Pairs, expand
from thetastream.spec import JoinSpec, ViewSpec

_ENUMERATION = 4
"""Listing a pair costs about as much as this many steps of a fold."""
_PIECE = 1 << 16
"""Pairs that are listed in the time that one more piece of a division takes."""
_DEPTH = 4


class View:
    """Folds the pairs of one batch into totals."""

    def __init__(self, spec: JoinSpec, view: ViewSpec, totals: Totals) -> None:
        self._spec = spec
        self._view = view
        self._compared = spec.edge(0, 1).compared
        self._totals = totals

    def add(self, stream: int, tuples: Tuples, part: Part, found: Found, limit: int) -> int:
        """Take in the results of tuples of `stream` that probe a part; how many there are."""
        sides = (
            Side(self._spec, self._view, stream, tuples),
            Side(self._spec, self._view, 1 - stream, part),
        )
        found = found.take(np.flatnonzero(found.end > found.begin))
        sure, others = found.split(part)
        mixed: list[Found] = []
        if self._compared:
            sure, first = self._same_values(sides, part, sure)
            others, second = self._same_values(sides, part, others)
            mixed = [first, second]
        results = self._fold_whole(sides, sure, limit)
        if len(others.pending) == 1 and len(others.rows):
            low, high = int(others.begin.min()), int(others.end.max())
            near = sides[1].of(Selection(part, np.arange(low, high)))
            shifted = others._replace(begin=others.begin - low, end=others.end - low)
            results += self._narrow(sides[0], near, shifted, limit, _DEPTH)
        else:
            results += self._list(sides, part, others, limit)
        return results + sum(self._list(sides, part, some, limit) for some in mixed)

    def _fold_whole(self, sides: Sides, found: Found, limit: int) -> int:
        """Ranges all of whose tuples are partners."""
        pairs = int((found.end - found.begin).sum())
        if pairs:
            for some, by_time in self._by_newest(sides, found):
                self._fold(sides, some, by_time, limit)
        return pairs

    def _list(self, sides: Sides, part: Tuples, found: Found, limit: int) -> int:
        """Ranges whose pairs are looked at one by one."""
        results = 0
        for pairs in found.pairs(part, limit):
            if self._compared:
                equal = self._values_equal(sides[0], pairs[0], sides[1], pairs[1])
                pairs = pairs[0][equal], pairs[1][equal]
            if len(pairs[0]):
                results += len(pairs[0])
                self._fold_pairs(sides, pairs)
        return results

    def _narrow(self, probing: Side, stored: Side, found: Found, limit: int, depth: int) -> int:
        """Ranges with one more key to check, mostly the window in a part that lies across its end.

        Probing tuples with nearly the same bounds go together. The stored tuples inside all of
        their bounds are folded, those outside all of them are left out, and for the few between
        the same is done again with a finer division, until listing the pairs is cheap.
        """
        ((key, bounds),) = found.pending
        selection = stored.tuples
        if not isinstance(selection, Selection):
            raise TypeError("only a selection is narrowed")
        pairs = int((found.end - found.begin).sum())
        if pairs == 0:
            return 0
        # Of p pieces about one in p pairs stays unsettled: this many make both costs equal.
        pieces = isqrt(pairs // _PIECE)
        if depth == 0 or pieces < 2 or len(found.rows) < pieces:
            return self._list((probing, stored), selection, found, limit)
        results = 0
        keys = selection.keys[key]
        order = np.argsort(bounds.first, kind="stable")
        for some in np.array_split(order, pieces):
            mine = found.take(some)
            first, last = mine.pending[0][1]
            possible = np.flatnonzero((keys >= first.min()) & (keys <= last.max()))
            settled = (keys[possible] >= first.max()) & (keys[possible] <= last.min())
            for rows, inside in ((possible[settled], True), (possible[~settled], False)):
                if len(rows) == 0:
                    continue
                part = stored.of(selection.selection(rows))
                ranges = mine._replace(
                    begin=np.searchsorted(rows, mine.begin), end=np.searchsorted(rows, mine.end)
                )
                ranges = ranges.take(np.flatnonzero(ranges.end > ranges.begin))
                if inside:
                    results += self._fold_whole((probing, part), ranges._replace(pending=[]), limit)
                else:
                    results += self._narrow(probing, part, ranges, limit, depth - 1)
        return results

    def _same_values(self, sides: Sides, part: Part, found: Found) -> tuple[Found, Found]:
        """Ranges whose tuples all have the probing tuple's values, and ranges of mixed values.

        The key is a hash. All tuples of a hash nearly always have the same values; then comparing
        with one of them is enough, and a range of other values is no result at all.
        """
        if "pure" not in part.memo:
            _, starts = part.groups
            group = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
            before = np.arange(len(part) - 1)
            differ = ~self._values_equal(sides[1], before, sides[1], before + 1)
            pure = np.ones(len(starts) - 1, dtype=bool)
            pure[group[1:][differ & (group[1:] == group[:-1])]] = False
            part.memo["pure"] = pure[group]
        pure = part.memo["pure"][found.begin]
        equal = self._values_equal(sides[0], found.rows, sides[1], found.begin)
        return found.take(np.flatnonzero(pure & equal)), found.take(np.flatnonzero(~pure))

    def _values_equal(self, one: Side, ones: Int64s, two: Side, twos: Int64s) -> Bools:
        """Where the values that were hashed are equal, row by row."""
        same = np.ones(len(ones), dtype=bool)
        for columns in self._compared:
            left = one.values(columns[one.stream], ones)
            right = two.values(columns[two.stream], twos)
            same &= np.asarray(pc.equal(left, right).fill_null(False))
        return same

    # -- folding --------------------------------------------------------------------------------

    def _by_newest(self, sides: Sides, found: Found) -> Iterator[tuple[Found, tuple[bool, bool]]]:
        """The ranges with the sides whose time decides the slice of their results."""
        if self._view.slice is None:
            yield found, (False, False)
            return
        newest = int(sides[1].slices().max())
        later = sides[0].slices()[found.rows] >= newest
        for rows, by_time in ((later, (True, False)), (~later, (True, True))):
            if rows.any():
                yield found.take(np.flatnonzero(rows)), by_time

    def _fold(
        self,
        sides: Sides,
        found: Found,
        by_time: tuple[bool, bool],
        limit: int,
    ) -> None:
        pairs = int((found.end - found.begin).sum())
        probing, stored = sides[0].groups(by_time[0]), sides[1].groups(by_time[1])
        mine = probing.ids[found.rows]
        present = mine[:1] if stored.total == 1 else np.unique(mine)
        size = len(stored.ids)
        by_probing = len(present) * size
        by_stored = stored.total * len(mine)
        if _ENUMERATION * pairs <= max(size, min(by_probing, by_stored)):
            for rows, partners in expand(found.begin, found.end, limit):
                self._fold_pairs(sides, (found.rows[rows], partners))
            return
        whole = self._operands(sides, pairs)
        if stored.total == 1:
            self._totals.add(sides, fold_by_probing(found, probing, whole, int(stored.members[0])))
        elif len(present) == 1:
            self._totals.add(sides, scattered(found, stored, whole, size))
        elif by_probing <= by_stored:
            order = np.argsort(mine, kind="stable")
            starts = np.searchsorted(mine[order], present)
            for rows in np.split(order, starts[1:]):
                some = found.take(rows)
                self._totals.add(sides, scattered(some, stored, whole, size))
        else:
            order = np.argsort(stored.ids, kind="stable")
            starts = np.searchsorted(stored.ids[order], np.arange(stored.total))
            for members in np.split(order, starts[1:]):
                some = Found(
                    found.rows,
                    np.searchsorted(members, found.begin),
                    np.searchsorted(members, found.end),
                    [],
                )
                some = some.take(np.flatnonzero(some.end > some.begin))
                if len(some.rows):
                    narrowed = [[o.only(members) if o.side else o for o in own] for own in whole]
                    self._totals.add(
                        sides, fold_by_probing(some, probing, narrowed, int(members[0]))
                    )

    def _fold_pairs(self, sides: Sides, pairs: Pairs) -> None:
        by_time = self._view.slice is not None
        groups = sides[0].groups(by_time), sides[1].groups(by_time)
        self._totals.add(sides, listed(pairs, groups, self._operands(sides, len(pairs[0]))))

    def _operands(self, sides: Sides, pairs: int) -> Operands:
        return [operands_of(measure, sides, pairs) for measure in self._view.measures]
