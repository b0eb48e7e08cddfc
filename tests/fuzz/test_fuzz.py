"""The fuzzers in a short form, all kept failures, and that the fuzzers find what is planted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.fuzz.cases import kept
from tests.fuzz.histories import HistoryFuzzer
from tests.fuzz.predicates import PredicateFuzzer
from tests.fuzz.protocol import Budget, Fuzzer, Summary, silent
from tests.fuzz.queries import QueryFuzzer
from thetastream.index import encoding, part
from thetastream.planner import ranges

pytestmark = pytest.mark.spark

REPLAYED: dict[str, Callable[[SparkSession], Fuzzer]] = {
    "predicates": PredicateFuzzer,
    "queries": QueryFuzzer,
    "histories": HistoryFuzzer,
}


def found(summary: Summary) -> str:
    """What a failing test shows."""
    return summary.text() if summary.failures else ""


def cases() -> list[Any]:
    """The kept cases; one that is open must still fail, so that mending it is noticed."""
    return [
        pytest.param(
            case,
            id=name,
            marks=[pytest.mark.xfail(reason=case["open"])] if case.get("open") else [],
        )
        for name, case in kept().items()
        if case["fuzzer"] in REPLAYED
    ]


def test_predicates_give_what_spark_gives(spark: SparkSession) -> None:
    fuzzer = PredicateFuzzer(spark, size=40, whole=1)
    summary = fuzzer.run(1, Budget(count=80), silent)
    assert found(summary) == ""
    assert summary.done == 80
    # Empty results would prove nothing.
    assert summary.share("some pairs, not all") > 0.4


def test_queries_give_what_spark_gives(spark: SparkSession) -> None:
    summary = QueryFuzzer(spark, size=6, whole=1).run(1, Budget(count=12), silent)
    assert found(summary) == ""
    assert summary.counts["some rows"] >= 4


@pytest.mark.parametrize("case", cases())
def test_kept_cases_stay_mended(case: dict[str, Any], spark: SparkSession) -> None:
    assert REPLAYED[case["fuzzer"]](spark).replay(case) is None


def test_a_bound_that_is_off_by_one_is_found_and_shrunk(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = ranges.whole_bound

    def wrong(value: Any, *, strict: bool, lower: bool) -> int:
        return right(value, strict=strict, lower=lower) - (0 if lower else 1)

    monkeypatch.setattr(ranges, "whole_bound", wrong)
    case = planted(spark, "int", "int", "date")
    assert case["predicate"].count("AND") <= 1
    assert [len(table["rows"]) for table in case["tables"]] == [1, 1]
    monkeypatch.undo()
    assert PredicateFuzzer(spark).replay(case) is None


def test_a_wrong_place_of_nan_is_found_and_shrunk(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(column: Any, name: str) -> Any:
        return encoding.encode(column, "float_nan_low" if name == "float" else name)

    monkeypatch.setattr(part, "encode", wrong)
    case = planted(spark, "float", "float", "float")
    assert [len(table["rows"]) for table in case["tables"]] == [1, 1]
    assert any("NaN" in str(table["rows"]) for table in case["tables"])
    monkeypatch.undo()
    assert PredicateFuzzer(spark).replay(case) is None


def planted(spark: SparkSession, *families: str) -> dict[str, Any]:
    """The first failure that is found, made small."""
    fuzzer = PredicateFuzzer(spark, size=40, whole=0, most=1, families=families)
    summary = fuzzer.run(1, Budget(count=40), silent)
    assert summary.failures, summary.text()
    assert summary.failures[0].title.startswith("wrong result")
    return dict(summary.failures[0].case)
