"""What is compared between two streams.

All keys are 64-bit integers whose order is the order of the values they stand for (see
`thetastream.index.encoding`), so every comparison below is one of integers.
"""

from __future__ import annotations

import enum
from collections.abc import Container, Iterator
from dataclasses import dataclass

from thetastream.errors import OptionError


class Arithmetic(enum.StrEnum):
    """What is computed before keys are compared."""

    NONE = "none"
    """The keys are compared as they are."""
    INTEGER = "integer"
    """Bounds are added to the keys, exactly; a bound outside 64 bits saturates."""
    FLOAT = "float"
    """Bounds are added in floating point and widened by the rounding error; re-checked."""


class RangeKind(enum.StrEnum):
    """What a range came from; for reports and for the choice of the driving predicate."""

    TIME = "time"
    BAND = "band"
    INEQUALITY = "inequality"


@dataclass(frozen=True, kw_only=True)
class Bound:
    """One end of a range."""

    value: int | float
    inclusive: bool = True


@dataclass(frozen=True, kw_only=True)
class Range:
    """low <= left key - right key <= high; a missing end is unbounded."""

    left: int
    right: int
    low: Bound | None
    high: Bound | None
    kind: RangeKind
    arithmetic: Arithmetic = Arithmetic.NONE
    exact: bool = True
    """Whether the kernel decides it; if not, `JoinSpec.recheck_sql` repeats it."""

    def __post_init__(self) -> None:
        if self.low is None and self.high is None:
            raise OptionError("a range needs at least one bound")

    def of(self, side: int) -> int:
        """A side's key in it."""
        return self.right if side else self.left


@dataclass(frozen=True, kw_only=True)
class Equality:
    """left key = right key, on one 64-bit key per side."""

    left: int
    right: int
    exact: bool = True
    """False for hashes: `JoinSpec.recheck_sql` repeats the comparison on the values."""

    def of(self, side: int) -> int:
        """A side's key in it."""
        return self.right if side else self.left


@dataclass(frozen=True)
class SortOrder:
    """The keys that stored tuples are sorted by: of the equality, then of the driving range."""

    equality: int | None
    range: int | None


@dataclass(frozen=True, kw_only=True)
class Edge:
    """What the kernel decides about a pair of tuples of two streams."""

    streams: tuple[int, int]
    """The lower number first."""
    equality: Equality | None = None
    """The keys that must be equal."""
    ranges: tuple[Range, ...] = ()
    """What differences of keys must lie in; the first one drives after the equality."""
    joined: bool = True
    """Whether the predicate compares the two; if not, at most the window does."""
    compared: tuple[tuple[int, int], ...] = ()
    """Columns of both streams that must be equal where the key is a hash, for the units to check;
    empty where Spark re-checks it on the results."""

    def __post_init__(self) -> None:
        if not 0 <= self.streams[0] < self.streams[1]:
            raise OptionError(f"an edge is of two streams in order, not of {self.streams}")

    def side(self, stream: int) -> int:
        """Which of the two the stream is: 0 or 1."""
        return self.streams.index(stream)

    def keys(self, side: int) -> Iterator[int]:
        """The keys of a side that are compared."""
        if self.equality is not None:
            yield self.equality.of(side)
        for item in self.ranges:
            yield item.of(side)

    def order(self, stream: int) -> SortOrder:
        """The order in which tuples of a stream are searched, and search, for the other's."""
        side = self.side(stream)
        return SortOrder(
            None if self.equality is None else self.equality.of(side),
            self.ranges[0].of(side) if self.ranges else None,
        )

    def band_on(self, stream: int, key: int) -> Range | None:
        """The band on that key of a stream, by which tuples of the other one can be sent."""
        for item in self.ranges:
            if item.kind is RangeKind.BAND and item.of(self.side(stream)) == key:
                return item
        return None

    @property
    def rank(self) -> int:
        """How few pairs it lets through: the lower, the fewer."""
        return rank(self.equality is not None, {item.kind for item in self.ranges}, self.joined)

    @property
    def kind(self) -> str:
        """Its kind in a word."""
        return ("equality", "band", "inequality", "arbitrary", "none")[self.rank]


def rank(equality: bool, kinds: Container[RangeKind], joined: bool) -> int:
    """How few pairs an edge lets through, judged by the kind of its strongest predicate."""
    if equality:
        return 0
    if RangeKind.BAND in kinds:
        return 1
    if RangeKind.INEQUALITY in kinds:
        return 2
    return 3 if joined else 4


@dataclass(frozen=True, kw_only=True)
class Window:
    """low <= second.time - first.time <= high, in microseconds; None is unbounded."""

    low: int | None
    high: int | None
