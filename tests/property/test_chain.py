"""The chained index drops only what nothing can match any more, and loses nothing by merging."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from thetastream.index import chain
from thetastream.index.chain import FANOUT, SETTLED_ROWS, Chain, Run, subs_from_json
from thetastream.index.part import PartMeta

TIME = 0


class Store:
    """Plays the unit: carries out merges, and remembers which tuple is in which part."""

    def __init__(self, *, keeps: int | None, period: int | None, time: int | None = TIME) -> None:
        self.arguments = {"keeps": keeps, "period": period, "time": time}
        self.chain = Chain(**self.arguments, subs=[])
        self.content: dict[str, list[int]] = {}
        self.made = 0
        self.watermark: int | None = None
        self.written = 0

    def run(self, times: list[int], pieces: int = 1, part_rows: float = math.inf) -> Run:
        step = max(1, int(min(-(-len(times) // pieces), part_rows)))
        metas = []
        for start in range(0, len(times), step):
            piece = times[start : start + step]
            name = f"{self.made}"
            self.made += 1
            self.content[name] = piece
            metas.append(
                PartMeta(id=name, rows=len(piece), bytes=0, low=(min(piece),), high=(max(piece),))
            )
        self.written += len(times)
        return Run(tuple(metas))

    def insert(self, times: list[int], pieces: int = 1, part_rows: float = math.inf) -> None:
        groups = self.chain.apart(np.array(times), self.watermark)
        for rows in [range(len(times))] if groups is None else groups:
            run = self.run([times[row] for row in rows], pieces, part_rows)
            self.chain.insert(run, self.watermark)
        rounds = 0
        while (due := self.chain.merge_due()) is not None:
            sub, runs = due
            assert len(runs) > 1
            assert sum(run.size for run in runs) <= chain.MERGED_ROWS
            assert sum(len(run.parts) for run in runs) <= chain.MERGED_PARTS
            merged = [t for run in runs for part in run.parts for t in self.content[part.id]]
            for part in self.chain.replace(sub, runs, self.run(merged, pieces, part_rows)):
                del self.content[part.id]
            rounds += 1
            assert rounds < 100, "merging comes to an end"

    def expire(self, watermark: int | None) -> list[int]:
        self.watermark = watermark
        return [t for part in self.chain.expire(watermark) for t in self.content.pop(part.id)]

    def tuples(self) -> Counter[int]:
        listed = [part.id for part in self.chain.parts()]
        assert sorted(listed) == sorted(self.content), "parts in the chain are those stored"
        return Counter(t for name in listed for t in self.content[name])

    def runs(self) -> int:
        return sum(len(sub.runs) for sub in self.chain.subs)

    def reopen(self) -> None:
        raw = json.loads(json.dumps(self.chain.to_json()))
        self.chain = Chain(**self.arguments, subs=subs_from_json(raw))


times = st.integers(0, 300) | st.integers(0, 10**8)
batches = st.lists(st.lists(times, min_size=1, max_size=6), min_size=1, max_size=25)


@examples(80)
@given(
    batches=batches,
    keeps=st.none() | st.integers(-20, 60),
    period=st.none() | st.integers(1, 40),
    pieces=st.integers(1, 3),
    data=st.data(),
)
def test_only_the_dead_are_dropped(
    batches: list[list[int]],
    keeps: int | None,
    period: int | None,
    pieces: int,
    data: st.DataObject,
) -> None:
    store = Store(keeps=keeps, period=period)
    live: Counter[int] = Counter()
    watermark = 0
    for batch in batches:
        watermark += data.draw(st.integers(0, 30))
        gone = store.expire(watermark)
        # A partner to come is at the watermark or after it.
        assert keeps is not None or not gone
        assert all(t + (keeps or 0) < watermark for t in gone)
        live -= Counter(gone)
        store.insert(batch, pieces)
        live += Counter(batch)
        if data.draw(st.booleans()):
            store.reopen()
        assert store.tuples() == live


@examples(50)
@given(batches=batches, keeps=st.integers(0, 60), period=st.integers(1, 40))
def test_in_the_end_everything_is_dropped(
    batches: list[list[int]], keeps: int, period: int
) -> None:
    store = Store(keeps=keeps, period=period)
    for batch in batches:
        store.insert(batch)
    newest = max(t for batch in batches for t in batch)
    assert newest not in store.expire(newest + keeps)
    store.expire(newest + keeps + 1)
    assert not store.tuples()


@examples(50)
@given(batches=batches)
def test_nothing_is_dropped_without_a_watermark_or_an_end(batches: list[list[int]]) -> None:
    windowed = Store(keeps=0, period=1)
    endless = Store(keeps=None, period=None)
    for batch in batches:
        windowed.insert(batch)
        endless.insert(batch)
        assert windowed.expire(None) == []
        assert endless.expire(10**9) == []
    assert windowed.tuples() == endless.tuples() == Counter(t for b in batches for t in b)


@examples(60)
@given(sizes=st.lists(st.integers(1, 200), min_size=1, max_size=200))
def test_a_full_history_has_a_logarithm_of_runs(sizes: list[int]) -> None:
    store = Store(keeps=None, period=None, time=None)
    for size in sizes:
        store.insert([0] * size)
        total = sum(store.tuples().values())
        levels = math.floor(math.log(total, FANOUT)) + 1
        assert store.runs() <= (FANOUT - 1) * (levels + 1)
    assert sum(store.tuples().values()) == sum(sizes)


def test_a_full_history_rewrites_a_tuple_a_logarithm_of_times() -> None:
    store = Store(keeps=None, period=None, time=None)
    for _ in range(1000):
        store.insert([0] * 10)
    assert store.written <= 10_000 * (math.log(10_000, FANOUT) + 2)


@examples(60)
@given(
    sizes=st.lists(st.integers(1, 30) | st.integers(1, 700), min_size=1, max_size=150),
    most=st.integers(200, 500),
    parts=st.integers(4, 12),
    period=st.none() | st.integers(1, 40),
)
def test_what_is_merged_at_a_time_is_bounded(
    sizes: list[int], most: int, parts: int, period: int | None
) -> None:
    part_rows = most / parts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "MERGED_ROWS", most)
        patch.setattr(chain, "MERGED_PARTS", parts)
        store = Store(keeps=None, period=period)
        for number, size in enumerate(sizes):
            store.insert([number] * size, part_rows=part_rows)
        runs = [run for sub in store.chain.subs for run in sub.runs]
        unsettled = sum(not run.is_full for run in runs)
    total = sum(sizes)
    assert sum(store.tuples().values()) == total
    if period is None:
        levels = math.floor(math.log(most, FANOUT)) + 1
        assert unsettled <= (FANOUT - 1) * (levels + 1)
        assert store.written <= total * (levels + 3)


def test_full_runs_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "MERGED_ROWS", 400)
    store = Store(keeps=None, period=None, time=None)
    for _ in range(100):
        store.insert([0] * 90)
    # Four of 90 are 360, which is more than half of what may be merged.
    assert sorted({run.size for sub in store.chain.subs for run in sub.runs}) == [360]
    assert store.written == 2 * 100 * 90


@pytest.mark.parametrize("period", [1, 10, 100])
def test_state_stays_within_the_window_and_a_slice_or_two(period: int) -> None:
    store = Store(keeps=100, period=period)
    for now in range(0, 3000, 5):
        store.expire(now)
        store.insert([now, now + 1, now + 4])
        stored = store.tuples()
        assert min(stored) >= now - 100 - 2 * (period + 5)


def test_a_sealed_slice_is_merged_once_and_then_left_alone() -> None:
    store = Store(keeps=1000, period=10)
    for now in range(0, 200, 4):
        store.insert([now, now + 3])
    sealed = [sub for sub in store.chain.subs if sub.sealed]
    assert len(sealed) > 5
    assert all(len(sub.runs) == 1 for sub in sealed)


def test_large_runs_are_not_rewritten_when_a_slice_is_sealed() -> None:
    store = Store(keeps=1000, period=10)
    big = [0] + [5] * SETTLED_ROWS
    store.insert([*big])
    written = store.written
    store.insert([7, 12])
    assert store.chain.subs[-1].sealed
    assert store.written == written + 2


FAR = 10**9


@examples(100)
@given(
    batches=st.lists(
        st.tuples(
            st.integers(0, 20),  # how much later than the batch before
            st.integers(0, 4),  # rows on time
            st.lists(st.integers(FAR, 100 * FAR), max_size=3),
        ),
        min_size=1,
        max_size=60,
    ),
    keeps=st.integers(0, 60),
    period=st.integers(1, 20),
    lag=st.integers(0, 60),
)
def test_times_far_ahead_keep_nothing_but_themselves(
    batches: list[tuple[int, int, list[int]]], keeps: int, period: int, lag: int
) -> None:
    store, model = (Store(keeps=keeps, period=period) for _ in range(2))
    now, ahead = 1000, 0
    for later, count, outliers in batches:
        now += later
        rows = [now + place % 5 for place in range(count)]
        for one, mine in ((store, rows + outliers), (model, rows)):
            one.expire(now - lag)
            if mine:
                one.insert(mine)
            one.reopen()
        ahead += len(outliers)
        stored = store.tuples()
        near = {t: n for t, n in stored.items() if t < FAR}
        assert near == model.tuples()
        assert sum(stored.values()) - sum(near.values()) == ahead


@pytest.mark.parametrize("offset", [3, 8, 50, 1000])
def test_a_clock_that_is_ahead_costs_a_few_runs(offset: int) -> None:
    """Its rows are apart from the others by so many windows, in every batch."""
    window, period, batch = 100, 10, 5
    store, model = (Store(keeps=window, period=period) for _ in range(2))
    most = 0
    for number in range(1000):
        now = number * batch
        for one, ahead in ((store, [now + offset * window + 2]), (model, [])):
            one.expire(now - window)
            one.insert([now, now + 1, now + 4, *ahead])
        near = sum(n for t, n in store.tuples().items() if t % batch != 2)
        own = sum(n for t, n in store.tuples().items()) - near
        assert near <= 1.2 * sum(model.tuples().values())
        # A row of that clock lives for its offset and then as long as others; some stay longer.
        assert own <= 2 * (offset + 3) * window / batch
        most = max(most, store.runs() - model.runs())
    assert most <= 40


@pytest.mark.parametrize("count", [1, 7])
def test_random_times_ahead_cost_a_logarithm_of_runs(count: int) -> None:
    rng = np.random.default_rng(1)
    store, model = (Store(keeps=100, period=10) for _ in range(2))
    for number in range(1000):
        now = number * 5
        ahead = (FAR + 10 ** rng.uniform(4, 14, count)).astype(np.int64)
        for one, more in ((store, ahead.tolist()), (model, [])):
            one.expire(now - 100)
            one.insert([now, now + 1, now + 4, *more])
        assert sum(store.tuples().values()) <= sum(model.tuples().values()) + (number + 1) * count
        assert store.runs() <= model.runs() + 200
    assert any(run.rows > 1 for sub in store.chain.subs for run in sub.runs)


def test_a_batch_of_long_ago_until_now_is_one_run() -> None:
    store = Store(keeps=100, period=10)
    for number in range(5):
        store.insert(list(range(number * 10_000, number * 10_000 + 10_000, 7)))
        assert store.runs() == number + 1


@examples(200)
@given(
    drawn=st.lists(
        st.integers(-50, 500) | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40
    ),
    keeps=st.integers(-20, 60),
    period=st.integers(1, 20),
    watermark=st.none() | st.integers(-100, 100),
)
def test_a_batch_is_divided_at_gaps_into_a_few_groups(
    drawn: list[int], keeps: int, period: int, watermark: int | None
) -> None:
    chained = Chain(time=TIME, keeps=keeps, period=period, subs=[])
    groups = chained.apart(np.array(drawn), watermark)
    near = max(keeps, 10 * period)
    end = (min(drawn) if watermark is None else watermark) - keeps
    if groups is None:
        groups = [np.arange(len(drawn))]
    assert 1 <= len(groups) <= 4
    assert sorted(row for rows in groups for row in rows.tolist()) == [*range(len(drawn))]
    parts = [sorted(drawn[row] for row in rows) for rows in groups]
    for one, two in itertools.pairwise(parts):
        assert two[0] - one[-1] > near
        assert two[0] - end > 2 * max(near, one[0] - end)
    if len(parts) < 4:
        for part in parts:
            jumps = [(one, two) for one, two in itertools.pairwise(part) if two - one > near]
            assert all(two - end <= 2 * max(near, part[0] - end) for _, two in jumps)


def test_a_sub_index_that_merging_has_left_empty_is_no_more() -> None:
    store = Store(keeps=100, period=10)
    for now in (1, 2):
        store.insert([now])
    (sub,) = store.chain.subs
    assert len(store.chain.replace(sub, list(sub.runs), Run(()))) == 2
    assert store.chain.subs == []
    subs = subs_from_json([{"sealed": False, "runs": []}])
    Chain(time=TIME, keeps=100, period=10, subs=subs).insert(store.run([3]), None)
