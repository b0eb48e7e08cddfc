"""Queries on Spark: batch against Spark's own SQL, streams against DuckDB, with restarts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as ts
from tests.conftest import drain, oracle, results, write_batches

START = 1_700_000_000_000_000
MINUTE = 60_000_000
SCHEMA = (
    "id bigint, k int, n bigint, price decimal(12,2), x double, name string, day date, t timestamp"
)
CLOSE = "abs(unix_micros(r.t) - unix_micros(s.t)) <= 60000000"
DUCK_CLOSE = "abs(epoch_us(r.t) - epoch_us(s.t)) <= 60000000"


def rows(rng: np.random.Generator, batch: int, count: int = 120) -> pa.Table:
    """Tuples of one minute with NULLs, NaN, zeros of both signs and repeated values."""
    x = rng.choice([0.0, -0.0, np.nan, *range(1, 9)], count)
    times = START + batch * MINUTE + rng.integers(0, MINUTE, count)
    holes = rng.random((4, count)) < 0.1
    return pa.table(
        {
            "id": pa.array(np.arange(count) + 1000 * batch),
            "k": pa.array(rng.integers(0, 9, count).astype(np.int32), mask=holes[0]),
            "n": pa.array(rng.integers(-50, 50, count), mask=holes[1]),
            "price": pa.array(
                [Decimal(int(cents)).scaleb(-2) for cents in rng.integers(-999, 9999, count)],
                pa.decimal128(12, 2),
            ),
            "x": pa.array(x, mask=holes[2]),
            "name": pa.array(rng.choice(["", "a", "zürich"], count), mask=holes[3]),
            "day": pa.array(rng.integers(19_000, 19_004, count).astype(np.int32)).cast(pa.date32()),
            "t": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )


@pytest.fixture(scope="module")
def sides() -> dict[str, list[pa.Table]]:
    rng = np.random.default_rng(31)
    return {name: [rows(rng, batch) for batch in range(4)] for name in "rs"}


@pytest.fixture(scope="module")
def frames(
    spark: SparkSession, sides: dict[str, list[pa.Table]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, DataFrame]:
    made = {}
    for name, batches in sides.items():
        folder = write_batches(tmp_path_factory.mktemp(name), batches)
        made[name] = spark.read.schema(SCHEMA).parquet(str(folder)).cache()
        made[name].createOrReplaceTempView(name)
    return made


def counted(found: list[Any]) -> Counter[Any]:
    """Rows as texts, with doubles to nine digits: sums differ in the order of addition."""

    def text(value: Any) -> str:
        if isinstance(value, float) and not math.isnan(value):
            return f"{value + 0.0:.9g}"
        return repr(value)

    return Counter(tuple(text(value) for value in row) for row in found)


IN_PLACE = [
    (
        "SELECT r.k, count(*) AS c, count(s.x) AS cx, sum(s.n) AS sn, sum(r.n) AS rn,"
        " avg(s.n) AS an, avg(r.price) AS ap, sum(s.price) AS sp, min(s.x) AS mx, max(r.x) AS rx,"
        " min(s.name) AS mn, max(r.day) AS md, max(s.t) AS mt, sum(s.k) AS sk"
        " FROM r, s WHERE r.n > s.n {within} GROUP BY r.k"
    ),
    (
        "SELECT s.name, r.day AS d, sum(r.x) AS sx, avg(s.x) AS ax, count(DISTINCT r.k) AS dk,"
        " count(DISTINCT s.x) AS dx FROM r JOIN s ON abs(r.n - s.n) <= 3 {within}"
        " GROUP BY s.name, r.day HAVING count(*) > 1"
    ),
    "SELECT count(*) AS c, sum(r.n + 1) * 2 AS s FROM r, s WHERE r.k = s.k {within}",
    "SELECT upper(s.name) AS u, sum(s.price) - min(s.price) AS m FROM r, s"
    " WHERE r.k = s.k AND r.n <= s.n {within} GROUP BY s.name",
]
LISTED = [
    "SELECT r.id AS a, s.id AS b, r.n * s.n AS p FROM r, s WHERE r.k = s.k AND r.n > s.n {within}",
    "SELECT sum(r.n * s.n) AS p, r.k + s.k AS q, avg(r.price - s.price) AS d FROM r, s"
    " WHERE r.n > s.n {within} GROUP BY r.k + s.k",
    "SELECT r.name, max(s.name) AS m, count(DISTINCT s.name) AS d FROM r, s"
    " WHERE r.name = s.name {within} GROUP BY r.name",
]


@pytest.mark.parametrize(
    ("text", "windowed"),
    [(text, True) for text in IN_PLACE + LISTED] + [(IN_PLACE[1], False), (LISTED[0], False)],
)
def test_batch_equals_sparks_own_sql(
    spark: SparkSession, frames: dict[str, DataFrame], text: str, windowed: bool
) -> None:
    got = ts.sql(text.format(within="WITHIN 1 minute" if windowed else ""), frames, time="t")
    wanted = spark.sql(text.format(within=f"AND {CLOSE}" if windowed else ""))
    assert [field.dataType for field in got.schema] == [f.dataType for f in wanted.schema]
    assert got.columns == wanted.columns
    found = counted(got.collect())
    assert found == counted(wanted.collect())
    assert found


def test_queries_of_the_papers(spark: SparkSession, frames: dict[str, DataFrame]) -> None:
    """BiStream's query of section 3.4, and queries 1 and 2 of STA, with streams of their names."""
    r = frames["r"].selectExpr("n AS a1", "k AS a2", "t", "x AS V1", "n AS I1")
    s = frames["s"].selectExpr("n AS b1", "n AS b2", "t", "x AS V2", "n AS I2")
    r.createOrReplaceTempView("pr")
    s.createOrReplaceTempView("ps")
    span = "abs(unix_micros(a.t) - unix_micros(b.t)) <="
    bistream = """
        SELECT ONLINE R.a2, sum(S.b2)
        FROM R, S
        WHERE R.a1 > S.b1 WITHIN 10 minutes
        GROUP BY R.a2;
    """
    wanted = spark.sql(
        f"SELECT a.a2, sum(b.b2) FROM pr a, ps b WHERE a.a1 > b.b1 AND {span} 600000000 GROUP BY 1"
    )
    got = ts.sql(bistream, {"R": r, "S": s}, time="t")
    assert counted(got.collect()) == counted(wanted.collect())
    first = """
        SELECT *
        FROM R JOIN S
           ON R.V1 > S.V2 AND R.I1 < S.I2
        WINDOW w AS (RANGE INTERVAL '10' SECOND PRECEDING)
    """
    wanted = spark.sql(
        f"SELECT * FROM pr a JOIN ps b ON a.V1 > b.V2 AND a.I1 < b.I2 AND {span} 10000000"
    )
    got = ts.sql(first, {"R": r, "S": s}, time="t")
    assert counted(got.collect()) == counted(wanted.collect())
    taxi = frames["r"].selectExpr("id", "price AS FARE", "t")
    taxi.createOrReplaceTempView("taxi")
    second = """
        SELECT *
        FROM NYCTaxi T1 JOIN NYCTaxi T2
           ON T1.FARE > T2.FARE
        WINDOW w AS (RANGE INTERVAL '5' SECOND PRECEDING);
    """
    wanted = spark.sql(f"SELECT * FROM taxi a JOIN taxi b ON a.FARE > b.FARE AND {span} 5000000")
    got = ts.sql(second, {"NYCTaxi": taxi}, time="t")
    assert counted(got.collect()) == counted(wanted.collect())


