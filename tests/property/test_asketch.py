"""ASketch: a batch at a time is as one key at a time, that is the algorithm as it is written, and
no key is ever counted too low."""

from __future__ import annotations

import doctest
import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from thetastream.errors import OptionError, StateError
from thetastream.index import asketch
from thetastream.index.asketch import ASketch, SketchOptions
from thetastream.index.countmin import ROWS, CountMin
from thetastream.index.encoding import INT64_MAX, INT64_MIN

FADE = None
"""In a history of batches: all counts are halved."""

keys = st.integers(-6, 12) | st.sampled_from([INT64_MIN, INT64_MAX, 2**62])
batches = st.lists(
    st.just(FADE) | st.dictionaries(keys, st.integers(1, 9), max_size=12), min_size=1, max_size=8
)
tiny = st.builds(
    lambda filter_keys, width: SketchOptions(
        filter_keys=filter_keys, sketch_bytes=16 * width, half_life=None
    ),
    st.integers(1, 5),
    st.integers(1, 6),
)


class Written:
    """The algorithm line by line, in lists and dictionaries."""

    def __init__(self, options: SketchOptions) -> None:
        self.room = options.filter_keys
        self.filter: dict[int, list[int]] = {}
        self.cells: Counter[tuple[int, int]] = Counter()
        self.hashes = CountMin(options.width)

    def _cells(self, key: int) -> list[tuple[int, int]]:
        places = self.hashes.places(np.array([key], dtype=np.int64))
        return list(enumerate(places[:, 0].tolist()))

    def see(self, key: int) -> bool:
        if key in self.filter:
            self.filter[key][0] += 1
            return True
        if len(self.filter) < self.room:
            self.filter[key] = [1, 0]
            return False
        self.cells.update(self._cells(key))
        estimate = min(self.cells[cell] for cell in self._cells(key))
        top = min(self.filter, key=lambda one: self.filter[one][0])
        new, old = self.filter[top]
        if estimate <= new:
            return False
        for cell in self._cells(top):
            self.cells[cell] += new - old
        # In the place of the other key, so that the first of several smallest is the same.
        self.filter = {
            (key if one == top else one): ([estimate, estimate] if one == top else counts)
            for one, counts in self.filter.items()
        }
        return True


def held(sketch: ASketch) -> tuple[Any, ...]:
    """What a sketch knows."""
    state = sketch.state()
    return state["keys"], state["new"], state["old"], sketch.sketch.cells.tolist(), sketch.rows


def arrays(batch: dict[int, int]) -> tuple[Any, Any]:
    return np.array(list(batch), dtype=np.int64), np.array(list(batch.values()), dtype=np.int64)


@examples(200)
@given(seen=st.lists(keys, max_size=60), options=tiny)
def test_one_key_at_a_time_is_the_algorithm(seen: list[int], options: SketchOptions) -> None:
    sketch, written = ASketch(options), Written(options)
    for key in seen:
        assert sketch.see(key) == written.see(key)
        sketch.validate()
    state = sketch.state()
    assert state["keys"] == list(written.filter)
    assert list(zip(state["new"], state["old"], strict=True)) == [
        tuple(counts) for counts in written.filter.values()
    ]
    cells = {cell: count for cell, count in written.cells.items() if count}
    found = {tuple(map(int, cell)) for cell in np.argwhere(sketch.sketch.cells)}
    assert found == set(cells)
    assert all(sketch.sketch.cells[cell] == count for cell, count in cells.items())


@examples(300)
@given(history=batches, options=tiny, chunk=st.integers(1, 7))
def test_a_batch_is_its_keys_one_at_a_time(
    history: list[dict[int, int] | None], options: SketchOptions, chunk: int
) -> None:
    batchwise, single = ASketch(options), ASketch(options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asketch, "CHUNK", chunk)
        for batch in history:
            if batch is FADE:
                batchwise.fade()
                single.fade()
            else:
                some, counts = arrays(batch)
                order = single.order(some, counts)
                last = {}
                for place in order.tolist():
                    for _ in range(int(counts[place])):
                        last[place] = single.see(int(some[place]))
                hot = batchwise.add(some, counts)
                assert hot.tolist() == [last[place] for place in range(len(some))]
            assert held(batchwise) == held(single)
            batchwise.validate()


