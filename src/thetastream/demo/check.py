"""The result of the demo against DuckDB's join of the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from thetastream.demo.job import REACH, WITHIN_MINUTES

CELL = REACH + 1
"""Metres of a cell of the street: rows within REACH lie in the same or in neighbouring cells, with
room for rounding. Without cells DuckDB would compare every pair of a zone, billions of them."""

EXPECTED = f"""
CREATE TEMP TABLE expected AS
WITH near AS (
    SELECT *, unnest([-1, 0, 1]) + CAST(floor(x / {CELL}) AS BIGINT) AS cell
    FROM read_parquet($orders)
), seen AS (
    SELECT *, CAST(floor(x / {CELL}) AS BIGINT) AS cell FROM read_parquet($rides)
)
SELECT order_id, o.zone AS orders_zone, o.fare AS orders_fare, o.x AS orders_x,
       epoch_us(placed_at) AS placed_at,
       ride_id, r.zone AS rides_zone, r.fare AS rides_fare, r.x AS rides_x,
       epoch_us(seen_at) AS seen_at
FROM near AS o JOIN seen AS r ON o.zone = r.zone AND o.cell = r.cell
WHERE o.fare > r.fare
  AND abs(o.x - r.x) <= {REACH}
  AND abs(epoch_us(placed_at) - epoch_us(seen_at)) <= {WITHIN_MINUTES} * 60 * 1000000
"""

GOT = """
CREATE TEMP TABLE got AS
SELECT order_id, orders_zone, orders_fare, orders_x, epoch_us(placed_at) AS placed_at,
       ride_id, rides_zone, rides_fare, rides_x, epoch_us(seen_at) AS seen_at
FROM read_parquet($results)
"""


@dataclass(frozen=True)
class Comparison:
    """How the streaming result differs from the batch join, as multisets."""

    expected: int
    got: int
    missing: int
    surplus: int

    @property
    def equal(self) -> bool:
        return self.expected == self.got and self.missing == 0 and self.surplus == 0

    def __str__(self) -> str:
        if self.equal:
            return f"OK: {self.got:,} rows, the same as DuckDB's join, each exactly once"
        return (
            f"FAILED: {self.got:,} rows where DuckDB has {self.expected:,}; "
            f"{self.missing:,} missing, {self.surplus:,} too many"
        )


def compare(orders: Path, rides: Path, results: Sequence[str]) -> Comparison:
    """The files of committed results against the join of all rows of both folders."""
    with duckdb.connect() as database:
        database.execute(EXPECTED, {"orders": f"{orders}/*.parquet", "rides": f"{rides}/*.parquet"})
        if results:
            database.execute(GOT, {"results": list(results)})
        else:
            database.execute("CREATE TEMP TABLE got AS SELECT * FROM expected LIMIT 0")

        def count(query: str) -> int:
            row = database.execute(f"SELECT count(*) FROM ({query})").fetchone()
            assert row is not None
            return int(row[0])

        return Comparison(
            expected=count("FROM expected"),
            got=count("FROM got"),
            missing=count("FROM expected EXCEPT ALL FROM got"),
            surplus=count("FROM got EXCEPT ALL FROM expected"),
        )
