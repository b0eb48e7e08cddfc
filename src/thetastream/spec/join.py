"""A two-way join, ready to run: how tuples are routed, kept and compared."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from thetastream.spec import codec
from thetastream.spec.clock import Clock, clock_of
from thetastream.spec.codec import digest
from thetastream.spec.edges import Equality, Range, Window
from thetastream.spec.streams import KeySpec, StreamSpec
from thetastream.spec.view import ViewSpec


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


class Retention(NamedTuple):
    """How long the entries of an index are kept."""

    time: int | None
    """The key that is their time."""
    keeps: int | None
    """Microseconds after that time in which they can still match; None for ever."""
    period: int | None
    """The archive period."""
    life: int = 0
    """Microseconds that they may well live, where the other two do not say so."""


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
        return codec.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> JoinSpec:
        """The spec that `to_json` wrote."""
        return codec.from_json(cls, text)

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

    def chains(self) -> tuple[Retention, ...]:
        """How long the tuples of each stream are kept."""
        found = []
        for number, stream in enumerate(self.streams):
            keeps = self.window.keeps(number) if self.window else None
            # What never expires is one sub-index: its runs are merged into ever larger ones.
            period = None if keeps is None else self.archive_period
            found.append(Retention(stream.time, keeps, period))
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
        "keys": digest([[_stored_key(k) for k in s.keys] for s in streams]),
        "filters": digest([s.filter_sql for s in streams]),
    }


def _stored_key(key: KeySpec) -> dict[str, Any]:
    """The key without what only reports show of it."""
    return {name: value for name, value in dataclasses.asdict(key).items() if name != "of"}
