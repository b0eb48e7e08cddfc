"""What the planner hands down: a join as the router, the units and Spark's SQL carry it out.

All keys are 64-bit integers whose order is the order of the values they stand for (see
`thetastream.index.encoding`), so every comparison below is one of integers. A spec is frozen, holds
plain values only and turns into JSON and back: it travels to the workers and into the fingerprint.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from thetastream.errors import OptionError

NEWEST = "newest"
"""The column with the time of a result's newest member; in a view the last microsecond of its
slice."""


def group_column(number: int) -> str:
    """The name of a group's column in a view."""
    return f"g_{number}"


def measure_column(number: int) -> str:
    """The name of a measure's column in a view."""
    return f"m_{number}"


def result_column(stream: int, number: int) -> str:
    """The name of a carried column in a result."""
    return f"s{stream}_{number}"


class Encoding(enum.StrEnum):
    """How a key column becomes order-preserving 64-bit integers."""

    INTEGER = "integer"
    """Booleans, integers, dates, timestamps, intervals: the value itself."""
    FLOAT = "float"
    """Floats: NaN equals itself and is larger than all, -0.0 equals 0.0."""
    FLOAT_NAN_LOW = "float_nan_low"
    """As FLOAT with NaN below everything: the subtracted side of a one-sided difference."""
    DECIMAL = "decimal"
    """Decimals of at most 18 digits: the unscaled value."""
    PREFIX = "prefix"
    """Strings and binaries: the first eight bytes. Lossy, so the comparison is re-checked."""


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


class Routing(enum.StrEnum):
    """The topologies, by the name that JoinOptions takes."""

    HASH = "hash"
    CONTRAND = "contrand"
    RANDOM = "random"
    BAND = "band"
    MATRIX = "matrix"


class Clock(enum.StrEnum):
    """Which of Spark's watermarks a join goes by, to leave late tuples out and to expire old ones.

    Spark's watermark is never before 1970: it is there before the first batch, and as long as all
    it has seen is older.
    """

    NONE = "none"
    """None of them: time limits nothing."""
    MOVED = "moved"
    """Those after 1970. The one it starts with says nothing about the tuples."""
    ALL = "all"
    """The one it starts with, too: what follows the join drops or refuses older results."""

    def watermark(self, spark: int) -> int | None:
        """What a join makes of Spark's watermark, both in microseconds."""
        if self is Clock.NONE or (self is Clock.MOVED and spark <= 0):
            return None
        return spark


@dataclass(frozen=True, kw_only=True)
class ColumnSpec:
    """A column of a stream that results carry."""

    name: str
    type: str
    sql: str | None = None
    """The expression over the stream's own columns that it holds; None for one of these."""


@dataclass(frozen=True, kw_only=True)
class KeySpec:
    """One side of a comparison: an expression over one stream, and how it is encoded."""

    sql: str
    type: str
    encoding: Encoding
    column: str | None = None
    """The stream's own column when the expression is nothing but that: then nothing is derived."""


@dataclass(frozen=True, kw_only=True)
class StreamSpec:
    """One input: what it carries, which rows of it can match, which keys it has."""

    name: str
    columns: tuple[ColumnSpec, ...]
    keys: tuple[KeySpec, ...]
    filter_sql: str | None = None
    """One-sided conjuncts, evaluated before anything travels."""
    time: int | None = None
    """The key that is the event time in microseconds; None in a full-history join."""
    made: bool = False
    """Whether its tuples are results of another join: then none of them is late."""
    latest: int | None = None
    """The key that is the time of their newest member, where that is not the event time."""

    @property
    def newest(self) -> int | None:
        """The key that is the newest time in a tuple."""
        return self.time if self.latest is None else self.latest


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

    def of(self, stream: int) -> int:
        """The stream's key in it."""
        return self.right if stream else self.left


@dataclass(frozen=True, kw_only=True)
class Equality:
    """left key = right key, on one 64-bit key a side."""

    left: int
    right: int
    exact: bool = True
    """False for hashes: `JoinSpec.recheck_sql` repeats the comparison on the values."""

    def of(self, stream: int) -> int:
        """The stream's key in it."""
        return self.right if stream else self.left


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


