"""The joiner on Spark: one unit and batch in the state store's hands."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa

from thetastream import arrow
from thetastream.engine.decoding import decode_part, decode_view, missing_part
from thetastream.engine.manifest import Manifest, StateSpec
from thetastream.engine.protocol import (
    DropPart,
    Emit,
    Forward,
    Mark,
    Pass,
    PutManifest,
    PutPart,
    Report,
    StateChange,
    metered,
)
from thetastream.engine.triunit import TriUnit, forward_layout, unfactored
from thetastream.engine.unit import Unit
from thetastream.errors import ThetastreamError
from thetastream.graph import TriSpec
from thetastream.index.layout import Layout, Stored
from thetastream.index.part import PartMeta
from thetastream.runtime.cache import Caches
from thetastream.runtime.results import frame_of, passed_frame, report_frame
from thetastream.runtime.router import HEARTBEAT
from thetastream.runtime.shipped import States
from thetastream.runtime.unitkeys import murmur3, unit_key
from thetastream.spec import Clock, JoinSpec
from thetastream.topology.dispatcher import Pack
from thetastream.topology.tri import FORWARD, MARK, RESULT, relay

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import TimerValues

VALUE_BYTES = 960 * 1024
"""Bytes of one value in the state store. Larger ones are humongous objects in the JVM: 10 MB took
140 ms in values of 5 MB, 75 ms in values of 1 MB. Part of the state's format: another size
is another `manifest.FORMAT`."""

_caches = Caches()
"""Of this worker process."""


class _UnitState:
    """A unit's state in Spark's hands: a manifest, parts, and caches beside them."""

    def __init__(self, states: States, token: str, cache_bytes: int) -> None:
        self.manifest, self._parts = states
        self._cache = _caches.of(token, cache_bytes)

    def read(self, spec: StateSpec) -> Manifest:
        """The unit's manifest."""
        stored = self.manifest.get()
        return Manifest.read(None if stored is None else stored[0], spec)

    def carry_out(self, step: StateChange) -> None:
        """Change the state as a unit says."""
        match step:
            case PutPart(meta, data, part):
                self._put(meta, data)
                if part is not None:
                    self._cache.put(meta.id, part)
            case DropPart(meta):
                for name in _value_names(meta):
                    self._parts.removeKey((name,))
                self._cache.drop(meta.id)
            case PutManifest(text):
                self.manifest.update((text,))

    def part(self, meta: PartMeta, layout: Layout) -> Stored:
        """A stored part, from the nearest place that has it."""
        part = self._cache.get(meta.id, layout)
        if part is not None:
            return part
        part = decode_part(self._get(meta), meta, layout)
        self._cache.put(meta.id, part)
        return part

    def view(self, meta: PartMeta) -> pa.RecordBatch:
        """A stored view."""
        return decode_view(self._get(meta), meta)

    def _put(self, meta: PartMeta, data: pa.Buffer) -> None:
        for place, name in enumerate(_value_names(meta)):
            value = data[place * VALUE_BYTES : (place + 1) * VALUE_BYTES]
            self._parts.updateValue((name,), (value.to_pybytes(),))

    def _get(self, meta: PartMeta) -> bytes:
        pieces = []
        for name in _value_names(meta):
            value = self._parts.getValue((name,))
            if value is None:
                raise missing_part(meta)
            pieces.append(bytes(value[0]))
        return b"".join(pieces)


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a joiner is told besides its spec."""

    token: str
    chunk_rows: int
    cache_bytes: int
    names: Sequence[str]
    """The columns of what it puts out."""
    typed: bool
    clock: Clock


class _Joiner(ABC):
    """Carries out the instructions of units on Spark's state."""

    def __init__(self, states: States, setting: Setting, origin: str) -> None:
        self._setting = setting
        self._origin = origin
        self._state = _UnitState(states, setting.token, setting.cache_bytes)

    def process(
        self, key: tuple[int], frames: Iterator[pd.DataFrame], timers: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """What one unit puts out for one batch and, last, its report."""
        with _told(self._origin):
            watermark = self._setting.clock.watermark(timers.getCurrentWatermarkInMs() * 1000)
            yield from self._process(murmur3(int(key[0])), frames, watermark)

    @abstractmethod
    def _process(
        self, number: int, frames: Iterator[pd.DataFrame], watermark: int | None
    ) -> Iterator[pd.DataFrame]:
        """The same, with the unit's number and the watermark in microseconds."""

    def _results(self, batches: Sequence[pa.RecordBatch]) -> pd.DataFrame:
        return frame_of(batches, typed=self._setting.typed)

    def _report(self, report: Report) -> pd.DataFrame:
        return report_frame(json.dumps(dataclasses.asdict(report)), self._setting.names)


class Joiner(_Joiner):
    """Of a two-way join: results go out."""

    def __init__(self, states: States, spec: JoinSpec, setting: Setting) -> None:
        super().__init__(states, setting, spec.origin)
        self._spec = spec

    def _process(
        self, number: int, frames: Iterator[pd.DataFrame], watermark: int | None
    ) -> Iterator[pd.DataFrame]:
        packs = [pack for frame in frames for pack in _packs(number, frame)]
        manifest = self._state.read(self._spec)
        unit = Unit(self._spec, number, manifest, self._state, chunk_rows=self._setting.chunk_rows)
        for step in metered(unit.process(packs, watermark), time.thread_time):
            match step:
                case Emit(batches):
                    yield self._results(batches)
                case Report():
                    yield self._report(step)
                case PutPart() | DropPart() | PutManifest():
                    self._state.carry_out(step)


class TriJoiner(_Joiner):
    """Of a stage of a three-way join: results go out, or on to the next stage."""

    def __init__(self, states: States, spec: TriSpec, stage: int, setting: Setting) -> None:
        super().__init__(states, setting, spec.origin)
        self._stage = spec.stages[stage]
        self._forwarded = forward_layout(spec)

    def _process(
        self, number: int, frames: Iterator[pd.DataFrame], watermark: int | None
    ) -> Iterator[pd.DataFrame]:
        packs: list[Pack] = []
        forwarded: list[bytes] = []
        if self._stage.number:
            # Both stages go by one watermark, whatever Spark has got to in between.
            watermark = None
        for frame in frames:
            for stream, role, rows, blob in zip(
                frame["stream"], frame["role"], frame["rows"], frame["blob"], strict=True
            ):
                onward = relay(int(role))
                if onward is not None:
                    yield passed_frame(unit_key(onward[1]), onward[0], rows, blob, stream)
                elif role == MARK:
                    watermark = int(rows)
                elif role == FORWARD:
                    forwarded.append(blob)
                elif role == RESULT:
                    yield self._results([unfactored(blob)])
                elif role != HEARTBEAT:
                    packs.append(Pack(number, int(stream), int(role), arrow.from_bytes(blob)))
        manifest = self._state.read(self._stage)
        unit = TriUnit(
            self._stage, number, manifest, self._state, chunk_rows=self._setting.chunk_rows
        )
        steps = unit.process(packs, watermark, map(self._forwarded.decode, forwarded))
        for step in metered(steps, time.thread_time):
            match step:
                case Emit(batches):
                    yield self._results(batches)
                case Pass(target, count, results):
                    data = results.to_pybytes()
                    yield passed_frame(unit_key(target), RESULT, count, data)
                case Forward(target, some):
                    data = some.to_bytes().to_pybytes()
                    yield passed_frame(unit_key(target), FORWARD, len(some), data)
                case Mark(target, mark):
                    yield passed_frame(unit_key(target), MARK, mark, b"")
                case Report():
                    yield self._report(step)
                case _:
                    self._state.carry_out(step)


@contextlib.contextmanager
def _told(origin: str) -> Iterator[None]:
    """Errors name the line of the user's program that built the join."""
    try:
        yield
    except ThetastreamError as error:
        if origin:
            error.detail = f"{error.detail}\n  join built at {origin}".lstrip("\n")
        raise


def _value_names(meta: PartMeta) -> list[str]:
    """The keys of the values that hold a part."""
    return [f"{meta.id}/{number}" for number in range(-(-meta.bytes // VALUE_BYTES))]


def _packs(unit: int, frame: pd.DataFrame) -> Iterator[Pack]:
    for stream, role, blob in zip(frame["stream"], frame["role"], frame["blob"], strict=True):
        if role != HEARTBEAT:
            yield Pack(unit, int(stream), int(role), arrow.from_bytes(blob))
