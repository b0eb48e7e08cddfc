"""Indexes that are joined by block nested loops: every probing tuple looks at every stored tuple of
its group.

Stored tuples are divided into partition-groups by a hash of the driving equality key: where the key
also decides the routing, a partition-group is a run of the routing's groups. What is written is a
run of all groups, as with sorted runs, in which the tuples of a group are neighbours: its blocks
are stretches of the runs. So a batch adds one part and not one for each group, runs expire, merge
and move as those of `thetastream.index.runs` do, and to split or merge a group writes nothing.

Fresh tuples need no head block of their own. A batch's tuples of one stream look at what is stored
of the other, and only then are they stored, for the other stream's fresh tuples to look at. So each
pair is looked at once, and whatever expires has met all tuples that came before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream import arrow
from thetastream.errors import StateError
from thetastream.index.chain import subs_from_json
from thetastream.index.directory import HASH_BITS, Directory
from thetastream.index.encoding import Bools, Int64s
from thetastream.index.hashing import UInt64s, dealt, mixed, scaled
from thetastream.index.part import Part, Tuples
from thetastream.index.probe import Found, Probe
from thetastream.index.protocol import Workspace
from thetastream.index.runs import TupleRuns
from thetastream.spec import GROUPS, Store, StreamSpec

PARTITION_GROUPS = 60
"""Each is a run of 84 of the routing's groups, if the same key decides both."""
assert GROUPS % PARTITION_GROUPS == 0

TILE_PAIRS = 1 << 18
"""Pairs of tuples, of some blocks of both sides, that are looked at in one step."""
TILE_ROWS = 1 << 12
"""Stored tuples among them at most."""
FOUND_PAIRS = 1 << 18
"""Matches that are handed on together."""


class BlockLists(TupleRuns):
    """One list of blocks for each partition-group."""

    def __init__(self, stream: StreamSpec, store: Store) -> None:
        super().__init__(stream, store)
        self._key = store.order.equality
        self._directories = [Directory() for _ in range(self._groups)]

    @property
    def _groups(self) -> int:
        """Without an equality there is nothing to divide by."""
        return 1 if self._key is None else PARTITION_GROUPS

    @property
    def directories(self) -> list[Directory]:
        """The mini-groups of each partition-group."""
        return self._directories

    # -- state ----------------------------------------------------------------------------------

    def restore(self, state: Any) -> None:
        """Go on from what `state` gave."""
        self.chain.subs = subs_from_json(state["chain"])
        self._directories = [Directory.from_json(raw) for raw in state["groups"]]
        if len(self._directories) != self._groups:
            raise ValueError(f"{len(self._directories)} partition-groups")

    def state(self) -> Any:
        """The chain and the directories as JSON takes them."""
        groups = [directory.to_json() for directory in self._directories]
        return {"chain": super().state(), "groups": groups}

    def validate(self) -> None:
        """Refuse a state that no sequence of batches leads to."""
        super().validate()
        for directory in self._directories:
            directory.validate()
        counted = sum(mini.rows for one in self._directories for mini in one.minis)
        if counted != sum(meta.rows for meta in self.parts()):
            raise StateError(f"the groups of {self.what} count other tuples than are stored")

    # -- tuples that come and go ----------------------------------------------------------------

    def arranged(self, tuples: Tuples) -> Tuples:
        """The tuples by partition-group, then by hash; those of one key are neighbours."""
        if self._key is None:
            return tuples
        keys = tuples.keys[self._key]
        rows = np.argsort(mixed(keys))
        # A stable sort of small integers takes one pass over them.
        groups = scaled(dealt(keys[rows]), PARTITION_GROUPS).astype(np.int16)
        return tuples.take(rows[np.argsort(groups, kind="stable")])

    def add(self, tuples: Tuples, space: Workspace) -> None:
        """Add a run of tuples; nothing is written yet, it may still be merged."""
        super().add(tuples, space)
        self._count(tuples)
        self._tune(space)

    def expire(self, watermark: int | None, space: Workspace) -> None:
        """Drop the blocks that nothing to come can match."""
        self._watermark = watermark
        gone = self.chain.expire(watermark)
        for meta in gone:
            self._count(cast(Part, space.load(meta)), -1)
        space.drop(gone)
        if gone:
            self._tune(space)

    def keep_only(
        self, version: int | None, staying: Callable[[Part], Bools], space: Workspace
    ) -> Iterator[None]:
        """Drop tuples that were stored under an earlier version, or under any if that is None, but
        for those that stay; a pause after each run."""

        def counted(part: Part) -> Bools:
            stays = staying(part)
            self._count(part.take(np.flatnonzero(~stays)), -1)
            return stays

        yield from super().keep_only(version, counted, space)
        self._tune(space)

    def _count(self, tuples: Tuples, sign: int = 1) -> None:
        minis = [mini for directory in self._directories for mini in directory.minis]
        slots = np.searchsorted(self._starts(), self._places(tuples), "right") - 1
        rows = np.bincount(slots, minlength=len(minis))
        size = np.bincount(slots, weights=tuple_bytes(tuples.batch), minlength=len(minis))
        for slot in np.flatnonzero(rows).tolist():
            minis[slot].change(sign * int(rows[slot]), sign * int(size[slot]))

    def _tune(self, space: Workspace) -> None:
        """Let the groups have the size that they should have."""

    # -- searching ------------------------------------------------------------------------------

    def search(self, probe: Probe, space: Workspace) -> Iterator[tuple[Part, Part, Found]]:
        """The matches in all parts, found by looking at every pair of a group."""
        starts, visitors = self._visitors(probe)
        for meta in list(self.chain.parts()):
            part = cast(Part, space.load(meta))
            cuts = [0, len(part)]
            if len(starts) > 1:
                cuts = [*np.searchsorted(self._places(part), starts).tolist(), len(part)]
            met = [
                (rows, begin, end)
                for rows, begin, end in zip(visitors, cuts[:-1], cuts[1:], strict=True)
                if len(rows) and end > begin
            ]
            self.compared += sum(len(rows) * (end - begin) for rows, begin, end in met)
            tiles = (tile for one in met for tile in _matches(probe, part, *one))
            for probing, stored in _bundled(tiles):
                yield part, part, Found(probing, stored, stored + 1, [])

    def _visitors(self, probe: Probe) -> tuple[UInt64s, list[Int64s]]:
        """Where each group starts that is visited as one, and the probing tuples that visit it.

        Tuples that are not compared by the key of the groups visit all that is stored.
        """
        needles = probe.needles
        if needles is None or self._key is None or probe.order.equality != self._key:
            return np.zeros(1, dtype=np.uint64), [np.arange(len(probe.tuples), dtype=np.int64)]
        starts = self._starts()
        group = np.searchsorted(starts, _places_of(needles), "right") - 1
        order = np.argsort(group, kind="stable").astype(np.int64)
        cuts = np.searchsorted(group[order], np.arange(1, len(starts)))
        return starts, np.split(order, cuts)

    def _starts(self) -> UInt64s:
        """The first place of each mini-group of all partition-groups."""
        found = [
            (group << HASH_BITS) + mini.start
            for group, directory in enumerate(self._directories)
            for mini in directory.minis
        ]
        return np.array(found, dtype=np.uint64)

    def _places(self, tuples: Tuples) -> UInt64s:
        """Partition-group and hash of each tuple as one number."""
        if self._key is None:
            return np.zeros(len(tuples), dtype=np.uint64)
        name = ("place", self._key)
        if name not in tuples.memo:
            tuples.memo[name] = _places_of(tuples.keys[self._key])
        found: UInt64s = tuples.memo[name]
        return found


