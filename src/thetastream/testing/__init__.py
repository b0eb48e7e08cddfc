"""Helpers to test joins without Spark: the whole join in this process, and DuckDB as the oracle."""

from thetastream.testing.cases import CASES, Case, rows_of, units_for
from thetastream.testing.duck import DuckAnalyst, DuckJoin, spark_type
from thetastream.testing.inprocess import (
    CRASH,
    RESTART,
    Batch,
    InProcessJoin,
    Outcome,
    batches_of,
    expected_rows,
    multiset,
    run_script,
)

__all__ = [
    "CASES",
    "CRASH",
    "RESTART",
    "Batch",
    "Case",
    "DuckAnalyst",
    "DuckJoin",
    "InProcessJoin",
    "Outcome",
    "batches_of",
    "expected_rows",
    "multiset",
    "rows_of",
    "run_script",
    "spark_type",
    "units_for",
]
