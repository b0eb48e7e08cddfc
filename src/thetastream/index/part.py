"""A part: an immutable, sorted piece of a run, with everything a probe needs of it.

A run is sorted by the driving key; a long run is cut into parts that follow each other in that
order, so that none is too large for the state store and a probe visits only the parts its key can
lie in.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from thetastream import arrow
from thetastream.index.encoding import Int64s, encode
from thetastream.spec import SortOrder, StreamSpec


@dataclass(frozen=True, kw_only=True)
class PartMeta:
    """What the manifest knows of a part: enough to decide whether it must be read at all."""

    id: str
    """Its place in the unit's history and, at the end, the digest of its stored bytes."""
    rows: int
    bytes: int
    low: tuple[int, ...]
    """The smallest value of each key."""
    high: tuple[int, ...]
    """The largest value of each key."""
    pairs: int = 0
    """Intermediate results in it, where it holds such."""

    def to_json(self) -> list[Any]:
        """The fields in order, as JSON takes them."""
        fields = [self.id, self.rows, self.bytes, list(self.low), list(self.high)]
        return [*fields, self.pairs] if self.pairs else fields

    @classmethod
    def from_json(cls, raw: list[Any]) -> PartMeta:
        """The meta that `to_json` wrote."""
        name, rows, size, low, high, *pairs = raw
        return cls(
            id=name,
            rows=rows,
            bytes=size,
            low=tuple(low),
            high=tuple(high),
            pairs=pairs[0] if pairs else 0,
        )

    @property
    def digest(self) -> str:
        """The digest of its stored bytes."""
        return self.id.rpartition("-")[2]


class Tuples:
    """Tuples of one stream with their encoded keys."""

    def __init__(self, batch: pa.RecordBatch, keys: Sequence[Int64s]) -> None:
        self.batch = batch
        self.keys = tuple(keys)
        self.memo: dict[Any, Any] = {}
        """What was worked out from the tuples and may be asked for again."""

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @classmethod
    def encode(cls, batch: pa.RecordBatch, stream: StreamSpec) -> Tuples:
        """The batch's rows with every key of the stream encoded."""
        keys = []
        for number, key in enumerate(stream.keys):
            column = batch.column(stream.key_column(number))
            keys.append(encode(column, key.encoding.value))
        return cls(batch, keys)

    def take(self, rows: Int64s) -> Tuples:
        """The tuples at those positions."""
        indices = pa.array(rows)
        return Tuples(self.batch.take(indices), [key[rows] for key in self.keys])

    def slice(self, start: int, stop: int) -> Tuples:
        """The tuples from start to before stop, without copying."""
        return Tuples(self.batch.slice(start, stop - start), [key[start:stop] for key in self.keys])

    def sorted(self, order: SortOrder) -> Tuples:
        """The tuples in the order of a run; sorted once, however often they are asked for."""
        if order not in self.memo:
            rows = sort_order(self.keys, order)
            # Not itself: nothing would free what refers to itself until the collector comes by.
            self.memo[order] = None if rows is None else self.take(rows)
        found: Tuples | None = self.memo[order]
        return self if found is None else found

    def picked(self, rows: Int64s, order: SortOrder) -> Tuples:
        """Some of the tuples, at ascending positions, that are in the order of a run already."""
        found = self.take(rows)
        found.memo[order] = None
        return found

    @cached_property
    def widest(self) -> int:
        """Arrow bytes of the largest tuple."""
        return arrow.widest(self.batch)


def bundled(tuples: Iterable[Tuples]) -> Iterator[Tuples]:
    """All the tuples, put together in as few pieces as may be."""
    waiting: list[Tuples] = []
    size = 0
    for item in tuples:
        more = int(item.batch.nbytes)
        if waiting and size + more > arrow.SAFE_BYTES:
            yield concat(waiting)
            waiting, size = [], 0
        waiting.append(item)
        size += more
    if waiting:
        yield concat(waiting)


def concat(tuples: Sequence[Tuples]) -> Tuples:
    """All the tuples, one after the other; they are not too many for one batch."""
    if len(tuples) == 1:
        return tuples[0]
    batch = arrow.concat([item.batch for item in tuples])
    keys = [np.concatenate(columns) for columns in zip(*(t.keys for t in tuples), strict=True)]
    return Tuples(batch, keys)


