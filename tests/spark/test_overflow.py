"""Sides of comparisons that overflow in ANSI mode: what we add to a query raises no error."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import thetastream as ts

LARGEST = 2**63 - 1
NINES = "9" * 38


@pytest.mark.parametrize(
    "predicate",
    [
        "a.x <> 1 AND a.x > b.y + 1",
        "a.x < 0 AND a.x < -b.y",
        "a.x < 0 AND a.x > abs(b.y)",
        "a.x <> 1 AND a.x >= CAST(b.y AS INT)",
        "a.x > 1 AND a.d BETWEEN b.e - 2 AND b.e + 0.1",
    ],
)
def test_a_row_that_overflows_raises_no_error_where_spark_raises_none(
    predicate: str, spark: SparkSession
) -> None:
    # Not literals in SQL: Spark would put them in the place of columns.
    left = spark.createDataFrame([(1, Decimal(1))], "x bigint, d decimal(38,0)")
    right = spark.createDataFrame(
        [
            (2, Decimal(2)),
            (LARGEST, Decimal(NINES)),
            (-LARGEST - 1, Decimal(f"-{NINES}")),
            (None, None),
        ],
        "y bigint, e decimal(38,0)",
    )
    expected = left.alias("a").join(right.alias("b"), F.expr(predicate)).collect()
    assert ts.streams(a=left, b=right).join(predicate).collect() == expected == []
