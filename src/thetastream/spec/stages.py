"""How a join is carried out: what is stored where, and who meets what is stored.

A stage is units that work at the same time. A unit stores tuples of some of the streams; tuples of
the others visit it. Two streams take one stage, in which each stream's new tuples meet the other's
stored ones and the pairs are results. TriJoin's symmetric scheme takes one stage with three stores,
whose meetings leave packs behind for the third stream to complete; the semi-symmetric scheme takes
two stages, and the packs of one meeting of the first go on to the second.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from thetastream.errors import OptionError
from thetastream.spec.edges import SortOrder
from thetastream.spec.sketch import SketchOptions

GROUPS = 5040
"""Groups that the tuples of a store are in, however many units there are. Units take whole groups,
so that there is room for a fair share of up to a thousand of them; every number up to ten divides
it."""


HOT_GROUPS = 840
"""Those of them that are for hot values, where such have units of their own: the last ones."""

BLOCK_BYTES = 4096
"""What a block of stored tuples holds: the least that a mini-group of extendible hashing has."""


class IndexKind(enum.StrEnum):
    """The indexes of stored tuples, by the name that JoinOptions takes."""

    RUNS = "runs"
    """Sorted runs in a chain of sub-indexes."""
    EXTENDIBLE = "extendible"
    """Mini-groups of bounded size by extendible hashing, joined by block nested loops."""
    NESTED_LOOPS = "nested-loops"
    """One list of blocks for each partition-group, joined by block nested loops."""
    PIM = "pim"
    """A mutable component for the newest tuples, and an immutable one that it is merged into."""
    STREAM_AWARE = "stream-aware"
    """Hot values, each once with its tuples behind it, and a chain of sorted runs for the rest."""

    @classmethod
    def _missing_(cls, value: object) -> IndexKind | None:
        # What the only index was called before there were others.
        return cls.RUNS if value == "sorted" else None


class Grouping(enum.StrEnum):
    """What decides the group of a stored tuple."""

    KEY = "key"
    BUCKET = "bucket"
    """The bucket of a key: its axis is cut into pieces of one width."""
    CONTENT = "content"
    """All of the tuple: random, yet the same when a task runs again."""


@dataclass(frozen=True, kw_only=True)
class HotValues:
    """Values of a key whose tuples are in groups of their own."""

    key: int
    codes: tuple[int, ...]
    """The values, encoded, in ascending order; of a table that changes, those that it starts with,
    if there are any."""

    def __post_init__(self) -> None:
        if list(self.codes) != sorted(set(self.codes)):
            raise OptionError("hot values are listed once each, in ascending order")


@dataclass(frozen=True, kw_only=True)
class GroupBy:
    """How the tuples of a store are divided into groups."""

    kind: Grouping
    key: int | None = None
    width: int | float | None = None
    """Of a bucket, in units of the key."""
    groups: int = GROUPS
    hot: HotValues | None = None
    """Of tuples that are grouped by all they have: those that are kept apart from the others."""

    def __post_init__(self) -> None:
        if (self.key is None) != (self.kind is Grouping.CONTENT):
            raise OptionError("tuples are grouped by a key or a bucket of it, or by all they have")
        if (self.width is None) == (self.kind is Grouping.BUCKET):
            raise OptionError("buckets have a width, and nothing else has")
        if self.width is not None and not self.width > 0:
            raise OptionError(f"a bucket cannot be {self.width} wide")
        if self.groups < 1:
            raise OptionError("there is at least one group")
        if self.hot is not None and (self.key is not None or self.groups <= HOT_GROUPS):
            raise OptionError("hot values are apart where tuples are grouped by all they have")


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long the entries of an index are kept."""

    time: int | None = None
    """The key that is their time."""
    keeps: int | None = None
    """Microseconds after that time in which they can still match; None for ever."""
    period: int | None = None
    """The archive period."""
    life: int = 0
    """Microseconds that they may well live, where the other two do not say so."""


