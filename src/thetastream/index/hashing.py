"""From keys to numbers below a count: well spread if they are many, evenly if they are few."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thetastream.index.encoding import Int64s

UInt64s = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""The golden ratio's share of 64 bits: steps of it fill a circle evenly, however many they are."""
_BLOCK_BITS = np.uint64(16)


def mixed(keys: Int64s | UInt64s) -> UInt64s:
    """A well-spread hash of each key; a bijection, so distinct keys stay distinct."""
    bits = keys.view(np.uint64).copy()
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits


def dealt(keys: Int64s) -> UInt64s:
    """A place on a circle for each key: keys that follow each other lie evenly around it.

    A hash would leave some units without any of a few keys or buckets, and give others several.
    """
    bits = keys.view(np.uint64)
    return bits * _GOLDEN + mixed(bits >> _BLOCK_BITS)


def scaled(places: UInt64s, count: int) -> npt.NDArray[np.int64]:
    """The places on the circle as numbers below count, equal arcs of it for each."""
    return ((places >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).view(np.int64)
