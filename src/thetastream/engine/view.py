"""A unit's local view: aggregates over its results, made without listing the pairs.

The first phase of BiStream's two-phase aggregation. Where all stored tuples of a range match,
counts, sums and extremes come from folds over the range: of the stored values for each probing
tuple when the groups are the probing stream's, the other way round when they are the stored
stream's. Pairs that must be looked at one by one are listed in chunks and folded at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, localcontext
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.errors import SumOverflowError
from thetastream.index import operands
from thetastream.index.encoding import Bools, Int64s
from thetastream.index.fold import Array, Op, by_group, gather, scatter
from thetastream.index.operands import Groups, Ranks, Selection
from thetastream.index.part import Part, Tuples
from thetastream.index.probe import Found, Pairs, expand
from thetastream.spec import NEWEST, Fold, JoinSpec, Measure, group_column, measure_column

_ENUMERATION = 4
"""Listing a pair costs about as much as this many steps of a fold."""
_SUM_DIGITS = 38
_DIVISION = 32
"""Into how many groups of similar bounds probing tuples are divided at a time."""
_LISTED = 1 << 19
"""Pairs that are listed in the time that one more division takes."""
_DEPTH = 4
_VIEW_ROWS = 1 << 20
"""Rows of a view that are put together, or sent if that does not make them fewer."""


class Operand(NamedTuple):
    """What is folded: an array over the tuples of one side, or the pairs themselves."""

    op: Op
    side: int | None
    """0 for the probing side, 1 for the stored side, None for the number of pairs."""
    values: Array

    def only(self, rows: Int64s) -> Operand:
        """The operand over some of its tuples."""
        return self if self.side is None else self._replace(values=self.values[rows])


class Cells(NamedTuple):
    """Folds for some combinations of groups."""

    probing: Int64s
    """A probing tuple of each cell's group."""
    stored: Int64s
    """A stored tuple of each cell's group."""
    folds: list[list[Array]]
    """What came of each operand of each measure."""


Operands = Sequence[Sequence["Operand"]]
"""The operands of each measure."""


class Partial(NamedTuple):
    """Part of a view: group values, slices, and the state of each measure."""

    groups: list[pa.Array]
    slices: Int64s
    states: list[tuple[Array | pa.Array, ...]]


