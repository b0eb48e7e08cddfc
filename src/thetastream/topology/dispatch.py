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

from thetastream.index.encoding import Bools, Int64s
from thetastream.index.part import Tuples
from thetastream.spec import JoinSpec, Stage
from thetastream.topology.groups import group_of, reached, spread
from thetastream.topology.hot import KeyRoutes
from thetastream.topology.hotvalues import with_values
from thetastream.topology.lines import Lines
from thetastream.topology.table import Copies, Table

Units = npt.NDArray[np.int16]
Roles = np.uint8 | npt.NDArray[np.uint8]
"""One for all tuples, or one for each."""

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


class _Routes:
    """Where the tuples of a batch go: columns of a unit for each tuple, or none (-1).

    A tuple has each unit in at most one of the columns, whose roles say all that it does there.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.columns: list[tuple[Units, Roles]] = []
        self.everywhere: dict[int, int] = {}
        """Units that all tuples visit, and what they visit there."""
        self.wide: Bools | None = None
        """Tuples that reach so many groups that they had better visit all units."""

    def add(self, units: Units, role: int, *, apart: int = 0) -> None:
        """Tuples go to units; the last `apart` columns are known to have others."""
        for place in range(len(self.columns) - apart):
            known, roles = self.columns[place]
            same = known == units
            if same.all():
                self.columns[place] = known, roles | np.uint8(role)
                return
            same &= units >= 0
            if same.any():
                self.columns[place] = known, roles | np.where(same, np.uint8(role), np.uint8(0))
                units = np.where(same, np.int16(-1), units)
        if len(units) and units.max() >= 0:
            self.columns.append((units, np.uint8(role)))

    def divert(self, rows: Int64s, units: Units, role: int) -> None:
        """Some tuples go to these units, and no longer to any others."""
        others = [(known.copy(), roles) for known, roles in self.columns]
        alike = len(others) == 1 and np.ndim(others[0][1]) == 0 and others[0][1] == role
        for known, _ in others:
            known[rows] = units if alike else -1
        if not alike:
            mine = np.full(self.count, -1, np.int16)
            mine[rows] = units
            others.append((mine, np.uint8(role)))
        self.columns = others

    def entries(self) -> tuple[Units, Int64s, npt.NDArray[np.uint8]]:
        """The columns below each other: a unit, a tuple and its role."""
        units, rows, roles = [], [], []
        for column, role in self.columns:
            mine = np.flatnonzero(column >= 0)
            units.append(column[mine])
            rows.append(mine)
            roles.append(np.broadcast_to(role, (self.count,))[mine])
        if not units:
            return np.empty(0, np.int16), np.empty(0, np.int64), np.empty(0, np.uint8)
        return np.concatenate(units), np.concatenate(rows), np.concatenate(roles)

    def pieces(self) -> tuple[list[tuple[int, int, int, int]], Int64s]:
        """Units and roles with their stretches of an order of the tuples, and that order."""
        if len(self.columns) == 1:
            units, role = self.columns[0]
            if isinstance(role, np.uint8) and units.min() >= 0:
                order = np.argsort(units, kind="stable")
                return [(u, int(role), a, b) for u, a, b in _stretches(units[order])], order
        units, rows, roles = self.entries()
        kinds = np.flatnonzero(np.bincount(roles, minlength=1))
        places = np.zeros(256, dtype=np.int64)
        places[kinds] = np.arange(len(kinds))
        # Units and roles in small integers, which sort by radix.
        codes = units.astype(np.int64) * len(kinds) + places[roles]
        if len(codes) == 0 or int(codes.max()) < 1 << 16:
            codes = codes.astype(np.uint16)
        by = np.argsort(codes, kind="stable")
        found = [
            (code // len(kinds), int(kinds[code % len(kinds)]), start, end)
            for code, start, end in _stretches(codes[by])
        ]
        return found, rows[by]


class Dispatcher:
    """Routes batches of one stream to the units of one stage."""

    def __init__(self, spec: JoinSpec, table: Table, stage: Stage, stream: int) -> None:
        self._spec = spec
        self._stage = with_values(stage, table)
        self._stream = stream
        self._copies = table.copies
        self._placements = table.stages[stage.number]
        self._hot = KeyRoutes.of(table, spec, stream)

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
        routes = self._routes(tuples, widely=False)
        if self._hot is not None:
            # Of hash tables only: there no tuple visits everywhere.
            self._divert(self._hot, tuples, routes)
        if routes.wide is None:
            yield from _cut(routes, batch)
            return
        for widely, where in ((False, ~routes.wide), (True, routes.wide)):
            rows = np.flatnonzero(where)
            if len(rows):
                some = tuples.take(rows)
                yield from _cut(self._routes(some, widely=widely), batch.take(pa.array(rows)))

    def _divert(self, hot: KeyRoutes, tuples: Tuples, routes: _Routes) -> None:
        """Let tuples of hot keys go to the units of their keys, and nowhere else."""
        places = hot.places(tuples.keys)
        visits = visit(1 - self._stream)
        split = np.flatnonzero((places >= 0) & hot.is_split[places])
        if len(split):
            chosen = hot.lines.chosen(places[split], spread(tuples.take(split)))
            routes.divert(split, chosen, STORE | HOME | visits)
        copied = (places >= 0) & ~hot.is_split[places]
        if copied.any():
            rows = np.flatnonzero(copied)
            routes.divert(rows, hot.bases[places[rows]], HOME)
            _add_lines(routes, hot.lines, places, STORE | visits, copied)

    def _routes(self, tuples: Tuples, *, widely: bool) -> _Routes:
        routes = _Routes(len(tuples))
        place = self._stage.place(self._stream)
        if place is not None:
            self._store(place, tuples, routes)
        if self._copies is None:
            for other, store in enumerate(self._stage.stores):
                if self._stage.visits(self._stream, store.stream):
                    self._visit(other, tuples, routes, widely=widely)
        return routes

    def visits(self, stored: int, tuples: Tuples) -> Iterator[tuple[int, Int64s | None]]:
        """Which tuples visit which units of a store; None for all of them."""
        place = self._stage.place(stored)
        if place is None:
            return
        routes = _Routes(len(tuples))
        self._visit(place, tuples, routes, widely=False)
        if routes.wide is not None or routes.everywhere:
            # Units where nothing is stored that matches find nothing.
            for unit in self._placements[place].visits.everywhere:
                yield unit, None
            return
        units, rows, _ = routes.entries()
        order = np.argsort(units, kind="stable")
        for unit, start, end in _stretches(units[order]):
            yield unit, np.sort(rows[order[start:end]])

    def _store(self, place: int, tuples: Tuples, routes: _Routes) -> None:
        placement, store = self._placements[place], self._stage.stores[place]
        holders = placement.holders
        if len(holders.everywhere) == 1 and self._copies is None:
            # Whatever the group is: a hash of all that a tuple has takes its time.
            routes.add(np.full(len(tuples), holders.everywhere[0], np.int16), STORE | HOME)
            return
        groups = group_of(self._spec, store, tuples)
        units = home(holders, groups, tuples)
        if self._copies is None:
            routes.add(units, STORE | HOME)
            return
        # A tuple visits where its copies are: in all of these units, or in its home alone.
        role = visit(self._stage.stores[1 - place].stream)
        crossing = self._copies is Copies.CROSSING
        routes.add(units, HOME if crossing else HOME | role)
        _add_lines(routes, holders, groups, STORE | role if crossing else STORE)

    def _visit(self, place: int, tuples: Tuples, routes: _Routes, *, widely: bool) -> None:
        visits, store = self._placements[place].visits, self._stage.stores[place]
        role = visit(store.stream)
        found = None if widely else reached(self._spec, store, self._stream, tuples)
        if found is None:
            for unit in visits.everywhere:
                routes.everywhere[unit] = routes.everywhere.get(unit, 0) | role
            return
        for groups, inside in found.columns:
            _add_lines(routes, visits, groups, role, inside)
        if found.everywhere is not None:
            known = found.everywhere if routes.wide is None else routes.wide
            routes.wide = known | found.everywhere


def home(holders: Lines, groups: Int64s, tuples: Tuples) -> Units:
    """The unit that stores each tuple: of several holders the one that its content chooses."""
    return holders.firsts(groups) if holders.is_single else holders.chosen(groups, spread(tuples))


def _add_lines(
    routes: _Routes, units: Lines, groups: Int64s, role: int, inside: Bools | None = None
) -> None:
    """Tuples go to all units of their groups' lines, those that are `inside`."""
    if units.is_single:
        firsts = units.firsts(groups)
        routes.add(firsts if inside is None else np.where(inside, firsts, np.int16(-1)), role)
        return
    lines = units.of[groups]
    sizes, starts = units.sizes[lines], units.starts[lines]
    before = len(routes.columns)
    for step in range(int(sizes.max(initial=0))):
        there = sizes > step
        if inside is not None:
            there &= inside
        found = units.members[np.minimum(starts + step, len(units.members) - 1)]
        if not there.all():
            found = np.where(there, found, np.int16(-1))
        # The units of a line differ from each other.
        routes.add(found, role, apart=len(routes.columns) - before if step else 0)


def _cut(routes: _Routes, batch: pa.RecordBatch) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """The rows of a batch for each unit and role."""
    count, everywhere = batch.num_rows, routes.everywhere
    pieces, order = routes.pieces()
    taken = batch.take(pa.array(order)) if len(pieces) > 1 and len(order) <= 2 * count else None
    seen: dict[int, list[Int64s]] = {}
    for unit, role, start, end in pieces:
        chosen = order[start:end]
        if unit in everywhere:
            role |= everywhere[unit]
            seen.setdefault(unit, []).append(chosen)
        if len(chosen) == count:
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


def _stretches(ranked: npt.NDArray[Any]) -> Iterator[tuple[int, int, int]]:
    """The values of a sorted array, each with where it begins and ends."""
    if len(ranked) == 0:
        return
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    for start, end in zip(starts, [*starts[1:], len(ranked)], strict=True):
        yield int(ranked[start]), int(start), int(end)
