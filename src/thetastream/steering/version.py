"""One version of a query's routing tables, as a text that a person can read, and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from thetastream.errors import ControlError, ThetastreamError
from thetastream.spec import JoinSpec, JoinTree, RoutingSpec
from thetastream.spec.codec import read
from thetastream.topology.hot import HotKey
from thetastream.topology.hotvalues import HotValue, named_values
from thetastream.topology.live import Live, Step, Transfer
from thetastream.topology.makers import make
from thetastream.topology.table import Placement, Table

FORMAT = 1
HOT_FORMAT = 2
"""With hot keys: a release that knows none must not route by it."""
VALUES_FORMAT = 3
"""With hot values of inequalities and bands, for the same reason."""
FORMATS = (FORMAT, HOT_FORMAT, VALUES_FORMAT)


@dataclass(frozen=True, kw_only=True)
class Note:
    """Why a version was made."""

    change: int = 0
    """The number of the change that it is a step of; the first table is change 0."""
    by: str = "join"
    """Who asked for the change: `hand`, or the name of a policy."""
    why: str = "the first table"
    request: str = ""
    """The request that it answers."""
    what: dict[str, Any] = field(default_factory=dict)
    """The edit, as it was asked for."""


@dataclass(frozen=True, kw_only=True)
class Version:
    """The tables of all joins of a query."""

    control: str
    """The control directory that it is from."""
    version: int
    step: Step
    max_units: int
    joins: tuple[Table, ...]
    note: Note
    at: float
    """When it was made, in seconds since 1970."""
    previous: int = 0
    """The digest of the version before."""

    @cached_property
    def digest(self) -> int:
        """What tells it apart from other versions of its number."""
        return _digest(_checksum(self.to_json()))

    def to_json(self) -> dict[str, Any]:
        """All that it says, but for its checksum."""
        return {
            "format": _format(self.joins),
            "control": self.control,
            "version": self.version,
            "previous": self.previous,
            "step": self.step.value,
            "max_units": self.max_units,
            "at": self.at,
            "note": asdict(self.note),
            "joins": [_join_to_json(table) for table in self.joins],
        }

    def to_text(self) -> str:
        """The version as it is stored."""
        raw = self.to_json()
        lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in raw.items()]
        lines.append(f' "checksum": "{_checksum(raw)}"')
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_text(cls, text: str, where: str) -> Version:
        """The version that `to_text` wrote; `where` it was read, for errors."""
        try:
            raw: dict[str, Any] = json.loads(text)
            if raw["format"] not in FORMATS:
                known = f"{', '.join(map(str, FORMATS[:-1]))} and {FORMATS[-1]}"
                # Not damaged: another release may need it.
                raise ControlError(
                    f"{where} has format {raw['format']}; this release reads {known}",
                    hint="use the release that wrote it",
                )
            checksum = raw.pop("checksum")
            if checksum != _checksum(raw):
                raise _refused(where, "its checksum is not that of its content")
            return cls(
                control=raw["control"],
                version=raw["version"],
                step=Step(raw["step"]),
                max_units=raw["max_units"],
                joins=tuple(_join_from_json(one) for one in raw["joins"]),
                note=read(Note, raw["note"]),
                at=float(raw["at"]),
                previous=raw["previous"],
            ).lived()
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, ThetastreamError):
                raise
            raise _refused(where, f"{type(error).__name__}: {error}") from error

    def lived(self) -> Version:
        """The same, its tables knowing which version they are of."""
        joins = []
        for table in self.joins:
            known = table.live
            live = Live(
                control=self.control,
                version=self.version,
                step=self.step,
                max_units=self.max_units,
                since=known.since if known is not None else _all_since(table),
                previous=self.previous,
                transfers=known.transfers if known is not None else (),
            )
            joins.append(replace(table, live=live))
        found = replace(self, joins=tuple(joins))
        digest = found.digest
        lived = tuple(replace(one, live=replace(one.live, digest=digest)) for one in joins)  # type: ignore[type-var]
        return replace(self, joins=lived)

    def validate(self, tree: JoinTree, where: str) -> None:
        """Refuse tables that do not fit the joins."""
        if len(self.joins) != len(tree.steps):
            raise _refused(
                where, f"it is for {len(self.joins)} joins, and there are {len(tree.steps)}"
            )
        for number, step in enumerate(tree.steps):
            self.table(number, step.spec, where)

    def table(self, join: int, spec: JoinSpec, where: str) -> Table:
        """The table of one of the joins, checked."""
        if not 0 <= join < len(self.joins):
            raise _refused(where, f"it has no table of join {join}")
        try:
            self.joins[join].validate(spec)
        except ThetastreamError as error:
            raise _refused(where, error.what) from error
        return self.joins[join]


def first_version(control: str, tree: JoinTree, max_units: int, at: float) -> Version:
    """The version with which a query starts."""
    joins = tuple(_first_table(step.spec, step.routing, at) for step in tree.steps)
    found = Version(
        control=control,
        version=0,
        step=Step.SETTLED,
        max_units=max_units,
        joins=joins,
        note=Note(),
        at=at,
    ).lived()
    found.validate(tree, "the first table")
    return found


def _first_table(spec: JoinSpec, routing: RoutingSpec, at: float) -> Table:
    made = make(spec, routing)
    return replace(made, values=named_values(spec, at)) if routing.hot_units else made


def _format(joins: Sequence[Table]) -> int:
    """The oldest format that can say it."""
    if any(table.values for table in joins):
        return VALUES_FORMAT
    return HOT_FORMAT if any(table.hot for table in joins) else FORMAT


def _all_since(table: Table) -> tuple[tuple[int, ...], ...]:
    return tuple((0,) * table.units(stage) for stage in range(len(table.stages)))


class DamagedControlError(ControlError):
    """A file that routing depends on is not as it was written."""


def _refused(where: str, why: str) -> DamagedControlError:
    return DamagedControlError(
        f"a routing table is refused: {where}",
        detail=f"  {why}",
        hint="put back the file as it was written; tables are changed with ts.control(...) or"
        " thetastream control",
    )


def _checksum(raw: dict[str, Any]) -> str:
    text = json.dumps(raw, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(checksum: str) -> int:
    """A positive number of 63 bits."""
    return int(checksum[:16], 16) >> 1


# -- tables ---------------------------------------------------------------------------------------


def _join_to_json(table: Table) -> dict[str, Any]:
    live = table.live
    since = live.since if live is not None else _all_since(table)
    hot = {"hot": [asdict(one) for one in table.hot]} if table.hot else {}
    if table.values:
        hot["values"] = [asdict(one) for one in table.values]
    return {
        "routing": asdict(table.made),
        "stages": [
            {"since": list(units), "stores": [_placement_to_json(one) for one in placements]}
            for units, placements in zip(since, table.stages, strict=True)
        ],
        "transfers": [asdict(one) for one in (live.transfers if live is not None else ())],
        **hot,
    }


def _join_from_json(raw: dict[str, Any]) -> Table:
    stages = raw["stages"]
    live = Live(
        control="",
        version=0,
        step=Step.SETTLED,
        max_units=1,
        since=tuple(tuple(int(one) for one in stage["since"]) for stage in stages),
        transfers=tuple(read(Transfer, one) for one in raw["transfers"]),
    )
    return Table(
        tuple(tuple(_placement_from_json(one) for one in stage["stores"]) for stage in stages),
        read(RoutingSpec, raw["routing"]),
        live=live,
        hot=tuple(_hot_from_json(one) for one in raw.get("hot", [])),
        values=tuple(_value_from_json(one) for one in raw.get("values", [])),
    )


def _hot_from_json(raw: dict[str, Any]) -> HotKey:
    found = read(HotKey, raw)
    return replace(
        found,
        key=int(found.key),
        split=int(found.split),
        units=tuple(map(int, found.units)),
        spread=tuple(map(int, found.spread)),
        since=int(found.since),
        changed=int(found.changed),
        at=float(found.at),
        share=float(found.share),
    )


def _value_from_json(raw: dict[str, Any]) -> HotValue:
    found = read(HotValue, raw)
    return replace(
        found,
        key=int(found.key),
        stream=str(found.stream),
        at=float(found.at),
        share=float(found.share),
        shown=str(found.shown),
    )


def _placement_to_json(placement: Placement) -> dict[str, Any]:
    return {
        "lines": [list(line) for line in placement.lines],
        "stored": _lines_to_json(placement.assigned),
        "visited": _lines_to_json(placement.visited),
        "planned": _lines_to_json(placement.planned),
        "switched": placement.switched,
        "moves": placement.moves,
        "left": list(placement.left),
    }


def _placement_from_json(raw: dict[str, Any]) -> Placement:
    return Placement(
        lines=tuple(tuple(int(unit) for unit in line) for line in raw["lines"]),
        assigned=_numbers(raw["stored"]),
        visited=_numbers(raw["visited"]),
        planned=_numbers(raw["planned"]),
        switched=int(raw["switched"]),
        moves=bool(raw["moves"]),
        left=tuple(int(unit) for unit in raw["left"]),
    )


def ranges_of(chosen: Sequence[int]) -> list[list[int]]:
    """Lines of groups as [first group, last group, line]."""
    if not chosen:
        return []
    lines = np.array(chosen)
    starts = np.flatnonzero(np.r_[True, lines[1:] != lines[:-1]])
    ends = np.r_[starts[1:], len(lines)] - 1
    found: list[list[int]] = np.column_stack([starts, ends, lines[starts]]).tolist()
    return found


def _lines_to_json(lines: Sequence[int]) -> list[Any]:
    """Return the lines of groups as ranges or, where few neighbours agree, one by one."""
    ranges = ranges_of(lines)
    return ranges if len(ranges) * _RANGE_NUMBERS < len(lines) else list(lines)


def _numbers(raw: Sequence[Any]) -> tuple[int, ...]:
    """Return the lines of groups that `_lines_to_json` wrote."""
    if raw and isinstance(raw[0], int):
        if len(raw) > MOST_GROUPS:
            raise ValueError("a table has too many groups")
        return tuple(map(int, raw))
    lines: list[int] = []
    for first, last, line in raw:
        if first != len(lines) or not first <= last < MOST_GROUPS:
            raise ValueError("groups are listed in their order, each once")
        lines += [int(line)] * (last - first + 1)
    return tuple(lines)


_RANGE_NUMBERS = 3


MOST_GROUPS = 1 << 20
"""Groups that a table may place: a damaged file does not fill the memory."""
