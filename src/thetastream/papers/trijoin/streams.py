"""Three streams of positions or packets, around hot spots, and the two joins of them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from thetastream.simulator import Replayed

Join = Literal["cyclic", "chain"]
Data = Literal["gps", "packets"]

EPSILON: Final = 6
"""How near two values have to be: nearer than this."""
SPREAD: Final = 10
"""How far from its hot spot a value is, at most."""
DISTANCE: Final = 60
"""Between two hot spots: more than two spreads and a band."""
PARTNERS: Final = {"gps": 4.0, "packets": 2.0}
"""Tuples of another stream, in the window, that a tuple meets; those of the benchmark."""
POPULAR: Final = 0.375
"""With a fifth of the others, these make half of the packets go to a fifth of the spots."""
ROWS: Final = 20_000
"""Rows of a stream before it begins again: no run gets there."""
PAYLOAD: Final = "." * 56
"""With two keys and a time, a tuple has the 80 bytes of the paper's."""

BANDS: Final = (
    f"abs(r.i - s.i) < {EPSILON}",
    f"abs(s.n - t.n) < {EPSILON}",
    f"abs(r.n - t.i) < {EPSILON}",
)
PREDICATES: Final[dict[Join, str]] = {
    "cyclic": " AND ".join(BANDS),
    "chain": " AND ".join(BANDS[:2]),
}


def near() -> float:
    """The share of two tuples of a spot that are near each other in one value."""
    offsets = np.arange(-SPREAD, SPREAD + 1)
    return float(np.mean(np.abs(offsets[:, None] - offsets[None, :]) < EPSILON))


def spots(stored: float, partners: float) -> int:
    """Hot spots, so that a tuple meets so many of the stored ones, about."""
    return max(2, round(stored * near() / partners))


@lru_cache(maxsize=8)
def tables(data: Data, count: int) -> tuple[pa.Table, ...]:
    """The rows of the three streams.

    All spots of GPS are as popular as each other; of packets a fifth of the spots have half.
    """
    found = []
    for side in range(3):
        rng = np.random.default_rng((20_260_101, side))
        spot = rng.integers(0, count, ROWS)
        if data == "packets":
            spot = np.where(rng.random(ROWS) < POPULAR, spot // 5, spot)
        columns = {
            name: spot * DISTANCE + rng.integers(-SPREAD, SPREAD + 1, ROWS) for name in ("i", "n")
        }
        found.append(pa.table({**columns, "rest": pa.array([PAYLOAD] * ROWS)}))
    return tuple(found)


def streams(data: Data, *, rate: float, stored: float, partners: float) -> dict[str, Replayed]:
    """The three streams; a tuple has so many partners among so many stored ones."""
    rows = tables(data, spots(stored, partners))
    return {name: Replayed(table, rate) for name, table in zip("rst", rows, strict=True)}
