"""Filters mean what they mean in Spark, and nothing else gets in."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from thetastream.errors import SiteRequestError
from thetastream.transport.filters import MAX_DEPTH, Filter

NAN = math.nan
BATCH = pa.record_batch(
    {
        "i": pa.array([1, 2, 3, None], pa.int32()),
        "f": pa.array([1.0, NAN, -0.0, None]),
        "g": pa.array([NAN, NAN, 0.0, 1.0]),
        "s": pa.array(["a", "b", "é", None]),
        "b": pa.array([True, False, None, True]),
        "d": pa.array([Decimal("1.10"), Decimal("2.00"), None, Decimal("-1.00")]),
        "day": pa.array([date(2026, 1, 1), date(2026, 1, 2), None, date(1969, 1, 1)]),
        "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC), None, None, None]),
        "list": pa.array([[1], [], None, None]),
    }
)


def compare(op: str, column: str, value: Any) -> dict[str, Any]:
    return {"op": op, "left": {"column": column}, "right": {"value": value}}


def both(op: str, left: str, right: str) -> dict[str, Any]:
    return {"op": op, "left": {"column": left}, "right": {"column": right}}


@pytest.mark.parametrize(
    ("described", "kept"),
    [
        (compare("=", "i", 2), [1]),
        (compare("!=", "i", 2), [0, 2]),
        (compare(">", "i", 1), [1, 2]),
        ({"op": "<", "left": {"value": 1}, "right": {"column": "i"}}, [1, 2]),
        (compare("=", "f", "NaN"), [1]),
        (compare(">", "f", 5), [1]),
        (compare(">=", "f", "Infinity"), [1]),
        (compare("<=", "f", "NaN"), [0, 1, 2]),
        (compare("<", "f", "NaN"), [0, 2]),
        (compare("=", "f", 0), [2]),
        (both("=", "f", "g"), [1, 2]),
        (both("<", "f", "g"), [0]),
        (both("!=", "f", "g"), [0]),
        (compare(">=", "s", "b"), [1, 2]),
        (compare("=", "b", True), [0, 3]),
        (compare(">", "d", "1.1"), [1]),
        (compare("<", "day", "2026-01-02"), [0, 3]),
        (compare(">=", "at", 1_767_225_600_000_000), [0]),
        ({"op": "is null", "of": [{"column": "s"}]}, [3]),
        ({"op": "is null", "of": [{"column": "list"}]}, [2, 3]),
        ({"op": "not", "of": [compare("=", "i", 2)]}, [0, 2]),
        ({"op": "or", "of": [compare("=", "i", 2), compare("=", "b", True)]}, [0, 1, 3]),
        ({"op": "and", "of": [compare(">", "i", 1), compare("=", "b", False)]}, [1]),
    ],
    ids=repr,
)
def test_what_a_filter_keeps(described: dict[str, Any], kept: list[int]) -> None:
    mask = Filter(described, BATCH.schema)(BATCH)
    assert mask.null_count == 0
    assert [place for place, keep in enumerate(mask.to_pylist()) if keep] == kept


def nested(depth: int) -> dict[str, Any]:
    found = compare("=", "i", 1)
    for _ in range(depth):
        found = {"op": "not", "of": [found]}
    return found


@pytest.mark.parametrize(
    "described",
    [
        None,
        "i > 1",
        [],
        {},
        {"op": "and", "of": []},
        {"op": "and"},
        {"op": "not", "of": [compare("=", "i", 1)] * 2},
        {"op": "__import__", "of": ["os"]},
        {"op": ["="], "left": 1, "right": 2},
        compare("=", "nowhere", 1),
        compare("=", "i", "1"),
        compare("=", "i", 1.0),
        compare("=", "i", True),
        compare("=", "i", 2**40),
        compare("=", "i", None),
        compare("=", "f", "nan"),
        compare("=", "f", 2**53 + 1),
        compare("=", "d", "1.123"),
        compare("=", "d", "9" * 500),
        compare("=", "day", "yesterday"),
        compare("=", "list", 1),
        compare("=", "s", "x" * 20_000),
        {**compare("=", "i", 1), "more": 1},
        {"op": "=", "left": {"value": 1}, "right": {"value": 1}},
        {"op": "=", "left": {"column": ["i"]}, "right": {"value": 1}},
        {"op": "is null", "of": [{"value": 1}]},
        both("=", "i", "f"),
        nested(MAX_DEPTH),
        {"op": "or", "of": [compare("=", "i", 1)] * 1000},
    ],
    ids=lambda described: repr(described)[:60],
)
def test_what_is_refused(described: object) -> None:
    with pytest.raises(SiteRequestError, match="the filter cannot be used"):
        Filter(described, BATCH.schema)


def test_which_columns_it_reads() -> None:
    described = {"op": "and", "of": [both("=", "f", "g"), compare("=", "i", 1)]}
    assert Filter(described, BATCH.schema).columns == ["f", "g", "i"]


# -- whatever a filter brings, the process survives ----------------------------------------------


def fuzzed(seed: int, count: int) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.transport.filter_fuzz", str(seed), str(count)],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    outcome = json.loads(run.stdout)
    # Each type that can be compared was, and much was refused.
    assert outcome.pop("refused") > count // 4
    assert len(outcome) >= 20, outcome


def test_any_value_on_any_column() -> None:
    fuzzed(seed=1, count=5_000)


@pytest.mark.chaos
def test_many_values_on_any_column() -> None:
    for seed in range(2, 22):
        fuzzed(seed, count=50_000)


def test_exponents_that_would_end_the_process() -> None:
    """Each in turn, in a process of its own: the first that Arrow sees would be the last."""
    script = """
from tests.transport.test_filters import BATCH, compare
from thetastream.errors import SiteRequestError
from thetastream.transport.filters import Filter

for text in ("1e-999999999", "1e999999999", "-1e-400", "1e39", "sNaN"):
    try:
        Filter(compare("=", "d", text), BATCH.schema)
    except SiteRequestError as error:
        assert "is not a value of the type decimal" in error.what, error
    else:
        raise AssertionError(text)
"""
    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run
