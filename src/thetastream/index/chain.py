"""The chained in-memory index: sub-indexes in the order of time, each a few sorted runs.

A run goes into the active sub-index; once the times in it span more than the archive period it is
sealed, its runs are merged once, and a new one is started. Tuples whose time is far ahead of the
others' have runs and sub-indexes of their own, see `thetastream.index.horizon`. A run whose newest
tuple the watermark has passed by more than the window is dropped whole, a sub-index with its last
run. Over a full history there is one sub-index, and runs of similar size are merged into ever
larger ones, up to a size that is merged in bounded memory: their number is logarithmic in the
number of tuples, and one more for each few million of them.

Runs that were stored under different versions of a routing table are kept in different sub-indexes,
as long as it matters: a unit then sees when nothing of an old version is left.

The chain holds metadata only. What must be read, written or dropped is told to the caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from thetastream.index.encoding import Int64s
from thetastream.index.horizon import Horizon
from thetastream.index.part import PartMeta

FANOUT = 4
"""Runs of similar size that are left side by side before they are merged."""

SETTLED_ROWS = 1 << 17
"""Runs of this many rows are not merged when their sub-index is sealed: rewriting them costs more
than visiting each of them as long as it lives."""

NEAR_PERIODS = 10
"""Archive periods that are an ordinary life of a tuple at least: that many make a window."""

MERGED_ROWS = 1 << 22
MERGED_PARTS = 16
"""At most so much is merged at a time, which is what a merge needs memory for. A run of more than
half of it is left as it is. Visiting a run takes some 30 ns per probing tuple."""


@dataclass(frozen=True)
class Run:
    """Parts that follow each other in the sort order, unless they were too large to be sorted."""

    parts: tuple[PartMeta, ...]

    @property
    def size(self) -> int:
        """Tuples, or hubs and their links: what merging it costs."""
        return sum(part.rows + part.pairs for part in self.parts)

    @property
    def rows(self) -> int:
        """Tuples in the run."""
        return sum(part.rows for part in self.parts)

    @property
    def is_full(self) -> bool:
        """Whether it is too large for being merged."""
        return 2 * self.size > MERGED_ROWS or 2 * len(self.parts) > MERGED_PARTS

    def oldest(self, time: int) -> int:
        """The smallest time in the run."""
        return min(part.low[time] for part in self.parts)

    def newest(self, time: int) -> int:
        """The largest time in the run."""
        return max(part.high[time] for part in self.parts)


@dataclass
class SubIndex:
    """The runs of one stretch of time."""

    runs: list[Run] = field(default_factory=list)
    sealed: bool = False
    stamp: int = 0
    """The version of the routing table under which they were stored."""

    @property
    def size(self) -> int:
        """Tuples, or hubs and their links."""
        return sum(run.size for run in self.runs)

    def parts(self) -> Iterator[PartMeta]:
        """All parts, oldest run first."""
        for run in self.runs:
            yield from run.parts


class Chain:
    """The chained index of one stream in one unit."""

    def __init__(
        self,
        *,
        time: int | None,
        keeps: int | None,
        period: int | None,
        subs: list[SubIndex],
        life: int = 0,
    ) -> None:
        """`keeps`: how long after its own time a tuple can still match; None is for ever."""
        self._time = time
        self._keeps = keeps
        self._period = period
        self._life = life
        self.subs = subs
        self.frozen = 0
        """What was stored under an earlier version is left as it is: it is being carried away."""

    def parts(self) -> Iterator[PartMeta]:
        """All live parts."""
        for sub in self.subs:
            yield from sub.parts()

    def expire(self, watermark: int | None) -> list[PartMeta]:
        """Drop the runs that nothing to come can match; returns their parts."""
        if watermark is None or self._time is None or self._keeps is None:
            return []
        oldest = watermark - self._keeps
        dead = []
        for sub in self.subs:
            # Run by run: those of a sub-index that is still active need not wait for its newest.
            dead += [run for run in sub.runs if run.newest(self._time) < oldest]
            sub.runs = [run for run in sub.runs if run.newest(self._time) >= oldest]
        self.subs = [sub for sub in self.subs if sub.runs]
        return [part for run in dead for part in run.parts]

    def apart(self, times: Int64s, watermark: int | None) -> list[Int64s] | None:
        """The entries of a batch that may share a run, by position; None for all of them."""
        if len(times) == 0:
            return None
        horizon = self._horizon(int(times.min()), watermark)
        return None if horizon is None else horizon.groups(times)

    def insert(self, run: Run, watermark: int | None, stamp: int = 0) -> None:
        """Add a run to the active sub-index, and seal that if it now spans the archive period.

        A run that ends at quite another time than those goes to another sub-index, or starts one.
        """
        unsealed = [sub for sub in reversed(self.subs) if not sub.sealed and sub.stamp == stamp]
        fitting = [sub for sub in unsealed if self._is_together(sub, run, watermark)]
        following = [sub for sub in unsealed if self._is_next(sub, run)]
        if fitting:
            fitting[0].runs.append(run)
        elif following:
            following[0].runs.append(run)
            following[0].sealed = True
        else:
            self.subs.append(SubIndex([run], stamp=stamp))

    def _is_together(self, sub: SubIndex, run: Run, watermark: int | None) -> bool:
        """Whether the run fits in the sub-index without its being sealed."""
        if self._time is None or self._period is None:
            return True
        runs = [*sub.runs, run]
        ends = [one.newest(self._time) for one in runs]
        horizon = self._horizon(ends[-1], watermark)
        slot = None if horizon is None else horizon.slot(ends[-1])
        if slot is not None:
            return all(end in slot for end in ends)
        # Some tuples of a run may be far older than the rest: what counts is when it goes.
        starts = [
            max(one.oldest(self._time), one.newest(self._time) - self._period) for one in runs
        ]
        return max(ends) - min(starts) <= self._period

    def _is_next(self, sub: SubIndex, run: Run) -> bool:
        """Whether the run is the first one after the sub-index, or goes on with its last one."""
        if self._time is None or self._period is None:
            return False
        last = max(one.newest(self._time) for one in sub.runs)
        return 0 <= run.newest(self._time) - last <= self._period

    def _horizon(self, oldest: int, watermark: int | None) -> Horizon | None:
        """What the watermark says about entries, of which the oldest is given."""
        if self._time is None or self._keeps is None or self._period is None:
            return None
        return Horizon(
            end=(oldest if watermark is None else watermark) - self._keeps,
            near=max(self._keeps, self._life, NEAR_PERIODS * self._period),
            period=self._period,
        )

    def before(self, version: int) -> Iterator[SubIndex]:
        """The sub-indexes that were stored under an earlier version."""
        return (sub for sub in self.subs if sub.stamp < version)

    def restamp(self, version: int) -> None:
        """Let runs be merged again, whatever version they were stored under."""
        for sub in self.subs:
            sub.stamp = version
        if self._period is None and len(self.subs) > 1:
            self.subs = [SubIndex([run for sub in self.subs for run in sub.runs], stamp=version)]

    def exchange(self, sub: SubIndex, run: Run, parts: tuple[PartMeta, ...]) -> None:
        """Let a run have other parts, or none."""
        sub.runs = [new for old in sub.runs if (new := Run(parts) if old == run else old).parts]
        self.subs = [sub for sub in self.subs if sub.runs]

    def merge_due(self) -> tuple[SubIndex, list[Run]] | None:
        """Runs of one sub-index that should become one."""
        for sub in self.subs:
            due = [] if sub.stamp < self.frozen else _due(sub)
            if due:
                return sub, due
        return None

    def replace(self, sub: SubIndex, merged: list[Run], run: Run) -> list[PartMeta]:
        """Put `run` in the place of the runs it was merged from; returns their parts."""
        ids = {id(old) for old in merged}
        sub.runs = [old for old in sub.runs if id(old) not in ids]
        if run.parts:
            sub.runs.append(run)
        self.subs = [sub for sub in self.subs if sub.runs]
        return [part for old in merged for part in old.parts]

    def to_json(self) -> list[Any]:
        """The chain as JSON takes it."""
        return [
            {
                "sealed": sub.sealed,
                "stamp": sub.stamp,
                "runs": [[part.to_json() for part in run.parts] for run in sub.runs],
            }
            for sub in self.subs
        ]


def _due(sub: SubIndex) -> list[Run]:
    """Runs that should become one."""
    runs = [run for run in sub.runs if not run.is_full]
    if sub.sealed:
        small = [run for run in runs if run.size < SETTLED_ROWS]
        return fitting(small) if len(small) > 1 else []
    tiers: dict[int, list[Run]] = {}
    for run in runs:
        tiers.setdefault(_tier(run.size), []).append(run)
    for tier in sorted(tiers):
        if len(tiers[tier]) >= FANOUT:
            return fitting(tiers[tier])
    return []


def subs_from_json(raw: list[Any]) -> list[SubIndex]:
    """The sub-indexes that `Chain.to_json` wrote, without those that merging has left empty."""
    return [
        SubIndex(
            runs=[Run(tuple(PartMeta.from_json(p) for p in parts)) for parts in item["runs"]],
            sealed=item["sealed"],
            stamp=item["stamp"],
        )
        for item in raw
        if item["runs"]
    ]


def fitting(runs: list[Run]) -> list[Run]:
    """As many of the runs as are merged at a time: two at least, for none of them is full."""
    rows = accumulate(run.size for run in runs)
    parts = accumulate(len(run.parts) for run in runs)
    fits = (r <= MERGED_ROWS and p <= MERGED_PARTS for r, p in zip(rows, parts, strict=True))
    return runs[: sum(fits)]


def _tier(rows: int) -> int:
    """Runs in one tier differ by less than the fan-out in size."""
    tier = 0
    while rows >= FANOUT:
        rows //= FANOUT
        tier += 1
    return tier
