"""The stream-aware topology in process against DuckDB: skew, drift, restarts, odd values."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from thetastream.engine.measures import imbalance, per_unit
from thetastream.errors import OptionError
from thetastream.index import streamaware
from thetastream.options import JoinOptions
from thetastream.spec import HOT_GROUPS, SketchOptions
from thetastream.testing import (
    CRASH,
    RESTART,
    Batch,
    InProcessJoin,
    expected_rows,
    multiset,
    rows_of,
    run_script,
)
from thetastream.testing.cases import SECOND, START, TIMES

BAND, LESS, BOTH = "r.v - s.v BETWEEN -1 AND 2", "r.v > s.v", "r.v <= s.v AND r.w > s.w"


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are enough to make a value hot."""
    monkeypatch.setattr(streamaware, "ENOUGH_ROWS", 20)
    monkeypatch.setattr(streamaware, "HOT_SHARE", 0.1)
    monkeypatch.setattr(streamaware, "COOL_SHARE", 0.05)


def stream(values: Any, second: float, first: int, seed: int = 0) -> pa.Table:
    """Rows with these values, all within a second, in the order of their numbers."""
    count = len(values)
    times = START + int(second * SECOND) + np.arange(count) % SECOND
    return pa.table(
        {
            "id": pa.array(np.arange(first, first + count)),
            "v": pa.array(np.asarray(values, dtype=np.int64)),
            "w": pa.array(np.random.default_rng(seed).integers(0, 9, count)),
            "t": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )


def zipf(random: np.random.Generator, exponent: float, count: int, values: int = 200) -> Any:
    """Values whose frequencies follow Zipf's law; 0 is uniform."""
    weights = 1 / np.arange(1, values + 1) ** exponent
    ranks = random.choice(values, count, p=weights / weights.sum())
    return ranks * 37 % values


def heat_of(join: InProcessJoin) -> Counter[int]:
    """The hot values of the first stream, over all units, as they are stored."""
    found: Counter[int] = Counter()
    for state in join.runner.state.values():
        found.update(json.loads(state.manifest or "")["indexes"][0]["heat"])
    return found


def played(predicate: str, script: list[Any], options: JoinOptions, within: str) -> InProcessJoin:
    outcome = run_script(
        predicate, script, within=within, time=TIMES, options=options, chunk_rows=500, pieces=2
    )
    wanted = expected_rows(predicate, script, within=within, time=TIMES)
    assert wanted
    assert multiset(outcome.rows) == multiset(wanted)
    return outcome.join


@pytest.mark.parametrize(
    ("predicate", "exponent"),
    [(BAND, exponent) for exponent in (0.0, 0.5, 1.0, 1.5, 2.0)] + [(LESS, 1.5), (BOTH, 1.0)],
)
def test_zipf_with_restarts_at_any_batch(predicate: str, exponent: float) -> None:
    random = np.random.default_rng(int(10 * exponent))
    script: list[Any] = []
    for number in range(5):
        script += [RESTART] if number % 2 else [CRASH] if number == 4 else []
        tables = [
            stream(zipf(random, exponent, 45), number, 1000 * number + 500 * side, side)
            for side in (0, 1)
        ]
        mark = None if number < 2 else START + (number - 2) * SECOND
        script.append(Batch(*tables, watermark=mark))
    hot = tuple(dict.fromkeys(zipf(random, exponent, 5).tolist()))
    alone = played(predicate, script, JoinOptions(topology="stream-aware", units=3), "2 seconds")
    named = JoinOptions(topology="stream-aware", units=(4, 3), hot_values=hot)
    played(predicate, script, named, "2 seconds")
    if exponent >= 1.5:
        assert heat_of(alone)[0], "the most frequent value is hot"
    if exponent == 0:
        assert not heat_of(alone)


@pytest.mark.parametrize("seed", range(2))
def test_the_hot_value_drifts(seed: int) -> None:
    """Every few batches another value is hot; sub-indexes are small and a sketch forgets fast."""
    random = np.random.default_rng(seed)
    script: list[Any] = []
    for number in range(15):
        hot = 10 * (number // 3)
        values = np.where(random.random(40) < 0.5, hot, random.integers(0, 60, 40))
        others = random.integers(0, 60, 5)
        script += [(), (RESTART,), (CRASH,)][int(random.integers(3))]
        mark = None if number < 3 else START + (number - 3) * SECOND
        tables = stream(values, number, 1000 * number), stream(others, number, 1000 * number)
        script.append(Batch(*tables, watermark=mark))
    options = JoinOptions(topology="stream-aware", units=(2, 1))
    join = played("r.v < s.v", script, options, "4 seconds")
    assert 40 in heat_of(join)


def test_the_index_has_a_sketch_of_the_size_that_is_asked_for() -> None:
    """And a restart may ask for another one: hot values are found again, and no row is lost."""
    random = np.random.default_rng(5)
    first = SketchOptions(filter_keys=4, sketch_bytes=1024, half_life=80)
    second = SketchOptions(filter_keys=7, sketch_bytes=2048)
    batches = [
        Batch(*(stream(zipf(random, 1.5, 40), n, 1000 * n + 500 * side) for side in (0, 1)))
        for n in range(6)
    ]
    schemas = [table.schema for table in batches[0].tables]
    found: list[Any] = []
    stored = None
    for sketch, some in ((first, batches[:3]), (second, batches[3:5]), (None, batches[5:])):
        options = JoinOptions(topology="stream-aware", units=2, full_history=True, sketch=sketch)
        join = InProcessJoin(LESS, schemas, options=options)
        if stored is not None:
            join.restart(stored)
        for step in some:
            found += join.batch(step)
        stored = join.stored()
        size = SketchOptions() if sketch is None else sketch
        for state in join.runner.state.values():
            for one in json.loads(state.manifest or "")["indexes"]:
                kept = one["sketch"]
                assert (kept["filter"], kept["width"]) == (size.filter_keys, size.width)
                if sketch is first:
                    assert kept["rows"][0] < 120, "older rows count half"
        assert heat_of(join)
    assert multiset(found) == multiset(expected_rows(LESS, batches))


def test_cooled_rows_are_found_until_they_expire() -> None:
    hot, cold = [5] * 60, list(range(100, 160))
    probe = stream([6], 5, 9000)
    script: list[Any] = [Batch(stream(hot, 0, 0), stream([], 0, 0))]
    for number in range(1, 30):
        script.append(Batch(stream(cold, number / 10, 100 * number), stream([], 0, 0)))
    script += [RESTART, Batch(stream([], 0, 0), probe, watermark=START + 3 * SECOND)]
    options = JoinOptions(topology="stream-aware", units=1)
    join = played("r.v < s.v", script, options, "5 seconds")
    assert heat_of(join) == {}
    late = Batch(stream([], 0, 0), stream([6], 5.5, 9001), watermark=START + 5_200_000)
    assert len(join.batch(late)) == 0, "the others had a later time, and it went alone"


def test_frequent_values_are_reported() -> None:
    """So that they can be named."""
    rows = stream([7] * 30 + [9] * 20 + list(range(100, 140)), 0, 0)
    for options, wanted in (
        (JoinOptions(topology="stream-aware", units=1), [("r", "7", 30), ("r", "9", 20)]),
        (JoinOptions(units=1), []),
    ):
        join = InProcessJoin("r.v < s.v", (rows.schema, rows.schema), options=options)
        join.batch(Batch(rows, rows.slice(0, 0)))
        assert join.reports[0].heavy == wanted


# -- units for values that are named ------------------------------------------------------------


def stored_at(join: InProcessJoin, stream_number: int) -> dict[int, Counter[Any]]:
    """The values of each unit's stored rows of a stream."""
    found: dict[int, Counter[Any]] = {}
    place = join.spec.stages[0].place(stream_number)
    assert place is not None
    for (_, unit), state in join.runner.state.items():
        values: Counter[Any] = Counter()
        index = json.loads(state.manifest or "")["indexes"][place]
        for sub in (*index["hot"], *index["cold"]):
            for run in sub["runs"]:
                for part in run:
                    batch = pa.ipc.open_stream(state.parts[part[0]]).read_all()
                    values.update(batch.column(1).to_pylist())
        found[unit] = values
    return found


@pytest.mark.parametrize(("hot_units", "units"), [("auto", 5), (1, 5), (3, 4)])
def test_named_values_have_units_of_their_own(hot_units: Any, units: int) -> None:
    random = np.random.default_rng(8)
    values = zipf(random, 1.0, 1_000)
    named = tuple(value for value, _ in Counter(values.tolist()).most_common(4))
    options = JoinOptions(
        topology="stream-aware", units=units, hot_values=named, hot_units=hot_units
    )
    schema = stream([], 0, 0).schema
    join = InProcessJoin("abs(r.v - s.v) <= 1", (schema, schema), options=options)
    join.batch(Batch(stream(values, 0, 0), stream(values[:300], 0, 0)))
    apart = 2 if hot_units == "auto" else hot_units
    for side in (0, 1):
        for unit, found in stored_at(join, side).items():
            assert found, "every unit stores rows"
            if unit >= units - apart:
                assert set(found) <= set(named)
            else:
                assert not set(found) & set(named)
    loads = [found.total() for unit, found in stored_at(join, 0).items() if unit >= units - apart]
    assert imbalance(loads).ratio < 1.3, "hot rows are spread evenly over their units"
    reports = per_unit(join.reports, lambda report: report.rows_in)
    assert sum(reports.values()) == 1_300


def test_a_restart_may_name_other_values_and_more_units() -> None:
    random = np.random.default_rng(2)
    tables = [
        (stream(zipf(random, 1.2, 80), n, 100 * n), stream(zipf(random, 1.2, 60), n, 100 * n))
        for n in range(4)
    ]
    script = [Batch(*pair) for pair in tables]
    schema = tables[0][0].schema
    rows: list[Any] = []
    state = None
    for step, options in zip(
        script,
        (
            JoinOptions(topology="stream-aware", units=3),
            JoinOptions(topology="stream-aware", units=3, hot_values=(0, 37)),
            JoinOptions(topology="stream-aware", units=4, hot_values=(74,), hot_units=3),
            JoinOptions(topology="stream-aware", units=4),
        ),
        strict=True,
    ):
        join = InProcessJoin("r.v > s.v", (schema, schema), options=options)
        if state is not None:
            join.restart(state)
        rows += join.batch(step)
        state = join.stored()
    assert multiset(rows) == multiset(expected_rows("r.v > s.v", script))


ODD: list[Any] = [
    ("r.x < s.x", (float("nan"), -0.0, 1.5)),
    ("abs(r.f - s.f) <= 0.25D", (0.1, float("nan"), float("-inf"))),
    ("r.g >= s.g", ("abcdefgh", "")),
    ("r.p > s.p", (Decimal("0.25"), 1, 2.5)),
    ("r.d < s.d", (datetime.date(2024, 2, 27),)),
    ("r.b < s.b", (True,)),
    ("r.n < s.n AND r.t >= s.t", (3, -2)),
]


@pytest.mark.parametrize(("predicate", "hot"), ODD)
def test_odd_values(predicate: str, hot: tuple[Any, ...]) -> None:
    left, right = rows_of(31, 60), rows_of(32, 60, first=1000)
    script = [
        Batch(left.slice(0, 30), right.slice(0, 20)),
        RESTART,
        Batch(left.slice(30), right.slice(20)),
    ]
    options = JoinOptions(topology="stream-aware", units=3, hot_values=hot)
    outcome = run_script(predicate, script, options=options)
    assert multiset(outcome.rows) == multiset(expected_rows(predicate, script))
    by = outcome.join.spec.stages[0].stores[0].group_by
    assert by.hot is not None
    assert len(by.hot.codes) == len(hot)
    hottest = outcome.join.runner.tables[0].stages[0][0].assigned[-HOT_GROUPS:]
    assert set(hottest) == {1, 2}


def test_zeros_are_one_value() -> None:
    schema = rows_of(1, 1).schema
    options = JoinOptions(topology="stream-aware", units=2, hot_values=(0.0, -0.0))
    join = InProcessJoin("r.x < s.x", (schema, schema), options=options)
    assert [store.group_by.hot.codes for store in join.spec.stages[0].stores] == [(0,), (0,)]  # type: ignore[union-attr]


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("predicate", "given", "message"),
    [
        ("r.n < s.n", {"units": 3, "hot_values": (1,), "hot_units": 3}, "leaves none of the 3"),
        ("r.n < s.n", {"units": (4, 2), "hot_values": (1,), "hot_units": 2}, "units of s for its"),
        ("r.n < s.n", {"units": 1, "hot_values": (1,)}, "at least 2 units for each stream"),
        ("r.n < s.n", {"hot_values": ("x",)}, "no value of `r`.`n`, of type bigint"),
        ("r.n < s.n", {"hot_values": (1.5,)}, "no value of"),
        ("r.n < s.n", {"hot_values": (None,)}, "no value of"),
        ("r.n < s.n", {"hot_values": (True,)}, "no value of"),
        ("r.k < s.k", {"hot_values": (2**40,)}, "no value of"),
        ("r.p < s.p", {"hot_values": (Decimal("0.125"),)}, "no value of"),
        ("r.d < s.d", {"hot_values": ("2024-02-27",)}, "no value of"),
        ("r.k = s.k", {}, 'hot_keys="auto" or topology="contrand", which spread'),
        ("r.k = s.k AND r.n < s.n", {}, "the predicate has an equality"),
        ("r.n < s.n OR r.k = s.k", {}, "no inequality and no band"),
    ],
)
def test_plans_that_do_not_fit(predicate: str, given: dict[str, Any], message: str) -> None:
    schema = rows_of(1, 1).schema
    options = JoinOptions(topology="stream-aware", **{"units": 4, **given})
    with pytest.raises(OptionError) as caught:
        InProcessJoin(predicate, (schema, schema), options=options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        ("r.k = s.k", "is for inequalities and bands"),
        ("r.k <> s.k", "needs an inequality or a band"),
    ],
)
def test_the_index_alone_needs_an_inequality_as_well(predicate: str, message: str) -> None:
    schema = rows_of(1, 1).schema
    with pytest.raises(OptionError, match=message):
        InProcessJoin(
            predicate,
            (schema, schema),
            within="1 second",
            time=TIMES,
            options=JoinOptions(index="stream-aware"),
        )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hot_values": (1,)}, 'add topology="stream-aware"'),
        ({"hot_values": [1], "topology": "stream-aware"}, "is not a tuple of values"),
        ({"hot_values": 5, "topology": "stream-aware"}, "with a comma"),
        ({"hot_units": 2, "topology": "stream-aware"}, "add hot_values=..."),
        ({"hot_units": 0, "hot_values": (1,), "topology": "stream-aware"}, "give a number from 1"),
        ({"hot_units": True, "hot_values": (1,), "topology": "stream-aware"}, "not a number"),
        ({"hot_units": (1, 2), "hot_values": (1,), "topology": "stream-aware"}, "not a number"),
    ],
)
def test_options_that_make_no_sense(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        JoinOptions(**given)
    assert message in str(caught.value)


def test_explain_says_what_is_apart() -> None:
    schema = rows_of(1, 1).schema
    options = JoinOptions(topology="stream-aware", units=4, hot_values=(1, 2))
    text = InProcessJoin("r.n < s.n", (schema, schema), options=options).plan.explain()
    assert "4 for r, 4 for s; 2 of each for hot values" in text
    assert "stream-aware: hot values apart, chained sorted runs for the others" in text
    assert "a frequent value of the driving key" in text
    assert "Hot values have 2 of 4 units" in text
    assert "more than 50% of the rows" in text
