"""Join-biclique routing: random, hash, and ContRand between them.

ContRand divides each side's units into contiguous subgroups. A tuple is stored by a random member
of its key's subgroup on its own side and probes all members of its key's subgroup on the other. One
subgroup a side is random routing (any predicate), one unit a subgroup is hash routing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from thetastream.index.encoding import Bools
from thetastream.topology.routes import (
    HOME,
    PROBE,
    STORE,
    Route,
    RoutingKeys,
    by_unit,
    mixed,
    remainder,
    store_and_probe,
)


class ContRand:
    """BiStream's dispatcher for m and n units in d and e subgroups."""

    def __init__(self, units: tuple[int, int], subgroups: tuple[int, int]) -> None:
        self._units = units
        self._subgroups = subgroups
        self._edges = tuple(
            np.linspace(0, count, groups + 1).round().astype(np.int64)
            for count, groups in zip(units, subgroups, strict=True)
        )

    @property
    def units(self) -> int:
        """Units in all; the same unit may serve both sides."""
        return max(self._units)

    @property
    def needs_spread(self) -> bool:
        """Whether some subgroup has members to choose from."""
        return self._units != self._subgroups

    def route(self, stream: int, keys: RoutingKeys) -> Iterator[Route]:
        """Where the rows go."""
        group = self._groups(stream, keys)
        if not self.needs_spread and self._units[0] == self._units[1]:
            yield from by_unit(group, STORE | PROBE | HOME)
            return
        edges = self._edges[stream]
        store = edges[group]
        sizes = np.diff(edges)[group]
        if self.needs_spread:
            assert keys.spread is not None
            store = store + (keys.spread % sizes.astype(np.uint64)).astype(np.int64)
        yield from store_and_probe(store.astype(np.int16), self._probes(1 - stream, keys))

    def _groups(self, stream: int, keys: RoutingKeys) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
        count = self._subgroups[stream]
        if count == 1:
            return np.zeros(keys.count, dtype=np.int16)
        assert keys.equality is not None
        return remainder(mixed(keys.equality), count)

    def _probes(self, stored: int, keys: RoutingKeys) -> Iterator[tuple[int, Bools | None]]:
        group = self._groups(stored, keys)
        edges = self._edges[stored]
        for number in range(self._subgroups[stored]):
            members = range(int(edges[number]), int(edges[number + 1]))
            rows = None if self._subgroups[stored] == 1 else group == number
            for unit in members:
                yield unit, rows
