"""Joins of every kind over one awkward table, for each executor to run the same.

The rows hold NULLs, NaN, signed zeros, infinities, duplicates and strings that share their first
eight bytes; times run forward with some rows out of order.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.int32()),
        ("n", pa.int64()),
        ("g", pa.string()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("p", pa.decimal128(8, 2)),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("b", pa.bool_()),
    ]
)
SECOND: Final = 1_000_000
START: Final = 1_700_000_000 * SECOND
"""The time of the first row, in microseconds."""

_WORDS = (None, "", "a", "ab", "abcdefgh", "abcdefghi", "abcdefghj", "ä", "zz", "日本語")
_DOUBLES = (None, 0.0, -0.0, 1.0, 1.5, -2.25, 0.1, 0.3, 2.5, float("nan"), float("inf"), -1e300)
_SINGLES = (None, 0.0, -0.0, 0.1, 0.2, 0.3, 1.0, 16777216.0, float("nan"), float("-inf"))
TIMES: Final = {"r": "t", "s": "t"}
_ANY = ("random", "matrix", "split", "broadcast", "multi-chained")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A predicate over streams `r` and `s` of `SCHEMA`, and the topologies that fit it."""

    name: str
    predicate: str
    within: str | tuple[str, str] | None = None
    topologies: tuple[str, ...] = _ANY
    time_in_predicate: bool = False

    @property
    def time(self) -> dict[str, str]:
        """The event times, where there is a window."""
        return TIMES if self.within is not None or self.time_in_predicate else {}


_EQUALITY = ("hash", "contrand", *_ANY)
_BAND = ("band", *_ANY, "stream-aware")
_INEQUALITY = (*_ANY, "stream-aware")

CASES: Final[Sequence[Case]] = (
    Case(name="equality", predicate="r.k = s.k", within="20 seconds", topologies=_EQUALITY),
    Case(name="strings", predicate="r.g = s.g", within="20 seconds", topologies=_EQUALITY),
    Case(
        name="composite",
        predicate="r.g = s.g AND r.k = s.k",
        within="40 seconds",
        topologies=_EQUALITY,
    ),
    Case(name="floats", predicate="r.x = s.x", within="9 seconds", topologies=_EQUALITY),
    Case(name="band", predicate="abs(r.n - s.n) <= 2", within="20 seconds", topologies=_BAND),
    Case(name="band of floats", predicate="abs(r.x - s.x) <= 0.2D", topologies=_BAND),
    Case(name="band of singles", predicate="abs(r.f - s.f) < 0.1D", topologies=_BAND),
    Case(
        name="band of decimals",
        predicate="r.p BETWEEN s.p - 0.25 AND s.p + 1",
        within="30 seconds",
        topologies=_BAND,
    ),
    Case(
        name="band of dates",
        predicate="r.d BETWEEN s.d - 1 AND s.d + 3",
        within="30 seconds",
        topologies=_BAND,
    ),
    Case(
        name="key and band",
        predicate="r.k = s.k AND r.n - s.n BETWEEN -3 AND 4",
        within=("5 seconds", "15 seconds"),
        topologies=_EQUALITY,
    ),
    Case(name="inequality", predicate="r.n > s.n", within="3 seconds", topologies=_INEQUALITY),
    Case(
        name="inequality of floats",
        predicate="r.x < s.x",
        within=("0 seconds", "6 seconds"),
        topologies=_INEQUALITY,
    ),
    Case(
        name="inequality of strings",
        predicate="r.g >= s.g",
        within=("6 seconds", "0 seconds"),
        topologies=_INEQUALITY,
    ),
    Case(
        name="two inequalities",
        predicate="r.n <= s.n AND r.x > s.x",
        within="15 seconds",
        topologies=_INEQUALITY,
    ),
    Case(name="window alone", predicate="TRUE", within=("1 second", "2 seconds")),
    Case(name="or", predicate="r.k = s.k OR r.g = s.g", within="8 seconds"),
    Case(name="unequal", predicate="r.k <> s.k AND r.g LIKE concat(s.g, '%')", within="8 seconds"),
    Case(
        name="filters",
        predicate="r.k = s.k AND r.b AND s.n > 1 AND r.g IS NOT NULL",
        topologies=_EQUALITY,
    ),
    Case(name="null-safe", predicate="r.k <=> s.k AND r.n < s.n", within="10 seconds"),
    Case(name="full history", predicate="r.k = s.k AND r.x >= s.x", topologies=_EQUALITY),
    Case(
        name="time in the predicate",
        predicate="r.k = s.k AND s.t >= r.t AND s.t < r.t + INTERVAL 10 SECONDS",
        topologies=_EQUALITY,
        time_in_predicate=True,
    ),
)


def units_for(topology: str, units: tuple[int, int] = (3, 2)) -> tuple[int, int]:
    """Units of both streams, as near to those as the topology allows."""
    if topology == "broadcast":
        return 1, max(units)
    return (max(units),) * 2 if topology in ("split", "multi-chained") else units


def rows_of(seed: int, count: int, *, first: int = 0, seconds: float = 60.0) -> pa.Table:
    """So many rows of `SCHEMA`, with ids from `first`, over so many seconds of event time."""
    random = np.random.default_rng(seed)

    def some(values: Sequence[Any]) -> list[Any]:
        return [values[place] for place in random.integers(0, len(values), count)]

    def sparse(values: Sequence[int]) -> list[int | None]:
        kept = random.random(count) > 0.1
        return [int(v) if keep else None for v, keep in zip(values, kept, strict=True)]

    cents = random.integers(-300, 300, count)
    days = sparse(random.integers(0, 9, count).tolist())
    times = START + (np.sort(random.random(count)) * seconds * SECOND).astype(np.int64)
    times -= random.integers(0, 3 * SECOND, count)
    # Whole seconds make ties, and pairs exactly as far apart as a window reaches.
    times = np.where(random.random(count) < 0.5, times - times % SECOND, times)
    untimed = random.random(count) < 0.03
    columns = [
        np.arange(first, first + count),
        sparse(random.zipf(1.5, count).clip(0, 12).tolist()),
        sparse(random.integers(-6, 7, count).tolist()),
        some(_WORDS),
        some(_DOUBLES),
        some(_SINGLES),
        [Decimal(int(value)).scaleb(-2) for value in cents],
        [None if day is None else datetime.date(2024, 2, 25 + day % 5) for day in days],
        [None if lost else int(value) for value, lost in zip(times, untimed, strict=True)],
        some([True, True, False, None]),
    ]
    return pa.table(
        [pa.array(values, item.type) for values, item in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )
