"""Partition-groups that are tuned: extendible hashing divides each into mini-groups.

A mini-group is kept between θ and 2θ, as far as its keys allow: so the cost of a visit does not
grow with what a partition-group holds. Each stream's tuples are divided on their own, since a unit
need not hold both streams.
"""

from __future__ import annotations

import numpy as np

from thetastream.errors import OptionError
from thetastream.index.blocks import BlockLists, tuple_bytes
from thetastream.index.directory import HASH_BITS, Fetch
from thetastream.index.encoding import Int64s
from thetastream.index.hashing import UInt64s
from thetastream.index.part import Part
from thetastream.index.protocol import Workspace
from thetastream.spec import Store, StreamSpec


class Extendible(BlockLists):
    """Mini-groups of bounded size."""

    def __init__(self, stream: StreamSpec, store: Store) -> None:
        super().__init__(stream, store)
        if store.theta is None:
            raise OptionError("extendible hashing needs the size of a mini-group")
        self._theta = store.theta

    def _tune(self, space: Workspace) -> None:
        for group, directory in enumerate(self._directories):
            self.moved += directory.tune(self._theta, self._fetch(group, space))

    def _fetch(self, group: int, space: Workspace) -> Fetch:
        """Reads what is stored of a partition-group."""
        base = group << HASH_BITS

        def fetch(first: int, end: int) -> tuple[UInt64s, Int64s]:
            hashes, sizes = [], []
            for meta in self.parts():
                part = space.load(meta)
                if not isinstance(part, Part):
                    raise TypeError("only tuples are in mini-groups")
                places = self._places(part)
                # The end of the last group is more than a word holds.
                start = int(np.searchsorted(places, np.uint64(base + first)))
                stop = int(np.searchsorted(places, np.uint64(base + end - 1), "right"))
                hashes.append(places[start:stop] - np.uint64(base))
                sizes.append(tuple_bytes(part.batch.slice(start, stop - start)))
            return np.concatenate(hashes), np.concatenate(sizes)

        return fetch
