"""STA's index: hot values, each once with its tuples behind it, beside a chain for the cold ones.

An ASketch counts the values of the driving key that are stored in the unit, and finds the frequent
ones. Tuples with a hot value go to runs of few distinct values; all others go to the chained index.
A value that becomes hot sends its new tuples there, and those in the chain stay until they expire.
When it cools, its live tuples go back to the chain. Hot tuples expire with their runs as cold ones
do. A probe searches both, so that it makes no difference to the results what is hot.

Each unit decides by what it has seen itself. Tuples are spread at random, so that a value that is
frequent in the stream is frequent in every unit that stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, cast

import numpy as np

from thetastream.errors import StateError
from thetastream.index.asketch import ASketch
from thetastream.index.chain import Run, SubIndex, subs_from_json
from thetastream.index.distinct import DistinctRuns, contained
from thetastream.index.encoding import Bools, Int64s
from thetastream.index.part import Part, PartMeta, Tuples, bundled
from thetastream.index.probe import Found, Probe
from thetastream.index.protocol import Workspace
from thetastream.index.runs import TupleRuns
from thetastream.spec import Store, StreamSpec

HOT_SHARE = 0.01
"""A value is hot from this share of the rows on. The predictor knows 32 values, and its estimates
are too high by 0.3 % of the rows at most, as a rule."""

COOL_SHARE = HOT_SHARE / 2
"""And until it has less than this: a value whose share varies is not carried to and fro."""

ENOUGH_ROWS = 1 << 10
"""Rows from which on a share means something."""


class StreamAware(TupleRuns):
    """Tuples of one stream: the cold ones in its own chain, the hot ones in another."""

    def __init__(self, stream: StreamSpec, store: Store) -> None:
        super().__init__(stream, store)
        self.hot = DistinctRuns(stream, store)
        self._sketch = ASketch(store.sketch)
        self._heat: Int64s = np.empty(0, dtype=np.int64)

    @property
    def heat(self) -> Int64s:
        """The values that are hot now, in ascending order."""
        return self._heat

    # -- state ----------------------------------------------------------------------------------

    def state(self) -> Any:
        """Both chains, the hot values and the predictor as JSON takes them."""
        return {
            "cold": super().state(),
            "hot": self.hot.state(),
            "values": self.hot.values.tolist(),
            "heat": self._heat.tolist(),
            "sketch": self._sketch.state(),
        }

    def restore(self, state: Any) -> None:
        """Go on from what `state` gave."""
        self.chain.subs = subs_from_json(state["cold"])
        self.hot.restore(state["hot"])
        self.hot.values = _values(state["values"])
        self._heat = _values(state["heat"])
        # A predictor of another size has to learn again, which makes no difference to results.
        self._sketch = ASketch.restored_or_new(state["sketch"], self._sketch.options)

    def validate(self) -> None:
        """Refuse a state that no sequence of batches leads to."""
        super().validate()
        self.hot.validate()
        self._sketch.validate()
        cold = {meta.id for meta in self.chain.parts()}
        if any(meta.id in cold for meta in self.hot.parts()):
            raise StateError(f"a part of {self.what} is both hot and cold")
        if not contained(self._heat, self.hot.values).all():
            raise StateError(f"a hot value of {self.what} is not listed")

    def parts(self) -> Iterator[PartMeta]:
        """All live parts."""
        return chain(self.hot.parts(), super().parts())

    @property
    def runs(self) -> int:
        """The number of runs."""
        return self.hot.runs + super().runs

    def rename(self, written: dict[str, PartMeta]) -> None:
        """Parts that were made have been written under other names."""
        super().rename(written)
        self.hot.rename(written)

    # -- tuples that come -----------------------------------------------------------------------

    def add(self, tuples: Tuples, space: Workspace) -> None:
        """Add a run of cold tuples and one of hot ones; nothing is written yet."""
        tuples = self.arranged(tuples)
        keys = tuples.keys[self.hot.key]
        self._count(keys)
        self.hot.stamp = self.stamp
        hot = contained(keys, self._heat)
        if not hot.any():
            super().add(tuples, space)
            return
        self.hot.add(tuples.picked(np.flatnonzero(hot), self.order), space)
        if not hot.all():
            super().add(tuples.picked(np.flatnonzero(~hot), self.order), space)

    def _count(self, keys: Int64s) -> None:
        """Count the values of sorted keys, and decide which are hot."""
        starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]]) if len(keys) else keys
        self._sketch.add(keys[starts], np.diff(np.r_[starts, len(keys)]))
        if self._sketch.rows < ENOUGH_ROWS:
            return
        known = set(self._heat.tolist())
        heat = [one.key for one in self._sketch.frequent(HOT_SHARE)]
        heat += [one.key for one in self._sketch.frequent(COOL_SHARE) if one.key in known]
        self._heat = _values(heat)
        self.hot.values = np.union1d(self.hot.values, self._heat)

    # -- tuples that go -------------------------------------------------------------------------

    def expire(self, watermark: int | None, space: Workspace) -> None:
        """Drop the runs that nothing to come can match."""
        super().expire(watermark, space)
        self.hot.expire(watermark, space)

    def merge(self, space: Workspace) -> None:
        """Give back what has cooled, and merge the runs that are due."""
        self._sketch.age()
        self._cool(space)
        self.hot.merge(space)
        super().merge(space)

    def _cool(self, space: Workspace) -> None:
        """Carry tuples to the chain whose values are no longer hot."""
        cooled = np.setdiff1d(self.hot.values, self._heat)
        if len(cooled) == 0:
            return
        frozen = False
        for sub in list(self.hot.chain.subs):
            if sub.stamp < self.hot.chain.frozen:
                # It is being carried away as it is.
                frozen = True
                continue
            given = [some for run in sub.runs for some in self._given(sub, run, cooled, space)]
            stamp, self.stamp = self.stamp, sub.stamp
            for tuples in bundled(given):
                super().add(tuples, space)
            self.stamp = stamp
        if not frozen:
            self.hot.values = self._heat

    def _given(self, sub: SubIndex, run: Run, cooled: Int64s, space: Workspace) -> Iterator[Tuples]:
        """Take the tuples of some values out of a hot run."""
        key = self.hot.key
        kept: list[PartMeta] = []
        found: list[Tuples] = []
        for meta in run.parts:
            if not ((cooled >= meta.low[key]) & (cooled <= meta.high[key])).any():
                kept.append(meta)
                continue
            part = cast(Part, space.load(meta))
            gone = contained(part.keys[key], cooled)
            if not gone.any():
                kept.append(meta)
                continue
            space.drop([meta])
            found.append(part.take(np.flatnonzero(gone)))
            if not gone.all():
                rest = part.take(np.flatnonzero(~gone))
                kept.append(space.make(Part(rest.batch, rest.keys, self.order)))
        if found:
            self.hot.chain.exchange(sub, run, tuple(kept))
        yield from found

    # -- searching ------------------------------------------------------------------------------

    def search(self, probe: Probe, space: Workspace) -> Iterator[tuple[Part, Part, Found]]:
        """The parts that may have partners: each, as it is searched, and where they are."""
        before = self.hot.compared
        yield from self.hot.search(probe, space)
        self.compared += self.hot.compared - before
        yield from super().search(probe, space)

    # -- a table that changes -------------------------------------------------------------------

    @property
    def oldest(self) -> int | None:
        """The earliest version under which what is stored was stored."""
        found = [one for one in (super().oldest, self.hot.oldest) if one is not None]
        return min(found, default=None)

    def rows_before(self, version: int) -> int:
        """Tuples that were stored under an earlier version."""
        return super().rows_before(version) + self.hot.rows_before(version)

    def restamp(self, version: int) -> None:
        """Nothing of an earlier version matters any more."""
        super().restamp(version)
        self.hot.restamp(version)

    def freeze(self, version: int) -> None:
        """Leave the parts as they are that were stored under an earlier version."""
        super().freeze(version)
        self.hot.freeze(version)

    def parts_before(self, version: int) -> Iterator[PartMeta]:
        """The parts that were stored under an earlier version."""
        return chain(self.hot.parts_before(version), super().parts_before(version))

    def keep_only(
        self, version: int | None, staying: Callable[[Part], Bools], space: Workspace
    ) -> Iterator[None]:
        """Drop tuples that were stored under an earlier version, or under any if that is None, but
        for those that stay; a pause after each run."""
        yield from self.hot.keep_only(version, staying, space)
        yield from super().keep_only(version, staying, space)


def _values(found: list[int]) -> Int64s:
    return np.unique(np.array(found, dtype=np.int64))
