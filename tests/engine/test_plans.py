"""Whole plans in process against DuckDB: any predicate, topology, batching, order and restart."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from tests.examples import examples
from thetastream.index import streamaware
from thetastream.options import JoinOptions
from thetastream.testing import (
    CASES,
    CRASH,
    RESTART,
    Batch,
    Case,
    InProcessJoin,
    batches_of,
    expected_rows,
    multiset,
    rows_of,
    run_script,
    units_for,
)
from thetastream.testing.cases import SCHEMA, SECOND, START, TIMES

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
BASELINES = ("split", "broadcast", "multi-chained")
"""Each case has one of them: they differ by their tables, which take no notice of the predicate."""
EVERY = [
    pytest.param(case, topology, id=f"{case.name}-{topology}")
    for number, case in enumerate(CASES)
    for topology in (*case.topologies, "auto")
    if topology not in BASELINES or topology == BASELINES[number % len(BASELINES)]
]


@pytest.fixture(autouse=True, scope="module")
def _few_rows() -> Iterator[None]:
    """Few rows are enough to make a value hot."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streamaware, "ENOUGH_ROWS", 4)
        patch.setattr(streamaware, "HOT_SHARE", 0.15)
        patch.setattr(streamaware, "COOL_SHARE", 0.1)
        yield


def shuffled(table: pa.Table, seed: int) -> pa.Table:
    return table.take(pa.array(np.random.default_rng(seed).permutation(table.num_rows)))


def script_of(
    left: pa.Table,
    right: pa.Table,
    cuts: list[tuple[int, int]],
    watermarks: list[int | None],
    sentinels: list[Any],
) -> list[Any]:
    """Batches cut from the tables, each with its watermark and what comes before it."""
    lefts = batches_of(left, [one for one, _ in cuts])
    rights = batches_of(right, [two for _, two in cuts])
    script: list[Any] = []
    for one, two, mark, sentinel in zip(lefts, rights, watermarks, sentinels, strict=True):
        if sentinel is not None:
            script.append(sentinel)
        script.append(Batch(left=one, right=two, watermark=mark))
    return script


@st.composite
def scripts(draw: st.DrawFn, *, windowed: bool, rows: int = 40) -> list[Any]:
    """Two streams, cut anyhow, with late rows, restarts and crashes at any batch."""
    seed = draw(st.integers(0, 10_000))
    left, right = rows_of(seed, rows), rows_of(seed + 1, rows, first=1000)
    if draw(st.booleans()):
        left, right = shuffled(left, seed), shuffled(right, seed + 1)
    cuts = draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=4))
    count = len(cuts) + 1
    marks: list[int | None] = [None] * count
    if windowed and draw(st.booleans()):
        seconds = sorted(
            draw(st.lists(st.none() | st.integers(0, 60), min_size=count, max_size=count)),
            key=lambda value: -1 if value is None else value,
        )
        marks = [None if value is None else START + value * SECOND for value in seconds]
    sentinels = draw(
        st.lists(st.sampled_from([None, RESTART, CRASH]), min_size=count, max_size=count)
    )
    return script_of(left, right, cuts, marks, sentinels)


def assert_right(
    predicate: str, script: list[Any], *, within: Any, time: dict[str, str], **settings: Any
) -> InProcessJoin:
    outcome = run_script(predicate, script, within=within, time=time, **settings)
    expected = expected_rows(predicate, script, within=within, time=time)
    found, wanted = multiset(outcome.rows), multiset(expected)
    plan = outcome.join.plan.explain()
    assert not wanted - found, f"lost\n{plan}"
    assert not found - wanted, f"too many\n{plan}"
    return outcome.join


@pytest.mark.parametrize(("case", "topology"), EVERY)
def test_each_case_under_each_topology(case: Case, topology: str) -> None:
    left, right = rows_of(7, 45), rows_of(8, 45, first=1000)
    marks = [None, START + 5 * SECOND, START + 20 * SECOND, START + 20 * SECOND]
    script = script_of(
        left, right, [(20, 5), (10, 20), (0, 5)], marks, [None, RESTART, CRASH, None]
    )
    units = units_for(topology) if topology != "auto" else "auto"
    assert_right(
        case.predicate,
        script,
        within=case.within,
        time=case.time,
        options=JoinOptions(topology=topology, units=units),  # type: ignore[arg-type]
        chunk_rows=9,
        pieces=2,
    )


