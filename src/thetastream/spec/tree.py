"""One join, or joins one after the other: the results of each are the first stream of the next."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from thetastream.errors import OptionError
from thetastream.spec.clock import Clock, clock_of
from thetastream.spec.codec import from_json
from thetastream.spec.join import JoinSpec, Reach, is_windowed, longest
from thetastream.spec.routing import LiveSpec, RoutingSpec


@dataclass(frozen=True, kw_only=True)
class Step:
    """A join and how large it is."""

    spec: JoinSpec
    routing: RoutingSpec
    live: LiveSpec | None = None
    """None if the routing stays as it is."""


@dataclass(frozen=True, kw_only=True)
class JoinTree:
    """The joins of a query, in the order in which they are carried out."""

    steps: tuple[Step, ...]
    reach: Reach
    """Of all streams."""
    order: tuple[int, ...] = ()
    """The streams in the order in which they are joined, if there are several joins."""
    output: tuple[tuple[str, ...], ...] = ()
    """For each stream the names that its columns have in the last results, likewise."""
    predicate: str = ""
    origin: str = ""

    def __post_init__(self) -> None:
        if len(self.steps) > 1 and any(len(step.spec.streams) != 2 for step in self.steps):
            raise OptionError("joins one after the other are of two streams each")
        if self.order and len(self.steps) + 1 != len(self.order):
            raise OptionError("a tree has a join for every stream after the first")

    @property
    def last(self) -> JoinSpec:
        """The join whose results are those of the query."""
        return self.steps[-1].spec

    @property
    def windowed(self) -> bool:
        """Whether time limits anything at all."""
        return is_windowed(self.reach)

    @property
    def clock(self) -> Clock:
        """Which of Spark's watermarks all its joins go by, those without a window, too."""
        return clock_of(windowed=self.windowed, timed=self.last.timed)

    @property
    def span(self) -> int | None:
        """The longest time between two members of a result; None without a limit."""
        return longest(self.reach)

    def fingerprint(self) -> dict[str, str]:
        """The fingerprints of all joins."""
        if len(self.steps) == 1:
            return self.last.fingerprint()
        return {
            f"{name} of join {number}": value
            for number, step in enumerate(self.steps, 1)
            for name, value in step.spec.fingerprint().items()
        } | {"predicate": self.predicate}


@lru_cache(maxsize=64)
def read_step(text: str) -> Step:
    """The join and its size that `codec.to_json` wrote: a worker reads it once."""
    return from_json(Step, text)
