"""Indexes of sorted runs in a chain of sub-indexes: of tuples, and of packs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

import numpy as np
import pyarrow as pa

from thetastream import arrow
from thetastream.errors import StateError
from thetastream.index.chain import Chain, Run, SubIndex, subs_from_json
from thetastream.index.encoding import INT64_MAX, Bools, Int64s
from thetastream.index.packing import Links, Packs, concat_links, pack
from thetastream.index.part import Part, PartMeta, Tuples, concat
from thetastream.index.probe import Found, Probe
from thetastream.index.protocol import Stored, Workspace
from thetastream.spec import Retention, SortOrder, Store, StreamSpec

PART_BYTES = 12 * 1024**2
"""Arrow bytes of a part before compression: the state store's channel needs about ten times a
value's size in memory, and a probe wants few parts."""

PACKS_BYTES = 4 * PART_BYTES
"""The same of a part of packs with the members, of which each part has its own copies."""

_Part = TypeVar("_Part", Part, Packs)


class _RunIndex(Generic[_Part]):
    """Sorted runs in a chain; see `thetastream.index.protocol.Index`."""

    def __init__(self, retention: Retention) -> None:
        self.chain = Chain(
            time=retention.time,
            keeps=retention.keeps,
            period=retention.period,
            life=retention.life,
            subs=[],
        )
        self._watermark: int | None = None
        self.stamp = 0
        """The version of the routing table under which a batch's entries are stored."""
        self.compared = 0
        self.moved = 0

    @property
    @abstractmethod
    def what(self) -> str:
        """What is in a part."""

    @abstractmethod
    def decode(self, data: pa.Buffer | bytes) -> _Part:
        """The part in stored bytes."""

    @abstractmethod
    def _searched(self, part: _Part, order: SortOrder) -> Part:
        """What of a part a probe searches."""

    @abstractmethod
    def merged(self, parts: Sequence[_Part], watermark: int | None) -> Iterator[_Part]:
        """One run of all the parts, without what the watermark has passed."""

    def restore(self, state: Any) -> None:
        """Go on from what `state` gave."""
        self.chain.subs = subs_from_json(state)

    def state(self) -> Any:
        """The chain as JSON takes it."""
        return self.chain.to_json()

    def parts(self) -> Iterator[PartMeta]:
        """All live parts."""
        return self.chain.parts()

    @property
    def runs(self) -> int:
        """The number of runs."""
        return sum(len(sub.runs) for sub in self.chain.subs)

    def search(self, probe: Probe, space: Workspace) -> Iterator[tuple[_Part, Part, Found]]:
        """The parts that may have partners: each, as it is searched, and where they are."""
        for meta in self.chain.parts():
            rows = probe.candidates(meta.low, meta.high)
            if len(rows):
                part = cast(_Part, space.load(meta))
                searched = self._searched(part, probe.order)
                found = probe.search(searched, rows)
                self.compared += found.candidates + len(rows) * _steps(searched)
                yield part, searched, found

    def rows_before(self, version: int) -> int:
        """Tuples, or hubs and their links, that were stored under an earlier version."""
        return sum(sub.size for sub in self.chain.before(version))

    @property
    def oldest(self) -> int | None:
        """The earliest version under which what is stored was stored."""
        return min((sub.stamp for sub in self.chain.subs), default=None)

    def restamp(self, version: int) -> None:
        """Nothing of an earlier version matters any more."""
        self.chain.restamp(version)

    def expire(self, watermark: int | None, space: Workspace) -> None:
        """Drop the runs that nothing to come can match."""
        self._watermark = watermark
        space.drop(self.chain.expire(watermark))

    def merge(self, space: Workspace) -> None:
        """Merge the runs that are due."""
        while (due := self.chain.merge_due()) is not None:
            self._unite(*due, space)

    def _unite(self, sub: SubIndex, runs: list[Run], space: Workspace) -> None:
        """Make one run of some runs of a sub-index."""
        parts = _loaded(runs, space)
        if parts is None:
            # Some tuples are so large that only few fit into memory: nothing is rewritten.
            self.chain.replace(sub, runs, Run(tuple(m for run in runs for m in run.parts)))
            return
        found = self.merged(cast(list[_Part], parts), self._watermark)
        merged = Run(tuple(space.make(part) for part in found))
        space.drop(self.chain.replace(sub, runs, merged))

    def rename(self, written: dict[str, PartMeta]) -> None:
        """Parts that were made have been written under other names."""
        for sub in self.chain.subs:
            sub.runs = [
                Run(tuple(written.get(meta.id, meta) for meta in run.parts)) for run in sub.runs
            ]

    def validate(self) -> None:
        """Refuse a state that no sequence of batches leads to."""
        names = [meta.id for meta in self.chain.parts()]
        if len(set(names)) != len(names):
            raise StateError("a part is in two runs")
        for sub in self.chain.subs:
            if not sub.runs or not all(run.parts for run in sub.runs):
                raise StateError("a run or a sub-index is empty")
        for meta in self.chain.parts():
            if meta.rows < 1 or any(a > b for a, b in zip(meta.low, meta.high, strict=True)):
                raise StateError(f"part {meta.id} has no rows, or keys that end before they begin")

    def _insert(self, parts: Iterator[_Part], space: Workspace) -> list[_Part]:
        made = list(parts)
        run = Run(tuple(space.make(part) for part in made))
        self.chain.insert(run, self._watermark, self.stamp)
        return made


