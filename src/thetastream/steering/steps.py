"""The steps of a change: each makes the next version of the tables, and none has effects.

What a step relies on is told by the units' reports; `advance` says which step they allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from thetastream.engine.protocol import KeyNews
from thetastream.spec import JoinTree, Store
from thetastream.steering.version import Note, Version
from thetastream.topology.live import Live, Step, Transfer
from thetastream.topology.table import Placement, Table


@dataclass(frozen=True, kw_only=True)
class Heard:
    """What a unit reported of a change, in a batch that is committed."""

    join: int
    stage: int
    unit: int
    version: int
    """The oldest version that a router used."""
    draining: int = 0
    to_export: int = 0
    pending: bool = False
    """Whether it has aggregates that it has not sent yet."""
    transfers: tuple[Transfer, ...] = ()
    hot: tuple[KeyNews, ...] = ()
    """The hot keys that it is a place of."""


Lines = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Target:
    """Where a store's groups are to be: lines of units, and the line of each group."""

    lines: Lines
    assigned: tuple[int, ...]


Place = tuple[int, int, int]
"""A join, a stage of it, and a store of that."""


def announce(
    version: Version,
    targets: Mapping[Place, Target],
    moves: Mapping[Place, bool],
    note: Note,
    at: float,
) -> Version:
    """New units are visited as well."""

    def change(place: Place, placement: Placement) -> Placement:
        target = targets.get(place)
        if target is None:
            return placement
        pool: dict[tuple[int, ...], int] = {}

        def number(line: tuple[int, ...]) -> int:
            return pool.setdefault(line, len(pool))

        stored = [placement.lines[line] for line in placement.assigned]
        wanted = [target.lines[line] for line in target.assigned]
        both = {
            (a, b): tuple(sorted({*a, *b}))
            for a, b in dict.fromkeys(zip(stored, wanted, strict=True))
        }
        assigned = tuple(map(number, stored))
        planned = tuple(map(number, wanted))
        visited = tuple(number(both[a, b]) for a, b in zip(stored, wanted, strict=True))
        return replace(
            placement,
            lines=tuple(pool),
            assigned=assigned,
            planned=planned,
            visited=visited,
            moves=moves.get(place, False),
            left=(),
        )

    return _next(version, Step.ANNOUNCE, change, at, note=note)


def switch(version: Version, at: float) -> Version:
    """New tuples are stored in the new units."""
    switched = version.version + 1

    def change(place: Place, placement: Placement) -> Placement:
        if not placement.planned:
            return placement
        return replace(placement, assigned=placement.planned, planned=(), switched=switched)

    return _next(version, Step.SWITCH, change, at)


def take(version: Version, transfers: Iterable[tuple[int, Transfer]], at: float) -> Version:
    """What was exported changes its place; `transfers` are given with the numbers of joins."""
    return _next(version, Step.TAKE, lambda _, same: same, at, transfers=list(transfers))


def forget(version: Version, tree: JoinTree, at: float) -> Version:
    """The old units are visited no more."""

    def change(place: Place, placement: Placement) -> Placement:
        if not placement.visited:
            return placement
        return replace(
            placement,
            visited=(),
            moves=False,
            left=tuple(sorted(placement.leaving(_store(tree, place)))),
        )

    return _next(version, Step.FORGET, change, at)


def settle(version: Version, at: float) -> Version:
    """Units that hold nothing have no more turns."""

    def change(place: Place, placement: Placement) -> Placement:
        used = sorted(set(placement.assigned))
        places = {line: number for number, line in enumerate(used)}
        return replace(
            placement,
            lines=tuple(placement.lines[line] for line in used),
            assigned=tuple(places[line] for line in placement.assigned),
            left=(),
        )

    return _next(version, Step.SETTLED, change, at)


