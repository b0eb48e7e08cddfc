"""A count-min sketch: frequencies of any number of keys in a table of fixed size.

Each row of the table hashes a key to one of its cells, and every occurrence is counted in all of
them. A cell counts other keys as well, so the smallest of a key's cells is never below its true
frequency. With width w and d rows it exceeds that by more than e/w of everything counted for about
one key in e^d.
"""

from __future__ import annotations

import math

import numpy as np

from thetastream.index.encoding import Int64s
from thetastream.index.hashing import mixed, scaled
from thetastream.spec import SKETCH_ROWS

ROWS = SKETCH_ROWS

_LINES = np.arange(ROWS, dtype=np.int64)
_SEEDS = mixed(_LINES + 1)


class CountMin:
    """Counts of keys, which are 64-bit integers."""

    def __init__(self, width: int) -> None:
        self.cells: Int64s = np.zeros((ROWS, width), dtype=np.int64)

    @property
    def width(self) -> int:
        """Cells of a row."""
        return int(self.cells.shape[1])

    @property
    def counted(self) -> int:
        """Everything that was counted."""
        return int(self.cells[0].sum())

    @property
    def bound(self) -> float:
        """By how much few estimates are too large."""
        return math.e / self.width * self.counted

    def places(self, keys: Int64s) -> Int64s:
        """The cell of each key, row by row."""
        return scaled(mixed(keys.view(np.uint64) ^ _SEEDS[:, None]), self.width)

    def add(self, places: Int64s, counts: Int64s) -> None:
        """Count keys at these places so many times."""
        for row, cells in zip(self.cells, places, strict=True):
            np.add.at(row, cells, counts)

    def add_one(self, place: Int64s, count: int) -> None:
        """Count the key at this place so many times."""
        self.cells[_LINES, place[:, 0]] += count

    def estimates(self, places: Int64s) -> Int64s:
        """The estimated frequency of the key at each place."""
        found: Int64s = np.take_along_axis(self.cells, places, axis=1).min(axis=0)
        return found

    def running(self, places: Int64s, counts: Int64s) -> Int64s:
        """What keys add to each one's cells up to and including it, if they are counted in order.

        Nothing is counted by asking.
        """
        found = np.empty_like(places)
        size = places.shape[1]
        turns = np.arange(size, dtype=np.int64)
        for line, cells in zip(found, places, strict=True):
            # By cell, then by turn, in one number each: sorting those is the fastest.
            cell, order = np.divmod(np.sort(cells * size + turns), max(1, size))
            upto = np.cumsum(counts[order])
            first = np.flatnonzero(np.r_[True, cell[1:] != cell[:-1]][:size])
            before = (upto - counts[order])[first]
            line[order] = upto - np.repeat(before, np.diff(np.r_[first, size]))
        return found

    def halve(self) -> None:
        """Let everything that was counted count half."""
        self.cells //= 2
