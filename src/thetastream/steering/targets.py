"""Where groups are to be for an edit, and the first step towards that.

The groups of hot keys stay where they are, and the units of hot keys stay in use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from thetastream.errors import ControlError
from thetastream.spec import JoinTree, Routing, Store, StreamSpec
from thetastream.steering.edits import Heat, Move, Moves, Scale
from thetastream.steering.steps import Lines, Place, Target, announce
from thetastream.steering.version import Note, Version
from thetastream.topology.hot import hot_groups, hot_units
from thetastream.topology.table import Placement

Placed = Scale | Move | Moves
"""Edits that are about the places of groups."""


def start(
    version: Version, edit: Placed | Heat, tree: JoinTree, note: Note, at: float
) -> Version | None:
    """The first step towards what an edit asks for; None if that is so already."""
    if isinstance(edit, Heat):
        raise TypeError("hot keys have steps of their own")
    targets = targets_of(version, edit, tree)
    if not targets:
        return None
    moves = {place: _moves(edit.drain, tree, place) for place in targets}
    found = announce(version, targets, moves, note, at)
    found.validate(tree, str(edit))
    return found


def targets_of(version: Version, edit: Placed, tree: JoinTree) -> dict[Place, Target]:
    """Where groups are to be, for the stores that change."""
    wanted = (
        _scaled_stores(version, edit, tree)
        if isinstance(edit, Scale)
        else _moved_stores(version, edit, tree)
    )
    return {place: target for place, placement, target in wanted if _differs(target, placement)}


def _scaled_stores(
    version: Version, edit: Scale, tree: JoinTree
) -> Iterator[tuple[Place, Placement, Target]]:
    named = None if isinstance(edit.units, int) else edit.units
    _check_names(named or (), tree)
    for place, _, described, placement in _stores(version, tree):
        _check_apart(version, place)
        units = edit.units if named is None else named.get(described.name)
        if isinstance(units, int):
            routing = version.joins[place[0]].made.routing
            pinned = _pinned(version, tree, place[0])
            target = _scaled(edit, units, placement, routing, version, described.name, pinned)
            yield place, placement, target


def _moved_stores(
    version: Version, edit: Move | Moves, tree: JoinTree
) -> Iterator[tuple[Place, Placement, Target]]:
    moves = edit.moves if isinstance(edit, Moves) else (edit,)
    _check_names([one.stream for one in moves if one.stream is not None and one.join is None], tree)
    stores = list(_stores(version, tree))
    for move in moves:
        if not any(_concerns(move, place, described.name) for place, _, described, _ in stores):
            raise ControlError(
                f"no store is meant: {move}",
                hint="leave out join, stage or stream; joins and their stages are counted from 0",
            )
    for place, store, described, placement in stores:
        mine = [move for move in moves if _concerns(move, place, described.name)]
        if mine:
            _check_apart(version, place)
            units = (
                range(version.max_units)
                if isinstance(edit, Moves)
                else version.joins[place[0]].active(place[1])
            )
            pinned = _pinned(version, tree, place[0])
            yield place, placement, _moved(mine, units, placement, store, version, place, pinned)


def _check_apart(version: Version, place: Place) -> None:
    """Refuse to place groups anew where some units are for hot values alone."""
    count = version.joins[place[0]].made.hot_units
    if count:
        raise ControlError(
            f"{count} units of each stream are for hot values, and groups stay in their units",
            hint='use topology="stream-aware" without hot_keys, whose units all hold any value, if'
            " their number is to change while the query runs",
        )


class _Pinned(NamedTuple):
    """What hot keys need to stay as it is."""

    groups: frozenset[int]
    units: frozenset[int]


def _pinned(version: Version, tree: JoinTree, join: int) -> _Pinned:
    table = version.joins[join]
    return _Pinned(hot_groups(table, tree.steps[join].spec), hot_units(table))


def _concerns(move: Move, place: Place, name: str) -> bool:
    asked = (move.join, move.stage, move.stream)
    return all(one in (None, known) for one, known in zip(asked, (*place[:2], name), strict=True))


def _stores(
    version: Version, tree: JoinTree
) -> Iterator[tuple[Place, Store, StreamSpec, Placement]]:
    for join, (table, step) in enumerate(zip(version.joins, tree.steps, strict=True)):
        for stage in step.spec.stages:
            for number, store in enumerate(stage.stores):
                placement = table.stages[stage.number][number]
                place = (join, stage.number, number)
                yield place, store, step.spec.streams[store.stream], placement


def _check_names(names: Iterable[str], tree: JoinTree) -> None:
    known = [
        stream.name
        for step in tree.steps
        for stream in step.spec.streams
        if not stream.is_join_result
    ]
    for name in names:
        if name not in known:
            raise ControlError(
                f"there is no stream {name!r}", hint=f"choose among {', '.join(known)}"
            )


def _differs(target: Target, placement: Placement) -> bool:
    lines = {
        (target.lines[a], placement.lines[b])
        for a, b in zip(target.assigned, placement.assigned, strict=True)
    }
    return any(set(one) != set(two) for one, two in lines)


def _moves(drain: str, tree: JoinTree, place: Place) -> bool:
    """Whether the tuples of a store are carried over."""
    join, stage, number = place
    spec = tree.steps[join].spec
    forever = spec.stages[stage].stores[number].retention.keeps is None
    packs = bool(spec.stages[stage].packing)
    if packs and (drain == "move" or forever):
        raise ControlError(
            "tuples of a three-way join cannot be carried over: its intermediate results mix them",
            detail="  "
            + ("its full history never expires" if forever else 'drain="move" was asked for'),
            hint='use drain="expire", which waits until the window has passed; over the full'
            ' history, use JoinOptions(scheme="tree")',
        )
    if drain == "expire" and forever:
        name = spec.streams[spec.stages[stage].stores[number].stream].name
        raise ControlError(
            f"tuples of {name} are kept for ever and would never drain",
            hint='use drain="move" or leave it "auto"',
        )
    return drain == "move" or forever


def _moved(
    moves: Sequence[Move],
    units: Sequence[int],
    placement: Placement,
    store: Store,
    version: Version,
    place: Place,
    pinned: _Pinned,
) -> Target:
    """The store with all of the moves, but for those of hot keys' groups; `units` may have
    groups."""
    groups = store.group_by.groups
    used = sorted({placement.lines[line] for line in placement.assigned})
    contrand = version.joins[place[0]].made.routing is Routing.CONTRAND
    lines = [placement.lines[one] for one in placement.assigned]
    seen: set[int] = set()
    if pinned.groups.issuperset(group for move in moves for group in move.groups):
        raise ControlError(
            "groups of hot keys stay where they are",
            hint="move other groups, or wait until the keys have cooled; status() lists them",
        )
    for move in moves:
        wrong = [group for group in move.groups if not 0 <= group < groups]
        if wrong:
            raise ControlError(
                f"there is no group {wrong[0]}",
                hint=f"groups are numbered from 0 to {groups - 1}",
            )
        if move.to not in units:
            raise _no_unit(move.to, units)
        line = next((line for line in used if move.to in line), (move.to,))
        if contrand and line not in used:
            members = sorted(unit for line in used for unit in line)
            raise ControlError(
                f"unit {move.to} is in none of the subgroups",
                hint=f"choose among {', '.join(map(str, members))}",
            )
        twice = seen.intersection(move.groups)
        if twice:
            raise ControlError(
                f"group {min(twice)} is moved to several units", hint="name each group once"
            )
        seen.update(move.groups)
        for group in move.groups:
            if group not in pinned.groups:
                lines[group] = line
    return _target(lines)


def _no_unit(unit: int, units: Sequence[int]) -> ControlError:
    if isinstance(units, range):
        return ControlError(
            f"unit {unit} is not one of the {len(units)} units that there may be",
            hint=f"choose from 0 to {len(units) - 1}; a restart with JoinOptions(max_units=...)"
            " allows more",
        )
    return ControlError(
        f"unit {unit} is not active",
        hint=f"choose among {', '.join(map(str, units))}, or scale first",
    )


def _target(lines: Sequence[tuple[int, ...]]) -> Target:
    pool = {line: number for number, line in enumerate(dict.fromkeys(lines))}
    return Target(tuple(pool), tuple(pool[line] for line in lines))


def _scaled(
    edit: Scale,
    units: int,
    placement: Placement,
    routing: Routing,
    version: Version,
    name: str,
    pinned: _Pinned,
) -> Target:
    most = version.max_units
    if units > most:
        raise ControlError(
            f"{units} units for {name} are more than the {most} that there may be",
            hint=f"give from 1 to {most} units; a restart with JoinOptions(max_units=...) allows"
            " more",
        )
    lines = [placement.lines[line] for line in placement.assigned]
    if routing is Routing.CONTRAND:
        return _resized(lines, units, edit.subgroup, most, name)
    if edit.subgroup is not None:
        raise ControlError(
            f"topology {routing.value!r} has no subgroups", hint="leave out the subgroup"
        )
    if len(pinned.units) > units:
        raise ControlError(
            f"{units} units for {name} are fewer than the {len(pinned.units)} that hot keys have",
            hint="wait until these keys have cooled: status() lists them",
        )
    return _dealt([line[0] for line in lines], units, most, pinned)


def _dealt(holders: Sequence[int], units: int, most: int, pinned: _Pinned) -> Target:
    """Even shares of the groups, of which as few as possible change their unit."""
    chosen = _chosen(sorted(set(holders)), units, most, pinned.units)
    shares = {
        unit: (place + 1) * len(holders) // units - place * len(holders) // units
        for place, unit in enumerate(chosen)
    }
    kept = Counter(holders[group] for group in pinned.groups)
    found: list[int | None] = []
    for group, unit in enumerate(holders):
        if group in pinned.groups:
            found.append(unit)
            continue
        # The first groups of a unit stay, so that what it gives is in few pieces.
        stays = kept[unit] < shares.get(unit, 0)
        kept[unit] += stays
        found.append(unit if stays else None)
    free = (unit for unit in chosen for _ in range(shares[unit] - kept[unit]))
    return _target([(next(free) if unit is None else unit,) for unit in found])


def _chosen(known: Sequence[int], units: int, most: int, needed: frozenset[int]) -> list[int]:
    """So many units: those that are there, the lowest free numbers, without the highest ones that
    are not needed."""
    known = sorted(known, key=lambda unit: (unit not in needed, unit))
    free = (unit for unit in range(most) if unit not in known)
    more = [next(free) for _ in range(units - len(known))]
    return sorted([*known[:units], *more])


def _resized(
    lines: Sequence[tuple[int, ...]], units: int, subgroup: int | None, most: int, name: str
) -> Target:
    """ContRand's subgroups with more or fewer members; groups stay in their subgroups."""
    distinct = list(dict.fromkeys(lines))
    members = [sorted(line) for line in distinct]
    if subgroup is not None:
        if not 0 <= subgroup < len(members):
            raise ControlError(
                f"{name} has no subgroup {subgroup}",
                hint=f"subgroups are numbered from 0 to {len(members) - 1}",
            )
        units += sum(len(line) for line in members) - len(members[subgroup])
    if units < len(members) or units > most:
        raise ControlError(
            f"{units} units do not fit {name}: it has {len(members)} subgroups",
            hint=f"give from {len(members)} to {most} units",
        )
    only = range(len(members)) if subgroup is None else (subgroup,)
    used = {unit for line in members for unit in line}
    while len(used) < units:
        smallest = min(only, key=lambda number: len(members[number]))
        unit = next(unit for unit in range(most) if unit not in used)
        members[smallest].append(unit)
        used.add(unit)
    while len(used) > units:
        number = max(only, key=lambda number: (len(members[number]) > 1, max(members[number])))
        gone = max(members[number])
        members[number].remove(gone)
        used.remove(gone)
    changed: Lines = tuple(tuple(sorted(line)) for line in members)
    return _target([changed[distinct.index(line)] for line in lines])
