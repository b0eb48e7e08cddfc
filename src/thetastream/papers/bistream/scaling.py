"""Figure 12: units are added and removed while the load changes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from thetastream.options import JoinOptions
from thetastream.papers.bistream.data import PREDICATES, streams
from thetastream.papers.bistream.settings import CPU, LINK, PAGE, SEED, mean_stored
from thetastream.papers.figure import Figure, Finding, Outcome, at_most
from thetastream.simulator import Cluster, Simulation, Steps, Trace
from thetastream.steering.scaling import TwoPhaseScaling

MINUTE: Final = 60.0
WINDOW: Final = 5 * MINUTE
HIGH, LOW, TARGET, PATIENCE = 0.8, 0.3, 0.6, 3
UNITS: Final = 8
EPOCH: Final = 10.0
RATE: Final = 100.0
"""Tuples per second with which the first units have the load that scaling aims at."""
SCHEDULE: Final = (
    (0.0, 1.0),
    (8.0, 1.45),  # A load of 0.87 on 8 units.
    (22.0, 2.5 * 1.45),  # For a minute and a half only,
    (23.5, 0.4 * 1.45),  # and then as much less.
    (27.0, 1.45),
    (34.0, 0.65),  # A load of 0.27 on 12 units.
)
"""Minutes, and the rate from then on as a multiple. The paper's rates are in a picture: these are
the loads with which equation 7 asks for its 4 units more and its 6 units fewer."""
END: Final = 50.0
SHORT: Final = (22.0, 31.0)
"""Minutes of the short rise and fall."""


def wanted(load: float, units: int) -> int:
    """Equation 7: how many units there are to be, rounded up.

    >>> wanted(0.9, 8), wanted(0.3, 12)
    (12, 6)
    """
    return math.ceil(load / TARGET * units - 1e-9)


@dataclass(frozen=True)
class _Change:
    """The number of units changes."""

    minute: float
    before: int
    after: int
    load: float
    """Before it."""


def _simulation(rate: float | Steps, policies: list[TwoPhaseScaling]) -> Simulation:
    return Simulation(
        streams("Q7", 40_000).sources(rate),
        PREDICATES["Q7"],
        within=f"{WINDOW} seconds",
        options=JoinOptions(topology="random", units=(UNITS, UNITS)),
        cluster=Cluster(epoch=EPOCH, cpu=CPU, network=LINK),
        policies=policies,
        max_units=4 * UNITS if policies else None,
        seed=SEED,
    )


@lru_cache(maxsize=2)
def _capacity(rate: float) -> float:
    """Bytes of a unit with which the first load is the target."""
    sizes = mean_stored(_simulation(rate, []).run(1.8 * WINDOW))
    return float(np.mean(sizes[-18:])) / TARGET


def _run(minutes: float, rate: float) -> tuple[Trace, float]:
    capacity = _capacity(rate)
    policy = TwoPhaseScaling(
        capacity=capacity, high=HIGH, low=LOW, target=TARGET, patience=PATIENCE, every=MINUTE
    )
    steps = Steps(tuple((MINUTE * at, rate * times) for at, times in SCHEDULE))
    return _simulation(steps, [policy]).run(minutes * MINUTE), capacity


def _dynamic(quick: bool) -> Outcome:
    minutes, rate = (18.0, RATE / 5) if quick else (END, RATE)
    trace, capacity = _run(minutes, rate)
    total = trace.by_tick(lambda turn: turn.stored_bytes)
    units = [count for _, count in trace.units]
    at = [closed / MINUTE for closed, _ in trace.units]
    loads = [total[tick] / capacity / count for tick, count in enumerate(units)]
    changes = [
        _Change(at[tick], units[tick - 1], units[tick], loads[tick - 1])
        for tick in range(1, len(units))
        if units[tick] != units[tick - 1]
    ]
    listed = "; ".join(
        f"minute {one.minute:.0f}: {one.before} to {one.after} at load {one.load:.2f}"
        for one in changes
    )
    grown = [one for one in changes if one.after > one.before]
    shrunk = [one for one in changes if one.after < one.before]
    findings = [
        Finding(
            claim="units are added when the load stays above 0.8: 4 of them, as equation 7 says",
            found=listed,
            holds=[one.after - one.before for one in grown] == [4]
            and all(one.after == wanted(one.load, one.before) for one in grown),
        ),
        Finding(
            claim="no tuple is moved from unit to unit",
            found=f"{sum(turn.moved for turn in trace.turns):,} bytes moved",
            holds=not any(turn.moved for turn in trace.turns),
            why="New tuples go to the new units, old ones leave with the window.",
        ),
    ]
    if not quick:
        said = _said(trace)
        passed = [text for minute, text in said if SHORT[0] <= minute <= SHORT[1] and "above" in text]
        inside = [one for one in changes if SHORT[0] <= one.minute <= SHORT[1]]
        findings += [
            Finding(
                claim="units are removed when the load stays below 0.3: 6 of them",
                found=listed,
                holds=[one.before - one.after for one in shrunk] == [6]
                and all(one.after == wanted(one.load, one.before) for one in shrunk),
            ),
            Finding(
                claim="the short rise and fall of minutes 22 to 31 changes nothing",
                found=f"{len(inside)} changes; the load was above 0.8 at {len(passed)} checks",
                holds=not inside,
                why="Three checks in a row are needed.",
            ),
        ]
    waits = _work(trace)
    before = np.mean([waits[tick] for tick in range(len(at)) if 6 <= at[tick] <= 8])
    near = [
        waits[tick]
        for tick in range(len(at))
        if any(0 <= at[tick] - one.minute <= 2 for one in changes)
    ]
    per_rate = dict(zip(range(len(at)), (rows for _, rows in trace.arrived), strict=True))
    steady = before / np.mean([per_rate[tick] for tick in range(len(at)) if 6 <= at[tick] <= 8])
    changing = [
        waits[tick] / max(1, per_rate[tick])
        for tick in range(len(at))
        if any(0 <= at[tick] - one.minute <= 2 for one in changes)
    ]
    findings.append(
        at_most(
            "latency does not change while units are added and removed",
            float(np.mean(changing) / steady) if near else math.inf,
            1.2,
            unit=" times the work of the busiest unit per tuple that came, in the two minutes after"
            " a change, against minutes 6 to 8",
        )
    )
    return Outcome(
        findings=findings,
        series={
            "units": list(zip(at, map(float, units), strict=True)),
            "load, percent": [(x, 100 * y) for x, y in zip(at, loads, strict=True)],
            "input tuples per second": [
                (x, rows / EPOCH) for x, (_, rows) in zip(at, trace.arrived, strict=True)
            ],
            "work of the busiest unit, ms": [(x, 1000 * y) for x, y in zip(at, waits, strict=True)],
        },
        x_label="minutes",
        y_label="units, percent, tuples/s, ms",
        log_y=True,
        numbers={"decisions": trace.decisions, "mean delay, seconds": trace.delay()},
    )


def _work(trace: Trace) -> list[float]:
    """For each tick, how long the last unit takes from the end of the tick."""
    found: dict[int, float] = {}
    for turn in trace.turns:
        found[turn.tick] = max(found.get(turn.tick, 0.0), turn.finish - turn.closed)
    return [found[tick] for tick in sorted(found)]


def _said(trace: Trace) -> list[tuple[float, str]]:
    """The minutes of the policy's decisions, and what they were."""
    found = []
    for text in trace.decisions:
        at, _, rest = text.partition(" s, ")
        found.append((float(at.replace(",", "")) / MINUTE, rest))
    return found


FIGURES: Final = (
    Figure(
        name="bistream-12",
        paper=PAGE,
        number="figure 12",
        title="units follow the load, Q7",
        setting="A window of 5 minutes, 50 minutes of virtual time, thresholds 0.8 and 0.3, target"
        " 0.6, a check each minute, three equal decisions. 8 units at first, which hold both"
        f" streams; {RATE:.0f} tuples/s at first, and a unit's capacity is such that the first load"
        " is 0.6. The paper's rates are only drawn: here they are those with which equation 7 asks"
        " for 4 units more and 6 fewer, and a short rise and fall.",
        run=_dynamic,
    ),
)
