"""The processors of a three-way join in Spark's own tester, stage after stage, without a JVM."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.tws.playing import CACHE, ORIGIN, Query
from thetastream.engine.runner import UnitState
from thetastream.errors import CorruptRunError, FingerprintError
from thetastream.options import JoinOptions
from thetastream.runtime import joiner
from thetastream.testing import (
    CRASH,
    RESTART,
    Batch,
    InProcessJoin,
    expected_rows,
    multiset,
    rows_of,
)
from thetastream.testing.cases import SCHEMA, SECOND, START

CYCLIC = "r.k = s.k AND s.n > t.n AND abs(t.n - r.n) <= 3"
CHAIN = "abs(r.n - s.n) <= 1 AND s.k = t.k"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    joiner._caches.clear()
    yield
    joiner._caches.clear()


def planned(predicate: str) -> InProcessJoin:
    options = JoinOptions(units=2)
    return InProcessJoin(predicate, [SCHEMA] * 3, within="20 seconds", time="t", options=options)


def script(*between: Any) -> list[Any]:
    """Three batches, and what happens before each of them."""
    tables = [rows_of(60 + n, 48, first=1000 * n) for n in range(3)]
    marks = [None, START + 5 * SECOND, START + 25 * SECOND]
    steps: list[Any] = []
    for part, mark in enumerate(marks):
        steps += [between[part]] if between and between[part] is not None else []
        batch = Batch(*(table.slice(16 * part, 16) for table in tables), watermark=mark)
        steps.append(batch)
    return steps


@pytest.mark.parametrize("between", [(), (None, RESTART, CRASH)], ids=["quiet", "rough"])
@pytest.mark.parametrize("cache", [0, CACHE])
@pytest.mark.parametrize("predicate", [CYCLIC, CHAIN], ids=["cyclic", "chain"])
def test_stages_equal_the_oracle(predicate: str, cache: int, between: tuple[Any, ...]) -> None:
    query = Query(planned(predicate), cache=cache)
    steps = script(*between)
    rows = query.run(steps)
    wanted = expected_rows(predicate, steps, within="20 seconds", time="t")
    assert len(wanted) > 20
    assert multiset(rows) == multiset(wanted)
    assert sum(report["entries"] for report in query.reports) > 0


@pytest.mark.parametrize("typed", [True, False], ids=["typed", "packed"])
def test_there_is_a_second_stage_in_a_chain_alone(typed: bool) -> None:
    steps = script()
    for predicate, stages in ((CYCLIC, {0}), (CHAIN, {0, 1})):
        query = Query(planned(predicate), chunk_rows=1, typed=typed)
        rows = query.run(steps)
        assert multiset(rows) == multiset(
            expected_rows(predicate, steps, within="20 seconds", time="t")
        )
        assert {report["stage"] for report in query.reports} == stages


@pytest.mark.parametrize("late", range(1000, 9000, 1000))
def test_a_far_watermark_is_the_same_in_both_stages(late: int) -> None:
    """In the year 9892, where a float no longer holds each microsecond."""
    mark = 250_000_000_000 * SECOND + late
    near = pa.array([mark - 1, mark, mark + 1], pa.timestamp("us", tz="UTC"))
    place = SCHEMA.get_field_index("t")
    tables = [
        pa.Table.from_pylist([{"id": n, "k": 1, "n": 1} for n in range(3)], SCHEMA).set_column(
            place, "t", near
        )
        for _ in range(3)
    ]
    steps = [Batch(*tables, watermark=mark)]
    query = Query(planned(CHAIN))
    rows = query.run(steps)
    wanted = expected_rows(CHAIN, steps, within="20 seconds", time="t")
    assert len(wanted) == 2**3
    assert multiset(rows) == multiset(wanted)
    assert sum(report["late"] for report in query.reports) == 3


def test_stored_packs_that_were_damaged_are_refused() -> None:
    query = Query(planned(CYCLIC), cache=0)
    first, second, _ = script()
    query.batch(first)
    damaged = {
        place: UnitState(
            stored.manifest, {name: data[:-1] + b"!" for name, data in stored.parts.items()}
        )
        for place, stored in query.state().items()
    }
    assert all(stored.parts for stored in damaged.values())
    again = Query(planned(CYCLIC), cache=0)
    again.restart(damaged)
    with pytest.raises(CorruptRunError, match="damaged") as caught:
        again.batch(second)
    assert ORIGIN in str(caught.value)


def test_state_of_another_join_is_refused() -> None:
    query = Query(planned(CYCLIC))
    first, second, _ = script()
    query.batch(first)
    other = Query(planned("r.k = s.k AND s.n > t.n AND abs(t.n - r.n) <= 2"))
    other.restart(query.state())
    with pytest.raises(FingerprintError, match="predicate"):
        other.batch(second)
