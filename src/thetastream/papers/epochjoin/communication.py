"""Figures 11, 13 and 14, and the master's buffer: what the master and its slaves exchange."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np

from thetastream.options import JoinOptions
from thetastream.papers.epochjoin.setting import (
    DELAYS,
    EPOCH,
    NAME,
    RATE,
    REORGANISATION,
    SCALED,
    STREAMS,
    TWO_WINDOWS,
    Run,
    mean,
    run,
    scale_of,
    steered,
)
from thetastream.papers.figure import Figure, Finding, Outcome, Points, at_least, at_most
from thetastream.simulator import Cluster, Simulation
from thetastream.steering.rebalance import Rebalance

DEGREES: Final = (1, 2, 3, 4, 5, 6)
ADAPTIVE: Final = (2, 4, 6)
SLAVES: Final = 4
EPOCHS: Final = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
COUNTED: Final = 40.0
"""Seconds of an adaptive run that count: the last two reorganisation epochs."""
SUB_GROUPS: Final = (1, 2, 4, 8)
SERVED: Final = 8
"""Slaves in the sub-groups."""
BUFFERED: Final = 20
"""Epochs over which the master's buffer is averaged, and one before."""

LINEAR: Final = 0.98
"""What a straight line has to explain of the variance."""


# -- figure 11 ------------------------------------------------------------------------------------


@lru_cache
def _adaptive(slaves: int, quick: bool) -> Run:
    """Begins with so many slaves; one of them can be given up after each reorganisation epoch."""
    settled = REORGANISATION * (1 if quick else slaves)
    return steered(
        slaves,
        RATE,
        [Rebalance(every=REORGANISATION, most=slaves)],
        most=slaves,
        seconds=settled + (EPOCH * 3 if quick else COUNTED),
        after=settled,
        quick=quick,
    )


def explained(points: Points) -> float:
    """The share of the variance that a straight line explains."""
    xs, ys = np.array(points, dtype=float).T
    return float(np.corrcoef(xs, ys)[0, 1] ** 2)


def _figure_11(quick: bool) -> Outcome:
    degrees = (1, 3, 6) if quick else DEGREES
    fixed = {slaves: run(slaves, RATE, quick=quick) for slaves in degrees}
    adaptive = {slaves: _adaptive(slaves, quick) for slaves in ((2,) if quick else ADAPTIVE)}
    total = [(slaves, sum(found.communication)) for slaves, found in fixed.items()]
    each = [(slaves, mean(found.communication)) for slaves, found in fixed.items()]
    adapted = [(slaves, sum(found.communication)) for slaves, found in adaptive.items()]
    findings = [
        Finding(
            claim="the communication of a slave falls with their number",
            found=f"{each[0][1]:.2f} s of 600 s with 1 slave, {each[-1][1]:.2f} s with"
            f" {each[-1][0]:.0f}",
            holds=all(b[1] < a[1] for a, b in pairwise(each)),
            why="Its share of the bytes falls, but a slave also waits for those served before it:"
            " at best half is left.",
        ),
        at_least(
            "that of all slaves grows linearly with their number: the share of the variance that a"
            " straight line explains",
            explained(total),
            LINEAR,
        ),
    ]
    if not quick:
        most = ADAPTIVE[-1]
        kept = adaptive[most].trace.units[-1][1]
        less = sum(fixed[most].communication) / sum(adaptive[most].communication)
        sums = {
            slaves: (sum(adaptive[slaves].communication), sum(fixed[slaves].communication))
            for slaves in ADAPTIVE
        }
        findings += [
            at_least(
                "with adaptive declustering that of all is far lower: at least 2 times, with 6"
                " slaves to begin with",
                less,
                2.0,
                unit=" times lower",
                why=f"Of {most} slaves {kept} are kept. One would be above the supplier's threshold"
                " of 0.5, and `Rebalance` removes none if another one would then be.",
            ),
            Finding(
                claim="it is lower than that of as many slaves without it",
                found=", ".join(
                    f"{one:.2f} s against {two:.2f} s with {slaves} slaves"
                    for slaves, (one, two) in sums.items()
                ),
                holds=all(one < two for one, two in sums.values()),
                why="Of two slaves one is given up while the windows are still being filled. It is"
                " soon needed again, and then gets a single partition-group: the other one is"
                " served first, with nearly all tuples, and both wait for these.",
            ),
        ]
    return Outcome(
        findings=findings,
        series={
            "all slaves": total,
            "all slaves, adaptive declustering": adapted,
            "a slave": each,
        },
        x_label="slaves (adaptive: to begin with)",
        y_label="seconds in 10 minutes",
        numbers={"kept": {slaves: found.trace.units[-1][1] for slaves, found in adaptive.items()}},
    )


# -- figures 13 and 14 ----------------------------------------------------------------------------


def _epochs(quick: bool) -> dict[float, Run]:
    return {
        epoch: run(SLAVES, RATE, quick=quick, epoch=epoch)
        for epoch in ((1.0, 4.0) if quick else EPOCHS)
    }


