"""Figures 32 and 33: where tuples are stored by hash, at random and round robin."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from thetastream.engine.measures import GATHERED_ROWS, aggregation, imbalance
from thetastream.index.encoding import Int64s
from thetastream.options import JoinOptions
from thetastream.papers.figure import Finding, Outcome
from thetastream.papers.sta.data import DOMAIN, zipf_keys
from thetastream.simulator import Generated, Simulation, Uniform
from thetastream.topology.dispatch import STORE, Dispatcher
from thetastream.topology.makers import make
from thetastream.workloads import START, TIME_TYPE

Partitioning = Literal["hash", "random"]

EXPONENTS: Final = (0.1, 0.5, 1.0, 1.5, 2.0)
ELEMENTS: Final = 40
GATHERING: Final = 100
"""Elements of figure 33."""
ROWS: Final = {True: 10_000, False: 50_000}
TWICE: Final = 2.0
CLAIMED: Final = 60
LEVEL: Final = 2.0
"""What stays level does not grow by more than this factor."""


def stored_at(keys: Int64s, partitioning: Partitioning, elements: int) -> Int64s:
    """The element that stores each tuple, by the real routing."""
    stream = Generated(rate=1.0, columns={"k": Uniform(2), "n": Uniform(2)})
    predicate = "r.k = s.k" if partitioning == "hash" else "r.k > s.k"
    plan = Simulation(
        {"r": stream, "s": stream},
        predicate,
        within="50 seconds",
        options=JoinOptions(topology=partitioning, units=elements),
    ).plan
    step = plan.tree.steps[0]
    times = pa.array(START + 2000 * np.arange(len(keys)), type=TIME_TYPE)
    numbers = np.arange(len(keys))
    columns = {"c_0": keys, "c_1": numbers, "c_2": times}
    batch = pa.table(columns).combine_chunks().to_batches()[0]
    table = make(step.spec, step.routing)
    found: Int64s = np.full(len(keys), -1, dtype=np.int64)
    for pack in Dispatcher(step.spec, table, step.spec.stages[0], 0).dispatch(batch):
        if pack.role & STORE:
            found[pack.batch.column("c_1").to_numpy()] = pack.unit
    return found


@lru_cache(maxsize=64)
def gap(exponent: float, partitioning: Partitioning, rows: int) -> tuple[float, float]:
    """Tuples that the busiest element has more than its share, and how many times its share."""
    units = stored_at(zipf_keys(exponent, rows), partitioning, ELEMENTS)
    found = imbalance(np.bincount(units, minlength=ELEMENTS).tolist())
    return found.gap, found.ratio


def figure_32(quick: bool) -> Outcome:
    """Load imbalance of hash and random partitioning."""
    rows = ROWS[quick]
    hashed = {z: gap(z, "hash", rows) for z in EXPONENTS}
    random = {z: gap(z, "random", rows) for z in EXPONENTS}
    ratios = {z: hashed[z][0] / random[z][0] for z in EXPONENTS}
    most, least = (choose(of[0] for of in random.values()) for choose in (max, min))
    return Outcome(
        findings=[
            Finding(
                claim="the imbalance of hash partitioning grows with Zipf",
                found=", ".join(f"{of[0]:,.0f} tuples at {z:g}" for z, of in hashed.items()),
                holds=[of[0] for of in hashed.values()] == sorted(of[0] for of in hashed.values()),
            ),
            Finding(
                claim="that of random partitioning stays level",
                found=", ".join(f"{of[0]:,.0f} tuples at {z:g}" for z, of in random.items()),
                holds=most <= LEVEL * least,
            ),
            Finding(
                claim="and is less than half of it",
                found=", ".join(f"{ratio:.1f} times less at {z:g}" for z, ratio in ratios.items()),
                holds=all(ratio > TWICE for ratio in ratios.values()),
                why=""
                if all(ratio > TWICE for ratio in ratios.values())
                else f"With {DOMAIN:,} keys of nearly the same frequency a hash divides them nearly"
                " as evenly as chance",
            ),
        ],
        series={
            "hash": [(z, of[0]) for z, of in hashed.items()],
            "random": [(z, of[0]) for z, of in random.items()],
        },
        x_label="exponent of Zipf",
        y_label="tuples of the busiest element beyond the mean",
        log_y=True,
        numbers={
            "busiest over mean, hash and random": {
                f"{z:g}": [round(hashed[z][1], 3), round(random[z][1], 3)] for z in EXPONENTS
            }
        },
    )


def expected(tuples: int, elements: int) -> float:
    """Elements that so many tuples reach at random, on average."""
    return elements * (1 - (1 - 1 / elements) ** tuples)


def figure_33(quick: bool) -> Outcome:
    """Elements from which the results of 1,000 tuples are gathered."""
    rows = ROWS[quick]
    lines: dict[str, dict[float, float]] = {"round robin": {}, "random": {}, "hash of the key": {}}
    for exponent in EXPONENTS:
        keys = zipf_keys(exponent, rows)
        turns = (np.arange(rows) % GATHERING).tolist()
        lines["round robin"][exponent] = aggregation(turns)
        for name, partitioning in (("random", "random"), ("hash of the key", "hash")):
            kind: Partitioning = "random" if partitioning == "random" else "hash"
            units = stored_at(keys, kind, GATHERING)
            lines[name][exponent] = aggregation(units.tolist())
    robin, random, hashed = lines.values()
    takes = np.log(1 - CLAIMED / GATHERING) / np.log(1 - 1 / GATHERING)
    mean = sum(random.values()) / len(random)
    return Outcome(
        findings=[
            Finding(
                claim=f"with round robin, results of {GATHERED_ROWS:,} tuples come from all"
                f" {GATHERING} elements",
                found=f"from {min(robin.values()):.0f}",
                holds=min(robin.values()) == GATHERING,
            ),
            Finding(
                claim=f"with random partitioning from about {CLAIMED}",
                found=f"from {mean:.1f} on average",
                holds=abs(mean - CLAIMED) <= 0.1 * GATHERING,
                why=f"Chance leaves {GATHERING - expected(GATHERED_ROWS, GATHERING):.3f} of"
                f" {GATHERING} elements out with {GATHERED_ROWS:,} tuples; {CLAIMED} elements are"
                f" those of {takes:.0f} tuples. If equal keys always go to the same element, it is"
                f" {', '.join(f'{count:.0f} at Zipf {z:g}' for z, count in hashed.items())}",
            ),
        ],
        series={name: list(line.items()) for name, line in lines.items()},
        x_label="exponent of Zipf",
        y_label=f"elements that {GATHERED_ROWS:,} tuples are gathered from",
    )


SETTING_32: Final = (
    f"{ROWS[False]:,} tuples with {DOMAIN:,} keys on {ELEMENTS} elements, routed as joins with"
    " these topologies route them; the imbalance is that of stored tuples."
)
SETTING_33: Final = (
    f"{ROWS[False]:,} tuples with {DOMAIN:,} keys on {GATHERING} elements, of which each"
    f" {GATHERED_ROWS:,} are looked at together."
)
