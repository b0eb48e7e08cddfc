"""The topologies, and how large one is."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from thetastream.errors import OptionError
from thetastream.spec.sketch import SketchOptions


class Routing(enum.StrEnum):
    """The topologies, by the name that JoinOptions takes.

    >>> ts.JoinOptions(topology=ts.Routing.CONTRAND).topology == "contrand"
    True
    """

    HASH = "hash"
    CONTRAND = "contrand"
    RANDOM = "random"
    BAND = "band"
    MATRIX = "matrix"
    SPLIT = "split"
    BROADCAST = "broadcast"
    MULTI_CHAINED = "multi-chained"
    STREAM_AWARE = "stream-aware"

    @property
    def copies(self) -> bool:
        """Whether tuples are stored several times."""
        return self in (Routing.MATRIX, Routing.BROADCAST, Routing.MULTI_CHAINED)

    @property
    def shares_units(self) -> bool:
        """Whether a unit is there for both streams, by design and not by their numbers alone."""
        return self.copies or self is Routing.SPLIT


@dataclass(frozen=True, kw_only=True)
class RoutingSpec:
    """A topology and its size: what a table is made of."""

    routing: Routing
    units: tuple[int, ...]
    """Units that store each stream (BiStream's m and n); of a matrix, its rows and columns. A
    broadcast is a matrix of one row, which stores the first stream everywhere, or one column."""
    subgroups: tuple[int, ...] = ()
    """ContRand's d and e."""
    hot_units: int = 0
    """Units of each stream that are for its hot values: the last ones."""

    def __post_init__(self) -> None:
        if min(self.units) < 1:
            raise OptionError("every stream has at least one unit")
        fits = len(self.subgroups) == len(self.units) and all(
            1 <= groups <= count for groups, count in zip(self.subgroups, self.units, strict=True)
        )
        if (self.routing is Routing.CONTRAND) != bool(self.subgroups) or (
            self.subgroups and not fits
        ):
            raise OptionError("ContRand has subgroups of at least one unit, and nothing else has")
        apart = self.routing is Routing.STREAM_AWARE
        if self.hot_units and not (apart and 0 < self.hot_units < min(self.units)):
            raise OptionError("STA has hot units beside others, and nothing else has")
        if self.routing is Routing.BROADCAST and min(self.units) != 1:
            raise OptionError("a broadcast stores one of the streams in every unit")
        same = self.routing in (Routing.SPLIT, Routing.MULTI_CHAINED)
        if same and len(set(self.units)) != 1:
            raise OptionError(f"{self.routing.value} has the same units for both streams")


@dataclass(frozen=True, kw_only=True)
class LiveSpec:
    """Where the versions of a table are that changes while the query runs."""

    path: str
    """The control directory."""
    control: str
    """Its own name, which no other one has."""
    join: int
    """The place of the join among those of the query."""
    token: str = ""
    """What tells the queries of one directory apart for workers that remember its tables."""
    sketch: SketchOptions | None = None
    """The predictor of hot keys that each unit has; None for none."""
