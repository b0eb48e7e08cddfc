"""BiStream's estimates of memory and bandwidth, in copies of a tuple.

Rates and sizes are taken as one for both streams, so a cost says how often one tuple of each
stream is stored and sent. m and n are the units that store the first and the second stream, d and e
their subgroups.
"""

from __future__ import annotations

from dataclasses import dataclass

from thetastream.spec import JoinSpec, Routing, RoutingSpec
from thetastream.topology.groups import is_sent_by_content


@dataclass(frozen=True)
class Cost:
    """What one topology costs per tuple of the first and of the second stream.

    >>> options = ts.JoinOptions(units=4)
    >>> pair = ts.streams(orders=orders, rides=rides)
    >>> for cost in pair.explain("orders.x > rides.x", options=options).costs:
    ...     print(cost.routing, cost.memory, cost.bandwidth)
    random (1.0, 1.0) (5.0, 5.0)
    matrix (2.0, 2.0) (2.0, 2.0)
    """

    routing: Routing
    memory: tuple[float, float]
    """Copies stored."""
    bandwidth: tuple[float, float]
    """Messages sent."""

    @property
    def total(self) -> float:
        """Messages plus stored copies, for one tuple of each stream."""
        return sum(self.memory) + sum(self.bandwidth)


def cost(
    routing: Routing,
    units: tuple[int, int],
    subgroups: tuple[int, int],
    band: tuple[float, float] | None,
) -> Cost:
    """The cost of one topology; `band` is the extent of the band and the width of a bucket."""
    m, n = units
    if routing.copies:
        # Equations 2 and 6: stored in, and sent to, each cell of a row or column. Of a broadcast,
        # one of the two is one; where all units have all tuples, both are as many as units.
        cells = (float(n), float(m))
        return Cost(routing, cells, cells)
    # Equation 1: every tuple is stored once, however many units there are.
    once = (1.0, 1.0)
    if routing is Routing.BAND and band is not None:
        # Sent once to be stored, and to the buckets that a probe touches on average.
        extent, width = band
        touched = 1 + extent / width
        return Cost(routing, once, (1 + min(touched, n), 1 + min(touched, m)))
    # Equation 5: sent once to be stored, and to each member of the opposite subgroup.
    d, e = {Routing.HASH: units, Routing.CONTRAND: subgroups}.get(routing, (1, 1))
    return Cost(routing, once, (n / e + 1, m / d + 1))


def squarest(total: int) -> tuple[int, int]:
    """The rows and columns of the most square matrix of that many cells."""
    rows = int(total**0.5)
    while total % rows:
        rows -= 1
    return rows, total // rows


def messages(spec: JoinSpec, routing: RoutingSpec, stream: int) -> float:
    """The messages of one tuple of the stream: one to be stored, one for each unit it visits."""
    total = 1.0
    for store in (store for stage in spec.stages for store in stage.stores):
        if store.stream != stream:
            by_content = is_sent_by_content(spec.edge(stream, store.stream), store)
            total += 1.0 if by_content else float(routing.units[store.stream])
    return total
