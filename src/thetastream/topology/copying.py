"""The topologies that store a tuple several times, so that it visits few units: the baselines.

In the matrix, m x n cells, a tuple is stored in a whole row or column and visits there: a row and
a column cross in one cell, where the two meet. A broadcast is a matrix of one row or one column:
one stream is in every unit, and the other one's tuples stay where they are stored. With every
tuple of both streams in every unit, which is what a multi-chained index does, a tuple visits one
unit, whichever it is.
"""

from __future__ import annotations

from thetastream.errors import OptionError
from thetastream.spec import JoinSpec, RoutingSpec
from thetastream.topology.table import MAX_UNITS, Copies, Table, dealt_out


def matrix(spec: JoinSpec, routing: RoutingSpec) -> Table:
    """The first stream in rows of units, the second one in columns."""
    rows, columns = routing.units
    if rows * columns > MAX_UNITS:
        raise OptionError(f"a matrix of {rows} by {columns} has too many units")
    across = tuple(tuple(range(i * columns, (i + 1) * columns)) for i in range(rows))
    down = tuple(tuple(range(j, rows * columns, columns)) for j in range(columns))
    return Table(dealt_out(spec, [across, down]), routing, copies=Copies.CROSSING)


def everywhere(spec: JoinSpec, routing: RoutingSpec) -> Table:
    """Both streams in all units."""
    lines = [(tuple(range(units)),) for units in routing.units]
    return Table(dealt_out(spec, lines), routing, copies=Copies.EVERYWHERE)
