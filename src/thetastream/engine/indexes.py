"""The indexes of one unit: what is stored, and what a batch adds, merges and drops. No IO."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from thetastream.engine.decoding import digest
from thetastream.engine.manifest import no_manifest
from thetastream.engine.protocol import DropPart, PutPart, StateReader
from thetastream.errors import StateError
from thetastream.index.makers import make_index
from thetastream.index.part import PartMeta
from thetastream.index.protocol import Decoder, Index, Stored, TupleIndex
from thetastream.index.runs import PackRuns
from thetastream.spec import JoinSpec, Meeting, Retention, Stage


class _Space:
    """The workspace of one index."""

    def __init__(self, name: str, decoder: Decoder, reader: StateReader) -> None:
        self._name = name
        self._decoder = decoder
        self._reader = reader
        self.fresh: dict[str, Stored] = {}
        """Parts that this batch made and that are still needed."""
        self.gone: list[PartMeta] = []
        self.updates = 0
        """Entries in the parts that this batch made."""
        self._made = 0

    def make(self, part: Stored) -> PartMeta:
        name = f"{self._name}-{self._made}"
        self._made += 1
        self.updates += len(part) + part.pairs
        self.fresh[name] = part
        low, high = part.low, part.high
        return PartMeta(id=name, rows=len(part), bytes=0, low=low, high=high, pairs=part.pairs)

    def load(self, meta: PartMeta) -> Stored:
        fresh = self.fresh.get(meta.id)
        return fresh if fresh is not None else self._reader.part(meta, self._decoder)

    def drop(self, metas: list[PartMeta]) -> None:
        self.gone += [meta for meta in metas if self.fresh.pop(meta.id, None) is None]


class UnitIndexes:
    """The indexes of a unit's stores, then those of its packs."""

    def __init__(
        self, spec: JoinSpec, stage: Stage, number: int, sequence: int, reader: StateReader
    ) -> None:
        """`sequence` makes the names of this batch's parts differ from all others."""
        retentions = spec.retentions(stage)
        self._stage = stage
        self.stores = [make_index(spec.streams[store.stream], store) for store in stage.stores]
        self.packs = [
            pack_index(spec, meeting, retention)
            for meeting, retention in zip(
                stage.packing, retentions[len(self.stores) :], strict=True
            )
        ]
        self.all: Sequence[Index] = [*self.stores, *self.packs]
        self._spaces = [
            _Space(f"{sequence}-{number}-{place}", index, reader)
            for place, index in enumerate(self.all)
        ]

    def store_of(self, stream: int) -> tuple[TupleIndex, _Space]:
        """The index of a stream's stored tuples, and where its parts are."""
        place = self._stage.place(stream)
        if place is None:
            raise StateError(f"stage {self._stage.number} does not store stream {stream}")
        return self.stores[place], self._spaces[place]

    def packs_of(self, meeting: Meeting) -> tuple[PackRuns, _Space]:
        """The index of the packs that a meeting leaves behind, and where its parts are."""
        place = self._stage.packing.index(meeting)
        return self.packs[place], self._spaces[len(self.stores) + place]

    def restore(self, states: Sequence[Any]) -> None:
        """Go on from what `state` gave."""
        try:
            for index, state in zip(self.all, states, strict=True):
                index.restore(state)
        except (AttributeError, ValueError, LookupError, TypeError) as error:
            raise no_manifest(error) from error

    def state(self) -> list[Any]:
        """Each index's own state."""
        return [index.state() for index in self.all]

    def expire(self, watermark: int | None) -> None:
        """Drop what nothing to come can match."""
        for index, space in zip(self.all, self._spaces, strict=True):
            index.expire(watermark, space)

    def merge(self) -> None:
        """Put parts together that are better searched as one."""
        for index, space in zip(self.all, self._spaces, strict=True):
            index.merge(space)

    def written(self) -> Iterator[PutPart | DropPart]:
        """Drop what is no longer needed, and write what this batch made and kept."""
        for index, space in zip(self.all, self._spaces, strict=True):
            gone, space.gone = space.gone, []
            for meta in gone:
                yield DropPart(meta)
            written = {}
            for meta in list(index.parts()):
                if meta.id in space.fresh:
                    put = put_part(meta, space.fresh.pop(meta.id))
                    yield put
                    written[meta.id] = put.meta
            index.rename(written)

    @property
    def compared(self) -> int:
        """Pairs that this batch's searches looked at."""
        return sum(index.compared for index in self.all)

    @property
    def updates(self) -> int:
        """Entries that this batch wrote into the indexes, or moved inside them."""
        return sum(i.moved + s.updates for i, s in zip(self.all, self._spaces, strict=True))

    def fresh(self, stream: int) -> Iterator[Stored]:
        """The parts of a stream's store that this batch made."""
        yield from self.store_of(stream)[1].fresh.values()

    def validate(self) -> None:
        """Refuse indexes that no sequence of batches leads to."""
        for index, space in zip(self.all, self._spaces, strict=True):
            index.validate()
            gone = {meta.id for meta in space.gone}
            if any(meta.id in gone for meta in index.parts()):
                raise StateError(f"a part of {index.what} is listed after it was given up")


def pack_index(spec: JoinSpec, meeting: Meeting, retention: Retention) -> PackRuns:
    """The index of the packs of a meeting."""
    hub, member, third = meeting.hub, meeting.member, meeting.third
    if hub is None:
        raise StateError("a meeting without packs has no index for them")
    return PackRuns(
        spec.streams[hub],
        spec.streams[member],
        spec.edge(hub, third).order(hub),
        (spec.reach[hub][third], spec.reach[member][third]),
        retention,
        packed=spec.packed,
    )


def put_part(meta: PartMeta, part: Stored) -> PutPart:
    """The instruction to store a part, whose id gets the digest of its content.

    A task that runs again may write other content at the same place of the unit's history.
    """
    data = part.to_bytes(compress=True)
    return PutPart(replace(meta, id=f"{meta.id}-{digest(data)}", bytes=data.size), data, part)
