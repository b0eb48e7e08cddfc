"""What a predicate from outside may not do, and that Spark never gets the user's own text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from thetastream.errors import ParseError, RefusedExpressionError
from thetastream.planner import Plan, parse_query
from thetastream.planner.expression import render
from thetastream.planner.names import Names
from thetastream.planner.parser import parse_predicate
from thetastream.spec import ColumnSpec
from thetastream.spec.codec import to_json
from thetastream.testing.duck import connection

KINDS = {"id": "int", "name": "string", "tags": "array<int>", "at": "timestamp"}
STREAMS = {
    stream: [ColumnSpec(name=name, type=kind) for name, kind in KINDS.items()] for stream in "rs"
}
NAMES = Names(STREAMS, case_sensitive=False)


@pytest.mark.parametrize(
    "text",
    [
        "reflect('java.lang.System', 'exit', 1) = 'x'",
        "JAVA_METHOD('java.lang.Runtime', 'getRuntime') = 'x'",
        "try_reflect('a', 'b') = 'x'",
        "r.id = (SELECT max(id) FROM t)",
        "r.id IN (SELECT 1)",
        "EXISTS (SELECT 1)",
        "r.id = s.id; DROP TABLE t",
        "rand() < 0.5",
        "r.name = uuid()",
        "shuffle(r.tags) = s.tags",
        "r.at < current_timestamp",
        "r.at < current_timestamp()",
        "r.at < now()",
        "r.day = current_date",
        "r.day = current_date()",
        "r.at < localtimestamp()",
        "unix_timestamp() > r.id",
        "monotonically_increasing_id() = r.id",
        "input_file_name() = r.name",
        "spark_partition_id() = 0",
        "current_user() = r.name",
        "current_user = r.name",
        "session_user() = r.name",
        "version() = r.name",
        "current_database() = r.name",
        "sum(r.id) > 1",
        "count(*) > 1",
        "count(DISTINCT r.id) > 1",
        "row_number() OVER (ORDER BY r.id) = 1",
        "r.id + rank() OVER (PARTITION BY s.id ORDER BY s.id) = 1",
        "explode(r.tags) = 1",
        "inline(r.tags) = 1",
        "window(r.at, '5 minutes') = s.at",
        "r.id = ?",
        "r.id = :limit",
        "r.id = {x}",
        "r.id = ${x}",
        "* = 1",
        "r.* = s.*",
        "no_such_function(r.id) = 1",
        "r.f(1) = 1",
        "`reflect`('a', 'b') = 'x'",
        "raise_error('x') = 1",
        "CAST(r.name AS TIME(3)) = s.name",
        "transform(r.tags, v -> rand()) = s.tags",
        "CASE WHEN rand() < 1 THEN true ELSE false END",
        "TRANSFORM(r.id) USING 'cat' = 1",
        "r.id = s.id AS x",
    ],
)
def test_refused(text: str, plan: Callable[..., Plan]) -> None:
    with pytest.raises((RefusedExpressionError, ParseError)) as caught:
        plan(text)
    assert "^" in str(caught.value)


@pytest.mark.parametrize("name", ["reflect", "rand", "java_method", "current_user"])
def test_naming_a_dangerous_function_does_not_allow_it(
    name: str, plan: Callable[..., Plan]
) -> None:
    with pytest.raises(RefusedExpressionError):
        plan(f"{name}('a') = r.name", options={"functions": (name,)})


PATTERNS = {
    "r.name RLIKE s.name": "rlike",
    "r.name REGEXP '(a+)+$'": "rlike",
    "NOT r.name rlike 'x'": "rlike",
    "rlike(r.name, 'x')": "rlike",
    "regexp(r.name, 'x')": "regexp",
    "Regexp_Like(r.name, 'x')": "regexp_like",
    "regexp_count(r.name, 'x') = 1": "regexp_count",
    "regexp_extract(r.name, 'x') = 'x'": "regexp_extract",
    "regexp_extract_all(r.name, 'x')[0] = 'x'": "regexp_extract_all",
    "regexp_instr(r.name, 'x') = 1": "regexp_instr",
    "regexp_replace(r.name, 'x', 'y') = 'y'": "regexp_replace",
    "regexp_substr(r.name, 'x') = 'x'": "regexp_substr",
    "split(r.name, '(a|aa)+$')[0] = 'x'": "split",
    "split(r.name, ',')[0] = s.name": "split",
    "str_to_map(r.name, '(a+)+$')['x'] = 'x'": "str_to_map",
    "parse_url(r.name, 'QUERY', '(a+)+$') = 'x'": "parse_url",
    "transform(r.tags, v -> length(regexp_replace(r.name, 'x', 'y'))) = s.tags": "regexp_replace",
}
"""Regular expressions, and the function to name if they are to be allowed."""


@pytest.mark.parametrize("text", PATTERNS)
def test_regular_expressions_must_be_allowed(text: str, plan: Callable[..., Plan]) -> None:
    name = PATTERNS[text]
    with pytest.raises(RefusedExpressionError, match="regular expression") as caught:
        plan(text)
    assert f'JoinOptions(functions=("{name}",))' in caught.value.hint
    assert f'functions = ["{name}"]' in caught.value.hint
    tree = parse_predicate(text, NAMES, functions=(name.upper(),))
    assert "r.name" in render(tree, NAMES.qualified)


@pytest.mark.parametrize("allowed", ["rlike", "regexp", "regexp_like"])
def test_whoever_allows_one_form_of_rlike_allows_all(allowed: str) -> None:
    for text in ("r.name RLIKE 'x'", "regexp(r.name, 'x')", "regexp_like(r.name, 'x')"):
        parse_predicate(text, NAMES, functions=(allowed,))
    with pytest.raises(RefusedExpressionError):
        parse_predicate("split(r.name, 'x')[0] = 'x'", NAMES, functions=(allowed,))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT regexp_replace(r.name, 'x', 'y') AS n FROM r, s WHERE r.id = s.id WITHIN 1 minute",
        "SELECT r.id FROM r, s WHERE r.id = s.id AND r.name RLIKE 'x' WITHIN 1 minute",
        "SELECT r.id, count(*) AS n FROM r, s WHERE r.id = s.id WITHIN 1 minute"
        " GROUP BY r.id HAVING split(r.id, 'x')[0] = 'x'",
    ],
)
def test_regular_expressions_of_a_query_must_be_allowed(query: str) -> None:
    with pytest.raises(RefusedExpressionError, match="regular expression"):
        parse_query(query, STREAMS, case_sensitive=False)


@pytest.mark.parametrize(
    "text",
    [
        "r.name LIKE 'a%b'",
        "r.name ILIKE s.name",
        "contains(r.name, s.name)",
        "split_part(r.name, ',', 1) = s.name",
        "str_to_map(r.name)['x'] = 'x'",
        "parse_url(r.name, 'HOST') = s.name",
    ],
)
def test_texts_are_matched_without_regular_expressions(text: str) -> None:
    parse_predicate(text, NAMES)


def test_own_functions_must_be_named(plan: Callable[..., Plan]) -> None:
    with pytest.raises(RefusedExpressionError, match="JoinOptions") as caught:
        plan("r.id = s.id AND distance_km(r.x, s.x) < 5")
    assert caught.value.text[caught.value.start : caught.value.end] == "distance_km(r.x, s.x)"
    connection().execute("CREATE OR REPLACE TEMP MACRO distance_km(a, b) AS abs(a - b)")
    spec = plan(
        "r.id = s.id AND distance_km(r.x, s.x) < 5", options={"functions": ("Distance_KM",)}
    ).spec
    assert spec.recheck_sql == "DISTANCE_KM(s0_1, s1_1) < 5"


def test_comments_do_not_reach_spark(plan: Callable[..., Plan]) -> None:
    spec = plan("r.id /* secret */ = s.id -- more\n AND r.name LIKE /*+ hint */ s.name").spec
    text = to_json(spec)
    assert "secret" not in text
    assert "more" not in text
    assert "hint" not in text


def test_a_name_cannot_break_out_of_its_quotes(plan: Callable[..., Plan]) -> None:
    streams = {
        "r": [ColumnSpec(name="a`) OR (1=1", type="int")],
        "s": [ColumnSpec(name="b", type="int")],
    }
    spec = plan("r.`a``) OR (1=1` = s.b", streams=streams).spec
    assert spec.streams[0].filter_sql == "`r`.`a``) OR (1=1` IS NOT NULL"


@pytest.mark.parametrize("depth", [500, 5000])
def test_deep_nesting_is_refused_and_does_not_crash(depth: int, plan: Callable[..., Plan]) -> None:
    with pytest.raises((ParseError, RefusedExpressionError)):
        plan("(" * depth + "r.id = s.id" + ")" * depth)


def test_long_conjunctions_are_fine(plan: Callable[..., Plan]) -> None:
    text = " AND ".join(f"r.id <> s.id + {i}" for i in range(200))
    assert len(plan(text).conjuncts) == 200
