"""Extendible hashing against a table that is spelled out, with invariants after every operation."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from thetastream.errors import StateError
from thetastream.index import directory
from thetastream.index.directory import HASH_BITS, Directory, MiniGroup
from thetastream.index.encoding import Int64s
from thetastream.index.hashing import UInt64s
from thetastream.spec import BLOCK_BYTES

DEPTH = 5
"""The largest depth here, so that it is reached and the table stays small."""

Item = tuple[int, int]
"""A hash and its bytes."""


class Bucket:
    def __init__(self, depth: int, items: list[Item]) -> None:
        self.depth = depth
        self.items = items

    @property
    def size(self) -> int:
        return sum(size for _, size in self.items)


class Model:
    """The table of 2^d entries, doubled when a bucket of the global depth is split."""

    def __init__(self, theta: int) -> None:
        self.theta = theta
        self.depth = 0
        self.table = [Bucket(0, [])]

    def bucket(self, hashed: int) -> Bucket:
        return self.table[hashed >> (HASH_BITS - self.depth)]

    def distinct(self) -> Iterator[tuple[int, Bucket]]:
        """Each bucket with its first entry."""
        for entry, bucket in enumerate(self.table):
            if entry == 0 or self.table[entry - 1] is not bucket:
                yield entry, bucket

    def settle(self) -> None:
        while (large := next(self._splittable(), None)) is not None:
            self._split(*large)
        while (small := next(self._mergeable(), None)) is not None:
            self._merge(*small)

    def _splittable(self) -> Iterator[tuple[int, Bucket]]:
        for entry, bucket in self.distinct():
            several = len({hashed for hashed, _ in bucket.items}) > 1
            if bucket.size > 2 * self.theta and bucket.depth < DEPTH and several:
                yield entry, bucket

    def _split(self, entry: int, bucket: Bucket) -> None:
        if bucket.depth == self.depth:
            self.table = [one for one in self.table for _ in (0, 1)]
            self.depth += 1
            entry *= 2
        half = 1 << (self.depth - bucket.depth - 1)
        bit = 1 << (HASH_BITS - bucket.depth - 1)
        for number, start in enumerate((entry, entry + half)):
            mine = [item for item in bucket.items if bool(item[0] & bit) == bool(number)]
            self.table[start : start + half] = [Bucket(bucket.depth + 1, mine)] * half

    def _mergeable(self) -> Iterator[tuple[int, int, int]]:
        for entry, bucket in self.distinct():
            if bucket.depth == 0:
                continue
            span = 1 << (self.depth - bucket.depth)
            other = entry + span if entry % (2 * span) == 0 else entry - span
            buddy = self.table[other]
            size = bucket.size + buddy.size
            if buddy.depth == bucket.depth and bucket.size < self.theta and size < 2 * self.theta:
                yield min(entry, other), max(entry, other), span

    def _merge(self, first: int, second: int, span: int) -> None:
        one, two = self.table[first], self.table[second]
        merged = Bucket(one.depth - 1, one.items + two.items)
        self.table[first : first + 2 * span] = [merged] * (2 * span)


def arrays(items: list[Item]) -> tuple[UInt64s, Int64s]:
    hashes = np.array([hashed for hashed, _ in items], dtype=np.uint64)
    return hashes, np.array([size for _, size in items], dtype=np.int64)


def check(found: Directory, model: Model, items: list[Item], theta: int) -> None:
    found.validate()
    wanted = [(bucket.depth, len(bucket.items)) for _, bucket in model.distinct()]
    assert [(mini.depth, mini.rows) for mini in found.minis] == wanted
    entries = found.entries()
    assert len(entries) == 1 << found.depth
    for place, mini in enumerate(found.minis):
        mine = [item for item in items if mini.start <= item[0] < mini.end]
        assert mini.rows == len(mine)
        assert mini.bytes == sum(size for _, size in mine)
        assert entries.count(place) == 1 << (found.depth - mini.depth)
        stuck = mini.depth == DEPTH or len({hashed for hashed, _ in mine}) == 1
        assert mini.bytes <= 2 * theta or stuck
    for left, right in zip(found.minis, found.minis[1:], strict=False):
        if left.is_buddy(right) and min(left.bytes, right.bytes) < theta:
            assert left.bytes + right.bytes >= 2 * theta
    if items:
        hashes, _ = arrays(items)
        by_table = [entries[hashed >> (HASH_BITS - found.depth)] for hashed, _ in items]
        assert found.find(hashes).tolist() == by_table


hashes = (
    st.integers(0, (1 << HASH_BITS) - 1)
    | st.integers(0, 7)
    | st.integers(0, 31).map(lambda n: n << (HASH_BITS - 5))
)
items = st.tuples(hashes, st.integers(1, 3 * BLOCK_BYTES))


@examples(150)
@given(
    batches=st.lists(st.lists(items, max_size=25), min_size=1, max_size=8),
    theta=st.integers(BLOCK_BYTES, 6 * BLOCK_BYTES),
    data=st.data(),
)
def test_the_directory_does_what_the_table_does(
    batches: list[list[Item]], theta: int, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory, "MOST_DEPTH", DEPTH)
        found, model = Directory(), Model(theta)
        stored: list[Item] = []

        def fetch(first: int, end: int) -> tuple[UInt64s, Int64s]:
            return arrays([item for item in stored if first <= item[0] < end])

        for batch in batches:
            gone = stored[: data.draw(st.integers(0, len(stored)))]
            for sign, some in ((-1, gone), (1, batch)):
                found.count(*arrays(some), sign)
                stored = stored[len(gone) :] if sign < 0 else stored + batch
                for hashed, size in some:
                    if sign > 0:
                        model.bucket(hashed).items.append((hashed, size))
                    else:
                        model.bucket(hashed).items.remove((hashed, size))
                moved = found.tune(theta, fetch)
                model.settle()
                check(found, model, stored, theta)
                assert moved >= 0
                assert found.tune(theta, fetch) == 0, "nothing is left to do"
            found = Directory.from_json(json.loads(json.dumps(found.to_json())))
            check(found, model, stored, theta)


def test_equal_hashes_are_not_split() -> None:
    found = Directory()
    same = [(5, BLOCK_BYTES)] * 100
    found.count(*arrays(same))
    assert found.tune(BLOCK_BYTES, lambda first, end: arrays(same)) == 0
    assert found.depth == 0


def test_hashes_that_hardly_differ_are_split_up_to_the_largest_depth() -> None:
    found = Directory()
    near = [(number, BLOCK_BYTES) for number in range(100)]
    found.count(*arrays(near))
    found.tune(BLOCK_BYTES, lambda first, end: arrays(near))
    found.validate()
    assert found.depth == directory.MOST_DEPTH
    assert max(mini.rows for mini in found.minis) == 100
    found.count(*arrays(near), -1)
    found.tune(BLOCK_BYTES, lambda first, end: arrays([]))
    assert found.minis == [MiniGroup(0, 0)]


@pytest.mark.parametrize(
    "raw", [[], [[1, 0, 0]], [[0, 0, 0], [0, 0, 0]], [[0, -1, 0]], [[0, 0, 7]]]
)
def test_a_directory_with_gaps_is_refused(raw: list[list[int]]) -> None:
    with pytest.raises(StateError):
        Directory.from_json(raw)
