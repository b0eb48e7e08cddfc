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
        own = buckets(keys.drive, self._width, floating=self._floating[stream])
        store = remainder(mixed(own), self._units[stream])
        other = 1 - stream
        first = buckets(keys.reach.first, self._width, floating=self._floating[other])
        last = buckets(keys.reach.last, self._width, floating=self._floating[other])
        yield from store_and_probe(store, touched_units(self._units[other], first, last))


def buckets(keys: Int64s, width: int | float, *, floating: bool) -> Int64s:
    """The bucket of each key; `floating`: whether the keys encode floats."""
    if not floating:
        return np.floor_divide(keys, np.int64(min(width, INT64_MAX)))
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.floor(decode_floats(keys) / width)
    # NaN decodes from either end of the encoding, and stays at that end.
    scaled = np.where(np.isnan(scaled), np.where(keys > 0, np.inf, -np.inf), scaled)
    return np.clip(scaled, -_FARTHEST, _FARTHEST).astype(np.int64)


def touched_units(units: int, first: Int64s, last: Int64s) -> Iterator[tuple[int, Bools | None]]:
    """For each unit the rows whose buckets, from first to last, it has one of."""
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
