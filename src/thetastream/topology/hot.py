"""Hot keys: a key with so many tuples of one stream that a single unit would be busy with it alone.

Its frequent stream is *split*: each tuple goes to one of the key's units, is stored there and looks
for its partners there. The other stream is *copied*: its tuples are stored in all of the key's
units, and visit all of them. So each pair meets once, at the unit that the split tuple went to, and
both the storing and the searching of the frequent stream are spread.

The steps of a key are safe for routers that are one version apart:

1. copy: the other stream's tuples are stored in all units of the key, and visit all of them. The
   split stream is still where its group is. The unit that has the group of the other stream exports
   what it had before that;
2. take: the key's other units take that in, if there is any. Now each has a full copy;
3. hot: tuples of the split stream go to one of the units;
4. cooling: they go to the place of their group again. Copies are still made, so that a key that
   flickers can be hot again at once;
5. drop: when nothing of the split stream is left in the other units, no more copies are made, and
   the units drop theirs. After that the key is like any other.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from thetastream.errors import OptionError
from thetastream.index.encoding import Bools, Int64s
from thetastream.spec import Grouping, JoinSpec, Routing
from thetastream.topology.groups import groups_of_keys
from thetastream.topology.lines import Lines

if TYPE_CHECKING:
    from thetastream.topology.table import Placement, Table


class HotStep(enum.StrEnum):
    """How far a key has come."""

    COPY = "copy"
    TAKE = "take"
    HOT = "hot"
    COOLING = "cooling"
    DROP = "drop"

    @property
    def copies(self) -> bool:
        """Whether tuples of the copied stream are stored in all units of the key."""
        return self is not HotStep.DROP


@dataclass(frozen=True, order=True)
class CopyFile:
    """Tuples of the copied stream that were there before copies were made, in a file."""

    name: str
    """The digest of the file's content."""
    rows: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class HotKey:
    """A key that has places of its own."""

    key: int
    """Its 64-bit code; keys whose hashes are equal share it."""
    split: int
    """The stream whose tuples are divided among the units."""
    stream: str
    """The name of that stream."""
    units: tuple[int, ...]
    """Where tuples of the other stream are copied to, in ascending order."""
    spread: tuple[int, ...] = ()
    """Where tuples of the split stream are; empty if that is the unit of their group."""
    step: HotStep
    since: int
    """The version since which copies are made in all the units."""
    changed: int
    """The version in which this step began."""
    files: tuple[CopyFile, ...] = ()
    """What the other units take in."""
    at: float = 0.0
    """When it was first split, in seconds since 1970."""
    share: float = 0.0
    """Its share of the rows, when it was last looked at."""
    shown: str = ""
    """Its value as people read it."""

    @property
    def copied(self) -> int:
        """The stream whose tuples are copied."""
        return 1 - self.split


class KeyRoutes:
    """Where the tuples of one stream go whose keys are hot."""

    def __init__(self, table: Table, spec: JoinSpec, stream: int) -> None:
        mine = [
            one for one in table.hot if (one.spread if one.split == stream else one.step.copies)
        ]
        self._codes: Int64s = np.array([one.key for one in mine], dtype=np.int64)
        self._stream = stream
        self._key = equality_key(spec, stream)
        self.is_split: Bools = np.array([one.split == stream for one in mine], dtype=bool)
        """Whether a tuple goes to one unit of its key's line, or to all of them."""
        lines = tuple(one.spread if one.split == stream else one.units for one in mine)
        self.lines = Lines(lines, tuple(range(len(lines))))
        """The units of each key."""
        places = [base_unit(table, spec, one.key, stream) for one in mine]
        self.bases = np.array(places, dtype=np.int16)
        """The unit that has the group of each key."""

    @classmethod
    def of(cls, table: Table, spec: JoinSpec, stream: int) -> KeyRoutes | None:
        """None if no tuple of the stream is concerned."""
        if not table.hot:
            return None
        found = cls(table, spec, stream)
        return found if len(found._codes) else None

    def places(self, keys: Sequence[Int64s]) -> Int64s:
        """The place of each tuple's key among the hot ones; -1 if it is none of them."""
        codes = keys[self._key]
        near = np.searchsorted(self._codes, codes).clip(max=len(self._codes) - 1)
        return np.where(self._codes[near] == codes, near, -1)