class TupleRuns(_RunIndex[Part]):
    """Tuples of one stream."""

    def __init__(self, stream: StreamSpec, store: Store) -> None:
        super().__init__(store.retention)
        self.stream = stream
        self.order = store.order

    @property
    def what(self) -> str:
        """What is in a part."""
        return f"stream {self.stream.name!r}"

    def decode(self, data: pa.Buffer | bytes) -> Part:
        """The part in stored bytes."""
        tuples = Tuples.encode(arrow.from_bytes(data), self.stream)
        return Part(tuples.batch, tuples.keys, self.order)

    def add(self, tuples: Tuples, space: Workspace) -> None:
        """Add a run of tuples; nothing is written yet, it may still be merged."""
        tuples = self.arranged(tuples)
        time = self.stream.time
        apart = None if time is None else self.chain.apart(tuples.keys[time], self._watermark)
        for some in [tuples] if apart is None else map(tuples.take, apart):
            self._insert(self.cut(some), space)

    def arranged(self, tuples: Tuples) -> Tuples:
        """The tuples in the order of a run."""
        return tuples.sorted(self.order)

    def freeze(self, version: int) -> None:
        """Leave the parts as they are that were stored under an earlier version."""
        self.chain.frozen = version

    def cut(self, tuples: Tuples) -> Iterator[Part]:
        """Arranged tuples as parts of bounded size."""
        for start, stop in arrow.stretches(tuples.batch, PART_BYTES):
            piece = tuples.slice(start, stop)
            yield Part(piece.batch, piece.keys, self.order)

    def parts_before(self, version: int) -> Iterator[PartMeta]:
        """The parts that were stored under an earlier version."""
        for sub in self.chain.before(version):
            yield from sub.parts()

    def keep_only(
        self, version: int | None, staying: Callable[[Part], Bools], space: Workspace
    ) -> Iterator[None]:
        """Drop tuples that were stored under an earlier version, or under any if that is None, but
        for those that stay; a pause after each run."""
        for sub in list(self.chain.subs if version is None else self.chain.before(version)):
            for run in sub.runs:
                found: list[PartMeta] = []
                for meta in run.parts:
                    part = cast(Part, space.load(meta))
                    stays = staying(part)
                    if stays.all():
                        found.append(meta)
                        continue
                    space.drop([meta])
                    if stays.any():
                        rest = part.take(np.flatnonzero(stays))
                        found.append(space.make(Part(rest.batch, rest.keys, self.order)))
                self.chain.exchange(sub, run, tuple(found))
                yield
            if version is not None:
                sub.stamp = version

    def merged(self, parts: Sequence[Part], watermark: int | None) -> Iterator[Part]:
        """One run of all the parts; what is old goes with its run, not tuple by tuple."""
        yield from self.cut(self.arranged(concat(parts)))

    def _searched(self, part: Part, order: SortOrder) -> Part:
        return part.ordered(order)


