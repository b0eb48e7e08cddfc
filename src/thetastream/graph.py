"""A join of three streams, ready to run: what `thetastream.spec.JoinSpec` is to two.

TriJoin's units are in three groups, one a stream. A unit of a group stores tuples of the group's
stream; the tuples of the other two streams visit it. Where a visitor meets stored tuples, the pairs
are kept there as intermediate results, and a visitor of the third stream completes them.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from thetastream.spec import (
    Arithmetic,
    Clock,
    Equality,
    JoinSpec,
    Range,
    RangeKind,
    Retention,
    Routing,
    StreamSpec,
    clock_of,
    codec,
    digest,
    more_units,
    streams_fingerprint,
)

PAIRS = ((0, 1), (0, 2), (1, 2))
STAGE_UNITS = 4096
"""Numbers that the units of one stage have for themselves."""


class Scheme(enum.StrEnum):
    """TriJoin's two schemes."""

    SYMMETRIC = "symmetric"
    """The cyclic join: every result is completed where its oldest member is stored."""
    SEMI_SYMMETRIC = "semi-symmetric"
    """The chain join: what the middle stream's new tuples make with the first end's stored ones
    goes on to the second end."""


@dataclass(frozen=True)
class Pair:
    """Two streams as the kernel sees them; a `thetastream.spec.Pairing`."""

    streams: tuple[StreamSpec, ...]
    equality: Equality | None
    ranges: tuple[Range, ...]


@dataclass(frozen=True, kw_only=True)
class Edge:
    """What the kernel checks between two of the streams; keys are those of `TriSpec.streams`."""

    equality: Equality | None
    ranges: tuple[Range, ...]
    joined: bool
    """Whether the predicate compares the two; if not, at most the window does."""

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
class Placement:
    """How the units of a group share the tuples of its stream."""

    routing: Routing
    """Hash or band: by a key. Random: by content."""
    key: int | None = None
    """The key of the group's own stream."""
    width: int | float | None = None
    """Of a band's bucket, in units of the key."""


@dataclass(frozen=True, kw_only=True)
class TriSpec:
    """A three-way join."""

    streams: tuple[StreamSpec, ...]
    edges: tuple[Edge, ...]
    """Of the pairs in `PAIRS`."""
    scheme: Scheme
    order: tuple[int, ...]
    """The order in which a batch's streams are handled; a chain's middle stream is the second."""
    reach: tuple[tuple[int | None, ...], ...]
    """How much later than a tuple of one stream a partner of another may be, in microseconds;
    None without a limit."""
    units: tuple[int, ...]
    """Units in each group; unit u of all groups are one."""
    placements: tuple[Placement, ...]
    packed: bool = True
    """Whether intermediate results are packs of a hub and its partners, or single pairs."""
    recheck_sql: str | None = None
    archive_period: int | None = None
    newest: int | None = None
    after: str = ""
    session: str = ""
    predicate: str = ""
    origin: str = ""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The one stage of the symmetric scheme, or the two of the semi-symmetric one.

        The first of two has the first end's group alone: what it finds has to pass the second.
        """
        if self.scheme is Scheme.SYMMETRIC:
            return (Stage(self, 0, self.order),)
        first, middle, last = self.order
        return Stage(self, 0, (first,)), Stage(self, 1, (middle, last))

    def edge(self, one: int, two: int) -> Edge:
        """What is checked between two streams."""
        return self.edges[PAIRS.index((min(one, two), max(one, two)))]

    def pair(self, one: int, two: int) -> Pair:
        """Two streams, the lower number first, for the kernel."""
        return self._pairs[PAIRS.index((min(one, two), max(one, two)))]

    @cached_property
    def _pairs(self) -> tuple[Pair, ...]:
        return tuple(
            Pair((self.streams[one], self.streams[two]), edge.equality, edge.ranges)
            for (one, two), edge in zip(PAIRS, self.edges, strict=True)
        )

    def hub(self, new: int, stored: int) -> int:
        """Which of two streams is the hub of their packs: the one with the stronger predicate on
        the third stream, which looks for it; the new tuple's where both are as strong."""
        third = 3 - new - stored
        ranks = self.edge(new, third).rank, self.edge(stored, third).rank
        return stored if ranks[1] < ranks[0] else new

    def keeps(self, stream: int) -> int | None:
        """For how long after its own time a stored tuple of the stream is visited with success."""
        if self.scheme is Scheme.SEMI_SYMMETRIC and stream != self.order[1]:
            return self.reach[stream][self.order[1]]
        # The visitor and the one that completes the result are both still to come.
        return _least(length for other, length in enumerate(self.reach[stream]) if other != stream)

    @property
    def windowed(self) -> bool:
        """Whether time limits anything at all."""
        return any(length is not None for row in self.reach for length in row)

    @property
    def clock(self) -> Clock:
        """Which of Spark's watermarks it goes by."""
        return clock_of(windowed=self.windowed, timed=self.newest is not None)

    @property
    def span(self) -> int | None:
        """The longest time between two members of a result; None without a limit."""
        return longest(self.reach)

    @property
    def longest_reach(self) -> int:
        """The longest time between two members of a result, of those that have a limit."""
        found = [abs(length) for row in self.reach for length in row if length is not None]
        return max(found, default=0)

    def allows(self, name: str, stored: str) -> bool:
        """Whether a part of the fingerprint may have been otherwise without losing a result."""
        spread = all(item.routing is Routing.RANDOM for item in self.placements)
        return name == "units" and spread and more_units(self.units, stored)

    def to_json(self) -> str:
        """The spec as text that `from_json` reads."""
        return codec.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> TriSpec:
        """The spec that `to_json` wrote."""
        return codec.from_json(cls, text)

    def fingerprint(self) -> dict[str, str]:
        """Named parts of the query that stored state depends on, each as a short text."""
        return {
            **streams_fingerprint(self.streams, self.predicate, self.session),
            "edges": digest([dataclasses.asdict(edge) for edge in self.edges]),
            "window": digest(self.reach),
            "scheme": f"{self.scheme.value} {[stage.groups for stage in self.stages]}",
            "units": ",".join(str(count) for count in self.units),
            "placements": digest([dataclasses.asdict(item) for item in self.placements]),
            "intermediate": "packed" if self.packed else "pairs",
            "aggregates": self.after or "none",
        }


