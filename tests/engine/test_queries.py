"""Queries in process against DuckDB: aggregates, groups, windows, NULLs, restarts, crashes."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.examples import examples
from thetastream.errors import PredicateError, WindowError
from thetastream.options import JoinOptions
from thetastream.testing import CRASH, RESTART, Batch, batches_of, rows_of
from thetastream.testing.cases import SECOND, START, TIMES
from thetastream.testing.queries import expected_query, run_query

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
CLOSE = "abs(epoch_us(r.t) - epoch_us(s.t)) <= {}"
JOINS = (
    ("r.k = s.k", "20 seconds"),
    ("r.n > s.n", None),
    ("r.n <= s.n", "3 seconds"),
    ("abs(r.n - s.n) <= 2", "20 seconds"),
    ("r.k = s.k AND r.p < s.p", None),
    ("r.n <= s.n AND r.x > s.x", "15 seconds"),
    ("r.g = s.g", "20 seconds"),
    ("r.g = s.g AND r.k = s.k", None),
    ("r.g = s.g AND r.n < s.n AND r.d = s.d", "30 seconds"),
    ("r.k = s.k OR r.g = s.g", "8 seconds"),
)
AGGREGATES = (
    "count(*)",
    "count(r.g)",
    "count(s.x)",
    "sum(r.n)",
    "sum(s.n)",
    "sum(s.n * 2 + 1)",
    "sum(r.p)",
    "sum(s.p)",
    "avg(s.n)",
    # Spark rounds the average of a decimal to four more digits; DuckDB's is a double.
    "round(avg(r.p), 4)",
    "min(r.x)",
    "max(s.x)",
    "min(s.g)",
    "max(r.g)",
    "max(s.d)",
    "min(r.t)",
    "count(DISTINCT r.g)",
    "count(DISTINCT s.k)",
    "sum(r.n) + count(*)",
    "sum(CASE WHEN r.b THEN s.n END)",
    "sum(r.n * s.n)",
)
GROUPS = ("r.k", "s.g", "r.b", "s.d", "r.n + 1", "r.k + s.n")


def number(value: Any) -> Any:
    """Values of two engines in one form: numbers as rounded fractions, NaN as itself."""
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value):
            return repr(value)
        # Of two zeros the smallest may be either.
        return float(f"{value + 0.0:.9g}")
    if isinstance(value, int | Decimal | Fraction) and not isinstance(value, bool):
        return float(f"{float(value):.9g}")
    return value


def same(got: list[Any], expected: list[Any]) -> None:
    def counted(rows: list[Any]) -> Counter[Any]:
        return Counter(tuple(repr(number(value)) for value in row) for row in rows)

    assert counted(got) == counted(expected)


def script_of(seed: int, cuts: list[tuple[int, int]], between: list[Any], late: bool) -> list[Any]:
    lefts = batches_of(rows_of(seed, 40), [one for one, _ in cuts])
    rights = batches_of(rows_of(seed + 1, 40, first=1000), [two for _, two in cuts])
    script: list[Any] = []
    for place, (left, right) in enumerate(zip(lefts, rights, strict=True)):
        if between[place] is not None:
            script.append(between[place])
        mark = START + 15 * SECOND * place if late and place else None
        script.append(Batch(left=left, right=right, watermark=mark))
    return script


@st.composite
def scripts(draw: st.DrawFn, *, windowed: bool) -> list[Any]:
    cuts = draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=3))
    between = draw(
        st.lists(
            st.sampled_from([None, RESTART, CRASH]),
            min_size=len(cuts) + 1,
            max_size=len(cuts) + 1,
        )
    )
    late = windowed and draw(st.booleans())
    return script_of(draw(st.integers(0, 9999)), cuts, between, late)


@examples(80, suppress_health_check=SLOW)
@given(st.data())
def test_any_aggregation(data: st.DataObject) -> None:
    predicate, within = data.draw(st.sampled_from(JOINS))
    groups = data.draw(st.lists(st.sampled_from(GROUPS), max_size=2, unique=True))
    aggregates = data.draw(
        st.lists(st.sampled_from(AGGREGATES), min_size=0 if groups else 1, max_size=4, unique=True)
    )
    script = data.draw(scripts(windowed=within is not None))
    select = [f"{sql} AS c{n}" for n, sql in enumerate([*groups, *aggregates])]
    having = data.draw(st.sampled_from(["", " HAVING count(*) > 2"]))
    group = f" GROUP BY {', '.join(groups)}" if groups else ""
    clause = "" if within is None else f" WITHIN {within}"
    text = f"SELECT {', '.join(select)} FROM r, s WHERE {predicate}{clause}{group}{having}"
    time = TIMES if within is not None else {}
    every = data.draw(st.sampled_from([1, 1, 3]))
    last = [step for step in script if isinstance(step, Batch)][-1]
    nothing = Batch(*(table.slice(0, 0) for table in last.tables), watermark=last.watermark)
    # What is kept back leaves with one of the batches after the last.
    script += [nothing] * (every - 1)
    running = run_query(
        text,
        script,
        time=time,
        chunk_rows=data.draw(st.sampled_from([3, 1 << 16])),
        # Few different hashes: tuples of different values share one.
        hashes=data.draw(st.sampled_from([None, 3])),
        options=JoinOptions(
            units=data.draw(st.sampled_from([(1, 1), (2, 2)])),
            aggregation=data.draw(st.sampled_from(["auto", "auto", "enumerate"])),
            update_batches=every,
        ),
    )
    limit = "" if within is None else f" AND {CLOSE.format(int(within.split()[0]) * SECOND)}"
    oracle = f"SELECT {', '.join(select)} FROM r, s WHERE ({predicate}){limit}{group}{having}"
    expected = expected_query(oracle, script, time=time)
    got = running.rows()
    if not got and not groups and not running.out:
        # A global aggregate of nothing is one row; Spark makes it, not the units.
        assert having or len(expected) == 1
        return
    same(got, expected)


@examples(30, suppress_health_check=SLOW)
@given(st.data())
def test_windows_of_the_newest_member(data: st.DataObject) -> None:
    predicate, within = data.draw(st.sampled_from([j for j in JOINS if j[1] is not None]))
    size = data.draw(st.sampled_from([1, 7, 60]))
    group = data.draw(st.sampled_from(["", ", r.k", ", s.g", ", r.b, s.d"]))
    script = data.draw(scripts(windowed=True))
    head = "window.start AS w, window.end AS e, count(*) AS n, sum(s.n) AS t, max(r.id) AS m"
    time_of = data.draw(st.sampled_from(["time", "greatest(r.t, s.t)", "greatest(s.t, r.t)"]))
    text = (
        f"SELECT {head}{group} FROM r JOIN s ON {predicate} WITHIN {within} "
        f"GROUP BY window({time_of}, '{size} seconds'){group}"
    )
    running = run_query(text, script, time=TIMES, chunk_rows=5)
    newest = f"greatest(epoch_us(r.t), epoch_us(s.t)) // {size * SECOND} * {size * SECOND}"
    oracle = (
        f"SELECT {newest} AS w, {newest} + {size * SECOND} AS e, count(*), sum(s.n), max(r.id)"
        f"{group} FROM r JOIN s ON ({predicate}) AND "
        f"{CLOSE.format(int(within.split()[0]) * SECOND)} GROUP BY w, e{group}"
    )
    same(running.rows(), expected_query(oracle, script, time=TIMES))


@examples(30, suppress_health_check=SLOW)
@given(st.data())
def test_distinct_within_the_window(data: st.DataObject) -> None:
    predicate, within = data.draw(st.sampled_from([j for j in JOINS if j[1] is not None]))
    items = data.draw(st.sampled_from(["r.k", "s.g", "r.k, s.g", "r.k, s.b", "r.n + s.n AS t"]))
    script = data.draw(scripts(windowed=True))
    text = f"SELECT DISTINCT {items} FROM r, s WHERE {predicate} WITHIN {within}"
    running = run_query(text, script, time=TIMES)
    length = int(within.split()[0]) * SECOND
    slices = f"greatest(epoch_us(r.t), epoch_us(s.t)) // {length}"
    oracle = (
        f"SELECT * EXCLUDE (slice) FROM (SELECT DISTINCT {items}, {slices} AS slice "
        f"FROM r, s WHERE ({predicate}) AND {CLOSE.format(length)})"
    )
    same(running.rows(), expected_query(oracle, script, time=TIMES))


@pytest.mark.parametrize(
    ("text", "oracle"),
    [
        ("SELECT * FROM r, s WHERE r.k = s.k", None),
        (
            "SELECT a.id, b.id FROM r a JOIN r AS b ON a.n > b.n",
            "SELECT a.id, b.id AS i FROM r a JOIN r b ON a.n > b.n",
        ),
        ("SELECT a.id AS x, b.n + a.n AS y FROM r a, s b WHERE a.k = b.k AND a.b", None),
        ("select upper(r.g) as u, s.* from r join s on r.g = s.g where s.n > 0", None),
        (
            "SELECT ONLINE r.k, sum(s.n) FROM r, s WHERE r.n > s.n GROUP BY r.k;",
            "SELECT r.k, sum(s.n) FROM r, s WHERE r.n > s.n GROUP BY r.k",
        ),
        ("SELECT r.k AS q, count(*) FROM r, s WHERE r.n > s.n GROUP BY q", None),
        ("SELECT r.k AS q, count(*) FROM r, s WHERE r.n > s.n GROUP BY 1", None),
        ("SELECT upper(r.g) AS u, count(*) + 1 AS c FROM r, s WHERE r.n > s.n GROUP BY r.g", None),
        ("SELECT r.g, count(*) FROM r CROSS JOIN s GROUP BY r.g", None),
    ],
)  # fmt: skip
def test_forms_of_a_query(text: str, oracle: str | None) -> None:
    script = script_of(5, [(10, 10), (10, 10)], [None] * 3, late=False)
    same(run_query(text, script).rows(), expected_query((oracle or text).rstrip(";"), script))


@pytest.mark.parametrize(
    ("text", "oracle"),
    [
        ("SELECT concat(upper(r.g), '!') AS u, count(*) AS c FROM r, s WHERE r.n > s.n"
         " AND r.g > '' GROUP BY upper(r.g)", None),
        ("SELECT (r.n % 2) * 3 AS m, count(*) AS c FROM r, s WHERE r.k = s.k"
         " GROUP BY r.n % 2", None),
        ("SELECT r.k, count(*) AS c FROM r, s WHERE r.n > s.n GROUP BY r.k HAVING c > 20",
         "SELECT r.k, count(*) AS c FROM r, s WHERE r.n > s.n GROUP BY r.k HAVING count(*) > 20"),
        ("SELECT r.id AS a, ')(' AS c FROM r, s WHERE r.g = '(' OR r.k = s.k; -- done",
         "SELECT r.id AS a, ')(' AS c FROM r, s WHERE r.g = '(' OR r.k = s.k"),
        ("SELECT 'online' q, r.id AS a FROM r, s WHERE r.k = s.k", None),
        ("SELECT ONLINE -r.k AS m, s.id AS a FROM r, s WHERE r.k = s.k",
         "SELECT -r.k AS m, s.id AS a FROM r, s WHERE r.k = s.k"),
        ("SELECT r.k IS NULL, r.k IS NOT NULL, CAST(r.k AS string), s.id FROM r, s WHERE r.n > s.n",
         "SELECT r.k IS NULL, r.k IS NOT NULL, CAST(r.k AS text), s.id FROM r, s WHERE r.n > s.n"),
        ("SELECT concat(r.g, '`\\u0068ole7`') AS z FROM r, s WHERE r.k = s.k AND r.g > ''",
         "SELECT concat(r.g, '`hole7`') AS z FROM r, s WHERE r.k = s.k AND r.g > ''"),
        ("-- about\nSELECT /* what */ r.id AS within, s.id AS b FROM r, s WHERE r.k = s.k",
         "SELECT r.id AS w, s.id AS b FROM r, s WHERE r.k = s.k"),
    ],
)  # fmt: skip
def test_odd_texts(text: str, oracle: str | None) -> None:
    script = script_of(5, [(10, 10), (10, 10)], [None] * 3, late=False)
    same(run_query(text, script).rows(), expected_query(oracle or text, script))


@pytest.mark.parametrize(
    "clause", ["WITHIN 5s", "WITHIN 5 s", "within\n5\nseconds", "WITHIN '5' s"]
)
def test_window_clauses_in_odd_forms(clause: str) -> None:
    script = script_of(9, [(10, 10), (10, 10)], [None] * 3, late=False)
    text = f"SELECT r.id AS a, s.id AS b FROM r JOIN s ON r.n > s.n AND r.g <> '(' {clause}"
    oracle = (
        "SELECT r.id, s.id FROM r JOIN s ON r.n > s.n AND r.g <> '('"
        " AND abs(epoch_us(s.t) - epoch_us(r.t)) <= 5000000"
    )
    same(run_query(text, script, time=TIMES).rows(), expected_query(oracle, script))


def test_what_follows_the_join_belongs_to_the_checkpoint() -> None:
    script = script_of(1, [], [None], late=False)
    texts = [
        "SELECT r.k, sum(r.n * s.n) AS x FROM r, s WHERE r.k = s.k GROUP BY r.k",
        "SELECT r.k, max(r.n * s.n) AS x FROM r, s WHERE r.k = s.k GROUP BY r.k",
        "SELECT r.k, sum(r.n * s.n) AS y FROM r, s WHERE r.k = s.k GROUP BY r.k HAVING y > 1",
    ]
    one, two, three = (run_query(text, script).spec.fingerprint() for text in texts)
    assert one != two
    assert one == three
    first, second = (
        run_query(
            f"SELECT count(*) AS c FROM r, s WHERE r.k = s.k WITHIN 1 s GROUP BY window({window})",
            script,
            time=TIMES,
        ).spec.fingerprint()
        for window in ("time, '10 s'", "time, '20 s', '10 s'")
    )
    assert first != second


def test_time_that_may_mean_two_things() -> None:
    table = rows_of(1, 5)
    renamed = table.rename_columns(["time" if name == "t" else name for name in table.column_names])
    script = [Batch(left=renamed, right=table)]
    text = "SELECT count(*) FROM r, s WHERE r.k = s.k WITHIN 1 s GROUP BY window(time, '1 s')"
    with pytest.raises(ValueError, match=r"write r\.time, or greatest"):
        run_query(text, script, time={"r": "time", "s": "t"})


@pytest.mark.parametrize(
    ("clause", "condition"),
    [
        ("WITHIN 5 seconds", "BETWEEN -5000000 AND 5000000"),
        ("WITHIN INTERVAL 5 SECONDS", "BETWEEN -5000000 AND 5000000"),
        ("WITHIN INTERVAL '5' SECOND", "BETWEEN -5000000 AND 5000000"),
        ("WITHIN 5 seconds PRECEDING", "BETWEEN -5000000 AND 0"),
        ("WITHIN 5 seconds FOLLOWING", "BETWEEN 0 AND 5000000"),
        ("WITHIN 1 second PRECEDING AND 1 minute FOLLOWING", "BETWEEN -1000000 AND 60000000"),
        ("WINDOW w AS (RANGE INTERVAL '10' SECOND PRECEDING)", "BETWEEN -10000000 AND 10000000"),
    ],
)
def test_window_clauses(clause: str, condition: str) -> None:
    script = script_of(9, [(10, 10), (10, 10)], [None] * 3, late=False)
    text = f"SELECT r.id AS a, s.id AS b FROM r JOIN s ON r.n > s.n {clause}"
    oracle = (
        "SELECT r.id, s.id FROM r JOIN s ON r.n > s.n"
        f" AND epoch_us(s.t) - epoch_us(r.t) {condition}"
    )
    same(run_query(text, script, time=TIMES).rows(), expected_query(oracle, script))


REFUSED = [
    ("SELECT window.foo FROM r, s WITHIN 1 s GROUP BY window(time, '1 s')", "window.foo", "start"),
    (
        "SELECT window.`start`` IS NULL OR reflect('a','b') = ``g_0` AS x, r.k FROM r, s"
        " WITHIN 1 s GROUP BY window(time, '1 s'), r.k",
        "window.",
        "window.start",
    ),
    ("SELECT a.id FROM r a JOIN s b JOIN r c ON b.k = c.k ON a.k = b.k", "", "inside a join"),
    ("SELECT r.* EXCEPT (k) FROM r, s", "", "EXCEPT"),
    ("SELECT x.s.r.* FROM r, s", "", "name of one relation"),
    ("SELECT a.k FROM r AS a(k, id), s", "", "with or without AS"),
    ("SELECT struct(r.k) AS j FROM r, s", "struct(r.k)", "named_struct"),
    ("SELECT r.id FROM r JOIN s ON", "ON", "nothing follows ON"),
    ("SELECT r.id FROM r, s GROUP BY", "GROUP BY", "nothing follows GROUP BY"),
    ("SELECT FROM r, s", "SELECT", "missing"),
    ("SELECT r.id, FROM r, s", ",", "missing"),
    ("FROM r, s", "FROM", "begin with SELECT"),
    ("SELECT r.id FROM r, s WHERE r.k = s.k CONNECT BY r.k = s.k", "", "CONNECT BY"),
    (
        "SELECT max(window.start) FROM r, s WITHIN 1 s GROUP BY window(time, '1 s')",
        "",
        "already groups by",
    ),
    ("SELECT window(time, '1 s') AS w FROM r, s WITHIN 1 s", "", "GROUP BY"),
    ("SELECT r.k FROM r, s GROUP BY " + "9" * 5000, "", "no item"),
    ("SELECT count_if(r.b) FROM r, s", "count_if(r.b)", "not a supported aggregate"),
    (
        "SELECT count(*) FROM r, s WITHIN 1 s GROUP BY window(time, '2 s', '1 s', '1 s')",
        "",
        "slide",
    ),
    ("SELECT * FROM r LEFT JOIN s ON r.k = s.k", "s", "inner"),
    ("SELECT * FROM r JOIN s USING (k)", "", "ON a.k = b.k"),
    ("SELECT * FROM r, s WHERE r.k = s.k ORDER BY 1", "", "ORDER BY"),
    ("SELECT * FROM r, s WHERE r.k = s.k LIMIT 3", "3", "LIMIT"),
    ("SELECT * FROM r, (SELECT * FROM s) x", "", "subquery"),
    ("SELECT * FROM r, t", "t", "no stream 't'"),
    ("SELECT r.k, count(*) FROM r, s", "r.k", "neither grouped by nor aggregated"),
    ("SELECT median(r.n) FROM r, s", "median(r.n)", "median"),
    ("SELECT sum(sum(r.n)) FROM r, s", "", "inside another"),
    ("SELECT sum(DISTINCT r.n) FROM r, s", "", "DISTINCT"),
    ("SELECT count(r.n, s.n) FROM r, s", "", "one argument"),
    ("SELECT count(*) FROM r, s WHERE count(*) > 1", "", "count"),
    ("SELECT x.* FROM r, s", "", "no stream 'x'"),
    ("SELECT * FROM r, r", "r", "two relations"),
    ("SELECT r.k FROM r UNION SELECT s.k FROM s", "", "set operation"),
    ("DELETE FROM r", "", "SELECT"),
    ("SELECT 1", "", "FROM"),
    ("SELECT count(*) FILTER (WHERE r.b) FROM r, s", "", "CASE WHEN"),
    ("SELECT reflect('java.lang.Runtime', 'x') FROM r, s", "reflect", "reaches outside"),
    ("SELECT r.k FROM r, s GROUP BY CUBE (r.k)", "", "CUBE"),
    ("SELECT DISTINCT count(*) FROM r, s WITHIN 1 second", "", "DISTINCT"),
    ("SELECT r.k AS a, s.k AS a FROM r, s", "", "called 'a'"),
    ("SELECT * FRM r, s", "", "not in Spark SQL"),
    ("SELECT 'x FROM r, s", "", "does not end"),
    ("WITH q AS (SELECT 1) SELECT * FROM r, s", "", "WITH"),
]


@pytest.mark.parametrize(("text", "place", "words"), REFUSED, ids=[text for text, _, _ in REFUSED])
def test_what_is_refused_says_where_and_what_to_do(text: str, place: str, words: str) -> None:
    script = script_of(1, [], [None], late=False)
    with pytest.raises(ValueError, match=r"What to do") as caught:
        run_query(text, script, time=TIMES)
    message = str(caught.value)
    assert words in message
    assert "^" in message
    if place and isinstance(caught.value, PredicateError):
        carets = next(line for line in message.splitlines() if set(line.strip()) == {"^"})
        begin = carets.index("^")
        line = message.splitlines()[message.splitlines().index(carets) - 1]
        assert line[begin:].startswith(place)


@pytest.mark.parametrize(
    "clause", ["WITHIN", "WITHIN 5", "WITHIN 5 months", "WITHIN 1 s WITHIN 2 s", "WITHIN PRECEDING"]
)
def test_windows_that_say_nothing(clause: str) -> None:
    script = script_of(1, [], [None], late=False)
    with pytest.raises(WindowError, match="WITHIN") as caught:
        run_query(f"SELECT * FROM r, s WHERE r.k = s.k {clause}", script, time=TIMES)
    assert "^" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT DISTINCT r.k FROM r, s WHERE r.k = s.k",
        "SELECT count(*) FROM r, s WHERE r.k = s.k GROUP BY window(time, '1 minute')",
        "SELECT DISTINCT r.k FROM r, s WHERE r.k = s.k AND r.t <= s.t",
    ],
)
def test_what_needs_a_window(text: str) -> None:
    script = script_of(1, [], [None], late=False)
    with pytest.raises(WindowError, match="WITHIN 10 minutes"):
        run_query(text, script, time=TIMES)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("SELECT count(*) FROM r, s WHERE r.n > s.n", "in place"),
        ("SELECT sum(r.n * s.n) FROM r, s WHERE r.n > s.n", "reads both streams"),
        ("SELECT r.n + s.n, count(*) FROM r, s WHERE r.n > s.n GROUP BY 1", "reads both streams"),
        ("SELECT count(*) FROM r, s WHERE r.g = s.g AND r.k = s.k", "in place"),
        ("SELECT count(*) FROM r, s WHERE r.g = s.g AND r.x = s.x", "re-check"),
        ("SELECT count(*) FROM r, s WHERE r.g < s.g", "re-check"),
        ("SELECT DISTINCT r.k FROM r, s WHERE r.k = s.k WITHIN 1 second", "in place"),
    ],
)
def test_the_plan_says_where_it_aggregates(text: str, place: str) -> None:
    script = script_of(1, [], [None], late=False)
    running = run_query(text, script, time=TIMES if "WITHIN" in text else {})
    assert place in running.plan.explain()


def test_only_what_is_needed_travels() -> None:
    script = script_of(1, [], [None], late=False)
    running = run_query("SELECT r.id AS a, s.g FROM r, s WHERE r.k = s.k AND r.b", script)
    columns = [[column.name for column in stream.columns] for stream in running.spec.streams]
    assert columns == [["id"], ["g"]]
    counting = run_query("SELECT s.g, sum(r.p) FROM r, s WHERE r.k = s.k GROUP BY s.g", script)
    columns = [[column.name for column in stream.columns] for stream in counting.spec.streams]
    assert columns == [["p"], ["g"]]


def test_views_wait_for_their_batches() -> None:
    script = script_of(3, [(10, 10)] * 3, [None] * 4, late=False)
    text = "SELECT r.k, count(*) AS c, sum(s.p) AS p FROM r, s WHERE r.n > s.n GROUP BY r.k"
    sent = []
    running = run_query(text, script[:1], options=JoinOptions(update_batches=2))
    for step in script[1:]:
        sent.append(len(running.out))
        running.batch(step.tables, None)
    sent.append(len(running.out))
    assert sent[0] == 0
    assert 0 < sent[1] == sent[2] < sent[3]
    same(running.rows(), expected_query(text, script))
    with pytest.raises(ValueError, match="update_batches"):
        run_query(
            "SELECT DISTINCT r.k FROM r, s WHERE r.k = s.k WITHIN 1 second",
            script,
            time=TIMES,
            options=JoinOptions(update_batches=2),
        )


def test_items_without_a_name_are_called_what_they_are() -> None:
    script = script_of(1, [], [None], late=False)
    text = "SELECT upper(r.g), count(*), sum(s.n) + 1 FROM r, s WHERE r.k = s.k GROUP BY upper(r.g)"
    names = [name for _, name in run_query(text, script).query.finish.items]
    assert names == ["upper(r.g)", "count(*)", "sum(s.n) + 1"]
    text = "SELECT window.end, window, -r.k FROM r, s WITHIN 1 s GROUP BY window(time, '1 s'), -r.k"
    names = [name for _, name in run_query(text, script, time=TIMES).query.finish.items]
    assert names == ["end", "window", "-r.k"]
