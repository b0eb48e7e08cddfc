"""Extreme values in ANSI mode: what we add to a query raises no error where Spark has a result.

The predicates are generated; Spark's own batch join is the oracle. Where it has rows, ours must
have the same ones. Where it raises, a row really meets the error, and ours may raise or not.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as ts

SCHEMA = (
    "id int, k int, usual boolean, l bigint, i int, c decimal(38,0), f decimal(38,10),"
    " p decimal(10,2), d double, day date, at timestamp, local timestamp_ntz,"
    " v interval day to second, s string, xs array<int>"
)
COLUMNS = re.findall(r"(?:^|, )(\w+)", SCHEMA)
NINES = "9" * 38
LARGEST = timedelta(microseconds=2**63 - 1)
FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)


def rows(extreme_key: int) -> list[tuple[Any, ...]]:
    """Usual values that match one another, and extreme ones under a key of their own."""
    usual = [
        (
            number, number, True, number, number, Decimal(number), Decimal(number),
            Decimal(number), float(number), date(2024, 1, number + 1),
            datetime(2024, 1, number + 1, tzinfo=UTC), datetime(2024, 1, number + 1),
            timedelta(days=number), str(number), [number] * 3,
        )
        for number in (1, 2, 3)
    ]  # fmt: skip
    largest = (
        2**63 - 1, 2**31 - 1, Decimal(NINES), Decimal(f"{NINES[:28]}.{NINES[:10]}"),
        Decimal("99999999.99"), 1.7e308, date.max, LAST.replace(tzinfo=UTC), LAST, LARGEST,
        "no number", [],
    )  # fmt: skip
    smallest = (
        -(2**63), -(2**31), Decimal(f"-{NINES}"), Decimal(f"-{NINES[:28]}.{NINES[:10]}"),
        Decimal("-99999999.99"), float("-inf"), date.min, FIRST.replace(tzinfo=UTC), FIRST,
        -LARGEST, "", [],
    )  # fmt: skip
    zero = (
        0, 0, Decimal(0), Decimal(0), Decimal(0), float("nan"), date(2024, 1, 1),
        datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1), timedelta(0), "0", [0],
    )  # fmt: skip
    extreme = [
        (10 + place, extreme_key, False, *values)
        for place, values in enumerate((largest, smallest, zero))
    ]
    return [*usual, *extreme, (20, None, None, *[None] * 12)]


SIDES: dict[str, tuple[str, ...]] = {
    "l": (
        "{l}", "{l} + 1", "1 - {l}", "-{l}", "abs({l})", "{l} * 2", "({l} - 1) * {i}", "{l} % {i}",
        "{l} / {i}", "CAST({l} AS INT)", "int({l})", "{l} div {i}", "{l} div 2", "-({l} * 3) + 1",
        "mod({l}, {i})", "CAST({s} AS BIGINT)", "CAST({s} AS INT) * 2", "{xs}[{i}]",
        "{xs}[1]", "element_at({xs}, 2)", "element_at({xs}, {i})", "to_number({s}, '9')",
        "round({l}, -1)",
        "CASE WHEN {l} > 1 THEN {l} * 2 ELSE 0 END", "coalesce({l} + 1, 0)", "floor({d})",
        "least({l}, {i} * 2)", "if({l} = 2, {l} + 1, {l})", "length({s}) * {i}", "pmod({l}, {i})",
        "bigint({d}) + 1", "{s} + 1", "{s} * 2", "hash({l} * 2)", "negative({l})", "-{s}",
    ),
    "c": (
        "{c}", "{c} + 1", "{c} - 0.1", "-{c}", "abs({c})", "{c} * 2", "{c} * {l}", "{c} / {i}",
        "{f} * {f}", "{f} + {c}", "{p} * {p}", "{p} + 1", "-{p}", "{p} % {l}", "{c} div {i}",
        "CAST({c} AS DECIMAL(10,2))", "CAST({d} AS DECIMAL(12,3))", "decimal({l})", "{f} - {l}",
    ),
    "d": (
        "{d}", "{d} + 1", "-{d}", "abs({d})", "{d} * {d}", "{d} / {i}", "{d} % {l}", "sqrt({d})",
        "CAST({s} AS DOUBLE)", "{l} / ({i} - 1)", "pow({d}, 2)", "{d} * {l} + 1",
    ),
    "day": (
        "{day}", "{day} + {i}", "date_add({day}, {i})", "add_months({day}, {i})", "to_date({s})",
        "make_date({i}, 1, 1)", "CAST({s} AS DATE)", "{day} - 1", "last_day({day})",
        "{day} + INTERVAL 1 MONTH", "trunc({day}, 'YEAR')",
    ),
    "at": (
        "{at}", "{at} + INTERVAL 1 HOUR", "{at} + {v}", "{at} - {v}", "date_trunc('HOUR', {at})",
        "timestamp_seconds({l})", "{at} + INTERVAL 2 DAYS", "CAST({l} AS TIMESTAMP)",
        "timestampadd(DAY, {i}, {at})", "to_timestamp({s}, 'd')", "{at} + {v} * 2",
    ),
    "local": (
        "{local}", "{local} + INTERVAL 1 HOUR", "{local} + {v}", "{local} - {v}",
        "CAST({s} AS TIMESTAMP_NTZ)",
    ),
    "v": ("{v}", "{v} + {v}", "-{v}", "abs({v})", "{v} * 2", "{v} * {i}", "{v} / {i}"),
}  # fmt: skip
"""Expressions whose types Spark compares with each other."""
TEMPLATES = (
    "{left} {op} {right}",
    "{left} BETWEEN {right} AND {other}",
    "{left} >= {right} AND {left} {op} {other}",
    "abs({left} - ({right})) <= {limit}",
)
LIMITS = {"l": "5", "c": "5", "d": "5"}
"""Of a difference; times are at most an interval apart."""
GUARDS = (
    "a.k = b.k AND {}",
    "{} AND a.k = b.k",
    "a.usual AND b.usual AND {}",
    "a.id < 10 AND {} AND b.k < 9",
    "a.k <> b.k + 1 AND abs(a.k - b.k) <= 1 AND {}",
    "{}",
)


def predicates(seed: int) -> list[str]:
    """One predicate with each expression of `SIDES`, on either side in turns."""
    chosen = random.Random(seed)
    texts = []
    for kind, sides in SIDES.items():
        for place, side in enumerate(sides):
            names = ("a", "b") if (place + seed) % 2 else ("b", "a")
            simple = side if chosen.random() < 0.3 else sides[0]
            left, right, other = (
                text.format_map({name: f"{stream}.{name}" for name in COLUMNS})
                for text, stream in (
                    (simple, names[0]),
                    (side, names[1]),
                    (chosen.choice(sides), names[1]),
                )
            )
            template = chosen.choices(TEMPLATES, weights=(6, 3, 3, 1))[0]
            text = template.format(
                left=left,
                right=right,
                other=other,
                op=chosen.choice(("=", "<", "<=", ">", ">=")),
                limit=LIMITS.get(kind, "INTERVAL 2 DAYS"),
            )
            texts.append(chosen.choices(GUARDS, weights=(4, 3, 2, 2, 1, 1))[0].format(text))
    return texts


@pytest.fixture(scope="module")
def sides(spark: SparkSession) -> dict[str, DataFrame]:
    # Not literals in SQL: Spark would put them in the place of columns.
    return {
        "a": spark.createDataFrame(rows(8), SCHEMA).coalesce(1).cache(),
        "b": spark.createDataFrame(rows(9), SCHEMA).coalesce(1).cache(),
    }


def outcome(joined: DataFrame, first: str, second: str) -> Counter[tuple[int, int]]:
    return Counter((row[0], row[1]) for row in joined.select(first, second).collect())


def compare(sides: dict[str, DataFrame], predicate: str) -> int | None:
    """How many rows both joins have; None if Spark raises."""
    batch = sides["a"].alias("a").join(sides["b"].alias("b"), F.expr(predicate))
    try:
        expected = outcome(batch, "a.id", "b.id")
    except (PySparkException, Py4JJavaError):
        return None
    joined = ts.streams(**sides).join(predicate)
    assert outcome(joined, "a_id", "b_id") == expected, predicate
    return expected.total()


def compare_all(sides: dict[str, DataFrame], texts: list[str]) -> None:
    counts = [compare(sides, predicate) for predicate in texts]
    shared = [count for count in counts if count is not None]
    assert len(shared) > len(counts) / 2
    assert sum(count > 0 for count in shared) > len(shared) / 3


def test_predicates_over_extreme_values(sides: dict[str, DataFrame]) -> None:
    compare_all(sides, predicates(1)[::3])


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(2, 8))
def test_more_predicates_over_extreme_values(sides: dict[str, DataFrame], seed: int) -> None:
    compare_all(sides, predicates(seed))


@pytest.mark.parametrize(
    "predicate",
    [
        "a.k = b.k AND a.l * 2 > b.l",
        "a.k = b.k AND a.l >= b.l / b.i",
        "a.k = b.k AND a.l BETWEEN b.l % b.i AND (b.l - 1) * 5",
        "a.k = b.k AND a.l <= int(b.l)",
        "a.k = b.k AND a.l > b.xs[0] - 1",
        "a.k = b.k AND a.c > -b.c",
        "a.k = b.k AND a.day > make_date(b.i, 1, 1)",
        "a.k = b.k AND a.l <= b.l div b.i + 2",
        "a.k = b.k AND a.v > -b.v",
        "a.k = b.k AND CASE WHEN a.l > 1 THEN a.l * 2 ELSE 2 END >= b.l",
    ],
)
def test_rows_without_a_partner_raise_nothing(predicate: str, sides: dict[str, DataFrame]) -> None:
    assert compare(sides, predicate)


def test_what_raises_for_a_pair_raises(sides: dict[str, DataFrame]) -> None:
    with pytest.raises(Exception, match="OUT_OF_BOUNDS"):
        ts.streams(**sides).join("a.day > make_date(b.i, 1, 1)").collect()


def test_operations_that_are_said_to_raise_nothing(sides: dict[str, DataFrame]) -> None:
    numbers, times = ["l", "i", "c", "f", "p", "d"], ["day", "at", "local"]
    texts = [
        *(f"{call}({name})" for call in ("sqrt", "exp", "ln", "sign", "rint", "tan", "positive")
          for name in numbers),
        *(f"pow({one}, {two})" for one in numbers for two in numbers),
        *(f"{call}({name})" for call in ("floor", "ceil") for name in numbers[:-1]),
        *(f"round(d, {digits})" for digits in (-2, 0, 3)),
        *(f"l {sign} i" for sign in "&|^"), "~l", "bit_count(l)",
        *(f"{call}(s)" for call in ("upper", "length", "trim", "md5", "reverse", "hex", "ascii",
                                    "soundex", "base64", "crc32", "initcap", "luhn_check")),
        "left(s, 2)", "substring(s, 0, 5)", "lpad(s, 3, 'x')", "s || s", "concat(s, s)",
        "locate('n', s)", "replace(s, 'n', 'm')", "levenshtein(s, s)", "instr(s, 'n')",
        "substring_index(s, ' ', 1)", "translate(s, 'n', 'm')", "s LIKE 'n%'", "mask(s)",
        *(f"{call}({name})" for name in times for call in ("year", "hour", "dayofweek", "last_day",
                                                           "weekofyear", "unix_timestamp")),
        *(f"date_trunc('{unit}', {name})" for name in times for unit in ("YEAR", "HOUR", "WEEK")),
        "unix_micros(at)", "unix_date(day)", "datediff(day, at)", "months_between(at, day)",
        "timestampdiff(MICROSECOND, at, at)", "EXTRACT(DAY FROM v)", "trunc(day, 'MONTH')",
        "l div 2", "l div -2", "i div 1", "pmod(l, 7)", "l IN (1, 2)", "coalesce(p, 0)",
        "greatest(l, i)", "hash(l, s)", "typeof(c)", "coalesce(s, '')", "array(l, i)",
    ]  # fmt: skip
    values = [f"CAST(({text}) AS STRING)" for text in texts]
    assert len(sides["a"].selectExpr(*values).collect()) == len(rows(8))
