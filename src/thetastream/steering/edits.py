"""What can be asked of a table: more or fewer units, or groups in other units.

An edit is a wish: `targets` says where groups are to be for it, and `steps` how they get there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from thetastream.engine.arrivals import printable
from thetastream.errors import ControlError
from thetastream.spec.codec import read

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
    join: int | None = None
    """Of this join only, where several two-way joins follow each other."""
    stage: int | None = None
    """Of this stage only, where a join has several."""
    drain: str = "auto"

    def __str__(self) -> str:
        groups = sorted(self.groups)
        some = ", ".join(map(str, groups[:5])) + (", …" if len(groups) > 5 else "")
        whose = "" if self.stream is None else f" of {self.stream}"
        many = "group" if len(groups) == 1 else f"{len(groups)} groups"
        places = (("join", self.join), ("stage", self.stage))
        where = "".join(f", {name} {number}" for name, number in places if number is not None)
        return f"move {many} ({some}){whose} to unit {self.to}{where}{_how(self.drain)}"


@dataclass(frozen=True, kw_only=True)
class Moves:
    """The edit that asks for several moves as one change.

    Other than those of a `Move`, its units may be new ones: a unit that has held nothing so far
    becomes active with the groups that it gets.

    >>> print(ts.Moves(moves=(ts.Move(groups=(12,), to=1), ts.Move(groups=(40, 41), to=2))))
    move group (12) to unit 1; move 2 groups (40, 41) to unit 2
    """

    moves: tuple[Move, ...]
    drain: str = "auto"
    """Of all of them."""

    def __post_init__(self) -> None:
        if not self.moves:
            raise ControlError("there are no moves in it", hint="give at least one")
        if any(move.drain != "auto" for move in self.moves):
            raise ControlError(
                "the moves of one change drain in one way",
                hint="give drain once, beside the moves",
            )

    def __str__(self) -> str:
        return "; ".join(map(str, self.moves)) + _how(self.drain)


@dataclass(frozen=True, kw_only=True)
class HotWish:
    """A key that is to be split, in the stream in which it is frequent.

    >>> ts.HotWish(stream="orders", key=7, units=3).units
    3
    """

    stream: str
    key: int
    """The 64-bit code by which tuples are routed; of an integer, the number itself."""
    units: int = 2
    """How many units it is to have."""
    join: int = 0
    """Where several two-way joins follow each other, the one that is meant."""
    prefer: tuple[int, ...] = ()
    """Units in the order in which they are chosen, after those of the key's group."""
    share: float = 0.0
    """Its share of the rows, for people."""
    shown: str = ""
    """Its value as people read it, in one short line."""

    def __post_init__(self) -> None:
        share: object = self.share
        if isinstance(share, bool) or not isinstance(share, float | int) or not isfinite(share):
            raise ControlError(f"share={share!r} is not a share of the rows", hint="give 0.25")
        if not isinstance(self.shown, str):
            raise ControlError(f"shown={self.shown!r} is not a text", hint="leave it out")
        # As a version has it after it was written and read: its digest is taken of that.
        object.__setattr__(self, "share", float(share))
        object.__setattr__(self, "shown", printable(self.shown))

    @property
    def name(self) -> str:
        """The key in words."""
        return self.shown or str(self.key)


@dataclass(frozen=True, kw_only=True)
class Heat:
    """The edit that asks for keys to be split, and for others to be split no longer.

    >>> print(ts.Heat(keys=(ts.HotWish(stream="orders", key=7),)))
    split key 7 of orders over 2 units
    """

    keys: tuple[HotWish, ...] = ()
    cool: tuple[tuple[int, int], ...] = ()
    """The number of a join, and the code of a key."""
    drain: str = "auto"

    def __str__(self) -> str:
        said = [f"split key {one.name} of {one.stream} over {one.units} units" for one in self.keys]
        said += [f"cool key {key}" for _, key in self.cool]
        return "; ".join(said) or "nothing"


Edit = Scale | Move | Moves | Heat


def _units(count: int) -> str:
    return "1 unit" if count == 1 else f"{count} units"


def _how(drain: str) -> str:
    return "" if drain == "auto" else f", drain={drain}"


def edit_to_json(edit: Edit) -> dict[str, Any]:
    """The edit as JSON takes it."""
    if isinstance(edit, Scale):
        found: dict[str, Any] = {"kind": "scale", "units": edit.units, "subgroup": edit.subgroup}
    elif isinstance(edit, Move):
        found = {"kind": "move"} | _move_to_json(edit)
    elif isinstance(edit, Heat):
        keys = [asdict(one) for one in edit.keys]
        found = {"kind": "heat", "keys": keys, "cool": [list(one) for one in edit.cool]}
    else:
        found = {"kind": "moves", "moves": [_move_to_json(move) for move in edit.moves]}
    return found | {"drain": edit.drain}


def _move_to_json(move: Move) -> dict[str, Any]:
    return {
        "groups": list(move.groups),
        "to": move.to,
        "stream": move.stream,
        "join": move.join,
        "stage": move.stage,
    }


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
        return _move(raw, drain)
    if raw.get("kind") == "moves":
        return _several(raw.get("moves"), drain)
    if raw.get("kind") == "heat":
        return _heat(raw.get("keys"), raw.get("cool"), drain)
    raise ControlError(
        f"{raw.get('kind')!r} is not an edit",
        hint="an edit is a scale, a move, several moves or a heat",
    )


def _heat(keys: Any, cool: Any, drain: str) -> Heat:
    try:
        wishes = tuple(read(HotWish, one) for one in keys)
        cooled = tuple((join, key) for join, key in cool)
    except (AttributeError, TypeError, ValueError, LookupError) as error:
        raise ControlError("keys to be split are not readable", hint="give ts.Heat") from error
    numbers = [*(number for pair in cooled for number in pair)]
    numbers += [number for one in wishes for number in (one.key, one.units, one.join, *one.prefer)]
    if not all(map(_is_number, numbers)) or not all(isinstance(w.stream, str) for w in wishes):
        raise ControlError(
            "keys, units and joins are numbers, streams are names", hint="give ts.Heat"
        )
    if any(not -(1 << 63) <= one.key < 1 << 63 for one in wishes):
        raise ControlError("a key has a code of 64 bits", hint="take codes from the reports")
    if any(one.units < 2 for one in wishes):
        raise ControlError("a key is split over two units or more", hint="give units=2")
    return Heat(keys=wishes, cool=cooled, drain=drain)


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


def _several(moves: Any, drain: str) -> Moves:
    if not isinstance(moves, Sequence) or not all(isinstance(one, Mapping) for one in moves):
        raise ControlError(f"moves={moves!r} are not moves", hint="give a list of moves")
    return Moves(moves=tuple(_move(one, "auto") for one in moves), drain=drain)


def _move(raw: Mapping[str, Any], drain: str) -> Move:
    groups, stream = raw.get("groups"), raw.get("stream")
    to: Any = raw.get("to")
    listed = [groups] if _is_number(groups) else groups
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise ControlError(f"groups={groups!r} are not groups", hint="give a list of numbers")
    if not all(map(_is_number, listed)) or not _is_number(to):
        raise ControlError(
            "groups and units are numbers", hint="move([12, 13], to=1); status() shows both"
        )
    if stream is not None and not isinstance(stream, str):
        raise ControlError(f"stream={stream!r} is not a name", hint="give the name of a stream")
    places = {name: raw.get(name) for name in ("join", "stage")}
    for name, number in places.items():
        if number is not None and not _is_number(number):
            raise ControlError(f"{name}={number!r} is not a number", hint="count from 0")
    chosen = tuple(dict.fromkeys(listed))
    return Move(groups=chosen, to=to, stream=stream, **places, drain=drain)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
