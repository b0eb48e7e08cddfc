"""The table: which units hold which groups of each store.

All routing is a lookup in it. A new topology is a new way to make a table (`makers`), and a table
that is made by hand, or changes while a query runs, is as good as any other that passes its check.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thetastream.errors import OptionError
from thetastream.spec import HOT_GROUPS, GroupBy, JoinSpec, RoutingSpec, Store
from thetastream.topology.hot import HotKey, check_hot
from thetastream.topology.hotvalues import HotValue, check_values
from thetastream.topology.lines import Lines
from thetastream.topology.live import Live, Step

MAX_UNITS = int(np.iinfo(np.int16).max)
"""Units of a stage are small integers: they sort by radix."""

LinesOfUnits = tuple[tuple[int, ...], ...]
"""Each line's units."""


class Copies(enum.StrEnum):
    """Where a tuple visits of which every unit of a line has a copy."""

    CROSSING = "crossing"
    """In each of these units, and any two lines of the two stores have one unit in common."""
    EVERYWHERE = "everywhere"
    """In one of these units, and every line has all units."""


@dataclass(frozen=True)
class Placement:
    """The units of one store."""

    lines: LinesOfUnits
    """Units that hold groups together: one of them has a tuple, or, with copies, each of them."""
    assigned: tuple[int, ...]
    """The line of each group: its holders, one of which stores a new tuple."""
    visited: tuple[int, ...] = ()
    """The line of each group in which its tuples are looked for; empty if that is the same. While
    a table changes, these are the old holders and the new ones."""
    planned: tuple[int, ...] = ()
    """The line of each group in the next step, while that is announced."""
    switched: int = 0
    """The version of the table since which new tuples are stored so."""
    moves: bool = False
    """Whether stored tuples are carried to the new holders, or stay until they expire."""
    left: tuple[int, ...] = ()
    """Units in which nothing of an earlier version is left: what the table relies on."""

    @cached_property
    def holders(self) -> Lines:
        """Where new tuples are stored."""
        return Lines(self.lines, self.assigned)

    @cached_property
    def visits(self) -> Lines:
        """Where tuples are looked for."""
        return Lines(self.lines, self.visited) if self.visited else self.holders

    def leaving(self, store: Store) -> frozenset[int]:
        """Units that are visited for tuples that would now be stored elsewhere."""
        if store.group_by.key is None:
            # Whatever the group: a visitor comes to all units that hold any.
            return frozenset(self.visits.everywhere) - frozenset(self.holders.everywhere)
        pairs = set(zip(self.visited or self.assigned, self.assigned, strict=True))
        return frozenset(unit for a, b in pairs for unit in set(self.lines[a]) - set(self.lines[b]))


