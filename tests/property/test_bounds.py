"""Intervals hold exactly the integer keys that match, and at least the floats that match."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import examples
from thetastream.index.bounds import interval
from thetastream.index.encoding import INT64_MAX, INT64_MIN, encode_floats
from thetastream.spec import Arithmetic, Bound, Encoding, KeySpec, Range, RangeKind

EDGES = [INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX]
keys = st.integers(INT64_MIN, INT64_MAX) | st.sampled_from(EDGES) | st.integers(-5, 5)
offsets = (
    st.integers(-(2**64), 2**64)
    | st.integers(-5, 5)
    | st.sampled_from([*EDGES, 2**63, -(2**63) - 1, 2**64, -(2**64), 2**64 - 1, 1 - 2**64])
)
bounds = st.builds(lambda v, i: Bound(value=v, inclusive=i), offsets, st.booleans())
INTEGER = KeySpec(sql="k", type="bigint", encoding=Encoding.INTEGER)


def holds(difference: int, low: Bound | None, high: Bound | None) -> bool:
    if low is not None and not (
        difference >= low.value if low.inclusive else difference > low.value
    ):
        return False
    return high is None or (difference <= high.value if high.inclusive else difference < high.value)


def rule(low: Bound | None, high: Bound | None, arithmetic: Arithmetic) -> Range:
    kind = RangeKind.BAND if low and high else RangeKind.INEQUALITY
    return Range(left=0, right=0, low=low, high=high, kind=kind, arithmetic=arithmetic)


@examples(120)
@given(
    low=st.none() | bounds,
    high=st.none() | bounds,
    probing=st.lists(keys, min_size=1, max_size=8),
    stored=st.lists(keys, min_size=1, max_size=8),
    from_left=st.booleans(),
)
def test_integer_intervals_are_exact_up_to_the_last_bit(
    low: Bound | None, high: Bound | None, probing: list[int], stored: list[int], from_left: bool
) -> None:
    if low is None and high is None:
        return
    found = interval(
        rule(low, high, Arithmetic.INTEGER), from_left, np.array(probing, dtype=np.int64), INTEGER
    )
    # Keys next to the ends of the intervals are where a mistake by one would show.
    near = {
        int(end) + step
        for end in (*found.first, *found.last)
        for step in (-1, 0, 1)
        if INT64_MIN <= int(end) + step <= INT64_MAX
    }
    for mine, first, last in zip(probing, found.first, found.last, strict=True):
        for other in {*stored, *near}:
            difference = mine - other if from_left else other - mine
            assert (first <= other <= last) == holds(difference, low, high), (mine, other)


@examples(120)
@given(
    op=st.sampled_from(["<", "<=", ">", ">="]),
    probing=st.lists(keys, min_size=1, max_size=8),
    stored=st.lists(keys, min_size=1, max_size=8),
    from_left=st.booleans(),
)
def test_plain_comparisons_of_keys(
    op: str, probing: list[int], stored: list[int], from_left: bool
) -> None:
    end = Bound(value=0, inclusive=op.endswith("="))
    low, high = (None, end) if op.startswith("<") else (end, None)
    found = interval(
        rule(low, high, Arithmetic.NONE), from_left, np.array(probing, dtype=np.int64), INTEGER
    )
    compare = OPERATORS[op]
    for mine, first, last in zip(probing, found.first, found.last, strict=True):
        for other in stored:
            left, right = (mine, other) if from_left else (other, mine)
            assert (first <= other <= last) == compare(left, right)


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def spark_holds(op: str, one: Any, two: Any) -> bool:
    """Spark's comparison of floats: NaN equals itself and is larger than all."""

    def order(value: Any) -> tuple[int, float]:
        return (1, 0.0) if math.isnan(value) else (0, float(value))

    return bool(OPERATORS[op](order(one), order(two)))


doubles = st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324])
singles = st.floats(width=32) | st.sampled_from([0.0, math.nan, math.inf, -math.inf, 2.0**-149])
finite = st.floats(allow_nan=False, allow_infinity=False)
LARGEST = math.nextafter(math.inf, 0.0)


@examples(250)
@given(
    op=st.sampled_from(sorted(OPERATORS)),
    left=doubles,
    right=doubles,
    constant=finite,
    nearby=st.booleans(),
)
@example(op=">=", left=math.inf, right=1.2e308, constant=1e308, nearby=False)
@example(op="<=", left=-math.inf, right=-1.2e308, constant=-1e308, nearby=False)
@example(op=">=", left=math.inf, right=LARGEST, constant=LARGEST, nearby=False)
def test_a_difference_of_doubles_is_never_missed(
    op: str, left: float, right: float, constant: float, nearby: bool
) -> None:
    with np.errstate(all="ignore"):
        one, two = np.float64(left), np.float64(right)
        if nearby and np.isfinite(one - two):
            # The constant that decides: the rounded difference itself.
            constant = float(one - two)
        matches = spark_holds(op, one - two, constant)
    _assert_kept(op, left, right, constant, matches=matches, kind="double", difference=True)


