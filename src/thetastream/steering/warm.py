"""Hot values of stream-aware joins: which are listed in the next version.

It has one step, other than a hot key of an equality, see `topology.hotvalues`.
"""

from __future__ import annotations

from thetastream.steering.edits import Heat
from thetastream.topology.hotvalues import HotValue
from thetastream.topology.table import Table


def next_values(table: Table, join: int, wish: Heat | None, at: float) -> tuple[HotValue, ...]:
    """The hot values of a join, after those have been added that a wish names, and those taken out
    that have cooled."""
    if wish is None or not table.made.hot_units:
        return table.values
    known = {one.key: one for one in table.values}
    for number, key in wish.cool:
        if number == join:
            known.pop(key, None)
    for one in wish.keys:
        if one.join == join and one.key not in known:
            known[one.key] = HotValue(
                key=one.key, stream=one.stream, at=at, share=one.share, shown=one.shown
            )
    return tuple(known[key] for key in sorted(known))
