"""The streams of STA's figures: fares, voltage and current, and Zipf keys."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from thetastream.index.encoding import Int64s
from thetastream.workloads import Zipf, fare_streams, power_streams

Data = Literal["taxi", "voltage", "current", "zipf 1.0", "zipf 1.5", "zipf 2.0"]

DOMAIN: Final = 10_000
"""Values of Zipf keys. The paper does not say how many there are."""
ROWS: Final = 20_000
"""Rows of a table before it begins again: more than a run needs."""
SEED: Final = 3

PREDICATES: Final[dict[str, str]] = {"current": "r.v < s.v"}
"""What is joined on; the others on `r.v > s.v`."""


def zipf_keys(exponent: float, rows: int, seed: int = SEED) -> Int64s:
    """Zipf keys whose frequency has nothing to do with their order."""
    rng = np.random.default_rng((SEED, seed, round(1000 * exponent)))
    values = np.random.default_rng(SEED).permutation(DOMAIN).astype(np.int64)
    found: Int64s = values[Zipf(DOMAIN, exponent).draw(rng, rows)]
    return found


@lru_cache(maxsize=16)
def tables(data: Data, rows: int = ROWS) -> tuple[pa.Table, pa.Table]:
    """The rows of both streams, with the one value `v` that is compared.

    The paper joins trips with trips, and Zipf keys with Zipf keys: two streams of the same kind.
    """
    if data == "taxi":
        trips = fare_streams(SEED)["trips"]
        return _of(trips(0, rows)["fare"]), _of(trips(1, rows)["fare"])
    if data in ("voltage", "current"):
        sides = power_streams(SEED)
        letter = data[0] if data == "voltage" else "i"
        first, second = sides["r"](0, rows), sides["s"](0, rows)
        return _of(_read(first[f"{letter}1"], data)), _of(_read(second[f"{letter}2"], data))
    exponent = float(data.split()[1])
    return _of(pa.array(zipf_keys(exponent, rows, 1))), _of(pa.array(zipf_keys(exponent, rows, 2)))


def _read(values: pa.ChunkedArray, data: Data) -> pa.Array:
    """Readings as coarse as a meter's, so that some occur again and again as in the paper's data:
    whole volts, tenths of an ampere."""
    return pa.array(np.round(values.to_numpy(), 0 if data == "voltage" else 1) + 0.0)


def _of(values: pa.Array | pa.ChunkedArray) -> pa.Table:
    return pa.table({"v": values})
