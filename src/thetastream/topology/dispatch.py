"""The dispatcher: from a batch of one stream to the packs that travel to the units of a stage.

A tuple goes once to each unit that has a part in it: where it is stored, and where it visits what
is stored. Units come by lookup and one sort, so that the time depends on the tuples that travel and
hardly on the number of units.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.index.encoding import Int64s
from thetastream.index.part import Tuples
from thetastream.spec import JoinSpec, Stage
from thetastream.topology.groups import Reached, group_of, reached, spread
from thetastream.topology.table import Placement, Table

Units = npt.NDArray[np.int16]

STORE = 1
"""The unit keeps the tuple."""
HOME = 2
"""The unit counts the tuple: exactly one of those it is sent to."""


def visit(stream: int) -> int:
    """The role of a tuple that visits the stored tuples of a stream."""
    return 4 << stream


class Pack(NamedTuple):
    """Tuples of one stream for one unit, to be stored, to visit what is stored, or both."""

    unit: int
    stream: int
    role: int
    batch: pa.RecordBatch


class _Target(NamedTuple):
    """Tuples that go to units, to do the same there."""

    role: int
    units: Units
    rows: Int64s | None
    """Which tuples, one for each of the units; None for all of them in order."""


class _Routes:
    """Where the tuples of a batch go."""

    def __init__(self) -> None:
        self.targets: list[_Target] = []
        self.everywhere: dict[int, int] = {}
        """Units that all tuples visit, and what they visit there."""


class Dispatcher:
    """Routes batches of one stream to the units of one stage."""

    def __init__(self, spec: JoinSpec, table: Table, stage: Stage, stream: int) -> None:
        self._spec = spec
        self._stage = stage
        self._stream = stream
        self._copies = table.copies
        self._placements = table.stages[stage.number]

    def dispatch(self, batch: pa.RecordBatch) -> Iterator[Pack]:
        """The packs of a batch."""
        if batch.num_rows == 0:
            return
        tuples = Tuples.encode(batch, self._spec.streams[self._stream])
        for unit, role, some in self.cut(tuples, batch):
            yield Pack(unit, self._stream, role, some)

    def cut(
        self, tuples: Tuples, batch: pa.RecordBatch
    ) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """The rows of a batch, which has these tuples, for each unit and role."""
        return _cut(self._routes(tuples), batch)

    def visits(self, stored: int, tuples: Tuples) -> Iterator[tuple[int, Int64s | None]]:
        """Which tuples visit which units of a store; None for all of them."""
        routes = _Routes()
        place = self._stage.place(stored)
        if place is not None:
            self._visit(place, tuples, routes)
        for unit in routes.everywhere:
            yield unit, None
        units, rows, _ = _merged(routes.targets, len(tuples))
        known = np.arange(len(tuples), dtype=np.int64) if rows is None else rows
        order = np.argsort(units, kind="stable")
        for unit, start, end in _stretches(units[order]):
            yield unit, known[order[start:end]]

    def _routes(self, tuples: Tuples) -> _Routes:
        routes = _Routes()
        place = self._stage.place(self._stream)
        if place is not None:
            routes.targets += self._storing(place, tuples)
        if not self._copies:
            for other, store in enumerate(self._stage.stores):
                if self._stage.visits(self._stream, store.stream):
                    self._visit(other, tuples, routes)
        return routes

    def _storing(self, place: int, tuples: Tuples) -> Iterator[_Target]:
        placement = self._placements[place]
        lines = placement.line_of[group_of(self._spec, self._stage.stores[place], tuples)]
        if placement.is_single:
            units = placement.members[lines]
        else:
            chosen = spread(tuples).view(np.uint64) % placement.sizes[lines].view(np.uint64)
            units = placement.members[placement.starts[lines] + chosen.view(np.int64)]
        if not self._copies:
            yield _Target(STORE | HOME, units, None)
            return
        # In a matrix a tuple visits where its copies are.
        rows, copies = _members(placement, np.arange(len(tuples), dtype=np.int64), lines)
        yield _Target(HOME, units, None)
        yield _Target(STORE | visit(self._stage.stores[1 - place].stream), copies, rows)

    def _visit(self, place: int, tuples: Tuples, routes: _Routes) -> None:
        placement, store = self._placements[place], self._stage.stores[place]
        role = visit(store.stream)
        found = reached(self._spec, store, self._stream, tuples)
        if found is not None:
            routes.targets += _looked_up(placement, found, role, len(tuples))
            return
        for unit in placement.everywhere:
            routes.everywhere[unit] = routes.everywhere.get(unit, 0) | role


def _looked_up(placement: Placement, found: Reached, role: int, count: int) -> Iterator[_Target]:
    """The units of the groups that tuples reach."""
    lines = placement.line_of[found.groups]
    if placement.is_single and len(found.rows) == count and found.everywhere is None:
        ordered = count < 2 or bool((found.rows[1:] > found.rows[:-1]).all())
        yield _Target(role, placement.members[lines], None if ordered else found.rows)
    elif placement.is_single:
        yield _Target(role, placement.members[lines], found.rows)
    else:
        rows, units = _members(placement, found.rows, lines)
        yield _Target(role, units, rows)
    if found.everywhere is not None:
        wide = np.flatnonzero(found.everywhere)
        units = np.array(placement.everywhere, dtype=np.int16)
        yield _Target(role, np.repeat(units, len(wide)), np.tile(wide, len(units)))


def _members(placement: Placement, rows: Int64s, lines: Int64s) -> tuple[Int64s, Units]:
    """Each row with every unit of its line."""
    sizes = placement.sizes[lines]
    ends = np.cumsum(sizes)
    within = np.arange(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
    within -= np.repeat(ends - sizes, sizes)
    return np.repeat(rows, sizes), placement.members[
        np.repeat(placement.starts[lines], sizes) + within
    ]


def _cut(routes: _Routes, batch: pa.RecordBatch) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """The rows of a batch for each unit and role, in their order."""
    count, everywhere = batch.num_rows, routes.everywhere
    units, rows, roles = _merged(routes.targets, count)
    if rows is None and isinstance(roles, int):
        order = np.argsort(units, kind="stable")
        pieces = [(unit, roles, start, end) for unit, start, end in _stretches(units[order])]
    else:
        known = np.arange(count, dtype=np.int64) if rows is None else rows
        # Few of the codes occur: their ranks are small integers again, which sort by radix.
        codes = units.astype(np.int32) << 8 | roles
        kinds, ranks = np.unique(codes, return_inverse=True)
        small = ranks.astype(np.uint16) if len(kinds) <= 1 << 16 else ranks
        by = np.argsort(small, kind="stable")
        order = known[by]
        pieces = [
            (int(kinds[rank]) >> 8, int(kinds[rank]) & 0xFF, start, end)
            for rank, start, end in _stretches(small[by])
        ]
    taken = batch.take(pa.array(order)) if len(pieces) > 1 and len(order) <= 2 * count else None
    seen: dict[int, list[Int64s]] = {}
    for unit, role, start, end in pieces:
        chosen = order[start:end]
        if unit in everywhere:
            role |= everywhere[unit]
            seen.setdefault(unit, []).append(chosen)
        if len(chosen) == count and bool((chosen[1:] > chosen[:-1]).all()):
            yield unit, role, batch
        elif taken is not None:
            yield unit, role, taken.slice(start, end - start)
        else:
            yield unit, role, batch.take(pa.array(chosen))
    for unit, role in everywhere.items():
        rest = np.ones(count, dtype=bool)
        for chosen in seen.get(unit, []):
            rest[chosen] = False
        others = np.flatnonzero(rest)
        if len(others):
            yield unit, role, batch if len(others) == count else batch.take(pa.array(others))


def _merged(
    targets: list[_Target], count: int
) -> tuple[Units, Int64s | None, int | npt.NDArray[np.int32]]:
    """All targets as units, rows and roles; what goes to the same unit goes there once."""
    if not targets:
        return np.empty(0, np.int16), np.empty(0, np.int64), np.empty(0, np.int32)
    first, *others = targets
    if first.rows is None and all(
        other.rows is None and np.array_equal(first.units, other.units) for other in others
    ):
        role = 0
        for target in targets:
            role |= target.role
        return first.units, None, role
    whole = np.arange(count, dtype=np.int64)
    places = np.concatenate(
        [t.units.astype(np.int64) * count + (whole if t.rows is None else t.rows) for t in targets]
    )
    roles = np.concatenate([np.full(len(t.units), t.role, dtype=np.int32) for t in targets])
    order = np.argsort(places, kind="stable")
    places, roles = places[order], roles[order]
    starts = np.flatnonzero(np.r_[True, places[1:] != places[:-1]])
    units, rows = np.divmod(places[starts], count)
    return units.astype(np.int16), rows, np.bitwise_or.reduceat(roles, starts)


def _stretches(ranked: npt.NDArray[Any]) -> Iterator[tuple[int, int, int]]:
    """The values of a sorted array, each with where it begins and ends."""
    if len(ranked) == 0:
        return
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    for start, end in zip(starts, [*starts[1:], len(ranked)], strict=True):
        yield int(ranked[start]), int(start), int(end)
