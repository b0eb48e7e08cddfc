"""Routing of TriJoin: each tuple is stored in its own group and visits the other two.

A group shares its tuples out by the key of an equality or of a band, or at random. Tuples of a
stream that is compared on that same key are sent by content; all others visit every unit of the
group. A tuple travels to a unit once, however many of its groups it is for.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from thetastream.graph import Placement, Stage, content_range
from thetastream.index.bounds import interval
from thetastream.index.encoding import Bools
from thetastream.index.part import Tuples
from thetastream.spec import Encoding, Routing
from thetastream.topology.band import buckets, touched_units
from thetastream.topology.content import content_hash
from thetastream.topology.dispatcher import Pack
from thetastream.topology.routes import HOME, STORE, Route, mixed, remainder

_FLOATING = (Encoding.FLOAT, Encoding.FLOAT_NAN_LOW)


FORWARD = 1 << 8
"""The role of packs of a first stage that go on to the second."""
RESULT = 1 << 9
"""The role of results of a first stage on their way out."""
MARK = 1 << 10
"""The role of a first stage's watermark."""

_RELAY = 1 << 11


def relayed(role: int, unit: int) -> int:
    """The role of a pack that a unit of the first stage hands on to one of the second."""
    return role | _RELAY | unit << 16


def relay(role: int) -> tuple[int, int] | None:
    """The role and the unit in the role of a pack that is to be handed on; None if it is not."""
    return (role & (_RELAY - 1), role >> 16) if role & _RELAY else None


def visit(group: int) -> int:
    """The role of a tuple that visits a group."""
    return 8 << group


class TriTopology:
    """Where the tuples of one stage go."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._spec = stage.spec

    def route(self, stream: int, tuples: Tuples) -> Iterator[Route]:
        """Where the tuples of a stream go; units are those of the stage, from zero."""
        groups = [group for group in self._stage.groups if group != stream]
        visits = [(visit(group), self.visits(stream, group, tuples)) for group in groups]
        home = self._home(stream, tuples) if stream in self._stage.groups else None
        for unit in range(self._stage.units):
            roles = np.zeros(len(tuples), dtype=np.int16)
            if home is not None:
                roles[home == unit] = STORE | HOME
            for role, where in visits:
                if unit < len(where):
                    mask = where[unit]
                    roles |= role if mask is None else np.where(mask, role, 0).astype(np.int16)
            for role in np.unique(roles):
                if role:
                    yield Route(unit, int(role), np.flatnonzero(roles == role))

    def visits(self, stream: int, group: int, tuples: Tuples) -> list[Bools | None]:
        """For each unit of a group the tuples that visit it; None for all of them."""
        spec, units = self._spec, self._spec.units[group]
        placement, edge = spec.placements[group], spec.edge(stream, group)
        side = 0 if group < stream else 1
        if placement.key is not None and placement.routing is Routing.HASH:
            if edge.equality is not None and edge.equality.of(side) == placement.key:
                own = tuples.keys[edge.equality.of(1 - side)]
                homes = remainder(mixed(own), units)
                return [homes == unit for unit in range(units)]
        elif placement.key is not None and placement.routing is Routing.BAND:
            rule = content_range(edge, side, placement.key)
            if rule is not None:
                own = tuples.keys[rule.of(1 - side)]
                key = spec.streams[stream].keys[rule.of(1 - side)]
                reach = interval(rule, side == 1, own, key)
                width, floating = self._buckets(group, placement)
                first = buckets(reach.first, width, floating=floating)
                last = buckets(reach.last, width, floating=floating)
                return [rows for _, rows in touched_units(units, first, last)]
        return [None] * units

    def _home(self, stream: int, tuples: Tuples) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
        placement, units = self._spec.placements[stream], self._spec.units[stream]
        if placement.key is None:
            return remainder(content_hash(tuples), units)
        keys = tuples.keys[placement.key]
        if placement.routing is Routing.BAND:
            width, floating = self._buckets(stream, placement)
            keys = buckets(keys, width, floating=floating)
        return remainder(mixed(keys), units)

    def _buckets(self, group: int, placement: Placement) -> tuple[int | float, bool]:
        assert placement.key is not None
        assert placement.width is not None
        floating = self._spec.streams[group].keys[placement.key].encoding in _FLOATING
        return placement.width, floating


class TriDispatcher:
    """Routes batches of one stream to the units of one stage."""

    def __init__(self, stage: Stage, stream: int) -> None:
        self._stage = stage
        self._stream = stream
        self._topology = TriTopology(stage)

    @property
    def units(self) -> range:
        """The units of the stage."""
        first = self._stage.first_unit
        return range(first, first + self._stage.units)

    def dispatch(self, batch: pa.RecordBatch) -> Iterator[Pack]:
        """The packs of a batch."""
        if batch.num_rows == 0:
            return
        tuples = Tuples.encode(batch, self._stage.spec.streams[self._stream])
        for unit, role, rows in self._topology.route(self._stream, tuples):
            whole = len(rows) == batch.num_rows
            some = batch if whole else batch.take(pa.array(rows))
            yield Pack(self._stage.first_unit + unit, self._stream, role, some)
