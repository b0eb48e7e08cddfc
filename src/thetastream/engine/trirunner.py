"""A whole three-way join in this process: routers, the units of each stage, and their state."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import pyarrow as pa

from thetastream.engine.manifest import Manifest
from thetastream.engine.protocol import Emit, Forward, Mark, Pass, Report, metered
from thetastream.engine.runner import Memory, UnitState, carry_out
from thetastream.engine.triunit import TriUnit, unfactored
from thetastream.graph import Stage, TriSpec
from thetastream.index.packing import Packs
from thetastream.topology.dispatcher import Pack
from thetastream.topology.tri import TriDispatcher


class TriRunner:
    """Runs a three-way join batch by batch."""

    def __init__(self, spec: TriSpec, *, chunk_rows: int = 1 << 16) -> None:
        self._spec = spec
        self._chunk_rows = chunk_rows
        self.state: dict[int, UnitState] = {
            unit: UnitState()
            for stage in spec.stages
            for unit in range(stage.first_unit, stage.first_unit + stage.units)
        }
        self.reports: list[Report] = []

    def batch(
        self, inputs: Sequence[Iterable[pa.RecordBatch]], watermark: int | None = None
    ) -> list[pa.RecordBatch]:
        """Take in batches of each stream, in the form of `thetastream.index.part`; the results."""
        given = [list(batches) for batches in inputs]
        results: list[pa.RecordBatch] = []
        forwards: list[Forward] = []
        for stage in self._spec.stages:
            packs: dict[int, list[Pack]] = {}
            for stream, batches in enumerate(given):
                dispatcher = TriDispatcher(stage, stream)
                for batch in batches:
                    for pack in dispatcher.dispatch(batch):
                        packs.setdefault(pack.unit, []).append(pack)
            arrived, forwards = forwards, []
            seen = watermark if stage.number == 0 else self._marked
            for unit in range(stage.first_unit, stage.first_unit + stage.units):
                mine = [forward.packs for forward in arrived if forward.unit == unit]
                found, gone = self._unit(stage, unit, packs.get(unit, []), mine, seen)
                results += found
                forwards += gone
        return results

    def _unit(
        self,
        stage: Stage,
        number: int,
        packs: list[Pack],
        forwarded: list[Packs],
        watermark: int | None,
    ) -> tuple[list[pa.RecordBatch], list[Forward]]:
        state = self.state[number]
        if stage.number == 0 and number == 0:
            self._marked: int | None = None
        manifest = Manifest.read(state.manifest, stage)
        unit = TriUnit(stage, number, manifest, Memory(state.parts), chunk_rows=self._chunk_rows)
        results: list[pa.RecordBatch] = []
        gone: list[Forward] = []
        for step in metered(unit.process(packs, watermark, forwarded), time.thread_time):
            match step:
                case Emit(batches):
                    results += batches
                case Pass(_, _, data):
                    results.append(unfactored(data))
                case Forward():
                    gone.append(step)
                case Mark(_, mark):
                    self._marked = mark
                case Report():
                    self.reports.append(step)
                case _:
                    carry_out(step, state)
        return results, gone