_SIDES = (("r", "s"), ("s", "r"))
numbers = st.sampled_from(["k", "n", "x", "f", "p"])
columns = st.sampled_from(["k", "n", "x", "f", "p", "g", "d", "b"])
compare = st.sampled_from(["<", "<=", ">", ">="])
offset = st.sampled_from(["0", "1", "3", "0.25", "0.3D", "1.5"])


@st.composite
def conjuncts(draw: st.DrawFn) -> str:
    one, two = draw(st.sampled_from(_SIDES))
    same, number, c, d = draw(columns), draw(numbers), draw(offset), draw(offset)
    op = draw(compare)
    return draw(
        st.sampled_from(
            [
                f"{one}.{same} = {two}.{same}",
                f"{one}.k = {two}.n",
                f"{one}.k + 1 = {two}.k",
                f"concat({one}.g, 'x') = concat({two}.g, 'x')",
                f"abs({one}.{number} - {two}.{number}) {op} {c}",
                f"{one}.{number} BETWEEN {two}.{number} - {c} AND {two}.{number} + {d}",
                f"{one}.{number} - {two}.{number} {op} {c}",
                f"{one}.{same} {op} {two}.{same}",
                f"{one}.n {op} {two}.x",
                f"{one}.d {op} {two}.d + 1",
                f"{one}.d {op} {two}.t",
                f"{one}.p {op} {two}.n",
                f"upper({one}.g) = upper({two}.g)",
                f"abs({one}.n - {two}.k) {op} {c}",
                f"{one}.n + {two}.n {op} {c}",
                f"({one}.k = {two}.k OR {one}.g < {two}.g)",
                f"{one}.{same} <> {two}.{same}",
                f"{one}.g LIKE concat({two}.g, '%')",
                f"{one}.{same} <=> {two}.{same}",
                f"{one}.{number} {op} {c}",
                f"{one}.g IS NOT NULL",
                f"NOT {one}.b",
                f"{one}.t <= {two}.t + INTERVAL 7 SECONDS",
                f"NOT ({one}.k {op} {two}.k)",
            ]
        )
    )


predicates = st.lists(conjuncts(), min_size=1, max_size=3).map(" AND ".join)
withins = st.sampled_from(
    [
        None,
        "0 seconds",
        "5 seconds",
        "1 hour",
        ("0 seconds", "9 seconds"),
        ("4 seconds", "1 second"),
    ]
)


@examples(40, suppress_health_check=SLOW)
@given(data=st.data(), predicate=predicates, within=withins)
def test_random_predicates(data: st.DataObject, predicate: str, within: Any) -> None:
    script = data.draw(scripts(windowed=within is not None))
    units = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    schema = rows_of(0, 1).schema
    time = TIMES if within is not None else data.draw(st.sampled_from([{}, TIMES]))
    auto = InProcessJoin(predicate, (schema, schema), within=within, time=time)
    fitting = sorted({cost.routing.value for cost in auto.plan.costs})
    topology: Any = data.draw(st.sampled_from(fitting))
    assert_right(
        predicate,
        script,
        within=within,
        time=time,
        options=JoinOptions(topology=topology, units=units),
        chunk_rows=data.draw(st.sampled_from([1, 5, 1 << 16])),
        hashes=data.draw(st.sampled_from([None, 2])),
        pieces=data.draw(st.integers(1, 3)),
    )


@examples(15, suppress_health_check=SLOW)
@given(case=st.sampled_from(CASES), seed=st.integers(0, 1000), data=st.data())
def test_any_order_of_arrival_gives_the_same(case: Case, seed: int, data: st.DataObject) -> None:
    left, right = rows_of(seed, 30), rows_of(seed + 1, 30, first=1000)
    results = []
    for _ in range(2):
        order = data.draw(st.integers(0, 1000))
        cuts = data.draw(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=3))
        count = len(cuts) + 1
        script = script_of(
            shuffled(left, order), shuffled(right, order + 1), cuts, [None] * count, [None] * count
        )
        topology: Any = data.draw(st.sampled_from(case.topologies))
        outcome = run_script(
            case.predicate,
            script,
            within=case.within,
            time=case.time,
            options=JoinOptions(topology=topology, units=data.draw(st.integers(1, 5))),
        )
        results.append(multiset(outcome.rows))
    assert results[0] == results[1]


