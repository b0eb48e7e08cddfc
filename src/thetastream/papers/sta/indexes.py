"""Figures 5 and 6: what a separate index for the most frequent keys saves the others."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from thetastream.engine.measures import Redundancy, index_updates, redundancy
from thetastream.index.asketch import ASketch
from thetastream.index.encoding import Int64s
from thetastream.papers.figure import Finding, Outcome
from thetastream.papers.sta.data import DOMAIN, zipf_keys

EXPONENTS: Final = (0.1, 0.5, 1.0, 1.5, 2.0)
WINDOW: Final = {True: 5_000, False: 25_000}
"""Tuples in a window, in the quick form and in the full one: the paper's 50 s at 500 tuples/s."""
SUB_INDEXES: Final = 10
BATCH: Final = 250
"""Tuples that the predictor counts at a time."""
SLACK: Final = 0.01
"""Shares that grow may fall by this much: keys are drawn at random."""


def hot_keys(keys: Int64s) -> frozenset[int]:
    """The keys in the filter of an ASketch that has seen the keys."""
    sketch = ASketch()
    for start in range(0, len(keys), BATCH):
        sketch.add(*np.unique(keys[start : start + BATCH], return_counts=True))
    return frozenset(one.key for one in sketch.frequent())


def two_windows(exponent: float, quick: bool) -> tuple[Int64s, frozenset[int]]:
    """The keys of a window, and those that were hot in the window before."""
    size = WINDOW[quick]
    keys = zipf_keys(exponent, 2 * size)
    return keys[size:], hot_keys(keys[:size])


def saved(without: float, with_apart: float) -> float:
    """The share that is saved."""
    return 1 - with_apart / without if without else 0.0


def grows(values: list[float]) -> bool:
    """Whether shares grow, but for the slack."""
    return values[-1] > values[0] and all(
        later >= earlier - SLACK for earlier, later in pairwise(values)
    )


def shown(shares: dict[float, float]) -> str:
    """Shares as text."""
    return ", ".join(f"{share:.1%} at {exponent:g}" for exponent, share in shares.items())


def figure_5(quick: bool) -> Outcome:
    """Index updates with and without an index of their own for the top keys."""
    moves: dict[float, tuple[int, int]] = {}
    writes: dict[float, tuple[int, int]] = {}
    for exponent in EXPONENTS:
        keys, hot = two_windows(exponent, quick)
        subs = [some.tolist() for some in np.array_split(keys, SUB_INDEXES)]
        without = sum(index_updates(some) for some in subs)
        moves[exponent] = without, sum(index_updates(some, hot) for some in subs)
        cold = int((~np.isin(keys, list(hot))).sum())
        writes[exponent] = len(keys), cold
    written = {z: saved(*of) for z, of in writes.items()}
    moved = {z: saved(*of) for z, of in moves.items()}
    return Outcome(
        findings=[
            Finding(
                claim="with an index of their own for the top keys, fewer tuples are written into"
                " the sub-indexes",
                found=f"fewer by {shown(written)}",
                holds=all(share > 0 for share in written.values()),
            ),
            Finding(
                claim="the more so the higher Zipf",
                found=f"from {written[EXPONENTS[0]]:.1%} to {written[EXPONENTS[-1]]:.1%}",
                holds=grows(list(written.values())),
            ),
            Finding(
                claim="keys in the sub-indexes move less often, the more so the higher Zipf",
                found=f"less by {shown(moved)}",
                holds=all(share > 0 for share in moved.values()) and grows(list(moved.values())),
                why="A key moves when a smaller one comes that was not there yet; one that is there"
                " already moves nothing, however frequent it is",
            ),
        ],
        series={
            "tuples written, one index": [(z, of[0]) for z, of in writes.items()],
            "tuples written, top keys apart": [(z, of[1]) for z, of in writes.items()],
        },
        x_label="exponent of Zipf",
        y_label="tuples written into sub-indexes",
        numbers={
            "moves of keys, one index and top keys apart": {f"{z:g}": of for z, of in moves.items()}
        },
    )


def figure_6(quick: bool) -> Outcome:
    """Redundancy of keys with and without an index of their own for the top keys."""
    found: dict[float, tuple[Redundancy, Redundancy]] = {}
    for exponent in EXPONENTS:
        keys, hot = two_windows(exponent, quick)
        subs = [some.tolist() for some in np.array_split(keys, SUB_INDEXES)]
        found[exponent] = redundancy(subs), redundancy(subs, hot)
    fewer = {z: saved(one.repeated, apart.repeated) for z, (one, apart) in found.items()}
    per_key = ", ".join(
        f"{one.per_key:.2f} and {apart.per_key:.2f} at {z:g}" for z, (one, apart) in found.items()
    )
    return Outcome(
        findings=[
            Finding(
                claim="with an index of their own for the top keys, fewer keys are in several"
                " sub-indexes",
                found=f"repeated entries fall by {shown(fewer)}",
                holds=all(share > 0 for share in fewer.values()),
            ),
            Finding(
                claim="the more so the higher Zipf",
                found=f"sub-indexes that have a key, on average: {per_key}",
                holds=grows(list(fewer.values())),
            ),
        ],
        series={
            "one index": [(z, one.repeated) for z, (one, _) in found.items()],
            "top keys apart": [(z, apart.repeated) for z, (_, apart) in found.items()],
        },
        x_label="exponent of Zipf",
        y_label="entries of keys that are in another sub-index as well",
    )


SETTING: Final = (
    f"A window of {WINDOW[False]:,} tuples (50 s of one tuple every 2 ms) in {SUB_INDEXES}"
    f" sub-indexes; {DOMAIN:,} keys, whose order has nothing to do with their frequency. The top"
    " keys are the 32 that an ASketch has in its filter after the window before. Nothing is"
    " scaled down."
)
