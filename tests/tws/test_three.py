"""The processors of a three-way join in Spark's own tester, stage after stage, without a JVM."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.streaming.tws_tester import TwsTester

from thetastream.errors import CorruptRunError, FingerprintError
from thetastream.graph import TriSpec
from thetastream.options import JoinOptions
from thetastream.runtime import joiner, shipped
from thetastream.runtime.results import PASSED
from thetastream.topology.unitkeys import murmur3, unit_key
from thetastream.spec import result_column
from thetastream.testing import multiset, rows_of
from thetastream.testing.cases import SCHEMA, SECOND, START
from thetastream.testing.duck import DuckJoin
from thetastream.testing.inprocess import Row, rows_in
from thetastream.testing.inprocess import Batch, InProcessJoin, expected_rows
from thetastream.version import VERSION

CYCLIC = "r.k = s.k AND s.n > t.n AND abs(t.n - r.n) <= 3"
CHAIN = "abs(r.n - s.n) <= 1 AND s.k = t.k"
COLUMNS = pa.schema(
    [(result_column(n, c), kind) for n in range(3) for c, kind in enumerate(SCHEMA.types)]
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    joiner._caches.clear()
    yield
    joiner._caches.clear()


class Query:
    """Plays Spark: routes, shuffles by unit, calls the processors of each stage."""

    def __init__(self, predicate: str, *, cache: int = 1 << 30) -> None:
        options = JoinOptions(units=2)
        join = InProcessJoin(predicate, [SCHEMA] * 3, within="20 seconds", time="t", options=options)
        assert isinstance(join.plan.spec, TriSpec)
        self.spec = join.plan.spec
        self.cache = cache
        self.duck = DuckJoin(self.spec)
        self.reports: list[dict[str, Any]] = []
        self.watermark = 0
        self.stages = [self._tester(stage.number) for stage in self.spec.stages]

    def _tester(self, stage: int) -> tuple[TwsTester, list[pd.DataFrame]]:
        last = stage + 1 == len(self.spec.stages)
        names = ["report", *COLUMNS.names] if last else PASSED.names
        made = shipped.tri_processor(
            self.spec.to_json(),
            stage,
            f"ab{stage}",
            50,
            self.cache,
            names,
            True,
            self.spec.clock.value,
        )
        out: list[pd.DataFrame] = []
        handle_rows = made.handleInputRows

        def recorded(*arguments: Any) -> Iterator[pd.DataFrame]:
            for frame in handle_rows(*arguments):
                assert list(frame.columns) == list(names)
                out.append(frame)
                yield frame

        made.handleInputRows = recorded  # type: ignore[method-assign]
        # Packs carry no event time: Spark filters none of them.
        tester = TwsTester(made, timeMode="EventTime", eventTimeExtractor=lambda _: sys.maxsize)
        return tester, out

    def batch(self, step: Batch) -> list[Row]:
        mark = (step.watermark or 0) // 1000
        packs = []
        for stream, table in enumerate(step.tables):
            route = shipped.tri_router(self.spec.to_json(), stream, VERSION)
            packs += [p.to_pandas() for p in route(iter([self.duck.derive(stream, table)]))]
        given = pd.concat(packs, ignore_index=True)
        results: list[pa.RecordBatch] = []
        for number, (tester, out) in enumerate(self.stages):
            if mark > self.watermark and number == 0:
                # The second stage is told by the first, whatever its own watermark is.
                tester.setWatermark(mark)
                self.watermark = mark
            out.clear()
            for key, mine in given.groupby("unit"):
                stage = self.spec.stages[number]
                unit = murmur3(int(key))
                assert stage.first_unit <= unit < stage.first_unit + stage.units
                tester.testInPandas(int(key), mine.reset_index(drop=True))
            reports = [frame for frame in out if frame["report"].notna().any()]
            self.reports += [json.loads(frame["report"].item()) for frame in reports]
            rest = [frame for frame in out if frame["report"].isna().all()]
            if number + 1 < len(self.stages):
                given = pd.concat(rest, ignore_index=True).drop(columns="report")
                continue
            for frame in rest:
                columns = [pa.array(frame[f.name].array).cast(f.type) for f in COLUMNS]
                results.append(pa.RecordBatch.from_arrays(columns, schema=COLUMNS))
        return rows_in(self.duck.recheck(results))


def script() -> list[Batch]:
    tables = [rows_of(60 + n, 48, first=1000 * n) for n in range(3)]
    marks = [None, START + 5 * SECOND, START + 25 * SECOND]
    return [
        Batch(*(table.slice(16 * part, 16) for table in tables), watermark=mark)
        for part, mark in enumerate(marks)
    ]


@pytest.mark.parametrize("cache", [0, 1 << 30])
@pytest.mark.parametrize("predicate", [CYCLIC, CHAIN])
def test_stages_equal_the_oracle(predicate: str, cache: int) -> None:
    query = Query(predicate, cache=cache)
    rows: list[Row] = []
    for step in script():
        rows += query.batch(step)
    wanted = expected_rows(predicate, script(), within="20 seconds", time="t")
    assert len(wanted) > 20
    assert multiset(rows) == multiset(wanted)
    assert sum(report["entries"] for report in query.reports) > 0


def test_stored_packs_that_were_damaged_are_refused() -> None:
    query = Query(CYCLIC, cache=0)
    first, second, _ = script()
    query.batch(first)
    joiner._caches.clear()
    again = Query(CYCLIC, cache=0)
    for key in _keys(query):
        before, after = query.stages[0][0], again.stages[0][0]
        after.updateValueState("manifest", key, before.peekValueState("manifest", key))
        stored = before.peekMapState("runs", key)
        packs = {name: (data[0][:-1] + b"!",) for name, data in stored.items()}
        assert packs
        after.updateMapState("runs", key, packs)
    with pytest.raises(CorruptRunError, match="damaged"):
        again.batch(second)


def test_state_of_another_join_is_refused() -> None:
    query = Query(CYCLIC)
    first, second, _ = script()
    query.batch(first)
    other = Query("r.k = s.k AND s.n > t.n AND abs(t.n - r.n) <= 2")
    for key in _keys(query):
        manifest = query.stages[0][0].peekValueState("manifest", key)
        other.stages[0][0].updateValueState("manifest", key, manifest)
    with pytest.raises(FingerprintError, match="predicate"):
        other.batch(second)


def _keys(query: Query) -> list[int]:
    return [unit_key(unit) for unit in range(query.spec.stages[0].units)]
