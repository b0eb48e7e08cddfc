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


def biclique_memory() -> tuple[float, float]:
    """Equation 1: every tuple is stored once, however many units there are."""
    return 1.0, 1.0


def matrix_memory(m: int, n: int) -> tuple[float, float]:
    """Equation 2: a tuple is stored in a whole row or column."""
    return float(n), float(m)


def biclique_bandwidth(m: int, n: int, d: int, e: int) -> tuple[float, float]:
    """Equation 5: once to be stored, and to each member of the opposite subgroup."""
    return n / e + 1, m / d + 1


def matrix_bandwidth(m: int, n: int) -> tuple[float, float]:
    """Equation 6: to each cell of the row or column."""
    return float(n), float(m)


def band_bandwidth(m: int, n: int, extent: float, width: float) -> tuple[float, float]:
    """Once to be stored, and to the buckets that a probe of that extent touches on average."""
    touched = 1 + extent / width
    return 1 + min(touched, n), 1 + min(touched, m)


def cost(
    routing: Routing,
    units: tuple[int, int],
    subgroups: tuple[int, int],
    band: tuple[float, float] | None,
) -> Cost:
    """The cost of one topology; `band` is the extent of the band and the width of a bucket."""
    m, n = units
    if routing is Routing.MATRIX:
        return Cost(routing, matrix_memory(m, n), matrix_bandwidth(m, n))
    if routing is Routing.BAND and band is not None:
        return Cost(routing, biclique_memory(), band_bandwidth(m, n, *band))
    groups = {Routing.HASH: units, Routing.CONTRAND: subgroups}.get(routing, (1, 1))
    return Cost(routing, biclique_memory(), biclique_bandwidth(m, n, *groups))


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
