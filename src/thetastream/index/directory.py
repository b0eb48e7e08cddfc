"""Extendible hashing of one partition-group: which mini-group a hash belongs to.

A mini-group of local depth d has all hashes that begin with the same d bits. The table of 2^d
entries, d being the largest local depth, need not be spelled out: the entries of a mini-group are
neighbours, so the sorted list of the mini-groups says the same. A mini-group is split when it has
more than 2θ bytes, and merged with its buddy, the other half of what was split, when it has fewer
than θ and both together fewer than 2θ.

A directory knows sizes only. What is stored is the caller's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from thetastream.errors import StateError
from thetastream.index.encoding import Int64s
from thetastream.index.hashing import UInt64s

HASH_BITS = 58
"""Bits of a hash; the number of a partition-group takes the other six of a word."""

MOST_DEPTH = 20
"""The largest local depth: a million mini-groups are enough for any memory."""

Fetch = Callable[[int, int], tuple[UInt64s, Int64s]]
"""The hashes, from the first to before the second, of what is stored, and the bytes of each."""


@dataclass
class MiniGroup:
    """The tuples whose hashes begin with the same bits."""

    start: int
    """The first hash that belongs to it."""
    depth: int
    """How many bits its hashes have in common."""
    rows: int = 0
    bytes: int = 0

    @property
    def end(self) -> int:
        """The first hash behind it."""
        return self.start + (1 << (HASH_BITS - self.depth))

    def change(self, rows: int, size: int) -> None:
        """So many more tuples and bytes; fewer if they are negative."""
        self.rows += rows
        self.bytes = max(0, self.bytes + size) if self.rows else 0

    def is_buddy(self, other: MiniGroup) -> bool:
        """Whether the two are halves of one mini-group."""
        bit = 1 << (HASH_BITS - self.depth)
        return self.depth == other.depth > 0 and self.start ^ other.start == bit


class Directory:
    """The mini-groups of one partition-group, in the order of their hashes."""

    def __init__(self) -> None:
        self.minis = [MiniGroup(0, 0)]

    @property
    def depth(self) -> int:
        """The global depth: as many bits of a hash choose the mini-group."""
        return max(mini.depth for mini in self.minis)

    def entries(self) -> list[int]:
        """The table: the place of the mini-group for each value of so many first bits."""
        depth = self.depth
        return [
            place for place, mini in enumerate(self.minis) for _ in range(1 << (depth - mini.depth))
        ]

    def find(self, hashes: UInt64s) -> Int64s:
        """The place of the mini-group of each hash."""
        starts = np.array([mini.start for mini in self.minis], dtype=np.uint64)
        return np.searchsorted(starts, hashes, "right").astype(np.int64) - 1

    def count(self, hashes: UInt64s, sizes: Int64s, sign: int = 1) -> None:
        """Tuples have come (or, with -1, gone)."""
        places = self.find(hashes)
        rows = np.bincount(places, minlength=len(self.minis))
        total = np.bincount(places, weights=sizes, minlength=len(self.minis))
        for mini, more, size in zip(self.minis, rows.tolist(), total.tolist(), strict=True):
            mini.change(sign * more, sign * int(size))

    def tune(self, theta: int, fetch: Fetch) -> int:
        """Split and merge until all fits, `theta` in bytes; how many tuples changed their place.

        What extendible hashing cannot split stays as large as it is: tuples of one hash, and
        mini-groups of the largest depth.
        """
        moved = 0
        split: list[MiniGroup] = []
        for mini in self.minis:
            pieces = [mini]
            if mini.bytes > 2 * theta and mini.depth < MOST_DEPTH:
                pieces = list(_halves(mini, theta, *fetch(mini.start, mini.end)))
            if len(pieces) > 1:
                moved += mini.rows
            split += pieces
        self.minis = []
        # Buddies are neighbours. What is merged may have a buddy again: the one before it now, or
        # one that is still to come.
        for mini in split:
            self.minis.append(mini)
            while len(self.minis) > 1 and _should_merge(self.minis[-2], self.minis[-1], theta):
                right, left = self.minis.pop(), self.minis.pop()
                moved += left.rows + right.rows
                self.minis.append(_merged(left, right))
        return moved

    def validate(self) -> None:
        """Refuse mini-groups that do not divide all hashes among themselves."""
        end = 0
        for mini in self.minis:
            aligned = mini.start % (1 << (HASH_BITS - mini.depth)) == 0
            if mini.start != end or not aligned or not 0 <= mini.depth <= MOST_DEPTH:
                raise StateError("mini-groups overlap, or leave a gap")
            if mini.rows < 0 or (mini.rows == 0 and mini.bytes):
                raise StateError("a mini-group has a size without tuples")
            end = mini.end
        if end != 1 << HASH_BITS:
            raise StateError("mini-groups do not cover all hashes")

    def to_json(self) -> list[Any]:
        """The mini-groups as JSON takes them; their order says where each starts."""
        return [[mini.depth, mini.rows, mini.bytes] for mini in self.minis]

    @classmethod
    def from_json(cls, raw: list[Any]) -> Directory:
        """The directory that `to_json` wrote."""
        found, start = cls(), 0
        found.minis = []
        for depth, rows, size in raw:
            found.minis.append(MiniGroup(start, depth, rows, size))
            start = found.minis[-1].end
        found.validate()
        return found


def _should_merge(left: MiniGroup, right: MiniGroup, theta: int) -> bool:
    small = min(left.bytes, right.bytes) < theta
    return small and left.is_buddy(right) and left.bytes + right.bytes < 2 * theta


def _merged(left: MiniGroup, right: MiniGroup) -> MiniGroup:
    rows, size = left.rows + right.rows, left.bytes + right.bytes
    return MiniGroup(left.start, left.depth - 1, rows, size)


def _halves(mini: MiniGroup, theta: int, hashes: UInt64s, sizes: Int64s) -> Iterator[MiniGroup]:
    """The mini-groups that a large one is split into, in order."""
    fits = mini.bytes <= 2 * theta or mini.depth == MOST_DEPTH
    if fits or hashes.min() == hashes.max():
        yield mini
        return
    middle = mini.start + (1 << (HASH_BITS - mini.depth - 1))
    upper = hashes >= np.uint64(middle)
    for start, which in ((mini.start, ~upper), (middle, upper)):
        some, theirs = hashes[which], sizes[which]
        half = MiniGroup(start, mini.depth + 1, len(some), int(theirs.sum()))
        yield from _halves(half, theta, some, theirs)
