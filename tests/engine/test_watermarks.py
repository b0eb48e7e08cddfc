"""Which rows are late: one rule, whatever the shape of the join and wherever its window is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from thetastream.options import JoinOptions
from thetastream.spec import Clock
from thetastream.testing.cases import SCHEMA, SECOND, START, TIMES, rows_of
from thetastream.testing.inprocess import Batch, expected_rows, multiset, run_script, stream_names
from thetastream.testing.queries import run_query

STAMP = pa.timestamp("us", tz="UTC")


def rows(*micros: int | None, k: int = 1, first: int = 0) -> pa.Table:
    """Rows that match each other, with those times."""
    return pa.table(
        {
            "id": pa.array(range(first, first + len(micros)), pa.int64()),
            "k": pa.array([k] * len(micros), pa.int32()),
            "t": pa.array(micros, STAMP),
        }
    )


# -- before 1970 ----------------------------------------------------------------------------------

OLD = Batch(left=rows(-5 * SECOND, -1, 0), right=rows(-5 * SECOND, 0, None, 3 * SECOND))


def test_the_first_watermark_is_no_watermark_to_a_join() -> None:
    """Spark begins with 1970, whatever the rows; nothing is late before it has moved."""
    script = [OLD, Batch(left=rows(-9 * SECOND), right=rows(), watermark=0), OLD]
    outcome = run_script("r.k = s.k", script, within="4 seconds", time=TIMES)
    # Twice the same, so each of the pairs of one batch comes four times; -9 s finds -5 s.
    apart = [(0, 0), (1, 1), (1, 3), (2, 1), (2, 3)]
    assert sorted((row[0], row[3]) for row in outcome.rows) == sorted(4 * apart + 2 * [(0, 0)])
    assert outcome.late == 0


@pytest.mark.parametrize("aggregation", ["auto", "enumerate"])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT DISTINCT r.id AS a, s.id AS b FROM r, s WHERE r.k = s.k WITHIN 4 seconds",
        "SELECT r.id AS a, s.id AS b FROM r, s WHERE r.k = s.k WITHIN 4 seconds"
        " GROUP BY r.id, s.id, window(time, '4 seconds')",
    ],
)
def test_rows_before_1970_are_late_where_results_have_a_time(text: str, aggregation: Any) -> None:
    """Spark would refuse or drop their results: they are left out, and counted."""
    running = run_query(text, [OLD], time=TIMES, options=JoinOptions(aggregation=aggregation))
    assert sorted(running.rows()) == [(2, 1), (2, 3)]
    assert sum(report.late for report in running.runner.reports) == 3


def test_running_aggregates_have_all_rows() -> None:
    text = "SELECT count(*) AS c FROM r, s WHERE r.k = s.k WITHIN 4 seconds"
    assert run_query(text, [OLD], time=TIMES).rows() == [(5,)]


def test_clocks() -> None:
    assert [clock.watermark(0) for clock in Clock] == [None, None, 0]
    assert [clock.watermark(7) for clock in Clock] == [None, 7, 7]


# -- a window between some of the streams ---------------------------------------------------------

NEAR = "{0}.t BETWEEN {1}.t - INTERVAL 4 SECONDS AND {1}.t + INTERVAL 4 SECONDS"
PARTLY: list[tuple[str, dict[str, Any]]] = [
    ("r.k = s.k AND s.k = t.k AND " + NEAR.format("r", "t"), {}),
    ("r.k = s.k AND s.k = t.k AND " + NEAR.format("r", "t"), {"scheme": "tree"}),
    ("r.k = s.k AND s.n <= t.n AND " + NEAR.format("t", "s"), {}),
    ("r.k = s.k AND s.n <= t.n AND " + NEAR.format("t", "s"), {"scheme": "tree"}),
    ("r.k = s.k AND s.k = t.k AND t.k = u.k AND " + NEAR.format("t", "u"), {}),
    ("r.k = s.k AND s.k = t.k AND t.k = u.k AND " + NEAR.format("r", "u"), {}),
    ("r.k = s.k AND s.k = t.k AND t.k = u.k AND r.t <= t.t", {}),
]


def count_of(predicate: str) -> int:
    return 4 if "u." in predicate else 3


@examples(30)
@given(case=st.sampled_from(PARTLY), data=st.data())
def test_all_streams_go_by_the_watermark(case: tuple[str, dict[str, Any]], data: Any) -> None:
    """Also those that the window is not about, and those that are joined before it matters."""
    predicate, options = case
    names = stream_names(count_of(predicate))
    needed = {name for name in names if f"{name}.t" in predicate}
    timed = needed | data.draw(st.sets(st.sampled_from(names)))
    steps = []
    watermark = None
    for batch in range(4):
        tables = [
            rows_of(data.draw(st.integers(0, 999)), data.draw(st.integers(0, 6)), first=100 * n)
            for n in range(len(names))
        ]
        steps.append(Batch(*(moved(one, 3 * batch) for one in tables), watermark=watermark))
        step = data.draw(st.sampled_from([0, 2, 5])) * SECOND
        watermark = max(watermark or START, START + 3 * batch * SECOND) + step
    time = {name: "t" for name in names if name in timed}
    join = run_script(
        predicate, steps, time=time, options=JoinOptions(full_history=True, units=2, **options)
    )
    assert multiset(join.rows) == multiset(expected_rows(predicate, steps, time=time))


def moved(table: pa.Table, seconds: int) -> pa.Table:
    """The rows so much later, with few values of `k` and `n` so that many match."""
    micros = table.column("t").cast(pa.int64())
    later = [None if v is None else v + seconds * SECOND for v in micros.to_pylist()]
    small = [None if v is None else v % 2 for v in table.column("k").to_pylist()]
    table = table.set_column(SCHEMA.get_field_index("t"), "t", pa.array(later, STAMP))
    return table.set_column(SCHEMA.get_field_index("k"), "k", pa.array(small, pa.int32()))


@pytest.mark.parametrize("scheme", ["auto", "tree"])
@pytest.mark.parametrize("late", range(3))
def test_a_late_row_of_any_stream_makes_nothing(late: int, scheme: Any) -> None:
    """The window is between `r` and `t` alone."""
    predicate = "r.k = s.k AND s.k = t.k AND " + NEAR.format("r", "t")
    none, one = rows(), rows(START)
    first = [none if n == late else one for n in range(3)]
    then = [rows(START - 1) if n == late else none for n in range(3)]
    steps = [Batch(*first), Batch(*then, watermark=START)]
    options = JoinOptions(full_history=True, units=2, scheme=scheme)
    join = run_script(predicate, steps, time="t", options=options)
    assert join.rows == []
    assert join.late == 1


@pytest.mark.parametrize("scheme", ["auto", "tree"])
@pytest.mark.parametrize("without", range(3))
def test_a_row_without_a_time_makes_nothing(without: int, scheme: Any) -> None:
    predicate = "r.k = s.k AND s.k = t.k AND " + NEAR.format("r", "t")
    tables = [rows(None if n == without else START) for n in range(3)]
    options = JoinOptions(full_history=True, units=2, scheme=scheme)
    assert run_script(predicate, [Batch(*tables)], time="t", options=options).rows == []


@pytest.mark.parametrize("scheme", ["auto", "tree"])
def test_a_stream_without_a_time_is_never_late(scheme: Any) -> None:
    """Its new rows find what came long before, so that the others are kept for it."""
    predicate = "r.k = s.k AND s.k = t.k AND " + NEAR.format("r", "t")
    none, one = rows(), rows(START)
    steps = [
        Batch(one, none, one),
        *(Batch(none, none, none, watermark=START + n * 60 * SECOND) for n in range(1, 4)),
        Batch(none, rows(None), none, watermark=START + 999 * SECOND),
    ]
    options = JoinOptions(full_history=True, units=2, scheme=scheme)
    join = run_script(predicate, steps, time={"r": "t", "t": "t"}, options=options)
    assert len(join.rows) == 1
