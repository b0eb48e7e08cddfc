"""A whole join in this process: the router, the units of each stage and their state, no Spark.

State goes through the same bytes as in a state store and is read back for every batch, so that
stopping and going on at any batch is what always happens here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from thetastream.engine.consumers.listing import unfactored
from thetastream.engine.decoding import decode_part, missing_part
from thetastream.engine.manifest import Manifest
from thetastream.engine.protocol import (
    DropPart,
    Emit,
    Export,
    Forward,
    Instruction,
    Mark,
    Pass,
    PutManifest,
    PutPart,
    Report,
    StateChange,
    StateReader,
    Turn,
    metered,
)
from thetastream.engine.unit import Unit
from thetastream.index.packing import Packs
from thetastream.index.part import PartMeta
from thetastream.index.protocol import Decoder, Stored
from thetastream.spec import JoinSpec, SketchOptions, Stage
from thetastream.topology.dispatch import Dispatcher, Pack
from thetastream.topology.table import Table


@dataclass
class UnitState:
    """What a state store holds for one unit."""

    manifest: str | None = None
    parts: dict[str, bytes] = field(default_factory=dict)


class Memory:
    """A unit's stored state in a dictionary, and the files that units have exported in another."""

    def __init__(self, parts: dict[str, bytes], files: dict[str, bytes]) -> None:
        self._parts = parts
        self._files = files

    def exported(self, name: str) -> bytes:
        return self._files[name]

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
        table: Table,
        *,
        chunk_rows: int = 1 << 16,
        validate: bool = False,
        sketch: SketchOptions | None = None,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """`validate` lets every unit check itself after each of its instructions; `sketch` is the
        size of their predictors of hot keys; `clock` gives the CPU time by which its work is
        measured."""
        self._clock = clock
        self._spec = spec
        self.tables = [table]
        """What the routers of a batch go by, the newest last: they may be one version apart."""
        self._chunk_rows = chunk_rows
        self._validate = validate
        self._sketch = sketch
        self.state: dict[Place, UnitState] = {}
        self.files: dict[str, bytes] = {}
        """What units have exported."""
        self.reports: list[Report] = []

    def batch(
        self, inputs: Sequence[Iterable[pa.RecordBatch]], watermark: int | None = None
    ) -> list[pa.RecordBatch]:
        """Take in batches of each stream, in the form of `thetastream.index.part`; the results.

        Each batch is routed by a task of its own, whose table is one of `tables`, in turn.
        """
        given = [list(batches) for batches in inputs]
        results: list[pa.RecordBatch] = []
        forwards: dict[int, list[Packs]] = {}
        turns: dict[int, dict[int, int]] = {}
        for stage in self._spec.stages:
            packs = self.route(stage, given)
            if stage.number == 0:
                tasks = sum(map(len, given))
                for table in self.tables[: max(1, tasks)]:
                    for unit in table.active(0):
                        turns.setdefault(unit, {})[table.version] = table.digest
            arrived, forwards, marked = forwards, {}, None
            given_turns, turns = turns, {}
            for unit, seen in sorted(given_turns.items()):
                mine = packs.get(unit, []), arrived.get(unit, [])
                for step in self.turn(stage, unit, seen, mine, watermark):
                    match step:
                        case Emit(found):
                            results += found
                        case Pass(_, _, data):
                            results.append(unfactored(data))
                        case Forward(target, some):
                            forwards.setdefault(target, []).append(some)
                        case Mark(_, mark):
                            marked = mark
                        case Turn(target, version, digest):
                            turns.setdefault(target, {})[version] = digest
                        case Export(name, data):
                            self.files[name] = data.to_pybytes()
                        case Report():
                            self.reports.append(step)
                        case _:
                            carry_out(step, self.state[stage.number, unit])
            watermark = marked
        return results

    def route(
        self, stage: Stage, given: Sequence[Sequence[pa.RecordBatch]]
    ) -> dict[int, list[Pack]]:
        """The packs of a batch for each unit of a stage."""
        packs: dict[int, list[Pack]] = {}
        routed = [(stream, batch) for stream, some in enumerate(given) for batch in some]
        for number, (stream, batch) in enumerate(routed):
            table = self.tables[number % len(self.tables)]
            for pack in Dispatcher(self._spec, table, stage, stream).dispatch(batch):
                packs.setdefault(pack.unit, []).append(pack)
        return packs

    def reader(self, state: UnitState) -> StateReader:
        """Where a unit reads its parts."""
        return Memory(state.parts, self.files)

    def turn(
        self,
        stage: Stage,
        number: int,
        seen: dict[int, int],
        arrived: tuple[list[Pack], list[Packs]],
        watermark: int | None,
    ) -> Iterator[Instruction]:
        """What a unit does with the packs of a batch, and with those of the stage before."""
        state = self.state.setdefault((stage.number, number), UnitState())
        table = next(one for one in self.tables if one.version == max(seen))
        manifest = Manifest.read(state.manifest, self._spec, stage, table)
        unit = Unit(
            self._spec,
            table,
            stage,
            number,
            manifest,
            self.reader(state),
            chunk_rows=self._chunk_rows,
            seen=seen,
            sketch=self._sketch,
        )
        packs, forwarded = arrived
        for step in metered(unit.process(packs, watermark, forwarded), self._clock):
            yield step
            if self._validate:
                unit.validate()