def _figure_13(quick: bool) -> Outcome:
    delays = [(epoch, found.delay) for epoch, found in _epochs(quick).items()]
    (short, least), (long, most) = delays[0], delays[-1]
    return Outcome(
        findings=[
            Finding(
                claim="the shorter the distribution epoch, the shorter the delay",
                found=f"{least:.2f} s with {short:g} s, {most:.2f} s with {long:g} s",
                holds=all(a[1] < b[1] for a, b in pairwise(delays)),
                why="Half an epoch at the master, and half of the slave's work for an epoch.",
            )
        ],
        series={"4 slaves": delays},
        x_label="distribution epoch in seconds",
        y_label="mean delay in seconds",
    )


def _figure_14(quick: bool) -> Outcome:
    spent = [(epoch, mean(found.communication)) for epoch, found in _epochs(quick).items()]
    (short, most), (long, least) = spent[0], spent[-1]
    return Outcome(
        findings=[
            Finding(
                claim="the shorter the distribution epoch, the more communication",
                found=f"{most:.2f} s of 600 s with {short:g} s, {least:.2f} s with {long:g} s",
                holds=all(a[1] > b[1] for a, b in pairwise(spent)),
                why="The bytes are the same; the messages are more.",
            )
        ],
        series={"mean of 4 slaves": spent},
        x_label="distribution epoch in seconds",
        y_label="seconds in 10 minutes",
    )


# -- the master's buffer --------------------------------------------------------------------------


def buffer(rate: float, epoch: float, groups: int) -> float:
    """Tuples of a stream at the master at most, if its slaves are served in sub-groups.

    >>> buffer(1500, 2.0, 1), buffer(1500, 2.0, 4)
    (3000.0, 1875.0)
    """
    return rate * epoch / 2 * (1 + 1 / groups)


def _held(groups: int, quick: bool) -> float:
    """Tuples of a stream at the master before it serves a sub-group, on average."""
    scale = scale_of(quick)
    epochs = 3 if quick else BUFFERED
    simulation = Simulation(
        {"r": scale.source(RATE), "s": scale.source(RATE)},
        "r.k = s.k",
        within="4 seconds",
        options=JoinOptions(topology="hash", units=SERVED),
        cluster=Cluster(epoch=EPOCH, cpu=scale.cpu, network=scale.network(slots=groups)),
        seed=1,
    )
    held: Sequence[int] = simulation.run((1 + epochs) * EPOCH).held[groups:]
    return mean(held) * scale.rate / STREAMS


def _buffer(quick: bool) -> Outcome:
    which = (1, 4) if quick else SUB_GROUPS
    held = {groups: _held(groups, quick) for groups in which}
    formula = {groups: buffer(RATE, EPOCH, groups) for groups in which}
    worst = max(abs(held[groups] / formula[groups] - 1) for groups in which)
    return Outcome(
        findings=[
            at_most(
                "the buffer is r·t_d/2·(1 + 1/n_g) tuples of a stream: the largest deviation",
                100 * worst,
                10 if quick else 5,
                unit=" %",
            ),
            at_most(
                f"many sub-groups nearly halve it: {which[-1]} of them against one",
                held[which[-1]] / held[1],
                0.7 if quick else 0.6,
                unit=" of it",
            ),
        ],
        series={
            "held": list(held.items()),
            "r·t_d/2·(1 + 1/n_g)": list(formula.items()),
        },
        x_label="sub-groups",
        y_label="tuples of a stream at the master",
    )


FIGURES: Final = (
    Figure(
        name="epoch-11",
        paper=NAME,
        number="figure 11",
        title="communication over numbers of slaves",
        setting="1,500 tuples/s, with fine tuning. Adaptive runs begin with 2, 4 and 6 slaves under"
        " `Rebalance` with the paper's thresholds and reorganisation epochs of 20 s; the last"
        f" 40 s count. {SCALED}",
        run=_figure_11,
    ),
    Figure(
        name="epoch-13",
        paper=NAME,
        number="figure 13",
        title="delay over distribution epochs",
        setting=f"1,500 tuples/s, 4 slaves with fine tuning. {DELAYS}",
        run=_figure_13,
    ),
    Figure(
        name="epoch-14",
        paper=NAME,
        number="figure 14",
        title="communication over distribution epochs",
        setting="1,500 tuples/s, 4 slaves with fine tuning; a message takes 0.1 ms beside its"
        f" bytes. {TWO_WINDOWS}",
        run=_figure_14,
    ),
    Figure(
        name="epoch-buffer",
        paper=NAME,
        number="section V-B",
        title="the master's buffer with sub-groups",
        setting="1,500 tuples/s of each stream, 8 slaves in 1, 2, 4 and 8 sub-groups, epochs of"
        " 2 s; the mean of what waits whenever a sub-group is about to be served. Rates are divided"
        " by 3.2; the window is of no importance.",
        run=_buffer,
    ),
)