@dataclass(frozen=True, kw_only=True)
class Store:
    """The stored tuples of one stream."""

    stream: int
    group_by: GroupBy
    order: SortOrder
    retention: Retention
    index: IndexKind = IndexKind.RUNS
    """The kind of index that holds them."""
    theta: int | None = None
    """Bytes of a mini-group of extendible hashing: it is split above twice as many."""
    sketch: SketchOptions | None = None
    """The predictor of a stream-aware index; that of the usual size if none is given."""

    def __post_init__(self) -> None:
        if (self.theta is None) == (self.index is IndexKind.EXTENDIBLE):
            raise OptionError("mini-groups have a size, and nothing else has")
        if self.theta is not None and self.theta < BLOCK_BYTES:
            raise OptionError(f"mini-groups of {self.theta} bytes are smaller than a block")
        if self.index is IndexKind.EXTENDIBLE and self.order.equality is None:
            raise OptionError("extendible hashing needs an equality")
        if self.sketch is not None and self.index is not IndexKind.STREAM_AWARE:
            raise OptionError("only a stream-aware index has a predictor of its own")
        if self.index is IndexKind.STREAM_AWARE and (
            self.order.equality is not None or self.order.range is None
        ):
            raise OptionError("hot values are those of a key that is not compared for equality")

    @property
    def counted(self) -> int | None:
        """The key whose frequent values are reported: that of the equality, or of hot values."""
        return self.order.range if self.index is IndexKind.STREAM_AWARE else self.order.equality

    @property
    def heated(self) -> int | None:
        """The key that can be hot while a query runs, by which tuples are sorted."""
        return self.order.equality if self.group_by.hot is None else self.group_by.hot.key


class Then(enum.StrEnum):
    """What becomes of the pairs of a meeting."""

    EMIT = "emit"
    """They are results."""
    PACK = "pack"
    """They stay as packs, which the third stream completes."""
    FORWARD = "forward"
    """They stay as packs, and go on to the next stage as well."""


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """New tuples of one stream meet the stored ones of another."""

    new: int
    stored: int
    then: Then
    hub: int | None = None
    """The stream whose tuples are the hubs of the packs: the third stream looks for them."""

    def __post_init__(self) -> None:
        if self.new == self.stored:
            raise OptionError("a stream does not meet itself")
        if (self.hub in (self.new, self.stored)) != self.packs:
            raise OptionError("packs have a hub of one of the two streams, results have none")
        if self.then is Then.FORWARD and self.hub != self.new:
            raise OptionError("packs that go on have hubs of the new tuples, which look for more")

    @property
    def packs(self) -> bool:
        """Whether pairs stay as packs."""
        return self.then is not Then.EMIT

    @property
    def third(self) -> int:
        """The stream that completes the packs, of three."""
        return 3 - self.new - self.stored

    @property
    def member(self) -> int:
        """The stream whose tuples are the hubs' partners."""
        return self.new if self.hub == self.stored else self.stored


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Units that work at the same time."""

    number: int
    stores: tuple[Store, ...]
    meetings: tuple[Meeting, ...]

    def place(self, stream: int) -> int | None:
        """Where among the stores a stream's is."""
        for place, store in enumerate(self.stores):
            if store.stream == stream:
                return place
        return None

    def meeting(self, new: int, stored: int) -> Meeting | None:
        """The meeting of two streams."""
        for meeting in self.meetings:
            if (meeting.new, meeting.stored) == (new, stored):
                return meeting
        return None

    def visits(self, stream: int, stored: int) -> bool:
        """Whether tuples of a stream visit a store: to meet its tuples, or to complete packs."""
        return any(
            meeting.stored == stored
            and (meeting.new == stream or (meeting.packs and meeting.third == stream))
            for meeting in self.meetings
        )

    @property
    def packing(self) -> tuple[Meeting, ...]:
        """The meetings that leave packs behind."""
        return tuple(meeting for meeting in self.meetings if meeting.packs)
