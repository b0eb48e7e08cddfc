"""The units of one join on a virtual clock.

A unit begins with a batch when it has all of it and has done with the one before. A result is there
when the unit has come to its newest member: these are taken in the order in which they arrived.
Where packs of the stage before come to a unit, what it finds with them is there later: as if it
began with its batch only then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from thetastream.engine.consumers.listing import unfactored
from thetastream.engine.protocol import (
    DropPart,
    Emit,
    Export,
    Forward,
    Instruction,
    Pass,
    PutPart,
    Report,
    StateReader,
)
from thetastream.engine.runner import Memory, Runner, UnitState
from thetastream.index.encoding import Int64s
from thetastream.index.packing import Packs
from thetastream.index.part import PartMeta
from thetastream.index.protocol import Decoder, Stored
from thetastream.simulator.cluster import Cluster, Measured
from thetastream.simulator.trace import SAMPLE, Trace, Turn
from thetastream.spec import JoinSpec, Stage, Then
from thetastream.topology.dispatch import Pack
from thetastream.topology.table import Table
from thetastream.workloads import SECOND, START


class _Kept(Memory):
    """Parts as they were made: on a virtual clock nothing has to be read back."""

    def __init__(
        self, parts: dict[str, bytes], files: dict[str, bytes], kept: dict[str, Stored]
    ) -> None:
        super().__init__(parts, files)
        self._kept = kept

    def part(self, meta: PartMeta, decoder: Decoder) -> Stored:
        if meta.id not in self._kept:
            self._kept[meta.id] = super().part(meta, decoder)
        return self._kept[meta.id]


@dataclass
class _Passed:
    """Packs of the stage before, for one unit."""

    left: float = 0.0
    """When the last of them was sent."""
    bytes: int = 0
    messages: int = 0
    packs: int = 0


class TimedRunner(Runner):
    """Runs a join and tells when what happens."""

    def __init__(
        self, spec: JoinSpec, table: Table, *, number: int, cluster: Cluster, trace: Trace
    ) -> None:
        measured = isinstance(cluster.cpu, Measured)
        # Reading the clock takes longer than many a turn.
        super().__init__(spec, table, clock=time.thread_time if measured else float)
        self._number = number
        self._cluster = cluster
        self._trace = trace
        self._free: dict[tuple[int, int], float] = {}
        self._held: dict[int, list[Pack]] = {}
        self._kept: dict[str, Stored] = {}
        self._tick = 0
        self._opened = self._closed = self._ready = 0.0
        self.finished = 0.0
        """When the last unit was done with the batch."""
        self._arrivals: dict[int, float] = {}
        self._sent: dict[int, tuple[int, int, int]] = {}
        self._passed: dict[int, _Passed] = {}
        """What the stage before sent to each unit."""

    def begin(self, tick: int, opened: float, closed: float, ready: float) -> None:
        """The batch that comes: from when to when its tuples arrived, and when it can be sent."""
        self._tick, self._opened, self._closed, self._ready = tick, opened, closed, ready
        self.finished = ready
        self._passed = {}

    def route(
        self, stage: Stage, given: Sequence[Sequence[pa.RecordBatch]]
    ) -> dict[int, list[Pack]]:
        packs = super().route(stage, given)
        for unit, some in packs.items():
            self._held.setdefault(unit, []).extend(some)
        rows = sum(pack.batch.num_rows for some in self._held.values() for pack in some)
        if stage.number == 0 and self._number == 0:
            self._trace.held.append(rows)
        served = {unit: self._held.pop(unit) for unit in list(self._held) if self._serves(unit)}
        self._sent = {
            unit: (
                sum(_size(pack.batch) for pack in some),
                len(some),
                sum(pack.batch.num_rows for pack in some),
            )
            for unit, some in served.items()
        }
        units = {unit for table in self.tables for unit in table.active(stage.number)}
        sent = {unit: (size, messages) for unit, (size, messages, _) in self._sent.items()}
        network = self._cluster.network
        self._arrivals = network.arrivals(self._ready, sent, filter(self._serves, units))
        return served

    def _serves(self, unit: int) -> bool:
        slots = self._cluster.network.slots
        return unit % slots == self._tick % slots

    def reader(self, state: UnitState) -> StateReader:
        return _Kept(state.parts, self.files, self._kept)

    def turn(
        self,
        stage: Stage,
        number: int,
        seen: dict[int, int],
        arrived: tuple[list[Pack], list[Packs]],
        watermark: int | None,
    ) -> Iterator[Instruction]:
        if not self._serves(number):
            return
        size, messages, tuples = self._sent.get(number, (0, 0, 0))
        turn = Turn(
            join=self._number,
            stage=stage.number,
            unit=number,
            tick=self._tick,
            closed=self._closed,
            arrived=self._arrivals.get(number, self._ready),
            bytes=size,
            messages=messages,
            tuples=tuples,
            transfer=self._cluster.network.transfer(size, messages),
        )
        passed = self._passed.get(number) if stage.number else None
        if passed is not None:
            transfer = self._cluster.network.transfer(passed.bytes, passed.messages)
            turn.bytes += passed.bytes
            turn.messages += passed.messages
            turn.tuples += passed.packs
            turn.transfer += transfer
            turn.forwarded = passed.left + transfer + self._cluster.network.latency
        found: list[pa.RecordBatch] = []
        onward: list[tuple[int, Packs]] = []
        for step in super().turn(stage, number, seen, arrived, watermark):
            match step:
                case Emit(batches):
                    found += batches
                case Pass(_, _, data):
                    found.append(unfactored(data))
                case Forward(target, packs):
                    onward.append((target, packs))
                case PutPart(meta, _, part):
                    self._kept[meta.id] = part
                case DropPart(meta):
                    self._kept.pop(meta.id, None)
                case Export(_, data):
                    turn.moved += data.size
                case Report():
                    if passed is not None:
                        # A pack visits like a tuple.
                        step.probes += passed.packs
                    self._finish(turn, stage, step, found, onward)
            yield step

    def _finish(
        self,
        turn: Turn,
        stage: Stage,
        report: Report,
        found: list[pa.RecordBatch],
        onward: list[tuple[int, Packs]],
    ) -> None:
        """When it all happened, now that it is known what it took."""
        cluster = self._cluster
        turn.disk = cluster.memory.seconds(report)
        turn.cpu = cluster.cpu.seconds(report) + turn.disk
        report.busy = turn.cpu
        place = (stage.number, turn.unit)
        turn.start = max(turn.arrived, self._free.get(place, 0.0))
        self._delays(turn, stage, found)
        turn.finish = max(turn.start, turn.forwarded) + turn.cpu
        self._free[place] = turn.finish
        self.finished = max(self.finished, turn.finish)
        for target, packs in onward:
            passed = self._passed.setdefault(target, _Passed())
            passed.left = max(passed.left, turn.finish)
            passed.bytes += packs.nbytes
            passed.messages += 1
            passed.packs += len(packs)
        for name in _COPIED:
            setattr(turn, name, getattr(report, name))
        turn.rows = report.rows_in
        self._trace.turns.append(turn)

    def _delays(self, turn: Turn, stage: Stage, found: list[pa.RecordBatch]) -> None:
        samples = []
        streams = self._forwarding(stage)
        for batch in found:
            times = _times(batch)
            if times is None or not len(times[0]):
                continue
            newest = times.max(axis=0)
            arrived = (newest - START) / SECOND
            share = np.clip((arrived - self._opened) / (self._closed - self._opened), 0.0, 1.0)
            ready = turn.start + turn.cpu * share
            if turn.forwarded > turn.start and streams:
                late = np.isin(times.argmax(axis=0), list(streams))
                ready += np.where(late, turn.forwarded - turn.start, 0.0)
                turn.late += int(late.sum())
            delays = ready - arrived
            turn.delays += len(delays)
            turn.delay += float(delays.sum())
            samples.append(delays[:: max(1, len(delays) // SAMPLE)].astype(np.float32))
        if samples:
            joined = np.concatenate(samples)
            turn.sample = joined[:: max(1, len(joined) // SAMPLE)]

    def _forwarding(self, stage: Stage) -> set[int]:
        """The streams whose tuples come to a stage in packs of the stage before."""
        if stage.number == 0:
            return set()
        before = self._spec.stages[stage.number - 1].meetings
        return {meeting.new for meeting in before if meeting.then is Then.FORWARD}


_COPIED = (
    "probes",
    "compared",
    "updates",
    "results",
    "stored_rows",
    "stored_bytes",
    "kept",
    "entries",
    "pairs",
    "out_bytes",
)


def _size(batch: pa.RecordBatch) -> int:
    """The bytes of the tuples themselves: a slice has the buffers of the whole."""
    return int(batch.nbytes)


def _times(batch: pa.RecordBatch) -> Int64s | None:
    """The times of the members of each result, a row for each stream."""
    columns: list[Any] = [
        batch.column(at).cast(pa.int64()).to_numpy(zero_copy_only=False)
        for at, one in enumerate(batch.schema)
        if pa.types.is_timestamp(one.type)
    ]
    return np.stack(columns) if columns else None