class View:
    """The view of one unit over one batch."""

    def __init__(self, spec: JoinSpec) -> None:
        assert spec.view is not None
        self._spec = spec
        self._view = spec.view
        self._partials: list[Partial] = []

    def add(self, stream: int, tuples: Tuples, part: Part, found: Found, limit: int) -> int:
        """Take in the results of tuples of `stream` that probe a part; how many there are."""
        sides = (_Side(self, stream, tuples), _Side(self, 1 - stream, part))
        found = found.take(np.flatnonzero(found.end > found.begin))
        sure, others = found.split(part)
        mixed: list[Found] = []
        if self._spec.verified:
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

    def _fold_whole(self, sides: tuple[_Side, _Side], found: Found, limit: int) -> int:
        """Ranges all of whose tuples are partners."""
        pairs = int((found.end - found.begin).sum())
        if pairs:
            for some, by_time in self._by_newest(sides, found):
                self._fold(sides, some, by_time, limit)
        return pairs

    def _list(self, sides: tuple[_Side, _Side], part: Tuples, found: Found, limit: int) -> int:
        """Ranges whose pairs are looked at one by one."""
        results = 0
        for pairs in found.pairs(part, limit):
            if self._spec.verified:
                equal = self._values_equal(sides[0], pairs[0], sides[1], pairs[1])
                pairs = pairs[0][equal], pairs[1][equal]
            if len(pairs[0]):
                results += len(pairs[0])
                self._fold_pairs(sides, pairs)
        return results

    def _narrow(self, probing: _Side, stored: _Side, found: Found, limit: int, depth: int) -> int:
        """Ranges with one more key to check, mostly the window in a part that lies across its end.

        Probing tuples with nearly the same bounds go together. The stored tuples inside all of
        their bounds are folded, those outside all of them are left out, and for the few between
        the same is done again with a finer division, until listing the pairs is cheap.
        """
        ((key, bounds),) = found.pending
        selection = stored.tuples
        assert isinstance(selection, Selection)
        pairs = int((found.end - found.begin).sum())
        if pairs == 0:
            return 0
        if depth == 0 or pairs <= _LISTED or len(found.rows) < _DIVISION:
            return self._list((probing, stored), selection, found, limit)
        results = 0
        keys = selection.keys[key]
        order = np.argsort(bounds.first, kind="stable")
        for some in np.array_split(order, _DIVISION):
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

    def _same_values(
        self, sides: tuple[_Side, _Side], part: Part, found: Found
    ) -> tuple[Found, Found]:
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

    def _values_equal(self, one: _Side, ones: Int64s, two: _Side, twos: Int64s) -> Bools:
        """Where the values that were hashed are equal, row by row."""
        same = np.ones(len(ones), dtype=bool)
        for columns in self._spec.verified:
            left = one.values(columns[one.stream], ones)
            right = two.values(columns[two.stream], twos)
            same &= np.asarray(pc.equal(left, right).fill_null(False))
        return same

    def __bool__(self) -> bool:
        """Whether there was any result."""
        return bool(self._partials)

    def take_back(self, rows: pa.RecordBatch) -> None:
        """Go on from a view that `rows` gave."""
        states: list[tuple[Array | pa.Array, ...]] = []
        for number, measure in enumerate(self._view.measures):
            column = rows.column(measure_column(number))
            if measure.fold is Fold.COUNT:
                states.append((np.asarray(column),))
            elif measure.fold is not Fold.SUM:
                states.append((column,))
            elif pa.types.is_floating(column.type):
                sums = np.asarray(column.fill_null(0.0), dtype=np.float64)
                states.append((sums, np.asarray(column.is_valid()).astype(np.int64)))
            else:
                scale = column.type.scale
                with localcontext(prec=_SUM_DIGITS + 2):
                    whole = [0 if v is None else int(v.scaleb(scale)) for v in column.to_pylist()]
                sums = np.array(whole, dtype=object)
                states.append((sums, np.asarray(column.is_valid()).astype(np.int64)))
        groups = [rows.column(group_column(number)) for number in range(len(self._view.groups))]
        slices = np.zeros(rows.num_rows, dtype=np.int64)
        self._partials.append(Partial(groups, slices, states))

    def spilled(self) -> pa.RecordBatch | None:
        """Rows that leave early, because there are as many groups as results; mostly None."""
        if sum(len(partial.slices) for partial in self._partials) < _VIEW_ROWS:
            return None
        self._partials = [self._combined(self._partials)]
        return self.rows() if len(self._partials[0].slices) > _VIEW_ROWS // 2 else None

    def rows(self) -> pa.RecordBatch | None:
        """The view, one row a group, which is then empty; None if there was no result."""
        if not self._partials:
            return None
        whole = self._combined(self._partials)
        self._partials = []
        columns = {group_column(n): column for n, column in enumerate(whole.groups)}
        if self._view.slice is not None:
            ends = (whole.slices + 1) * self._view.slice - 1
            columns[NEWEST] = pa.array(ends).cast(pa.timestamp("us", tz="UTC"))
        for number, (measure, state) in enumerate(
            zip(self._view.measures, whole.states, strict=True)
        ):
            columns[measure_column(number)] = self._finished(measure, state)
        if not columns:
            # A view of nothing but the fact that there are results.
            return pa.RecordBatch.from_pydict({"_": pa.array([None])}).select([])
        return pa.RecordBatch.from_pydict(columns)

    # -- folding --------------------------------------------------------------------------------

    def _by_newest(
        self, sides: tuple[_Side, _Side], found: Found
    ) -> Iterator[tuple[Found, tuple[bool, bool]]]:
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
        sides: tuple[_Side, _Side],
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
            self._keep(sides, _gathered(found, probing, whole, int(stored.members[0])))
        elif len(present) == 1:
            self._keep(sides, _scattered(found, stored, whole, size))
        elif by_probing <= by_stored:
            order = np.argsort(mine, kind="stable")
            starts = np.searchsorted(mine[order], present)
            for rows in np.split(order, starts[1:]):
                some = found.take(rows)
                self._keep(sides, _scattered(some, stored, whole, size))
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
                    self._keep(sides, _gathered(some, probing, narrowed, int(members[0])))

    def _fold_pairs(self, sides: tuple[_Side, _Side], pairs: Pairs) -> None:
        by_time = self._view.slice is not None
        probing, stored = sides[0].groups(by_time), sides[1].groups(by_time)
        crossed = probing.ids[pairs[0]] * stored.total + stored.ids[pairs[1]]
        _, members, cells = np.unique(crossed, return_index=True, return_inverse=True)

        def folded(operand: Operand) -> Array:
            values = (
                np.ones(len(cells), dtype=np.int64)
                if operand.side is None
                else operand.values[pairs[operand.side]]
            )
            return by_group(operand.op, values, cells, len(members))

        folds = _each(folded, self._operands(sides, len(pairs[0])))
        self._keep(sides, Cells(pairs[0][members], pairs[1][members], folds))

    def _operands(self, sides: tuple[_Side, _Side], pairs: int) -> Operands:
        return [_operands_of(measure, sides, pairs) for measure in self._view.measures]

    # -- from folds to the view -----------------------------------------------------------------

    def _keep(self, sides: tuple[_Side, _Side], cells: Cells) -> None:
        """Cells as part of the view."""
        picked = {sides[0].stream: cells.probing, sides[1].stream: cells.stored}
        owner = {side.stream: side for side in sides}
        groups = [
            owner[value.stream].values(value.column, picked[value.stream])
            for value in self._view.groups
        ]
        slices = np.zeros(len(cells.probing), dtype=np.int64)
        if self._view.slice is not None:
            slices = np.maximum(sides[0].slices()[cells.probing], sides[1].slices()[cells.stored])
        states: list[tuple[Array | pa.Array, ...]] = []
        for measure, made in zip(self._view.measures, cells.folds, strict=True):
            side = None if measure.value is None else owner[measure.value.stream]
            if measure.fold is Fold.COUNT or side is None or measure.value is None:
                states.append((made[0],))
            elif measure.fold is Fold.SUM:
                states.append((operands.assembled(made[:-1]), made[-1]))
            else:
                ranks = _ranks(measure, side)
                states.append((ranks.values(made[0]),))
        self._partials.append(Partial(groups, slices, states))

    def _combined(self, partials: Sequence[Partial]) -> Partial:
        slices = np.concatenate([partial.slices for partial in partials])
        columns = [
            pa.concat_arrays([partial.groups[n] for partial in partials])
            for n in range(len(self._view.groups))
        ]
        groups = operands.grouped(columns, len(slices), [slices])
        states: list[tuple[Array | pa.Array, ...]] = []
        for number, measure in enumerate(self._view.measures):
            parts = [partial.states[number] for partial in partials]
            if measure.fold in (Fold.COUNT, Fold.SUM):
                states.append(
                    tuple(_added(list(columns), groups) for columns in zip(*parts, strict=True))
                )
            else:
                states.append((_extreme(measure.fold, [part[0] for part in parts], groups),))
        members = pa.array(groups.members)
        return Partial([column.take(members) for column in columns], slices[groups.members], states)

    def _finished(self, measure: Measure, state: tuple[Array | pa.Array, ...]) -> pa.Array:
        if measure.fold is Fold.COUNT:
            return pa.array(state[0])
        if measure.fold is not Fold.SUM:
            return state[0]
        sums, count = state
        none = count == 0
        if sums.dtype == np.float64:
            return pa.array(sums, mask=none)
        assert measure.value is not None
        column = self._spec.streams[measure.value.stream].columns[measure.value.column]
        scale = int(column.type.rstrip(")").split(",")[1]) if column.type[:7] == "decimal" else 0
        with localcontext(prec=_SUM_DIGITS + 2):
            values = [
                None if empty else Decimal(int(total)).scaleb(-scale)
                for total, empty in zip(sums, none, strict=True)
            ]
        try:
            return pa.array(values, pa.decimal128(_SUM_DIGITS, scale))
        except pa.ArrowInvalid as error:
            raise SumOverflowError(
                f"a sum over {column.name!r} has more than {_SUM_DIGITS} digits",
                hint="cast the values to double, or sum them in smaller groups",
            ) from error


