"""Probing a part finds the pairs of the cross product that satisfy every rule, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.specs import two_streams
from thetastream.index.encoding import INT64_MAX, INT64_MIN
from thetastream.index.part import Part, Tuples
from thetastream.index.probe import Probe, expand
from thetastream.spec import (
    Arithmetic,
    Bound,
    ColumnSpec,
    Edge,
    Encoding,
    Equality,
    JoinSpec,
    KeySpec,
    Range,
    RangeKind,
    StreamSpec,
)

KEYS = 3


def spec_of(equality: bool, ranges: Sequence[Range]) -> JoinSpec:
    """Two streams of three integer keys; the equality is on the first."""
    names = "abc"[:KEYS]
    streams = tuple(
        StreamSpec(
            name=name,
            columns=tuple(ColumnSpec(name=column, type="bigint") for column in names),
            keys=tuple(
                KeySpec(sql=column, type="bigint", encoding=Encoding.INTEGER, column=column)
                for column in names
            ),
        )
        for name in ("r", "s")
    )
    driving = Equality(left=0, right=0) if equality else None
    return two_streams(streams, Edge(streams=(0, 1), equality=driving, ranges=tuple(ranges)))


small = st.integers(-4, 4)
wide = small | st.sampled_from([INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX, 2**62])
bound = st.none() | st.builds(
    lambda v, i: Bound(value=v, inclusive=i), st.integers(-3, 3), st.booleans()
)


@st.composite
def rules(draw: st.DrawFn) -> Range:
    low, high = draw(bound), draw(bound)
    if low is None and high is None:
        low = Bound(value=0)
    return Range(
        left=draw(st.integers(0, KEYS - 1)),
        right=draw(st.integers(0, KEYS - 1)),
        low=low,
        high=high,
        kind=RangeKind.BAND,
        arithmetic=Arithmetic.INTEGER,
    )


def rows_of(values: st.SearchStrategy[int]) -> st.SearchStrategy[list[tuple[int, ...]]]:
    return st.lists(st.tuples(*[values] * KEYS), min_size=1, max_size=12)


def tuples_of(rows: Sequence[tuple[int, ...]], spec: JoinSpec, stream: int) -> Tuples:
    columns = [pa.array([row[number] for row in rows], pa.int64()) for number in range(KEYS)]
    batch = pa.RecordBatch.from_arrays(columns, [f"c_{number}" for number in range(KEYS)])
    return Tuples.encode(batch, spec.streams[stream]).sorted(spec.edge(0, 1).order(stream))


def holds(rule: Range, left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    difference = left[rule.left] - right[rule.right]
    for end, sign in ((rule.low, 1), (rule.high, -1)):
        if end is None:
            continue
        gap = sign * (difference - int(end.value))
        if gap < 0 or (gap == 0 and not end.inclusive):
            return False
    return True


def expected(
    spec: JoinSpec, left: Sequence[tuple[int, ...]], right: Sequence[tuple[int, ...]]
) -> Counter[Any]:
    return Counter(
        (one, two)
        for one in left
        for two in right
        if (spec.edge(0, 1).equality is None or one[0] == two[0])
        and all(holds(rule, one, two) for rule in spec.edge(0, 1).ranges)
    )


def row_at(tuples: Tuples, position: int) -> tuple[int, ...]:
    return tuple(tuples.batch.column(n)[int(position)].as_py() for n in range(KEYS))


def found(
    spec: JoinSpec, stream: int, probing: Tuples, part: Part, limit: int, *, skip: bool
) -> Counter[Any]:
    probe = Probe(spec, stream, 1 - stream, probing)
    rows = probe.candidates(part.low, part.high) if skip else np.arange(len(probing))
    pairs: Counter[Any] = Counter()
    if len(rows) == 0:
        return pairs
    for mine, stored in probe.search(part, rows).pairs(part, limit):
        assert 0 < len(mine) == len(stored) <= limit
        for one, two in zip(mine, stored, strict=True):
            pair = (row_at(probing, one), row_at(part, two))
            pairs[pair if stream == 0 else pair[::-1]] += 1
    return pairs


@examples(200)
@given(
    left=rows_of(small) | rows_of(wide),
    right=rows_of(small) | rows_of(wide),
    equality=st.booleans(),
    ranges=st.lists(rules(), max_size=3),
    stream=st.integers(0, 1),
    limit=st.integers(1, 9),
    skip=st.booleans(),
)
def test_a_probe_finds_what_the_cross_product_holds(
    left: list[tuple[int, ...]],
    right: list[tuple[int, ...]],
    equality: bool,
    ranges: list[Range],
    stream: int,
    limit: int,
    skip: bool,
) -> None:
    spec = spec_of(equality, ranges)
    sides = (tuples_of(left, spec, 0), tuples_of(right, spec, 1))
    stored = sides[1 - stream]
    part = Part(stored.batch, stored.keys, spec.edge(0, 1).order(1 - stream))
    assert found(spec, stream, sides[stream], part, limit, skip=skip) == expected(spec, left, right)


@pytest.mark.parametrize("span", [10, 2**40, 2**61, 2**62, 2**63, 2**64 - 1])
@pytest.mark.parametrize("groups", [1, 2, 3, 64])
def test_equality_and_range_together_over_any_span(span: int, groups: int) -> None:
    base = INT64_MIN if span > 2**62 else -(span // 2)
    rule = Range(
        left=1,
        right=1,
        low=Bound(value=-1),
        high=Bound(value=0, inclusive=False),
        kind=RangeKind.BAND,
        arithmetic=Arithmetic.INTEGER,
    )
    spec = spec_of(True, [rule])
    random = np.random.default_rng(span % 1000 + groups)
    ends = [base, base + 1, base + span // 2, base + span - 1, base + span]
    left = [(int(random.integers(groups)), ends[int(random.integers(5))], 0) for _ in range(60)]
    right = [(int(random.integers(groups)), ends[int(random.integers(5))], 0) for _ in range(60)]
    sides = (tuples_of(left, spec, 0), tuples_of(right, spec, 1))
    for stream in (0, 1):
        stored = sides[1 - stream]
        part = Part(stored.batch, stored.keys, spec.edge(0, 1).order(1 - stream))
        got = found(spec, stream, sides[stream], part, 7, skip=True)
        assert got == expected(spec, left, right)
        assert (np.diff(part.positions) >= 0).all()
        assert (part.ranks[0] is not None) == (span >= 2**61)


@examples(150)
@given(
    ranges=st.lists(st.tuples(st.integers(0, 20), st.integers(-3, 12)), max_size=12),
    limit=st.integers(1, 30),
)
def test_ranges_expand_to_every_position_in_chunks(
    ranges: list[tuple[int, int]], limit: int
) -> None:
    begin = np.array([start for start, _ in ranges], dtype=np.int64)
    end = begin + np.array([length for _, length in ranges], dtype=np.int64)
    chunks = list(expand(begin, end, limit))
    pairs = [
        (int(row), int(position))
        for rows, positions in chunks
        for row, position in zip(rows, positions, strict=True)
    ]
    whole = [(row, at) for row, (s, n) in enumerate(ranges) for at in range(s, s + max(0, n))]
    assert pairs == whole
    assert all(len(rows) == limit for rows, _ in chunks[:-1])
    assert all(0 < len(rows) <= limit for rows, _ in chunks)


def test_a_huge_range_is_expanded_without_being_held() -> None:
    count = 10**12
    chunks = expand(np.array([0, 5]), np.array([count, 5 + count]), 1000)
    rows, positions = next(chunks)
    assert len(rows) == 1000
    assert positions.tolist() == list(range(1000))


@examples(70)
@given(
    left=rows_of(wide),
    right=rows_of(wide),
    equality=st.booleans(),
    ranges=st.lists(rules(), min_size=1, max_size=3),
)
def test_zone_maps_never_rule_out_a_match(
    left: list[tuple[int, ...]],
    right: list[tuple[int, ...]],
    equality: bool,
    ranges: list[Range],
) -> None:
    spec = spec_of(equality, ranges)
    probing = tuples_of(left, spec, 0)
    stored = tuples_of(right, spec, 1)
    part = Part(stored.batch, stored.keys, spec.edge(0, 1).order(1))
    kept = set(Probe(spec, 0, 1, probing).candidates(part.low, part.high).tolist())
    matching = {pair[0] for pair in expected(spec, left, right)}
    for position in range(len(probing)):
        if row_at(probing, position) in matching:
            assert position in kept


def test_zone_maps_rule_out_what_lies_elsewhere() -> None:
    rule = Range(
        left=1,
        right=1,
        low=Bound(value=-1),
        high=Bound(value=1),
        kind=RangeKind.BAND,
        arithmetic=Arithmetic.INTEGER,
    )
    for equality in (False, True):
        spec = spec_of(equality, [rule])
        probing = tuples_of([(k, 10 * k, 0) for k in range(10)], spec, 0)
        stored = tuples_of([(4, 40, 0), (5, 51, 0)], spec, 1)
        part = Part(stored.batch, stored.keys, spec.edge(0, 1).order(1))
        rows = Probe(spec, 0, 1, probing).candidates(part.low, part.high)
        assert rows.tolist() == [4, 5]


@examples(60)
@given(rows=rows_of(small), equality=st.booleans(), ranged=st.booleans())
def test_a_run_is_sorted_by_equality_then_range(
    rows: list[tuple[int, ...]], equality: bool, ranged: bool
) -> None:
    rule = Range(left=1, right=2, low=Bound(value=0), high=None, kind=RangeKind.INEQUALITY)
    spec = spec_of(equality, [rule] if ranged else [])
    for stream, place in ((0, 1), (1, 2)):
        tuples = tuples_of(rows, spec, stream)
        order = [row_at(tuples, position) for position in range(len(tuples))]
        assert Counter(order) == Counter(rows)
        wanted = [0] * equality + [place] * ranged
        keyed = [tuple(row[number] for number in wanted) for row in order]
        assert keyed == sorted(keyed)
