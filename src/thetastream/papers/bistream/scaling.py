"""Figure 12: units are added and removed while the load changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from thetastream.options import JoinOptions
from thetastream.papers.bistream.data import PREDICATES, streams
from thetastream.papers.bistream.settings import CPU, LINK, PAGE, SEED, mean_stored
from thetastream.papers.figure import Figure, Finding, Outcome, at_most
from thetastream.simulator import Cluster, Simulation, Steps, Trace
from thetastream.steering.policy import Moment, Verdict
from thetastream.steering.scaling import TwoPhaseScaling
from thetastream.testing.steered import BEGIN

MINUTE: Final = 60.0
WINDOW: Final = 5 * MINUTE
HIGH, LOW, TARGET, PATIENCE = 0.8, 0.3, 0.6, 3
UNITS: Final = 8
EPOCH: Final = 10.0
QUICK_EPOCH: Final = 60.0
FILLED: Final = 6.0
"""Minutes until the first window is full: the paper's line begins with units that are in use."""
RATE: Final = 400.0
"""Tuples per second with which the first units have the load that scaling aims at. With much less,
what an index takes beside its tuples would count, and memory would not be in proportion to it."""
ROWS: Final = 200_000
"""Tuples of each side before they begin again: more than a window has."""
SCHEDULE: Final = (
    (0.0, 1.0),
    (8.0, 1.5),  # A load of 0.9 on 8 units, a little less as memory is not quite in proportion.
    (22.0, 2.5 * 1.5),  # For a minute and a half only,
    (23.5, 0.4 * 1.5),  # and then as much less.
    (27.0, 1.5),
    (34.0, 0.65),  # A load of about 0.27 on 12 units.
)
"""Minutes, and the rate from then on as a multiple. The paper's rates are in a picture: these give
loads with which equation 7 asks for its 4 units more (0.825 to 0.9) and 6 fewer (0.25 to 0.3)."""
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
    """At the check that decided it."""


class _OnceFilled:
    """Two-phase scaling that is asked only when the first window is full."""

    def __init__(self, policy: TwoPhaseScaling) -> None:
        self._policy = policy
        self.name = policy.name
        self.every = policy.every

    def decide(self, moment: Moment, earlier: Sequence[Verdict]) -> Verdict:
        """What the policy says."""
        if moment.at - BEGIN < FILLED * MINUTE:
            return Verdict(why="the first window is not full yet")
        return self._policy.decide(moment, earlier)


def _simulation(rate: float | Steps, epoch: float, policies: list[_OnceFilled]) -> Simulation:
    return Simulation(
        streams("Q7", ROWS).sources(rate),
        PREDICATES["Q7"],
        within=f"{WINDOW} seconds",
        options=JoinOptions(topology="random", units=(UNITS, UNITS)),
        cluster=Cluster(epoch=epoch, cpu=CPU, network=LINK),
        policies=policies,
        max_units=4 * UNITS if policies else None,
        seed=SEED,
    )


@lru_cache(maxsize=2)
def _capacity(epoch: float, rate: float) -> float:
    """Bytes of a unit with which the first load is the target."""
    sizes = mean_stored(_simulation(rate, epoch, []).run(1.8 * WINDOW))
    # The mean of two minutes: a sub-index comes and goes every half a minute.
    return float(np.mean(sizes[-round(2 * MINUTE / epoch) :])) / TARGET


def _run(minutes: float, epoch: float, rate: float) -> tuple[Trace, float]:
    capacity = _capacity(epoch, rate)
    policy = TwoPhaseScaling(
        capacity=capacity, high=HIGH, low=LOW, target=TARGET, patience=PATIENCE, every=MINUTE
    )
    steps = Steps(tuple((MINUTE * at, rate * times) for at, times in SCHEDULE))
    return _simulation(steps, epoch, [_OnceFilled(policy)]).run(minutes * MINUTE), capacity


def _dynamic(quick: bool) -> Outcome:
    minutes, epoch, rate = (19.0, QUICK_EPOCH, RATE / 4) if quick else (END, EPOCH, RATE)
    trace, capacity = _run(minutes, epoch, rate)
    total = trace.by_tick(lambda turn: turn.stored_bytes)
    units = [count for _, count in trace.units]
    at = [closed / MINUTE for closed, _ in trace.units]
    loads = [total[tick] / capacity / count for tick, count in enumerate(units)]
    changes = [
        _Change(at[tick], units[tick - 1], units[tick], _decided(trace, at[tick]))
        for tick in range(1, len(units))
        if units[tick] != units[tick - 1]
    ]
    listed = "; ".join(
        f"minute {one.minute:.0f}: {one.before} to {one.after} at load {one.load:.2f}"
        f" (equation 7: {wanted(one.load, one.before)})"
        for one in changes
    )
    grown = [one for one in changes if one.after > one.before]
    shrunk = [one for one in changes if one.after < one.before]
    findings = [
        Finding(
            claim="units are added when the load stays above 0.8: 4 of them, as equation 7 says",
            found=listed,
            holds=[one.after - one.before for one in grown] == [4],
            why="The rates were chosen so that equation 7 gives 4 and 6: what is found is that the"
            " policy decides so on the bytes that real units report, once and in time.",
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
        passed = [
            text for minute, text in said if SHORT[0] <= minute <= SHORT[1] and "above" in text
        ]
        peak = max(y for x, y in zip(at, loads, strict=True) if SHORT[0] <= x <= SHORT[1])
        inside = [one for one in changes if SHORT[0] <= one.minute <= SHORT[1]]
        findings += [
            Finding(
                claim="units are removed when the load stays below 0.3: 6 of them",
                found=listed,
                holds=[one.before - one.after for one in shrunk] == [6],
            ),
            Finding(
                claim="the short rise and fall of minutes 22 to 31 changes nothing",
                found=f"{len(inside)} changes; the load rose to {peak:.2f} and was above 0.8 at"
                f" {len(passed)} checks",
                holds=not inside,
                why="Three checks in a row are needed."
                if passed
                else "It was above 0.8 between two checks only, if at all: that three equal"
                " decisions are needed was not put to the test here.",
            ),
        ]
    waits = _work(trace)
    # The rate changes as well, so the time is that for each tuple that came.
    each = [wait / max(1, rows) for wait, (_, rows) in zip(waits, trace.arrived, strict=True)]
    around: list[float] = []
    for one in changes:
        before = [each[tick] for tick in range(len(at)) if 0 < one.minute - at[tick] <= 2]
        after = [each[tick] for tick in range(len(at)) if 0 <= at[tick] - one.minute <= 2]
        around.append(float(np.mean(after) / np.mean(before)))
    findings.append(
        at_most(
            "latency does not change while units are added and removed",
            max(around, default=math.inf),
            1.1,
            unit=" times, at most, as long for a tuple in the two minutes after a change as in the"
            " two before",
            why="The time until the last unit is done with a batch, over the tuples in it.",
        )
    )
    return Outcome(
        findings=findings,
        series={
            "units": list(zip(at, map(float, units), strict=True)),
            "load, percent": [(x, 100 * y) for x, y in zip(at, loads, strict=True)],
            "input tuples per second": [
                (x, rows / epoch) for x, (_, rows) in zip(at, trace.arrived, strict=True)
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


def _decided(trace: Trace, minute: float) -> float:
    """The load of the last decision before a minute."""
    texts = [text for at, text in _said(trace) if at <= minute and "load " in text]
    return float(texts[-1].split("load ")[1].split()[0])


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
