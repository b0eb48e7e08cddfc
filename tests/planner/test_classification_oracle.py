"""Plans mean what their predicates mean: random predicates against DuckDB.

A plan is carried out naively (filter, keys, equality and ranges over all pairs, re-check) and
must keep exactly the pairs that DuckDB keeps for the whole predicate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
import sqlglot
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.examples import examples
from thetastream.options import JoinOptions
from thetastream.planner import Plan, plan_join
from thetastream.spec import Arithmetic, ColumnSpec, Encoding, Range
from thetastream.testing.duck import DuckAnalyst, add_macros

COLUMNS = [
    ColumnSpec(name="a", type="int"),
    ColumnSpec(name="b", type="int"),
    ColumnSpec(name="x", type="double"),
    ColumnSpec(name="y", type="double"),
    ColumnSpec(name="p", type="decimal(6,2)"),
    ColumnSpec(name="n", type="string"),
]
STREAMS = {"r": COLUMNS, "s": COLUMNS}
NAN, INF = math.nan, math.inf
ROWS: list[tuple[Any, ...]] = [
    (0, 1, 0.0, 1.5, "1.00", "a"),
    (1, 0, -0.0, NAN, "1.01", "abcdefgh1"),
    (2, 2, 1.0, INF, "-0.50", "abcdefgh2"),
    (3, -1, 2.5, -INF, "0.00", ""),
    (4, 5, NAN, 0.1, "2.00", None),
    (-3, 4, INF, 2.0, None, "b"),
    (None, 3, -INF, 0.3, "1.50", "A"),
    (5, None, None, -1.0, "-3.25", "a"),
    (2, 2, 0.3, None, "0.99", "abcdefgh"),
    (7, 6, 5.0, 5.0, "7.00", "ab"),
]


def duck(sql: str) -> str:
    return sqlglot.transpile(sql, read="spark", write="duckdb")[0].replace("XXHASH64(", "HASH(")


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        add_macros(connection)
        for name in STREAMS:
            connection.execute(
                f"CREATE TABLE {name} (k INT, a INT, b INT, x DOUBLE, y DOUBLE, "
                "p DECIMAL(6,2), n VARCHAR)"
            )
            rows = ROWS if name == "r" else [(*row[1::-1], *row[3:1:-1], *row[4:]) for row in ROWS]
            connection.executemany(
                f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(place, *row) for place, row in enumerate(rows)],
            )
        outputs = ", ".join(
            f"{name}.{column.name} AS s{i}_{j}"
            for i, name in enumerate(STREAMS)
            for j, column in enumerate(COLUMNS)
        )
        connection.execute(
            f"CREATE TABLE pairs AS SELECT r.k AS rk, s.k AS sk, {outputs} FROM r, s"
        )
        yield connection


def order(value: float, nan_low: bool = False) -> tuple[int, float]:
    """Spark's order of floats: NaN above everything, or below where the key says so."""
    if isinstance(value, float) and math.isnan(value):
        return (-1 if nan_low else 1, 0.0)
    return (0, value)


def widened(base: Any, offset: float, direction: int) -> Any:
    """base + offset, pushed outwards by the rounding error that a kernel allows for."""
    if math.isnan(base):
        return base
    total = base + offset
    slack = 4 * math.ulp(max(abs(base), abs(offset))) if math.isfinite(base) else 0.0
    return total + direction * slack


def within(item: Range, left: Any, right: Any, low_nan: tuple[bool, bool]) -> bool:
    for end, direction in ((item.low, -1), (item.high, 1)):
        if end is None:
            continue
        if item.arithmetic is Arithmetic.FLOAT:
            limit = widened(right, float(end.value), direction)
        elif item.arithmetic is Arithmetic.INTEGER:
            limit = right + end.value
        else:
            limit = right
        if isinstance(left, str | bytes):
            one, two = left[:8], limit[:8]
        else:
            one, two = order(left, low_nan[0]), order(limit, low_nan[1])
        if one == two:
            if not end.inclusive:
                return False
        elif (one < two) != (direction == 1):
            return False
    return True


def unscaled(value: Any, kind: str) -> int:
    return int(value.scaleb(int(kind.rstrip(")").split(",")[1])))


