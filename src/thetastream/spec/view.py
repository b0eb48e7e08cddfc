"""The local view that a unit makes of its results instead of sending them."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from thetastream.errors import OptionError


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

    def __post_init__(self) -> None:
        if self.value is None and self.fold is not Fold.COUNT:
            raise OptionError(f"a {self.fold.value} is of a value")


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

    def __post_init__(self) -> None:
        if self.every < 1 or (self.slice is not None and self.slice < 1):
            raise OptionError("slices of time and numbers of batches are positive")

    @property
    def values(self) -> Iterator[Value]:
        """All that it reads."""
        yield from self.groups
        yield from (item.value for item in self.measures if item.value is not None)
