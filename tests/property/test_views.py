"""Views against the same aggregates over the results themselves."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import thetastream.engine.consumers.totals as totals_module
import thetastream.engine.consumers.view as view_module
from tests.examples import examples
from thetastream.engine.runner import Runner
from thetastream.errors import SumOverflowError
from thetastream.options import JoinOptions
from thetastream.spec import Fold, Measure, Value, ViewSpec
from thetastream.testing import Batch, InProcessJoin, batches_of, rows_of
from thetastream.testing.cases import SCHEMA, SECOND, START, TIMES
from thetastream.testing.duck import DuckJoin
from thetastream.topology.makers import make

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
COLUMN = {name: place for place, name in enumerate(SCHEMA.names)}
EXACT = ("id", "k", "n", "p")
NUMERIC = (*EXACT, "x", "f")
PREDICATES = (
    ("r.k = s.k", "20 seconds"),
    ("r.k = s.k", None),
    ("r.n > s.n", "3 seconds"),
    ("r.n <= s.n", None),
    ("abs(r.n - s.n) <= 2", "20 seconds"),
    ("r.p BETWEEN s.p - 0.25 AND s.p + 1", None),
    ("r.k = s.k AND r.n - s.n BETWEEN -3 AND 4", ("5 seconds", "15 seconds")),
    ("r.n <= s.n AND r.x > s.x", "15 seconds"),
    ("TRUE", ("1 second", "2 seconds")),
)


@contextmanager
def thresholds(low: bool) -> Iterator[None]:
    """With low thresholds nothing is listed that can be folded, and views leave at once."""
    with ExitStack() as stack:
        if low:
            lowered = {"_PIECE": 1, "_ENUMERATION": 0}
            stack.enter_context(patch.multiple(view_module, **lowered))
            stack.enter_context(patch.object(totals_module, "_VIEW_ROWS", 3))
        yield


def plain(value: Any) -> Any:
    """Values that group and compare as Spark has it: NaN equals itself, -0.0 is 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def folded(fold: Fold, values: list[Any]) -> Any:
    known = [value for value in values if value is not None]
    if fold is Fold.COUNT:
        return len(known)
    if not known:
        return None
    if fold is Fold.SUM:
        with localcontext(prec=60):
            return sum(known[1:], known[0])

    def rank(value: Any) -> Any:
        return (isinstance(value, float) and math.isnan(value), 0 if value != value else value)

    return (min if fold is Fold.MIN else max)(known, key=rank)


