"""Figures 11 to 31: insertion, lookup and throughput of the six systems side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from thetastream.papers.figure import Figure, Finding, Outcome
from thetastream.papers.sta.data import Data
from thetastream.papers.sta.setting import (
    DELAY,
    ELEMENTS,
    HOT_ELEMENTS,
    NAME,
    SCALED,
    SPREAD,
    STA,
    SYSTEMS,
    WINDOW,
    Measures,
    Setting,
    hot_share,
    measured,
)

Varied = Literal["rate", "elements", "window"]
Measure = Literal["insertion", "latency", "throughput"]

POINTS: Final[dict[Varied, tuple[float, ...]]] = {
    "rate": (1.0, 2.0, 3.0),
    "elements": (10, 40, 100),
    "window": (10.0, 50.0, 100.0),
}
"""Milliseconds between two tuples, elements, and seconds: the paper's values and around them."""
FEW: Final[dict[Varied, tuple[float, ...]]] = {
    "rate": (1.0, 3.0),
    "elements": (4, 10),
    "window": (10.0, 50.0),
}
LABELS: Final[dict[Varied, str]] = {
    "rate": "milliseconds between two tuples",
    "elements": "processing elements",
    "window": "seconds of the window",
}
QUICK_ELEMENTS: Final = 8
NEAR: Final = 1.5
"""A claimed ratio holds if what is found differs from it by no more than this factor."""
EVEN: Final = 1.02
"""Two systems are even if they differ by no more than this factor."""


def setting_at(varied: Varied, x: float, system: str, data: Data, quick: bool) -> Setting:
    """The run of a system at a point of a figure."""
    return Setting(
        system=system,
        data=data,
        delay=x if varied == "rate" else DELAY,
        elements=int(x) if varied == "elements" else QUICK_ELEMENTS if quick else ELEMENTS,
        window=x if varied == "window" else WINDOW,
        quick=quick,
    )


def value(of: Measures, measure: Measure) -> float:
    """What a figure shows of a run: tuples per second, or milliseconds."""
    if measure == "insertion":
        return of.insertion
    return 1000 * of.latency if measure == "latency" else of.throughput


def ahead(ours: float, theirs: float, measure: Measure) -> float:
    """How many times better ours is; 0 if only ours falls behind, infinite if only theirs does."""
    if measure != "latency":
        return ours / theirs
    if math.isinf(ours):
        return 1.0 if math.isinf(theirs) else 0.0
    return theirs / ours


def times(ratio: float) -> str:
    """An advantage as text."""
    if math.isinf(ratio):
        return "it falls behind"
    return "STA falls behind" if ratio == 0 else f"{ratio:.2f}"


@dataclass(frozen=True)
class Compared:
    """All systems at all points of a figure."""

    measure: Measure
    points: tuple[float, ...]
    runs: Mapping[str, tuple[Measures, ...]]

    def line(self, system: str) -> list[float]:
        """What is shown of a system."""
        return [value(one, self.measure) for one in self.runs[system]]

    def advantages(self, other: str, ours: str = STA) -> list[float]:
        """How many times better STA is, at each point."""
        pairs = zip(self.line(ours), self.line(other), strict=True)
        return [ahead(mine, theirs, self.measure) for mine, theirs in pairs]

    def advantage(self, other: str, ours: str = STA) -> float:
        """On average."""
        found = self.advantages(other, ours)
        return sum(found) / len(found)

    def listed(self, other: str) -> str:
        """The advantages as text."""
        pairs = zip(self.points, self.advantages(other), strict=True)
        return ", ".join(f"{times(ratio)} at {x:g}" for x, ratio in pairs)


def compared(varied: Varied, data: Data, measure: Measure, quick: bool) -> Compared:
    """All runs of a figure."""
    points = (FEW if quick else POINTS)[varied]
    return Compared(
        measure,
        points,
        {
            system: tuple(measured(setting_at(varied, x, system, data, quick)) for x in points)
            for system in SYSTEMS
        },
    )


