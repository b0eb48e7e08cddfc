"""Plays Spark for one join: no JVM, but Spark's tester with its state, packs and stages."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.tws_tester import TwsTester

from thetastream.engine.runner import Place, UnitState
from thetastream.runtime import joiner, shipped
from thetastream.runtime.results import PASSED
from thetastream.spec import Clock, result_column
from thetastream.spec.codec import to_json
from thetastream.testing import CRASH, RESTART, Batch, InProcessJoin
from thetastream.testing.cases import SCHEMA
from thetastream.testing.duck import DuckJoin
from thetastream.testing.inprocess import Row, rows_in
from thetastream.topology import wire
from thetastream.topology.makers import make
from thetastream.topology.unitkeys import unit_key
from thetastream.version import VERSION

CACHE = 1 << 30
ORIGIN = "program.py:7"
State = Mapping[Place, UnitState]


class Query:
    """Routes, shuffles, calls the processor of each unit of each stage, keeps the state."""

    def __init__(
        self,
        join: InProcessJoin,
        *,
        cache: int = CACHE,
        token: str = "ab12",
        chunk_rows: int = 50,
        typed: bool = True,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        """`limits`: bytes of packs, by the names that `JoinerConfig` has for them."""
        (step,) = join.plan.tree.steps
        self.spec = replace(step.spec, origin=ORIGIN)
        self.step = to_json(replace(step, spec=self.spec))
        self.table = make(self.spec, step.routing)
        self.duck = DuckJoin(self.spec)
        self.cache, self.token, self.chunk_rows, self.typed = cache, token, chunk_rows, typed
        self.columns = pa.schema(
            [
                (result_column(stream, number), kind)
                for stream in range(len(self.spec.streams))
                for number, kind in enumerate(SCHEMA.types)
            ]
        )
        self.limits = dict(limits or {})
        self.reports: list[dict[str, Any]] = []
        self.out: list[pd.DataFrame] = []
        self.watermark = 0
        self.testers = self._testers()

    def _testers(self) -> list[TwsTester]:
        return [self._tester(stage.number) for stage in self.spec.stages]

    def _tester(self, stage: int) -> TwsTester:
        results = self.columns.names if self.typed else ["blob"]
        last = stage + 1 == len(self.spec.stages)
        names = ["report", *results] if last else PASSED.names
        made: Any = shipped.processor(
            self.step,
            {
                "stage": stage,
                "token": f"{self.token}{stage}",
                "chunk_rows": self.chunk_rows,
                "cache_bytes": self.cache,
                "names": names,
                "typed": self.typed,
                "clock": self.spec.clock.value,
                **self.limits,
            },
        )
        handle_rows = made.handleInputRows

        def recorded(*arguments: Any) -> Iterator[pd.DataFrame]:
            for frame in handle_rows(*arguments):
                assert list(frame.columns) == list(names)
                self.out.append(frame)
                yield frame

        made.handleInputRows = recorded
        if self.spec.clock is Clock.NONE:
            return TwsTester(made, timeMode="None")
        # Packs carry no event time: Spark filters none of them.
        return TwsTester(made, timeMode="EventTime", eventTimeExtractor=lambda _: sys.maxsize)

    @property
    def units(self) -> int:
        """The units of the first stage."""
        return self.table.units(0)

    def places(self) -> Iterator[Place]:
        """All units of all stages."""
        for stage in self.spec.stages:
            for unit in range(self.table.units(stage.number)):
                yield stage.number, unit

    def packs(self, batch: Batch) -> pd.DataFrame:
        """What the routers send to the first stage."""
        frames = []
        for stream, table in enumerate(batch.tables):
            route = shipped.router(self.step, stream, VERSION)
            derived = self.duck.derive(stream, table)
            half = derived.num_rows // 2
            pieces = [derived.slice(0, half), derived.slice(half)]
            for pack in route(iter(pieces)):
                assert pack.schema == wire.SCHEMA
                frames.append(pack)
        return pa.Table.from_batches(frames).to_pandas()

    def batch(self, batch: Batch) -> list[Row]:
        """The result rows of a batch."""
        mark = (batch.watermark or 0) // 1000
        if mark > self.watermark and self.spec.clock is not Clock.NONE:
            self._set_watermark(mark)
        given = self.packs(batch)
        assert set(given["key"]) == {unit_key(unit) for unit in range(self.units)}
        for stage in range(len(self.spec.stages) - 1):
            given = passed_on(list(self._stage(stage, given)))
        last = len(self.spec.stages) - 1
        results = [found for frame in self._stage(last, given) for found in self.results(frame)]
        return rows_in(self.duck.recheck(results))

    def _set_watermark(self, mark: int) -> None:
        # The later stages are told by the first, whatever their own watermark is.
        self.testers[0].setWatermark(mark)
        self.watermark = mark

    def _stage(self, stage: int, given: pd.DataFrame) -> Iterator[pd.DataFrame]:
        """What the units of a stage put out besides their reports."""
        units = range(self.table.units(stage))
        mine = given[given["stage"] == stage]
        assert (mine["key"] == mine["unit"].map(unit_key)).all()
        assert (given["stage"] >= stage).all()
        assert set(given["key"]) <= {unit_key(unit) for unit in units}
        for key, rows in given.groupby("key"):
            self.out.clear()
            self.testers[stage].testInPandas(int(key), rows.reset_index(drop=True))
            *found, report = self.out
            self.reports.append(json.loads(report["report"].item()))
            assert self.reports[-1]["stage"] == stage
            assert unit_key(self.reports[-1]["unit"]) == key
            for frame in found:
                assert frame["report"].isna().all()
                yield frame

    def results(self, out: pd.DataFrame) -> list[pa.RecordBatch]:
        """What Spark makes of the joiner's rows."""
        if not self.typed:
            blobs = pa.RecordBatch.from_pydict({"blob": pa.array(out["blob"], pa.binary())})
            return list(shipped.unpacker()(iter([blobs])))
        columns = [pa.array(out[field.name].array).cast(field.type) for field in self.columns]
        return [pa.RecordBatch.from_arrays(columns, schema=self.columns)]

    def state(self) -> dict[Place, UnitState]:
        """A copy of what Spark would have in its store."""
        copied = {}
        for stage, unit in self.places():
            tester, key = self.testers[stage], unit_key(unit)
            value = tester.peekValueState("manifest", key)
            parts = tester.peekMapState("runs", key)
            copied[stage, unit] = UnitState(
                None if value is None else value[0], {k[0]: v[0] for k, v in parts.items()}
            )
        return copied

    def restart(self, state: State | None = None, *, token: str = "ab12") -> None:
        """New processors in new workers, with the state of the last commit."""
        kept = self.state() if state is None else state
        joiner._caches.clear()
        self.token = token
        self.testers = self._testers()
        if self.watermark:
            self._set_watermark(self.watermark)
        for (stage, unit), stored in kept.items():
            tester, key = self.testers[stage], unit_key(unit)
            if stored.manifest is not None:
                tester.updateValueState("manifest", key, (stored.manifest,))
            parts = {(name,): (data,) for name, data in stored.parts.items()}
            tester.updateMapState("runs", key, parts)

    def run(self, script: Sequence[Any]) -> list[Row]:
        """The result rows of a script; a batch after a crash runs twice."""
        rows: list[Row] = []
        for place, step in enumerate(script):
            if step is RESTART:
                self.restart()
            elif step is CRASH:
                before = self.state()
                self.batch(script[place + 1])
                self.restart(before)
            else:
                rows += self.batch(step)
        return rows


def passed_on(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """What a stage put out, as the next one gets it: through Arrow, with all rows of a key."""
    rows = pd.concat(frames, ignore_index=True).drop(columns="report")
    return pa.Table.from_pandas(rows, schema=wire.SCHEMA, preserve_index=False).to_pandas()
