"""A whole join in this process: the router, the units and their state, without Spark.

State goes through the same bytes as in a state store and is read back for every batch, so that
stopping and going on at any batch is what always happens here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from thetastream.engine.decoding import decode_part, decode_view, missing_part
from thetastream.engine.manifest import Manifest
from thetastream.engine.protocol import (
    DropPart,
    Emit,
    PutManifest,
    PutPart,
    Report,
    StateChange,
    metered,
)
from thetastream.engine.unit import Unit
from thetastream.index.layout import Layout, Stored
from thetastream.index.part import PartMeta
from thetastream.spec import JoinSpec
from thetastream.topology.dispatcher import Dispatcher, Pack


@dataclass
class UnitState:
    """What a state store holds for one unit."""

    manifest: str | None = None
    parts: dict[str, bytes] = field(default_factory=dict)


class Memory:
    """A unit's stored state in a dictionary."""

    def __init__(self, parts: dict[str, bytes]) -> None:
        self._parts = parts

    def part(self, meta: PartMeta, layout: Layout) -> Stored:
        return decode_part(self._bytes(meta), meta, layout)

    def view(self, meta: PartMeta) -> pa.RecordBatch:
        return decode_view(self._bytes(meta), meta)

    def _bytes(self, meta: PartMeta) -> bytes:
        if meta.id not in self._parts:
            raise missing_part(meta)
        return self._parts[meta.id]


def carry_out(step: StateChange, state: UnitState) -> None:
    """Change the stored state as a unit says."""
    match step:
        case PutPart(meta, data):
            state.parts[meta.id] = data.to_pybytes()
        case DropPart(meta):
            del state.parts[meta.id]
        case PutManifest(text):
            state.manifest = text


class Runner:
    """Runs a join batch by batch."""

    def __init__(self, spec: JoinSpec, *, chunk_rows: int = 1 << 16) -> None:
        self._spec = spec
        self._chunk_rows = chunk_rows
        self._dispatchers = [Dispatcher(spec, stream) for stream in range(len(spec.streams))]
        self.state: dict[int, UnitState] = {
            unit: UnitState() for unit in range(self._dispatchers[0].units)
        }
        self.reports: list[Report] = []

    def batch(
        self, inputs: Sequence[Iterable[pa.RecordBatch]], watermark: int | None = None
    ) -> list[pa.RecordBatch]:
        """Take in batches of each stream, in the form of `thetastream.index.part`; the results."""
        packs: dict[int, list[Pack]] = {unit: [] for unit in self.state}
        for dispatcher, batches in zip(self._dispatchers, inputs, strict=True):
            for batch in batches:
                for pack in dispatcher.dispatch(batch):
                    packs[pack.unit].append(pack)
        results: list[pa.RecordBatch] = []
        for unit, mine in packs.items():
            results += self._unit(unit, mine, watermark)
        return results

    def _unit(self, number: int, packs: list[Pack], watermark: int | None) -> list[pa.RecordBatch]:
        spec, state = self._spec, self.state[number]
        manifest = Manifest.read(state.manifest, spec)
        results: list[pa.RecordBatch] = []
        store = Memory(state.parts)
        unit = Unit(spec, number, manifest, store, chunk_rows=self._chunk_rows)
        for step in metered(unit.process(packs, watermark), time.thread_time):
            match step:
                case Emit(batches):
                    results += batches
                case Report():
                    self.reports.append(step)
                case PutPart() | DropPart() | PutManifest():
                    carry_out(step, state)
        return results
