"""Which function makes the table of a topology: one line for each of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from thetastream.errors import OptionError
from thetastream.spec import JoinSpec, Routing, RoutingSpec
from thetastream.topology.bicliques import biclique
from thetastream.topology.copying import everywhere, matrix
from thetastream.topology.streamaware import stream_aware
from thetastream.topology.table import Table

Maker = Callable[[JoinSpec, RoutingSpec], Table]

MAKERS: Final[dict[Routing, Maker]] = {
    Routing.HASH: biclique,
    Routing.CONTRAND: biclique,
    Routing.RANDOM: biclique,
    Routing.BAND: biclique,
    Routing.SPLIT: biclique,
    Routing.MATRIX: matrix,
    Routing.BROADCAST: matrix,
    Routing.MULTI_CHAINED: everywhere,
    Routing.STREAM_AWARE: stream_aware,
}


@lru_cache(maxsize=64)
def make(spec: JoinSpec, routing: RoutingSpec) -> Table:
    """The table of a join."""
    if len(routing.units) != len(spec.streams):
        raise OptionError(f"{len(routing.units)} numbers of units for {len(spec.streams)} streams")
    table = MAKERS[routing.routing](spec, routing)
    table.validate(spec)
    return table
