"""Figures 5 to 10 and 12: what faster streams do to the slaves, with fine tuning and without."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from thetastream.papers.epochjoin.setting import (
    DELAYS,
    EPOCH,
    NAME,
    STREAMS,
    THETA,
    TWO_WINDOWS,
    WINDOW,
    Run,
    Tuning,
    mean,
    run,
)
from thetastream.papers.figure import Figure, Finding, Outcome, Points, at_least, at_most, ordered

FEW: Final = {1: (1000, 1500, 2000, 2500, 3000), 2: (1000, 2000, 3000, 4000, 5000, 6000)}
MORE: Final = {
    3: (2000, 3000, 4000, 5000, 6000, 7000),
    4: (2000, 3000, 4000, 5000, 6000, 7000, 8000),
}
"""The rates for each number of slaves. The text names no numbers of slaves but the four of
figure 6."""
UNTUNED: Final = (1000, 2000, 3000, 4000, 5000, 6000)
TUNED: Final = (1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000)
SLAVES: Final = 4
FITTED: Final = 4000
"""The rate at which the cost of a comparison is fitted."""

SHARP: Final = 2.0
"""A delay so many times as long as at the lowest rate is past the rise. Before it, it goes from
half an epoch for idle slaves to a whole one for busy ones, who work on a batch for an epoch."""
STEEP: Final = 5.0
"""The rise is sharp if it leads to a delay so many times as long as before it."""
NO_IDLE: Final = 0.05 * WINDOW
"""Seconds of ten minutes that are near to zero."""

SAWTOOTH: Final = (
    "Hashing makes all 60 partition-groups equally large, so that they pass 2θ and are split at"
    " about the same rate (2,300 tuples/s, 4,600 and so on): just above such a rate a slave"
    " has half the work"
)

Curve = dict[int, Run]


def _curve(slaves: int, rates: Sequence[int], tuning: Tuning = "both", *, quick: bool) -> Curve:
    return {rate: run(slaves, rate, tuning, quick=quick) for rate in rates}


def _some(rates: Sequence[int], *, quick: bool) -> Sequence[int]:
    """The quick form has the lowest and the highest of them."""
    return (rates[0], rates[-1]) if quick else rates


def overloaded(delays: Points) -> float:
    """The lowest rate at which the delay has risen sharply."""
    first = delays[0][1]
    return next((rate for rate, delay in delays if delay > SHARP * first), math.inf)


def _delays(curve: Curve) -> Points:
    return [(rate, found.delay) for rate, found in curve.items()]


def _by_slaves(rates: dict[int, tuple[int, ...]], before: int | None, quick: bool) -> Outcome:
    """Delay against rate for numbers of slaves; `before`: of slaves whose rise is known."""
    series = {
        f"{slaves} slave{'s' if slaves > 1 else ''}": _delays(
            _curve(slaves, _some(which, quick=quick), quick=quick)
        )
        for slaves, which in rates.items()
    }
    findings = []
    for name, points in series.items():
        rise = overloaded(points)
        flat = [delay for rate, delay in points if rate < rise]
        past = [(rate, delay) for rate, delay in points if rate >= rise]
        again = [f"{rate:,.0f}" for rate, delay in past if delay <= SHARP * points[0][1]]
        found = f"{min(flat):.2f} to {max(flat):.2f} s below {rise:,.0f} tuples/s"
        if past:
            found += f", {past[0][1]:.0f} s there"
        if again:
            found += f"; at {' and '.join(again)} tuples/s it is low once more"
        findings.append(
            Finding(
                claim=f"{name}: the delay hardly varies, then rises sharply where the load is too"
                " much",
                found=found,
                holds=max(points)[1] >= STEEP * max(flat) and not again,
                why=f"{SAWTOOTH}, and that is not overloaded once more." if again else "",
            )
        )
    rises = {name: overloaded(points) for name, points in series.items()}
    if before is not None and not quick:
        points = _delays(_curve(before, FEW[before], quick=quick))
        rises = {f"{before} slaves": overloaded(points), **rises}
    findings.append(
        ordered(
            "the rate that overloads the slaves grows with their number (fewest last)",
            dict(reversed(rises.items())),
        )
    )
    return Outcome(
        findings=findings,
        series=series,
        x_label="tuples/s of each stream",
        y_label="mean delay in seconds",
        log_y=True,
        numbers={"overloaded from": rises},
    )


def _figure_5(quick: bool) -> Outcome:
    return _by_slaves(FEW, None, quick)


def _figure_6(quick: bool) -> Outcome:
    return _by_slaves(MORE, 2, quick)


def _both(quick: bool) -> tuple[Curve, Curve]:
    """Four slaves without fine tuning, and with it, at the same rates."""
    rates = (2000, FITTED) if quick else UNTUNED
    return (
        _curve(SLAVES, rates, "none", quick=quick),
        _curve(SLAVES, rates, quick=quick),
    )


def growth(points: Points) -> float:
    """The power of the rate with which something grows, from the first point to the last."""
    (low, first), (high, last) = points[0], points[-1]
    return math.log(last / first) / math.log(high / low)


def _figure_7(quick: bool) -> Outcome:
    without, tuned = _both(quick)
    series = {
        "without fine tuning": [(rate, mean(found.cpu)) for rate, found in without.items()],
        "with fine tuning": [(rate, mean(found.cpu)) for rate, found in tuned.items()],
    }
    one, two = (growth(points) for points in series.values())
    last = max(without)
    ratio = mean(without[last].cpu) / mean(tuned[last].cpu)
    return Outcome(
        findings=[
            Finding(
                claim="without fine tuning CPU time rises sharply with the rate",
                found=f"with the rate to the power of {one:.2f}",
                holds=one > 1.8,
                why="Twice as many tuples look at twice as many each.",
            ),
            Finding(
                claim="with fine tuning it rises slowly",
                found=f"with the rate to the power of {two:.2f}; at {last:,} tuples/s it is"
                f" {ratio:.1f} times as low as without",
                holds=two < 1.5 and ratio > 1.5,
                why=f"{SAWTOOTH}. In the long run CPU time grows as the rate, but in teeth.",
            ),
        ],
        series=series,
        x_label="tuples/s of each stream",
        y_label="CPU seconds of a slave in 10 minutes",
    )


def _figure_8(quick: bool) -> Outcome:
    without, tuned = _both(quick)
    series = {"without fine tuning": _delays(without), "with fine tuning": _delays(tuned)}
    slow, fast = without[FITTED].delay, tuned[FITTED].delay
    return Outcome(
        findings=[
            Finding(
                claim="without fine tuning the delay at 4,000 tuples/s is about 48 s",
                found=f"{slow:.1f} s",
                holds=abs(slow - 48) <= 0.15 * 48,
                why="Fitted: the cost of a comparison is chosen for this. All else is predicted.",
            ),
            Finding(
                claim="with fine tuning it is about 2 s",
                found=f"{fast:.2f} s",
                holds=EPOCH / 2 < fast <= 1.25 * EPOCH,
                why="Half an epoch at the master, and the slave's work on what came before it.",
            ),
            at_least(
                "fine tuning makes it at least 10 times shorter there (the paper: 24 times)",
                slow / fast,
                10,
                unit=" times",
            ),
        ],
        series=series,
        x_label="tuples/s of each stream",
        y_label="mean delay in seconds",
        log_y=True,
    )


def _times(curve: Curve) -> dict[str, Points]:
    return {
        "idle": [(rate, mean(found.idle)) for rate, found in curve.items()],
        "communication": [(rate, mean(found.communication)) for rate, found in curve.items()],
    }


def _no_idle(points: Points) -> float:
    return next((rate for rate, idle in points if idle <= NO_IDLE), math.inf)


def _figure_9(quick: bool) -> Outcome:
    without, _ = _both(quick)
    series = _times(without)
    gone = _no_idle(series["idle"])
    lowest = series["idle"][0]
    return Outcome(
        findings=[
            Finding(
                claim="without fine tuning idle time comes near to zero at 4,000 tuples/s",
                found=f"{lowest[1]:.0f} s of 600 s at {lowest[0]:,} tuples/s,"
                f" {_at(series['idle'])[FITTED]:.0f} s at {FITTED:,}; none from {gone:,.0f} on",
                holds=gone == FITTED,
                why="It follows from the fit: slaves that fall behind have no idle time. That there"
                " is some at 3,000 is predicted.",
            )
        ],
        series=series,
        x_label="tuples/s of each stream",
        y_label="seconds of a slave in 10 minutes",
    )


def _at(points: Points) -> dict[float, float]:
    """The value at each x."""
    return {point[0]: point[1] for point in points}


def _figure_10(quick: bool) -> Outcome:
    without, _ = _both(quick)
    tuned = _curve(SLAVES, (2000, FITTED) if quick else TUNED, quick=quick)
    series = _times(tuned)
    idle = _at(series["idle"])
    gone = _no_idle(series["idle"])
    findings = [
        at_most(
            "fine tuning adds no communication: the largest difference to figure 9",
            max(
                abs(mean(found.communication) - mean(tuned[rate].communication))
                for rate, found in without.items()
            ),
            1e-9,
            unit=" s of 600 s",
        ),
        at_least(
            "with fine tuning there is idle time at 4,000 tuples/s",
            idle[FITTED],
            NO_IDLE,
            unit=" s",
        ),
    ]
    if not quick:
        each = _curve(SLAVES, (FITTED, 6000), "each", quick=quick)
        findings.append(
            Finding(
                claim="with fine tuning idle time comes near to zero at 6,000 tuples/s",
                found=f"{idle[6000]:.0f} s of 600 s at 6,000 tuples/s; none from {gone:,.0f} on",
                holds=gone == 6000,
                why="Between 4,600 and 9,200 tuples/s all partition-groups have four mini-groups,"
                " and a slave looks at a quarter of what it looks at without: by the fit that is"
                " too much from 7,400 on. Costs that the paper does not name, of taking tuples in"
                " and of sending results out, would bring this nearer to 6,000. If θ bounded the"
                " tuples of each stream instead of both together, idle time would be"
                f" {mean(each[6000].idle):.0f} s at 6,000, but also {mean(each[FITTED].idle):.0f} s"
                f" at 4,000, with a delay of {each[FITTED].delay:.0f} s against the paper's 2 s: no"
                " partition-group would be split there.",
            )
        )
    return Outcome(
        findings=findings,
        series=series,
        x_label="tuples/s of each stream",
        y_label="seconds of a slave in 10 minutes",
    )


def _figure_12(quick: bool) -> Outcome:
    tuned = _curve(SLAVES, (2000, FITTED) if quick else MORE[SLAVES], quick=quick)
    series = {
        name: [(rate, of(found.communication)) for rate, found in tuned.items()]
        for name, of in (("maximum", max), ("average", mean), ("minimum", min))
    }
    spread = [
        (rate, most - least)
        for (rate, most), (_, least) in zip(series["maximum"], series["minimum"], strict=True)
    ]
    (low, first), (high, last) = spread[0], spread[-1]
    in_order = all(found.communication == sorted(found.communication) for found in tuned.values())
    return Outcome(
        findings=[
            Finding(
                claim="communication differs between slaves, as they are served one by one",
                found=f"{series['minimum'][0][1]:.2f} to {series['maximum'][0][1]:.2f} s of 600 s"
                f" at {low:,.0f} tuples/s; in the order of service at"
                f" {'every rate' if in_order else 'not every rate'}",
                holds=in_order and first > 0,
            ),
            Finding(
                claim="they differ the more the higher the rate is",
                found=f"by {first:.2f} s at {low:,.0f} tuples/s and by {last:.2f} s at {high:,.0f}",
                holds=all(b[1] > a[1] for a, b in pairwise(spread)),
            ),
        ],
        series=series,
        x_label="tuples/s of each stream",
        y_label="seconds in 10 minutes",
    )


FIGURES: Final = (
    Figure(
        name="epoch-5",
        paper=NAME,
        number="figure 5",
        title="delay over rates, few slaves",
        setting=f"With fine tuning, 1 and 2 slaves. {DELAYS}",
        run=_figure_5,
    ),
    Figure(
        name="epoch-6",
        paper=NAME,
        number="figure 6",
        title="delay over rates, more slaves",
        setting=f"With fine tuning, 3 and 4 slaves. {DELAYS}",
        run=_figure_6,
    ),
    Figure(
        name="epoch-7",
        paper=NAME,
        number="figure 7",
        title="CPU time over rates, with and without fine tuning",
        setting=f"4 slaves; CPU time is that of what comes in 10 minutes, even if it is done only"
        f" later. {TWO_WINDOWS}",
        run=_figure_7,
    ),
    Figure(
        name="epoch-8",
        paper=NAME,
        number="figure 8",
        title="delay over rates without fine tuning",
        setting=f"4 slaves, with fine tuning for comparison. {DELAYS}",
        run=_figure_8,
    ),
    Figure(
        name="epoch-9",
        paper=NAME,
        number="figure 9",
        title="idle time and communication without fine tuning",
        setting=f"4 slaves; near to zero is at most 5 % of the time. {TWO_WINDOWS}",
        run=_figure_9,
    ),
    Figure(
        name="epoch-10",
        paper=NAME,
        number="figure 10",
        title="idle time and communication with fine tuning",
        setting=f"4 slaves; near to zero is at most 5 % of the time. {TWO_WINDOWS}",
        run=_figure_10,
    ),
    Figure(
        name="epoch-12",
        paper=NAME,
        number="figure 12",
        title="communication of the slaves over rates",
        setting=f"4 slaves with fine tuning; the time from the end of an epoch until a slave has"
        f" its tuples. {TWO_WINDOWS}",
        run=_figure_12,
    ),
)


def split_rate(parts: int) -> float:
    """The rate up to which partition-groups of both streams have at most so many mini-groups."""
    tuple_bytes, groups = 64, 60
    return 2 * THETA * parts * groups / (STREAMS * tuple_bytes * WINDOW)