def _places_of(keys: Int64s) -> UInt64s:
    groups = scaled(dealt(keys), PARTITION_GROUPS).view(np.uint64)
    return (groups << np.uint64(HASH_BITS)) | (mixed(keys) >> np.uint64(64 - HASH_BITS))


def _matches(
    probe: Probe, part: Part, rows: Int64s, begin: int, end: int
) -> Iterator[tuple[Int64s, Int64s]]:
    """The matching pairs of some probing tuples and a stretch of a part, tile by tile."""
    width = min(TILE_ROWS, end - begin)
    height = max(1, TILE_PAIRS // width)
    for start in range(begin, end, width):
        stop = min(start + width, end)
        for first in range(0, len(rows), height):
            some = rows[first : first + height]
            one, two = np.nonzero(probe.table(some, part, start, stop))
            if len(one):
                yield some[one], two.astype(np.int64) + start


def _bundled(tiles: Iterator[tuple[Int64s, Int64s]]) -> Iterator[tuple[Int64s, Int64s]]:
    """The pairs of many tiles, put together until there are enough."""
    waiting: list[tuple[Int64s, Int64s]] = []
    size = 0
    for tile in tiles:
        waiting.append(tile)
        size += len(tile[0])
        if size >= FOUND_PAIRS:
            yield _joined(waiting)
            waiting, size = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(tiles: list[tuple[Int64s, Int64s]]) -> tuple[Int64s, Int64s]:
    probing, stored = zip(*tiles, strict=True)
    return np.concatenate(probing), np.concatenate(stored)


def tuple_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Bytes of each tuple: what comes and what goes is counted alike, whatever batch it is in."""
    total = np.zeros(batch.num_rows, dtype=np.int64)
    varying = []
    for column in batch.columns:
        try:
            total += -(-column.type.bit_width // 8)
        except ValueError:
            varying.append(column)
    if varying:
        others = pa.RecordBatch.from_arrays(varying, [str(n) for n in range(len(varying))])
        total += arrow.row_bytes(others)
    return total
