"""What the entries of an index are made of: how they are cut, merged, stored and read back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from thetastream import arrow
from thetastream.index.encoding import INT64_MAX, Int64s
from thetastream.index.packing import Links, Packs, pack, together_pairs
from thetastream.index.part import Part, SortOrder, Tuples, together
from thetastream.spec import StreamSpec

PART_BYTES = 12 * 1024**2
"""Arrow bytes of a part before compression: the state store's channel needs about ten times a
value's size in memory, and a probe wants few parts."""

PACKS_BYTES = 4 * PART_BYTES
"""The same of a part of packs with the members, of which each part has its own copies."""


class Stored(Protocol):
    """A part of an index, of tuples or of packs."""

    def __len__(self) -> int: ...

    @property
    def pairs(self) -> int:
        """Intermediate results in it."""

    @property
    def nbytes(self) -> int:
        """Arrow bytes."""

    @property
    def low(self) -> tuple[int, ...]:
        """The smallest value of each key."""

    @property
    def high(self) -> tuple[int, ...]:
        """The largest value of each key."""

    def to_bytes(self, *, compress: bool = False) -> pa.Buffer:
        """The part as it is stored."""


class Layout(Protocol):
    """The kind of an index's parts."""

    @property
    def what(self) -> str:
        """What is in a part, for messages."""

    def decode(self, data: pa.Buffer | bytes) -> Stored:
        """The part in stored bytes."""

    def merged(self, parts: Sequence[Stored], watermark: int | None) -> Iterator[Stored]:
        """One run of all the parts, without what the watermark has passed."""


@dataclass(frozen=True)
class TupleLayout:
    """Tuples of one stream."""

    stream: StreamSpec
    order: SortOrder

    @property
    def what(self) -> str:
        """What is in a part."""
        return f"stream {self.stream.name!r}"

    def decode(self, data: pa.Buffer | bytes) -> Part:
        """The part in stored bytes."""
        tuples = Tuples.encode(arrow.from_bytes(data), self.stream)
        return Part(tuples.batch, tuples.keys, self.order)

    def cut(self, tuples: Tuples) -> Iterator[Part]:
        """Sorted tuples as parts of bounded size."""
        for start, stop in arrow.stretches(tuples.batch, PART_BYTES):
            piece = tuples.slice(start, stop)
            yield Part(piece.batch, piece.keys, self.order)

    def merged(self, parts: Sequence[Stored], watermark: int | None) -> Iterator[Part]:
        """One run of all the parts; what is old goes with its run, not tuple by tuple."""
        mine = [part for part in parts if isinstance(part, Part)]
        yield from self.cut(together(mine).sorted(self.order))


@dataclass(frozen=True)
class PackLayout:
    """Packs of hubs of one stream with partners of another."""

    hub: StreamSpec
    member: StreamSpec
    order: SortOrder
    """Of the hubs: by the keys with which the third stream looks for them."""
    reach: tuple[int | None, int | None]
    """How much later than the hub and the member a tuple of the third stream may be."""
    packed: bool = True

    @property
    def what(self) -> str:
        """What is in a part."""
        return f"packs of {self.hub.name!r} and {self.member.name!r}"

    def decode(self, data: pa.Buffer | bytes) -> Packs:
        """The packs in stored bytes."""
        return Packs.from_bytes(data, self.hub, self.member, self.order)

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

    def merged(self, parts: Sequence[Stored], watermark: int | None) -> Iterator[Packs]:
        """One run of all the packs; members that the watermark has passed are trimmed."""
        pairs = together_pairs([part.unpacked() for part in parts if isinstance(part, Packs)])
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


def _until(tuples: Tuples, stream: StreamSpec, reach: int | None) -> Int64s:
    """The last time at which a partner of each tuple may come."""
    if stream.time is None or reach is None:
        return np.full(len(tuples), INT64_MAX)
    return np.minimum(tuples.keys[stream.time], INT64_MAX - max(0, reach)) + reach