class Part(Tuples):
    """Sorted tuples that can be probed."""

    pairs = 0
    """Intermediate results in it: none."""

    def __init__(self, batch: pa.RecordBatch, keys: Sequence[Int64s], order: SortOrder) -> None:
        super().__init__(batch, keys)
        self.order = order

    def ordered(self, order: SortOrder) -> Part:
        """The same tuples sorted otherwise, for a probe that is driven by another key."""
        if order == self.order:
            return self
        key = ("part", order)
        if key not in self.memo:
            rows = sort_order(self.keys, order)
            tuples = self if rows is None else self.take(rows)
            self.memo[key] = Part(tuples.batch, tuples.keys, order)
        found: Part = self.memo[key]
        return found

    def detached(self) -> Part:
        """The same part in memory of its own: a slice keeps all that it was cut from."""
        if self.batch.get_total_buffer_size() <= 2 * self.nbytes:
            return self
        part = copy.copy(self)
        part.batch = arrow.from_bytes(self.to_bytes())
        part.keys = tuple(key.copy() for key in self.keys)
        return part

    @property
    def nbytes(self) -> int:
        """Arrow bytes."""
        return int(self.batch.nbytes)

    def to_bytes(self, *, compress: bool = False) -> pa.Buffer:
        """The part as it is stored."""
        return arrow.to_bytes(self.batch, compress=compress)

    @cached_property
    def low(self) -> tuple[int, ...]:
        """The smallest value of each key."""
        return tuple(int(key.min()) for key in self.keys)

    @cached_property
    def high(self) -> tuple[int, ...]:
        """The largest value of each key."""
        return tuple(int(key.max()) for key in self.keys)

    @cached_property
    def groups(self) -> tuple[Int64s, Int64s]:
        """The distinct equality keys, and where the tuples of each start (one more at the end)."""
        assert self.order.equality is not None
        keys = self.keys[self.order.equality]
        starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]]) if len(keys) else keys[:0]
        return keys[starts], np.r_[starts, len(keys)].astype(np.int64)

    @cached_property
    def ranks(self) -> tuple[Int64s | None, int]:
        """Ranks of the driving range's keys, if their span leaves no room for the group number.

        Within `positions` each tuple is one integer: the group in the high bits and, in the low
        bits, either the key's distance from the smallest (None here) or its rank.
        """
        assert self.order.range is not None
        span = self.high[self.order.range] - self.low[self.order.range]
        group_bits = max(1, len(self.groups[0]).bit_length())
        if group_bits + (span + 2).bit_length() <= 62:
            return None, (span + 2).bit_length()
        distinct = np.unique(self.keys[self.order.range])
        return distinct, (len(distinct) + 2).bit_length()

    @cached_property
    def positions(self) -> Int64s:
        """Group and driving key of each tuple as one integer, in ascending order."""
        assert self.order.range is not None
        distinct, bits = self.ranks
        keys = self.keys[self.order.range]
        if distinct is None:
            offsets = keys - self.low[self.order.range]
        else:
            offsets = np.searchsorted(distinct, keys)
        _, starts = self.groups
        group = np.repeat(np.arange(len(starts) - 1, dtype=np.int64), np.diff(starts))
        return (group << bits) + offsets


def sort_order(keys: Sequence[Int64s], order: SortOrder) -> Int64s | None:
    """The permutation that sorts by equality key, then by range key; None if nothing drives."""
    if order.equality is None:
        if order.range is None:
            return None
        return np.argsort(keys[order.range])
    if order.range is None:
        return np.argsort(keys[order.equality])
    packed = _packed(keys[order.equality], keys[order.range])
    if packed is not None:
        return np.argsort(packed)
    rows = np.argsort(keys[order.equality])
    # The fast sort leaves ties in any order; only tuples that share a key need the second sort.
    ranked = keys[order.equality][rows]
    tied = np.zeros(len(rows) + 1, dtype=bool)
    np.equal(ranked[1:], ranked[:-1], out=tied[1:-1])
    members = np.flatnonzero(tied[:-1] | tied[1:])
    if len(members):
        subset = rows[members]
        again = np.lexsort((keys[order.range][subset], ranked[members]))
        rows[members] = subset[again]
    return rows


def _packed(first: Int64s, second: Int64s) -> Int64s | None:
    """Both keys in one integer with the order of the pair, if there is room for that."""
    if len(first) == 0:
        return None
    low, high = int(first.min()), int(first.max())
    start, end = int(second.min()), int(second.max())
    bits = (end - start).bit_length()
    if (high - low).bit_length() + bits > 63:
        return None
    return ((first - low) << bits) | (second - start)
