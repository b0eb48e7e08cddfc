"""Lookups as the paper has them: elements share what they store at check points.

A tuple then visits one element for what is cold. That element knows nearly all of the window and
finds nearly all results by itself; what came since the last check point is missed (figures 34 and
35). This is worked out from runs of exact systems: an element of CI or PIM that knows the window
does what an element does that stores all of it, and one of STA's cold elements does what all of
them do for the tuple.
"""

from __future__ import annotations

from typing import Final

from thetastream.papers.figure import Figure, Finding, Outcome
from thetastream.papers.sta.data import Data
from thetastream.papers.sta.setting import (
    ELEMENTS,
    GATHERING,
    HOP,
    HOT_ELEMENTS,
    NAME,
    PIM_EVERYWHERE,
    SCALE,
    STA,
    Element,
    Measures,
    Setting,
    measured,
    waiting,
)
from thetastream.papers.sta.speed import EVEN, NEAR, QUICK_ELEMENTS

CLAIMED: Final[dict[Data, dict[str, float]]] = {
    "taxi": {"MCI": 7, "PIM": 5, "CI": 2.3, "SJ": 2.8, "BCHJ": 3},
    "voltage": {"MCI": 8, "PIM": 4.2, "CI": 4, "SJ": 4.8, "BCHJ": 3},
    "current": {"MCI": 7.8, "PIM": 3.5, "CI": 3.2, "SJ": 3, "BCHJ": 2},
}
"""STA's advantages over input rates: figures 14, 17 and 20."""
RUN_AS: Final = {
    "MCI": "MCI",
    "PIM": PIM_EVERYWHERE.name,
    "CI": "MCI",
    "SJ": "SJ",
    "BCHJ": "BCHJ",
}
"""The run that has what an element does: with check points, one of CI's or PIM's knows all."""


def aware(of: Measures) -> float:
    """Seconds of a lookup by STA, from a run in which it visited all elements.

    The hot elements are the last ones, and are all visited; of the others one is, whichever.
    """
    hot = min(HOT_ELEMENTS, len(of.elements) - 1)
    cold, heated = of.elements[:-hot], of.elements[-hot:]
    slowest = max(waiting(of.looking(one) / one.lookups, of.busy(one)) for one in heated)
    service = of.looking(known(cold)) / of.tuples
    busy = service * 2 * of.setting.rate / len(cold)
    return 2 * HOP + max(slowest, waiting(service, busy)) + GATHERING * (hot + 1)


def known(elements: tuple[Element, ...]) -> Element:
    """One element that knows what all of them know: it takes the steps of one search, and finds
    what all of them find."""
    return Element(
        lookups=elements[0].lookups,
        compared=max(one.compared for one in elements),
        results=sum(one.results for one in elements),
    )


def latencies(data: Data, quick: bool) -> dict[str, float]:
    """Seconds of a lookup, of each system."""

    def run(system: str) -> Measures:
        elements = QUICK_ELEMENTS if quick else ELEMENTS
        return measured(Setting(system=system, data=data, elements=elements, quick=quick))

    found = {name: run(system).latency for name, system in RUN_AS.items()}
    return {STA: aware(run(STA)), **found}


def outcome(quick: bool) -> Outcome:
    """All data, at the paper's default rate."""
    found = {data: latencies(data, quick) for data in CLAIMED}
    findings = []
    for data, claimed in CLAIMED.items():
        ratios = {other: found[data][other] / found[data][STA] for other in claimed}
        behind = [other for other, ratio in ratios.items() if ratio <= EVEN]
        far = [
            other
            for other, ratio in ratios.items()
            if not 1 / NEAR <= ratio / claimed[other] <= NEAR
        ]
        listed = ", ".join(f"{other} {ratio:.2f}" for other, ratio in ratios.items())
        wanted = ", ".join(f"{ratio:g} times {other}" for other, ratio in claimed.items())
        findings.append(
            Finding(
                claim=f"{data}: STA answers sooner than all others",
                found=f"times as good: {listed}",
                holds=not behind,
                why=f"Not sooner than {', '.join(behind)}" if behind else "",
            )
        )
        findings.append(
            Finding(
                claim=f"{data}: {wanted}",
                found=f"within a factor of {NEAR:g} for"
                f" {', '.join(one for one in claimed if one not in far) or 'none'}",
                holds=not far,
                why=f"Not for {', '.join(far)}: messages and results take the same time in all"
                " systems here, and the split join misses nothing and shares the work among all"
                " elements"
                if far
                else "",
            )
        )
    return Outcome(
        findings=findings,
        series={
            name: [(at, 1000 * found[data][name]) for at, data in enumerate(CLAIMED, 1)]
            for name in (STA, *RUN_AS)
        },
        x_label="1: taxi, 2: voltage, 3: current",
        y_label="milliseconds of a lookup",
        log_y=True,
    )


FIGURE: Final = Figure(
    name=f"{NAME}-checkpoints",
    paper=NAME,
    number="figures 14, 17 and 20 with check points",
    title="Latency of lookups if elements share their state at check points",
    setting="Not what this project does: a tuple visits one element of CI or PIM, and STA's hot"
    " elements and one cold one; each knows what all of its kind had stored at the last check"
    " point. What sharing costs is left out, and what is missed is that of figures 34 and 35. A"
    f" tuple every 2 ms. {SCALE}",
    run=outcome,
)
