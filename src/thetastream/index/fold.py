"""Sums, smallest and largest values over ranges of a sorted part, without visiting the pairs.

A probing tuple matches a contiguous range of stored tuples. `gather` folds a stored value over the
range of each probing tuple; `scatter` does the reverse and gives each stored tuple the fold of the
values of all probing tuples whose range it lies in. Integers use prefix sums, which are exact.
Floats and extremes use dyadic blocks: a range is cut into blocks of sizes that are powers of two,
and nothing is ever subtracted, so a sum is rounded as any sum in another order is.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import numpy.typing as npt

from thetastream.index.encoding import INT64_MAX, INT64_MIN, Int64s

Array = npt.NDArray[Any]


class Op(enum.StrEnum):
    """How two values become one."""

    ADD = "add"
    MIN = "min"
    MAX = "max"

    @property
    def ufunc(self) -> np.ufunc:
        """The operation on arrays."""
        return {Op.ADD: np.add, Op.MIN: np.minimum, Op.MAX: np.maximum}[self]

    def identity(self, dtype: np.dtype[Any]) -> Any:
        """The value that changes nothing."""
        if self is Op.ADD:
            return dtype.type(0)
        # Extremes are taken of ranks, which are integers.
        return INT64_MAX if self is Op.MIN else INT64_MIN


def gather(op: Op, values: Array, begin: Int64s, end: Int64s) -> Array:
    """For each range [begin, end) the fold of `values` in it; an empty range gives the identity."""
    if op is Op.ADD and values.dtype == np.int64:
        sums = np.zeros(len(values) + 1, dtype=np.int64)
        np.cumsum(values, out=sums[1:])
        return np.where(end > begin, sums[end] - sums[begin], 0)
    identity = op.identity(values.dtype)
    if (begin == 0).all():
        upto = np.full(len(values) + 1, identity, dtype=values.dtype)
        op.ufunc.accumulate(values, out=upto[1:])
        return np.asarray(upto[end])
    if (end == len(values)).all():
        after = np.full(len(values) + 1, identity, dtype=values.dtype)
        op.ufunc.accumulate(values[::-1], out=after[:-1][::-1])
        return np.asarray(after[begin])
    levels = _levels(op, values)
    found = np.full(len(begin), identity, dtype=values.dtype)
    for level, rows, blocks in _blocks(begin, end):
        found[rows] = op.ufunc(found[rows], levels[level][blocks])
    return found


def scatter(op: Op, values: Array, begin: Int64s, end: Int64s, size: int) -> Array:
    """For each position the fold of the `values` of all ranges [begin, end) that contain it."""
    if op is Op.ADD and values.dtype == np.int64:
        alive = end > begin
        steps = np.zeros(size + 1, dtype=np.int64)
        np.add.at(steps, begin[alive], values[alive])
        np.subtract.at(steps, end[alive], values[alive])
        return np.cumsum(steps)[:size]
    identity = op.identity(values.dtype)
    depth = max(1, (max(size, 1) - 1).bit_length() + 1)
    levels = [
        np.full(1 << (depth - 1 - level), identity, dtype=values.dtype) for level in range(depth)
    ]
    for level, rows, blocks in _blocks(begin, end):
        op.ufunc.at(levels[level], blocks, values[rows])
    for level in range(depth - 1, 0, -1):
        levels[level - 1] = op.ufunc(levels[level - 1], np.repeat(levels[level], 2))
    return levels[0][:size]


def by_group(op: Op, values: Array, groups: Int64s, count: int) -> Array:
    """The fold of the values of each group."""
    found = np.full(count, op.identity(values.dtype), dtype=values.dtype)
    op.ufunc.at(found, groups, values)
    return found


def _levels(op: Op, values: Array) -> list[Array]:
    """The values folded in blocks of 1, 2, 4, ... of them."""
    depth = max(1, (len(values) - 1).bit_length() + 1)
    leaf = np.full(1 << (depth - 1), op.identity(values.dtype), dtype=values.dtype)
    leaf[: len(values)] = values
    levels = [leaf]
    while len(levels[-1]) > 1:
        levels.append(op.ufunc(levels[-1][0::2], levels[-1][1::2]))
    return levels


def _blocks(begin: Int64s, end: Int64s) -> list[tuple[int, Int64s, Int64s]]:
    """The dyadic blocks of each range, as (level, ranges, blocks)."""
    rows = np.flatnonzero(end > begin)
    left, right = begin[rows].copy(), end[rows].copy()
    found = []
    level = 0
    while len(rows):
        odd = np.flatnonzero(left & 1)
        if len(odd):
            found.append((level, rows[odd], left[odd]))
            left[odd] += 1
        odd = np.flatnonzero((right & 1) & (right > left))
        if len(odd):
            right[odd] -= 1
            found.append((level, rows[odd], right[odd]))
        left >>= 1
        right >>= 1
        level += 1
        alive = np.flatnonzero(left < right)
        if len(alive) < len(rows):
            rows, left, right = rows[alive], left[alive], right[alive]
    return found
