"""What Spark does with the join's output, as SQL over its columns."""

from __future__ import annotations

from dataclasses import dataclass

from thetastream.planner.query import TimeWindow
from thetastream.planner.types import Family, decimal_size, family
from thetastream.spec import NEWEST, ColumnSpec


@dataclass(frozen=True, kw_only=True)
class Finish:
    """What comes after a join."""

    items: tuple[tuple[str, str], ...]
    """Expression and name of each column of the result."""
    grouped: bool = False
    keys: tuple[tuple[str, str], ...] = ()
    """Expression and name of what is grouped by; items and the condition use the names."""
    window: TimeWindow | None = None
    window_sql: str = NEWEST
    aggregates: tuple[str, ...] = ()
    """Aggregate expressions, called `a_0`, `a_1`, ... afterwards."""
    having: str | None = None
    distinct: tuple[str, ...] = ()
    """Columns by which duplicates are told."""


def distinct_count(sql: str, kind: str) -> str:
    """The number of different values; floats are made alike first, as Spark's DISTINCT does."""
    if family(kind) is Family.FLOAT:
        sql = f"CASE WHEN isnan({sql}) THEN CAST('NaN' AS DOUBLE) ELSE {sql} + 0.0D END"
    return f"CAST(size(collect_set({sql})) AS BIGINT)"


def normalized_float(sql: str, kind: str) -> str:
    """A float with one form for zero and one for NaN."""
    return (
        f"CASE WHEN isnan({sql}) THEN CAST('NaN' AS {kind})"
        f" WHEN {sql} = 0 THEN CAST(0 AS {kind}) ELSE {sql} END"
    )


def exists(sql: str, name: str) -> ColumnSpec:
    """Whether there is a value, which is all that counting it takes."""
    return ColumnSpec(
        name=f"{name} IS NOT NULL",
        type="boolean",
        sql=f"CASE WHEN ({sql}) IS NOT NULL THEN TRUE END",
    )


def sum_type(total: str, kind: str) -> str:
    """A sum in the type that Spark gives to sums."""
    match family(kind):
        case Family.INTEGER:
            return f"CAST({total} AS BIGINT)"
        case Family.DECIMAL:
            digits, scale = decimal_size(kind)
            return f"CAST({total} AS DECIMAL({min(38, digits + 10)},{scale}))"
        case _:
            return total
