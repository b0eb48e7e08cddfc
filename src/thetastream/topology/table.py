"""The table: which units hold which groups of each store.

All routing is a lookup in it. A new topology is a new way to make a table (`makers`), and a table
that is made by hand, or changes while a query runs, is as good as any other that passes its check.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from thetastream.errors import OptionError
from thetastream.index.encoding import Int64s
from thetastream.spec import JoinSpec, RoutingSpec

MAX_UNITS = int(np.iinfo(np.int16).max)
"""Units of a stage are small integers: they sort by radix."""


@dataclass(frozen=True)
class Placement:
    """The units of one store."""

    lines: tuple[tuple[int, ...], ...]
    """Units that hold groups together: one of them has a tuple, or in a matrix each of them."""
    assigned: tuple[int, ...]
    """The line of each group."""

    @cached_property
    def line_of(self) -> Int64s:
        """The line of each group, for lookups."""
        return np.array(self.assigned, dtype=np.int64)

    @cached_property
    def sizes(self) -> Int64s:
        """The number of units in each line."""
        return np.array([len(line) for line in self.lines], dtype=np.int64)

    @cached_property
    def starts(self) -> Int64s:
        """Where each line begins among the `members`."""
        return np.cumsum(self.sizes) - self.sizes

    @cached_property
    def members(self) -> npt.NDArray[np.int16]:
        """The units of all lines, one after the other."""
        return np.array([unit for line in self.lines for unit in line], dtype=np.int16)

    @cached_property
    def unit_of(self) -> npt.NDArray[np.int16]:
        """The unit of each group, where there is one; the first of several."""
        return self.members[self.starts[self.line_of]]

    @cached_property
    def everywhere(self) -> tuple[int, ...]:
        """All units that hold a group."""
        return tuple(sorted({unit for line in self.lines for unit in line}))

    @cached_property
    def is_single(self) -> bool:
        """Whether each group is in one unit."""
        return all(len(line) == 1 for line in self.lines)


@dataclass(frozen=True)
class Table:
    """The placements of a join's stores, by stage and in the order of its stores."""

    stages: tuple[tuple[Placement, ...], ...]
    made: RoutingSpec
    """What it was made of."""
    copies: bool = False
    """Whether every unit of a line stores a tuple, which then visits there, too: a matrix."""
    version: int = 0

    def units(self, stage: int) -> int:
        """The units of a stage; a unit that several stores use is one."""
        return 1 + max(max(placement.everywhere) for placement in self.stages[stage])

    def validate(self, spec: JoinSpec) -> None:
        """Refuse a table with which a pair would be missed or found twice."""
        if [len(stage.stores) for stage in spec.stages] != [len(some) for some in self.stages]:
            raise OptionError("a routing table has a placement for each store of the join")
        for stage, placements in zip(spec.stages, self.stages, strict=True):
            for store, placement in zip(stage.stores, placements, strict=True):
                _check(placement, store.group_by.groups)
        if self.copies:
            _check_copies(self.stages)

    def covers(self, old: Table, spec: JoinSpec) -> bool:
        """Whether visitors reach all that was stored while the old table was used."""
        if self.copies or old.copies:
            return (self.copies, self.stages) == (old.copies, old.stages)
        for stage, mine, before in zip(spec.stages, self.stages, old.stages, strict=True):
            for store, now, then in zip(stage.stores, mine, before, strict=True):
                if store.group_by.key is None:
                    if not set(then.everywhere) <= set(now.everywhere):
                        return False
                    continue
                seen = set(zip(now.assigned, then.assigned, strict=True))
                if not all(set(then.lines[b]) <= set(now.lines[a]) for a, b in seen):
                    return False
        return True


def _check(placement: Placement, groups: int) -> None:
    if len(placement.assigned) != groups:
        raise OptionError(f"a routing table places all of {groups} groups")
    if not all(0 <= line < len(placement.lines) for line in placement.assigned):
        raise OptionError("a routing table places groups in lines that it has")
    for line in placement.lines:
        if not line or len(set(line)) != len(line) or not 0 <= min(line) <= max(line) < MAX_UNITS:
            raise OptionError(f"units of a line are different numbers below {MAX_UNITS}")


def _check_copies(stages: tuple[tuple[Placement, ...], ...]) -> None:
    for placements in stages:
        if len(placements) != 2:
            raise OptionError("a matrix has two stores")
        first, second = placements
        for one in {first.lines[line] for line in first.assigned}:
            for two in {second.lines[line] for line in second.assigned}:
                if len(set(one) & set(two)) != 1:
                    raise OptionError("any two lines of a matrix cross in one unit")
