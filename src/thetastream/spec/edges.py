"""What is compared between two streams.

All keys are 64-bit integers whose order is the order of the values they stand for (see
`thetastream.index.encoding`), so every comparison below is one of integers.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from thetastream.errors import OptionError
from thetastream.spec.streams import StreamSpec


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


class Pairing(Protocol):
    """Two streams and what the kernel decides about a pair of their tuples."""

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        """The first and the second stream."""

    @property
    def equality(self) -> Equality | None:
        """The keys that must be equal."""

    @property
    def ranges(self) -> tuple[Range, ...]:
        """What differences of keys must lie in; the first one drives after the equality."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """low <= second.time - first.time <= high, in microseconds; None is unbounded."""

    low: int | None
    high: int | None

    def keeps(self, stream: int) -> int | None:
        """For how long after its own time a tuple of the stream can still find a partner."""
        if stream == 0:
            return self.high
        return None if self.low is None else -self.low
