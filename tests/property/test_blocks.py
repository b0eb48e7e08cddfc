"""Block nested loops find what the cross product holds, and look at every pair of a group."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.property.test_probe import expected, row_at, rows_of, rules, small, spec_of, wide
from tests.property.test_probe import tuples_of as sorted_tuples
from thetastream.index import blocks
from thetastream.index.blocks import BlockLists, tuple_bytes
from thetastream.index.hashing import dealt, scaled
from thetastream.index.makers import make_index
from thetastream.index.part import Part, PartMeta
from thetastream.index.probe import Probe
from thetastream.index.protocol import Stored
from thetastream.spec import GROUPS, IndexKind, JoinSpec, Range


class Space:
    """Parts in a dictionary."""

    def __init__(self) -> None:
        self.parts: dict[str, Stored] = {}
        self.made = 0

    def make(self, part: Stored) -> PartMeta:
        name = str(self.made)
        self.made += 1
        self.parts[name] = part
        return PartMeta(id=name, rows=len(part), bytes=0, low=part.low, high=part.high)

    def load(self, meta: PartMeta) -> Stored:
        return self.parts[meta.id]

    def drop(self, metas: list[PartMeta]) -> None:
        for meta in metas:
            del self.parts[meta.id]


def index_of(spec: JoinSpec, stream: int, kind: IndexKind) -> BlockLists:
    theta = 4096 if kind is IndexKind.EXTENDIBLE else None
    store = replace(spec.stages[0].stores[stream], index=kind, theta=theta)
    index = make_index(spec.streams[stream], store)
    assert isinstance(index, BlockLists)
    return index


def met(index: Any, spec: JoinSpec, stream: int, rows: Any, space: Space) -> Counter[Any]:
    """The pairs that rows of a stream make with what is stored of the other one."""
    probing = sorted_tuples(rows, spec, stream)
    pairs: Counter[Any] = Counter()
    for _, part, found in index.search(Probe(spec, stream, 1 - stream, probing), space):
        for mine, stored in found.pairs(part, 4):
            for one, two in zip(mine, stored, strict=True):
                pair = (row_at(probing, one), row_at(part, two))
                pairs[pair if stream == 0 else pair[::-1]] += 1
    return pairs


@examples(120)
@given(
    left=rows_of(small) | rows_of(wide),
    right=st.lists(rows_of(small) | rows_of(wide), min_size=1, max_size=6),
    equality=st.booleans(),
    ranges=st.lists(rules(), max_size=3),
    stream=st.integers(0, 1),
    tile=st.integers(1, 9),
    tuned=st.booleans(),
)
def test_block_nested_loops_find_what_the_cross_product_holds(
    left: list[tuple[int, ...]],
    right: list[list[tuple[int, ...]]],
    equality: bool,
    ranges: list[Range],
    stream: int,
    tile: int,
    tuned: bool,
) -> None:
    spec = spec_of(equality, ranges)
    kind = IndexKind.EXTENDIBLE if tuned and equality else IndexKind.NESTED_LOOPS
    index, space = index_of(spec, 1 - stream, kind), Space()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TILE_PAIRS", "TILE_ROWS", "FOUND_PAIRS"):
            patch.setattr(blocks, name, tile)
        for batch in right:
            index.add(sorted_tuples(batch, spec, 1 - stream), space)
            index.merge(space)
            index.validate()
        pairs = met(index, spec, stream, left, space)
    whole = [row for batch in right for row in batch]
    sides = (left, whole) if stream == 0 else (whole, left)
    assert pairs == expected(spec, *sides)
    if not equality:
        assert index.compared == len(left) * len(whole)


def test_a_visitor_looks_at_its_mini_group_only() -> None:
    spec = spec_of(True, [])
    random = np.random.default_rng(3)
    stored = [(int(key), 0, 0) for key in random.integers(0, 1 << 40, 60_000)]
    probing = sorted_tuples(stored[:500], spec, 0)
    compared = {}
    for kind in (IndexKind.NESTED_LOOPS, IndexKind.EXTENDIBLE):
        index, space = index_of(spec, 1, kind), Space()
        index.add(sorted_tuples(stored, spec, 1), space)
        found = sum(
            len(found.rows) for _, _, found in index.search(Probe(spec, 0, 1, probing), space)
        )
        assert found == 500
        compared[kind] = index.compared / (len(probing) * len(stored))
        sizes = [mini.bytes for one in index.directories for mini in one.minis]
        if kind is IndexKind.EXTENDIBLE:
            # A partition-group has 1000 tuples of 24 bytes: six times the size of a mini-group.
            assert max(sizes) <= 2 * 4096
            assert index.moved == len(stored)
        else:
            assert len(sizes) == blocks.PARTITION_GROUPS
            assert index.moved == 0
    assert compared[IndexKind.NESTED_LOOPS] == pytest.approx(1 / 60, rel=0.1)
    assert compared[IndexKind.EXTENDIBLE] < compared[IndexKind.NESTED_LOOPS] / 3


def test_partition_groups_are_runs_of_the_routing_groups() -> None:
    keys = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 10_000)
    places = dealt(keys)
    run = GROUPS // blocks.PARTITION_GROUPS
    assert (scaled(places, GROUPS) // run == scaled(places, blocks.PARTITION_GROUPS)).all()


def test_the_bytes_of_a_tuple_do_not_depend_on_its_batch() -> None:
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([1, None, 3], pa.int32()),
            pa.array(["", None, "abc"]),
            pa.array([True, False, None]),
            pa.array([[1, 2], None, []], pa.list_(pa.int64())),
        ],
        ["a", "b", "c", "d"],
    )
    assert tuple_bytes(batch).tolist() == [4 + 1 + 16, 4 + 1, 4 + 3 + 1]
    alone = [int(tuple_bytes(batch.take(pa.array([row])))[0]) for row in range(3)]
    assert alone == tuple_bytes(batch).tolist()


def test_parts_keep_equal_keys_together() -> None:
    spec = spec_of(True, [])
    index, space = index_of(spec, 0, IndexKind.NESTED_LOOPS), Space()
    index.add(sorted_tuples([(n % 7, n, 0) for n in range(50)], spec, 0), space)
    (part,) = space.parts.values()
    assert isinstance(part, Part)
    assert len(part.groups[0]) == 7
