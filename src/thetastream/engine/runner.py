"""A whole join in this process: the router, the units of each stage and their state, no Spark.

State goes through the same bytes as in a state store and is read back for every batch, so that
stopping and going on at any batch is what always happens here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from thetastream.engine.consumers.listing import unfactored
from thetastream.engine.decoding import decode_part, missing_part
from thetastream.engine.manifest import Manifest
from thetastream.engine.protocol import (
    DropPart,
    Emit,
    Forward,
    Instruction,
    Mark,
    Pass,
    PutManifest,
    PutPart,
    Report,
    StateChange,
    metered,
)
from thetastream.engine.unit import Unit
from thetastream.index.packing import Packs
from thetastream.index.part import PartMeta
from thetastream.index.protocol import Decoder, Stored
from thetastream.spec import JoinSpec, RoutingSpec, Stage
from thetastream.topology.dispatch import Dispatcher, Pack
from thetastream.topology.makers import make


@dataclass
class UnitState:
    """What a state store holds for one unit."""

    manifest: str | None = None
    parts: dict[str, bytes] = field(default_factory=dict)


class Memory:
    """A unit's stored state in a dictionary."""

    def __init__(self, parts: dict[str, bytes]) -> None:
        self._parts = parts

    def part(self, meta: PartMeta, decoder: Decoder) -> Stored:
        if meta.id not in self._parts:
            raise missing_part(meta)
        return decode_part(self._parts[meta.id], meta, decoder)


def carry_out(step: StateChange, state: UnitState) -> None:
    """Change the stored state as a unit says."""
    match step:
        case PutPart(meta, data):
            state.parts[meta.id] = data.to_pybytes()
        case DropPart(meta):
            del state.parts[meta.id]
        case PutManifest(text):
            state.manifest = text


Place = tuple[int, int]
"""A stage and a unit of it."""


class Runner:
    """Runs a join batch by batch."""

    def __init__(
        self,
        spec: JoinSpec,
        routing: RoutingSpec,
        *,
        chunk_rows: int = 1 << 16,
        validate: bool = False,
    ) -> None:
        """`validate` lets every unit check itself after each of its instructions."""
        self._spec = spec
        self._table = make(spec, routing)
        self._chunk_rows = chunk_rows
        self._validate = validate
        self.state: dict[Place, UnitState] = {
            (stage.number, unit): UnitState()
            for stage in spec.stages
            for unit in range(self._table.units(stage.number))
        }
        self.reports: list[Report] = []

    def batch(
        self, inputs: Sequence[Iterable[pa.RecordBatch]], watermark: int | None = None
    ) -> list[pa.RecordBatch]:
        """Take in batches of each stream, in the form of `thetastream.index.part`; the results."""
        given = [list(batches) for batches in inputs]
        results: list[pa.RecordBatch] = []
        forwards: dict[int, list[Packs]] = {}
        for stage in self._spec.stages:
            packs: dict[int, list[Pack]] = {}
            for stream, batches in enumerate(given):
                dispatcher = Dispatcher(self._spec, self._table, stage, stream)
                for batch in batches:
                    for pack in dispatcher.dispatch(batch):
                        packs.setdefault(pack.unit, []).append(pack)
            arrived, forwards, marked = forwards, {}, None
            for unit in range(self._table.units(stage.number)):
                mine = packs.get(unit, []), arrived.get(unit, [])
                for step in self._steps(stage, unit, mine, watermark):
                    match step:
                        case Emit(found):
                            results += found
                        case Pass(_, _, data):
                            results.append(unfactored(data))
                        case Forward(target, some):
                            forwards.setdefault(target, []).append(some)
                        case Mark(_, mark):
                            marked = mark
                        case Report():
                            self.reports.append(step)
                        case _:
                            carry_out(step, self.state[stage.number, unit])
            watermark = marked
        return results

    def _steps(
        self,
        stage: Stage,
        number: int,
        arrived: tuple[list[Pack], list[Packs]],
        watermark: int | None,
    ) -> Iterable[Instruction]:
        state = self.state[stage.number, number]
        manifest = Manifest.read(state.manifest, self._spec, stage, self._table.made)
        reader = Memory(state.parts)
        unit = Unit(
            self._spec, self._table, stage, number, manifest, reader, chunk_rows=self._chunk_rows
        )
        packs, forwarded = arrived
        for step in metered(unit.process(packs, watermark, forwarded), time.thread_time):
            yield step
            if self._validate:
                unit.validate()
