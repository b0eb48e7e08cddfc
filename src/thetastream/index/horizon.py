"""How long entries have still to live, and which of them may therefore be kept together.

A run goes when its newest entry goes. So an entry whose time is far ahead of the others', for
instance from a device whose clock is wrong, must not share a run with them, nor a sub-index, where
runs are merged: it would keep all of them for as long as itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from thetastream.index.encoding import INT64_MAX, Int64s

APART = 2
"""Entries of one batch are kept apart if one has so many times as long to live as another."""

MOST_GROUPS = 4
"""Groups into which a batch is divided at most, and so runs that it makes."""

COARSE = 4
"""Entries that have longer to live than so many ordinary lives are divided by time more coarsely
than by the archive period."""


@dataclass(frozen=True)
class Horizon:
    """What the watermark says about the entries of an index."""

    end: int
    """Entries of an earlier time are of no use any more."""
    near: int
    """How long an entry usually lives; a shorter gap between times means nothing."""
    period: int
    """The archive period."""

    def slot(self, end: int) -> range | None:
        """The times at which runs may end that are merged with one that ends then.

        A share of what they have to live; None for those that have not long to live: their
        sub-indexes are divided by the archive period.
        """
        coarse = (end - self.end - COARSE * self.near) // self.period
        if coarse < APART:
            return None
        length = self.period << (coarse.bit_length() - 1)
        start = end // length * length
        return range(start, start + length)

    def latest(self, oldest: int) -> int:
        """The last time that may be kept together with the oldest, whatever is between them."""
        return min(INT64_MAX, self.end + APART * max(self.near, oldest - self.end))

    def groups(self, times: Int64s) -> list[Int64s] | None:
        """The entries that may be kept together, by position; None for all of them.

        There is at least one. Groups are divided where there is a gap between their times: a batch
        whose times are far apart but have no gaps, of historical data for instance, is one group.
        """
        if int(times.max()) <= self.latest(int(times.min())):
            return None
        ordered = np.sort(times)
        starts = self._starts(ordered)
        if len(starts) == 1:
            return None
        group = np.searchsorted(ordered[starts[1:]], times, "right")
        return [np.flatnonzero(group == number) for number in range(len(starts))]

    def _starts(self, ordered: Int64s) -> list[int]:
        """Where the groups of ordered times start."""
        bits = ordered.view(np.uint64)  # the difference of two times may need all 64 of them
        breaks = np.flatnonzero(bits[1:] - bits[:-1] > np.uint64(self.near)) + 1
        starts = [0]
        while True:
            behind = np.searchsorted(ordered, self.latest(int(ordered[starts[-1]])), "right")
            place = int(np.searchsorted(breaks, behind))
            if place == len(breaks):
                break
            starts.append(int(breaks[place]))
        while len(starts) > MOST_GROUPS:
            # Those of a group that is joined with the next live as long as that: let them be few,
            # and late ones where there is a choice.
            sizes = [end - start for start, end in pairwise(starts)]
            fewest = max(range(len(sizes)), key=lambda group: (-sizes[group], group))
            del starts[fewest + 1]
        return starts