def wanted(view: ViewSpec, results: list[pa.RecordBatch]) -> dict[Any, list[Any]]:
    members: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for batch in results:
        for row in batch.to_pylist():
            key = [plain(row[f"s{value.stream}_{value.column}"]) for value in view.groups]
            if view.slice is not None:
                times = [row[f"s{n}_{COLUMN['t']}"] for n in (0, 1)]
                micros = max(round(time.timestamp() * SECOND) for time in times)
                key.append(micros // view.slice)
            members[tuple(key)].append(row)
    return {
        key: [
            len(rows)
            if measure.value is None
            else folded(
                measure.fold,
                [row[f"s{measure.value.stream}_{measure.value.column}"] for row in rows],
            )
            for measure in view.measures
        ]
        for key, rows in members.items()
    }


def merged(view: ViewSpec, views: list[pa.RecordBatch]) -> dict[Any, list[Any]]:
    """What the merger makes of the units' views of all batches."""
    found: dict[Any, list[list[Any]]] = defaultdict(list)
    for batch in views:
        for row in batch.to_pylist():
            key = [plain(row[f"g_{number}"]) for number in range(len(view.groups))]
            if view.slice is not None:
                key.append(round(row["newest"].timestamp() * SECOND) // view.slice)
            found[tuple(key)].append([row[f"m_{number}"] for number in range(len(view.measures))])
    merger = {Fold.COUNT: Fold.SUM, Fold.SUM: Fold.SUM, Fold.MIN: Fold.MIN, Fold.MAX: Fold.MAX}
    return {
        key: [
            folded(merger[measure.fold], [row[number] for row in rows])
            for number, measure in enumerate(view.measures)
        ]
        for key, rows in found.items()
    }


def close(one: Any, two: Any, *, scale: float = 1.0) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        if math.isnan(one) or math.isnan(two):
            return math.isnan(one) and math.isnan(two)
        return one == two or abs(one - two) <= 1e-12 * max(abs(one), abs(two), scale)
    return bool(one == two)


def views_and_results(
    join: InProcessJoin, view: ViewSpec, script: list[Batch], chunk_rows: int
) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    spec = dataclasses.replace(join.spec, view=view)
    routing = join.plan.tree.steps[0].routing
    aggregating = Runner(spec, make(spec, routing), chunk_rows=chunk_rows, validate=True)
    listing = Runner(join.spec, make(join.spec, routing))
    duck = DuckJoin(join.spec)
    views: list[pa.RecordBatch] = []
    results: list[pa.RecordBatch] = []
    for batch in script:
        inputs = [[duck.derive(n, table)] for n, table in enumerate(batch.tables)]
        views += aggregating.batch(inputs, batch.watermark)
        results += listing.batch(inputs, batch.watermark)
    counted = sum(report.results for report in aggregating.reports)
    assert counted == sum(batch.num_rows for batch in results)
    return views, results


def check(join: InProcessJoin, view: ViewSpec, script: list[Batch], chunk_rows: int = 7) -> int:
    views, results = views_and_results(join, view, script, chunk_rows)
    expected = wanted(view, results)
    got = merged(view, views)
    assert got.keys() == expected.keys()
    for key, row in expected.items():
        for measure, one, two in zip(view.measures, row, got[key], strict=True):
            assert close(one, two), (key, measure, one, two)
    return sum(batch.num_rows for batch in results)


@st.composite
def view_specs(draw: st.DrawFn, *, windowed: bool) -> ViewSpec:
    streams = st.integers(0, 1)
    groups = draw(
        st.lists(
            st.builds(
                lambda stream, name: Value(stream=stream, column=COLUMN[name]),
                streams,
                st.sampled_from(["k", "g", "x", "b", "d", "t"]),
            ),
            max_size=3,
            unique=True,
        )
    )

    def measure(fold: Fold, stream: int, numeric: str, any_name: str) -> Measure:
        name = numeric if fold is Fold.SUM else any_name
        return Measure(fold=fold, value=Value(stream=stream, column=COLUMN[name]))

    measures = draw(
        st.lists(
            st.builds(
                measure,
                st.sampled_from(list(Fold)),
                streams,
                st.sampled_from(NUMERIC),
                st.sampled_from(SCHEMA.names),
            )
            | st.just(Measure(fold=Fold.COUNT)),
            min_size=1,
            max_size=4,
        )
    )
    # Sums of doubles cannot be compared where -1e300 meets 1: their order decides.
    measures = [m for m in measures if not _awkward(m)] or [Measure(fold=Fold.COUNT)]
    slice_length = draw(st.sampled_from([None, SECOND, 7 * SECOND, 90 * SECOND]))
    return ViewSpec(
        groups=tuple(groups),
        measures=tuple(measures),
        slice=slice_length if windowed else None,
    )


def _awkward(measure: Measure) -> bool:
    return (
        measure.fold is Fold.SUM
        and measure.value is not None
        and (SCHEMA.names[measure.value.column] in ("x", "f"))
    )


@examples(80, suppress_health_check=SLOW)
@given(st.data())
def test_any_view_of_any_join(data: st.DataObject) -> None:
    predicate, within = data.draw(st.sampled_from(PREDICATES))
    seed = data.draw(st.integers(0, 9999))
    cuts = data.draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=3))
    lefts = batches_of(rows_of(seed, 40), [one for one, _ in cuts])
    rights = batches_of(rows_of(seed + 1, 40, first=1000), [two for _, two in cuts])
    marks: list[int | None] = [None] * len(lefts)
    if within is not None and data.draw(st.booleans()):
        marks = [START + 20 * SECOND * place for place in range(len(lefts))]
    script = [
        Batch(left=left, right=right, watermark=mark)
        for left, right, mark in zip(lefts, rights, marks, strict=True)
    ]
    join = InProcessJoin(
        predicate,
        (SCHEMA, SCHEMA),
        within=within,
        time=TIMES if within is not None else {},
        options=JoinOptions(units=data.draw(st.sampled_from([(1, 1), (2, 3)])), topology="random"),
    )
    view = data.draw(view_specs(windowed=within is not None))
    with thresholds(data.draw(st.booleans())):
        check(join, view, script, chunk_rows=data.draw(st.sampled_from([1, 7, 1000])))


