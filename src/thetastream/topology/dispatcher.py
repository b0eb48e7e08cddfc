"""The dispatcher: from a batch of one stream to the packs that travel to the units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from thetastream.errors import OptionError
from thetastream.index.bounds import interval
from thetastream.index.part import Tuples
from thetastream.spec import Encoding, JoinSpec, Routing
from thetastream.topology.band import BandBuckets
from thetastream.topology.biclique import ContRand
from thetastream.topology.content import content_hash
from thetastream.topology.matrix import Matrix
from thetastream.topology.routes import RoutingKeys, Topology


class Pack(NamedTuple):
    """Tuples of one stream for one unit, to be stored, probed with, or both."""

    unit: int
    stream: int
    role: int
    batch: pa.RecordBatch


def topology_of(spec: JoinSpec) -> Topology:
    """The topology that the spec names."""
    routing = spec.routing
    units = routing.units
    if routing.routing is Routing.HASH:
        return ContRand(units, units)
    if routing.routing is Routing.CONTRAND:
        return ContRand(units, routing.subgroups)
    if routing.routing is Routing.RANDOM:
        return ContRand(units, (1, 1))
    if routing.routing is Routing.MATRIX:
        return Matrix(*units)
    if routing.bucket_width is None or not spec.ranges:
        raise OptionError("band buckets need a width and a driving band")
    drive = spec.ranges[0]
    floating = (Encoding.FLOAT, Encoding.FLOAT_NAN_LOW)
    return BandBuckets(
        units,
        routing.bucket_width,
        (
            spec.streams[0].keys[drive.left].encoding in floating,
            spec.streams[1].keys[drive.right].encoding in floating,
        ),
    )


class Dispatcher:
    """Routes batches of one stream."""

    def __init__(self, spec: JoinSpec, stream: int) -> None:
        self._spec = spec
        self._stream = stream
        self._topology = topology_of(spec)

    @property
    def units(self) -> int:
        """Units in all."""
        return self._topology.units

    def dispatch(self, batch: pa.RecordBatch) -> Iterator[Pack]:
        """The packs of a batch."""
        if batch.num_rows == 0:
            return
        tuples = Tuples.encode(batch, self._spec.streams[self._stream])
        for unit, role, rows in self._topology.route(self._stream, self._keys(tuples)):
            whole = len(rows) == batch.num_rows
            yield Pack(unit, self._stream, role, batch if whole else batch.take(pa.array(rows)))

    def _keys(self, tuples: Tuples) -> RoutingKeys:
        spec, stream = self._spec, self._stream
        drive, reach = None, None
        if spec.routing.routing is Routing.BAND:
            rule = spec.ranges[0]
            own = rule.of(stream)
            drive = tuples.keys[own]
            reach = interval(rule, stream == 0, drive, spec.streams[stream].keys[own])
        return RoutingKeys(
            count=len(tuples),
            equality=None if spec.equality is None else tuples.keys[spec.equality.of(stream)],
            drive=drive,
            reach=reach,
            spread=content_hash(tuples) if self._topology.needs_spread else None,
        )