def advance(version: Version, heard: Sequence[Heard], tree: JoinTree, at: float) -> Version | None:
    """The next step of the change that is under way, if what was heard allows it."""
    if version.step is Step.SETTLED or not confirmed(version, heard):
        return None
    if version.step is Step.ANNOUNCE:
        return switch(version, at)
    forgetting = version.step is Step.FORGET
    places = _retiring(version) if forgetting else leaving_units(version, tree)
    known = {(one.join, one.stage, one.unit): one for one in heard}
    mine = [known[place] for place in sorted(places) if place in known]
    if len(mine) < len(places) or any(one.version < version.version for one in mine):
        # Spark did not deliver all reports of this batch.
        return None
    if forgetting:
        return None if any(one.pending for one in mine) else settle(version, at)
    if version.step is Step.SWITCH and leaving_units(version, tree, moving=True):
        if any(one.to_export for one in mine):
            return None
        # Perhaps there is nothing to take in: units then know that nothing is left to go.
        return take(version, [(one.join, some) for one in mine for some in one.transfers], at)
    return None if any(one.draining for one in mine) else forget(version, tree, at)


def confirmed(version: Version, heard: Iterable[Heard]) -> bool:
    """Whether every router of a batch has used this version.

    The first unit of a stage is one that every router sends something to. Others may be new, and
    not known to routers that use an older version.
    """
    first = {(one.join, one.stage): one.version for one in heard if one.unit == 0}
    return all(
        first.get((join, stage), -1) >= version.version
        for join, table in enumerate(version.joins)
        for stage in range(len(table.stages))
    )


def _retiring(version: Version) -> set[Place]:
    """The units, by join and stage, that hold nothing any more and will have no more turns."""
    return {
        (join, stage, unit)
        for join, table in enumerate(version.joins)
        for stage, placements in enumerate(table.stages)
        for unit in set(table.active(stage)).difference(
            *(placement.visits.everywhere for placement in placements)
        )
    }


def leaving_units(version: Version, tree: JoinTree, *, moving: bool = False) -> set[Place]:
    """The units, by join and stage, that may hold tuples which would now be stored elsewhere;
    `moving`: only if these are carried over."""
    if not version.step.drains:
        return set()
    return {
        (join, stage, unit)
        for join, table in enumerate(version.joins)
        for stage, placements in enumerate(table.stages)
        for number, placement in enumerate(placements)
        if placement.moves or not moving
        for unit in placement.leaving(_store(tree, (join, stage, number)))
    }


def _store(tree: JoinTree, place: Place) -> Store:
    join, stage, number = place
    return tree.steps[join].spec.stages[stage].stores[number]


def _next(
    version: Version,
    step: Step,
    change: Callable[[Place, Placement], Placement],
    at: float,
    *,
    note: Note | None = None,
    transfers: Sequence[tuple[int, Transfer]] = (),
) -> Version:
    number = version.version + 1
    joins = []
    for join, table in enumerate(version.joins):
        stages = tuple(
            tuple(change((join, stage, n), placement) for n, placement in enumerate(placements))
            for stage, placements in enumerate(table.stages)
        )
        mine = tuple(transfer for place, transfer in transfers if place == join)
        joins.append(_table(table, stages, number, step, mine))
    return replace(
        version,
        version=number,
        step=step,
        at=at,
        joins=tuple(joins),
        previous=version.digest,
        note=version.note if note is None else note,
    ).lived()


def _table(
    table: Table,
    stages: tuple[tuple[Placement, ...], ...],
    version: int,
    step: Step,
    transfers: tuple[Transfer, ...],
) -> Table:
    live = table.live
    if live is None:
        raise TypeError("only a live table has a next version")
    since = tuple(
        _since(before, placements, version, step)
        for before, placements in zip(live.since, stages, strict=True)
    )
    changes: dict[str, Any] = {"since": since, "transfers": transfers}
    changed: Live = replace(live, **changes)
    return replace(table, stages=stages, live=changed)


def _since(
    before: Sequence[int], placements: Sequence[Placement], version: int, step: Step
) -> tuple[int, ...]:
    """Units that are visited have turns; those that hold nothing keep theirs until all is settled,
    so that they can say that they are empty."""
    used = {unit for placement in placements for unit in placement.visits.everywhere}
    found = []
    for unit in range(max(len(before), 1 + max(used))):
        since = before[unit] if unit < len(before) else -1
        if unit in used and since < 0:
            since = version
        elif unit not in used and unit > 0 and step is Step.SETTLED:
            since = -1
        found.append(since)
    while len(found) > 1 and found[-1] < 0:
        found.pop()
    return tuple(found)