class _Side:
    """One side of a probe, as the view sees it."""

    def __init__(self, view: View, stream: int, tuples: Tuples) -> None:
        self._owner = view
        self.stream = stream
        self.tuples = tuples
        self._view = view._view
        self._time = view._spec.streams[stream].time

    def of(self, tuples: Tuples) -> _Side:
        """The same side with other tuples."""
        return _Side(self._owner, self.stream, tuples)

    def values(self, number: int, rows: Int64s) -> pa.Array:
        """A column's values of some tuples."""
        if isinstance(self.tuples, Selection):
            rows = self.tuples.rows[rows]
        return self.tuples.batch.column(f"c_{number}").take(pa.array(rows))

    def slices(self) -> Int64s:
        """The slice of each tuple's time."""
        assert self._view.slice is not None
        assert self._time is not None
        if "slices" not in self.tuples.memo:
            self.tuples.memo["slices"] = self.tuples.keys[self._time] // self._view.slice
        found: Int64s = self.tuples.memo["slices"]
        return found

    def groups(self, by_time: bool) -> Groups:
        """The groups of the tuples by this stream's share of the grouping."""
        if isinstance(self.tuples, Selection):
            whole = self.of(self.tuples.origin).groups(by_time)
            ids = whole.ids[self.tuples.rows]
            return Groups(ids, np.zeros(whole.total, dtype=np.int64))
        key = ("groups", by_time)
        if key not in self.tuples.memo:
            columns = [
                self.tuples.batch.column(f"c_{value.column}")
                for value in self._view.groups
                if value.stream == self.stream
            ]
            numbers = [self.slices()] if by_time else []
            self.tuples.memo[key] = operands.grouped(columns, len(self.tuples), numbers)
        found: Groups = self.tuples.memo[key]
        return found


