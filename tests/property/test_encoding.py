"""Encoded keys order as Spark orders the values, for every type, whatever slice they come from."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from thetastream.errors import TypeMismatchError
from thetastream.index.encoding import decode_floats, encode, encode_floats

INT64 = st.integers(-(2**63), 2**63 - 1)
doubles = st.floats() | st.sampled_from(
    [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, -5e-324, 2.2250738585072014e-308]
)
singles = st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan, 2.0**-149, -(2.0**-149)])
texts = st.text(max_size=12) | st.sampled_from(
    ["", "\0", "a", "a\0", "abcdefgh", "abcdefgha", "abcdefgh\0", "ÿ", "日本語", "\U0010ffff"]
)
binaries = st.binary(max_size=12) | st.sampled_from([b"", b"\0", b"\xff" * 8, b"\xff" * 9])


def float_order(value: float) -> tuple[int, float]:
    return (1, 0.0) if math.isnan(value) else (0, value + 0.0)


def same(value: Any) -> Any:
    return value


def utf8(value: str) -> bytes:
    return value.encode()


Order = Callable[[Any], Any]
EXACT: list[Any] = [
    (pa.bool_(), "integer", st.booleans(), same),
    (pa.int8(), "integer", st.integers(-128, 127), same),
    (pa.int16(), "integer", st.integers(-(2**15), 2**15 - 1), same),
    (pa.int32(), "integer", st.integers(-(2**31), 2**31 - 1), same),
    (pa.int64(), "integer", INT64, same),
    (pa.float32(), "float", singles, float_order),
    (pa.float64(), "float", doubles, float_order),
    (pa.decimal128(18, 0), "decimal", st.integers(-(10**18) + 1, 10**18 - 1).map(Decimal), same),
    (
        pa.decimal128(9, 4),
        "decimal",
        st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-4)),
        same,
    ),
    (pa.date32(), "integer", st.dates(), same),
    (pa.timestamp("us"), "integer", st.datetimes(), same),
    (
        pa.timestamp("us", tz="UTC"),
        "integer",
        st.datetimes(timezones=st.just(datetime.UTC)),
        same,
    ),
    (
        pa.duration("us"),
        "integer",
        st.timedeltas(datetime.timedelta(days=-(10**6)), datetime.timedelta(days=10**6)),
        same,
    ),
    (pa.time64("us"), "integer", st.times(), same),
]
LOSSY: list[Any] = [
    (pa.string(), "prefix", texts, utf8),
    (pa.large_string(), "prefix", texts, utf8),
    (pa.binary(), "prefix", binaries, same),
    (pa.large_binary(), "prefix", binaries, same),
]


def names(cases: list[Any]) -> list[str]:
    return [str(case[0]) for case in cases]


def signs(values: list[Any]) -> list[list[int]]:
    return [[(a > b) - (a < b) for b in values] for a in values]


@pytest.mark.parametrize(("kind", "encoding", "values", "order"), EXACT, ids=names(EXACT))
@examples(40)
@given(data=st.data())
def test_an_exact_encoding_orders_and_separates_as_the_values(
    kind: pa.DataType, encoding: str, values: st.SearchStrategy[Any], order: Order, data: Any
) -> None:
    drawn = data.draw(st.lists(values, min_size=1, max_size=9))
    encoded = encode(pa.array(drawn, kind), encoding)
    assert encoded.dtype == np.int64
    assert signs([int(v) for v in encoded]) == signs([order(v) for v in drawn])


@pytest.mark.parametrize(("kind", "encoding", "values", "order"), LOSSY, ids=names(LOSSY))
@examples(40)
@given(data=st.data())
def test_a_lossy_encoding_never_turns_the_order_round(
    kind: pa.DataType, encoding: str, values: st.SearchStrategy[Any], order: Order, data: Any
) -> None:
    drawn = data.draw(st.lists(values, min_size=1, max_size=9))
    encoded = [int(v) for v in encode(pa.array(drawn, kind), encoding)]
    for one, code in zip(drawn, encoded, strict=True):
        for two, other in zip(drawn, encoded, strict=True):
            first, second = order(one), order(two)
            if first < second:
                assert code <= other
            if first == second or (first[:8] == second[:8] and len(first) == len(second)):
                assert code == other
            if first[:8].ljust(8, b"\0") < second[:8].ljust(8, b"\0"):
                assert code < other


@pytest.mark.parametrize(
    ("kind", "encoding", "values", "order"), EXACT + LOSSY, ids=names(EXACT + LOSSY)
)
@examples(25)
@given(data=st.data())
def test_a_slice_encodes_as_its_own_values(
    kind: pa.DataType, encoding: str, values: st.SearchStrategy[Any], order: Order, data: Any
) -> None:
    drawn = data.draw(st.lists(values, min_size=1, max_size=20))
    start = data.draw(st.integers(0, len(drawn) - 1))
    stop = data.draw(st.integers(start + 1, len(drawn)))
    whole = pa.array(drawn, kind)
    piece = whole.slice(start, stop - start)
    assert encode(piece, encoding).tolist() == encode(whole, encoding)[start:stop].tolist()
    again = piece.slice(0, 1)
    assert encode(again, encoding).tolist() == encode(whole, encoding)[start : start + 1].tolist()


@pytest.mark.parametrize(
    ("kind", "encoding", "values", "order"), EXACT + LOSSY, ids=names(EXACT + LOSSY)
)
def test_no_rows_encode_to_no_keys(
    kind: pa.DataType, encoding: str, values: st.SearchStrategy[Any], order: Order
) -> None:
    assert len(encode(pa.array([], kind), encoding)) == 0
    some = pa.array([_one(kind)], kind)
    assert len(encode(some.slice(1, 0), encoding)) == 0


def _one(kind: pa.DataType) -> Any:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "abc"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return b"abc"
    if pa.types.is_decimal(kind):
        return Decimal(1)
    if pa.types.is_boolean(kind):
        return True
    if pa.types.is_time(kind):
        return datetime.time(1)
    if pa.types.is_date(kind):
        return datetime.date(2024, 1, 1)
    if pa.types.is_timestamp(kind):
        zone = datetime.UTC if kind.tz else None
        return datetime.datetime(2024, 1, 1, tzinfo=zone)
    if pa.types.is_duration(kind):
        return datetime.timedelta(1)
    return 1


@examples(200)
@given(values=st.lists(doubles, min_size=1, max_size=20))
def test_floats_come_back_from_their_encoding(values: list[float]) -> None:
    array = np.array(values)
    for nan_low in (False, True):
        back = decode_floats(encode_floats(array, nan_low=nan_low))
        assert np.array_equal(back, array + 0.0, equal_nan=True)


@examples(100)
@given(values=st.lists(doubles, min_size=1, max_size=20))
def test_nan_is_at_the_bottom_where_that_is_asked_for(values: list[float]) -> None:
    encoded = encode(pa.array(values), "float_nan_low")
    numbers = [(0 if math.isnan(v) else 1, 0.0 if math.isnan(v) else v) for v in values]
    assert signs([int(v) for v in encoded]) == signs(numbers)


def test_every_nan_is_the_same_nan() -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001], dtype=np.uint64)
    encoded = encode(pa.array(bits.view(np.float64)), "float")
    narrow = np.array([0x7FC00000, 0xFFC00000, 0x7F800001], dtype=np.uint32).view(np.float32)
    assert len({*encoded.tolist(), *encode(pa.array(narrow), "float").tolist()}) == 1


def test_encoding_leaves_the_column_as_it_was() -> None:
    column = pa.array([math.nan, -0.0, 1.0])
    encode(column, "float")
    assert [repr(v) for v in column.to_pylist()] == ["nan", "-0.0", "1.0"]
    numbers = pa.array([3, 2, 1])
    encode(numbers, "integer")
    assert numbers.to_pylist() == [3, 2, 1]


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        (pa.decimal128(19, 0), "decimal"),
        (pa.decimal256(30, 0), "decimal"),
        (pa.list_(pa.int32()), "integer"),
    ],
)
def test_a_type_that_does_not_fit_is_refused(kind: pa.DataType, encoding: str) -> None:
    with pytest.raises(TypeMismatchError):
        encode(pa.nulls(1, kind), encoding)


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown encoding"):
        encode(pa.array([1]), "rot13")
