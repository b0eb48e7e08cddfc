"""Folds for combinations of groups: from ranges or pairs to counts, sums and extremes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from thetastream.index import operands
from thetastream.index.encoding import Int64s
from thetastream.index.fold import Array, Op, by_group, gather, scatter
from thetastream.index.operands import Groups, Ranks, Selection
from thetastream.index.part import Tuples
from thetastream.index.probe import Found, Pairs
from thetastream.spec import Fold, JoinSpec, Measure, ViewSpec, carried_column


class Side:
    """One side of a probe, as the view sees it."""

    def __init__(self, spec: JoinSpec, view: ViewSpec, stream: int, tuples: Tuples) -> None:
        self.stream = stream
        self.tuples = tuples
        self._spec = spec
        self._view = view
        self._time = spec.streams[stream].time

    def of(self, tuples: Tuples) -> Side:
        """The same side with other tuples."""
        return Side(self._spec, self._view, self.stream, tuples)

    def values(self, number: int, rows: Int64s) -> pa.Array:
        """A column's values of some tuples."""
        if isinstance(self.tuples, Selection):
            rows = self.tuples.rows[rows]
        return self.tuples.batch.column(carried_column(number)).take(pa.array(rows))

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
                self.tuples.batch.column(carried_column(value.column))
                for value in self._view.groups
                if value.stream == self.stream
            ]
            numbers = [self.slices()] if by_time else []
            self.tuples.memo[key] = operands.grouped(columns, len(self.tuples), numbers)
        found: Groups = self.tuples.memo[key]
        return found


Sides = tuple[Side, Side]
"""The probing and the stored side."""


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


def operands_of(measure: Measure, sides: Sides, pairs: int) -> list[Operand]:
    """The arrays to fold for a measure."""
    if measure.value is None:
        return [Operand(Op.ADD, None, np.empty(0, dtype=np.int64))]
    where = 0 if sides[0].stream == measure.value.stream else 1
    side = sides[where]
    place = side.tuples.batch.schema.get_field_index(carried_column(measure.value.column))
    if measure.fold in (Fold.MIN, Fold.MAX):
        ranks = ranks_of(measure, side)
        return [Operand(Op(measure.fold.value), where, ranks.ranks)]
    valid = Operand(Op.ADD, where, operands.valid(side.tuples, place).astype(np.int64))
    if measure.fold is Fold.COUNT:
        return [valid]
    if operands.is_exact(side.tuples.batch.column(place).type):
        limbs = operands.exact(side.tuples, place, pairs).limbs
        return [*(Operand(Op.ADD, where, limb) for limb in limbs), valid]
    return [Operand(Op.ADD, where, operands.floats(side.tuples, place)), valid]


def ranks_of(measure: Measure, side: Side) -> Ranks:
    """The ranks of the values whose extreme a measure is."""
    assert measure.value is not None
    place = side.tuples.batch.schema.get_field_index(carried_column(measure.value.column))
    return operands.ranked(side.tuples, place, Op(measure.fold.value))


def _each(fold: Callable[[Operand], Array], whole: Operands) -> list[list[Array]]:
    return [[fold(operand) for operand in own] for own in whole]


def listed(pairs: Pairs, groups: tuple[Groups, Groups], whole: Operands) -> Cells:
    """Folds over pairs, by the groups of both."""
    probing, stored = groups
    crossed = probing.ids[pairs[0]] * stored.total + stored.ids[pairs[1]]
    _, members, cells = np.unique(crossed, return_index=True, return_inverse=True)

    def folded(operand: Operand) -> Array:
        values = (
            np.ones(len(cells), dtype=np.int64)
            if operand.side is None
            else operand.values[pairs[operand.side]]
        )
        return by_group(operand.op, values, cells, len(members))

    return Cells(pairs[0][members], pairs[1][members], _each(folded, whole))


def fold_by_probing(found: Found, probing: Groups, whole: Operands, stored: int) -> Cells:
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


def scattered(found: Found, stored: Groups, whole: Operands, size: int) -> Cells:
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
