"""The chained index drops only what nothing can match any more, and loses nothing by merging."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
        self.chain.insert(self.run(times, pieces, part_rows))
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


times = st.integers(0, 300)
batches = st.lists(st.lists(times, min_size=1, max_size=6), min_size=1, max_size=25)


@settings(max_examples=80, deadline=None)
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


@settings(max_examples=50, deadline=None)
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


@settings(max_examples=50, deadline=None)
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


@settings(max_examples=60, deadline=None)
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


@settings(max_examples=60, deadline=None)
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
    big = [5] * SETTLED_ROWS
    store.insert([*big])
    written = store.written
    store.insert([0, 20])
    assert store.chain.subs[-1].sealed
    assert store.written == written + 2
