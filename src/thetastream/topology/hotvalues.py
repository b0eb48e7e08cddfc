"""Hot values of a stream-aware join that change while it runs.

A row with a hot value is stored in the units that are for such values, and any other row in one of
the rest. A visitor comes to all of these units, whatever is hot. So a row is met once wherever it
was stored: a list of hot values takes the place of another one in a single version, nothing drains,
and routers that are one version apart are both right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from thetastream.errors import OptionError
from thetastream.index.encoding import decode_floats
from thetastream.spec import Encoding, HotValues, JoinSpec, KeySpec, Stage, Store

if TYPE_CHECKING:
    from thetastream.topology.table import Table


@dataclass(frozen=True, kw_only=True)
class HotValue:
    """A value whose new rows are stored in the units for hot values, those of either stream."""

    key: int
    """Its 64-bit code."""
    stream: str
    """The stream in which it was found to be frequent."""
    at: float = 0.0
    """When it became hot, in seconds since 1970."""
    share: float = 0.0
    """Its share of the rows at that time."""
    shown: str = ""
    """The value as people read it."""


def with_values(stage: Stage, table: Table) -> Stage:
    """A stage whose rows are grouped by the hot values of the table, if that changes; what the spec
    names are the values of the first version."""
    if table.live is None or all(store.group_by.hot is None for store in stage.stores):
        return stage
    codes = tuple(one.key for one in table.values)
    return replace(stage, stores=tuple(_with(store, codes, table) for store in stage.stores))


def _with(store: Store, codes: tuple[int, ...], table: Table) -> Store:
    by = store.group_by
    if by.hot is None:
        return store
    hot = HotValues(key=by.hot.key, codes=codes) if table.made.hot_units else None
    return replace(store, group_by=replace(by, hot=hot))


def named_values(spec: JoinSpec, at: float) -> tuple[HotValue, ...]:
    """The values that the spec names."""
    found: dict[int, HotValue] = {}
    for store in spec.stages[0].stores:
        hot, stream = store.group_by.hot, spec.streams[store.stream]
        for code in () if hot is None else hot.codes:
            shown = _shown(code, stream.keys[hot.key]) if hot is not None else ""
            found.setdefault(code, HotValue(key=code, stream=stream.name, at=at, shown=shown))
    return tuple(found[code] for code in sorted(found))


def _shown(code: int, key: KeySpec) -> str:
    """A number as people read it; of other values nothing, as their codes do not tell."""
    if key.encoding.floating:
        return str(float(decode_floats(np.array([code], dtype=np.int64))[0]))
    numbers = ("tinyint", "smallint", "int", "bigint")
    return str(code) if key.encoding is Encoding.INTEGER and key.type in numbers else ""


def units_for_values(table: Table) -> tuple[int, ...]:
    """The units that are for hot values of either stream; none if these are not apart."""
    return tuple(sorted(frozenset().union(*table.apart)))


def is_stored_in(table: Table, place: int, unit: int, key: int) -> bool:
    """Whether new tuples of one of the stores may be stored in a unit, as far as their value being
    hot or not decides it."""
    hot = any(one.key == key for one in table.values)
    return not table.made.hot_units or hot == (unit in table.apart[place])


def check_values(table: Table, spec: JoinSpec) -> None:
    """Refuse values that no unit is there for, and lists that nobody has written so."""
    if not table.values:
        return
    if table.live is None or not table.made.hot_units:
        raise OptionError("hot values of a table that changes have units of their own")
    codes = [one.key for one in table.values]
    if codes != sorted(set(codes)):
        raise OptionError("hot values are listed once each, in ascending order")
    names = {stream.name for stream in spec.streams}
    if not all(one.stream in names for one in table.values):
        raise OptionError("a hot value is one of a stream of the join")
    if not all(-(1 << 63) <= code < 1 << 63 for code in codes):
        raise OptionError("a hot value has a code of 64 bits")
