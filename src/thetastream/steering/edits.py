"""What can be asked of a table: more or fewer units, or groups in other units.

An edit says where groups are to be. Which steps lead there is the affair of `steps`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thetastream.errors import ControlError
from thetastream.spec import JoinTree, Routing, Store, StreamSpec
from thetastream.steering.steps import Lines, Place, Target, announce
from thetastream.steering.version import Note, Version
from thetastream.topology.table import Placement

DRAINS = ("auto", "expire", "move")
"""What becomes of stored tuples whose place changes: `expire` leaves them until the window has
passed, `move` carries them over, `auto` does that where they would stay for ever."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The edit that asks for a number of units: for all streams, or for some by their names.

    >>> print(ts.Scale(units={"orders": 4, "rides": 2}))
    scale to 4 units for orders, 2 units for rides
    """

    units: int | dict[str, int]
    subgroup: int | None = None
    """Of ContRand's subgroups only this one, which then has so many units."""
    drain: str = "auto"

    def __str__(self) -> str:
        units = self.units
        named = (
            _units(units)
            if isinstance(units, int)
            else ", ".join(f"{_units(count)} for {name}" for name, count in units.items())
        )
        where = "" if self.subgroup is None else f" in subgroup {self.subgroup}"
        return f"scale to {named}{where}{_how(self.drain)}"


@dataclass(frozen=True, kw_only=True)
class Move:
    """The edit that asks for groups to be held by another unit; in ContRand, by its subgroup.

    >>> print(ts.Move(groups=(12, 13), to=1, stream="orders"))
    move 2 groups (12, 13) of orders to unit 1
    """

    groups: tuple[int, ...]
    to: int
    stream: str | None = None
    """Of this stream only."""
    drain: str = "auto"

    def __str__(self) -> str:
        groups = sorted(self.groups)
        some = ", ".join(map(str, groups[:5])) + (", …" if len(groups) > 5 else "")
        whose = "" if self.stream is None else f" of {self.stream}"
        many = "group" if len(groups) == 1 else f"{len(groups)} groups"
        return f"move {many} ({some}){whose} to unit {self.to}{_how(self.drain)}"


Edit = Scale | Move


def _units(count: int) -> str:
    return "1 unit" if count == 1 else f"{count} units"


def _how(drain: str) -> str:
    return "" if drain == "auto" else f", drain={drain}"


def edit_to_json(edit: Edit) -> dict[str, Any]:
    """The edit as JSON takes it."""
    if isinstance(edit, Scale):
        found: dict[str, Any] = {"kind": "scale", "units": edit.units, "subgroup": edit.subgroup}
    else:
        found = {"kind": "move", "groups": list(edit.groups), "to": edit.to, "stream": edit.stream}
    return found | {"drain": edit.drain}


def edit_from_json(raw: Any) -> Edit:
    """The edit that somebody has written; anything else is refused."""
    if not isinstance(raw, Mapping):
        raise ControlError("a request is not an edit", hint="write requests with ts.control(...)")
    drain = raw.get("drain", "auto")
    if drain not in DRAINS:
        raise ControlError(
            f"drain={drain!r} is not a way to drain", hint=f"choose one of {', '.join(DRAINS)}"
        )
    if raw.get("kind") == "scale":
        return _scale(raw.get("units"), raw.get("subgroup"), drain)
    if raw.get("kind") == "move":
        return _move(raw.get("groups"), raw.get("to"), raw.get("stream"), drain)
    raise ControlError(f"{raw.get('kind')!r} is not an edit", hint="an edit is a scale or a move")


def _scale(units: Any, subgroup: Any, drain: str) -> Scale:
    counts = list(units.values()) if isinstance(units, Mapping) else [units]
    if not counts or not all(_is_number(one) and one >= 1 for one in counts):
        raise ControlError(
            f"units={units!r} is not a number of units",
            hint='give at least one: scale(4), or scale({"orders": 4, "rides": 2})',
        )
    if subgroup is not None and not _is_number(subgroup):
        raise ControlError(f"subgroup={subgroup!r} is not a number", hint="count from 0")
    found = dict(units) if isinstance(units, Mapping) else units
    return Scale(units=found, subgroup=subgroup, drain=drain)


def _move(groups: Any, to: Any, stream: Any, drain: str) -> Move:
    listed = [groups] if _is_number(groups) else groups
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise ControlError(f"groups={groups!r} are not groups", hint="give a list of numbers")
    if not all(map(_is_number, listed)) or not _is_number(to):
        raise ControlError(
            "groups and units are numbers", hint="move([12, 13], to=1); status() shows both"
        )
    if stream is not None and not isinstance(stream, str):
        raise ControlError(f"stream={stream!r} is not a name", hint="give the name of a stream")
    return Move(groups=tuple(dict.fromkeys(listed)), to=to, stream=stream, drain=drain)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# -- what an edit makes of a table ------------------------------------------------------------


