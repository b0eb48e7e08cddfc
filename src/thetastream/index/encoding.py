"""Keys of every orderable Spark type as 64-bit integers in the same order.

With keys encoded this way one set of integer kernels serves all types. Spark's own order is kept:
NaN equals itself and is larger than everything, -0.0 equals 0.0, strings compare by their bytes.
An encoding that loses information (the prefix of a string) keeps the order as far as it goes: what
is smaller never becomes larger, so a comparison of encoded keys lets too much through, never too
little.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thetastream import arrow
from thetastream.errors import TypeMismatchError

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Float64s = npt.NDArray[np.float64]

INT64_MIN = int(np.iinfo(np.int64).min)
INT64_MAX = int(np.iinfo(np.int64).max)
_MANTISSA_AND_EXPONENT = np.int64(INT64_MAX)
_PREFIX_BYTES = 8


def encode(column: pa.Array, encoding: str) -> Int64s:
    """The column's values as order-preserving integers; the column has no nulls."""
    if encoding == "integer":
        return encode_integers(column)
    if encoding == "float":
        return encode_floats(_floats(column))
    if encoding == "float_nan_low":
        return encode_floats(_floats(column), nan_low=True)
    if encoding == "decimal":
        return _unscaled(column)
    if encoding == "prefix":
        return _prefixes(column)
    raise ValueError(f"unknown encoding {encoding!r}")


def is_integral(kind: pa.DataType) -> bool:
    """Whether `encode_integers` takes the type."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_duration(kind)
        or pa.types.is_time64(kind)
    )


def encode_integers(column: pa.Array) -> Int64s:
    """Booleans, integers, dates, times, timestamps and durations by their integer value."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = pc.cast(column, pa.int8())
    elif pa.types.is_date32(kind):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time64(kind):
        column = column.view(pa.int64())
    elif not pa.types.is_integer(kind):
        raise TypeMismatchError(f"a key of type {kind} is not an integer", text=str(kind))
    values: Int64s = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return values


def encode_floats(values: Float64s, *, nan_low: bool = False) -> Int64s:
    """Doubles in Spark's order; NaN at the top, or at the bottom if asked."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        bits = (values + 0.0).view(np.int64)  # adding zero turns -0.0 into 0.0
    encoded = bits ^ ((bits >> 63) & _MANTISSA_AND_EXPONENT)
    missing = np.isnan(values)
    if missing.any():
        encoded[missing] = INT64_MIN if nan_low else INT64_MAX
    return encoded


def decode_floats(encoded: Int64s) -> Float64s:
    """The doubles that `encode_floats` encoded; both ends decode to NaN."""
    bits = encoded ^ ((encoded >> 63) & _MANTISSA_AND_EXPONENT)
    values = bits.view(np.float64)
    ends = (encoded == INT64_MAX) | (encoded == INT64_MIN)
    return np.where(ends, np.nan, values) if ends.any() else values


def _floats(column: pa.Array) -> Float64s:
    with np.errstate(invalid="ignore"):  # a signalling NaN
        values: Float64s = column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    return values


def _unscaled(column: pa.Array) -> Int64s:
    """The unscaled values of decimals: the low half of each 128-bit integer."""
    if not pa.types.is_decimal128(column.type) or column.type.precision > 18:
        raise TypeMismatchError(f"{column.type} does not fit 64 bits", text=str(column.type))
    data = column.buffers()[1]
    halves = np.frombuffer(data, dtype=np.int64)
    start = 2 * column.offset
    return halves[start : start + 2 * len(column) : 2].copy()


def _prefixes(column: pa.Array) -> Int64s:
    """The first eight bytes of strings or binaries, as big-endian integers."""
    if not arrow.is_text(column.type):
        column = pc.cast(column, pa.binary())
    offsets = arrow.offsets(column)
    data = np.frombuffer(column.buffers()[2] or b"", dtype=np.uint8)
    lengths = np.diff(offsets)
    prefix = np.zeros(len(column), dtype=np.uint64)
    for position in range(_PREFIX_BYTES):
        prefix <<= np.uint64(8)
        present = lengths > position
        if present.any():
            prefix[present] |= data[offsets[:-1][present] + position].astype(np.uint64)
    return (prefix ^ np.uint64(1 << 63)).view(np.int64)
