"""The joiner on Spark: one unit and batch in the state store's hands."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from thetastream import arrow
from thetastream.engine.consumers.listing import unfactored
from thetastream.engine.decoding import decode_part, missing_part
from thetastream.engine.indexes import pack_index
from thetastream.engine.manifest import Manifest, followed_version
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
    Turn,
    metered,
)
from thetastream.engine.unit import Unit
from thetastream.errors import ControlError, ThetastreamError, TriggerSizeError
from thetastream.index.part import PartMeta
from thetastream.index.protocol import Decoder, Stored
from thetastream.index.runs import PackRuns
from thetastream.runtime.cache import Caches
from thetastream.runtime.results import frame_of, passed_frame, report_frame
from thetastream.runtime.shipped import States
from thetastream.sizes import format_size
from thetastream.spec import Clock, Retention, Step, Then
from thetastream.steering.directory import Directory, opened
from thetastream.steering.tables import tables_of
from thetastream.topology import wire
from thetastream.topology.dispatch import Pack
from thetastream.topology.table import Table
from thetastream.topology.unitkeys import murmur3
from thetastream.topology.wire import Kind

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import TimerValues

VALUE_BYTES = 960 * 1024
"""Bytes of one value in the state store. Larger ones are humongous objects in the JVM: 10 MB took
140 ms in values of 5 MB, 75 ms in values of 1 MB. Part of the state's format: another size
is another `manifest.FORMAT`."""

UNIT_BYTES = 2 * 1024**3
"""Bytes of packs that a unit takes in one batch, where it needs all of them before it begins."""

_caches = Caches()
"""Of this worker process."""


class _UnitState:
    """A unit's state in Spark's hands: a manifest, parts, and caches beside them."""

    def __init__(
        self, states: States, token: str, cache_bytes: int, directory: Directory | None
    ) -> None:
        self.manifest, self._parts = states
        self._cache = _caches.of(token, cache_bytes)
        self._directory = directory

    def read(self) -> str | None:
        """The unit's manifest as it was written."""
        stored = self.manifest.get()
        return None if stored is None else str(stored[0])

    def exported(self, name: str) -> bytes:
        """A file that another unit has exported."""
        if self._directory is None:
            raise ControlError("tuples are exported only where there is a control directory")
        return self._directory.exported(name)

    def carry_out(self, step: StateChange | Export) -> None:
        """Change the state as a unit says."""
        match step:
            case Export(name, data):
                if self._directory is not None:
                    self._directory.export(name, memoryview(data))
            case PutPart(meta, data, part):
                self._put(meta, data)
                self._cache.put(meta.id, part)
            case DropPart(meta):
                for name in _value_names(meta):
                    self._parts.removeKey((name,))
                self._cache.drop(meta.id)
            case PutManifest(text):
                self.manifest.update((text,))

    def part(self, meta: PartMeta, decoder: Decoder) -> Stored:
        """A stored part, from the nearest place that has it."""
        part = self._cache.get(meta.id, decoder)
        if part is not None:
            return part
        part = decode_part(self._get(meta), meta, decoder)
        self._cache.put(meta.id, part)
        return part

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
class JoinerConfig:
    """What a joiner is told besides its join."""

    stage: int
    token: str
    chunk_rows: int
    cache_bytes: int
    names: Sequence[str]
    """The columns of what it puts out."""
    typed: bool
    clock: str
    """The watermark that it goes by, as `thetastream.spec.Clock` names it."""
    share_bytes: int = arrow.SAFE_BYTES
    """Arrow bytes of packs that a unit joins at a time, where it need not have all of them."""
    unit_bytes: int = UNIT_BYTES
    """Bytes of packs that it takes at most, where it needs all of them."""


