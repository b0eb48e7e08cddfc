"""The PIM-tree: a mutable component for the newest tuples and an immutable one for the others.

The mutable component has the runs of the latest batches, merged by size as in the chained index.
When it is full, all of it is merged into the immutable component: one sorted run, for which two
binary searches are all that a probe needs. Tuples that can match nothing any more are left out of
what a merge writes. So there are few runs to search, whatever the window, and each merge writes all
that is stored.

What is full grows with the immutable component, so that a tuple is written a bounded number of
times. An immutable run that is too large to be merged in bounded memory stays as it is, and the
next one is begun beside it.

Both components are sub-indexes of a chain, the immutable one being sealed: versions of a routing
table, exports and the state are the chain's. Tuples of different versions have components of their
own as long as it matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from thetastream.index.chain import Run, SubIndex, fitting
from thetastream.index.encoding import Bools
from thetastream.index.part import Part, PartMeta, Tuples, concat
from thetastream.index.protocol import Workspace
from thetastream.index.runs import TupleRuns
from thetastream.spec import Store, StreamSpec

MERGE_SHARE = 0.25
"""The mutable component is full when it has such a share of what it is merged with: a tuple is then
written about five times while the component grows, and no more than a fifth is out of date."""

MUTABLE_ROWS = 1 << 14
"""Tuples that the mutable component holds in any case, so that few tuples are not merged with each
batch."""


class PimTree(TupleRuns):
    """Tuples of one stream in two components."""

    def __init__(self, stream: StreamSpec, store: Store) -> None:
        # Tuples are not divided by time: without an archive period a chain does not.
        whole = replace(store.retention, period=None)
        super().__init__(stream, replace(store, retention=whole))
        self._retention = store.retention

    # -- the components -------------------------------------------------------------------------

    def components(self, stamp: int) -> tuple[SubIndex, SubIndex]:
        """The mutable and the immutable component of one version, which may both be empty."""
        found = (SubIndex(stamp=stamp), SubIndex(stamp=stamp, sealed=True))
        for sub in self.chain.subs:
            if sub.stamp == stamp:
                found[sub.sealed].runs.extend(sub.runs)
        return found

    def _gather(self) -> None:
        """Let each version have one component of either kind."""
        stamps = sorted({sub.stamp for sub in self.chain.subs})
        subs = [sub for stamp in stamps for sub in reversed(self.components(stamp))]
        self.chain.subs = [sub for sub in subs if sub.runs]

    def restamp(self, version: int) -> None:
        """Nothing of an earlier version matters any more."""
        for sub in self.chain.subs:
            sub.stamp = version
        self._gather()

    # -- merging --------------------------------------------------------------------------------

    def merge(self, space: Workspace) -> None:
        """Merge the mutable component into the immutable one if it is full."""
        self._gather()
        self._trim(space)
        for stamp in sorted({sub.stamp for sub in self.chain.subs}):
            if stamp < self.chain.frozen:
                continue
            if not self._is_full(stamp):
                # Those of two versions that are one now, and what has become small enough.
                self._settle(stamp, space, mutable=False)
            if self._is_full(stamp):
                self._settle(stamp, space, mutable=True)
        super().merge(space)

    def _is_full(self, stamp: int) -> bool:
        mutable, immutable = self.components(stamp)
        into = sum(run.size for run in immutable.runs if not run.is_full)
        return mutable.size >= max(MUTABLE_ROWS, MERGE_SHARE * into)

    def _settle(self, stamp: int, space: Workspace, *, mutable: bool) -> None:
        """Make one run of the immutable component, with or without the mutable one."""
        newest, settled = self.components(stamp)
        if mutable:
            settled.runs += newest.runs
            newest.runs = []
        others = [sub for sub in self.chain.subs if sub.stamp != stamp]
        self.chain.subs = others + [sub for sub in (settled, newest) if sub.runs]
        while len(due := fitting([run for run in settled.runs if not run.is_full])) > 1:
            self._unite(settled, due, space)

    def merged(self, parts: Sequence[Part], watermark: int | None) -> Iterator[Part]:
        """One run of all the parts, without the tuples that can match nothing any more."""
        tuples = concat(parts)
        alive = self._alive(tuples, watermark)
        if alive is not None:
            tuples = tuples.take(np.flatnonzero(alive))
        if len(tuples):
            yield from self.cut(self.arranged(tuples))

    def _trim(self, space: Workspace) -> None:
        """Write runs anew that have had expired tuples for a whole window.

        A run goes when its newest tuple does, and what is not merged any more could otherwise be
        kept by one tuple whose time is far ahead.
        """
        time, end = self._retention.time, self._end(self._watermark)
        if time is None or end is None:
            return
        late = max(0, self._retention.keeps or 0, self._retention.period or 0)
        for sub in list(self.chain.subs):
            for run in sub.runs if sub.stamp >= self.chain.frozen else ():
                if run.oldest(time) < end - late:
                    self.chain.exchange(sub, run, tuple(self._trimmed(run, space)))

    def _trimmed(self, run: Run, space: Workspace) -> Iterator[PartMeta]:
        for meta in run.parts:
            part = cast(Part, space.load(meta))
            alive = self._alive(part, self._watermark)
            if alive is None or alive.all():
                yield meta
                continue
            space.drop([meta])
            if alive.any():
                rest = part.take(np.flatnonzero(alive))
                yield space.make(Part(rest.batch, rest.keys, self.order))

    def _alive(self, tuples: Tuples, watermark: int | None) -> Bools | None:
        """Which tuples can still match; None for all of them."""
        time, end = self._retention.time, self._end(watermark)
        if time is None or end is None:
            return None
        found: Bools = tuples.keys[time] >= end
        return found

    def _end(self, watermark: int | None) -> int | None:
        """Tuples of an earlier time can match nothing any more."""
        keeps = self._retention.keeps
        return None if watermark is None or keeps is None else watermark - keeps
