"""The whole path on Spark, from files to a sink, against DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as ts
from tests.conftest import drain, oracle, results, write_batches

pytestmark = pytest.mark.usefixtures("no_empty_batches")

START = 1_700_000_000_000_000
MINUTE = 60_000_000
SCHEMA = "id bigint, k int, price double, x bigint, name string, t timestamp"
WINDOW = "abs(epoch_us(r.t) - epoch_us(s.t)) <= 60000000"


def rows(rng: np.random.Generator, batch: int, count: int = 250) -> pa.Table:
    """Tuples of one minute, in no order, with nulls, NaN, both zeros and repeated values."""
    price = rng.choice([0.0, -0.0, np.nan, *range(1, 40)], count)
    times = START + batch * MINUTE + rng.integers(0, MINUTE, count)
    return pa.table(
        {
            "id": pa.array(np.arange(count) + 1000 * batch),
            "k": pa.array(
                rng.integers(0, 30, count).astype(np.int32), mask=rng.random(count) < 0.1
            ),
            "price": pa.array(price, mask=rng.random(count) < 0.1),
            "x": pa.array(rng.integers(-60, 60, count)),
            "name": pa.array(rng.choice(["", "a", "ab", "zürich-nord", "zürich-süd"], count)),
            "t": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[pa.Table]]:
    rng = np.random.default_rng(20)
    return {name: [rows(rng, batch) for batch in range(4)] for name in "rs"}


CASES: list[tuple[str, dict[str, Any]]] = [
    ("r.k = s.k", {}),
    (
        "r.k = s.k AND r.x < s.x",
        {
            "topology": "contrand",
            "units": (3, 2),
            "subgroups": (2, 1),
            "index": "extendible",
            "theta": "4 KB",
        },
    ),
    ("r.k = s.k AND abs(r.x - s.x) <= 9", {"topology": "matrix", "units": 4}),
    ("r.name = s.name AND r.price = s.price", {"units": (1, 3)}),
    ("abs(r.x - s.x) < 4 AND r.name <> s.name", {}),
    ("r.price > s.price AND r.x BETWEEN s.x - 2 AND s.x + 7 AND s.x > 0", {}),
    ("r.name < s.name AND r.price >= s.price", {"chunk_rows": 500}),
    ("r.k = s.k OR r.x = s.x", {"cache_bytes": 0}),
    ("abs(r.x - s.x) < 4", {"topology": "broadcast", "units": (1, 3), "index": "nested-loops"}),
    ("r.price > s.price AND r.k = s.k", {"topology": "multi-chained", "units": 2, "index": "pim"}),
    (
        "abs(r.price - s.price) < 2",
        {"topology": "stream-aware", "units": 3, "hot_values": (float("nan"), -0.0, 7.0)},
    ),
]
"""Every topology and every index, in few queries; tests of the engine go through more of them."""


@pytest.mark.parametrize(("predicate", "options"), CASES)
def test_stream_equals_oracle(
    predicate: str,
    options: dict[str, Any],
    sides: dict[str, list[pa.Table]],
    stream: Callable[..., DataFrame],
    tmp_path: Path,
) -> None:
    """The second batch meets what the first has stored."""
    frames = {
        name: stream(write_batches(tmp_path / name, batches[:2]), SCHEMA)
        for name, batches in sides.items()
    }
    joined = ts.streams(**frames).join(
        predicate, within="1 minute", delay="2 minutes", options=ts.JoinOptions(**options)
    )
    drain(joined, tmp_path)
    wanted = oracle(
        f"SELECT r.id, s.id FROM r, s WHERE ({predicate}) AND {WINDOW}",
        **{name: pa.concat_tables(batches[:2]) for name, batches in sides.items()},
    )
    assert len(wanted) > 100
    assert results(tmp_path, "r_id, s_id") == wanted


def test_all_columns_arrive_unchanged(
    sides: dict[str, list[pa.Table]], stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    frames = {
        name: stream(write_batches(tmp_path / name, batches[:2]), SCHEMA)
        for name, batches in sides.items()
    }
    joined = ts.streams(**frames).join("r.k = s.k", within="30 seconds", delay="2 minutes")
    assert joined.columns == [
        f"{s}_{c}" for s in "rs" for c in ("id", "k", "price", "x", "name", "t")
    ]
    drain(joined, tmp_path)
    # Spark's files carry no time zone: times are compared as microseconds.
    columns = ", ".join(f"{s}_id, {s}_k, {s}_price, {s}_x, {s}_name, epoch_us({s}_t)" for s in "rs")
    wanted = oracle(
        "SELECT r.* REPLACE (epoch_us(r.t) AS t), s.* REPLACE (epoch_us(s.t) AS t) FROM r, s"
        " WHERE r.k = s.k"
        " AND abs(epoch_us(r.t) - epoch_us(s.t)) <= 30000000",
        **{name: pa.concat_tables(batches[:2]) for name, batches in sides.items()},
    )
    # As text, in which NaN equals itself and -0.0 is not 0.0.
    assert [repr(row) for row in results(tmp_path, columns)] == [repr(row) for row in wanted]


def test_asymmetric_window_and_range_in_the_predicate(
    sides: dict[str, list[pa.Table]], stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    """The Spark way of writing a window means the same as `within`."""
    tables = {name: pa.concat_tables(batches[:3]) for name, batches in sides.items()}
    wanted = oracle(
        "SELECT r.id, s.id FROM r, s WHERE r.k = s.k"
        " AND epoch_us(s.t) - epoch_us(r.t) BETWEEN -20000000 AND 45000000",
        **tables,
    )
    frames = {
        name: stream(write_batches(tmp_path / name, batches[:3]), SCHEMA)
        for name, batches in sides.items()
    }
    by_option = ts.streams(**frames).join(
        "r.k = s.k", within=("20 seconds", "45 seconds"), delay="1 minute"
    )
    drain(by_option, tmp_path / "a")
    marked = {name: frame.withWatermark("t", "1 minute") for name, frame in frames.items()}
    by_predicate = ts.streams(**marked).join(
        "r.k = s.k AND s.t >= r.t - INTERVAL 20 SECONDS AND s.t <= r.t + INTERVAL 45 SECONDS"
    )
    drain(by_predicate, tmp_path / "b")
    assert results(tmp_path / "a", "r_id, s_id") == wanted
    assert results(tmp_path / "b", "r_id, s_id") == wanted


def test_full_history_goes_on_after_a_restart(
    sides: dict[str, list[pa.Table]], stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    """Each run builds everything anew, so only the checkpoint knows what was stored."""
    for upto in range(1, 4):
        frames = {}
        for name, batches in sides.items():
            write_batches(tmp_path / name, batches[upto - 1 : upto], first=upto - 1)
            frames[name] = stream(tmp_path / name, SCHEMA)
        joined = ts.streams(**frames).join(
            "r.k = s.k AND r.x > s.x", options=ts.JoinOptions(full_history=True)
        )
        drain(joined, tmp_path)
        tables = {name: pa.concat_tables(batches[:upto]) for name, batches in sides.items()}
        wanted = oracle("SELECT r.id, s.id FROM r, s WHERE r.k = s.k AND r.x > s.x", **tables)
        assert results(tmp_path, "r_id, s_id") == wanted


def test_late_tuples_are_dropped_and_counted(
    stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    """The third batch brings one tuple older than the watermark of the first two, and one newer."""

    def at(*seconds: int) -> pa.Table:
        times = pa.array([START + s * 1_000_000 for s in seconds], pa.timestamp("us", tz="UTC"))
        return pa.table({"id": pa.array(seconds), "t": times})

    left = write_batches(tmp_path / "r", [at(0), at(100), at(79, 91), at(100)])
    right = write_batches(tmp_path / "s", [at(0), at(100), at(100), at(100)])
    frames = {
        "r": stream(left, "id bigint, t timestamp"),
        "s": stream(right, "id bigint, t timestamp"),
    }
    joined = ts.streams(**frames).join("r.id <= s.id", within="30 seconds", delay="10 seconds")
    query = drain(joined, tmp_path)
    found = set(results(tmp_path, "r_id, s_id"))
    assert (91, 100) in found
    assert (79, 100) not in found
    assert sum(batch.late for batch in ts.metrics(query)) == 1


def test_state_ends_with_the_window(stream: Callable[..., DataFrame], tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    batches = [rows(rng, 10 * number, 40) for number in range(4)]
    frames = {name: stream(write_batches(tmp_path / name, batches), SCHEMA) for name in "rs"}
    joined = ts.streams(**frames).join("r.k = s.k", within="1 minute", delay="1 second")
    query = drain(joined, tmp_path)
    stored = [batch.stored_rows for batch in ts.metrics(query) if batch.rows_in]
    assert max(stored) <= 3 * 80
    assert len(results(tmp_path)) > 0


def test_arrival_time(stream: Callable[..., DataFrame], tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([1, 2, 3])})
    frames = {
        name: stream(write_batches(tmp_path / name, [table, table]), "id bigint") for name in "rs"
    }
    joined = ts.streams(**frames).join("r.id = s.id", within="1 hour", time=ts.ARRIVAL)
    assert joined.columns == ["r_id", "s_id"]
    drain(joined, tmp_path)
    assert results(tmp_path) == sorted([(i, i) for i in (1, 2, 3)] * 4)


def test_batch_frames_take_the_same_way(
    sides: dict[str, list[pa.Table]], spark: SparkSession, tmp_path: Path
) -> None:
    frames = {}
    for name, batches in sides.items():
        write_batches(tmp_path / name, batches)
        frames[name] = spark.read.schema(SCHEMA).parquet(str(tmp_path / name))
    joined = ts.streams(**frames).join("abs(r.price - s.price) <= 1", within="1 minute")
    condition = (
        f"abs(r.price - s.price) <= 1 AND abs(unix_micros(r.t) - unix_micros(s.t)) <= {MINUTE}"
    )
    wanted = frames["r"].alias("r").join(frames["s"].alias("s"), F.expr(condition))
    got = joined.select("r_id", "s_id")
    expected = wanted.select("r.id", "s.id")
    assert got.count() == expected.count() > 100
    assert got.exceptAll(expected).count() == 0


def test_types_of_spark_travel(spark: SparkSession) -> None:
    frame = spark.sql(
        """SELECT 1 AS id, true AS b, 1Y AS i8, 2S AS i16, 3 AS i32, 4L AS i64, 1.5F AS f32,
           2.5D AS f64, CAST('3.25' AS DECIMAL(10,2)) AS dec, CAST('1e30' AS DECIMAL(38,2)) AS wide,
           'text' AS str, X'CAFE' AS bin, DATE '2024-02-29' AS d,
           TIMESTAMP '2024-02-29 12:00:00' AS ts,
           TIMESTAMP_NTZ '2024-02-29 12:00:00' AS ntz, INTERVAL '1 02:03:04' DAY TO SECOND AS dt,
           array(1, 2) AS arr, named_struct('x', 1, 'y', 'z') AS st, map('k', 1) AS m,
           CAST(NULL AS STRING) AS nothing"""
    )
    wanted = list(frame.collect()[0])
    one = ts.JoinOptions(units=1)
    both = ts.streams(l=frame, r=frame).join("l.id = r.id", options=one)
    assert [list(row) for row in both.collect()] == [wanted * 2]

    def joins(columns: list[str], predicate: str) -> list[str]:
        """The columns whose join has a result; all joins are one job."""
        found = []
        for column in columns:
            narrow = frame.select("id", column)
            joined = ts.streams(l=narrow, r=narrow).join(predicate.format(c=column), options=one)
            found.append(joined.select(F.lit(column).alias("column")))
        return sorted(row["column"] for row in reduce(DataFrame.unionAll, found).collect())

    equal = [name for name in frame.columns if name not in ("id", "m", "nothing")]
    assert joins(equal, "l.{c} = r.{c}") == sorted(equal)
    ordered = ["i8", "f32", "wide", "str", "d", "ts", "ntz", "dt"]
    assert joins(ordered, "l.{c} <= r.{c} AND l.id = r.id") == sorted(ordered)
    assert joins(["b", "f64", "dec", "bin"], "l.{c} < r.{c}") == []


@pytest.mark.parametrize(
    ("nested", "zone"),
    [(False, "Europe/Berlin"), (False, "America/St_Johns"), (True, "Europe/Berlin")],
)
def test_awkward_values_travel(spark: SparkSession, nested: bool, zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.sql(
            """SELECT * FROM VALUES
               (1, TIMESTAMP '2024-10-27 00:30:00Z', TIMESTAMP_NTZ '2024-10-27 02:30:00',
                DATE '0001-01-01', CAST('NaN' AS DOUBLE), 9223372036854775807L, 'ä日',
                CAST('99999999999999999999999999999999.999999' AS DECIMAL(38,6)), X'00FF', true,
                INTERVAL '-1 02:03:04.000005' DAY TO SECOND),
               (2, TIMESTAMP '2024-10-27 01:30:00Z', TIMESTAMP_NTZ '0001-01-01 00:00:00',
                DATE '9999-12-31', -0.0D, -9223372036854775808L, '',
                CAST(-0.000001 AS DECIMAL(38,6)), X'', false, INTERVAL '0' SECOND),
               (3, TIMESTAMP '0001-01-03 00:00:00.000001Z', NULL, NULL, CAST('-Infinity' AS DOUBLE),
                0L, NULL, NULL, NULL, NULL, NULL),
               (4, NULL, TIMESTAMP_NTZ '9999-12-31 23:59:59.999999', NULL, NULL, NULL, NULL, NULL,
                NULL, NULL, NULL)
               AS t(id, ts, ntz, d, x, n, s, p, b, f, i)"""
        )
        if nested:
            frame = frame.withColumn("a", F.array("id", F.lit(None)))
        joined = ts.streams(l=frame, r=frame).join("l.id = r.id")
        for side in ("l", "r"):
            got = joined.select(*(F.col(f"{side}_{name}").alias(name) for name in frame.columns))
            text = [F.col(name).cast("string") for name in frame.columns]
            assert sorted(got.select(*text).collect(), key=str) == sorted(
                frame.select(*text).collect(), key=str
            )
        assert [field.dataType for field in got.schema] == [f.dataType for f in frame.schema]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