def reason(found: Compared, other: str) -> str:
    """Why a ratio is not the paper's."""
    one = found.runs[STA][-1].setting
    share, hot = hot_share(one.data), min(HOT_ELEMENTS, one.elements - 1)
    crowded = (
        f"STA's hot values have {share:.0%} of the tuples and {hot} of"
        f" {one.elements} elements, the busiest of all has"
        f" {found.runs[STA][-1].largest_share:.1%} of the results"
    )
    if found.measure == "insertion":
        stored = {
            "SJ": "Whole sub-indexes are dropped here; the paper's split join removes every tuple"
            " on its own",
            "CI": "In the paper, elements of CI share their state at check points; here nothing is"
            " shared",
            "PIM": "The mutable part holds so much that it is hardly ever merged; in the paper,"
            " tuples wait for merges and for check points",
        }
        return f"{stored[other]}. {crowded}"
    if SYSTEMS[other].copies:
        return f"{other} finds all results of a tuple in one element. {crowded}"
    return (
        "Exact results take a visit to every element, in STA as well: the paper's visits one cold"
        f" element, and finds a part of the results. {crowded}"
    )


def findings(found: Compared, claimed: Mapping[str, float]) -> list[Finding]:
    """Whether STA is ahead of each of the others, and by how much."""
    words = {"insertion": "inserts faster", "latency": "answers sooner", "throughput": "is faster"}
    listed = []
    for other in (one for one in SYSTEMS if one not in (STA, SPREAD)):
        if other not in claimed and found.measure != "throughput":
            continue
        holds = min(found.advantages(other)) > EVEN
        spread = times(found.advantage(other, SPREAD))
        listed.append(
            Finding(
                claim=f"STA {words[found.measure]} than {other}",
                found=f"times as good: {found.listed(other)}",
                holds=holds,
                why="" if holds else f"With STA's index in every element it would be {spread}",
            )
        )
    for other, ratio in claimed.items():
        gain = found.advantage(other)
        holds = 1 / NEAR <= gain / ratio <= NEAR
        listed.append(
            Finding(
                claim=f"{ratio:g} times {other}",
                found=f"{times(gain)} on average",
                holds=holds,
                why="" if holds else reason(found, other),
            )
        )
    return listed


def shrinking(found: Compared, others: tuple[str, ...]) -> Finding:
    """Whether the advantage falls with the window."""
    falls = {
        other: all(b <= EVEN * a for a, b in pairwise(found.advantages(other))) for other in others
    }
    return Finding(
        claim="the advantage is smaller for large windows",
        found="; ".join(f"{other} {found.listed(other)}" for other in others),
        holds=all(falls.values()) and any(found.advantages(one)[0] > EVEN for one in others),
        why="Inserting a tuple takes the same whatever the window",
    )


def over(
    varied: Varied, data: Data, measure: Measure, claimed: Mapping[str, float]
) -> Callable[[bool], Outcome]:
    """A figure over one parameter."""

    def outcome(quick: bool) -> Outcome:
        found = compared(varied, data, measure, quick)
        listed = findings(found, claimed)
        if varied == "window" and measure == "insertion":
            listed.append(shrinking(found, tuple(claimed)))
        units = "milliseconds of a lookup" if measure == "latency" else "tuples inserted per second"
        return Outcome(
            findings=listed,
            series={name: shown(found, name) for name in SYSTEMS},
            x_label=LABELS[varied],
            y_label=units,
            log_y=True,
            numbers=numbers(found),
        )

    return outcome


def shown(found: Compared, name: str) -> list[tuple[float, float]]:
    """The points of a line; where an element falls behind there is none."""
    pairs = zip(found.points, found.line(name), strict=True)
    return [(x, y) for x, y in pairs if math.isfinite(y)]


def numbers(found: Compared) -> dict[str, dict[str, list[float]]]:
    """Whatever else is worth keeping."""
    return {
        "share of its time that the busiest element works": {
            name: [round(one.utilisation, 4) for one in runs] for name, runs in found.runs.items()
        },
        "elements that a tuple visits": {
            name: [round(one.visited, 2) for one in runs] for name, runs in found.runs.items()
        },
        "microseconds that the search of a lookup takes in the slowest element": {
            name: [round(1e6 * one.search, 3) for one in runs] for name, runs in found.runs.items()
        },
        "largest share of the results in one element": {
            name: [round(one.largest_share, 4) for one in runs] for name, runs in found.runs.items()
        },
    }