BIG = pa.schema(
    [("g", pa.int32()), ("v", pa.int64()), ("w", pa.decimal128(38, 2)), ("y", pa.float64())]
)


def big_rows(seed: int, count: int) -> pa.Table:
    random = np.random.default_rng(seed)
    edge = [2**63 - 1, -(2**63), 2**62, -1, 0, None]
    wide = [Decimal(10**30) - Decimal("0.01"), -Decimal(10**30), Decimal("0.01"), None, Decimal(7)]
    return pa.table(
        [
            pa.array(random.integers(0, 5, count), pa.int32()),
            pa.array([edge[i] for i in random.integers(0, len(edge), count)], pa.int64()),
            pa.array([wide[i] for i in random.integers(0, len(wide), count)], pa.decimal128(38, 2)),
            pa.array(random.normal(0, 1, count) * 10.0 ** random.integers(-8, 8, count)),
        ],
        schema=BIG,
    )


@pytest.mark.parametrize("predicate", ["r.g > s.g", "abs(r.g - s.g) <= 1", "r.g = s.g", "TRUE"])
@pytest.mark.parametrize("group", [None, 0, 1])
def test_sums_of_large_numbers_are_exact_and_of_floats_close(
    predicate: str, group: int | None
) -> None:
    values = [Value(stream=stream, column=column) for stream in (0, 1) for column in (1, 2, 3)]
    view = ViewSpec(
        groups=() if group is None else (Value(stream=group, column=0),),
        measures=tuple(Measure(fold=Fold.SUM, value=value) for value in values),
    )
    script = [Batch(left=big_rows(seed, 60), right=big_rows(seed + 50, 60)) for seed in range(3)]
    join = InProcessJoin(predicate, (BIG, BIG))
    views, results = views_and_results(join, view, script, 1 << 16)
    got = merged(view, views)
    rows: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for batch in results:
        for row in batch.to_pylist():
            rows[() if group is None else (row[f"s{group}_0"],)].append(row)
    assert got.keys() == rows.keys()
    for key, members in rows.items():
        for value, found in zip(values, got[key], strict=True):
            column = [row[f"s{value.stream}_{value.column}"] for row in members]
            known = [item for item in column if item is not None]
            exact = sum(Fraction(item) for item in known)
            if value.column < 3:
                assert Fraction(found) == exact
            else:
                rounding = 2.0**-48 * math.fsum(abs(item) for item in known)
                assert abs(Fraction(found) - exact) <= rounding


def test_a_sum_that_no_decimal_holds_is_an_error() -> None:
    wide = pa.table(
        [
            pa.array([1] * 20, pa.int32()),
            pa.array([1] * 20, pa.int64()),
            pa.array([Decimal(10) ** 35] * 20, pa.decimal128(38, 2)),
            pa.array([1.0] * 20),
        ],
        schema=BIG,
    )
    measure = Measure(fold=Fold.SUM, value=Value(stream=0, column=2))
    view = ViewSpec(groups=(), measures=(measure,))
    join = InProcessJoin("r.g = s.g", (BIG, BIG))
    with pytest.raises(SumOverflowError, match="38 digits"):
        views_and_results(join, view, [Batch(left=wide, right=wide)], 1 << 16)
