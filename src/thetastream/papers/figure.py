"""What a reproduced figure is: the paper's claims, what was found, and whether they agree.

A claim is a number or an order. The same comparison is run, scaled down in time and size where that
is needed; the verdict follows from the findings alone.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Points = Sequence[tuple[float, ...]]
"""Each x and y, or x, y and the ends of y's spread."""


class Verdict(enum.StrEnum):
    """What comes of all the claims about a figure."""

    REPRODUCED = "reproduced"
    PARTLY = "reproduced in part"
    NOT = "not reproduced"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One claim, beside what was found."""

    claim: str
    """What the paper says, in our words."""
    found: str
    """What came out, with its numbers."""
    holds: bool
    why: str = ""
    """Where they differ, the reason; else what the agreement rests on, if that is not plain."""


@dataclass(kw_only=True)
class Outcome:
    """What a run of a figure gives."""

    findings: list[Finding]
    series: Mapping[str, Points] = field(default_factory=dict)
    """The lines of the plot."""
    x_label: str = ""
    y_label: str = ""
    log_x: bool = False
    log_y: bool = False
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else is worth keeping, as JSON takes it."""

    @property
    def verdict(self) -> Verdict:
        """Whether all, some or none of the claims hold."""
        held = [finding.holds for finding in self.findings]
        if held and all(held):
            return Verdict.REPRODUCED
        return Verdict.PARTLY if any(held) else Verdict.NOT


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure or table of a paper that can be run again."""

    name: str
    """As on the command line: bistream-6a."""
    paper: str
    """The name of the paper's page."""
    number: str
    """As the paper counts: figure 6a, table 4, equations 1 to 4."""
    title: str
    setting: str
    """What is run, and how it is scaled down from the paper's setting."""
    run: Callable[[bool], Outcome]
    """Given whether it is to be quick: seconds, on less data, for tests. Verdicts are of the full
    form."""


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper and its figures."""

    name: str
    title: str
    about: str
    """What all its figures have in common here."""
    figures: tuple[Figure, ...]
    on_spark: tuple[str, str] | None = None
    """The benchmark that has the paper's contestants run on Spark, and what is to be known of it.
    Pages have its figures if they are in the folder `benchmarks` beside their own."""


def at_least(claim: str, value: float, limit: float, *, unit: str = "", why: str = "") -> Finding:
    """A finding that holds if a number is large enough."""
    found = f"{value:.3g}{unit}"
    return Finding(claim=claim, found=found, holds=bool(value >= limit), why=why)


def at_most(claim: str, value: float, limit: float, *, unit: str = "", why: str = "") -> Finding:
    """A finding that holds if a number is small enough."""
    found = f"{value:.3g}{unit}"
    return Finding(claim=claim, found=found, holds=bool(value <= limit), why=why)


def ordered(
    claim: str, values: Mapping[str, float], *, slack: float = 0.0, why: str = ""
) -> Finding:
    """A finding that holds if the values fall from the first to the last, but for some slack."""
    found = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
    listed = list(values.values())
    holds = all(later <= earlier * (1 + slack) for earlier, later in pairwise(listed))
    return Finding(claim=claim, found=found, holds=holds, why=why)
