"""Band buckets: the driving key's axis is cut into buckets, and buckets are dealt out to units.

A tuple is stored in its bucket's unit and probes the units of the buckets that its band touches:
one or two when a bucket is several bands wide. Nearly nothing is replicated.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from thetastream.index.encoding import INT64_MAX, Bools, Int64s, decode_floats
from thetastream.topology.routes import (
    Route,
    RoutingKeys,
    mixed,
    remainder,
    store_and_probe,
)

MOST_BUCKETS = 8
"""A row whose band touches more buckets than this probes every unit."""

_FARTHEST = 2.0**62


class BandBuckets:
    """Routing by buckets of the driving key."""

    needs_spread = False

    def __init__(
        self, units: tuple[int, int], width: int | float, floating: tuple[bool, bool]
    ) -> None:
        """`floating`: whether each stream's driving key encodes floats."""
        self._units = units
        self._width = width
        self._floating = floating

    @property
    def units(self) -> int:
        """Units in all."""
        return max(self._units)

    def route(self, stream: int, keys: RoutingKeys) -> Iterator[Route]:
        """Where the rows go."""
        assert keys.drive is not None
        assert keys.reach is not None
        own = self._bucket(keys.drive, stream)
        store = remainder(mixed(own), self._units[stream])
        other = 1 - stream
        first = self._bucket(keys.reach.first, other)
        last = self._bucket(keys.reach.last, other)
        yield from store_and_probe(store, self._probes(other, first, last))

    def _bucket(self, keys: Int64s, stream: int) -> Int64s:
        if not self._floating[stream]:
            return np.floor_divide(keys, np.int64(min(self._width, INT64_MAX)))
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = np.floor(decode_floats(keys) / self._width)
        # NaN decodes from either end of the encoding, and stays at that end.
        scaled = np.where(np.isnan(scaled), np.where(keys > 0, np.inf, -np.inf), scaled)
        return np.clip(scaled, -_FARTHEST, _FARTHEST).astype(np.int64)

    def _probes(
        self, stored: int, first: Int64s, last: Int64s
    ) -> Iterator[tuple[int, Bools | None]]:
        units = self._units[stored]
        # In unsigned integers a distance wraps to itself, however far the ends are apart.
        distance = last.view(np.uint64) - first.view(np.uint64)
        wide = (last >= first) & (distance >= np.uint64(min(MOST_BUCKETS, units)))
        touched = []
        for step in range(min(MOST_BUCKETS, units)):
            with np.errstate(over="ignore"):
                bucket = first + np.int64(step)
            inside = (bucket <= last) & (bucket >= first)
            if not inside.any():
                break
            touched.append((remainder(mixed(bucket), units), inside))
        for unit in range(units):
            rows = wide
            for where, inside in touched:
                rows = rows | (inside & (where == unit))
            yield unit, rows