def zipf(data: Data, delay: float, claimed: Mapping[str, float]) -> Callable[[bool], Outcome]:
    """Figures 23 to 31: insertion and lookup together."""

    def outcome(quick: bool) -> Outcome:
        runs = {name: measured(setting_at("rate", delay, name, data, quick)) for name in SYSTEMS}
        found = Compared("throughput", (delay,), {name: (one,) for name, one in runs.items()})
        return Outcome(
            findings=findings(found, claimed),
            series={
                name: [(1, one.insertion), (2, one.lookups), (3, one.throughput)]
                for name, one in runs.items()
            },
            x_label="1: insertion alone, 2: lookup alone, 3: both",
            y_label="tuples per second",
            log_y=True,
            numbers=numbers(found),
        )

    return outcome


_TITLES: Final[dict[Varied, str]] = {
    "rate": "over input rates",
    "elements": "over processing elements",
    "window": "over windows",
}


def _figure(number: int, title: str, run: Callable[[bool], Outcome]) -> Figure:
    return Figure(
        name=f"{NAME}-{number}",
        paper=NAME,
        number=f"figure {number}",
        title=title,
        setting=SCALED,
        run=run,
    )


_OVER: Final[tuple[tuple[int, Data, Measure, Varied, dict[str, float]], ...]] = (
    (11, "taxi", "insertion", "rate", {"SJ": 1.6, "CI": 1.13, "PIM": 2.6}),
    (12, "taxi", "insertion", "elements", {"SJ": 1.5, "CI": 1.2, "PIM": 2.4}),
    (13, "taxi", "insertion", "window", {"SJ": 2.5, "CI": 2.0, "PIM": 1.6}),
    (14, "taxi", "latency", "rate", {"MCI": 7, "PIM": 5, "CI": 2.3, "SJ": 2.8, "BCHJ": 3}),
    (15, "taxi", "latency", "elements", {"MCI": 7, "PIM": 1.7, "CI": 2, "SJ": 1.2, "BCHJ": 3.8}),
    (16, "taxi", "latency", "window", {"MCI": 7, "PIM": 5, "CI": 3.4, "SJ": 2.5, "BCHJ": 2}),
    (17, "voltage", "latency", "rate", {"MCI": 8, "PIM": 4.2, "CI": 4, "SJ": 4.8, "BCHJ": 3}),
    (18, "voltage", "latency", "elements", {"PIM": 2, "CI": 1.5, "SJ": 5, "BCHJ": 2.8}),
    (19, "voltage", "latency", "window", {"PIM": 2.8, "CI": 2.1, "SJ": 3.8, "BCHJ": 3}),
    (20, "current", "latency", "rate", {"MCI": 7.8, "PIM": 3.5, "CI": 3.2, "SJ": 3, "BCHJ": 2}),
    (
        21,
        "current",
        "latency",
        "elements",
        {"MCI": 7.3, "PIM": 2, "CI": 3, "SJ": 4.3, "BCHJ": 3.4},
    ),
    (
        22,
        "current",
        "latency",
        "window",
        {"MCI": 6.5, "PIM": 2.8, "CI": 2.2, "SJ": 3.1, "BCHJ": 2.5},
    ),
)
_ZIPF: Final[tuple[tuple[int, Data, float, dict[str, float]], ...]] = (
    (23, "zipf 1.0", 1.0, {"MCI": 1.5, "CI": 2, "PIM": 2.1}),
    (24, "zipf 1.5", 1.0, {"MCI": 1.3, "CI": 2.2, "SJ": 2.1}),
    (25, "zipf 2.0", 1.0, {}),
    (26, "zipf 1.0", 2.0, {}),
    (27, "zipf 1.5", 2.0, {}),
    (28, "zipf 2.0", 2.0, {}),
    (29, "zipf 1.0", 3.0, {}),
    (30, "zipf 1.5", 3.0, {}),
    (31, "zipf 2.0", 3.0, {}),
)

FIGURES: Final = (
    *(
        _figure(
            number,
            f"{'Insertion throughput' if measure == 'insertion' else 'Latency of lookups'},"
            f" {data}, {_TITLES[varied]}",
            over(varied, data, measure, claimed),
        )
        for number, data, measure, varied, claimed in _OVER
    ),
    *(
        _figure(
            number,
            f"Throughput, {data[0].upper()}{data[1:]}, a tuple every {delay:g} ms",
            zipf(data, delay, claimed),
        )
        for number, data, delay, claimed in _ZIPF
    ),
)
