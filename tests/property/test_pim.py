"""The PIM-tree finds what the cross product holds, whatever was merged, and drops what is old."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.property.test_blocks import Space, met
from tests.property.test_probe import expected, row_at, rows_of, rules, small, spec_of, wide
from tests.property.test_probe import tuples_of as sorted_tuples
from thetastream.index import chain, pim
from thetastream.index.makers import make_index
from thetastream.index.part import Part
from thetastream.index.pim import PimTree
from thetastream.index.probe import Probe
from thetastream.spec import IndexKind, JoinSpec, Range, Retention

TIME = 2
"""The key that is a tuple's time."""
KEEPS, PERIOD = 10, 2
KEPT = Retention(time=TIME, keeps=KEEPS, period=PERIOD)


def index_of(spec: JoinSpec, stream: int = 1, retention: Retention | None = None) -> PimTree:
    store = replace(spec.stages[0].stores[stream], index=IndexKind.PIM)
    store = store if retention is None else replace(store, retention=retention)
    index = make_index(spec.streams[stream], store)
    assert isinstance(index, PimTree)
    return index


def content(index: PimTree, space: Space) -> list[tuple[int, ...]]:
    parts = (space.parts[meta.id] for meta in index.parts())
    return [
        row_at(part, row) for part in parts if isinstance(part, Part) for row in range(len(part))
    ]


@examples(120)
@given(
    left=rows_of(small) | rows_of(wide),
    right=st.lists(rows_of(small) | rows_of(wide), min_size=1, max_size=8),
    equality=st.booleans(),
    ranges=st.lists(rules(), max_size=3),
    stream=st.integers(0, 1),
    least=st.integers(1, 30),
    most=st.sampled_from([20, 1 << 22]),
)
def test_it_finds_what_the_cross_product_holds(
    left: list[tuple[int, ...]],
    right: list[list[tuple[int, ...]]],
    equality: bool,
    ranges: list[Range],
    stream: int,
    least: int,
    most: int,
) -> None:
    spec = spec_of(equality, ranges)
    index, space = index_of(spec, 1 - stream), Space()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pim, "MUTABLE_ROWS", least)
        patch.setattr(chain, "MERGED_ROWS", most)
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
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=12),
        st.integers(0, 6),
        st.sampled_from(["", "", "", "switch", "freeze", "forget", "restore"]),
    ),
    min_size=1,
    max_size=12,
)


@examples(200)
@example(  # two immutable runs become one that is full, when their versions do
    history=[([(0, 0)] * 8, 0, ""), ([(0, 0)], 0, "switch"), ([(0, 0)], 0, "forget")],
    least=1,
    most=16,
)
@given(history=steps, least=st.integers(1, 30), most=st.sampled_from([16, 1 << 22]))
def test_it_drops_only_what_nothing_can_match(
    history: list[tuple[list[tuple[int, int]], int, str]], least: int, most: int
) -> None:
    spec = spec_of(True, [])
    index, space = index_of(spec, retention=KEPT), Space()
    alive: Counter[tuple[int, ...]] = Counter()
    watermark, number, frozen = 0, 0, 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pim, "MUTABLE_ROWS", least)
        patch.setattr(chain, "MERGED_ROWS", most)
        for rows, passed, change in history:
            watermark += passed
            if change == "restore":
                again = index_of(spec, retention=KEPT)
                again.restore(json.loads(json.dumps(index.state())))
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
            found = Counter(content(index, space))
            assert not alive - found, "what can still match is there"
            assert not found - alive - Counter({row: 1 for row in found if row[TIME] < end})
            left = [meta.id for meta in index.parts_before(frozen)]
            assert set(left) <= set(before), "what is carried away is not written anew"
            gone = {row for row in found if row[TIME] < end - KEEPS}
            assert frozen or not gone, "nothing is kept for long by something newer"
            assert len(space.parts) == len(list(index.parts())), "no part is left behind"
            for stamp in {sub.stamp for sub in index.chain.subs if sub.stamp >= frozen}:
                mutable, immutable = index.components(stamp)
                assert sum(not run.is_full for run in immutable.runs) <= 1
                into = sum(run.size for run in immutable.runs if not run.is_full)
                assert mutable.size < max(least, pim.MERGE_SHARE * into)


