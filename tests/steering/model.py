"""A brute-force model of a live table: every tuple ever stored must be met exactly once.

It knows nothing of indexes and joins: a tuple is a group and a unit, a visitor comes to the units
that its router's table names. Units are played by sets.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from thetastream.spec import JoinTree
from thetastream.steering.steps import Heard, Place
from thetastream.steering.version import Version
from thetastream.topology.live import Step, Transfer


@dataclass
class Tuple:
    """A stored tuple."""

    group: int
    unit: int
    dies: int
    """The batch in which it expires."""
    stamp: int
    """The version of the router that stored it."""


@dataclass
class Model:
    """The tuples of one store."""

    place: Place
    by_content: bool
    lives: int | None
    tuples: list[Tuple] = field(default_factory=list)
    exported: bool = False
    taken: int = -1

    def line(self, version: Version, group: int, *, visited: bool) -> tuple[int, ...]:
        join, stage, number = self.place
        placement = version.joins[join].stages[stage][number]
        if visited and self.by_content:
            return placement.visits.everywhere
        chosen = (placement.visited or placement.assigned) if visited else placement.assigned
        return placement.lines[chosen[group]]

    def groups(self, version: Version) -> int:
        join, stage, number = self.place
        return len(version.joins[join].stages[stage][number].assigned)

    def batch(self, now: int, versions: list[Version], random: np.random.Generator) -> None:
        newest, join, stage = versions[-1], self.place[0], self.place[1]
        self._take(newest)
        self.tuples = [one for one in self.tuples if one.dies > now]
        for version in versions:
            for _ in range(3):
                group = int(random.integers(0, self.groups(version)))
                line = self.line(version, group, visited=False)
                unit = line[int(random.integers(len(line)))]
                assert unit in version.joins[join].active(stage)
                dies = 1 << 30 if self.lives is None else now + self.lives
                self.tuples.append(Tuple(group, unit, dies, version.version))
        for version in versions:
            for one in self.tuples:
                visited = Counter(self.line(version, one.group, visited=True))
                assert visited[one.unit] == 1, f"{one} is met {visited[one.unit]} times"

    def _take(self, newest: Version) -> None:
        join, stage, number = self.place
        placement = newest.joins[join].stages[stage][number]
        if newest.step is not Step.TAKE or self.taken == newest.version or not placement.moves:
            return
        self.taken = newest.version
        for one in self.tuples:
            line = self.line(newest, one.group, visited=False)
            everywhere = placement.holders.everywhere
            stays = one.unit in (everywhere if self.by_content else line)
            if one.stamp < placement.switched and not stays:
                one.unit, one.stamp = line[0], newest.version

    def heard(self, newest: Version, oldest: int, tree: JoinTree) -> list[Heard]:
        join, stage, number = self.place
        table = newest.joins[join]
        placement = table.stages[stage][number]
        store = tree.steps[join].spec.stages[stage].stores[number]
        leaving = placement.leaving(store) if newest.step.drains else frozenset()
        found = []
        for unit in table.active(stage):
            old = [
                one
                for one in self.tuples
                if one.unit == unit and one.stamp < placement.switched and unit in leaving
            ]
            moving = placement.moves and newest.step is Step.SWITCH and oldest >= newest.version
            transfers = (
                (Transfer(stage, store.stream, unit, 0, "part", "name", len(old), 1),)
                if moving and old
                else ()
            )
            found.append(
                Heard(
                    join=join,
                    stage=stage,
                    unit=unit,
                    version=oldest,
                    draining=len(old),
                    to_export=0 if moving or not placement.moves else len(old),
                    transfers=transfers,
                )
            )
        return found
