"""Sorted runs of few distinct values: a probe searches the values and not the tuples behind them.

All runs share one sorted list of values. A probing tuple finds its stretch of that list once, with
two binary searches in some dozens of numbers; where the stretch begins and ends in a run is then
looked up. So a search costs the same however many tuples a value has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np

from thetastream.errors import OptionError
from thetastream.index.encoding import Bools, Int64s
from thetastream.index.part import Part
from thetastream.index.probe import Found, Probe
from thetastream.index.protocol import Workspace
from thetastream.index.runs import TupleRuns
from thetastream.spec import Store, StreamSpec


class DistinctRuns(TupleRuns):
    """Tuples of one stream with few distinct values of the driving key."""

    def __init__(self, stream: StreamSpec, store: Store) -> None:
        super().__init__(stream, store)
        if store.order.equality is not None or store.order.range is None:
            raise OptionError("distinct values are those of an inequality's or a band's key")
        self.key = store.order.range
        """The key whose values they are."""
        self.values: Int64s = np.empty(0, dtype=np.int64)
        """All values that the tuples have, and perhaps others, in ascending order."""

    def search(self, probe: Probe, space: Workspace) -> Iterator[tuple[Part, Part, Found]]:
        """The parts that may have partners: each, as it is searched, and where they are."""
        chosen = probe.among(self.values) if probe.order == self.order else None
        if chosen is None:
            yield from super().search(probe, space)
            return
        if self.runs:
            self.compared += len(probe.tuples) * 2 * len(self.values).bit_length()
        for meta in self.chain.parts():
            rows = probe.candidates(meta.low, meta.high)
            if len(rows):
                part = cast(Part, space.load(meta))
                found = probe.search_values(part, rows, self._starts(part), chosen)
                self.compared += found.candidates
                yield part, part, found

    def _starts(self, part: Part) -> Int64s:
        """Where the tuples of each value begin in a part, and the end."""
        name = ("starts of values", self.key)
        known = part.memo.get(name)
        if known is None or not np.array_equal(known[0], self.values):
            starts = np.searchsorted(part.keys[self.key], self.values)
            known = self.values, np.r_[starts, len(part)].astype(np.int64)
            part.memo[name] = known
        found: Int64s = known[1]
        return found


def contained(keys: Int64s, values: Int64s) -> Bools:
    """Which keys are among some values, which are sorted."""
    if len(values) == 0:
        return np.zeros(len(keys), dtype=bool)
    near = np.searchsorted(values, keys).clip(max=len(values) - 1)
    found: Bools = values[near] == keys
    return found
