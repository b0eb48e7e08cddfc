"""TuplePacking: intermediate results as a hub tuple with its many partners, columnar.

A pack is one entry of the index: its hub, and links to the partners. The entries are sorted like a
run, by the keys with which the third stream looks for the hub; each partner is stored once,
however many hubs it belongs to. A pair of tuples is a pack of one partner, so that the plain pair
structure is the same thing with every hub and every partner repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from thetastream import arrow
from thetastream.index.encoding import Int64s
from thetastream.index.part import Part, Tuples, concat, sort_order
from thetastream.index.probe import Found, Pairs, Probe, expand
from thetastream.spec import SortOrder, StreamSpec

_UNTIL, _COUNT, _LINK = "until", "count", "link"


class Links(NamedTuple):
    """Pairs of tuples: which hub belongs to which member."""

    hubs: Tuples
    hub_rows: Int64s
    members: Tuples
    member_rows: Int64s

    def keep(self, which: Int64s) -> Links:
        """Some of the pairs."""
        return self._replace(hub_rows=self.hub_rows[which], member_rows=self.member_rows[which])


class Packs:
    """Packs that can be probed: a `thetastream.index.part.Part` of hubs, and their partners."""

    def __init__(self, hubs: Part, counts: Int64s, links: Int64s, members: Tuples) -> None:
        """`counts` says how many of the `links` into `members` belong to each hub, in order."""
        self.hubs = hubs
        self.counts = counts
        self.links = links
        self.members = members

    def __len__(self) -> int:
        return len(self.hubs)

    @property
    def pairs(self) -> int:
        """Intermediate results in the packs."""
        return len(self.links)

    @property
    def low(self) -> tuple[int, ...]:
        """The smallest value of each key of the hubs, and of the time until they matter."""
        return self.hubs.low

    @property
    def high(self) -> tuple[int, ...]:
        """The largest value of each key of the hubs, and of the time until they matter."""
        return self.hubs.high

    @cached_property
    def ends(self) -> Int64s:
        """Where the links of each hub end."""
        return np.cumsum(self.counts)

    @property
    def nbytes(self) -> int:
        """Arrow bytes."""
        return int(self.hubs.batch.nbytes + self.members.batch.nbytes) + 4 * len(self.links)

    def to_bytes(self, *, compress: bool = False) -> pa.Buffer:
        """The packs as they are stored and sent."""
        hubs = self.hubs.batch.append_column(_UNTIL, pa.array(self.hubs.keys[-1]))
        hubs = hubs.append_column(_COUNT, pa.array(self.counts, pa.int32()))
        links = pa.RecordBatch.from_arrays([pa.array(self.links, pa.int32())], [_LINK])
        return arrow.sections_to_bytes(hubs, self.members.batch, links, compress=compress)

    @classmethod
    def from_bytes(
        cls, data: pa.Buffer | bytes, hub: StreamSpec, member: StreamSpec, order: SortOrder
    ) -> Packs:
        """The packs that `to_bytes` wrote."""
        hubs, members, links = arrow.sections_from_bytes(data)
        latest, count = np.asarray(hubs.column(_UNTIL)), np.asarray(hubs.column(_COUNT))
        own = hubs.select([name for name in hubs.schema.names if name not in (_UNTIL, _COUNT)])
        return cls(
            Part(own, [*Tuples.encode(own, hub).keys, latest], order),
            count.astype(np.int64),
            np.asarray(links.column(_LINK)).astype(np.int64),
            Tuples.encode(members, member),
        )

    def unpacked(self) -> Links:
        """The pairs in the packs."""
        rows = np.repeat(np.arange(len(self.hubs)), self.counts)
        hubs = Tuples(self.hubs.batch, self.hubs.keys[:-1])
        return Links(hubs, rows, self.members, self.links)

    def partners(self, hubs: Int64s, limit: int) -> Iterator[tuple[Int64s, Int64s]]:
        """Which of the given hubs has which member, at most `limit` at a time."""
        ends = self.ends[hubs]
        for which, link in expand(ends - self.counts[hubs], ends, limit):
            yield which, self.links[link]

    def take(self, rows: Int64s) -> Packs:
        """The packs at those positions, which ascend."""
        if len(rows) == len(self):
            return self
        begin = self.ends[rows] - self.counts[rows]
        chosen = np.concatenate(
            [np.empty(0, dtype=np.int64), *(p for _, p in expand(begin, self.ends[rows], 1 << 62))]
        )
        members, links = compact(self.members, self.links[chosen])
        hubs = self.hubs.take(rows)
        return Packs(
            Part(hubs.batch, hubs.keys, self.hubs.order), self.counts[rows], links, members
        )


def pack(pairs: Links, latest: Int64s, order: SortOrder, *, packed: bool) -> Packs:
    """Packs of the pairs, or with `packed` False one entry a pair.

    `latest` is the last time at which the third stream can complete each of them.
    """
    if packed:
        hubs, entry = compact(pairs.hubs, pairs.hub_rows)
    else:
        hubs, entry = pairs.hubs.take(pairs.hub_rows), np.arange(len(pairs.hub_rows))
    sorting = sort_order(hubs.keys, order)
    if sorting is not None:
        place = np.empty(len(hubs), dtype=np.int64)
        place[sorting] = np.arange(len(hubs))
        hubs, entry = hubs.take(sorting), place[entry]
    # Pairs come in ascending stretches, which this sort makes use of.
    by_hub = np.argsort(entry, kind="stable")
    if packed:
        members, links = compact(pairs.members, pairs.member_rows[by_hub])
    else:
        members = pairs.members.take(pairs.member_rows[by_hub])
        links = np.arange(len(by_hub))
    counts = np.bincount(entry, minlength=len(hubs)).astype(np.int64)
    starts = np.cumsum(counts) - counts
    until = np.maximum.reduceat(latest[by_hub], starts) if len(counts) else latest
    return Packs(Part(hubs.batch, [*hubs.keys, until], order), counts, links, members)


def compact(tuples: Tuples, rows: Int64s) -> tuple[Tuples, Int64s]:
    """Those of the tuples that are used, and where among them the used ones now are."""
    used = np.zeros(len(tuples), dtype=bool)
    used[rows] = True
    if used.all():
        return tuples, rows
    return tuples.take(np.flatnonzero(used)), (np.cumsum(used) - 1)[rows]


def concat_links(items: Sequence[Links]) -> Links:
    """All the pairs of several."""
    hubs = concat([item.hubs for item in items])
    members = concat([item.members for item in items])
    hub_rows, member_rows = [], []
    hub_base = member_base = 0
    for item in items:
        hub_rows.append(item.hub_rows + hub_base)
        member_rows.append(item.member_rows + member_base)
        hub_base += len(item.hubs)
        member_base += len(item.members)
    return Links(hubs, np.concatenate(hub_rows), members, np.concatenate(member_rows))


def complete(
    found: Found, by_member: Probe, packs: Packs, limit: int
) -> Iterator[tuple[Int64s, Pairs]]:
    """Probing tuples with the hubs and the members of the packs that they complete.

    `found` has the hubs: a filter before the members are looked at, each of which is checked too.
    """
    for probing, hubs in found.pairs(packs.hubs, limit):
        for which, members in packs.partners(hubs, limit):
            some = probing[which]
            keep = by_member.satisfied(packs.members, (some, members))
            if keep.all():
                yield some, (hubs[which], members)
            elif keep.any():
                yield some[keep], (hubs[which][keep], members[keep])
