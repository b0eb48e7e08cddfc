"""The topologies: each is a way to give the groups of a join's stores to units.

ContRand gives a group to a contiguous subgroup of the units: one of its members stores a tuple, all
of them are visited. One unit in each subgroup is BiStream's hash routing. Random routing is the
same with tuples that are grouped by their content: nobody knows a partner's group, so that every
unit is visited. By what tuples are grouped is the join's own affair; band buckets and TriJoin's
stores are dealt out like keys. The matrix is the baseline: m x n cells, and a tuple is kept in a
whole row or column.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from thetastream.errors import OptionError
from thetastream.spec import GroupBy, JoinSpec, Routing, RoutingSpec
from thetastream.topology.table import MAX_UNITS, Placement, Table

Lines = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=64)
def make(spec: JoinSpec, routing: RoutingSpec) -> Table:
    """The table of a join."""
    if len(routing.units) != len(spec.streams):
        raise OptionError(f"{len(routing.units)} numbers of units for {len(spec.streams)} streams")
    if routing.routing is Routing.MATRIX:
        rows, columns = routing.units
        if rows * columns > MAX_UNITS:
            raise OptionError(f"a matrix of {rows} by {columns} has too many units")
        across = tuple(tuple(range(i * columns, (i + 1) * columns)) for i in range(rows))
        down = tuple(tuple(range(j, rows * columns, columns)) for j in range(columns))
        lines = [across, down]
    else:
        subgroups = routing.subgroups or routing.units
        lines = [_shares(m, d) for m, d in zip(routing.units, subgroups, strict=True)]
    stages = tuple(
        tuple(_placed(lines[store.stream], store.group_by) for store in stage.stores)
        for stage in spec.stages
    )
    table = Table(stages, routing, copies=routing.routing is Routing.MATRIX)
    table.validate(spec)
    return table


def _placed(lines: Lines, by: GroupBy) -> Placement:
    """Contiguous shares of the groups, so that keys that are dealt evenly lie evenly."""
    return Placement(lines, tuple(g * len(lines) // by.groups for g in range(by.groups)))


def _shares(units: int, subgroups: int) -> Lines:
    """Units in contiguous subgroups whose sizes differ by at most one."""
    edges = [round(number * units / subgroups) for number in range(subgroups + 1)]
    return tuple(tuple(range(a, b)) for a, b in pairwise(edges))
