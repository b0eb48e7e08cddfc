"""Text that Spark gets means what the user wrote: literals, operators, functions, NOT."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from thetastream.planner import Plan
from thetastream.planner.expression import Interval, Number, NumberKind, render
from thetastream.planner.names import Names
from thetastream.planner.parser import parse_predicate
from thetastream.planner.ranges import whole_bound
from thetastream.spec import ColumnSpec, JoinSpec
from thetastream.spec.codec import from_json, to_json

NAMES = Names(
    {
        "r": [ColumnSpec(name=n, type="int") for n in ("a", "b", "c")],
        "s": [ColumnSpec(name=n, type="int") for n in ("d", "e")],
    },
    case_sensitive=False,
)


def rewrite(text: str) -> str:
    return render(parse_predicate(text, NAMES, functions=("rlike",)), NAMES.qualified)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 10L", "r.a = CAST(10 AS BIGINT)"),
        ("a = 10S", "r.a = CAST(10 AS SMALLINT)"),
        ("a = 5Y", "r.a = CAST(5 AS TINYINT)"),
        ("a = 1.5", "r.a = 1.5"),
        ("a = 1.5D", "r.a = CAST(1.5 AS DOUBLE)"),
        ("a = 1.5F", "r.a = CAST(1.5 AS FLOAT)"),
        ("a = 1.5BD", "r.a = CAST('1.5' AS DECIMAL(2, 1))"),
        ("a = 1e0", "r.a = 1e0"),
        ("a = .5", "r.a = 0.5"),
        ("a = -9223372036854775808", "r.a = -9223372036854775808"),
        ("a = X'1F'", "r.a = X'1F'"),
        ("a = 'it''s'", r"r.a = 'it\'s'"),
        (r"a = 'it\'s'", r"r.a = 'it\'s'"),
        ('a = "x"', "r.a = 'x'"),
        (r"a = r'x\n'", r"r.a = 'x\\n'"),
        (r"a LIKE 'x\\_y'", r"r.a LIKE 'x\\_y'"),
        ("a = DATE '2024-02-29'", "r.a = CAST('2024-02-29' AS DATE)"),
        ("a = TIMESTAMP '2024-01-01 00:00:00'", "r.a = CAST('2024-01-01 00:00:00' AS TIMESTAMP)"),
        (
            "a = TIMESTAMP_NTZ '2024-01-01 00:00:00'",
            "r.a = CAST('2024-01-01 00:00:00' AS TIMESTAMP_NTZ)",
        ),
        ("a < b + INTERVAL 10 MINUTES", "r.a < r.b + INTERVAL '10' MINUTES"),
        (
            "a < b - INTERVAL 1 HOUR 30 MINUTES",
            "r.a < r.b - (INTERVAL '1' HOUR + INTERVAL '30' MINUTES)",
        ),
        (
            "a < b - INTERVAL 1 HOUR + INTERVAL 2 HOURS",
            "r.a < r.b - INTERVAL '1' HOUR + INTERVAL '2' HOURS",
        ),
        ("a = INTERVAL '1 02:03:04' DAY TO SECOND", "r.a = INTERVAL '1 02:03:04' DAY TO SECOND"),
        ("a / b > c div d", "r.a / r.b > r.c DIV s.d"),
        ("a % 2 = mod(b, 2)", "r.a % 2 = MOD(r.b, 2)"),
        ("a <=> d", "r.a <=> s.d"),
        ("a == d", "r.a = s.d"),
        ("a != d", "r.a <> s.d"),
        ("!(a = d)", "NOT r.a = s.d"),
        ("! a = d", "NOT r.a = s.d"),
        ("a RLIKE 'x'", "r.a RLIKE 'x'"),
        ("a ILIKE 'x'", "r.a ILIKE 'x'"),
        ("a LIKE 'x!%' ESCAPE '!'", "r.a LIKE 'x!%' ESCAPE '!'"),
        ("a NOT IN (1, 2)", "NOT r.a IN (1, 2)"),
        ("CASE a WHEN 1 THEN b = 2 END", "CASE r.a WHEN 1 THEN r.b = 2 END"),
        ("IF(a = 1, b = 2, true)", "IF(r.a = 1, r.b = 2, TRUE)"),
        ("try_cast(a AS INT) = 1", "TRY_CAST(r.a AS INT) = 1"),
        ("a::int = 1", "CAST(r.a AS INT) = 1"),
        ("a - (b - c) = 1", "r.a - (r.b - r.c) = 1"),
        ("a - -b = 1", "r.a - -r.b = 1"),
        ("- -a = 1", "-(-r.a) = 1"),
        ("(a + b) * c = 1", "(r.a + r.b) * r.c = 1"),
        ("log(a) = log10(b)", "LOG(r.a) = LOG10(r.b)"),
        ("instr(a, 'x') = 1", "INSTR(r.a, 'x') = 1"),
        ("date_sub(a, 1) = b", "DATE_SUB(r.a, 1) = r.b"),
        ("to_utc_timestamp(a, 'UTC') = b", "TO_UTC_TIMESTAMP(r.a, 'UTC') = r.b"),
        ("nvl(a, b) = 1", "NVL(r.a, r.b) = 1"),
        ("to_timestamp(a) = b", "TO_TIMESTAMP(r.a) = r.b"),
        ("element_at(a, 1) = a[0]", "ELEMENT_AT(r.a, 1) = r.a[0]"),
        ("named_struct('k', a).k = 1", "NAMED_STRUCT('k', r.a).k = 1"),
        ("exists(a, v -> v > d)", "EXISTS(r.a, v -> v > s.d)"),
        ("(a = d OR b = e) AND c = 1", "(r.a = s.d OR r.b = s.e) AND r.c = 1"),
        ("a is not null and a is distinct from d", "NOT r.a IS NULL AND r.a IS DISTINCT FROM s.d"),
    ],
)
def test_the_meaning_stays(text: str, expected: str) -> None:
    assert rewrite(text) == expected
    assert rewrite(expected) == expected


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        ("5", Fraction(5), NumberKind.INTEGER),
        ("5L", Fraction(5), NumberKind.INTEGER),
        ("1.25", Fraction(5, 4), NumberKind.DECIMAL),
        ("1.5BD", Fraction(3, 2), NumberKind.DECIMAL),
        ("1e2", Fraction(100), NumberKind.DOUBLE),
        ("0.1D", Fraction(0.1), NumberKind.DOUBLE),
    ],
)
def test_numbers_have_sparks_types(text: str, value: Fraction, kind: NumberKind) -> None:
    node = parse_predicate(f"a < {text}", NAMES).children()[1]
    assert isinstance(node, Number)
    assert (node.value, node.kind) == (value, kind)


@pytest.mark.parametrize(
    "text", ["1234567890123456789012", "300Y", "CAST(1.7 AS INT)", "CAST(1.25 AS DECIMAL(2, 1))"]
)
def test_numbers_that_a_cast_may_change_are_not_offsets(text: str) -> None:
    assert not isinstance(parse_predicate(f"a < {text}", NAMES).children()[1], Number)


@pytest.mark.parametrize(
    ("text", "months", "micros"),
    [
        ("INTERVAL 10 MINUTES", 0, 600_000_000),
        ("INTERVAL '10' MINUTE", 0, 600_000_000),
        ("INTERVAL -2 DAYS", 0, -172_800_000_000),
        ("INTERVAL '1 hour 30 minutes'", 0, 5_400_000_000),
        ("INTERVAL '1.5' SECOND", 0, 1_500_000),
        ("INTERVAL 2 WEEKS", 0, 1_209_600_000_000),
        ("INTERVAL 3 MONTHS", 3, 0),
        ("INTERVAL 1 YEAR", 12, 0),
    ],
)
def test_interval_literals(text: str, months: int, micros: int) -> None:
    node = parse_predicate(f"a < {text}", NAMES).children()[1]
    assert isinstance(node, Interval)
    assert (node.months, node.microseconds) == (months, micros)


@pytest.mark.parametrize(
    ("value", "strict", "lower", "expected"),
    [
        ("5", False, False, 5),
        ("5", True, False, 4),
        ("5.5", True, False, 5),
        ("5.5", False, False, 5),
        ("-5.5", False, False, -6),
        ("5", False, True, 5),
        ("5", True, True, 6),
        ("5.5", True, True, 6),
        ("-5.5", False, True, -5),
        ("1e30", False, False, 2**64),
    ],
)
def test_bounds_of_whole_numbers(value: str, strict: bool, lower: bool, expected: int) -> None:
    assert whole_bound(Fraction(value), strict=strict, lower=lower) == expected


@pytest.mark.parametrize(
    ("text", "conjuncts"),
    [
        ("NOT (r.id < s.id)", ["r.id >= s.id"]),
        ("NOT (r.id = s.id OR r.x > s.x)", ["r.id <> s.id", "r.x <= s.x"]),
        ("NOT (NOT (r.id = s.id AND r.x > s.x))", ["r.id = s.id", "r.x > s.x"]),
        ("NOT (r.id <=> s.id)", ["NOT r.id <=> s.id"]),
        ("NOT (r.id = s.id AND r.x > s.x)", ["NOT (r.id = s.id AND r.x > s.x)"]),
        ("NOT false AND r.id = s.id", ["r.id = s.id"]),
        ("r.id BETWEEN s.id AND s.big", ["r.id >= s.id", "r.id <= s.big"]),
        ("true AND (true AND (r.id = s.id))", ["r.id = s.id"]),
        ("true", []),
    ],
)
def test_conjuncts(text: str, conjuncts: list[str], plan: Callable[..., Plan]) -> None:
    assert [c.text for c in plan(text).conjuncts] == conjuncts


def test_the_plan_survives_json(plan: Callable[..., Plan]) -> None:
    found = plan(
        "r.name = s.name AND abs(r.x - s.x) < 1 AND r.id > s.id",
        within=("1 minute", "2 minutes"),
        time={"r": "at", "s": "at"},
    ).spec
    assert from_json(JoinSpec, to_json(found)) == found
