"""A unit of a three-way join, without IO: TriJoin's symmetric and semi-symmetric schemes.

A unit stores tuples of the groups that it is of. A tuple of another stream that visits a group
first completes the intermediate results there that lack only it, and then meets the stored tuples:
the pairs stay as new intermediate results. So a result is found where its oldest member is stored,
when its newest one comes, without waiting for anything to be sent on.

In a chain join the two ends have no predicate in common. A result whose newest member is of the
middle stream then has no pair to complete: what a new middle tuple makes with the first end's
stored tuples also goes on to the group of the second end, and meets what is stored there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from thetastream import arrow
from thetastream.engine.arrivals import Arrivals
from thetastream.engine.manifest import Manifest
from thetastream.engine.protocol import (
    Forward,
    Instruction,
    Mark,
    Pass,
    PutManifest,
    Report,
    Store,
)
from thetastream.engine.shelf import Shelf
from thetastream.engine.unit import (
    carried,
    chunk_limit,
    gathered,
    newest_column,
    on_time,
    result_batch,
    with_totals,
)
from thetastream.graph import Scheme, Stage, TriSpec
from thetastream.index.encoding import Int64s
from thetastream.index.layout import PackLayout, TupleLayout
from thetastream.index.packing import Links, Packs, compact, complete
from thetastream.index.part import SortOrder, Tuples, bundled, together
from thetastream.index.probe import Probe
from thetastream.spec import NEWEST
from thetastream.topology.dispatcher import Pack
from thetastream.topology.routes import HOME, STORE
from thetastream.topology.tri import TriTopology, visit

MEETING_PAIRS = 1 << 21
MEETING_BYTES = arrow.SAFE_BYTES // 2
"""Intermediate results, and Arrow bytes of their stored members, that are packed together; more of
them make another run."""


class _Member(NamedTuple):
    """Tuples of one stream that are part of results, and which of them."""

    stream: int
    tuples: Tuples
    rows: Int64s


_Found = tuple[_Member, _Member, _Member]
"""Results: rows of tuples of each stream."""


class TriUnit:
    """One unit of one stage during one batch."""

    def __init__(
        self, stage: Stage, number: int, manifest: Manifest, store: Store, *, chunk_rows: int
    ) -> None:
        self._stage = stage
        self._spec = stage.spec
        self._manifest = manifest
        self._chunk_rows = chunk_rows
        self._number = number
        self._tuples = tuple_layouts(stage)
        self._shelf = Shelf(number, manifest, [*self._tuples, *pack_layouts(stage)], store)
        self._report = Report(number)
        self._arrivals = Arrivals(self._spec.streams)
        self._topology = TriTopology(stage.spec.stages[-1])
        self._passes = stage.number + 1 < len(stage.spec.stages)

    def process(
        self,
        packs: Iterable[Pack],
        watermark: int | None,
        forwarded: Iterable[Packs] = (),
    ) -> Iterator[Instruction]:
        """Join the packs of a batch with each other and with what is stored."""
        self._manifest.sequence += 1
        self._shelf.expire(watermark)
        arrived: list[list[tuple[int, Tuples]]] = [[] for _ in self._spec.streams]
        for pack in packs:
            if pack.batch.num_rows:
                arrived[pack.stream].append((pack.role, self._on_time(pack, watermark)))
        for stream in self._spec.order:
            yield from self._handle(stream, [(r, t) for r, t in arrived[stream] if len(t)])
            if self._stage.number and stream == self._spec.order[1]:
                for some in forwarded:
                    yield from self._out(self._forwarded(some))
        if self._passes and self._number == self._stage.first_unit and watermark is not None:
            last = self._spec.stages[-1]
            for unit in range(last.first_unit, last.first_unit + last.units):
                yield Mark(unit, watermark)
        self._shelf.merge()
        yield from self._shelf.written()
        yield PutManifest(self._manifest.write(self._stage))
        stored = len(self._stage.groups)
        for stream, chain in zip(self._stage.groups, self._manifest.chains, strict=False):
            self._arrivals.kept(stream, chain.parts())
        with_totals(self._report, self._arrivals, self._manifest)
        metas = [meta for chain in self._manifest.chains[stored:] for meta in chain.parts()]
        self._report.entries = sum(meta.rows for meta in metas)
        self._report.pairs = sum(meta.pairs for meta in metas)
        yield self._report

    def _on_time(self, pack: Pack, watermark: int | None) -> Tuples:
        stream = self._spec.streams[pack.stream]
        tuples = Tuples.encode(pack.batch, stream)
        found = on_time(tuples, stream, watermark)
        if pack.role & HOME:
            late = len(tuples) - len(found)
            self._report.rows_in += len(tuples)
            self._report.late += late
            self._arrivals.add(pack.stream, tuples, late)
        return found

    def _handle(self, stream: int, arrived: list[tuple[int, Tuples]]) -> Iterator[Instruction]:
        """All of a stream's new tuples: first as visitors, then as stored ones."""
        for group in self._stage.groups:
            for tuples in bundled(tuples for role, tuples in arrived if role & visit(group)):
                self._report.probes += len(tuples)
                third = 3 - stream - group
                if (third, group) in self._stage.meetings:
                    yield from self._out(self._complete(stream, tuples, third, group))
                if (stream, group) in self._stage.meetings:
                    yield from self._meet(stream, tuples, group)
        for tuples in bundled(tuples for role, tuples in arrived if role & STORE):
            chain = self._stage.groups.index(stream)
            ranked = tuples.sorted(self._tuples[chain].order)
            self._arrivals.keys(stream, ranked, self._tuples[chain].order.equality)
            self._shelf.store(chain, ranked)

    # -- completing intermediate results --------------------------------------------------------

    def _complete(self, stream: int, tuples: Tuples, new: int, group: int) -> Iterator[_Found]:
        """The results of visitors with the pairs that another stream made with a group."""
        chain = self._packs_chain(new, group)
        hub = self._spec.hub(new, group)
        member = new + group - hub
        tuples = tuples.sorted(self._order(stream, hub))
        by_hub, by_member = self._probe(stream, hub, tuples), self._probe(stream, member, tuples)
        hub_key, member_key = self._equality(hub, stream), self._equality(member, stream)
        for meta in self._shelf.metas(chain):
            rows = by_hub.candidates(meta.low, meta.high, hub_key)
            if len(rows) == 0:
                continue
            packs = self._shelf.packs(chain, meta)
            limit = chunk_limit(self._chunk_rows, tuples, packs.hubs, packs.members)
            for found, (hubs, members) in complete(
                by_hub, by_member, member_key, packs, rows, limit
            ):
                yield (
                    _Member(stream, tuples, found),
                    _Member(hub, packs.hubs, hubs),
                    _Member(member, packs.members, members),
                )

    def _forwarded(self, packs: Packs) -> Iterator[_Found]:
        """The results of packs of the first stage with the tuples that are stored here."""
        first, middle, last = self._spec.order
        # The hubs are sorted by the keys that the last stream looks for, and so can look for it.
        tuples = packs.hubs
        probe = self._probe(middle, last, tuples)
        ends = self._probe(first, last, packs.members)
        chain = self._stage.groups.index(last)
        for meta in self._shelf.metas(chain):
            rows = probe.candidates(meta.low, meta.high, self._equality(last, middle))
            if len(rows) == 0:
                continue
            part = self._shelf.tuples(chain, meta).ordered(self._order(last, middle))
            limit = chunk_limit(self._chunk_rows, tuples, packs.members, part)
            for hubs, stored in probe.matches(part, rows, limit):
                for which, members in packs.partners(hubs, limit):
                    others = stored[which]
                    keep = ends.satisfied(part, self._equality(last, first), (members, others))
                    if keep.any():
                        yield (
                            _Member(middle, tuples, hubs[which][keep]),
                            _Member(first, packs.members, members[keep]),
                            _Member(last, part, others[keep]),
                        )

    # -- making intermediate results ------------------------------------------------------------

    def _meet(self, stream: int, tuples: Tuples, group: int) -> Iterator[Instruction]:
        """Visitors meet the stored tuples of a group; the pairs stay, and perhaps go on."""
        order = self._order(group, stream)
        tuples = tuples.sorted(self._order(stream, group))
        probe = self._probe(stream, group, tuples)
        chain = self._stage.groups.index(group)
        waiting: list[tuple[Int64s, Tuples, Int64s]] = []
        size = nbytes = 0
        for meta in self._shelf.metas(chain):
            rows = probe.candidates(meta.low, meta.high, order.equality)
            if len(rows) == 0:
                continue
            part = self._shelf.tuples(chain, meta).ordered(order)
            for mine, partners in probe.matches(part, rows, MEETING_PAIRS):
                waiting.append((mine, *compact(part, partners)))
                size += len(mine)
                nbytes += int(waiting[-1][1].batch.nbytes)
                if size >= MEETING_PAIRS or nbytes >= MEETING_BYTES:
                    yield from self._keep(stream, tuples, group, waiting)
                    waiting, size, nbytes = [], 0, 0
        if waiting:
            yield from self._keep(stream, tuples, group, waiting)

    def _keep(
        self,
        stream: int,
        tuples: Tuples,
        group: int,
        waiting: list[tuple[Int64s, Tuples, Int64s]],
    ) -> Iterator[Instruction]:
        stored = together([part for _, part, _ in waiting])
        bases = np.cumsum([0, *(len(part) for _, part, _ in waiting[:-1])])
        mine = np.concatenate([rows for rows, _, _ in waiting])
        partners = np.concatenate(
            [rows + base for (_, _, rows), base in zip(waiting, bases, strict=True)]
        )
        if self._spec.hub(stream, group) == stream:
            pairs = Links(tuples, mine, stored, partners)
        else:
            pairs = Links(stored, partners, tuples, mine)
        pieces = self._shelf.pack(self._packs_chain(stream, group), pairs)
        if self._forwards(stream, group):
            for piece in pieces:
                yield from self._forward(stream, piece)

    def _forwards(self, stream: int, group: int) -> bool:
        semi = self._spec.scheme is Scheme.SEMI_SYMMETRIC
        return semi and (group, stream) == self._spec.order[:2]

    def _forward(self, stream: int, packs: Packs) -> Iterator[Forward]:
        """Packs for the units of the second end that may hold partners of their hubs."""
        last = self._spec.stages[-1]
        visits = self._topology.visits(stream, self._spec.order[2], packs.hubs)
        for unit, where in enumerate(visits):
            some = packs if where is None else packs.take(np.flatnonzero(where))
            if len(some):
                yield Forward(last.first_unit + unit, some)

    # -- both -----------------------------------------------------------------------------------

    def _packs_chain(self, new: int, group: int) -> int:
        return len(self._stage.groups) + self._stage.meetings.index((new, group))

    def _probe(self, stream: int, other: int, tuples: Tuples) -> Probe:
        return Probe(self._spec.pair(stream, other), int(stream > other), tuples)

    def _order(self, stream: int, other: int) -> SortOrder:
        return SortOrder.of(self._spec.pair(stream, other), int(stream > other))

    def _equality(self, stream: int, other: int) -> int | None:
        return self._order(stream, other).equality

    def _out(self, results: Iterator[_Found]) -> Iterator[Instruction]:
        """Results leave the unit, or pass on to one of the next stage."""
        counted = map(self._counted, results)
        if not self._passes:
            listed = (self._listed(found) for found in counted)
            for emit in gathered(listed, self._chunk_rows):
                self._report.out_bytes += sum(batch.nbytes for batch in emit.batches)
                yield emit
            return
        last = self._spec.stages[-1]
        for found in counted:
            data = factored(found, self._newest(found))
            self._report.out_bytes += data.size
            unit = last.first_unit + self._number % last.units
            yield Pass(unit, len(found[0].rows), data)

    def _counted(self, found: _Found) -> _Found:
        self._report.results += len(found[0].rows)
        return found

    def _listed(self, found: _Found) -> pa.RecordBatch:
        ordered = sorted(found, key=lambda one: one.stream)
        batches = [member.tuples.batch for member in ordered]
        return result_batch(batches, [member.rows for member in ordered], self._newest(found))

    def _newest(self, found: _Found) -> pa.Array | None:
        streams = [self._spec.streams[member.stream] for member in found]
        members = [(member.tuples, member.rows) for member in found]
        return newest_column(streams, members, self._spec.newest)


