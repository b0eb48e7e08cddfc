"""A hash of each row's content: random, yet the same when a task runs again.

Position in the batch would spread rows as well, but a task that runs again may see them in another
order and would then store a tuple twice or not at all. For the same reason the hash of a row
depends on nothing else in its batch: not on where it is, nor on what lies in Arrow's buffers
beside it or under a NULL.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream import arrow
from thetastream.index.encoding import Bools, Int64s, encode, encode_integers, is_integral
from thetastream.index.hashing import UInt64s, mixed
from thetastream.index.part import Tuples

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(0xC2B2AE3D27D4EB4F)
_BLOCK_ROWS = 1 << 16
"""Rows that are hashed at a time, so that what is worked out on the way stays in the processor."""

_WORD = 8
_LONG_BYTES = 256
"""Texts up to here are hashed all at once, a word at a time; for a longer one a call of its own
takes less."""

_MASKS = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], dtype=np.uint64)
"""The bytes of a word that belong to a text, by how many of them do."""


def content_hash(tuples: Tuples) -> UInt64s:
    """A hash of each row's keys and columns."""
    if "content" not in tuples.memo:
        tuples.memo["content"] = _content_hash(tuples)
    found: UInt64s = tuples.memo["content"]
    return found


def _content_hash(tuples: Tuples) -> UInt64s:
    total = np.empty(len(tuples), dtype=np.uint64)
    for start in range(0, len(total), _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, len(total))
        some = tuples.slice(start, stop)
        keys = [values.view(np.uint64) for values in some.keys]
        columns = [*keys, *map(_hashed, some.batch.columns)]
        total[start:stop] = mixed(_combined(columns, stop - start))
    return total


def _combined(columns: list[UInt64s], count: int) -> UInt64s:
    total = np.zeros(count, dtype=np.uint64)
    for values in columns:
        total = mixed(total ^ values) + _STEP
    return total


def _hashed(column: pa.Array) -> UInt64s:
    """A number for each value, and the same one for NULLs; equal where nothing cheap tells."""
    kind = column.type
    if is_integral(kind) or pa.types.is_floating(kind):
        return _numbers(column)
    if pa.types.is_decimal128(kind):
        return _decimals(column)
    if arrow.is_text(kind):
        return _texts(column)
    if pa.types.is_struct(kind):
        # Flattening lays the NULLs of the struct over its fields.
        return _combined([_hashed(field) for field in column.flatten()], len(column))
    if arrow.is_list(kind):
        return _lists(column)
    return np.zeros(len(column), dtype=np.uint64)


def _numbers(column: pa.Array) -> UInt64s:
    if pa.types.is_floating(column.type):
        return encode(column.fill_null(0.0), "float").view(np.uint64)
    if column.null_count == 0:
        return encode_integers(column).view(np.uint64)
    values = np.zeros(len(column), dtype=np.int64)
    values[_valid(column)] = encode_integers(column.drop_null())
    return values.view(np.uint64)


def _decimals(column: pa.Array) -> UInt64s:
    halves = np.frombuffer(column.buffers()[1], dtype=np.uint64)
    start = 2 * column.offset
    halves = halves[start : start + 2 * len(column)]
    values = halves[::2] ^ (halves[1::2] * _FACTOR)
    if column.null_count:
        values[~_valid(column)] = 0
    return values


def _texts(column: pa.Array) -> UInt64s:
    """Hashes of all the bytes of each text."""
    offsets = arrow.offsets(column)
    data_buffer = column.buffers()[2]
    begin, end = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(data_buffer or b"", dtype=np.uint8)[begin : end + _WORD]
    if len(data) < end - begin + _WORD:
        # A word is read where a text has only some bytes left: let there be a whole one.
        data = np.pad(data[: end - begin], (0, _WORD))
    starts, lengths = offsets[:-1] - begin, np.diff(offsets)
    if column.null_count:
        lengths[~_valid(column)] = 0
    return _bytes(data, starts, lengths)


def _bytes(data: npt.NDArray[np.uint8], starts: Int64s, lengths: Int64s) -> UInt64s:
    """Hashes of stretches of `data`, which goes on for a word behind the last of them."""
    words: UInt64s = np.ndarray(len(data) - _WORD + 1, dtype="<u8", buffer=data, strides=(1,))
    total = lengths.astype(np.uint64) * _STEP
    long = np.flatnonzero(lengths > _LONG_BYTES)
    if len(long):
        ends = (starts + lengths)[long].tolist()
        view = data.data
        found = [
            zlib.crc32(view[start:end])
            for start, end in zip(starts[long].tolist(), ends, strict=True)
        ]
        total[long] += np.array(found, dtype=np.uint64)
        lengths[long] = 0
    rows = np.flatnonzero(lengths > 0)
    at, left = starts[rows], lengths[rows]
    while len(rows):
        some = total[rows] ^ (words[at] & _MASKS[np.minimum(left, _WORD)])
        some *= _FACTOR
        some ^= some >> np.uint64(29)
        total[rows] = some
        more = np.flatnonzero(left > _WORD)
        rows, at, left = rows[more], at[more] + _WORD, left[more] - _WORD
    return total


def _lists(column: pa.Array) -> UInt64s:
    """Sums of the hashes of each list's elements."""
    offsets = arrow.offsets(column)
    begin, end = int(offsets[0]), int(offsets[-1])
    sums = np.zeros(end - begin + 1, dtype=np.uint64)
    np.cumsum(mixed(_hashed(column.values.slice(begin, end - begin)) + _STEP), out=sums[1:])
    total = sums[offsets[1:] - begin] - sums[offsets[:-1] - begin]
    if column.null_count:
        total[~_valid(column)] = 0
    return total


def _valid(column: pa.Array) -> Bools:
    return np.asarray(column.is_valid())
