"""The hot keys of a unit: copies that it makes, takes in and drops.

All units of a key agree on the batch in which copies are complete from then on: the first one whose
routers all make them. At the beginning of that batch the unit of the key's group exports what it
has, and the others drop what routers that were ahead have brought them. So a unit that takes in the
export has each tuple once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from thetastream import arrow
from thetastream.engine.exports import export, read_export
from thetastream.engine.indexes import UnitIndexes
from thetastream.engine.manifest import HeldKey, Manifest
from thetastream.engine.protocol import Export, Instruction, KeyNews, Report, StateReader
from thetastream.errors import ControlError
from thetastream.index.encoding import Bools, Int64s
from thetastream.index.part import Part, PartMeta, Tuples, bundled
from thetastream.index.protocol import TupleIndex
from thetastream.index.runs import PART_BYTES
from thetastream.spec import JoinSpec, Stage
from thetastream.topology.hot import CopyFile, HotKey, HotStep, base_unit, equality_key
from thetastream.topology.table import Table

Refusal = Callable[[str], ControlError]
"""The error for a checkpoint that lacks something."""


class HotCopies:
    """One unit, one batch, and the hot keys that it is a place of."""

    def __init__(
        self,
        spec: JoinSpec,
        table: Table,
        stage: Stage,
        number: int,
        manifest: Manifest,
        oldest: int,
    ) -> None:
        """`oldest`: the oldest version that a router of the batch used."""
        self._spec = spec
        self._table = table
        self._stage = stage
        self._number = number
        self._manifest = manifest
        self._oldest = oldest
        self._mine = {one.key: one for one in table.hot if number in one.units}
        self._came: dict[tuple[int, int], int] = {}
        """Tuples that came to visit, by their stream and key."""

    # -- the beginning of a batch ---------------------------------------------------------------

    def begin(
        self, indexes: UnitIndexes, reader: StateReader, lacking: Refusal
    ) -> Iterator[Instruction]:
        """Make copies complete, or drop them, as the table asks for."""
        held = self._manifest.held
        for key in set(held) - set(self._mine):
            raise lacking(f"it has copies of the key {key} that were to be gone")
        yield from self._drop_unneeded(indexes)
        for key, one in self._mine.items():
            known = held.get(key)
            if known is not None and known.since > one.since:
                raise lacking(f"it has copies of a later heat of the key {key}")
            begun = known is not None and known.since == one.since
            if one.step.copies and not begun and self._oldest >= one.since:
                if one.step is not HotStep.COPY:
                    raise lacking(f"it has no copies of the hot key {key}")
                yield from self._start(one, known, indexes)
        yield from self._take(indexes, reader)

    def _drop_unneeded(self, indexes: UnitIndexes) -> Iterator[Instruction]:
        gone = [
            one
            for one in self._mine.values()
            if one.key in self._manifest.held
            and one.step is HotStep.DROP
            and self._oldest >= one.changed
        ]
        for one in gone:
            del self._manifest.held[one.key]
        yield from self._drop([one for one in gone if not self._is_source(one)], indexes)

    def _start(
        self, one: HotKey, known: HeldKey | None, indexes: UnitIndexes
    ) -> Iterator[Instruction]:
        """From this batch on every router makes copies of a key's tuples."""
        held = self._manifest.held
        if self._is_source(one):
            files = []
            for export, file in self._exports(one, indexes):
                files.append(file)
                yield export
            held[one.key] = HeldKey(key=one.key, since=one.since, full=True, files=tuple(files))
        elif known is not None and known.full:
            # It has been one of the key's places before there were more.
            held[one.key] = replace(known, since=one.since)
        else:
            followed = self._manifest.followed
            if followed is not None and followed.version >= one.since:
                # Copies of a router that was ahead of others: the export has these as well.
                yield from self._drop([one], indexes)
            held[one.key] = HeldKey(key=one.key, since=one.since)

    def _exports(self, one: HotKey, indexes: UnitIndexes) -> Iterator[tuple[Export, CopyFile]]:
        """All that is stored of a key's copied stream, in files."""
        index, space = indexes.store_of(one.copied)
        key = equality_key(self._spec, one.copied)
        found = (_having(space.load(meta), key, one.key) for meta in _near(index, key, one.key))
        for some in bundled(tuples for tuples in found if len(tuples)):
            for start, stop in arrow.stretches(some.batch, PART_BYTES):
                file = export(some.batch.slice(start, stop - start), self._table.version)
                yield file, CopyFile(file.name, stop - start, file.data.size)

    def _take(self, indexes: UnitIndexes, reader: StateReader) -> Iterator[Instruction]:
        """Take in what was there before copies were made."""
        for key, known in list(self._manifest.held.items()):
            one = self._mine[key]
            if known.full or one.step in (HotStep.COPY, HotStep.DROP):
                continue
            index, space = indexes.store_of(one.copied)
            for file in one.files:
                index.add(read_export(file.name, index, reader), space)
                yield from indexes.written()
            self._manifest.held[key] = replace(known, full=True)

    def _drop(self, keys: Iterable[HotKey], indexes: UnitIndexes) -> Iterator[Instruction]:
        """Drop all tuples that the copied streams of some keys have here."""
        for stream in (0, 1):
            listed = [one.key for one in keys if one.copied == stream]
            if not listed:
                continue
            codes: Int64s = np.array(sorted(listed), dtype=np.int64)
            index, space = indexes.store_of(stream)
            key = equality_key(self._spec, stream)

            def staying(part: Part, key: int = key, codes: Int64s = codes) -> Bools:
                return ~np.isin(part.keys[key], codes)

            for _ in index.keep_only(None, staying, space):
                yield from indexes.written()

    def _is_source(self, one: HotKey) -> bool:
        """Whether this unit has the group of the key's copied stream."""
        return base_unit(self._table, self._spec, one.key, one.copied) == self._number

    def _is_split_base(self, one: HotKey) -> bool:
        """Whether this unit has the group of the key's split stream."""
        return base_unit(self._table, self._spec, one.key, one.split) == self._number

    # -- during a batch -------------------------------------------------------------------------

    def came(self, stream: int, tuples: Tuples) -> None:
        """Count visitors of hot keys; the tuples are sorted by the key."""
        if not self._mine:
            return
        keys = tuples.keys[equality_key(self._spec, stream)]
        codes: Int64s = np.array(list(self._mine), dtype=np.int64)
        counts = np.searchsorted(keys, codes, "right") - np.searchsorted(keys, codes, "left")
        for key, count in zip(self._mine, counts.tolist(), strict=True):
            self._came[stream, key] = self._came.get((stream, key), 0) + count

    def belongs(self, stream: int, part: Part) -> Bools:
        """Which tuples of a part are of keys that have this place, whatever their group."""
        codes: Int64s = np.array(list(self._mine), dtype=np.int64)
        return np.isin(part.keys[equality_key(self._spec, stream)], codes)

    @property
    def some(self) -> bool:
        """Whether the unit is a place of any hot key."""
        return bool(self._mine)

    # -- the end of a batch ---------------------------------------------------------------------

    def tell(self, report: Report, indexes: UnitIndexes) -> None:
        """What the report says of hot keys."""
        for key, one in self._mine.items():
            known = self._manifest.held.get(key)
            has_copied = self._is_source(one)
            is_told = known is not None and known.since == one.since and has_copied
            report.hot.append(
                KeyNews(
                    key=key,
                    stream=one.stream,
                    since=one.since,
                    step=one.step.value,
                    at=one.at,
                    share=one.share,
                    shown=one.shown,
                    has_split=self._is_split_base(one),
                    has_copied=has_copied,
                    exported=known.files if is_told and known is not None else None,
                    remains=self._remains(one, indexes),
                    split_rows=self._came.get((one.split, key), 0),
                    copied_rows=self._came.get((one.copied, key), 0),
                )
            )

    def _remains(self, one: HotKey, indexes: UnitIndexes) -> bool:
        """Whether there are tuples of the split stream that would now be stored elsewhere."""
        if one.step is not HotStep.COOLING or self._oldest < one.changed:
            return True
        if self._is_split_base(one):
            return False
        place = self._stage.place(one.split)
        if place is None or self._stage.stores[place].retention.keeps is None:
            return True
        index, space = indexes.store_of(one.split)
        key = equality_key(self._spec, one.split)
        return any(
            len(_having(space.load(meta), key, one.key)) for meta in _near(index, key, one.key)
        )


def _near(index: TupleIndex, key: int, code: int) -> Iterator[PartMeta]:
    """The parts that may have a key."""
    for meta in list(index.parts()):
        if meta.low[key] <= code <= meta.high[key]:
            yield meta


def _having(part: object, key: int, code: int) -> Tuples:
    if not isinstance(part, Part):
        raise TypeError("only tuples are copied")
    return part.take(np.flatnonzero(part.keys[key] == code))
