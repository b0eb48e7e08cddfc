"""TuplePacking: how many entries the intermediate results are, packed and as pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from thetastream.papers.figure import Finding, Outcome
from thetastream.papers.trijoin.compare import POINTS
from thetastream.papers.trijoin.runs import PERIOD, WINDOW, Setting, run
from thetastream.papers.trijoin.streams import PARTNERS, Join
from thetastream.simulator import Trace

UNITS: Final = 2
"""Of each stream, where tuples have many partners in a unit."""
DENSITIES: Final = (1.0, 2.0, 4.0, 8.0)
"""Partners that a tuple has in one unit."""
SHOWN: Final = 4.0
"""The density that is plotted over time: the partners of the other figures, all in one unit."""
SETTING: Final = (
    "GPS-like streams as in figure 10. Packs are made in each unit for itself, so that they save as"
    " much as a tuple has partners in one unit: 0.3 with the 36 instances of the other figures, and"
    f" 1 to 8 with {UNITS} units for each stream and fewer spots. The paper does not say how many"
    " it had."
)


def title(join: Join) -> str:
    """Of the figure."""
    scheme = "symmetric" if join == "cyclic" else "semi-symmetric"
    return f"Intermediate results packed and as pairs, {scheme} scheme"


def saved(density: float) -> float:
    """Per cent of the entries that packs save, if partners in a unit are Poisson with that mean."""
    return 100 * (1 + math.expm1(-density) / density)


def partners_for(saving: float, found: Mapping[float, float]) -> float:
    """The partners in a unit with which packs save so many per cent, between those of the runs."""
    return float(np.interp(saving, list(found.values()), list(found)))


def dense(join: Join, density: float, *, quick: bool, packed: bool) -> Setting:
    """A run with so many partners in a unit."""
    window = 0.3 if quick else WINDOW
    return Setting(
        join=join,
        system="TriJoin",
        instances=3 * UNITS,
        window=window,
        # By then nearly all that is stored came when the window was full.
        seconds=window + (0.1 if quick else 2 * WINDOW),
        sub_indexes=round(window / PERIOD),
        # Partners are counted in the usual window.
        partners=UNITS * density * WINDOW / window,
        packed=packed,
    )


def entries(trace: Trace) -> dict[int, float]:
    """What all units store of intermediate results, after each tick."""
    return trace.by_tick(lambda turn: turn.entries)


def saving(setting: Setting) -> float:
    """Per cent by which packs are fewer than pairs, at the end."""
    packed = entries(run(replace(setting, packed=True)))
    pairs = entries(run(replace(setting, packed=False)))
    last = max(packed)
    return 100 * (1 - packed[last] / pairs[last])


def figure(join: Join, claimed: float) -> Callable[[bool], Outcome]:
    """Figures 18 and 19."""

    def outcome(quick: bool) -> Outcome:
        densities = (1.0, SHOWN) if quick else DENSITIES
        found = {
            density: saving(dense(join, density, quick=quick, packed=True)) for density in densities
        }
        usual = Setting(join=join, system="TriJoin", instances=12 if quick else 36)
        if quick:
            usual = replace(usual, window=0.2, seconds=0.4)
        sparse = PARTNERS["gps"] / usual.units * usual.window / WINDOW
        found = {sparse: saving(usual), **found}
        listed = ", ".join(f"{value:.0f} % with {density:.1f}" for density, value in found.items())
        needed = partners_for(claimed, found)
        # In a chain the end streams' new tuples are packed below the stored one of the middle, in
        # each batch anew: no such formula.
        formula = {one: saved(one) for one in found} if join == "cyclic" else {}
        shown = {
            name: entries(run(dense(join, SHOWN, quick=quick, packed=packed)))
            for name, packed in (("TriJoin, packed", True), ("TriJoin, pairs", False))
        }
        period = usual.period
        return Outcome(
            findings=[
                Finding(
                    claim="packs are fewer than pairs, the more partners a tuple has in a unit",
                    found=listed,
                    holds=all(value > 0 for value in found.values())
                    and list(found.values()) == sorted(found.values()),
                ),
                Finding(
                    claim=f"packs are {claimed:.0f} % fewer than pairs",
                    found=f"{found[sparse]:.0f} % with the {sparse:.1f} partners in a unit of the"
                    " other figures",
                    holds=abs(found[sparse] - claimed) <= POINTS,
                    why=f"It is a matter of the data alone: {claimed:.0f} % takes about"
                    f" {needed:.1f} partners in each unit. The paper does not say how many there"
                    " were",
                ),
            ],
            series={
                name: [(1000 * (tick + 1) * period, value) for tick, value in line.items()]
                for name, line in shown.items()
            },
            x_label=f"milliseconds; a tuple has {SHOWN:.0f} partners in a unit",
            y_label="intermediate results",
            numbers={
                "per cent fewer, by partners": {
                    f"{one:.2f}": round(value, 1) for one, value in found.items()
                },
                "if partners are Poisson": {
                    f"{one:.2f}": round(value, 1) for one, value in formula.items()
                },
            },
        )

    return outcome
