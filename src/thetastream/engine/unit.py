"""A unit of a join, without IO: it takes the packs of a batch and gives instructions.

For one stream after the other, the new tuples first visit what is stored of the others and are then
stored themselves. So each pair is found once, where the one that came first is stored, when the
other comes. With three streams a visitor first completes the packs that lack only it, and then
meets the stored tuples: the pairs stay as new packs. So a result is found where its oldest member
is stored, when its newest one comes, without waiting for anything to be sent on.

In a chain join the two ends have no predicate in common. A result whose newest member is of the
middle stream then has no pack to complete: what a new middle tuple makes with the first end's
stored tuples also goes on to the units of the second end, and meets what is stored there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from thetastream.engine.arrivals import Arrivals
from thetastream.engine.consumers import Consumer
from thetastream.engine.consumers.listing import Listing, Member, Passing
from thetastream.engine.consumers.packing import Packing
from thetastream.engine.consumers.viewing import Viewing
from thetastream.engine.following import Following
from thetastream.engine.indexes import UnitIndexes
from thetastream.engine.manifest import Manifest
from thetastream.engine.predictor import Predictor
from thetastream.engine.protocol import Instruction, Mark, PutManifest, Report, StateReader, Turn
from thetastream.errors import StateError
from thetastream.index.packing import Packs, complete
from thetastream.index.part import Part, Tuples, bundled
from thetastream.index.probe import Probe
from thetastream.spec import JoinSpec, Meeting, SketchOptions, Stage, Store, StreamSpec, Then
from thetastream.topology.dispatch import HOME, STORE, Dispatcher, Pack, visit
from thetastream.topology.groups import group_of
from thetastream.topology.table import Placement, Table


class _NewTuples:
    """The tuples of one stream that a batch brings."""

    def __init__(self) -> None:
        self._packs: list[tuple[int, Tuples]] = []
        self._bundled: dict[tuple[int, ...], list[Tuples]] = {}

    def add(self, role: int, tuples: Tuples) -> None:
        """Take in the tuples of a pack."""
        if len(tuples):
            self._packs.append((role, tuples))

    def having(self, role: int) -> list[Tuples]:
        """Those with a role, in as few pieces as may be.

        The same pieces where the same packs have two roles: what is sorted to visit is stored as
        it is.
        """
        chosen = tuple(n for n, (roles, _) in enumerate(self._packs) if roles & role)
        if chosen not in self._bundled:
            self._bundled[chosen] = list(bundled(self._packs[n][1] for n in chosen))
        return self._bundled[chosen]


class Unit:
    """One unit of one stage during one batch."""

    def __init__(
        self,
        spec: JoinSpec,
        table: Table,
        stage: Stage,
        number: int,
        manifest: Manifest,
        reader: StateReader,
        *,
        chunk_rows: int,
        seen: Mapping[int, int] | None = None,
        sketch: SketchOptions | None = None,
        share_bytes: int | None = None,
    ) -> None:
        """`seen`: the versions of a live table that the batch's routers used, with their digests;
        `table` is the newest of them, or of an earlier batch if there are none; `sketch`: the size
        of the predictors of hot keys, if there are any; `share_bytes`: Arrow bytes of packs that
        are joined at a time, all of them if it is None."""
        known = manifest.sequence > 0
        self._seen = {table.version: table.digest} if seen is None else dict(seen)
        self._following = Following(spec, table, stage, number, manifest, self._seen)
        manifest.sequence += 1
        self._spec = spec
        self._table = table
        self._stage = stage
        self._number = number
        self._manifest = manifest
        self._reader = reader
        self._indexes = UnitIndexes(spec, stage, number, manifest.sequence, reader)
        if known:
            self._indexes.restore(manifest.indexes)
        self._share_bytes = share_bytes
        self._report = Report(number, stage.number)
        self._arrivals = Arrivals(spec.streams)
        self._predictor = None
        if sketch is not None:
            self._predictor = Predictor(spec.streams, stage.stores, manifest.sketches, sketch)
        self._last = spec.stages[-1]
        self._results = self._new_results(chunk_rows)
        pairs = self._new_pairs(reader, chunk_rows)
        self._consumers: dict[Meeting, Consumer] = {
            meeting: self._new_packing(meeting) if meeting.packs else pairs
            for meeting in stage.meetings
        }

    def _new_results(self, chunk_rows: int) -> Listing:
        """Where results go."""
        if self._stage is self._last:
            return Listing(self._spec, self._report, chunk_rows)
        unit = self._table.through(self._last.number, self._number)
        return Passing(self._spec, self._report, chunk_rows, unit)

    def _new_pairs(self, reader: StateReader, chunk_rows: int) -> Consumer:
        """What is made of pairs that are results."""
        view = self._spec.view
        if view is None:
            return self._results
        manifest, report = self._manifest, self._report
        return Viewing(self._spec, view, self._number, manifest, reader, report, chunk_rows)

    def _new_packing(self, meeting: Meeting) -> Consumer:
        """What is made of pairs that lack a third member."""
        onward = Dispatcher(self._spec, self._table, self._last, meeting.new)
        return Packing(meeting, self._indexes, onward)

    def process(
        self, packs: Iterable[Pack], watermark: int | None, forwarded: Iterable[Packs] = ()
    ) -> Iterator[Instruction]:
        """Join the packs of a batch with each other and with what is stored.

        A share of the packs after the other, as if they had come in batches with one watermark.
        """
        yield from self._following.begin(self._indexes, self._reader)
        self._indexes.expire(watermark)
        for number, share in enumerate(_shares(packs, self._share_bytes)):
            if number:
                # What the shares before have left in memory.
                self._indexes.merge()
                yield from self._indexes.written()
            yield from self._take_in(share, watermark, forwarded)
        for consumer in dict.fromkeys((*self._consumers.values(), self._results)):
            yield from consumer.finish()
        yield from self._mark(watermark)
        self._indexes.merge()
        yield from self._indexes.written()
        self._manifest.indexes = self._indexes.state()
        self._manifest.sketches = [] if self._predictor is None else self._predictor.state()
        yield PutManifest(self._manifest.write(self._spec, self._stage, self._table))
        yield self._totals()

    # -- new tuples -----------------------------------------------------------------------------

    def _take_in(
        self, packs: Iterable[Pack], watermark: int | None, forwarded: Iterable[Packs]
    ) -> Iterator[Instruction]:
        arrived = [_NewTuples() for _ in self._spec.streams]
        for pack in packs:
            if pack.batch.num_rows:
                arrived[pack.stream].add(pack.role, self._on_time(pack, watermark))
        for stream in self._spec.order:
            yield from self._visit(stream, arrived[stream])
            self._store(stream, arrived[stream])
            # Packs, pieces and sorted copies of them: the other streams need the memory.
            arrived[stream] = _NewTuples()
            for meeting in self._forwarding(stream):
                for some in forwarded:
                    yield from self._complete_forwarded(meeting, some)

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

    def _visit(self, stream: int, new: _NewTuples) -> Iterator[Instruction]:
        """New tuples visit what is stored: they complete packs, and meet tuples."""
        for store in self._stage.stores:
            if not self._stage.visits(stream, store.stream):
                continue
            for tuples in new.having(visit(store.stream)):
                self._report.probes += len(tuples)
                for meeting in self._stage.packing:
                    if (meeting.stored, meeting.third) == (store.stream, stream):
                        yield from self._complete(meeting, tuples)
                met = self._stage.meeting(stream, store.stream)
                if met is not None:
                    yield from self._meet(met, tuples)

    def _store(self, stream: int, new: _NewTuples) -> None:
        place = self._stage.place(stream)
        if place is None:
            return
        index, space = self._indexes.store_of(stream)
        store = self._stage.stores[place]
        for tuples in new.having(STORE):
            index.add(tuples, space)
        for tuples in new.having(HOME):
            ranked = tuples.sorted(store.order)
            self._arrivals.keys(stream, ranked, store.counted)
            if self._predictor is not None:
                self._predictor.count(place, ranked)

    # -- what they meet -------------------------------------------------------------------------

    def _meet(self, meeting: Meeting, tuples: Tuples) -> Iterator[Instruction]:
        """Visitors meet stored tuples."""
        new, stored = meeting.new, meeting.stored
        tuples = tuples.sorted(self._spec.edge(new, stored).order(new))
        self._following.copies.came(new, tuples)
        index, space = self._indexes.store_of(stored)
        consumer = self._consumers[meeting]
        for _, part, found in index.search(Probe(self._spec, new, stored, tuples), space):
            yield from consumer.take(meeting, tuples, part, found)
        yield from consumer.met()

    def _complete(self, meeting: Meeting, tuples: Tuples) -> Iterator[Instruction]:
        """Visitors of the third stream complete the packs that a meeting left."""
        hub, member, third = meeting.hub, meeting.member, meeting.third
        assert hub is not None
        tuples = tuples.sorted(self._spec.edge(third, hub).order(third))
        by_hub = Probe(self._spec, third, hub, tuples)
        by_member = Probe(self._spec, third, member, tuples)
        index, space = self._indexes.packs_of(meeting)
        for packs, _, candidates in index.search(by_hub, space):
            limit = self._results.limit(tuples, packs.hubs, packs.members)
            for found, (hubs, members) in complete(candidates, by_member, packs, limit):
                yield from self._results.add(
                    (
                        Member(third, tuples, found),
                        Member(hub, packs.hubs, hubs),
                        Member(member, packs.members, members),
                    )
                )

    def _forwarding(self, stream: int) -> Iterator[Meeting]:
        """The meetings of the stage before whose packs come here once a stream is handled."""
        if self._stage.number:
            for meeting in self._spec.stages[self._stage.number - 1].meetings:
                if meeting.then is Then.FORWARD and meeting.new == stream:
                    yield meeting

    def _complete_forwarded(self, meeting: Meeting, packs: Packs) -> Iterator[Instruction]:
        """Packs of the stage before meet the third stream's tuples that are stored here."""
        hub, member, third = meeting.new, meeting.stored, meeting.third
        # The hubs are sorted by the keys that the third stream looks for, and so can look for it.
        by_hub = Probe(self._spec, hub, third, packs.hubs)
        by_member = Probe(self._spec, member, third, packs.members)
        index, space = self._indexes.store_of(third)
        for _, part, found in index.search(by_hub, space):
            limit = self._results.limit(packs.hubs, packs.members, part)
            for hubs, stored in found.pairs(part, limit):
                for which, members in packs.partners(hubs, limit):
                    others = stored[which]
                    keep = np.flatnonzero(by_member.satisfied(part, (members, others)))
                    if len(keep):
                        yield from self._results.add(
                            (
                                Member(hub, packs.hubs, hubs[which][keep]),
                                Member(member, packs.members, members[keep]),
                                Member(third, part, others[keep]),
                            )
                        )

    # -- the end of the batch -------------------------------------------------------------------

    def _mark(self, watermark: int | None) -> Iterator[Instruction]:
        """Both stages go by one watermark and by the same versions of the table: the first unit
        tells them to all of the last stage."""
        if self._stage is self._last or self._number != 0:
            return
        for unit in self._table.active(self._last.number):
            for version, digest in self._seen.items():
                yield Turn(unit, version, digest)
            if watermark is not None:
                yield Mark(unit, watermark)

    def _totals(self) -> Report:
        """The report with what came and what the unit now stores."""
        report, indexes = self._report, self._indexes
        for store, index in zip(self._stage.stores, indexes.stores, strict=True):
            self._arrivals.kept(store.stream, index.parts())
            size = sum(meta.bytes for meta in index.parts())
            report.kept.append((self._spec.streams[store.stream].name, size))
        report.streams, report.heavy = self._arrivals.streams(), self._arrivals.heavy()
        parts = [meta for index in indexes.all for meta in index.parts()]
        report.stored_rows = sum(meta.rows for meta in parts)
        report.stored_bytes = sum(meta.bytes for meta in parts)
        report.runs = sum(index.runs for index in indexes.all)
        packs = [meta for index in indexes.packs for meta in index.parts()]
        report.entries = sum(meta.rows for meta in packs)
        report.pairs = sum(meta.pairs for meta in packs)
        report.compared, report.updates = indexes.compared, indexes.updates
        if self._predictor is not None:
            report.predicted = self._predictor.predicted()
        self._following.tell(report, indexes)
        return report

    def validate(self) -> None:
        """Refuse what no sequence of batches leads to: for tests, after every instruction."""
        self._indexes.validate()
        for place, store in enumerate(self._stage.stores):
            placement = self._table.stages[self._stage.number][place]
            for part in self._indexes.fresh(store.stream):
                if isinstance(part, Part):
                    self._check_place(part, placement, store)

    def _check_place(self, part: Part, placement: Placement, store: Store) -> None:
        if store.group_by.key is None and self._table.copies is None:
            # Visitors come to every unit: where a tuple is does not matter.
            return
        here = {n for n, line in enumerate(placement.lines) if self._number in line}
        lines = placement.visits.of[group_of(self._spec, store, part)]
        if self._following.copies.some:
            lines = lines[~self._following.copies.belongs(store.stream, part)]
        if not set(lines.tolist()) <= here:
            name = self._spec.streams[store.stream].name
            raise StateError(f"unit {self._number} stores tuples of {name} that belong elsewhere")


def _shares(packs: Iterable[Pack], limit: int | None) -> Iterator[list[Pack]]:
    """The packs in lists of so many bytes, or of a single pack; at least one list."""
    share: list[Pack] = []
    size = 0
    for pack in packs:
        more = int(pack.batch.get_total_buffer_size())
        if limit is not None and share and size + more > limit:
            yield share
            share, size = [], 0
        share.append(pack)
        size += more
    yield share


def on_time(tuples: Tuples, stream: StreamSpec, watermark: int | None) -> Tuples:
    """The tuples that the watermark has not passed; what another join made is never late."""
    if watermark is None or stream.time is None or stream.is_join_result:
        return tuples
    kept = tuples.keys[stream.time] >= watermark
    return tuples if kept.all() else tuples.take(np.flatnonzero(kept))
