"""The local view that a unit makes of its results instead of sending them."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Fold(enum.StrEnum):
    """What a view keeps of a value."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, kw_only=True)
class Value:
    """A value of a result: a column that one of the streams carries."""

    stream: int
    column: int


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One aggregate of a view; without a value it counts the results."""

    fold: Fold
    value: Value | None = None


@dataclass(frozen=True, kw_only=True)
class ViewSpec:
    """What a unit aggregates its results by, and what it measures."""

    groups: tuple[Value, ...]
    measures: tuple[Measure, ...]
    slice: int | None = None
    """Microseconds: results are also told apart by the slice that their newest member's time is
    in. None where time does not matter."""
    every: int = 1
    """Batches after which the view is sent; until then it is part of the unit's state."""