def two_runs(
    sides: dict[str, list[pa.Table]],
    stream: Callable[..., DataFrame],
    folder: Path,
    run: Callable[[dict[str, DataFrame]], Any],
) -> dict[str, pa.Table]:
    """Half of the batches, then, in a query that is built anew, the rest; all the rows."""
    for first, last in ((0, 2), (2, 4)):
        made = {}
        for name, batches in sides.items():
            write_batches(folder / name, batches[first:last], first=first)
            made[name] = stream(folder / name, SCHEMA)
        run(made)
    return {name: pa.concat_tables(batches) for name, batches in sides.items()}


@pytest.mark.usefixtures("no_empty_batches")
@pytest.mark.parametrize("mode", ["complete", "update"])
def test_aggregates_are_kept_up_to_date(
    sides: dict[str, list[pa.Table]], stream: Callable[..., DataFrame], tmp_path: Path, mode: str
) -> None:
    """In complete mode the last batch has every group, in update mode the last row of each."""
    latest: dict[Any, Any] = {}

    def keep(frame: DataFrame, number: int) -> None:
        if mode == "complete":
            latest.clear()
        latest.update({row[0]: tuple(row) for row in frame.collect()})

    def run(made: dict[str, DataFrame]) -> None:
        text = (
            "SELECT r.k, count(*) AS c, sum(s.price) AS p, max(s.n) AS m FROM r, s"
            " WHERE r.n > s.n WITHIN 1 minute GROUP BY r.k"
        )
        query = (
            ts.sql(text, made, delay="70 seconds", time="t")
            .writeStream.foreachBatch(keep)
            .outputMode(mode)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(180)

    tables = two_runs(sides, stream, tmp_path, run)
    wanted = oracle(
        "SELECT r.k, count(*), sum(s.price), max(s.n) FROM r, s"
        f" WHERE r.n > s.n AND {DUCK_CLOSE} GROUP BY r.k",
        **tables,
    )
    assert counted(list(latest.values())) == counted(wanted)


@pytest.mark.parametrize("aggregation", ["auto", "enumerate"])
def test_time_windows_are_appended_when_they_are_over(
    sides: dict[str, list[pa.Table]],
    stream: Callable[..., DataFrame],
    tmp_path: Path,
    aggregation: Any,
) -> None:
    text = (
        "SELECT window.start AS since, s.name, count(*) AS c, sum(r.n) AS p FROM r JOIN s"
        " ON r.k = s.k AND r.n > s.n WITHIN 1 minute"
        " GROUP BY window(time, '30 seconds'), s.name"
    )

    def run(made: dict[str, DataFrame]) -> None:
        options = ts.JoinOptions(aggregation=aggregation)
        drain(ts.sql(text, made, delay="70 seconds", time="t", options=options), tmp_path)

    tables = two_runs(sides, stream, tmp_path, run)
    newest = "greatest(epoch_us(r.t), epoch_us(s.t)) // 30000000 * 30000000"
    wanted = oracle(
        f"SELECT {newest} AS since, s.name, count(*), sum(r.n) FROM r, s"
        f" WHERE r.k = s.k AND r.n > s.n AND {DUCK_CLOSE} GROUP BY 1, 2",
        **tables,
    )
    found = results(tmp_path, "epoch_us(since) AS since, name, c, p")
    # What the watermark has not passed is still to come; all that came is final and right.
    assert counted(found) <= counted(wanted)
    closed = {row[0] for row in found}
    assert len(closed) >= 4
    assert counted(found) == counted([row for row in wanted if row[0] in closed])


def test_duplicates_are_dropped_with_bounded_state(
    sides: dict[str, list[pa.Table]], stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    text = "SELECT DISTINCT r.k, s.name FROM r, s WHERE r.n > s.n WITHIN 30 seconds"
    queries = []

    def run(made: dict[str, DataFrame]) -> None:
        queries.append(drain(ts.sql(text, made, delay="70 seconds", time="t"), tmp_path))

    tables = two_runs(sides, stream, tmp_path, run)
    wanted = oracle(
        "SELECT k, name FROM (SELECT DISTINCT r.k, s.name,"
        " greatest(epoch_us(r.t), epoch_us(s.t)) // 30000000 AS slice FROM r, s"
        " WHERE r.n > s.n AND abs(epoch_us(r.t) - epoch_us(s.t)) <= 30000000)",
        **tables,
    )
    assert counted(results(tmp_path, "k, name")) == counted(wanted)
    removed = [
        operator.numRowsRemoved
        for query in queries
        for progress in query.recentProgress
        for operator in progress.stateOperators
        if operator.operatorName == "dedupe"
    ]
    assert sum(removed) > len(wanted) // 4