class Kept(NamedTuple):
    """How long the entries of an index are kept."""

    time: int | None
    """The key that is their time."""
    keeps: int | None
    """Microseconds after that time in which they can still match; None for ever."""
    period: int | None
    """The archive period."""


@dataclass(frozen=True, kw_only=True)
class RoutingSpec:
    """The topology and its size."""

    routing: Routing
    units: tuple[int, int]
    """Units that store the first and the second stream (BiStream's m and n)."""
    subgroups: tuple[int, int] = (1, 1)
    """ContRand's d and e."""
    bucket_width: int | float | None = None
    """Band buckets: the width in units of the driving key."""


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
    """The local view that a unit makes of its results instead of sending them."""

    groups: tuple[Value, ...]
    measures: tuple[Measure, ...]
    slice: int | None = None
    """Microseconds: results are also told apart by the slice that their newest member's time is
    in. None where time does not matter."""
    every: int = 1
    """Batches after which the view is sent; until then it is part of the unit's state."""


@dataclass(frozen=True, kw_only=True)
class JoinSpec:
    """A two-way join, ready to run."""

    streams: tuple[StreamSpec, ...]
    equality: Equality | None
    ranges: tuple[Range, ...]
    """The first one drives (after the equality); the others filter. The window is among them."""
    window: Window | None
    routing: RoutingSpec
    recheck_sql: str | None = None
    """What the kernel does not decide, over a result's columns `s0_0`, ... `s1_0`, ..."""
    archive_period: int | None = None
    """Microseconds of event time a sub-index spans before it is sealed; None in a full history."""
    view: ViewSpec | None = None
    """What leaves the units in place of the results."""
    verified: tuple[tuple[int, int], ...] = ()
    """Columns of the first and the second stream that must be equal where the key is a hash, for
    the units to check; empty where Spark re-checks it on the results."""
    after: str = ""
    """What Spark groups and aggregates after the join: part of the fingerprint."""
    newest: int | None = None
    """Microseconds: each result carries the time of its newest member, rounded up to the last
    microsecond of a slice of this length. None where it does not."""
    session: str = ""
    """The settings of the session that keys depend on: part of the fingerprint."""
    predicate: str = ""
    """The normalised predicate: part of the fingerprint, shown in errors."""
    origin: str = ""
    """The line of the user's program that built the join."""

    def to_json(self) -> str:
        """The spec as text that `from_json` reads."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> JoinSpec:
        """The spec that `to_json` wrote."""
        raw: dict[str, Any] = json.loads(text)
        routing = raw["routing"]
        return cls(
            streams=tuple(stream_from(stream) for stream in raw["streams"]),
            equality=Equality(**raw["equality"]) if raw["equality"] else None,
            ranges=tuple(range_from(item) for item in raw["ranges"]),
            window=Window(**raw["window"]) if raw["window"] else None,
            routing=RoutingSpec(
                routing=Routing(routing["routing"]),
                units=tuple(routing["units"]),
                subgroups=tuple(routing["subgroups"]),
                bucket_width=routing["bucket_width"],
            ),
            recheck_sql=raw["recheck_sql"],
            archive_period=raw["archive_period"],
            view=_view(raw["view"]) if raw["view"] else None,
            verified=tuple((left, right) for left, right in raw["verified"]),
            after=raw["after"],
            newest=raw["newest"],
            session=raw["session"],
            predicate=raw["predicate"],
            origin=raw["origin"],
        )

    @property
    def windowed(self) -> bool:
        """Whether time limits anything at all."""
        return self.window is not None

    @property
    def timed(self) -> bool:
        """Whether what leaves the units has the time of the newest member."""
        return self.newest is not None or (self.view is not None and self.view.slice is not None)

    @property
    def clock(self) -> Clock:
        """Which of Spark's watermarks it goes by."""
        return clock_of(windowed=self.windowed, timed=self.timed)

    @property
    def span(self) -> int | None:
        """The longest time between the members of a result; None without a limit."""
        window = self.window
        if window is None or window.low is None or window.high is None:
            return None
        return max(abs(window.low), abs(window.high))

    def chains(self) -> tuple[Kept, ...]:
        """How long the tuples of each stream are kept."""
        found = []
        for number, stream in enumerate(self.streams):
            keeps = self.window.keeps(number) if self.window else None
            # What never expires is one sub-index: its runs are merged into ever larger ones.
            period = None if keeps is None else self.archive_period
            found.append(Kept(stream.time, keeps, period))
        return tuple(found)

    def allows(self, name: str, stored: str) -> bool:
        """Whether a part of the fingerprint may have been otherwise without losing a result."""
        if name != "units" or self.routing.routing is not Routing.RANDOM:
            return False
        return more_units(self.routing.units, stored)

    def fingerprint(self) -> dict[str, str]:
        """Named parts of the query that stored state depends on, each as a short text."""
        asdict = dataclasses.asdict
        return {
            **streams_fingerprint(self.streams, self.predicate, self.session),
            # What is equal and what is ranked first decides how runs are sorted.
            "comparisons": digest(
                [self.equality and asdict(self.equality), [asdict(item) for item in self.ranges]]
            ),
            "window": "full history"
            if self.window is None
            else f"{_seconds(self.window.low)} to {_seconds(self.window.high)}",
            "routing": self.routing.routing.value,
            "subgroups": f"{self.routing.subgroups[0]},{self.routing.subgroups[1]}",
            "bucket_width": str(self.routing.bucket_width),
            "units": f"{self.routing.units[0]},{self.routing.units[1]}",
            # How often a view is sent may change; what is in it may not.
            "view": "none"
            if self.view is None
            else digest(asdict(dataclasses.replace(self.view, every=1))),
            "aggregates": self.after or "none",
        }


