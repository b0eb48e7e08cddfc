"""A brute-force model of a live table with hot keys: each pair of equal keys meets exactly once.

It knows nothing of indexes, files and dispatchers. A tuple is a number of a stream with a key. A
unit is a set of tuples, and does what the version in use says in words.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from thetastream.engine.protocol import KeyNews
from thetastream.spec import JoinTree
from thetastream.steering.steps import Heard
from thetastream.steering.version import Version
from thetastream.topology.groups import groups_of_keys
from thetastream.topology.hot import CopyFile, HotKey, HotStep
from thetastream.topology.live import Step, Transfer

GROUPS = 5040


@dataclass(frozen=True)
class Row:
    """A tuple."""

    number: int
    stream: int
    key: int
    dies: int
    """The batch in which it expires."""
    stamp: int
    """The version of the router that sent it."""


@dataclass
class Model:
    """All units of one join of two streams."""

    lives: int | None
    keys: list[int]
    units: dict[int, set[Row]] = field(default_factory=dict)
    met: Counter[tuple[int, int]] = field(default_factory=Counter)
    wanted: Counter[tuple[int, int]] = field(default_factory=Counter)
    alive: set[Row] = field(default_factory=set)
    begun: dict[tuple[int, int], int] = field(default_factory=dict)
    """The versions since which units have copies of keys, by unit and key."""
    full: set[tuple[int, int]] = field(default_factory=set)
    exported: dict[tuple[int, int], set[Row]] = field(default_factory=dict)
    """By key and version, what was there before copies were made."""
    taken: int = -1
    count: int = 0

    def _rows(self, unit: int) -> set[Row]:
        return self.units.setdefault(unit, set())

    # -- where tuples go --------------------------------------------------------------------------

    def base(self, version: Version, stream: int, key: int) -> int:
        """The unit that stores a key that is like any other."""
        placement = version.joins[0].stages[0][stream]
        group = int(groups_of_keys(np.array([key]), GROUPS)[0])
        return placement.lines[placement.assigned[group]][0]

    def looked_for(self, version: Version, stream: int, key: int) -> set[int]:
        """Where tuples of a stream are looked for."""
        placement = version.joins[0].stages[0][stream]
        group = int(groups_of_keys(np.array([key]), GROUPS)[0])
        return set(placement.lines[(placement.visited or placement.assigned)[group]])

    def sent(
        self, version: Version, stream: int, key: int, random: np.random.Generator
    ) -> tuple[set[int], set[int]]:
        """Where a tuple is stored, and where it looks for partners."""
        one = hot_key(version, key)
        if one is not None and one.split == stream and one.spread:
            unit = one.spread[int(random.integers(len(one.spread)))]
            return {unit}, {unit}
        if one is not None and one.split != stream and one.step is not HotStep.DROP:
            return set(one.units), set(one.units)
        return {self.base(version, stream, key)}, self.looked_for(version, 1 - stream, key)

    # -- a batch ----------------------------------------------------------------------------------

    def batch(self, now: int, versions: list[Version], random: np.random.Generator) -> None:
        """Routers of these versions, the newest last, bring tuples of both streams."""
        newest, oldest = versions[-1], versions[0].version
        self._move(newest)
        self._copy(newest, oldest)
        for rows in self.units.values():
            rows -= {row for row in rows if row.dies <= now}
        self.alive = {row for row in self.alive if row.dies > now}
        for stream in (0, 1):
            self._arrive(stream, now, versions, random)
        assert self.met == self.wanted, (self.met - self.wanted, self.wanted - self.met)

    def _arrive(
        self, stream: int, now: int, versions: list[Version], random: np.random.Generator
    ) -> None:
        stored: list[tuple[set[int], Row]] = []
        for version in versions:
            for key in random.choice(self.keys, 4).tolist():
                dies = 1 << 30 if self.lives is None else now + self.lives
                self.count += 1
                row = Row(self.count, stream, key, dies, version.version)
                places, visits = self.sent(version, stream, key, random)
                assert places <= set(version.joins[0].active(0))
                for unit in visits:
                    for other in self._rows(unit):
                        if (other.stream, other.key) == (1 - stream, key):
                            self.met[other.number, row.number] += 1
                for other in self.alive:
                    if (other.stream, other.key) == (1 - stream, key):
                        self.wanted[other.number, row.number] += 1
                stored.append((places, row))
        for places, row in stored:
            self.alive.add(row)
            for unit in places:
                self._rows(unit).add(row)

    def _move(self, newest: Version) -> None:
        """Groups change their places, but for what units have of hot keys."""
        if newest.step is not Step.TAKE or self.taken == newest.note.change:
            return
        self.taken = newest.note.change
        for stream, placement in enumerate(newest.joins[0].stages[0]):
            for unit, rows in list(self.units.items()):
                for row in [row for row in rows if row.stream == stream]:
                    one = hot_key(newest, row.key)
                    home = self.base(newest, stream, row.key)
                    old = placement.moves and row.stamp < placement.switched
                    if old and unit != home and (one is None or unit not in one.units):
                        rows.discard(row)
                        self._rows(home).add(row)

    def _copy(self, newest: Version, oldest: int) -> None:
        for one in newest.joins[0].hot:
            source = self.base(newest, one.copied, one.key)
            for unit in one.units:
                place = unit, one.key
                mine = {r for r in self._rows(unit) if (r.stream, r.key) == (one.copied, one.key)}
                if one.step is HotStep.DROP:
                    if oldest >= one.changed and self.begun.pop(place, None) is not None:
                        self.full.discard(place)
                        if unit != source:
                            self.units[unit] -= mine
                    continue
                if oldest >= one.since and self.begun.get(place) != one.since:
                    self.begun[place] = one.since
                    if unit == source:
                        self.exported[one.key, one.since] = mine
                    elif place not in self.full:
                        self.units[unit] -= mine
                is_new = unit != source and place not in self.full
                if is_new and one.step not in (HotStep.COPY, HotStep.DROP):
                    self.full.add(place)
                    if one.files:
                        self.units[unit] |= self.exported[one.key, one.since]

    # -- what the units say -----------------------------------------------------------------------

    def heard(self, newest: Version, oldest: int, tree: JoinTree) -> list[Heard]:
        """The reports of all units."""
        table = newest.joins[0]
        found = []
        for unit in table.active(0):
            leaving = 0
            for number, placement in enumerate(table.stages[0]):
                store = tree.steps[0].spec.stages[0].stores[number]
                if newest.step.drains and unit in placement.leaving(store):
                    leaving += sum(
                        row.stream == number and row.stamp < placement.switched
                        for row in self._rows(unit)
                        if not (newest.step is Step.TAKE and placement.moves)
                    )
            moving = any(one.moves for one in table.stages[0]) and newest.step is Step.SWITCH
            found.append(
                Heard(
                    join=0,
                    stage=0,
                    unit=unit,
                    version=oldest,
                    draining=leaving,
                    transfers=(Transfer(0, 0, unit, 0, "part", "name", leaving, 1),)
                    if moving and leaving
                    else (),
                    hot=tuple(self._news(one, unit, newest, oldest) for one in table.hot),
                )
            )
        return found

    def _news(self, one: HotKey, unit: int, newest: Version, oldest: int) -> KeyNews:
        exported = self.exported.get((one.key, one.since))
        is_source = unit == self.base(newest, one.copied, one.key)
        rows = self._rows(unit)
        file = CopyFile("name", len(exported or ()), 1)
        return KeyNews(
            key=one.key,
            stream=one.stream,
            since=one.since,
            step=one.step.value,
            at=0.0,
            share=0.0,
            shown="",
            has_split=unit == self.base(newest, one.split, one.key),
            has_copied=is_source,
            exported=((file,) if exported else ()) if is_source and exported is not None else None,
            remains=oldest < one.changed
            or any((row.stream, row.key) == (one.split, one.key) for row in rows),
        )


def hot_key(version: Version, key: int) -> HotKey | None:
    """What a version says of a key."""
    return next((one for one in version.joins[0].hot if one.key == key), None)