@examples(200)
@given(history=batches, options=tiny)
def test_no_key_is_counted_too_low(
    history: list[dict[int, int] | None], options: SketchOptions
) -> None:
    sketch = ASketch(options)
    true: Counter[int] = Counter()
    faded = False
    for batch in history:
        if batch is FADE:
            sketch.fade()
            faded = True
            true = Counter({key: count // 2 for key, count in true.items()})
        else:
            sketch.add(*arrays(batch))
            true.update(batch)
        for key, count in true.items():
            assert sketch.estimate(key) >= count
        for key, old in zip(*(sketch.state()[name] for name in ("keys", "old")), strict=True):
            place = sketch.sketch.places(np.array([key], dtype=np.int64))
            assert sketch.sketch.estimates(place)[0] >= old, "what a key leaves to the sketch"
        for one in sketch.frequent():
            assert one.least - (2 if faded else 0) <= true[one.key] <= one.most
        if not faded:
            counted = sum(one.least for one in sketch.frequent())
            assert counted + sketch.sketch.counted == sketch.rows == sum(true.values())
            assert len(set(sketch.sketch.cells.sum(axis=1).tolist())) == 1


@examples(100)
@given(history=st.lists(st.dictionaries(keys, st.integers(1, 9), max_size=12), max_size=6))
def test_keys_that_were_always_in_the_filter_are_counted_exactly(
    history: list[dict[int, int]],
) -> None:
    sketch = ASketch(SketchOptions(filter_keys=3, sketch_bytes=64))
    true: Counter[int] = Counter()
    for batch in history:
        sketch.add(*arrays(batch))
        true.update(batch)
        for one in sketch.frequent():
            if one.least == one.most:
                assert one.most == true[one.key]


def zipf(seed: int, rows: int, distinct: int, exponent: float) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    weights = np.arange(1, distinct + 1) ** -exponent
    names = random.permutation(np.arange(distinct) * 7919 - 5_000_000)
    return names[random.choice(distinct, rows, p=weights / weights.sum())]


def counted(sketch: ASketch, rows: np.ndarray[Any, Any]) -> None:
    sketch.add(*np.unique(rows, return_counts=True))


@pytest.mark.parametrize("exponent", [0.8, 1.0, 1.5])
def test_the_error_is_within_the_bound(exponent: float) -> None:
    sketch = ASketch(SketchOptions(half_life=None))
    rows = zipf(11, 200_000, 20_000, exponent)
    for start in range(0, len(rows), 10_000):
        counted(sketch, rows[start : start + 10_000])
    true = Counter(rows.tolist())
    assert sketch.sketch.bound < math.e / 1024 * len(rows)
    errors = np.array([sketch.estimate(key) - count for key, count in true.items()])
    assert errors.min() >= 0
    assert (errors > sketch.sketch.bound).mean() <= math.exp(-ROWS)
    inside = {one.key: one for one in sketch.frequent()}
    assert len(inside) == 32
    for key, count in true.most_common(10):
        assert inside[key].least <= count <= inside[key].most <= count + sketch.sketch.bound


def test_many_exchanges_in_a_batch() -> None:
    """Even keys: estimates grow with the collisions, and the filter changes all the time."""
    random = np.random.default_rng(4)
    options = SketchOptions(sketch_bytes=512)
    batchwise, single = ASketch(options), ASketch(options)
    for _ in range(3):
        some, counts = np.unique(random.integers(0, 10**9, 1_500), return_counts=True)
        for place in single.order(some, counts).tolist():
            for _ in range(int(counts[place])):
                single.see(int(some[place]))
        hot = batchwise.add(some, counts)
        assert hot.sum() > 32
        assert held(batchwise) == held(single)


def test_first_sight_is_not_hot() -> None:
    sketch = ASketch()
    assert not sketch.see(5)
    assert sketch.see(5)
    some = np.array([5, 6, 7])
    assert sketch.add(some, np.array([1, 1, 3])).tolist() == [True, False, True]
    assert sketch.add(some, np.array([1, 1, 1])).all()
    assert sketch.add(some[:0], some[:0]).tolist() == []


def test_an_exchange() -> None:
    sketch = ASketch(SketchOptions(filter_keys=1, half_life=None))
    sketch.add(np.array([1]), np.array([4]))
    assert not sketch.add(np.array([2]), np.array([4]))[0], "four are not more than four"
    assert sketch.add(np.array([2]), np.array([3]))[0]
    # The fifth came into the filter, and it counts the two after it itself.
    assert sketch.frequent() == [(2, 7, 2)]
    assert sketch.estimate(1) == 4, "what was counted in the filter is given back"
    assert sketch.sketch.counted == 5 + 4


def test_the_heat_of_yesterday_fades() -> None:
    sketch = ASketch(SketchOptions(half_life=20_000))
    halved = 0
    for day, hot in enumerate([7, 7, 7, 8, 8, 8, 8]):
        random = np.random.default_rng(day)
        rows = np.where(random.random(20_000) < 0.3, hot, random.integers(100, 10_000, 20_000))
        counted(sketch, rows)
        halved += sketch.age()
    assert halved == 7
    assert [one.key for one in sketch.frequent(share=0.1)] == [8]
    forever = ASketch(SketchOptions(half_life=None))
    counted(forever, np.full(10**6, 7))
    assert not forever.age()


def test_a_key_that_is_seen_no_more_is_forgotten() -> None:
    sketch = ASketch()
    sketch.add(np.array([1, 2]), np.array([1000, 1]))
    sketch.fade()
    assert [one.key for one in sketch.frequent()] == [1]
    for _ in range(9):
        sketch.fade()
    assert sketch.frequent() == []
    assert sketch.rows == 0


# -- state --------------------------------------------------------------------------------------


def full(options: SketchOptions | None = None) -> ASketch:
    sketch = ASketch(options)
    counted(sketch, zipf(1, 50_000, 5_000, 1.0))
    return sketch


def test_it_goes_on_from_its_state() -> None:
    sketch = full()
    again = ASketch.restored(json.loads(json.dumps(sketch.state())))
    assert held(again) == held(sketch)
    for one in (sketch, again):
        counted(one, zipf(2, 50_000, 5_000, 1.0))
    assert held(again) == held(sketch)
    assert again.state() == sketch.state()


def test_its_state_is_of_bounded_size() -> None:
    sketch = ASketch(SketchOptions(half_life=None))
    random = np.random.default_rng(0)
    some = random.integers(INT64_MIN, INT64_MAX, 100_000)
    sketch.add(some, np.full(len(some), 10**5))
    assert len(json.dumps(sketch.state())) < 16 * 1024 * 4 / 3 + 32 * 60 + 500


def test_counts_beyond_four_bytes() -> None:
    sketch = ASketch(SketchOptions(filter_keys=1))
    sketch.add(np.array([1, 2]), np.array([2**33, 2**32]))
    assert ASketch.restored(sketch.state(), sketch.options).estimate(2) == 2**32


def test_another_size_is_refused_by_name_or_starts_anew() -> None:
    state = full().state()
    for other in (SketchOptions(filter_keys=16), SketchOptions(sketch_bytes=8192)):
        with pytest.raises(StateError, match="predictor of another size") as caught:
            ASketch.restored(state, other)
        assert "a filter of 32 keys and a sketch of 4 × 1024 cells" in str(caught.value)
        assert other.size in str(caught.value)
        anew = ASketch.restored_or_new(state, other)
        assert anew.rows == 0
        assert anew.options == other
    assert ASketch.restored_or_new(state).rows == 50_000
    assert ASketch.restored_or_new(None).rows == 0
    faster = SketchOptions(half_life=10)
    assert ASketch.restored(state, faster).age(), "how fast it forgets may change"


@pytest.mark.parametrize(
    "change",
    [
        {"keys": [1]},
        {"keys": [1] * 32},
        {"keys": [2**70] * 32},
        {"new": [-1] * 32},
        {"old": [2**60] * 32},
        {"rows": [1]},
        {"rows": [-1, 0]},
        {"cells": ""},
        {"cells": "%%%"},
        {"cells": "eJwDAAAAAAE="},
        {"wide": True},
        {"filter": None},
        {"width": "many"},
    ],
)
def test_damaged_states_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(StateError, match="damaged"):
        ASketch.restored({**full().state(), **change})


def test_a_state_that_unpacks_to_more_than_a_sketch_is_refused() -> None:
    large = full(SketchOptions(sketch_bytes=1 << 20)).state()
    with pytest.raises(StateError, match="more or fewer cells"):
        ASketch.restored({**large, "width": 1024})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"filter_keys": 0}, "no place for a key"),
        ({"sketch_bytes": 15}, "give at least 16"),
        ({"half_life": 0}, "not a number of rows"),
    ],
)
def test_sizes_that_make_no_sense(given: dict[str, int], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        SketchOptions(**given)
    assert message in str(caught.value)


def test_a_batch_counts_each_key_once() -> None:
    for some, counts in (([1, 1], [1, 1]), ([1, 2], [1, 0]), ([1], [1, 1])):
        with pytest.raises(ValueError, match="counted"):
            ASketch().add(np.array(some), np.array(counts))


def test_examples() -> None:
    assert doctest.testmod(asketch).failed == 0
