"""Keys that become hot and cool while a join runs on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as ts
from tests.conftest import oracle, results
from tests.spark.test_live import EQUALITY, MINUTE, ROWS, SCHEMA, START, WITHIN, Live, equality
from thetastream.steering.directory import Directory

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


BAND = f"SELECT r.id, s.id FROM r, s WHERE abs(r.k - s.k) <= 1 AND {WITHIN}"


def band(streams: ts.Streams, options: ts.JoinOptions) -> DataFrame:
    predicate = "abs(r.k - s.k) <= 1"
    return streams.join(predicate, within="1 minute", delay="1 minute", options=options)


def test_hot_values_of_a_band_drift_across_a_restart(live: Live) -> None:
    given = {"topology": "stream-aware", "hot_keys": "auto", "sketch": SKETCH}
    live.start(band, units=3, **given)
    live.feed(DRIFT)
    assert hot_now(live)["7"] == "hot"
    live.stop()
    live.start(band, units=3, **given)
    live.feed(2)
    assert hot_now(live)["8"] == "hot"
    live.feed()
    assert live.query is not None
    last = [batch for batch in ts.metrics(live.query) if batch.units][-1]
    assert {one.shown: (one.stream, one.units) for one in last.hot}["8"] == ("r", (1, 2))
    assert "Hot keys" in str(live.control.status())
    live.stop()
    assert results(live.root, "r_id, s_id") == oracle(BAND, **live.tables())


def test_hot_values_need_units_from_the_start(live: Live) -> None:
    frames = {
        name: live.spark.readStream.schema(SCHEMA).parquet(str(live.root / name)) for name in "rs"
    }
    options = ts.JoinOptions(control=live.path, max_units=3, units=3, topology="stream-aware")
    band(ts.streams(**frames), options)
    directory = Directory(live.path)
    directory.claim_for("a query", directory.require().control)
    with pytest.raises(ts.OptionError, match="have no units for hot values"):
        band(ts.streams(**frames), replace(options, hot_keys="auto"))