def _operands_of(measure: Measure, sides: tuple[_Side, _Side], pairs: int) -> list[Operand]:
    """The arrays to fold for a measure."""
    if measure.value is None:
        return [Operand(Op.ADD, None, np.empty(0, dtype=np.int64))]
    where = 0 if sides[0].stream == measure.value.stream else 1
    side = sides[where]
    place = side.tuples.batch.schema.get_field_index(f"c_{measure.value.column}")
    if measure.fold in (Fold.MIN, Fold.MAX):
        ranks = _ranks(measure, side)
        return [Operand(Op(measure.fold.value), where, ranks.ranks)]
    valid = Operand(Op.ADD, where, operands.valid(side.tuples, place).astype(np.int64))
    if measure.fold is Fold.COUNT:
        return [valid]
    if operands.is_exact(side.tuples.batch.column(place).type):
        limbs = operands.exact(side.tuples, place, pairs).limbs
        return [*(Operand(Op.ADD, where, limb) for limb in limbs), valid]
    return [Operand(Op.ADD, where, operands.floats(side.tuples, place)), valid]


def _ranks(measure: Measure, side: _Side) -> Ranks:
    assert measure.value is not None
    place = side.tuples.batch.schema.get_field_index(f"c_{measure.value.column}")
    return operands.ranked(side.tuples, place, Op(measure.fold.value))


def _each(fold: Callable[[Operand], Array], whole: Operands) -> list[list[Array]]:
    return [[fold(operand) for operand in own] for own in whole]


def _gathered(found: Found, probing: Groups, whole: Operands, stored: int) -> Cells:
    """Folds over each range, then by the probing tuples' groups; all partners are of one group."""
    counts = found.end - found.begin
    groups, members, cells = np.unique(
        probing.ids[found.rows], return_index=True, return_inverse=True
    )

    def folded(operand: Operand) -> Array:
        if operand.side is None:
            values = counts
        elif operand.side == 1:
            values = gather(operand.op, operand.values, found.begin, found.end)
        else:
            values = operand.values[found.rows]
            if operand.op is Op.ADD:
                values = values * counts
        return by_group(operand.op, values, cells, len(groups))

    partners = np.full(len(groups), stored, dtype=np.int64)
    return Cells(found.rows[members], partners, _each(folded, whole))


def _scattered(found: Found, stored: Groups, whole: Operands, size: int) -> Cells:
    """Folds over the ranges that hold each stored tuple, then by the stored tuples' groups."""
    ones = np.ones(len(found.rows), dtype=np.int64)
    counts = scatter(Op.ADD, ones, found.begin, found.end, size)
    hit = np.flatnonzero(counts)
    groups, members, cells = np.unique(stored.ids[hit], return_index=True, return_inverse=True)

    def folded(operand: Operand) -> Array:
        if operand.side is None:
            values = counts[hit]
        elif operand.side == 0:
            mine = operand.values[found.rows]
            values = scatter(operand.op, mine, found.begin, found.end, size)[hit]
        else:
            values = operand.values[hit]
            if operand.op is Op.ADD:
                values = values * counts[hit]
        return by_group(operand.op, values, cells, len(groups))

    probing = np.full(len(groups), found.rows[0], dtype=np.int64)
    return Cells(probing, hit[members], _each(folded, whole))


def _added(columns: list[Array], groups: Groups) -> Array:
    """Sums of partial sums, in Python's integers where 64 bits might not do."""
    whole = np.concatenate(columns)
    if whole.dtype == np.int64 and np.abs(whole.astype(np.float64)).sum() >= operands.SAFE:
        whole = whole.astype(object)
    if whole.dtype != object:
        return by_group(Op.ADD, whole, groups.ids, groups.total)
    found = np.zeros(groups.total, dtype=object)
    np.add.at(found, groups.ids, whole)
    return found


def _extreme(fold: Fold, columns: list[pa.Array], groups: Groups) -> pa.Array:
    batch = pa.RecordBatch.from_arrays([pa.concat_arrays(columns)], ["c_0"])
    op = Op(fold.value)
    ranks = operands.ranked(Tuples(batch, ()), 0, op)
    return ranks.values(by_group(op, ranks.ranks, groups.ids, groups.total))