class Joiner:
    """Runs the units of a stage: carries out their instructions on Spark's state."""

    def __init__(self, states: States, join: Step, config: JoinerConfig) -> None:
        self._spec = join.spec
        self._tables = tables_of(join)
        self._stage = join.spec.stages[config.stage]
        self._config = config
        self._live = join.live
        directory = None if join.live is None else opened(join.live.path, join.live.token)
        self._state = _UnitState(states, config.token, config.cache_bytes, directory)

    def process(
        self, key: tuple[int], frames: Iterator[pd.DataFrame], timers: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """What one unit puts out for one batch and, last, its report."""
        with naming_origin(self._spec.origin):
            watermark = None
            if self._stage.number == 0:
                spark = timers.getCurrentWatermarkInMs() * 1000
                watermark = Clock(self._config.clock).watermark(spark)
            rows = (row for frame in frames for row in frame.itertuples(index=False))
            join = self._join_all if self._needs_all else self._join_shares
            yield from join(murmur3(int(key[0])), rows, watermark)

    @property
    def _needs_all(self) -> bool:
        """Whether a unit must have all packs of a batch before it begins: they bring versions of
        the table and the watermark, and both stages must see the same tuples as new."""
        return self._live is not None or len(self._spec.stages) > 1

    def _join_shares(
        self, number: int, rows: Iterator[Any], watermark: int | None
    ) -> Iterator[pd.DataFrame]:
        """Join packs as they come: however many there are, memory holds a share of them."""
        packs = (_pack(number, row) for row in rows if row.kind == Kind.TUPLES)
        unit = self._unit(number, self._tables.of_batch(None), self._state.read())
        yield from self._carried_out(unit.process(packs, watermark))

    def _join_all(
        self, number: int, rows: Iterator[Any], watermark: int | None
    ) -> Iterator[pd.DataFrame]:
        packs: list[Pack] = []
        forwarded: list[bytes] = []
        seen: dict[int, int] = {}
        size = 0
        for row in rows:
            if row.kind in (Kind.TUPLES, Kind.HEARTBEAT):
                # Of rows for a later stage, too: every router has sent something.
                self._note(seen, int(row.version), int(row.digest))
            if row.stage > self._stage.number:
                yield passed_frame(wire.handed_on(row))
                continue
            size += len(row.blob)
            if size > self._config.unit_bytes:
                raise self._too_large(number)
            if row.kind == Kind.MARK:
                # All stages go by one watermark, whatever Spark has got to in between.
                watermark = int(row.watermark)
            elif row.kind == Kind.FORWARDED:
                forwarded.append(row.blob)
            elif row.kind == Kind.RESULT:
                yield self._results([unfactored(row.blob)])
            elif row.kind == Kind.TUPLES:
                packs.append(_pack(number, row))
        stored = self._state.read()
        unit = self._unit(number, self._table(seen, stored), stored, seen)
        onward = (self._forwarded.decode(blob) for blob in forwarded)
        yield from self._carried_out(unit.process(packs, watermark, onward))

    def _unit(
        self, number: int, table: Table, stored: str | None, seen: dict[int, int] | None = None
    ) -> Unit:
        return Unit(
            self._spec,
            table,
            self._stage,
            number,
            Manifest.read(stored, self._spec, self._stage, table),
            self._state,
            chunk_rows=self._config.chunk_rows,
            seen=seen,
            sketch=None if self._live is None else self._live.sketch,
            share_bytes=None if self._needs_all else self._config.share_bytes,
        )

    def _carried_out(self, steps: Iterator[Instruction]) -> Iterator[pd.DataFrame]:
        """Change the state as the steps of a unit say; what leaves the unit."""
        for step in metered(steps, time.thread_time):
            if isinstance(step, PutPart | DropPart | PutManifest | Export):
                self._state.carry_out(step)
            else:
                yield self._frame(step)

    def _too_large(self, number: int) -> TriggerSizeError:
        limit = format_size(self._config.unit_bytes)
        return TriggerSizeError(
            f"one trigger brings more than {limit} for unit {number} of the join",
            detail="  A join with a control directory, or in two stages, needs all rows of a"
            " trigger in memory.",
            hint="read less per trigger (maxFilesPerTrigger, maxOffsetsPerTrigger, max_rows of a"
            " site) with a new checkpoint: Spark repeats a batch that has failed as it was; or use"
            " more units",
        )

    def _table(self, seen: dict[int, int], stored: str | None) -> Table:
        """The newest table that a router used; if none had rows, the one of the batch before."""
        if not seen:
            return self._tables.at(followed_version(stored))
        table = self._tables.at(max(seen))
        # What was read here is what the router has read.
        self._note(seen, table.version, table.digest)
        return table

    def _note(self, seen: dict[int, int], version: int, digest: int) -> None:
        """Take note of the version of the table that a router has used."""
        if seen.setdefault(version, digest) != digest:
            raise ControlError(
                f"routers of one batch used two tables of version {version}",
                hint="let nothing but thetastream change the control directory",
            )

    def _frame(self, step: Instruction) -> pd.DataFrame:
        """What leaves the unit, as Spark takes it."""
        onward = self._stage.number + 1
        match step:
            case Emit(batches):
                return self._results(batches)
            case Report():
                told = dataclasses.asdict(step)
                if self._live is not None:
                    told |= {"control": self._live.control, "join": self._live.join}
                return report_frame(json.dumps(told), self._config.names)
            case Pass(unit, rows, data):
                row = wire.row(onward, unit, Kind.RESULT, rows=rows, blob=data.to_pybytes())
            case Forward(unit, packs):
                blob = packs.to_bytes().to_pybytes()
                row = wire.row(onward, unit, Kind.FORWARDED, rows=len(packs), blob=blob)
            case Turn(unit, version, digest):
                row = wire.row(onward, unit, Kind.HEARTBEAT, version=version, digest=digest)
            case Mark(unit, mark):
                row = wire.row(onward, unit, Kind.MARK, watermark=mark)
            case _:
                raise TypeError(f"{type(step).__name__} does not leave a unit")
        return passed_frame(row)

    def _results(self, batches: Sequence[pa.RecordBatch]) -> pd.DataFrame:
        return frame_of(batches, typed=self._config.typed)

    @functools.cached_property
    def _forwarded(self) -> PackRuns:
        """Reads the packs that the stage before forwards."""
        before = self._spec.stages[self._stage.number - 1]
        (meeting,) = (one for one in before.meetings if one.then is Then.FORWARD)
        return pack_index(self._spec, meeting, Retention())


def _pack(number: int, row: Any) -> Pack:
    """The tuples in a row."""
    return Pack(number, int(row.stream), int(row.role), arrow.from_bytes(row.blob))


@contextlib.contextmanager
def naming_origin(origin: str) -> Iterator[None]:
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