class PackRuns(_RunIndex[Packs]):
    """Packs of hubs of one stream with partners of another."""

    def __init__(
        self,
        hub: StreamSpec,
        member: StreamSpec,
        order: SortOrder,
        reach: tuple[int | None, int | None],
        retention: Retention,
        *,
        packed: bool = True,
    ) -> None:
        """`order` is that of the hubs, by the keys with which the third stream looks for them;
        `reach` is how much later than hub and member a tuple of the third stream may be."""
        super().__init__(retention)
        self.hub = hub
        self.member = member
        self.order = order
        self.reach = reach
        self.packed = packed

    @property
    def what(self) -> str:
        """What is in a part."""
        return f"packs of {self.hub.name!r} and {self.member.name!r}"

    def decode(self, data: pa.Buffer | bytes) -> Packs:
        """The packs in stored bytes."""
        return Packs.from_bytes(data, self.hub, self.member, self.order)

    def add(self, pairs: Links, space: Workspace) -> list[Packs]:
        """Add a run of pairs as packs; what came of them."""
        latest = self.latest(pairs)
        apart = self.chain.apart(latest, self._watermark)
        if apart is None:
            return self._insert(self.cut(pairs, latest), space)
        found = []
        for rows in apart:
            found += self._insert(self.cut(pairs.keep(rows), latest[rows]), space)
        return found

    def cut(self, pairs: Links, latest: Int64s) -> Iterator[Packs]:
        """Pairs as packs in parts of bounded size."""
        if not self.packed:
            # Each pair has its own copy of both.
            most = max(1, arrow.SAFE_BYTES // max(1, pairs.hubs.widest + pairs.members.widest))
            if len(latest) > most:
                for rows in np.split(np.arange(len(latest)), range(most, len(latest), most)):
                    yield from self.cut(pairs.keep(rows), latest[rows])
                return
        whole = pack(pairs, latest, self.order, packed=self.packed)
        # Without the members: pieces share them, and each has its own copy.
        size = whole.nbytes - int(whole.members.batch.nbytes)
        pieces = max(1, min(len(whole), -(-size // PART_BYTES)))
        for rows in np.array_split(np.arange(len(whole)), pieces):
            yield from self._bounded(whole.take(rows))

    def _bounded(self, packs: Packs) -> Iterator[Packs]:
        """The packs, in several parts if hubs and members together are too large for one."""
        if packs.nbytes <= PACKS_BYTES or packs.pairs == 1:
            yield packs
            return
        pairs = packs.unpacked()
        members = int(packs.members.batch.nbytes)
        if 2 * members > packs.nbytes and len(packs.members) > 1:
            lower = pairs.member_rows < len(packs.members) // 2
        elif len(packs) > 1:
            lower = pairs.hub_rows < len(packs) // 2
        else:
            lower = np.arange(packs.pairs) < packs.pairs // 2
        for rows in (np.flatnonzero(lower), np.flatnonzero(~lower)):
            some = pairs.keep(rows)
            half = pack(some, self.latest(some), self.order, packed=self.packed)
            yield from self._bounded(half)

    def merged(self, parts: Sequence[Packs], watermark: int | None) -> Iterator[Packs]:
        """One run of all the packs; members that the watermark has passed are trimmed."""
        pairs = concat_links([part.unpacked() for part in parts])
        latest = self.latest(pairs)
        if watermark is not None:
            alive = np.flatnonzero(latest >= watermark)
            pairs, latest = pairs.keep(alive), latest[alive]
        if len(latest):
            yield from self.cut(pairs, latest)

    def latest(self, pairs: Links) -> Int64s:
        """The last time at which the third stream can complete each pair."""
        return np.minimum(
            _until(pairs.hubs, self.hub, self.reach[0])[pairs.hub_rows],
            _until(pairs.members, self.member, self.reach[1])[pairs.member_rows],
        )

    def _searched(self, part: Packs, order: SortOrder) -> Part:
        return part.hubs


def _until(tuples: Tuples, stream: StreamSpec, reach: int | None) -> Int64s:
    """The last time at which a partner of each tuple may come."""
    if stream.time is None or reach is None:
        return np.full(len(tuples), INT64_MAX)
    return np.minimum(tuples.keys[stream.time], INT64_MAX - max(0, reach)) + reach


def _steps(part: Part) -> int:
    """Steps of the two binary searches in a part."""
    sorted_by = (part.order.equality, part.order.range)
    return 0 if sorted_by == (None, None) else 2 * len(part).bit_length()


def _loaded(runs: Sequence[Run], space: Workspace) -> list[Stored] | None:
    """The parts of some runs; None if they are too large to be put together."""
    parts: list[Stored] = []
    size = 0
    for meta in (meta for run in runs for meta in run.parts):
        parts.append(space.load(meta))
        size += parts[-1].nbytes
        if size > arrow.SAFE_BYTES:
            return None
    return parts
