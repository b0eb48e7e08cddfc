"""The topologies of a join-biclique: a tuple is stored once, in a unit of its own stream.

ContRand gives a group to a contiguous subgroup of the units: one of its members stores a tuple, all
of them are visited. One unit in each subgroup is BiStream's hash routing. Random routing is the
same with tuples that are grouped by their content: nobody knows a partner's group, so that every
unit is visited. A split join is random routing whose units hold both streams. By what tuples are
grouped is the join's own affair; band buckets and TriJoin's stores are dealt out like keys.
"""

from __future__ import annotations

from itertools import pairwise

from thetastream.spec import JoinSpec, RoutingSpec
from thetastream.topology.table import LinesOfUnits, Table, dealt_out


def biclique(spec: JoinSpec, routing: RoutingSpec) -> Table:
    """Each stream's groups in contiguous subgroups of its units."""
    subgroups = routing.subgroups or routing.units
    lines = [_shares(m, d) for m, d in zip(routing.units, subgroups, strict=True)]
    return Table(dealt_out(spec, lines), routing)


def _shares(units: int, subgroups: int) -> LinesOfUnits:
    """Units in contiguous subgroups whose sizes differ by at most one."""
    edges = [round(number * units / subgroups) for number in range(subgroups + 1)]
    return tuple(tuple(range(a, b)) for a, b in pairwise(edges))
