"""STA's index finds what the cross product holds, whatever is hot, and gives back what cools."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.property.test_blocks import Space, met
from tests.property.test_probe import expected, row_at, rows_of, rules, small, spec_of, wide
from tests.property.test_probe import tuples_of as sorted_tuples
from thetastream.errors import OptionError, StateError
from thetastream.index import streamaware
from thetastream.index.asketch import ASketch, SketchOptions
from thetastream.index.distinct import DistinctRuns, contained
from thetastream.index.makers import make_index
from thetastream.index.part import Part
from thetastream.index.runs import TupleRuns
from thetastream.index.streamaware import StreamAware
from thetastream.spec import Arithmetic, Bound, IndexKind, JoinSpec, Range, RangeKind, Retention

LESS = Range(
    left=0,
    right=0,
    low=None,
    high=Bound(value=0, inclusive=False),
    kind=RangeKind.INEQUALITY,
    arithmetic=Arithmetic.NONE,
)
TIME = 2
"""The key that is a tuple's time."""
KEEPS, PERIOD = 10, 2
KEPT = Retention(time=TIME, keeps=KEEPS, period=PERIOD)
Rows = list[tuple[int, ...]]


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are enough to make a value hot."""
    monkeypatch.setattr(streamaware, "ENOUGH_ROWS", 4)
    monkeypatch.setattr(streamaware, "HOT_SHARE", 0.2)
    monkeypatch.setattr(streamaware, "COOL_SHARE", 0.1)


def index_of(spec: JoinSpec, stream: int = 1, retention: Retention | None = None) -> StreamAware:
    store = replace(spec.stages[0].stores[stream], index=IndexKind.STREAM_AWARE)
    store = store if retention is None else replace(store, retention=retention)
    index = make_index(spec.streams[stream], store)
    assert isinstance(index, StreamAware)
    return index


def rows_in(index: Any, space: Space) -> Iterator[tuple[int, ...]]:
    for meta in index.parts():
        part = space.parts[meta.id]
        assert isinstance(part, Part)
        yield from (row_at(part, row) for row in range(len(part)))


def cold_rows(index: StreamAware, space: Space) -> list[tuple[int, ...]]:
    return list((Counter(rows_in(index, space)) - Counter(rows_in(index.hot, space))).elements())


@examples(80)
@given(
    left=rows_of(small) | rows_of(wide),
    right=st.lists(rows_of(small) | rows_of(wide), min_size=1, max_size=8),
    ranges=st.lists(rules(), min_size=1, max_size=3),
    stream=st.integers(0, 1),
    fading=st.booleans(),
)
def test_it_finds_what_the_cross_product_holds(
    left: Rows, right: list[Rows], ranges: list[Range], stream: int, fading: bool
) -> None:
    spec = spec_of(False, ranges)
    index, space = index_of(spec, 1 - stream), Space()
    if fading:
        index._sketch = ASketch(SketchOptions(half_life=8))
    for batch in right:
        index.add(sorted_tuples(batch, spec, 1 - stream), space)
        index.merge(space)
        index.validate()
    pairs = met(index, spec, stream, left, space)
    whole = [row for batch in right for row in batch]
    sides = (left, whole) if stream == 0 else (whole, left)
    assert pairs == expected(spec, *sides)


steps = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), max_size=14),
        st.integers(0, 6),
        st.sampled_from(["", "", "", "switch", "freeze", "forget", "restore", "take"]),
    ),
    min_size=1,
    max_size=12,
)


@examples(80)
@example(  # what cools while it is carried away stays where it is until it is not any more
    history=[
        ([(0, 9)] * 8, 0, ""),
        ([(1, 9)] * 14, 0, "freeze"),
        ([(1, 9)] * 14, 0, "forget"),
    ]
)
@given(history=steps)
def test_it_loses_and_doubles_nothing(
    history: list[tuple[list[tuple[int, int]], int, str]],
) -> None:
    spec = spec_of(False, [LESS])
    index, space = index_of(spec, retention=KEPT), Space()
    index._sketch = ASketch(SketchOptions(half_life=30))
    alive: Counter[tuple[int, ...]] = Counter()
    watermark, number, frozen = 0, 0, 0
    for rows, passed, change in history:
        watermark += passed
        if change == "restore":
            again = index_of(spec, retention=KEPT)
            again.restore(json.loads(json.dumps(index.state())))
            assert again.state() == index.state()
            again.stamp = index.stamp
            index = again
            index.freeze(frozen)
        elif change in ("switch", "freeze"):
            index.stamp += 1
            frozen = index.stamp if change == "freeze" else 0
            index.freeze(frozen)
        elif change == "forget":
            frozen = 0
            index.freeze(0)
            index.restamp(index.stamp)
            assert index.rows_before(index.stamp) == 0
        elif change == "take" and not frozen:
            # Every second row goes to another unit.
            index.stamp += 1
            for _ in index.keep_only(index.stamp, lambda part: part.keys[1] % 2 == 0, space):
                pass
            alive = Counter(row for row in alive.elements() if row[1] % 2 == 0)
        before = [meta.id for meta in index.parts_before(frozen)]
        index.expire(watermark, space)
        if rows:
            batch = [(key, (number := number + 1), watermark + time) for key, time in rows]
            index.add(sorted_tuples(batch, spec, 1), space)
            alive.update(batch)
        index.merge(space)
        index.validate()
        end = watermark - KEEPS
        alive = Counter(row for row in alive.elements() if row[TIME] >= end)
        found = Counter(rows_in(index, space))
        assert not alive - found, "what can still match is there"
        assert all(row[TIME] < end or row[1] % 2 for row in found - alive), "each once"
        left = [meta.id for meta in index.parts_before(frozen)]
        assert set(left) <= set(before), "what is carried away is not written anew"
        assert len(space.parts) == len(list(index.parts())), "no part is left behind"
        hot = {row[0] for row in rows_in(index.hot, space)}
        assert hot <= set(index.hot.values.tolist()), "all values are listed"
        if not frozen:
            assert hot <= set(index.heat.tolist()), "what cooled was given back"
        stamps = [sub.stamp for some in (index, index.hot) for sub in some.chain.subs]
        assert index.oldest == min(stamps, default=None)
        probes = [(key, 0, 0) for key in range(-1, 7)]
        wanted = Counter((one, two) for one in probes for two in found.elements() if one < two[:1])
        assert met(index, spec, 0, probes, space) == wanted


def batch_of(values: Any, first: int, time: int = 0) -> Rows:
    return [(int(value), first + n, time) for n, value in enumerate(values)]


def test_a_value_heats_and_cools() -> None:
    spec = spec_of(False, [LESS])
    index, space = index_of(spec), Space()
    index._sketch = ASketch(SketchOptions(half_life=60))

    def add(values: Any, first: int) -> None:
        index.add(sorted_tuples(batch_of(values, first), spec, 1), space)
        index.merge(space)
        index.validate()

    add([1, 2, 3], 0)
    assert index.heat.tolist() == [], "three rows say nothing"
    add([7] * 10 + list(range(10, 30)), 10)
    assert index.heat.tolist() == [7]
    assert Counter(row[0] for row in rows_in(index.hot, space)) == {7: 10}
    add([7, 7, 3], 100)
    assert Counter(row[0] for row in rows_in(index.hot, space)) == {7: 12}, "new ones follow"
    for number in range(6):
        add(range(100 + 20 * number, 120 + 20 * number), 200 + 20 * number)
    assert index.heat.tolist() == []
    assert list(rows_in(index.hot, space)) == []
    assert sum(row[0] == 7 for row in cold_rows(index, space)) == 12, "given back"


def test_cooled_tuples_expire_by_their_own_time() -> None:
    spec = spec_of(False, [LESS])
    index, space = index_of(spec, retention=KEPT), Space()
    index._sketch = ASketch(SketchOptions(half_life=60))
    index.add(sorted_tuples(batch_of([7] * 10, 0, time=5), spec, 1), space)
    index.merge(space)
    assert index.heat.tolist() == [7]
    for number in range(8):
        values = range(100 + 20 * number, 120 + 20 * number)
        index.add(sorted_tuples(batch_of(values, 100, time=8), spec, 1), space)
        index.merge(space)
    assert sum(row[0] == 7 for row in cold_rows(index, space)) == 10
    index.expire(5 + KEEPS + 1, space)
    assert sum(row[0] == 7 for row in rows_in(index, space)) == 0, "older than the others"
    assert len(list(rows_in(index, space))) == 160


def test_a_probe_searches_distinct_values() -> None:
    """Steps of the searches do not depend on how many tuples a hot value has."""
    spec = spec_of(False, [LESS])
    steps = {}
    for count in (100, 10_000):
        index, space = index_of(spec), Space()
        index.add(sorted_tuples(batch_of([5, 9] * count, 0), spec, 1), space)
        assert index.heat.tolist() == [5, 9]
        assert list(cold_rows(index, space)) == []
        found = met(index, spec, 0, [(9, 0, 0), (20, 0, 0)], space)
        assert not found, "nothing is larger"
        steps[count] = index.compared
    assert steps[100] == steps[10_000] == 2 * 2 * 2
    plain, space = TupleRuns(spec.streams[1], spec.stages[0].stores[1]), Space()
    plain.add(sorted_tuples(batch_of([5, 9] * 10_000, 0), spec, 1), space)
    met(plain, spec, 0, [(8, 0, 0)], space)
    assert plain.compared > 10_000 + 2 * 2


def test_thousands_of_values_that_are_equally_warm_stay_cold() -> None:
    spec = spec_of(False, [LESS])
    index, space = index_of(spec), Space()
    random = np.random.default_rng(4)
    written = 0
    for number in range(20):
        values = random.integers(0, 3_000, 1_000)
        index.add(sorted_tuples(batch_of(values, 1_000 * number), spec, 1), space)
        index.merge(space)
        written = space.made
        assert index.heat.tolist() == []
    assert index.hot.runs == 0
    assert written <= 20 + 20 // 3, "a run for each batch, and those of merging"


def test_a_predictor_of_another_size_learns_again() -> None:
    spec = spec_of(False, [LESS])
    index, space = index_of(spec), Space()
    index.add(sorted_tuples(batch_of([7] * 10, 0), spec, 1), space)
    state = json.loads(json.dumps(index.state()))
    state["sketch"] = ASketch(SketchOptions(filter_keys=3)).state()
    again = index_of(spec)
    again.restore(state)
    again.validate()
    assert again.heat.tolist() == [7], "what is hot is known without it"
    assert list(rows_in(again, space)) == list(rows_in(index, space))


@pytest.mark.parametrize("damage", ["sketch", "heat", "hot"])
def test_a_damaged_state_is_refused(damage: str) -> None:
    spec = spec_of(False, [LESS])
    index, space = index_of(spec), Space()
    index.add(sorted_tuples(batch_of([7] * 10, 0), spec, 1), space)
    state = json.loads(json.dumps(index.state()))
    if damage == "sketch":
        state["sketch"]["cells"] = "?"
    elif damage == "heat":
        state["heat"] = [8]
    else:
        state["cold"] = state["hot"]
    with pytest.raises(StateError):
        _restored(spec, state)


def _restored(spec: JoinSpec, state: Any) -> None:
    index = index_of(spec)
    index.restore(state)
    index.validate()


def test_it_is_for_inequalities_and_bands() -> None:
    for spec in (spec_of(True, [LESS]), spec_of(False, [])):
        with pytest.raises(OptionError, match="not compared for equality"):
            index_of(spec)
        with pytest.raises(OptionError, match="an inequality's or a band's key"):
            DistinctRuns(spec.streams[1], spec.stages[0].stores[1])


@given(st.lists(st.integers(-9, 9)), st.lists(st.integers(-9, 9)))
def test_contained(keys: list[int], values: list[int]) -> None:
    found = contained(np.array(keys, np.int64), np.unique(np.array(values, np.int64)))
    assert found.tolist() == [key in values for key in keys]