def clock_of(*, windowed: bool, timed: bool) -> Clock:
    """Which of Spark's watermarks a join goes by, all its steps and stages alike."""
    if not windowed:
        return Clock.NONE
    return Clock.ALL if timed else Clock.MOVED


def _seconds(length: int | None) -> str:
    """Microseconds as seconds, to the last digit."""
    if length is None:
        return "no end"
    whole, rest = divmod(abs(length), 1_000_000)
    digits = f".{rest:06d}".rstrip("0") if rest else ""
    return f"{'-' if length < 0 else ''}{whole}{digits} s"


def more_units(units: Sequence[int], stored: str) -> bool:
    """Whether there are at least the units that wrote the state, in every group.

    Where every unit is probed, units may be added; those taken away would keep their tuples.
    """
    before = [int(count) for count in stored.split(",")]
    return all(new >= old for new, old in zip(units, before, strict=True))


def stream_from(raw: dict[str, Any]) -> StreamSpec:
    """The stream in JSON."""
    return StreamSpec(
        name=raw["name"],
        columns=tuple(ColumnSpec(**column) for column in raw["columns"]),
        keys=tuple(
            KeySpec(**{**key, "encoding": Encoding(key["encoding"])}) for key in raw["keys"]
        ),
        filter_sql=raw["filter_sql"],
        time=raw["time"],
        made=raw["made"],
        latest=raw["latest"],
    )


def range_from(raw: dict[str, Any]) -> Range:
    """The range in JSON."""
    return Range(
        left=raw["left"],
        right=raw["right"],
        low=Bound(**raw["low"]) if raw["low"] else None,
        high=Bound(**raw["high"]) if raw["high"] else None,
        kind=RangeKind(raw["kind"]),
        arithmetic=Arithmetic(raw["arithmetic"]),
        exact=raw["exact"],
    )


def streams_fingerprint(
    streams: Sequence[StreamSpec], predicate: str, session: str
) -> dict[str, str]:
    """What stored state depends on in the streams themselves and in the session."""
    asdict = dataclasses.asdict
    return {
        "session": session,
        "streams": ",".join(stream.name for stream in streams),
        "predicate": predicate,
        "columns": digest([[asdict(c) for c in s.columns] for s in streams]),
        "keys": digest([[asdict(k) for k in s.keys] for s in streams]),
        "filters": digest([s.filter_sql for s in streams]),
    }


def digest(value: object) -> str:
    """A short text that differs where the value differs."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _view(raw: dict[str, Any]) -> ViewSpec:
    return ViewSpec(
        groups=tuple(Value(**group) for group in raw["groups"]),
        measures=tuple(
            Measure(
                fold=Fold(measure["fold"]),
                value=Value(**measure["value"]) if measure["value"] else None,
            )
            for measure in raw["measures"]
        ),
        slice=raw["slice"],
        every=raw["every"],
    )
