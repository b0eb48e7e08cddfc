"""The streams of Q5, Q7 and Band, made by the public rules of TPC-H from a seed.

Each stream has only tuples that pass the query's own filters, and only the columns that the query
needs. The side with fewer tuples comes from a larger scale factor, so that both sides have as much
data: every tuple is there once, and a tuple meets as many others as in the benchmark itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.errors import OptionError
from thetastream.simulator.sources import Rate, Replayed, Steps

SEED: Final = 1992
NATIONS: Final = 25
AMERICA: Final = ("ARGENTINA", "BRAZIL", "CANADA", "PERU", "UNITED STATES")
PAIR: Final = ("PERU", "ETHIOPIA")
SHIP_MODES: Final = 7
SHIP_INSTRUCTIONS: Final = 4
MOST_LINES: Final = 7
"""Of an order; each number from 1 on is as likely as any other."""
MOST_QUANTITY: Final = 50
SHIP_DATES: Final = (8036, 10561)
"""Days since 1970 of the first and the last ship date, 1992-01-02 and 1998-12-01, about."""
TWO_YEARS: Final = (9131, 9861)
"""1995-01-01 to 1996-12-31: the ship dates of Q7."""
TIME_BYTES: Final = 8

QUERIES: Final = ("Q5", "Q7", "Band")
PREDICATES: Final = {
    "Q5": "r.s_suppkey = s.l_suppkey",
    "Q7": "r.s_suppkey = s.l_suppkey",
    "Band": "abs(r.l_orderkey - s.l_orderkey) <= 1",
}
AGGREGATES: Final = {
    "Q5": "SELECT r.n_name, sum(s.l_extendedprice * (1 - s.l_discount)) AS revenue"
    " FROM r JOIN s ON r.s_suppkey = s.l_suppkey GROUP BY r.n_name",
    "Q7": "SELECT r.n_name, s.l_shipyear, sum(s.l_extendedprice * (1 - s.l_discount)) AS revenue"
    " FROM r JOIN s ON r.s_suppkey = s.l_suppkey GROUP BY r.n_name, s.l_shipyear",
    "Band": "SELECT r.n_name, count(*) AS lines, min(s.l_orderkey) AS low,"
    " max(s.l_orderkey) AS high FROM r JOIN s ON abs(r.l_orderkey - s.l_orderkey) <= 1"
    " GROUP BY r.n_name",
}

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Streams:
    """The two sides of a query."""

    r: pa.Table
    s: pa.Table

    def rates(self, rate: float) -> tuple[float, float]:
        """Tuples per second of each side, as many together as given, with the same bytes each."""
        left, right = tuple_bytes(self.r), tuple_bytes(self.s)
        return rate * right / (left + right), rate * left / (left + right)

    def sources(self, rate: Rate) -> dict[str, Replayed]:
        """The sides at a rate for both together."""
        if isinstance(rate, Steps):
            halves = [(start, self.rates(one)) for start, one in rate.steps]
            sides: list[Rate] = [
                Steps(tuple((start, both[side]) for start, both in halves)) for side in (0, 1)
            ]
        else:
            sides = list(self.rates(rate))
        return {"r": Replayed(self.r, sides[0]), "s": Replayed(self.s, sides[1])}


def tuple_bytes(table: pa.Table) -> float:
    """The mean size of a tuple on the wire, with its time."""
    return float(table.nbytes / table.num_rows + TIME_BYTES)


@lru_cache(maxsize=8)
def streams(query: str, rows: int) -> Streams:
    """So many tuples on each side."""
    rng = np.random.default_rng((SEED, QUERIES.index(query) if query in QUERIES else 0, rows))
    if query == "Q5":
        return Streams(*_suppliers_and_lines(rng, rows, AMERICA))
    if query == "Q7":
        return Streams(*_suppliers_and_lines(rng, rows, PAIR, dated=True))
    if query == "Band":
        return Streams(*_lines_and_lines(rng, rows))
    raise OptionError(f"there is no query {query!r}", hint=f"choose one of {', '.join(QUERIES)}")


def _suppliers_and_lines(
    rng: np.random.Generator, rows: int, nations: tuple[str, ...], *, dated: bool = False
) -> tuple[pa.Table, pa.Table]:
    """Suppliers of some nations, and the lines of orders from all suppliers that there are."""
    suppliers = rows * NATIONS // len(nations)
    keys = 1 + rng.choice(suppliers, rows, replace=False)
    names = np.asarray(nations)[rng.integers(0, len(nations), rows)]
    lines: dict[str, Numbers] = {
        "l_orderkey": order_keys(rng, rows),
        "l_suppkey": 1 + rng.integers(0, suppliers, rows),
        "l_extendedprice": np.round(rng.integers(1, 51, rows) * rng.uniform(900, 2100, rows), 2),
        "l_discount": rng.integers(0, 11, rows) / 100,
    }
    if dated:
        days = rng.integers(TWO_YEARS[0], TWO_YEARS[1] + 1, rows)
        lines["l_shipyear"] = np.where(days < TWO_YEARS[1] - 365, 1995, 1996).astype(np.int32)
    return pa.table({"s_suppkey": keys, "n_name": pa.array(names)}), pa.table(lines)


def _lines_and_lines(rng: np.random.Generator, rows: int) -> tuple[pa.Table, pa.Table]:
    """Lines of large orders that go by truck, and lines without an instruction."""
    rare = SHIP_MODES * MOST_QUANTITY / (MOST_QUANTITY - 48)
    few = order_keys(rng, rows, each=rare)
    many = order_keys(rng, rows, each=SHIP_INSTRUCTIONS)
    names = np.asarray(AMERICA)[rng.integers(0, len(AMERICA), rows)]
    quantity = rng.integers(49, MOST_QUANTITY + 1, rows)
    left = {"l_orderkey": few, "l_quantity": quantity, "n_name": pa.array(names)}
    return pa.table(left), pa.table(
        {"l_orderkey": many, "l_shipinstruct": pa.array(["NONE"] * rows)}
    )


def order_keys(rng: np.random.Generator, rows: int, each: float = 1.0) -> Numbers:
    """The order keys of so many lines, one line of `each` is taken; they come in no order.

    Of each 32 keys, the first 8 are in use.
    """
    orders = max(1, round(rows * each / ((1 + MOST_LINES) / 2)))
    lines = np.repeat(np.arange(orders), rng.integers(1, MOST_LINES + 1, orders))
    taken = rng.choice(lines, rows, replace=len(lines) < rows)
    return np.asarray((taken // 8) * 32 + taken % 8 + 1, dtype=np.int64)