def carry_out(plan: Plan, database: duckdb.DuckDBPyConnection) -> set[tuple[int, int]]:
    spec = plan.spec
    edge = spec.edge(0, 1)
    sides = []
    for stream in spec.streams:
        keys = ", ".join(["k", *(duck(key.sql) for key in stream.keys)])
        where = f" WHERE {duck(stream.filter_sql)}" if stream.filter_sql else ""
        rows = database.execute(f"SELECT {keys} FROM {stream.name}{where}").fetchall()
        scaled = [
            (
                row[0],
                [
                    unscaled(value, key.type) if key.encoding is Encoding.DECIMAL else value
                    for key, value in zip(stream.keys, row[1:], strict=True)
                ],
            )
            for row in rows
        ]
        sides.append(scaled)
    kept = set()
    nan_low = [
        [key.encoding is Encoding.FLOAT_NAN_LOW for key in stream.keys] for stream in spec.streams
    ]
    for rk, left in sides[0]:
        for sk, right in sides[1]:
            if edge.equality is not None:
                one, two = left[edge.equality.left], right[edge.equality.right]
                if order(one) != order(two):
                    continue
            if all(
                within(
                    item,
                    left[item.left],
                    right[item.right],
                    (nan_low[0][item.left], nan_low[1][item.right]),
                )
                for item in edge.ranges
            ):
                kept.add((rk, sk))
    if spec.recheck_sql:
        kept &= set(
            database.execute(f"SELECT rk, sk FROM pairs WHERE {duck(spec.recheck_sql)}").fetchall()
        )
    return kept


offsets = st.sampled_from(["0", "1", "2", "5", "1.5", "0.005", "1D", "0.1D", "2L"])
numbers = st.sampled_from(["a", "b", "x", "y", "p"])
operators = st.sampled_from(["<", "<=", ">", ">=", "=", "<>", "<=>"])
ranges = st.sampled_from(["<", "<=", ">", ">="])


@st.composite
def side(draw: st.DrawFn, stream: str) -> str:
    base = f"{stream}.{draw(numbers)}"
    shape = draw(st.sampled_from(["{0}", "{0} + {1}", "{0} - {1}", "{1} + {0}", "-{0}"]))
    return str(shape.format(base, draw(offsets)))


@st.composite
def conjunct(draw: st.DrawFn) -> str:
    one, two = draw(st.sampled_from([("r", "s"), ("s", "r")]))
    column, other = f"{one}.{draw(numbers)}", f"{two}.{draw(numbers)}"
    c, d = draw(offsets), draw(offsets)
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return f"{draw(side(one))} {draw(operators)} {draw(side(two))}"
    if kind == 1:
        return f"abs({column} - {other}) {draw(ranges)} {c}"
    if kind == 2:
        return f"{column} BETWEEN {other} - {c} AND {other} + {d}"
    if kind == 3:
        return f"{column} - {other} {draw(ranges)} {c}"
    if kind == 4:
        return f"{column} - {other} BETWEEN -{c} AND {d}"
    if kind == 5:
        return f"{column} {draw(ranges)} {other} + {c} AND {other} {draw(ranges)} {column} + {d}"
    if kind == 6:
        return f"{column} - {other} {draw(ranges)} -{c} AND {other} - {column} {draw(ranges)} -{d}"
    if kind == 7:
        return f"{one}.n {draw(operators)} {two}.n"
    if kind == 8:
        return f"{column} {draw(operators)} {c}"
    return f"{column} - {other} {draw(ranges)} -{c} AND {column} {draw(ranges)} {other} + {d}"


predicates = st.recursive(
    conjunct(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}) AND ({pair[1]})"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}) OR ({pair[1]})"),
        inner.map(lambda text: f"NOT ({text})"),
    ),
    max_leaves=4,
)


@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=predicates, ansi=st.booleans())
def test_a_plan_keeps_the_pairs_that_the_predicate_keeps(
    text: str, ansi: bool, database: duckdb.DuckDBPyConnection
) -> None:
    plan = plan_join(
        streams=STREAMS,
        predicate=text,
        within=None,
        time={},
        options=JoinOptions(),
        analyst=DuckAnalyst.of(STREAMS, ansi=ansi),
    )
    expected = set(database.execute(f"SELECT r.k, s.k FROM r, s WHERE {duck(text)}").fetchall())
    assert carry_out(plan, database) == expected, plan.explain()


def test_the_oracle_can_fail(database: duckdb.DuckDBPyConnection) -> None:
    plan = plan_join(
        streams=STREAMS,
        predicate="r.a < s.a",
        options=JoinOptions(),
        analyst=DuckAnalyst.of(STREAMS),
    )
    wrong = set(database.execute("SELECT r.k, s.k FROM r, s WHERE r.a <= s.a").fetchall())
    assert carry_out(plan, database) != wrong
