"""Grouping keys for units that Spark spreads evenly over any number of partitions.

Spark sends the grouping key k to partition murmur3(k) mod P. Murmur3 over one 32-bit integer can be
undone, so unit u gets the key whose hash is u itself: it lands in partition u mod P, whatever P is,
and its key stays the same when P changes.
"""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_SEED = 42
_C1 = 0xCC9E2D51
_C2 = 0x1B873593
_ADD = 0xE6546B64
_FINAL_1 = 0x85EBCA6B
_FINAL_2 = 0xC2B2AE35
_INT_BYTES = 4


def murmur3(key: int) -> int:
    """Spark's hash of an integer key, as an unsigned number."""
    k = _rotate(key * _C1, 15) * _C2 & _MASK
    h = (_rotate(_SEED ^ k, 13) * 5 + _ADD) & _MASK
    h ^= _INT_BYTES
    h = (h ^ h >> 16) * _FINAL_1 & _MASK
    h = (h ^ h >> 13) * _FINAL_2 & _MASK
    return h ^ h >> 16


def unit_key(unit: int) -> int:
    """The grouping key of a unit, as a signed 32-bit integer."""
    h = unit ^ unit >> 16
    h = h * _inverse(_FINAL_2) & _MASK
    h ^= h >> 13 ^ h >> 26
    h = h * _inverse(_FINAL_1) & _MASK
    h ^= h >> 16
    h ^= _INT_BYTES
    h = (h - _ADD) * _inverse(5) & _MASK
    k = _rotate(h, 32 - 13) ^ _SEED
    k = _rotate(k * _inverse(_C2), 32 - 15) * _inverse(_C1) & _MASK
    return k - (1 << 32) if k >= 1 << 31 else k


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (32 - bits)) & _MASK


def _inverse(odd: int) -> int:
    return pow(odd, -1, 1 << 32)
