"""Conditions that a site evaluates: it keeps exactly the rows that the condition keeps."""

from __future__ import annotations

import math
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from thetastream.planner.conjuncts import split
from thetastream.planner.names import Names
from thetastream.planner.parser import parse_predicate
from thetastream.planner.sitefilters import Filter, show_filter, site_filter
from thetastream.testing.duck import column_specs
from thetastream.transport.filters import Filter as SiteFilter

ROWS = 60
TABLE = pa.table(
    {
        "i": pa.array([None if n % 7 == 0 else n % 11 - 5 for n in range(ROWS)], pa.int32()),
        "tiny": pa.array([n % 5 for n in range(ROWS)], pa.int8()),
        "x": pa.array(
            [math.nan if n % 9 == 0 else None if n % 8 == 0 else n / 4 for n in range(ROWS)]
        ),
        "f": pa.array(np.arange(ROWS) / 8, pa.float32()),
        "s": pa.array([None if n % 6 == 0 else f"name {n % 10}" for n in range(ROWS)]),
        "b": pa.array([None if n % 5 == 0 else n % 2 == 0 for n in range(ROWS)]),
        "d": pa.array([Decimal(n) for n in range(ROWS)], pa.decimal128(10, 2)),
    }
)


def filter_of(condition: str) -> Filter | None:
    specs = column_specs(TABLE.schema)
    names = Names({"t": specs, "u": specs}, case_sensitive=False)
    return site_filter(split(parse_predicate(condition, names)), specs)


@pytest.mark.parametrize(
    "condition",
    [
        "t.i > 2",
        "3 >= t.i",
        "t.i <> -4",
        "NOT t.i = 2",
        "t.i BETWEEN -1 AND 3",
        "t.i = 1 OR t.s = 'name 3'",
        "NOT (t.i = 1 OR t.x > 4)",
        "t.x >= 2.5",
        "t.x <> 3",
        "NOT t.x < 5",
        "t.f = 0.125",
        "t.s >= 'name 4'",
        "t.s <> ''",
        "t.b = TRUE",
        "t.tiny < 3 AND t.i > 0 AND t.s < 'name 8'",
    ],
)
def test_the_site_keeps_what_the_condition_keeps(condition: str) -> None:
    found = filter_of(condition)
    assert found is not None
    batch = TABLE.combine_chunks().to_batches()[0]
    kept = SiteFilter(found, TABLE.schema)(batch)
    with duckdb.connect() as database:
        database.register("t", TABLE)
        listed = f"SELECT coalesce({condition}, FALSE) FROM t"
        assert kept.to_pylist() == [row[0] for row in database.execute(listed).fetchall()]
    assert show_filter(found)


@pytest.mark.parametrize(
    "condition",
    [
        "t.i > 3000000000",
        "t.tiny = 300",
        "t.i > 2.5",
        "t.x > 0.1",
        "t.f > 0.1",
        "t.d > 3",
        "t.s = 'it''s'",
        "t.s LIKE 'name%'",
        "t.i + 1 > 2",
        "t.i <=> 2",
        "t.s > 3",
        "t.i = 1 OR t.i + 1 = 5",
    ],
)
def test_what_could_mean_something_else_stays_with_spark(condition: str) -> None:
    assert filter_of(condition) is None


def test_of_several_conditions_those_are_sent_that_can_be() -> None:
    found = filter_of("t.i > 2 AND t.i + 1 < 9")
    assert found == {"op": ">", "left": {"column": "i"}, "right": {"value": 2}}