def numbered(first: int, count: int, time: int) -> list[tuple[int, int, int]]:
    return [(n % 50, n, time) for n in range(first, first + count)]


def test_two_components_hold_everything() -> None:
    """However many batches there are, nearly all is in one run."""
    spec = spec_of(True, [])
    index, space = index_of(spec, retention=KEPT), Space()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pim, "MUTABLE_ROWS", 500)
        for number in range(60):
            index.expire(number, space)
            index.add(sorted_tuples(numbered(100 * number, 100, number), spec, 1), space)
            index.merge(space)
    mutable, immutable = index.components(0)
    assert len(immutable.runs) == 1
    assert len(mutable.runs) <= 4
    stored = mutable.size + immutable.size
    assert 100 * (KEEPS + 1) <= stored <= 100 * (KEEPS + 1) + 500
    assert space.made < 60 * 2


def test_a_tuple_is_written_a_bounded_number_of_times() -> None:
    spec = spec_of(True, [])
    index, space = index_of(spec), Space()
    written = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pim, "MUTABLE_ROWS", 100)
        for number in range(200):
            before = set(space.parts)
            index.add(sorted_tuples(numbered(50 * number, 50, number), spec, 1), space)
            index.merge(space)
            written += sum(len(part) for name, part in space.parts.items() if name not in before)
    assert written < 8 * 50 * 200


def test_one_tuple_of_the_future_keeps_no_others() -> None:
    """Not even in a run that is too large for being merged."""
    spec = spec_of(True, [])
    index, space = index_of(spec, retention=KEPT), Space()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pim, "MUTABLE_ROWS", 10)
        patch.setattr(chain, "MERGED_ROWS", 100)
        batch = [*numbered(0, 90, 1), (7, 1000, 10**9)]
        index.add(sorted_tuples(batch, spec, 1), space)
        index.merge(space)
        for watermark in range(2, 40):
            index.expire(watermark, space)
            index.merge(space)
            expired = watermark > 1 + KEEPS + KEEPS
            assert len(content(index, space)) == (1 if expired else 91)


@pytest.mark.parametrize("frozen", [True, False])
def test_what_is_carried_away_is_not_merged(frozen: bool) -> None:
    """Not even if it has become enough to be merged, because something else has expired."""
    spec = spec_of(True, [])
    index, space = index_of(spec, retention=KEPT), Space()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pim, "MUTABLE_ROWS", 1)
        for number, (count, time) in enumerate([(40, 0), (4, 10), (4, 10)]):
            index.add(sorted_tuples(numbered(100 * number, count, time), spec, 1), space)
            index.merge(space)
        mutable, immutable = index.components(0)
        assert (len(mutable.runs), immutable.size) == (2, 40)
        index.stamp = 1
        index.freeze(1 if frozen else 0)
        index.expire(11, space)
        index.merge(space)
    assert [len(part) for part in space.parts.values()] == ([4, 4] if frozen else [8])


def test_a_search_looks_at_few_runs() -> None:
    spec = spec_of(True, [])
    index, space = index_of(spec), Space()
    random = np.random.default_rng(3)
    for _ in range(40):
        rows = [(int(key), 0, 0) for key in random.integers(0, 1 << 40, 1_000)]
        index.add(sorted_tuples(rows, spec, 1), space)
        index.merge(space)
    probing = sorted_tuples(rows[:10], spec, 0)
    found = list(index.search(Probe(spec, 0, 1, probing), space))
    assert sum(some.candidates for _, _, some in found) == 10
    assert len(found) == index.runs <= 1 + 2 * 3