@examples(250)
@given(
    op=st.sampled_from(sorted(OPERATORS)), left=doubles, right=doubles, constant=finite,
    nearby=st.booleans(),
)  # fmt: skip
@example(op=">=", left=-math.inf, right=-LARGEST / 2, constant=-LARGEST, nearby=False)
@example(op="<=", left=math.inf, right=LARGEST / 2, constant=LARGEST, nearby=False)
def test_a_sum_of_doubles_is_never_missed(
    op: str, left: float, right: float, constant: float, nearby: bool
) -> None:
    with np.errstate(all="ignore"):
        total = np.float64(right) + np.float64(constant)
        if nearby and np.isfinite(total):
            left = float(total)
        matches = spark_holds(op, np.float64(left), total)
    _assert_kept(op, left, right, constant, matches=matches, kind="double", difference=False)


@examples(250)
@given(
    op=st.sampled_from(sorted(OPERATORS)), left=singles, right=singles,
    constant=st.floats(width=32, allow_nan=False, allow_infinity=False), nearby=st.booleans(),
)  # fmt: skip
def test_a_difference_of_singles_is_never_missed(
    op: str, left: float, right: float, constant: float, nearby: bool
) -> None:
    with np.errstate(all="ignore"):
        difference = np.float32(left) - np.float32(right)
        if nearby and np.isfinite(difference):
            constant = float(difference)
        matches = spark_holds(op, difference, np.float32(constant))
    _assert_kept(op, left, right, constant, matches=matches, kind="float", difference=True)


@pytest.mark.parametrize("real", [np.float32, np.float64])
@pytest.mark.parametrize("op", ["<=", ">="])
def test_a_rounded_difference_decides_as_it_was_rounded(real: Any, op: str) -> None:
    """Values of like size, whose difference is nearly always rounded."""
    random = np.random.default_rng(5)
    pairs = (random.normal(size=(400, 2)) * 10.0 ** random.integers(-4, 5, (400, 2))).astype(real)
    kind = "float" if real is np.float32 else "double"
    for left, right in pairs:
        constant = float(left - right)
        _assert_kept(
            op, float(left), float(right), constant, matches=True, kind=kind, difference=True
        )


def _assert_kept(
    op: str,
    left: float,
    right: float,
    constant: float,
    *,
    matches: bool,
    kind: str,
    difference: bool,
) -> None:
    """Both ways of probing keep a pair that Spark keeps."""
    if not matches:
        return
    # NaN in what is subtracted makes the difference NaN, which only a lower bound lets through.
    nan_low = difference and op.startswith(">")
    if not nan_low and difference and (math.isnan(left) or math.isnan(right)):
        return
    end = Bound(value=constant)
    low, high = (None, end) if op.startswith("<") else (end, None)
    specs = [
        KeySpec(sql="x", type=kind, encoding=Encoding.FLOAT),
        KeySpec(sql="y", type=kind, encoding=Encoding.FLOAT_NAN_LOW if nan_low else Encoding.FLOAT),
    ]
    codes = [
        encode_floats(np.array([left])),
        encode_floats(np.array([right]), nan_low=nan_low),
    ]
    for stream in (0, 1):
        found = interval(
            rule(low, high, Arithmetic.FLOAT), stream == 0, codes[stream], specs[stream]
        )
        stored = int(codes[1 - stream][0])
        assert found.first[0] <= stored <= found.last[0], (stream, left, right)


def test_float_intervals_are_not_much_too_wide() -> None:
    band = rule(Bound(value=-0.5), Bound(value=0.5), Arithmetic.FLOAT)
    key = KeySpec(sql="x", type="double", encoding=Encoding.FLOAT)
    found = interval(band, False, encode_floats(np.array([100.0])), key)
    inside = encode_floats(np.array([99.4999, 99.5, 100.5, 100.5001]))
    kept = (found.first[0] <= inside) & (inside <= found.last[0])
    assert kept.tolist() == [False, True, True, False]


@pytest.mark.parametrize("value", [2**64, -(2**64), 2**70])
def test_offsets_beyond_any_difference(value: int) -> None:
    every = np.array(EDGES, dtype=np.int64)
    found = interval(rule(Bound(value=value), None, Arithmetic.INTEGER), False, every, INTEGER)
    empty = found.first > found.last
    assert empty.all() if value > 0 else not empty.any()