@dataclass(frozen=True)
class Table:
    """The placements of a join's stores, by stage and in the order of its stores."""

    stages: tuple[tuple[Placement, ...], ...]
    made: RoutingSpec
    """What it was made of, or the first of its versions."""
    copies: Copies | None = None
    """Where a tuple visits if every unit of a line stores it; None if one of them does."""
    live: Live | None = None
    """What makes it a version of a table that changes while the query runs."""
    hot: tuple[HotKey, ...] = ()
    """Keys that have places of their own, in the order of their codes."""
    values: tuple[HotValue, ...] = ()
    """Values of an inequality or a band that are stored apart, in the order of their codes; of a
    table that does not change, the spec names them."""

    @property
    def version(self) -> int:
        """The version of a table that changes; 0 of one that does not."""
        return 0 if self.live is None else self.live.version

    @property
    def digest(self) -> int:
        """What tells the table apart from others of that version; 0 if it does not change."""
        return 0 if self.live is None else self.live.digest

    def units(self, stage: int) -> int:
        """The units of a stage; a unit that several stores use is one."""
        return 1 + max(max(placement.visits.everywhere) for placement in self.stages[stage])

    def active(self, stage: int) -> tuple[int, ...]:
        """The units of a stage that have a turn in each batch: the first one always."""
        if self.live is None:
            return tuple(range(self.units(stage)))
        return tuple(unit for unit, since in enumerate(self.live.since[stage]) if since >= 0)

    @cached_property
    def apart(self) -> tuple[frozenset[int], ...]:
        """By store, the units that are for hot values alone: none, if these are not apart."""
        if not self.made.hot_units:
            return (frozenset(),) * len(self.stages[0])
        return tuple(
            frozenset(unit for line in set(one.assigned[-HOT_GROUPS:]) for unit in one.lines[line])
            for one in self.stages[0]
        )

    def through(self, stage: int, number: int) -> int:
        """One of a stage's units for whatever may pass through any of them."""
        active = self._active[stage]
        return active[number % len(active)]

    @cached_property
    def _active(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self.active(stage) for stage in range(len(self.stages)))

    def validate(self, spec: JoinSpec) -> None:
        """Refuse a table with which a pair would be missed or found twice."""
        if [len(stage.stores) for stage in spec.stages] != [len(some) for some in self.stages]:
            raise OptionError("a routing table has a placement for each store of the join")
        for stage, placements in zip(spec.stages, self.stages, strict=True):
            for store, placement in zip(stage.stores, placements, strict=True):
                _check(placement, store.group_by.groups)
        if self.copies is not None:
            for placements in self.stages:
                _check_copies(self.copies, placements)
        if self.live is not None:
            self._check_live(spec, self.live)
        check_hot(self, spec)
        check_values(self, spec)

    def _check_live(self, spec: JoinSpec, live: Live) -> None:
        if self.copies is not None:
            raise OptionError("a table with copies of tuples cannot change while a query runs")
        if len(live.since) != len(self.stages):
            raise OptionError("a live table knows the units of each stage")
        for stage, placements in zip(spec.stages, self.stages, strict=True):
            active = set(self.active(stage.number))
            if 0 not in active:
                raise OptionError("the first unit of a stage always has a turn")
            if max(active) >= live.max_units:
                raise OptionError(
                    f"unit {max(active)} is beyond the {live.max_units} units that there may be",
                    hint=f"units are numbered from 0 to {live.max_units - 1}; JoinOptions(max_units"
                    "=...) allows more",
                )
            for placement in placements:
                if not set(placement.visits.everywhere) <= active:
                    raise OptionError("a unit that holds tuples has a turn in each batch")
                if placement.visited and live.step in (Step.FORGET, Step.SETTLED):
                    raise OptionError(f"nothing is visited in vain in step {live.step.value!r}")

    def covers(self, old: Table, spec: JoinSpec) -> bool:
        """Whether visitors reach all that was stored while the old table was used."""
        if self.copies is not None or old.copies is not None:
            return (self.copies, self.stages) == (old.copies, old.stages)
        for stage, mine, before in zip(spec.stages, self.stages, old.stages, strict=True):
            for store, now, then in zip(stage.stores, mine, before, strict=True):
                if store.group_by.key is None:
                    if not set(then.holders.everywhere) <= set(now.visits.everywhere):
                        return False
                    continue
                seen = set(zip(now.visited or now.assigned, then.assigned, strict=True))
                if not all(set(then.lines[b]) <= set(now.lines[a]) for a, b in seen):
                    return False
        return True


def _check(placement: Placement, groups: int) -> None:
    assigned, visited = placement.assigned, placement.visited or placement.assigned
    for chosen in (assigned, visited, placement.planned or assigned):
        if len(chosen) != groups:
            raise OptionError(f"a routing table places all of {groups} groups")
        if not all(0 <= line < len(placement.lines) for line in set(chosen)):
            raise OptionError("a routing table places groups in lines that it has")
    for line in placement.lines:
        if not line or len(set(line)) != len(line) or not 0 <= min(line) <= max(line) < MAX_UNITS:
            raise OptionError(f"units of a line are different numbers below {MAX_UNITS}")
    for ahead in (assigned, placement.planned or assigned):
        for stored, seen in set(zip(ahead, visited, strict=True)):
            if not set(placement.lines[stored]) <= set(placement.lines[seen]):
                raise OptionError("tuples are looked for wherever they are stored")


def _check_copies(copies: Copies, placements: Sequence[Placement]) -> None:
    if len(placements) != 2:
        raise OptionError("tuples have copies in a join of two stores")
    first, second = ({one.lines[line] for line in one.assigned} for one in placements)
    if copies is Copies.EVERYWHERE:
        if len({frozenset(line) for line in (*first, *second)}) != 1:
            raise OptionError("all units have all tuples, or one that is visited would lack some")
        return
    for one in first:
        for two in second:
            if len(set(one) & set(two)) != 1:
                raise OptionError("any two lines of a matrix cross in one unit")


def dealt_out(spec: JoinSpec, lines: Sequence[LinesOfUnits]) -> tuple[tuple[Placement, ...], ...]:
    """The groups of each store, given to the lines of its stream in contiguous shares."""
    return tuple(
        tuple(_placed(lines[store.stream], store.group_by) for store in stage.stores)
        for stage in spec.stages
    )


def _placed(lines: LinesOfUnits, by: GroupBy) -> Placement:
    """Contiguous shares of the groups, so that keys that are dealt evenly lie evenly."""
    return Placement(lines, tuple(g * len(lines) // by.groups for g in range(by.groups)))
