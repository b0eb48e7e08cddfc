"""How a unit follows a table that changes while the query runs.

It refuses versions that do not follow from what it has seen: a control directory or a checkpoint
that was put back would lose results. It stamps what it stores, so that it knows when a place that
is no longer used is empty, and it exports and takes in tuples that are carried over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from thetastream.engine.copies import HotCopies
from thetastream.engine.exports import export, read_export
from thetastream.engine.indexes import UnitIndexes
from thetastream.engine.manifest import Followed, Manifest
from thetastream.engine.protocol import Export, Instruction, Report, StateReader
from thetastream.errors import ControlError
from thetastream.index.encoding import Bools
from thetastream.index.part import Part
from thetastream.index.protocol import Index
from thetastream.index.runs import PackRuns
from thetastream.spec import JoinSpec, Stage, Store
from thetastream.topology.dispatch import home
from thetastream.topology.groups import group_of
from thetastream.topology.hotvalues import units_for_values
from thetastream.topology.live import Live, Step, Transfer
from thetastream.topology.table import Placement, Table

EXPORT_BYTES = 256 * 1024**2
"""Arrow bytes that a unit looks through for tuples to export in one batch, so that a large history
does not hold up a trigger for long."""

_BACK = "put back the control directory and the checkpoint of the same time"


class Following:
    """One unit, one batch, and the versions of the table that the batch's routers used."""

    def __init__(
        self,
        spec: JoinSpec,
        table: Table,
        stage: Stage,
        number: int,
        manifest: Manifest,
        seen: Mapping[int, int],
    ) -> None:
        """`seen`: the versions, each with its digest; `table` is the newest of them."""
        self._spec = spec
        self._table = table
        self._stage = stage
        self._number = number
        self._manifest = manifest
        self._seen = bool(seen)
        self._oldest = min(seen, default=table.version)
        self.copies = HotCopies(spec, table, stage, number, manifest, self._oldest)
        """Of the tuples of hot keys."""
        if table.live is None:
            if manifest.followed is not None:
                raise ControlError(
                    "the checkpoint's routing table is in a control directory, and none was given",
                    hint="give the same JoinOptions(control=...) as before, or start with a new"
                    " checkpoint location",
                )
        else:
            self._admit(table.live)

    # -- what follows from what -----------------------------------------------------------------

    def _admit(self, live: Live) -> None:
        known = self._manifest.followed
        if live.version - self._oldest > 1:
            raise ControlError(
                f"routers of one batch used versions {self._oldest} and {live.version} of the"
                " routing table",
                detail="  versions of one batch may be one step apart",
                hint="restart the query; if that does not help, start with a new checkpoint"
                " location and a new control directory",
            )
        version, digest = -1, 0
        if known is not None:
            version, digest = known.version, known.digest
            if known.control != live.control:
                raise ControlError(
                    "the checkpoint belongs to another control directory",
                    detail=f"  it was written with {known.control}; this one is {live.control}",
                    hint="give the control directory that belongs to the checkpoint, or start with"
                    " a new checkpoint location",
                )
        if live.version < version or (known is not None and self._oldest < known.oldest):
            raise ControlError(
                "the control directory is older than the checkpoint",
                detail=f"  it has version {self._oldest} of the routing table; unit {self._number}"
                f" has seen version {version}",
                hint=_BACK,
            )
        same, next_one = live.version == version, live.version == version + 1
        # A version may be left out, if it was damaged: the chain of digests says what follows.
        follows = known is not None and live.previous == digest
        if (same and live.digest != digest) or (next_one and known is not None and not follows):
            raise ControlError(
                f"version {live.version} of the routing table does not follow from what unit"
                f" {self._number} has seen",
                detail="  the control directory was put back, and has changed otherwise since then",
                hint=_BACK,
            )
        skips = live.version > version + 1 and not follows
        if skips and self._since(live) not in (-1, live.version):
            raise self._older(f"it has seen version {version} of the routing table", live)

    def _since(self, live: Live) -> int:
        units = live.since[self._stage.number]
        return units[self._number] if self._number < len(units) else -1

    def _older(self, why: str, live: Live) -> ControlError:
        return ControlError(
            "the checkpoint is older than the control directory",
            detail=f"  unit {self._number}: {why}; the directory has version {live.version}",
            hint=f"{_BACK}, or start with a new checkpoint location and a new control directory",
        )

    # -- the beginning of a batch ---------------------------------------------------------------

    def begin(self, indexes: UnitIndexes, reader: StateReader) -> Iterator[Instruction]:
        """Do what the version asks for, before anything is joined."""
        live = self._table.live
        if live is None:
            return
        for store, placement in self._stores():
            index, _ = indexes.store_of(store.stream)
            switched = placement.switched
            kept: list[Index] = [index, *self._packs(indexes, store)]
            if self._number in placement.left and any(one.rows_before(switched) for one in kept):
                raise self._older("it has tuples that were to be gone", live)
            if not live.step.drains:
                for one in kept:
                    one.restamp(switched)
            index.freeze(switched if placement.moves and live.step.drains else 0)
            index.stamp = switched if self._oldest >= switched else self._oldest
            for packs in self._packs(indexes, store):
                # Packs of old tuples drain with these, whenever they were made.
                packs.stamp = min(
                    index.stamp, index.stamp if index.oldest is None else index.oldest
                )
        known = self._manifest.followed
        if live.step is Step.TAKE and (known is None or known.version < live.version):
            yield from self._take(live, indexes, reader)
        elif live.step is Step.SWITCH:
            yield from self._export(indexes)
        yield from self.copies.begin(indexes, reader, lambda why: self._older(why, live))
        self._manifest.followed = Followed(live.control, self._oldest, live.version, live.digest)

    def _stores(self) -> Iterator[tuple[Store, Placement]]:
        placements = self._table.stages[self._stage.number]
        return zip(self._stage.stores, placements, strict=True)

    def _packs(self, indexes: UnitIndexes, store: Store) -> Iterator[PackRuns]:
        """The indexes of packs that are where a store's tuples are."""
        for meeting in self._stage.packing:
            if meeting.stored == store.stream:
                yield indexes.packs_of(meeting)[0]

    def _leaves(self, store: Store, placement: Placement) -> bool:
        """Whether tuples of a store are to leave this unit."""
        return self._number in placement.leaving(store)

    # -- tuples that are carried over -----------------------------------------------------------

    def _export(self, indexes: UnitIndexes) -> Iterator[Export]:
        """Tuples that leave, in files: from now on no router stores more of them here."""
        manifest, budget = self._manifest, EXPORT_BYTES
        for store, placement in self._stores():
            frozen = placement.moves and self._oldest >= placement.switched
            if not frozen or not self._leaves(store, placement):
                continue
            index, space = indexes.store_of(store.stream)
            for meta in index.parts_before(placement.switched):
                if meta.id in manifest.exported or budget <= 0:
                    continue
                part = space.load(meta)
                if not isinstance(part, Part):
                    raise TypeError("only tuples are carried over")
                budget -= part.nbytes
                manifest.exported.append(meta.id)
                for file, transfer in self._files(store, placement, meta.id, part):
                    manifest.transfers.append(transfer)
                    yield file

    def _files(
        self, store: Store, placement: Placement, name: str, part: Part
    ) -> Iterator[tuple[Export, Transfer]]:
        targets = home(placement.holders, group_of(self._spec, store, part), part)
        targets = np.where(self._staying(store, placement, part), np.int16(-1), targets)
        for target in np.unique(targets[targets >= 0]).tolist():
            some = part.take(np.flatnonzero(targets == target))
            file = export(some.batch, self._table.version)
            yield (
                file,
                Transfer(
                    stage=self._stage.number,
                    stream=store.stream,
                    source=self._number,
                    target=target,
                    part=name,
                    name=file.name,
                    rows=len(some),
                    bytes=file.data.size,
                ),
            )

    def _staying(self, store: Store, placement: Placement, part: Part) -> Bools:
        """Which tuples of a part a unit goes on to hold: those of its groups, and what it has of
        hot keys."""
        if store.group_by.key is None:
            here = self._number in placement.holders.everywhere
            return np.full(len(part), here)
        mine = [n for n, line in enumerate(placement.lines) if self._number in line]
        lines = placement.holders.of[group_of(self._spec, store, part)]
        stays = np.isin(lines, mine)
        return stays | self.copies.belongs(store.stream, part) if self.copies.some else stays

    def _take(self, live: Live, indexes: UnitIndexes, reader: StateReader) -> Iterator[Instruction]:
        """Drop what was exported, and take in what others have exported.

        Written piece by piece: a history need not fit into memory.
        """
        manifest = self._manifest
        mine = [one for one in live.transfers if one.stage == self._stage.number]
        if sorted(one for one in mine if one.source == self._number) != sorted(manifest.transfers):
            raise self._older("it has exported other tuples than those to be taken in", live)
        exported = set(manifest.exported)
        manifest.exported, manifest.transfers = [], []
        for store, placement in self._stores():
            index, space = indexes.store_of(store.stream)
            if placement.moves and self._leaves(store, placement):
                if not exported.issuperset(m.id for m in index.parts_before(placement.switched)):
                    raise self._older("it has tuples that were to be exported", live)
                staying = partial(self._staying, store, placement)
                for _ in index.keep_only(placement.switched, staying, space):
                    yield from indexes.written()
            for one in mine:
                if one.target == self._number and one.stream == store.stream:
                    index.add(read_export(one.name, index, reader), space)
                    yield from indexes.written()

    # -- the end of a batch ---------------------------------------------------------------------

    def tell(self, report: Report, indexes: UnitIndexes) -> None:
        """What the report says of a change that is under way."""
        live = self._table.live
        if live is None:
            return
        report.version = self._oldest if self._seen else -1
        report.pending = self._manifest.pending is not None
        report.transfers = list(self._manifest.transfers)
        self.copies.tell(report, indexes)
        if self._number in units_for_values(self._table):
            report.values = list(self._table.values)
        if not live.step.drains:
            return
        for store, placement in self._stores():
            if not self._leaves(store, placement):
                continue
            index, _ = indexes.store_of(store.stream)
            before = index.rows_before(placement.switched)
            packs = self._packs(indexes, store)
            report.draining += before + sum(one.rows_before(placement.switched) for one in packs)
            if placement.moves and live.step is Step.SWITCH:
                done = self._manifest.exported
                report.to_export += sum(
                    meta.rows
                    for meta in index.parts_before(placement.switched)
                    if meta.id not in done
                )