def base_unit(table: Table, spec: JoinSpec, key: int, stream: int) -> int:
    """The unit that has the group of a key, as far as a stream's store is concerned."""
    place = spec.stages[0].place(stream)
    if place is None:
        raise OptionError("a key is split where both streams are stored")
    groups = spec.stages[0].stores[place].group_by.groups
    found = groups_of_keys(np.array([key], dtype=np.int64), groups)
    return int(table.stages[0][place].holders.firsts(found)[0])


def hot_groups(table: Table, spec: JoinSpec) -> frozenset[int]:
    """The groups of hot keys: they stay where they are."""
    if not table.hot:
        return frozenset()
    keys = np.array([one.key for one in table.hot], dtype=np.int64)
    groups = spec.stages[0].stores[0].group_by.groups
    return frozenset(groups_of_keys(keys, groups).tolist())


def hot_units(table: Table) -> frozenset[int]:
    """The units of hot keys: they stay active."""
    return frozenset(unit for one in table.hot for unit in one.units)


def why_not(spec: JoinSpec, routing: Routing) -> str:
    """Why keys of a join cannot be split; empty if they can."""
    if len(spec.streams) != 2:
        return "tuples of a three-way join meet in packs, which are not copied"
    if spec.edges[0].equality is None:
        return "the predicate has no equality"
    if routing is not Routing.HASH:
        return f"topology {routing.value!r} does not keep a key in one unit"
    for store in spec.stages[0].stores:
        by = store.group_by
        if by.kind is not Grouping.KEY or by.key != equality_key(spec, store.stream):
            return "tuples are not grouped by the key of the equality"
    return ""


def is_steady(placement: Placement, group: int) -> bool:
    """Whether a group has one unit, now and in the next step of a change."""
    lines = {
        placement.lines[chosen[group]]
        for chosen in (placement.assigned, placement.visited, placement.planned)
        if chosen
    }
    return len(lines) == 1 and len(next(iter(lines))) == 1


def check_hot(table: Table, spec: JoinSpec) -> None:
    """Refuse hot keys with which a pair would be missed or found twice."""
    if not table.hot:
        return
    reason = why_not(spec, table.made.routing)
    if reason or table.live is None:
        raise OptionError(f"no key of this table can be hot: {reason or 'it does not change'}")
    codes = [one.key for one in table.hot]
    if codes != sorted(set(codes)):
        raise OptionError("hot keys are listed in their order, each once")
    since = table.live.since[0]
    held = {
        unit
        for placement in table.stages[0]
        for line in set(placement.planned or placement.assigned)
        for unit in placement.lines[line]
    }
    groups = hot_groups(table, spec)
    for placement in table.stages[0]:
        if not all(is_steady(placement, group) for group in groups):
            raise OptionError("the group of a hot key stays in its unit")
    for one in table.hot:
        _check_key(one, spec, table.live.version)
        if not set(one.units) <= held:
            raise OptionError("units of a hot key hold groups as well")
        if not all(-1 < since[unit] < one.since for unit in one.units):
            raise OptionError("units of a hot key have had turns before copies were made")
        if not {base_unit(table, spec, one.key, stream) for stream in (0, 1)} <= set(one.units):
            raise OptionError("units of a hot key are those of its group, and others")


def _check_key(one: HotKey, spec: JoinSpec, version: int) -> None:
    if one.split not in (0, 1) or one.stream != spec.streams[one.split].name:
        raise OptionError("a hot key is split in one of the two streams")
    if len(one.units) < 2 or list(one.units) != sorted(set(one.units)):
        raise OptionError("a hot key has two different units or more, in ascending order")
    if not 0 < one.since <= one.changed <= version:
        raise OptionError("a hot key changes with versions, in their order")
    fits = {
        HotStep.HOT: one.spread == one.units,
        HotStep.COOLING: not one.spread,
        HotStep.DROP: not one.spread,
    }.get(one.step, set(one.spread) < set(one.units))
    if not fits or list(one.spread) != sorted(set(one.spread)):
        raise OptionError("tuples of a hot key are where copies of their partners are")


def equality_key(spec: JoinSpec, stream: int) -> int:
    """The key of a stream that must be equal."""
    edge = spec.edges[0]
    if edge.equality is None:
        raise OptionError("only a join with an equality has hot keys")
    return edge.equality.of(edge.side(stream))