@dataclass(frozen=True)
class Stage:
    """Units that work at the same time, and the groups that they are of."""

    spec: TriSpec
    number: int
    groups: tuple[int, ...]

    @property
    def units(self) -> int:
        """Units in all; unit u of each group are one."""
        return max(self.spec.units[group] for group in self.groups)

    @property
    def first_unit(self) -> int:
        """The number of its first unit, the same however many units there are."""
        return self.number * STAGE_UNITS

    @cached_property
    def meetings(self) -> tuple[tuple[int, int], ...]:
        """Whose tuples meet whose stored tuples to make intermediate results."""
        return tuple(
            (new, stored)
            for stored in self.groups
            for new in self.spec.order
            if new != stored and self.spec.edge(new, stored).joined
        )

    def chains(self) -> tuple[Retention, ...]:
        """How long what each index holds is kept: of the groups' tuples, then of the packs."""
        spec = self.spec
        stored = []
        for group in self.groups:
            keeps = spec.keeps(group)
            period = None if keeps is None else spec.archive_period
            stored.append(Retention(spec.streams[group].time, keeps, period))
        packs = []
        for new, group in self.meetings:
            hub = spec.streams[spec.hub(new, group)]
            # The key after the hub's own says until when a pack matters.
            time = len(hub.keys) if spec.windowed else None
            keeps = 0 if spec.windowed else None
            packs.append(Retention(time, keeps, spec.archive_period, spec.longest_reach))
        return (*stored, *packs)

    def fingerprint(self) -> dict[str, str]:
        """The join's."""
        return self.spec.fingerprint()

    def allows(self, name: str, stored: str) -> bool:
        """The join's."""
        return self.spec.allows(name, stored)


@dataclass(frozen=True, kw_only=True)
class TreeSpec:
    """Two-way joins one after the other; the results of each are the first stream of the next."""

    steps: tuple[JoinSpec, ...]
    order: tuple[int, ...]
    """The streams in the order in which they are joined."""
    output: tuple[tuple[str, ...], ...]
    """For each stream the names that its columns have in the last results."""
    reach: tuple[tuple[int | None, ...], ...]
    predicate: str
    origin: str = ""

    @property
    def windowed(self) -> bool:
        """Whether time limits anything at all."""
        return any(length is not None for row in self.reach for length in row)

    @property
    def clock(self) -> Clock:
        """Which of Spark's watermarks all its joins go by, those without a window, too."""
        return clock_of(windowed=self.windowed, timed=self.steps[-1].timed)

    @property
    def span(self) -> int | None:
        """The longest time between two members of a result; None without a limit."""
        return longest(self.reach)

    @property
    def recheck_sql(self) -> str | None:
        """Nothing: each join has evaluated all that it could."""
        return None

    def fingerprint(self) -> dict[str, str]:
        """The fingerprints of all joins."""
        return {
            f"{name} of join {number}": value
            for number, step in enumerate(self.steps, 1)
            for name, value in step.fingerprint().items()
        } | {"predicate": self.predicate}

    def allows(self, name: str, stored: str) -> bool:
        """Whether a part of the fingerprint may have been otherwise without losing a result."""
        part, _, number = name.partition(" of join ")
        return number.isdigit() and self.steps[int(number) - 1].allows(part, stored)


def longest(reach: Sequence[Sequence[int | None]]) -> int | None:
    """The longest time between two streams; None where one has no limit."""
    found = [
        length for one, row in enumerate(reach) for two, length in enumerate(row) if one != two
    ]
    finite = [abs(length) for length in found if length is not None]
    return max(finite) if len(finite) == len(found) else None


def _least(lengths: Iterable[int | None]) -> int | None:
    return min((length for length in lengths if length is not None), default=None)


def content_range(edge: Edge, side: int, key: int) -> Range | None:
    """The band of an edge on that key of one side (0 or 1), by which the other side is sent."""
    for item in edge.ranges:
        if item.kind is RangeKind.BAND and item.of(side) == key:
            return item if item.arithmetic is not Arithmetic.NONE else None
    return None