def start(version: Version, edit: Edit, tree: JoinTree, note: Note, at: float) -> Version | None:
    """The first step towards what an edit asks for; None if that is so already."""
    targets = targets_of(version, edit, tree)
    if not targets:
        return None
    moves = {place: _moves(edit.drain, tree, place) for place in targets}
    found = announce(version, targets, moves, note, at)
    found.validate(tree, str(edit))
    return found


def targets_of(version: Version, edit: Edit, tree: JoinTree) -> dict[Place, Target]:
    """Where groups are to be, for the stores that change."""
    named: Mapping[str, int] | None = None
    stream: str | None = None
    if isinstance(edit, Scale) and not isinstance(edit.units, int):
        named = edit.units
    elif isinstance(edit, Move):
        stream = edit.stream
    _check_names([*(named or ()), *(() if stream is None else (stream,))], tree)
    found = {}
    for place, store, described, placement in _stores(version, tree):
        routing = version.joins[place[0]].made.routing
        if isinstance(edit, Move):
            if stream is not None and described.name != stream:
                continue
            target = _moved(edit, placement, store, version, place)
        else:
            units = named.get(described.name) if named is not None else edit.units
            if not isinstance(units, int):
                continue
            target = _scaled(edit, units, placement, routing, version, described.name)
        if _differs(target, placement):
            found[place] = target
    return found


def _stores(
    version: Version, tree: JoinTree
) -> Iterator[tuple[Place, Store, StreamSpec, Placement]]:
    for join, (table, step) in enumerate(zip(version.joins, tree.steps, strict=True)):
        for stage in step.spec.stages:
            for number, store in enumerate(stage.stores):
                placement = table.stages[stage.number][number]
                place = (join, stage.number, number)
                yield place, store, step.spec.streams[store.stream], placement


def _check_names(names: Sequence[str], tree: JoinTree) -> None:
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
    edit: Move, placement: Placement, store: Store, version: Version, place: Place
) -> Target:
    groups = store.group_by.groups
    wrong = [group for group in edit.groups if not 0 <= group < groups]
    if wrong:
        raise ControlError(
            f"there is no group {wrong[0]}", hint=f"groups are numbered from 0 to {groups - 1}"
        )
    join, stage, _ = place
    active = version.joins[join].active(stage)
    if edit.to not in active:
        raise ControlError(
            f"unit {edit.to} is not active",
            hint=f"choose among {', '.join(map(str, active))}, or scale first",
        )
    used = sorted({placement.lines[line] for line in placement.assigned})
    line = next((line for line in used if edit.to in line), (edit.to,))
    if version.joins[join].made.routing is Routing.CONTRAND and line not in used:
        members = sorted(unit for line in used for unit in line)
        raise ControlError(
            f"unit {edit.to} is in none of the subgroups",
            hint=f"choose among {', '.join(map(str, members))}",
        )
    lines = [placement.lines[one] for one in placement.assigned]
    for group in edit.groups:
        lines[group] = line
    return _target(lines)


def _target(lines: Sequence[tuple[int, ...]]) -> Target:
    pool = {line: number for number, line in enumerate(dict.fromkeys(lines))}
    return Target(tuple(pool), tuple(pool[line] for line in lines))


def _scaled(
    edit: Scale, units: int, placement: Placement, routing: Routing, version: Version, name: str
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
    return _dealt([line[0] for line in lines], units, most)


def _dealt(holders: Sequence[int], units: int, most: int) -> Target:
    """Even shares of the groups, of which as few as possible change their unit."""
    chosen = _chosen(sorted(set(holders)), units, most)
    shares = {
        unit: (place + 1) * len(holders) // units - place * len(holders) // units
        for place, unit in enumerate(chosen)
    }
    kept: Counter[int] = Counter()
    found: list[int | None] = []
    for unit in holders:
        # The first groups of a unit stay, so that what it gives is in few pieces.
        stays = kept[unit] < shares.get(unit, 0)
        kept[unit] += stays
        found.append(unit if stays else None)
    free = (unit for unit in chosen for _ in range(shares[unit] - kept[unit]))
    return _target([(next(free) if unit is None else unit,) for unit in found])


def _chosen(known: Sequence[int], units: int, most: int) -> list[int]:
    """So many units: those that are there, the lowest free numbers, without the highest ones."""
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
