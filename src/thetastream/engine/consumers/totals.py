"""The state of a view's aggregates, from cells to the rows that leave the unit."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from thetastream import arrow
from thetastream.engine.consumers.cells import Cells, Sides, ranks_of
from thetastream.errors import SumOverflowError
from thetastream.index import operands
from thetastream.index.encoding import Int64s
from thetastream.index.fold import Array, Op, by_group
from thetastream.index.operands import Groups
from thetastream.index.part import Tuples
from thetastream.spec import (
    NEWEST,
    Fold,
    JoinSpec,
    Measure,
    ViewSpec,
    group_column,
    measure_column,
)

_SUM_DIGITS = 38
_VIEW_ROWS = 1 << 20
_VIEW_BYTES = arrow.SAFE_BYTES // 2
"""Rows of a view, and Arrow bytes of their values, that are put together, or sent if that does not
make them fewer."""


class Partial(NamedTuple):
    """Part of a view: group values, slices, and the state of each measure."""

    groups: list[pa.Array]
    slices: Int64s
    states: list[tuple[Array | pa.Array, ...]]

    @property
    def nbytes(self) -> int:
        """Arrow bytes of the values."""
        arrays = [*self.groups, *(array for state in self.states for array in state)]
        return sum(int(array.nbytes) for array in arrays)


class Totals:
    """Counts, sums and extremes by group, put together as late as memory allows."""

    def __init__(self, spec: JoinSpec, view: ViewSpec) -> None:
        self._spec = spec
        self._view = view
        self._partials: list[Partial] = []
        self._rows = self._bytes = 0

    def __bool__(self) -> bool:
        """Whether there was any result."""
        return bool(self._partials)

    def add(self, sides: Sides, cells: Cells) -> None:
        """Take in cells."""
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
                ranks = ranks_of(measure, side)
                states.append((ranks.values(made[0]),))
        self._take(Partial(groups, slices, states))

    def take_back(self, rows: pa.RecordBatch) -> None:
        """Go on from what `rows` gave."""
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
        self._take(Partial(groups, slices, states))

    def spilled(self) -> pa.RecordBatch | None:
        """Rows that leave early, because there are as many groups as results; mostly None."""
        if self._rows < _VIEW_ROWS and self._bytes < _VIEW_BYTES:
            return None
        whole = self._combined(self._partials)
        self._forget()
        self._take(whole)
        large = 2 * self._rows > _VIEW_ROWS or 2 * self._bytes > _VIEW_BYTES
        return self.rows() if large else None

    def _take(self, partial: Partial) -> None:
        self._partials.append(partial)
        self._rows += len(partial.slices)
        self._bytes += partial.nbytes

    def _forget(self) -> None:
        self._partials, self._rows, self._bytes = [], 0, 0

    def rows(self) -> pa.RecordBatch | None:
        """The view, one row per group, which is then empty; None if there was no result."""
        if not self._partials:
            return None
        whole = self._combined(self._partials)
        self._forget()
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
                states.append(tuple(_added(state, groups) for state in zip(*parts, strict=True)))
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


def _added(columns: Sequence[Array], groups: Groups) -> Array:
    """Sums of partial sums, in Python's integers where 64 bits might not do."""
    whole = np.concatenate(columns)
    if whole.dtype == np.int64 and np.abs(whole.astype(np.float64)).sum() >= operands.SAFE:
        whole = whole.astype(object)
    return by_group(Op.ADD, whole, groups.ids, groups.total)


def _extreme(fold: Fold, columns: list[pa.Array], groups: Groups) -> pa.Array:
    batch = pa.RecordBatch.from_arrays([pa.concat_arrays(columns)], ["c_0"])
    op = Op(fold.value)
    ranks = operands.ranked(Tuples(batch, ()), 0, op)
    return ranks.values(by_group(op, ranks.ranks, groups.ids, groups.total))