def factored(found: _Found, newest: pa.Array | None) -> pa.Buffer:
    """Results as the members that occur in them, each once, and rows of them.

    They are a fraction of the size of the results, which have every member many times.
    """
    batches, indices, names = [], [], []
    for member in sorted(found, key=lambda one: one.stream):
        used, rows = compact(member.tuples, member.rows)
        batches.append(used.batch.select(carried(used.batch)))
        indices.append(pa.array(rows, pa.int32()))
        names.append(str(member.stream))
    if newest is not None:
        indices.append(newest)
        names.append(NEWEST)
    return arrow.sections_to_bytes(*batches, pa.RecordBatch.from_arrays(indices, names))


def unfactored(data: pa.Buffer | bytes) -> pa.RecordBatch:
    """The results in what `factored` made."""
    *batches, indices = arrow.sections_from_bytes(data)
    rows = [np.asarray(indices.column(str(stream))) for stream in range(len(batches))]
    newest = indices.column(NEWEST) if NEWEST in indices.schema.names else None
    return result_batch(batches, rows, newest)


def forward_layout(spec: TriSpec) -> PackLayout:
    """What packs that go on to the second stage are made of."""
    stage = spec.stages[0]
    return pack_layouts(stage)[stage.meetings.index((spec.order[1], spec.order[0]))]


def tuple_layouts(stage: Stage) -> list[TupleLayout]:
    """What the indexes of a unit's groups are made of; the first of `Stage.chains`."""
    spec = stage.spec
    found = []
    for group in stage.groups:
        # Sorted for the visitors that have the strongest predicate; others sort it again.
        met = [other for other in spec.order if other != group]
        strongest = min(met, key=lambda other: spec.edge(group, other).rank)
        order = SortOrder.of(spec.pair(group, strongest), int(group > strongest))
        found.append(TupleLayout(spec.streams[group], order))
    return found


def pack_layouts(stage: Stage) -> list[PackLayout]:
    """What the indexes of a unit's intermediate results are made of; the rest of the chains."""
    spec = stage.spec
    found = []
    for new, group in stage.meetings:
        hub = spec.hub(new, group)
        member, third = new + group - hub, 3 - new - group
        found.append(
            PackLayout(
                spec.streams[hub],
                spec.streams[member],
                SortOrder.of(spec.pair(hub, third), int(hub > third)),
                (spec.reach[hub][third], spec.reach[member][third]),
                spec.packed,
            )
        )
    return found
