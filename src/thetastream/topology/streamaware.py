"""STA's topology: hot values have units of their own, and all other tuples any of the rest.

A tuple is stored once and visits all units of the other stream, so that it makes no difference to
the results which values are hot. These are named when the join starts, or listed in a table that
changes (`hotvalues`); every unit finds out by itself which of its values are hot in its index.
"""

from __future__ import annotations

from thetastream.spec import HOT_GROUPS, GroupBy, JoinSpec, RoutingSpec
from thetastream.topology.bicliques import biclique
from thetastream.topology.table import Placement, Table


def stream_aware(spec: JoinSpec, routing: RoutingSpec) -> Table:
    """The last units of each stream for its hot values; without such, all units for all."""
    if not routing.hot_units:
        return biclique(spec, routing)
    stages = tuple(
        tuple(
            _placed(store.group_by, routing.units[store.stream], routing.hot_units)
            for store in stage.stores
        )
        for stage in spec.stages
    )
    return Table(stages, routing)


def _placed(by: GroupBy, units: int, hot: int) -> Placement:
    """The hot groups are the last ones."""
    cold, groups = units - hot, by.groups - HOT_GROUPS
    chosen = [group * cold // groups for group in range(groups)]
    chosen += [cold + group * hot // HOT_GROUPS for group in range(HOT_GROUPS)]
    return Placement(tuple((unit,) for unit in range(units)), tuple(chosen))
