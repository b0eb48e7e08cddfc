"""The joiner on Spark: one unit and batch in the state store's hands."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from thetastream import arrow
from thetastream.engine.manifest import Manifest
from thetastream.engine.runner import decode_part
from thetastream.engine.unit import DropPart, Emit, PutManifest, PutPart, Report, Unit
from thetastream.errors import CorruptRunError, ThetastreamError
from thetastream.index.part import Part, PartMeta, SortOrder
from thetastream.runtime.cache import PartCache
from thetastream.runtime.router import HEARTBEAT
from thetastream.runtime.unitkeys import murmur3
from thetastream.spec import JoinSpec
from thetastream.topology.dispatcher import Pack

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

RESULT_DDL = "unit int, rows bigint, blob binary, report string"

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
    ) -> None:
        self._spec = JoinSpec.from_json(spec)
        self._chunk_rows = chunk_rows
        self._manifest = handle.getValueState("manifest", "text string")
        self._parts = handle.getMapState("runs", "id string", "data binary")
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
        unit = Unit(self._spec, number, manifest, self._load, chunk_rows=self._chunk_rows)
        # Spark's watermark starts at zero, which means that there is none yet.
        for step in unit.process(packs, watermark * 1000 if watermark > 0 else None):
            match step:
                case Emit(batches):
                    blob = arrow.to_bytes(*batches).to_pybytes()
                    yield _frame(number, sum(b.num_rows for b in batches), blob, None)
                case PutPart(meta, data, part):
                    self._parts.updateValue((meta.id,), (data.to_pybytes(),))
                    self._cache.put(meta.id, part)
                case DropPart(meta):
                    self._parts.removeKey((meta.id,))
                    self._cache.drop(meta.id)
                case PutManifest(text):
                    self._manifest.update((text,))
                case Report():
                    yield _frame(number, 0, None, json.dumps(dataclasses.asdict(step)))

    def _load(self, meta: PartMeta, order: SortOrder, stream: int) -> Part:
        part = self._cache.get(meta.id, self._spec, order, stream)
        if part is not None:
            return part
        value = self._parts.getValue((meta.id,))
        if value is None:
            raise CorruptRunError(
                f"stored part {meta.id} of stream {self._spec.streams[stream].name!r} is missing",
                hint="restore the checkpoint from a copy, or start with a new one",
            )
        part = decode_part(bytes(value[0]), meta, self._spec, order, stream)
        self._cache.put(meta.id, part)
        return part


def _packs(unit: int, frame: pd.DataFrame) -> Iterator[Pack]:
    for stream, role, blob in zip(frame["stream"], frame["role"], frame["blob"], strict=True):
        if role != HEARTBEAT:
            yield Pack(unit, int(stream), int(role), arrow.from_bytes(blob))


def _frame(unit: int, rows: int, blob: bytes | None, report: str | None) -> pd.DataFrame:
    values: dict[str, list[Any]] = {
        "unit": [unit],
        "rows": [rows],
        "blob": [blob],
        "report": [report],
    }
    return pd.DataFrame(values)
