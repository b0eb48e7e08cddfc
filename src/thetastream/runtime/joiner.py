"""The joiner on Spark: one unit and batch in the state store's hands."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from thetastream import arrow
from thetastream.engine.manifest import Manifest
from thetastream.engine.runner import decode_part, decode_view, missing_part
from thetastream.engine.shelf import DropPart, PutPart
from thetastream.engine.unit import Emit, PutManifest, PutView, Report, Unit
from thetastream.errors import ThetastreamError
from thetastream.index.layout import Layout, Stored
from thetastream.index.part import PartMeta
from thetastream.runtime.cache import PartCache
from thetastream.runtime.results import frame_of, report_frame
from thetastream.runtime.router import HEARTBEAT
from thetastream.runtime.unitkeys import murmur3
from thetastream.spec import JoinSpec
from thetastream.topology.dispatcher import Pack

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

VALUE_BYTES = 960 * 1024
"""Bytes of one value in the state store. Larger ones are humongous objects in the JVM: 10 MB took
140 ms in values of 5 MB, 75 ms in values of 1 MB. Part of the state's format: another size
is another `manifest.FORMAT`."""

_TEXT = StructType([StructField("text", StringType())])
_DATA = StructType([StructField("data", BinaryType())])

_caches: dict[str, PartCache] = {}
"""One cache a join in this worker process, whichever partitions it serves."""


class Joiner:
    """Carries out a unit's instructions on Spark's state."""

    def __init__(
        self,
        handle: StatefulProcessorHandle,
        *,
        spec: str,
        token: str,
        chunk_rows: int,
        cache_bytes: int,
        names: Sequence[str],
        typed: bool,
    ) -> None:
        self._spec = JoinSpec.from_json(spec)
        self._chunk_rows = chunk_rows
        self._names = names
        self._typed = typed
        self._manifest = handle.getValueState("manifest", _TEXT)
        self._parts = handle.getMapState("runs", _TEXT, _DATA)
        if token not in _caches:
            _caches[token] = PartCache(token, cache_bytes)
        self._cache = _caches[token]

    def process(
        self, key: tuple[int], frames: Iterator[pd.DataFrame], timers: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Results and, last, the report of one unit for one batch."""
        try:
            yield from self._process(murmur3(int(key[0])), frames, timers)
        except ThetastreamError as error:
            if self._spec.origin:
                error.detail = f"{error.detail}\n  join built at {self._spec.origin}".lstrip("\n")
            raise

    def _process(
        self, number: int, frames: Iterator[pd.DataFrame], timers: TimerValues
    ) -> Iterator[pd.DataFrame]:
        packs = [pack for frame in frames for pack in _packs(number, frame)]
        stored = self._manifest.get()
        manifest = (
            Manifest.new(self._spec) if stored is None else Manifest.read(stored[0], self._spec)
        )
        watermark = timers.getCurrentWatermarkInMs()
        unit = Unit(self._spec, number, manifest, self, chunk_rows=self._chunk_rows)
        # Spark's watermark starts at zero, which means that there is none yet.
        for step in unit.process(packs, watermark * 1000 if watermark > 0 else None):
            match step:
                case Emit(batches):
                    yield frame_of(batches, typed=self._typed)
                case PutPart(meta, data, part):
                    self._put(meta, data)
                    self._cache.put(meta.id, part)
                case PutView(meta, data):
                    self._put(meta, data)
                case DropPart(meta):
                    for name in _value_names(meta):
                        self._parts.removeKey((name,))
                    self._cache.drop(meta.id)
                case PutManifest(text):
                    self._manifest.update((text,))
                case Report():
                    report = json.dumps(dataclasses.asdict(step))
                    yield report_frame(number, report, self._names)

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


def _value_names(meta: PartMeta) -> list[str]:
    """The keys of the values that hold a part."""
    return [f"{meta.id}/{number}" for number in range(-(-meta.bytes // VALUE_BYTES))]


def _packs(unit: int, frame: pd.DataFrame) -> Iterator[Pack]:
    for stream, role, blob in zip(frame["stream"], frame["role"], frame["blob"], strict=True):
        if role != HEARTBEAT:
            yield Pack(unit, int(stream), int(role), arrow.from_bytes(blob))
