"""Columns of a stream as a view folds them: numbers to add, ranks to compare, groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.index.encoding import INT64_MAX, INT64_MIN, Bools, Int64s
from thetastream.index.fold import Array, Op
from thetastream.index.part import Tuples

T = TypeVar("T")

SAFE = 1 << 62
"""A sum whose parts are this small in total cannot leave 64 bits."""
LIMB_BITS = 21
"""Of the digits that large numbers are cut into: 2^41 of them can be added in 64 bits."""


class Selection(Tuples):
    """Some tuples of a part, in its order; their columns stay where they are."""

    def __init__(self, origin: Tuples, rows: Int64s) -> None:
        super().__init__(origin.batch, [key[rows] for key in origin.keys])
        self.origin = origin
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def selection(self, rows: Int64s) -> Selection:
        """Some of these."""
        return Selection(self.origin, self.rows[rows])


class Exact(NamedTuple):
    """Integers, as the sum of `limbs[i] * 2^(21 i)`; one limb where they are small enough."""

    limbs: tuple[Int64s, ...]
    peak: int
    """The largest absolute value."""


def valid(tuples: Tuples, column: int) -> Bools:
    """Where the column is not NULL."""
    if isinstance(tuples, Selection):
        return valid(tuples.origin, column)[tuples.rows]
    return remembered(tuples, ("valid", column), lambda: _valid(tuples.batch.column(column)))


def floats(tuples: Tuples, column: int) -> Array:
    """The column as doubles, zero for NULL."""
    if isinstance(tuples, Selection):
        return np.asarray(floats(tuples.origin, column)[tuples.rows])

    def make() -> Array:
        values = tuples.batch.column(column).cast(pa.float64())
        return np.asarray(values.fill_null(0.0), dtype=np.float64)

    return remembered(tuples, ("floats", column), make)


def exact(tuples: Tuples, column: int, pairs: int) -> Exact:
    """The column as integers that can be added `pairs` times, zero for NULL."""
    if isinstance(tuples, Selection):
        whole = exact(tuples.origin, column, pairs)
        return Exact(tuple(limb[tuples.rows] for limb in whole.limbs), whole.peak)
    values = tuples.batch.column(column)
    one = remembered(tuples, ("exact", column), lambda: _one_limb(values))
    if one is not None and one.peak * max(pairs, 1) < SAFE:
        return one
    return remembered(tuples, ("limbs", column), lambda: _many_limbs(values))


def is_exact(kind: pa.DataType) -> bool:
    """Whether sums of the type are exact."""
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def assembled(limbs: Sequence[Array]) -> Array:
    """The sums that the limbs stand for: 64-bit integers where there is one limb, else Python's."""
    if len(limbs) == 1:
        return limbs[0]
    total = np.zeros(len(limbs[0]), dtype=object)
    for place, limb in enumerate(limbs):
        total += limb.astype(object) * (1 << (LIMB_BITS * place))
    return total


class Ranks(NamedTuple):
    """A column's values by their place in its order."""

    ranks: Int64s
    order: Int64s
    column: pa.Array

    def values(self, ranks: Int64s) -> pa.Array:
        """The values at these ranks; NULL for the identity of an extreme."""
        none = (ranks == INT64_MAX) | (ranks == INT64_MIN)
        rows = self.order[np.where(none, 0, ranks)] if len(self.order) else ranks
        return self.column.take(pa.array(rows, mask=none))


def ranked(tuples: Tuples, column: int, op: Op) -> Ranks:
    """The column's ranks, NULL replaced by what the extreme ignores."""
    if isinstance(tuples, Selection):
        whole = ranked(tuples.origin, column, op)
        return whole._replace(ranks=whole.ranks[tuples.rows])

    def make() -> Ranks:
        values = tuples.batch.column(column)
        order = np.asarray(pc.array_sort_indices(values)).astype(np.int64)
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        if values.null_count:
            ranks[~_valid(values)] = op.identity(ranks.dtype)
        return Ranks(ranks, order, values)

    return remembered(tuples, (op, column), make)


class Groups(NamedTuple):
    """Which group each tuple belongs to, and a tuple of each group."""

    ids: Int64s
    members: Int64s

    @property
    def total(self) -> int:
        """The number of groups."""
        return len(self.members)


def grouped(columns: Sequence[pa.Array], rows: int, numbers: Sequence[Int64s] = ()) -> Groups:
    """Rows with equal values in all columns and numbers are a group; NULL is a value here."""
    ids = np.zeros(rows, dtype=np.int64)
    if not columns and not numbers:
        return Groups(ids, np.zeros(min(rows, 1), dtype=np.int64))
    cards = 1
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        ids, cards = _crossed(ids, cards, np.asarray(encoded.indices), len(encoded.dictionary))
    for number in numbers:
        known, codes = np.unique(number, return_inverse=True)
        ids, cards = _crossed(ids, cards, codes, len(known))
    _, members, dense = np.unique(ids, return_index=True, return_inverse=True)
    return Groups(dense.astype(np.int64), members.astype(np.int64))


def _crossed(ids: Int64s, cards: int, codes: Array, more: int) -> tuple[Int64s, int]:
    if cards * max(more, 1) >= SAFE:
        known, ids = np.unique(ids, return_inverse=True)
        cards = len(known)
    return ids * max(more, 1) + codes, cards * max(more, 1)


def _valid(column: pa.Array) -> Bools:
    return np.asarray(column.is_valid())


def _words(column: pa.Array) -> tuple[Array, Array]:
    """The 128 bits of exact numbers as unsigned low and signed high words, zero for NULL."""
    if not pa.types.is_decimal(column.type):
        values = np.asarray(column.cast(pa.int64()).fill_null(0), dtype=np.int64)
        return values.view(np.uint64), values >> 63
    _, data = column.buffers()
    words = np.frombuffer(data, dtype=np.uint64)[
        2 * column.offset : 2 * (column.offset + len(column))
    ]
    low, high = words[0::2].copy(), words[1::2].view(np.int64).copy()
    if column.null_count:
        none = ~_valid(column)
        low[none], high[none] = 0, 0
    return low, high


def _one_limb(column: pa.Array) -> Exact | None:
    low, high = _words(column)
    values = low.view(np.int64)
    if (high != (values >> 63)).any():
        return None
    peak = max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0
    return Exact((values,), peak)


def _many_limbs(column: pa.Array) -> Exact:
    low, high = _words(column)
    mask = np.uint64((1 << LIMB_BITS) - 1)
    limbs = []
    for shift in range(0, 126, LIMB_BITS):
        if shift + LIMB_BITS <= 64:
            digits = (low >> np.uint64(shift)) & mask
        elif shift < 64:
            upper = high.view(np.uint64) << np.uint64(64 - shift)
            digits = ((low >> np.uint64(shift)) | upper) & mask
        else:
            digits = (high >> (shift - 64)).view(np.uint64) & mask
        limbs.append(digits.astype(np.int64))
    # What is left above 126 bits carries the sign.
    limbs.append(high >> 62)
    return Exact(tuple(limbs), 1 << LIMB_BITS)


def remembered(tuples: Tuples, key: Any, make: Callable[[], T]) -> T:
    """What is made of the tuples the first time that it is asked for."""
    if key not in tuples.memo:
        tuples.memo[key] = make()
    found: T = tuples.memo[key]
    return found
