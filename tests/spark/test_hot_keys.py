"""Keys that become hot and cool while a join runs on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import thetastream as ts
from tests.conftest import oracle, results
from tests.spark.test_live import EQUALITY, MINUTE, ROWS, START, Live, equality

DRIFT = 4
"""Batches after which another key is hot."""
SKETCH = ts.SketchOptions(half_life=50)


def skewed(stream: int, batch: int) -> pa.Table:
    """Most rows of r have one key, another one every few batches; few rows of s have it."""
    random = np.random.default_rng([stream, batch])
    count = ROWS if stream == 0 else ROWS // 5
    keys = random.integers(0, 40, count)
    if stream == 0:
        keys[random.random(count) < 0.6] = hot_key(batch)
    times = START + batch * MINUTE + random.integers(0, MINUTE, count)
    return pa.table(
        {
            "id": pa.array(np.arange(count) + batch * ROWS),
            "k": pa.array(keys.astype(np.int32)),
            "x": pa.array(random.integers(0, 1_000, count)),
            "t": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )


def hot_key(batch: int) -> int:
    return 7 + batch // DRIFT


@pytest.fixture
def live(spark: SparkSession, tmp_path: Path) -> Iterator[Live]:
    given = {"shuffle.partitions": "3", "streaming.noDataMicroBatches.enabled": "false"}
    before = {name: spark.conf.get(f"spark.sql.{name}") for name in given}
    for name, value in given.items():
        spark.conf.set(f"spark.sql.{name}", value)
    yield Live(spark, tmp_path, made=skewed)
    for name, old in before.items():
        spark.conf.set(f"spark.sql.{name}", old or "")


def hot_now(live: Live) -> dict[str, str]:
    return {one.shown: one.step for one in live.control.status().hot}


def test_a_drifting_hot_key_is_split_across_a_restart(live: Live) -> None:
    live.start(equality, units=3, hot_keys="auto", sketch=SKETCH)
    live.feed(DRIFT)
    assert hot_now(live)["7"] == "hot"
    live.stop()
    live.start(equality, units=3, hot_keys="auto", sketch=SKETCH)
    live.feed(DRIFT)
    assert hot_now(live)["8"] == "hot"
    assert live.query is not None
    last = [batch for batch in ts.metrics(live.query) if batch.units][-1]
    assert {one.shown: one.stream for one in last.hot}["8"] == "r"
    assert last.balance is not None
    assert last.balance[0] < last.balance[1]
    shown = str(ts.metrics(live.query))
    assert "Hot keys in batch" in shown
    assert "times its share" in shown
    live.feed(2)
    live.stop()
    status = live.control.status()
    assert "Hot keys" in str(status)
    assert "8" in {one.shown for one in status.hot}
    assert len(live.control.history()) == 1
    assert results(live.root, "r_id, s_id") == oracle(EQUALITY, **live.tables())
