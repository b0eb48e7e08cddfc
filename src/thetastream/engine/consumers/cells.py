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
        length, time = self._view.slice, self._time
        assert length is not None
        assert time is not None
        return operands.remembered(self.tuples, "slices", lambda: self.tuples.keys[time] // length)

    def groups(self, by_time: bool) -> Groups:
        """The groups of the tuples by this stream's share of the grouping."""
        if isinstance(self.tuples, Selection):
            whole = self.of(self.tuples.origin).groups(by_time)
            ids = whole.ids[self.tuples.rows]
            return Groups(ids, np.zeros(whole.total, dtype=np.int64))

        def make() -> Groups:
            columns = [
                self.tuples.batch.column(carried_column(value.column))
                for value in self._view.groups
                if value.stream == self.stream
            ]
            numbers = [self.slices()] if by_time else []
            return operands.grouped(columns, len(self.tuples), numbers)

        return operands.remembered(self.tuples, ("groups", by_time), make)


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


def _by_cell(
    groups: Int64s, whole: Operands, values: Callable[[Operand], Array]
) -> tuple[Int64s, list[list[Array]]]:
    """A member of each group, and what came of each operand there; `values` are the members'."""
    _, members, cells = np.unique(groups, return_index=True, return_inverse=True)
    count = len(members)
    folds = [[by_group(one.op, values(one), cells, count) for one in own] for own in whole]
    return members, folds


def listed(pairs: Pairs, groups: tuple[Groups, Groups], whole: Operands) -> Cells:
    """Folds over pairs, by the groups of both."""
    probing, stored = groups
    crossed = probing.ids[pairs[0]] * stored.total + stored.ids[pairs[1]]

    def values(operand: Operand) -> Array:
        if operand.side is None:
            return np.ones(len(crossed), dtype=np.int64)
        return operand.values[pairs[operand.side]]

    members, folds = _by_cell(crossed, whole, values)
    return Cells(pairs[0][members], pairs[1][members], folds)


def fold_by_probing(found: Found, probing: Groups, whole: Operands, stored: int) -> Cells:
    """Folds over each range, then by the probing tuples' groups; all partners are of one group."""
    counts = found.end - found.begin

    def values(operand: Operand) -> Array:
        if operand.side is None:
            return counts
        if operand.side == 1:
            return gather(operand.op, operand.values, found.begin, found.end)
        mine = operand.values[found.rows]
        return mine * counts if operand.op is Op.ADD else mine

    members, folds = _by_cell(probing.ids[found.rows], whole, values)
    return Cells(found.rows[members], np.full(len(members), stored, dtype=np.int64), folds)


def scattered(found: Found, stored: Groups, whole: Operands, size: int) -> Cells:
    """Folds over the ranges that hold each stored tuple, then by the stored tuples' groups."""
    ones = np.ones(len(found.rows), dtype=np.int64)
    counts = scatter(Op.ADD, ones, found.begin, found.end, size)
    hit = np.flatnonzero(counts)

    def values(operand: Operand) -> Array:
        if operand.side is None:
            return counts[hit]
        if operand.side == 0:
            theirs = operand.values[found.rows]
            return scatter(operand.op, theirs, found.begin, found.end, size)[hit]
        mine = operand.values[hit]
        return mine * counts[hit] if operand.op is Op.ADD else mine

    members, folds = _by_cell(stored.ids[hit], whole, values)
    return Cells(np.full(len(members), found.rows[0], dtype=np.int64), hit[members], folds)
