"""Corners of Spark's SQL in which a key is easily not what Spark compares.

Each case is a join of two small tables; what Spark's own batch join gives is what ours must give.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as ts

DOWN_BY_ONE = "SELECT * FROM VALUES (2147483647), (-2147483648), (5), (0) AS t(x)"
WRAPPED = "SELECT * FROM VALUES (-1), (1), (2147483647), (5) AS t(y)"
BIG = "SELECT CAST(x AS BIGINT) AS x FROM VALUES (5), (6), (7) AS t(x)"
WIDE = "SELECT CAST(x AS DECIMAL(38,10)) AS x FROM VALUES (2.5), (2.4), (3.5), (-2.5), (3) AS t(x)"
WHOLE = "SELECT CAST(y AS DECIMAL(38,0)) AS y FROM VALUES (3), (2), (-3), (4) AS t(y)"
ANSI_OFF = {"spark.sql.ansi.enabled": "false"}
LOWER = "SELECT x COLLATE UTF8_LCASE AS x FROM VALUES ('A'), ('b'), ('ß') AS t(x)"
UPPER = "SELECT y COLLATE UTF8_LCASE AS y FROM VALUES ('a'), ('B'), ('SS') AS t(y)"


@dataclass(frozen=True, kw_only=True)
class Corner:
    """A join, and how many results it has at least: none would show nothing."""

    name: str
    left: str
    right: str
    predicates: tuple[str, ...]
    least: int = 1
    config: dict[str, str] = field(default_factory=dict)


CORNERS = (
    Corner(
        name="decimals whose common type rounds",
        left=WIDE,
        right=WHOLE,
        predicates=(
            "b.y <= a.x",
            "a.x <= b.y AND a.x >= b.y",
            "a.x = b.y",
            "a.x < b.y",
            "a.x > b.y",
            "a.x - b.y <= 0.5 AND a.x - b.y >= -0.5",
            "abs(a.x - b.y) <= 0.0000001",
            "a.x BETWEEN b.y - 1 AND b.y + 1",
            "a.x + 0.5D > b.y AND a.x <= b.y",
        ),
    ),
    Corner(
        name="decimals that do not fit the common type",
        left="SELECT CAST(x AS DECIMAL(38,0)) AS x FROM VALUES"
        " ('99999999999999999999999999999999999999'), ('1'), (NULL) AS t(x)",
        right="SELECT CAST(y AS DECIMAL(38,20)) AS y FROM VALUES (1), (0.5), (NULL) AS t(y)",
        predicates=("a.x = b.y", "a.x >= b.y", "a.x BETWEEN b.y - 1 AND b.y + 1"),
        config=ANSI_OFF,
    ),
    Corner(
        name="differences that wrap around",
        left=DOWN_BY_ONE,
        right=WRAPPED,
        predicates=(
            "a.x - b.y < 0.5D",
            "abs(a.x - b.y) <= 5D",
            "a.x - b.y >= -5D AND a.x - b.y <= 5D",
            "a.x - b.y < 0.5",
            "a.x - b.y BETWEEN -5 AND 5",
            "b.y - a.x > 2D",
        ),
        config=ANSI_OFF,
    ),
    Corner(
        name="offsets with more decimals than the sum has",
        left=BIG,
        right=BIG.replace("AS x FROM", "AS y FROM"),
        predicates=(
            "a.x < b.y + 0.000000000000000001 AND a.x > b.y - 0.5",
            "a.x < b.y + 0.000000000000000001 AND a.x >= b.y - 1.000000000000000001",
            "a.x <= b.y + 0.00000000000000001 AND a.x > b.y - 0.00000000000000001",
        ),
        least=0,
    ),
    Corner(
        name="collations",
        left=LOWER,
        right=UPPER,
        predicates=("a.x = b.y", "a.x <= b.y", "a.x = b.y AND a.x < 'c'", "a.x <=> b.y"),
    ),
    Corner(
        name="year-month intervals",
        left="SELECT * FROM VALUES (1, 2), (0, 14), (2, 0), (-1, 3) AS t(y, m)",
        right="SELECT * FROM VALUES (1, 2), (2, 0), (0, 1) AS t(y, m)",
        predicates=(
            "make_ym_interval(a.y, a.m) = make_ym_interval(b.y, b.m)",
            "make_ym_interval(a.y, a.m) < make_ym_interval(b.y, b.m)",
            "make_ym_interval(a.y, a.m) >= make_ym_interval(b.y, 0)",
        ),
    ),
    Corner(
        name="NULL as a condition",
        left="SELECT id AS x FROM range(3)",
        right="SELECT id AS y FROM range(3)",
        predicates=("a.x = b.y AND NULL", "a.x <= b.y AND NOT NULL", "a.x < b.y OR NULL"),
        least=0,
    ),
    Corner(
        name="variables of lambdas with the names of columns",
        left="SELECT id FROM range(10)",
        right="SELECT * FROM VALUES (200), (3), (1) AS t(x)",
        predicates=(
            "exists(array(1, 200), x -> x = b.x) AND a.id < 9",
            "exists(array(1, 200), x -> x = b.x AND x > a.id)",
            "exists(array(1, 200), v -> v = x) AND a.id < 9",
            "size(filter(array(1, 2, 3), id -> id > a.id)) = b.x",
        ),
    ),
)


@pytest.mark.parametrize(
    ("corner", "predicate"),
    [(corner, predicate) for corner in CORNERS for predicate in corner.predicates],
    ids=lambda value: value.name if isinstance(value, Corner) else value,
)
def test_as_spark_joins(spark: SparkSession, corner: Corner, predicate: str) -> None:
    with settings(spark, corner.config):
        left, right = spark.sql(corner.left), spark.sql(corner.right)
        wanted = rows(left.alias("a").join(right.alias("b"), F.expr(f"({predicate})")))
        assert rows(ts.streams(a=left, b=right).join(predicate)) == wanted
    assert sum(wanted.values()) >= corner.least


@pytest.mark.parametrize("alias", ["view", "alias"])
def test_a_struct_that_is_called_like_its_table(spark: SparkSession, alias: str) -> None:
    """`loc.id` is the field of the struct, not the column `id` of the table `loc`."""
    frame = spark.createDataFrame([((1,), 7), ((2,), 1), ((3,), 3)], "loc struct<id int>, id int")
    if alias == "view":
        frame.createOrReplaceTempView("loc")
        frame = spark.table("loc")
    else:
        frame = frame.alias("loc")
    other = spark.createDataFrame([(1,), (2,)], "x int")
    for predicate in ("a.loc.id = b.x", "a.loc.id <= b.x", "a.loc.id + a.id > b.x * 4"):
        wanted = frame.alias("a").join(other.alias("b"), F.expr(predicate))
        found = ts.streams(a=frame, b=other).join(predicate)
        assert rows(found) == rows(wanted)
    named = ts.streams(loc=frame, b=other)
    assert {row.x for row in named.join("loc.loc.id = b.x").collect()} == {1, 2}
    assert {row.x for row in named.join("loc.id = b.x").collect()} == {1}


def test_a_struct_in_four_streams(spark: SparkSession) -> None:
    frame = spark.createDataFrame([((1,), 2), ((2,), 1)], "n struct<id int>, id int")
    frame.createOrReplaceTempView("n")
    frame = spark.table("n")
    names = ("n", "b", "c", "d")
    predicate = "n.n.id = b.id AND b.n.id = c.id AND c.n.id = d.n.id"
    joined = ts.streams(**dict.fromkeys(names, frame)).join(
        predicate, options=ts.JoinOptions(full_history=True)
    )
    frames = [frame.alias(name) for name in names]
    product = frames[0].crossJoin(frames[1]).crossJoin(frames[2]).crossJoin(frames[3])
    wanted = rows(product.where(predicate))
    assert rows(joined) == wanted
    assert sum(wanted.values()) > 0


@pytest.mark.parametrize(
    ("predicate", "marked"),
    [
        ("a.iv <=> b.si AND a.id = b.id", "a.iv <=> b.si"),
        ("a.t - b.t >= INTERVAL 1 MONTH", "a.t - b.t"),
        ("a.id = b.id AND (a.id OR b.id)", "a.id OR b.id"),
    ],
)
def test_what_spark_refuses_is_refused_by_name(
    spark: SparkSession, predicate: str, marked: str
) -> None:
    frame = spark.sql(
        "SELECT 1 AS id, INTERVAL '1' DAY AS iv, CAST(1 AS SMALLINT) AS si,"
        " TIMESTAMP '2026-01-01' AS t"
    )
    with pytest.raises(ts.PredicateError) as caught:
        ts.streams(a=frame, b=frame).join(predicate)
    error = caught.value
    assert marked in error.text[error.start : error.end]
    assert "s0_" not in str(error)


@pytest.mark.parametrize(
    "predicate",
    ["exists(array(a.x), b -> b = 1) AND a.x = b.x", "exists(array(1), X -> x = b.x)",
     "exists(array(1), s0_0 -> s0_0 = b.x) AND a.x = b.x"],
)  # fmt: skip
def test_variables_that_would_capture_a_column_are_refused(
    spark: SparkSession, predicate: str
) -> None:
    frame = spark.sql("SELECT 1 AS x")
    with pytest.raises(ts.RefusedExpressionError, match="variable"):
        ts.streams(a=frame, b=frame).join(predicate)


def test_stream_names_that_differ_in_case_only(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS x")
    with pytest.raises(ts.OptionError, match="case"):
        ts.streams(a=frame, A=frame).join("a.x = A.x")


def test_sums_of_more_than_38_digits_without_ansi(spark: SparkSession) -> None:
    """Spark's sum is NULL then; it is never the sum of what did not overflow."""
    with settings(spark, ANSI_OFF):
        frame = spark.sql(
            "SELECT id % 2 AS k, CAST(if(id % 2 = 0, '99999999999999999999999999999999999999', '1')"
            " AS DECIMAL(38,0)) AS v FROM range(8)"
        )
        frame.createOrReplaceTempView("wide")
        found = ts.streams(a=frame, b=frame).sql(
            "SELECT a.k AS k, sum(a.v) AS s, avg(a.v) AS m FROM a, b WHERE a.k = b.k GROUP BY a.k"
        )
        wanted = spark.sql(
            "SELECT a.k AS k, sum(a.v) AS s, avg(a.v) AS m FROM wide a, wide b WHERE a.k = b.k"
            " GROUP BY a.k"
        )
        assert rows(found) == rows(wanted)


def rows(frame: DataFrame) -> Counter[str]:
    return Counter(str(list(row)) for row in frame.collect())


@contextmanager
def settings(spark: SparkSession, config: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in config}
    for name, value in config.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))
