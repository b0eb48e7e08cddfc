"""From a range and the probing keys to the interval that a stored key must lie in.

Intervals are of encoded keys and inclusive at both ends; one that ends before it begins is empty.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from thetastream.index.encoding import (
    INT64_MAX,
    INT64_MIN,
    Bools,
    Int64s,
    decode_floats,
    encode_floats,
)
from thetastream.spec import Arithmetic, Bound, Encoding, KeySpec, Range

# Rounding of one addition or subtraction, on either side, with a margin of four.
_DOUBLE_SLACK = 2.0**-50
_SINGLE_SLACK = 2.0**-21


class Interval(NamedTuple):
    """For each probing tuple the stored keys that can match it."""

    first: Int64s
    last: Int64s

    def rows(self, where: slice | Int64s) -> Interval:
        """The intervals of some of the probing tuples."""
        return Interval(self.first[where], self.last[where])

    def covers(self, low: int, high: int) -> bool:
        """Whether every interval contains all of [low, high]: then nothing needs checking."""
        return bool((self.first <= low).all() and (self.last >= high).all())


def interval(rule: Range, probing_left: bool, keys: Int64s, key: KeySpec) -> Interval:
    """Where the other side's key must lie for each of the probing side's `keys`."""
    if probing_left:
        # low <= left - right <= high  means  left - high <= right <= left - low
        first, last = _negated(rule.high), _negated(rule.low)
    else:
        first, last = rule.low, rule.high
    if rule.arithmetic is Arithmetic.FLOAT:
        return _float_interval(first, last, keys, key)
    return _integer_interval(first, last, keys)


def _negated(bound: Bound | None) -> Bound | None:
    return None if bound is None else Bound(value=-bound.value, inclusive=bound.inclusive)


def _integer_interval(first: Bound | None, last: Bound | None, keys: Int64s) -> Interval:
    empty = np.zeros(len(keys), dtype=bool)
    if first is None:
        low = np.full(len(keys), INT64_MIN)
    else:
        step = int(first.value) + (0 if first.inclusive else 1)
        low, above, below = _add(keys, step)
        low[below] = INT64_MIN
        empty |= above
    if last is None:
        high = np.full(len(keys), INT64_MAX)
    else:
        step = int(last.value) - (0 if last.inclusive else 1)
        high, above, below = _add(keys, step)
        high[above] = INT64_MAX
        empty |= below
    if empty.any():
        low[empty], high[empty] = INT64_MAX, INT64_MIN
    return Interval(low, high)


def _add(keys: Int64s, step: int) -> tuple[Int64s, Bools, Bools]:
    """keys + step in 64 bits, and where the true sum lies above or below them."""
    nowhere = np.zeros(len(keys), dtype=bool)
    span = INT64_MAX - INT64_MIN
    if step > span:
        return keys.copy(), ~nowhere, nowhere
    if step < -span:
        return keys.copy(), nowhere, ~nowhere
    wrapped = np.uint64(step % (1 << 64))
    total = (keys.view(np.uint64) + wrapped).view(np.int64)
    if step > 0:
        return total, keys > INT64_MAX - step, nowhere
    if step < 0:
        return total, nowhere, keys < INT64_MIN - step
    return total, nowhere, nowhere


def _float_interval(
    first: Bound | None, last: Bound | None, keys: Int64s, key: KeySpec
) -> Interval:
    values = decode_floats(keys)
    nan_low = key.encoding is Encoding.FLOAT_NAN_LOW
    single = key.type == "float"
    slack = _SINGLE_SLACK if single else _DOUBLE_SLACK
    largest = float(np.finfo(np.float32 if single else np.float64).max)
    magnitude = np.where(np.isnan(values), 0.0, np.minimum(np.abs(values), largest))
    count = len(keys)
    low = np.full(count, INT64_MIN)
    high = np.full(count, INT64_MAX)
    # Scaled one by one: their sum may be infinite, and infinity less infinity is no bound.
    with np.errstate(over="ignore"):
        if first is not None:
            step = float(first.value)
            # Towards the finite: a sum with a finite partner may be infinite as well.
            base = np.minimum(values, largest)
            widened = base + step - (slack * magnitude + slack * abs(step))
            low = encode_floats(widened, nan_low=nan_low)
        if last is not None:
            step = float(last.value)
            base = np.maximum(values, -largest)
            widened = base + step + (slack * magnitude + slack * abs(step))
            high = encode_floats(widened, nan_low=nan_low)
    return Interval(low, high)
