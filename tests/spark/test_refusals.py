"""What Spark, the session or the checkpoint makes impossible is refused, with the way out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as ts
from tests.conftest import drain, write_batches
from thetastream.runtime import shipped

TABLE = pa.table({"id": pa.array([1, 2]), "v": pa.array([1.0, 2.0])})
SCHEMA = "id bigint, v double"
KEPT = ts.JoinOptions(full_history=True)


@pytest.fixture
def pair(stream: Callable[..., DataFrame], tmp_path: Path) -> ts.Streams:
    left, right = (stream(write_batches(tmp_path / n, [TABLE]), SCHEMA) for n in "rs")
    return ts.streams(r=left, s=right)


@pytest.fixture
def timed(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load()


def test_wrong_state_store(pair: ts.Streams, spark: SparkSession) -> None:
    name = "spark.sql.streaming.stateStore.providerClass"
    good = spark.conf.get(name)
    spark.conf.set(
        name, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    )
    try:
        with pytest.raises(ts.SettingError, match=r"spark\.conf\.set.*RocksDBStateStoreProvider"):
            pair.join("r.id = s.id")
    finally:
        spark.conf.set(name, good)


def test_state_format_that_can_lose_rows(pair: ts.Streams, spark: SparkSession) -> None:
    name = "spark.sql.streaming.stateStore.checkpointFormatVersion"
    spark.conf.set(name, "1")
    try:
        with pytest.raises(ts.SettingError, match=r'checkpointFormatVersion", "2"'):
            pair.join("r.id = s.id")
    finally:
        spark.conf.set(name, "2")


def test_join_of_the_result_of_a_join(timed: DataFrame) -> None:
    """Spark would refuse it, too, after it has started the first batch."""
    names = ["value", "timestamp"]
    first = ts.streams(a=timed, b=timed).join("a.value = b.value", within="1 minute", delay="0 s")
    again = ts.streams(r=first.select("a_value", "a_timestamp").toDF(*names), s=timed)
    for time in (None, ts.ARRIVAL):
        with pytest.raises(ts.WindowError, match=r"'r' is the result of a join[\s\S]*one join"):
            again.join("r.value = s.value", within="1 minute", delay="0 s", time=time)
    with pytest.raises(ts.WindowError, match="'r' is the result of a join"):
        again.sql("SELECT r.value FROM r, s WHERE r.value = s.value WITHIN 1 minute", delay="0 s")


def test_watermark_that_was_lost(timed: DataFrame) -> None:
    lost = timed.withWatermark("timestamp", "1 second").select(
        "value", (F.col("timestamp") + F.expr("INTERVAL 1 HOUR")).alias("timestamp")
    )
    with pytest.raises(ts.WindowError, match=r"'s' has a watermark on a column"):
        ts.streams(r=timed, s=lost).join("r.value = s.value", within="1 minute", delay="0 s")


def test_full_history_is_asked_for(timed: DataFrame) -> None:
    pair = ts.streams(r=timed, s=timed)
    query = "SELECT r.value FROM r, s WHERE r.value = s.value"
    with pytest.warns(ts.ThetastreamWarning, match=r"row of r and s is kept[\s\S]*within=") as one:
        joined = pair.join("r.value = s.value")
    with pytest.warns(ts.ThetastreamWarning, match=r"[\s\S]*WITHIN 10 minutes") as two:
        pair.sql(query)
    half = "r.value = s.value AND s.timestamp >= r.timestamp"
    with pytest.warns(ts.ThetastreamWarning, match=r"every row of r is kept") as three:
        pair.join(half, time="timestamp", delay="0 s")
    assert {item.filename for found in (one, two, three) for item in found} == {__file__}
    options = ts.JoinOptions(full_history=True)
    pair.join("r.value = s.value", options=options)
    pair.sql(query, options=options)
    # Without a window there is no watermark either: the result can be joined again.
    named = joined.select("r_value", "r_timestamp").toDF("value", "timestamp")
    ts.streams(r=named, s=timed).join("r.value = s.value", within="1 minute", delay="0 s")


def test_window_without_time(pair: ts.Streams) -> None:
    with pytest.raises(ts.WindowError, match=r"no timestamp column[\s\S]*ts\.ARRIVAL"):
        pair.join("r.id = s.id", within="1 minute", delay="1 second")


def test_window_without_watermark(timed: DataFrame) -> None:
    with pytest.raises(ts.WindowError, match=r'no watermark[\s\S]*delay="5 seconds"'):
        ts.streams(r=timed, s=timed).join("r.value = s.value", within="1 minute")


def test_two_timestamps(timed: DataFrame) -> None:
    double = timed.withColumn("other", F.col("timestamp"))
    with pytest.raises(ts.WindowError, match=r"several timestamps[\s\S]*time="):
        ts.streams(r=double, s=timed).join(
            "r.value = s.value", within="1 minute", delay="0 seconds"
        )


def test_watermark_on_another_column(timed: DataFrame) -> None:
    double = timed.withColumn("other", F.col("timestamp")).withWatermark("other", "1 second")
    with pytest.raises(ts.WindowError, match="watermark on 'other'"):
        ts.streams(r=double, s=timed).join(
            "r.value = s.value", within="1 minute", delay="0 seconds", time="timestamp"
        )


def test_time_that_is_no_timestamp(timed: DataFrame) -> None:
    with pytest.raises(ts.WindowError, match=r"'value'.*bigint, not a timestamp"):
        ts.streams(r=timed, s=timed).join(
            "r.value = s.value", within="1 minute", delay="0 seconds", time="value"
        )


def test_time_without_zone(spark: SparkSession, tmp_path: Path) -> None:
    for name in "rs":
        (tmp_path / name).mkdir()
    frames = {
        name: spark.readStream.schema("id bigint, at timestamp_ntz").parquet(str(tmp_path / name))
        for name in "rs"
    }
    with pytest.raises(ts.WindowError, match=r"no time zone.*(\n.*)*cast\('timestamp'\)"):
        ts.streams(**frames).join("r.id = s.id", within="1 minute", delay="1 second", time="at")


def test_predicate_that_is_no_text(pair: ts.Streams) -> None:
    for call in (pair.join, pair.explain, pair.sql):
        with pytest.raises(ts.OptionError, match="is a Column, not text"):
            call(F.col("id") == F.col("id"))  # type: ignore[operator]


def test_delay_without_window(pair: ts.Streams) -> None:
    with pytest.raises(ts.WindowError, match="no window"):
        pair.join("r.id = s.id", delay="1 minute")


def test_outer_join(pair: ts.Streams) -> None:
    with pytest.raises(ts.OptionError, match="how='left'"):
        pair.join("r.id = s.id", how="left")


def test_stream_with_batch(timed: DataFrame, spark: SparkSession) -> None:
    with pytest.raises(ts.OptionError, match="s is a batch DataFrame"):
        ts.streams(r=timed, s=spark.range(3))


def test_one_stream(timed: DataFrame) -> None:
    with pytest.raises(ts.OptionError, match="a join takes two"):
        ts.streams(r=timed).join("true")
    with pytest.raises(ts.OptionError, match="no streams"):
        ts.streams()


def test_not_a_frame(timed: DataFrame) -> None:
    with pytest.raises(ts.OptionError, match="s is a list"):
        ts.streams(r=timed, s=[1])  # type: ignore[arg-type]


def test_column_that_cannot_travel(spark: SparkSession) -> None:
    odd = spark.sql("SELECT 1 AS id, make_interval(1, 2) AS gap")
    with pytest.raises(ts.UnsupportedColumnError, match="'gap'"):
        ts.streams(r=odd, s=odd).join("r.id = s.id")


def test_result_columns_that_clash(spark: SparkSession) -> None:
    left = spark.sql("SELECT 1 AS id, 2 AS s_id")
    with pytest.raises(ts.OptionError, match="'s_id'"):
        ts.streams(r=left, s=spark.sql("SELECT 1 AS id")).join("r.id = s.id")


@pytest.mark.parametrize(
    ("predicate", "error", "caret"),
    [
        ("r.id = s.nope", ts.UnknownColumnError, "         ^^^^"),
        ("r.id = t.id", ts.UnknownStreamError, "       ^"),
        ("id = s.id", ts.AmbiguousColumnError, "^^"),
        ("r.id = ", ts.ParseError, "^"),
        ("r.id + s.id", ts.NotBooleanError, "^"),
        ("r.id = array(s.id)", ts.TypeMismatchError, "^"),
        ("r.id = s.id AND rand() < 0.5", ts.RefusedExpressionError, "^^^^"),
        ("reflect('java.lang.System', 'exit') = s.id", ts.RefusedExpressionError, "^"),
    ],
)
def test_caret(
    predicate: str, error: type[ts.PredicateError], caret: str, pair: ts.Streams
) -> None:
    with pytest.raises(error) as caught:
        pair.join(predicate)
    shown = str(caught.value).splitlines()
    assert f"  {predicate}" in shown
    assert caret in shown[shown.index(f"  {predicate}") + 1]
    assert caught.value.hint


def test_checkpoint_of_another_query(stream: Callable[..., DataFrame], tmp_path: Path) -> None:
    changes: dict[str, dict[str, object]] = {
        "predicate": {"predicate": "r.id < s.id"},
        "units": {"options": ts.JoinOptions(units=4, full_history=True)},
    }

    def joined(batch: int, **change: object) -> DataFrame:
        frames = {}
        for name in "rs":
            write_batches(tmp_path / name, [TABLE], first=batch)
            frames[name] = stream(tmp_path / name, SCHEMA)
        given = {"predicate": "r.id = s.id", "options": KEPT, **change}
        return ts.streams(**frames).join(**given)  # type: ignore[arg-type]

    drain(joined(0), tmp_path)
    for part, change in changes.items():
        with pytest.raises(StreamingQueryException) as caught:
            drain(joined(1, **change), tmp_path)
        message = str(caught.value)
        assert "FingerprintError" in message
        assert f"{part}: was" in message
        assert ("JoinOptions(units=(2, 2))" in message) == (part == "units")
        assert f"join built at {__file__}:" in message
    drain(joined(2), tmp_path)


@pytest.mark.parametrize("first", ["with a window", "without a window"])
def test_a_window_that_comes_or_goes(
    first: str, stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    """Spark itself would refuse another time mode, with a dump of its plan."""
    times = pa.array([1_700_000_000_000_000] * TABLE.num_rows, pa.timestamp("us", tz="UTC"))

    def joined(batch: int, *, windowed: bool) -> DataFrame:
        frames = {}
        for name in "rs":
            write_batches(tmp_path / name, [TABLE.append_column("at", times)], first=batch)
            frames[name] = stream(tmp_path / name, f"{SCHEMA}, at timestamp")
        if windowed:
            return ts.streams(**frames).join("r.id = s.id", within="1 hour", delay="1 minute")
        return ts.streams(**frames).join("r.id = s.id", options=KEPT)

    windowed = first == "with a window"
    drain(joined(0, windowed=windowed), tmp_path)
    with pytest.raises(StreamingQueryException) as caught:
        drain(joined(1, windowed=not windowed), tmp_path)
    message = str(caught.value)
    assert "FingerprintError: the checkpoint was written by another query" in message
    assert "window" in message.split("changed", 1)[0]
    assert "put the query back as it was, or start it with a new checkpoint" in message
    assert "STATE_STORE" not in message


def test_other_columns_on_a_checkpoint(stream: Callable[..., DataFrame], tmp_path: Path) -> None:
    frames = {name: stream(write_batches(tmp_path / name, [TABLE]), SCHEMA) for name in "rs"}
    drain(ts.streams(**frames).join("r.id = s.id", options=KEPT), tmp_path)
    for name in "rs":
        write_batches(tmp_path / name, [TABLE], first=1)
    frames = {name: stream(tmp_path / name, "id bigint, v double, w int") for name in "rs"}
    with pytest.raises(StreamingQueryException, match="columns changed"):
        drain(ts.streams(**frames).join("r.id = s.id", options=KEPT), tmp_path)


def test_package_missing_on_the_workers(tmp_path: Path) -> None:
    """The shipped closure runs where the library cannot be imported, and says so."""
    closure = tmp_path / "closure"
    closure.write_bytes(cloudpickle.dumps(shipped.router("{}", 0, "0")))
    program = (
        "import sys; sys.modules['thetastream'] = None\n"
        "from pyspark import cloudpickle\n"
        f"route = cloudpickle.loads(open({str(closure)!r}, 'rb').read())\n"
        "list(route(iter([])))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ},
        check=False,
    )
    assert done.returncode != 0
    assert "missing on the Spark workers" in done.stderr
    assert "What to do: install thetastream" in done.stderr


def test_other_version_on_the_workers() -> None:
    with pytest.raises(RuntimeError, match="install the same version on both"):
        list(shipped.router("{}", 0, "0.0.1")(iter([])))
