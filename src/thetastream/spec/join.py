"""A join, ready to run: how tuples are compared, kept and aggregated. It checks itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from thetastream.errors import OptionError
from thetastream.spec.clock import Clock, clock_of
from thetastream.spec.codec import digest
from thetastream.spec.edges import Edge, Window
from thetastream.spec.stages import IndexKind, Meeting, Retention, Stage, Store, Then
from thetastream.spec.streams import KeySpec, StreamSpec
from thetastream.spec.view import ViewSpec

CONTENT_HASH = 1
"""The version of `thetastream.topology.content`: another hash puts tuples in other groups."""

Reach = tuple[tuple[int | None, ...], ...]
"""How much later than a tuple of one stream a partner of another may be, in microseconds; None
without a limit."""


@dataclass(frozen=True, kw_only=True)
class JoinSpec:
    """A join of two or three streams."""

    streams: tuple[StreamSpec, ...]
    edges: tuple[Edge, ...]
    """One for each two streams: (0, 1), (0, 2), (1, 2)."""
    reach: Reach
    stages: tuple[Stage, ...]
    order: tuple[int, ...]
    """The order in which a batch's streams are handled."""
    kind: str = "inner"
    packed: bool = True
    """Whether intermediate results are packs of a hub and its partners, or single pairs."""
    recheck_sql: str | None = None
    """What the kernel does not decide, over a result's columns `s0_0`, ... `s1_0`, ..."""
    archive_period: int | None = None
    """Microseconds of event time a sub-index spans before it is sealed; None in a full history."""
    view: ViewSpec | None = None
    """What leaves the units in place of the results."""
    newest: int | None = None
    """Microseconds: each result carries the time of its newest member, rounded up to the last
    microsecond of a slice of this length. None where it does not."""
    after: str = ""
    """What Spark groups and aggregates after the join: part of the fingerprint."""
    session: str = ""
    """The settings of the session that keys depend on: part of the fingerprint."""
    predicate: str = ""
    """The normalised predicate: part of the fingerprint, shown in errors."""
    origin: str = ""
    """The line of the user's program that built the join."""

    def __post_init__(self) -> None:
        check(self)

    def edge(self, one: int, two: int) -> Edge:
        """What is compared between two streams."""
        return self._edges[min(one, two), max(one, two)]

    @cached_property
    def _edges(self) -> dict[tuple[int, int], Edge]:
        return {edge.streams: edge for edge in self.edges}

    @property
    def windowed(self) -> bool:
        """Whether time limits anything at all."""
        return is_windowed(self.reach)

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
        """The longest time between two members of a result; None without a limit."""
        return longest(self.reach)

    def window(self, one: int, two: int) -> Window | None:
        """What is known of the times of two streams."""
        return window_in(self.reach, one, two)

    def retentions(self, stage: Stage) -> tuple[Retention, ...]:
        """How long each index of a stage keeps its entries: the stores', then those of packs."""
        stored = [store.retention for store in stage.stores]
        lengths = [abs(length) for row in self.reach for length in row if length is not None]
        packs = []
        for meeting in stage.packing:
            assert meeting.hub is not None
            if lengths:
                # The key after the hub's own says until when a pack matters.
                time = len(self.streams[meeting.hub].keys)
                period, life = self.archive_period, max(lengths)
                packs.append(Retention(time=time, keeps=0, period=period, life=life))
            else:
                packs.append(Retention())
        return (*stored, *packs)

    def fingerprint(self) -> dict[str, str]:
        """Named parts of the query that stored state depends on, each as a short text."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> dict[str, str]:
        asdict = dataclasses.asdict
        stores = [store for stage in self.stages for store in stage.stores]
        # "sorted" has been the name of the default index; others have an entry of their own.
        order = [(asdict(store.order), "sorted") for store in stores]
        kinds = ", ".join(dict.fromkeys(store.index.value for store in stores))
        meetings = [[asdict(meeting) for meeting in stage.meetings] for stage in self.stages]
        return {
            "kind": self.kind,
            "session": self.session,
            "streams": ",".join(stream.name for stream in self.streams),
            "predicate": self.predicate,
            "columns": digest([[asdict(c) for c in s.columns] for s in self.streams]),
            "keys": digest([[_stored_key(k) for k in s.keys] for s in self.streams]),
            "filters": digest([s.filter_sql for s in self.streams]),
            "comparisons": digest([asdict(edge) for edge in self.edges]),
            "window": _described(self),
            "groups": ", ".join(_grouped(self, store) for store in stores),
            "sort order": digest(order),
            "stages": digest([self.order, meetings]),
            "intermediate": "packed" if self.packed else "pairs",
            # How often a view is sent may change; what is in it may not.
            "view": "none"
            if self.view is None
            else digest(asdict(dataclasses.replace(self.view, every=1))),
            "aggregates": self.after or "none",
            **({} if kinds == IndexKind.RUNS else {"index": kinds}),
        }


def check(spec: JoinSpec) -> None:
    """Refuse a spec whose parts do not fit each other."""
    count = len(spec.streams)
    _require(2 <= count <= 3, f"{count} streams: a join has two or three")
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    _require([edge.streams for edge in spec.edges] == pairs, "an edge for each two streams")
    _require(sorted(spec.order) == list(range(count)), "an order of all streams")
    shaped = len(spec.reach) == count and all(len(row) == count for row in spec.reach)
    _require(shaped, "a reach for each two streams")
    for edge in spec.edges:
        for side, stream in enumerate(edge.streams):
            for key in edge.keys(side):
                _key(spec, stream, key)
        for columns in edge.compared:
            for stream, column in zip(edge.streams, columns, strict=True):
                found = 0 <= column < len(spec.streams[stream].columns)
                _require(found, "columns that are compared are carried")
    for described, row in zip(spec.streams, spec.reach, strict=True):
        limited = any(length is not None for length in row)
        _require(not limited or described.time is not None, f"a time of {described.name}")
    if spec.timed:
        for described in spec.streams:
            _require(described.newest is not None, f"a time of {described.name} for its results")
    if spec.view is not None:
        _require(count == 2, "a view is of two streams")
        for value in spec.view.values:
            found = 0 <= value.column < len(spec.streams[value.stream].columns)
            _require(found, "what a view reads is carried")
    _require([stage.number for stage in spec.stages] == list(range(len(spec.stages))), "stages")
    stored = [store.stream for stage in spec.stages for store in stage.stores]
    _require(sorted(stored) == list(range(count)), "each stream stored in one stage")
    for stage in spec.stages:
        _check_stage(spec, stage)


def _check_stage(spec: JoinSpec, stage: Stage) -> None:
    met = [(meeting.new, meeting.stored) for meeting in stage.meetings]
    _require(len(set(met)) == len(met), "each meeting once")
    for meeting in stage.meetings:
        _require(stage.place(meeting.stored) is not None, "meetings with what the stage stores")
        _require(0 <= meeting.new < len(spec.streams), "meetings of streams that there are")
        _require(meeting.packs == (len(spec.streams) == 3), "packs where a third stream completes")
        last = stage.number + 1 == len(spec.stages)
        _require(meeting.then is not Then.FORWARD or not last, "a stage to forward packs to")
    for store in stage.stores:
        hot = None if store.group_by.hot is None else store.group_by.hot.key
        for key in (store.group_by.key, store.order.equality, store.order.range, hot):
            if key is not None:
                _key(spec, store.stream, key)
        keeps = store.retention.keeps
        _require(store.retention.time == spec.streams[store.stream].time, "stores by event time")
        if keeps is not None:
            least = needed(spec.reach, spec.stages, store.stream)
            enough = least is not None and keeps >= least
            _require(enough, f"tuples of {spec.streams[store.stream].name} kept long enough")


def needed(reach: Reach, stages: Iterable[Stage], stream: int) -> int | None:
    """For how long after its own time a stored tuple of the stream is visited with success.

    None is for ever. Where packs are made, the one that completes the result is still to come, too.
    """
    found: list[int | None] = []
    for meeting in (meeting for stage in stages for meeting in stage.meetings):
        if meeting.stored == stream:
            found.append(_needed_by(meeting, reach[stream]))
        elif meeting.then is Then.FORWARD and meeting.third == stream:
            found.append(reach[stream][meeting.new])
    finite = [length for length in found if length is not None]
    return max(finite) if finite and len(finite) == len(found) else None


def _needed_by(meeting: Meeting, reach: Sequence[int | None]) -> int | None:
    if meeting.then is not Then.PACK:
        return reach[meeting.new]
    lengths = [
        length for length in (reach[meeting.new], reach[meeting.third]) if length is not None
    ]
    return min(lengths, default=None)


def is_windowed(reach: Sequence[Sequence[int | None]]) -> bool:
    """Whether time limits anything at all."""
    return any(length is not None for row in reach for length in row)


def longest(reach: Sequence[Sequence[int | None]]) -> int | None:
    """The longest time between two streams; None where one has no limit."""
    found = [
        length for one, row in enumerate(reach) for two, length in enumerate(row) if one != two
    ]
    finite = [abs(length) for length in found if length is not None]
    return max(finite) if len(finite) == len(found) else None


def window_in(reach: Sequence[Sequence[int | None]], one: int, two: int) -> Window | None:
    """What is known of the times of two streams."""
    there, back = reach[one][two], reach[two][one]
    if there is None and back is None:
        return None
    return Window(low=None if back is None else -back, high=there)


def _require(fits: bool, what: str) -> None:
    if not fits:
        raise OptionError(f"a join's description lacks something: {what}")


def _key(spec: JoinSpec, stream: int, key: int) -> None:
    described = spec.streams[stream]
    _require(0 <= key < len(described.keys), f"key {key} of {described.name}")


def _described(spec: JoinSpec) -> str:
    """The window as a short text."""
    if not spec.windowed:
        return "full history"
    window = spec.window(0, 1)
    if len(spec.streams) > 2 or window is None:
        return digest(spec.reach)
    return f"{_seconds(window.low)} to {_seconds(window.high)}"


def _grouped(spec: JoinSpec, store: Store) -> str:
    """By what a store's tuples are grouped, as a short text."""
    by, stream = store.group_by, spec.streams[store.stream]
    if by.key is None:
        return f"{stream.name} by content {CONTENT_HASH} in {by.groups}"
    width = "" if by.width is None else f"buckets of {by.width} of "
    return f"{stream.name} by {width}{stream.keys[by.key].sql} in {by.groups}"


def _seconds(length: int | None) -> str:
    """Microseconds as seconds, to the last digit."""
    if length is None:
        return "no end"
    whole, rest = divmod(abs(length), 1_000_000)
    digits = f".{rest:06d}".rstrip("0") if rest else ""
    return f"{'-' if length < 0 else ''}{whole}{digits} s"


def _stored_key(key: KeySpec) -> dict[str, Any]:
    """A key without what is only shown."""
    found = dataclasses.asdict(key)
    del found["of"]
    return found