@examples(20, suppress_health_check=SLOW)
@given(script=scripts(windowed=True), case=st.sampled_from([c for c in CASES if c.within]))
def test_late_rows_are_counted_once(script: list[Any], case: Case) -> None:
    topology: Any = case.topologies[len(script) % len(case.topologies)]
    options = JoinOptions(topology=topology, units=units_for(topology, (2, 3)))
    outcome = run_script(
        case.predicate, script, within=case.within, time=case.time, options=options
    )
    late = 0
    place = SCHEMA.get_field_index("t")
    for batch in script:
        if isinstance(batch, Batch) and batch.watermark is not None:
            for stream, table in enumerate(batch.tables):
                travelling = outcome.join.duck.derive(stream, table)
                times = travelling.column(f"c_{place}").cast(pa.int64()).to_numpy()
                late += int((times < batch.watermark).sum())
    assert outcome.late == late


@examples(4, suppress_health_check=SLOW)
@given(seed=st.integers(0, 1000), batches=st.integers(1, 25), data=st.data())
def test_a_long_full_history(seed: int, batches: int, data: st.DataObject) -> None:
    left, right = rows_of(seed, 60), rows_of(seed + 1, 60, first=1000)
    size = max(1, 60 // batches)
    cuts = [(size, size)] * (batches - 1)
    sentinel = data.draw(st.sampled_from([None, RESTART]))
    script = script_of(left, right, cuts, [None] * batches, [sentinel] * batches)
    options: Any = JoinOptions(topology="contrand", units=(3, 2))
    join = assert_right("r.k = s.k AND r.n >= s.n", script, within=None, time={}, options=options)
    assert all(report.runs <= 2 * 3 * 4 for report in join.runner.reports)


NAN, INF = float("nan"), float("inf")
SPECIAL = [NAN, INF, -INF, 0.0, -0.0, 1.0, 1e308, 1.7e308, -1e308, -1.7e308, 5e-324, None]


@pytest.mark.parametrize(
    "predicate",
    [
        "r.x = s.x",
        "r.x < s.x",
        "r.x >= s.x",
        "r.x - s.x >= 1",
        "r.x - s.x > 1e308D",
        "r.x - s.x <= -1e308D",
        "s.x - r.x >= 0",
        "abs(r.x - s.x) <= 1e308D",
        "abs(r.x - s.x) <= 0D",
        "r.x BETWEEN s.x - 1e308D AND s.x + 1e308D",
        "r.x = s.x AND r.id = s.id",
    ],
)
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_special_floats(predicate: str, kind: pa.DataType) -> None:
    with np.errstate(over="ignore"):
        values = [None if v is None else float(np.float32(v)) for v in SPECIAL]
    drawn = SPECIAL if kind == pa.float64() else [*values, 3e38, -3e38, 2.0**-149]
    table = pa.table({"id": pa.array(range(len(drawn))), "x": pa.array(drawn, kind)})
    script = [Batch(left=table, right=table.slice(0, 5)), Batch(left=table, right=table.slice(5))]
    schema = table.schema
    join = InProcessJoin(predicate, (schema, schema))
    for topology in sorted({cost.routing.value for cost in join.plan.costs}):
        options: Any = JoinOptions(topology=topology, units=(2, 3))  # type: ignore[arg-type]
        assert_right(predicate, script, within=None, time={}, options=options)


@pytest.mark.parametrize("constant", ["1e38D", "3e38D", "1e39D", "-1e39D"])
@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
def test_singles_that_overflow_when_subtracted(op: str, constant: str) -> None:
    values = [3e38, -3e38, 1e38, 0.0, INF, -INF, NAN]
    table = pa.table({"id": pa.array(range(len(values))), "f": pa.array(values, pa.float32())})
    script = [Batch(left=table, right=table)]
    assert_right(f"r.f - s.f {op} {constant}", script, within=None, time={})


EDGES = [-(2**63), -(2**63) + 1, -(2**62), -1, 0, 1, 2**63 - 2, 2**63 - 1]
LIMITS = [*EDGES, 10**18, 2**62, *range(2**62 + 1, 2**62 + 12)]


@examples(40, suppress_health_check=SLOW)
@given(
    below=st.sampled_from([0, 1, 10, 2**31, 10**18 - 1]),
    above=st.sampled_from([0, 1, 10, 2**31, 10**18 - 1]),
    width=st.sampled_from(["auto", 1.0, 3.0, 1e18, 1e30]),
    units=st.integers(1, 16),
    topology=st.sampled_from(["band", "random"]),
)
@example(below=10, above=10, width=1.0, units=16, topology="band")
@example(below=10**18 - 1, above=10**18 - 1, width="auto", units=3, topology="band")
def test_bands_at_the_limits_of_64_bits(
    below: int, above: int, width: Any, units: int, topology: Any
) -> None:
    """In exact arithmetic, as ANSI Spark has it where it does not raise."""
    table = pa.table({"v": pa.array(LIMITS)})
    if topology != "band":
        width = "auto"
    options = JoinOptions(topology=topology, units=units, bucket_width=width)
    predicate = f"r.v - s.v BETWEEN -{below}L AND {above}L"
    found = run_script(predicate, [Batch(table, table)], options=options).rows
    wanted = [(a, b) for a in LIMITS for b in LIMITS if -below <= a - b <= above]
    assert multiset(found) == multiset(wanted)


@pytest.mark.parametrize(
    "predicate",
    [
        "r.w = s.w",
        "r.w < s.w",
        "r.w >= s.w",
        "abs(r.w - s.w) <= 0.0001",
        "r.w - s.w BETWEEN 0 AND 0.0002",
        "r.w <> s.w AND r.w <= s.w + 1",
    ],
)
def test_decimals_wider_than_64_bits(predicate: str) -> None:
    """Neighbours that share a double, which is all that the kernel sees of them."""
    base = 10**25
    whole = [base, base + 1, base + 2, -base, 1 - base, 0, 1, -1, 10**29, 10**29 - 1]
    values = [None, *(Decimal(value).scaleb(-4) for value in whole)]
    table = pa.table({"w": pa.array(values, pa.decimal128(30, 4))})
    script = [Batch(left=table, right=table.slice(0, 4)), Batch(left=table, right=table.slice(4))]
    assert_right(predicate, script, within=None, time={})


def test_many_equal_rows() -> None:
    table = rows_of(3, 1)
    many = pa.concat_tables([table] * 30)
    script = [Batch(left=many, right=many), CRASH, Batch(left=many, right=table)]
    for topology in next(case for case in CASES if case.name == "equality").topologies:
        units = units_for(topology, (3, 4))
        options: Any = JoinOptions(topology=topology, units=units)  # type: ignore[arg-type]
        outcome = run_script("r.p = s.p", script, options=options, chunk_rows=11)
        assert len(outcome.rows) == 60 * 31


def test_results_leave_in_chunks() -> None:
    table = rows_of(3, 1)
    many = pa.concat_tables([table] * 50)
    join = InProcessJoin("r.p = s.p", (table.schema, table.schema), chunk_rows=13)
    batches = [join.duck.derive(stream, many) for stream in (0, 1)]
    results = join.runner.batch([[batches[0]], [batches[1]]])
    assert sum(batch.num_rows for batch in results) == 2500
    assert max(batch.num_rows for batch in results) <= 13


def test_a_pair_exactly_as_far_apart_as_the_window_matches() -> None:
    def at(*micros: int) -> pa.Table:
        return pa.table({"t": pa.array(micros, pa.timestamp("us", tz="UTC"))})

    left = at(START)
    right = at(*(START + d for d in (-2_000_001, -2_000_000, 0, 3_000_000, 3_000_001)))
    window = ("2 seconds", "3 seconds")
    rows = run_script("TRUE", [Batch(left, right)], within=window, time=TIMES).rows
    apart = sorted((two - one).total_seconds() for one, two in rows)
    assert apart == [-2.0, 0.0, 3.0]


def test_a_row_at_the_watermark_is_on_time() -> None:
    def at(*micros: int) -> pa.Table:
        return pa.table({"t": pa.array(micros, pa.timestamp("us", tz="UTC"))})

    script = [
        Batch(left=at(START), right=at()),
        Batch(left=at(), right=at(START + 4, START + 5), watermark=START + 5),
    ]
    outcome = run_script("TRUE", script, within="1 second", time=TIMES)
    assert len(outcome.rows) == 1
    assert outcome.late == 1
