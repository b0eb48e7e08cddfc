"""Unit keys: distinct, inverse to Spark's hash, and spread over any number of partitions."""

from __future__ import annotations

import struct
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from thetastream.options import MAX_UNITS
from thetastream.topology.unitkeys import murmur3, unit_key

SPARK_HASHES = {0: 933211791, 1: -559580957, 42: 29417773, -1: -1604776387}
"""`SELECT hash(CAST(k AS INT))` in Spark."""


def reference(data: bytes, seed: int) -> int:
    """MurmurHash3_x86_32 of whole 32-bit blocks, after its description."""

    def multiply(one: int, two: int) -> int:
        return one * two % 2**32

    def turn(value: int, bits: int) -> int:
        return value << bits & 0xFFFFFFFF | value >> (32 - bits)

    state = seed
    for (block,) in struct.iter_unpack("<I", data):
        state ^= multiply(turn(multiply(block, 0xCC9E2D51), 15), 0x1B873593)
        state = (multiply(turn(state, 13), 5) + 0xE6546B64) % 2**32
    state ^= len(data)
    state = multiply(state ^ state >> 16, 0x85EBCA6B)
    state = multiply(state ^ state >> 13, 0xC2B2AE35)
    return state ^ state >> 16


@pytest.mark.parametrize("key", sorted(SPARK_HASHES))
def test_the_hash_is_sparks(key: int) -> None:
    assert murmur3(key) == SPARK_HASHES[key] % 2**32


@examples(300)
@given(key=st.integers(-(2**31), 2**31 - 1))
def test_the_hash_is_murmur3(key: int) -> None:
    assert murmur3(key) == reference(struct.pack("<i", key), 42)


@examples(300)
@given(unit=st.integers(0, 2**32 - 1))
def test_a_unit_key_hashes_to_its_unit(unit: int) -> None:
    key = unit_key(unit)
    assert -(2**31) <= key < 2**31
    assert murmur3(key) == unit


def test_keys_are_distinct() -> None:
    units = range(MAX_UNITS * 4)
    assert len({unit_key(unit) for unit in units}) == len(units)


@examples(100)
@given(partitions=st.integers(1, 2000), units=st.integers(1, 512))
def test_units_spread_as_evenly_as_can_be(partitions: int, units: int) -> None:
    # Spark takes the signed hash modulo the partitions, and never a negative one.
    signed = [(murmur3(unit_key(unit)) + 2**31) % 2**32 - 2**31 for unit in range(units)]
    loads = Counter(value % partitions for value in signed)
    assert max(loads.values()) == -(-units // partitions)
    assert len(loads) == min(units, partitions)
