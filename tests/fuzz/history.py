"""A streaming history: rows in the order in which they arrive, a query, and its restarts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

SECOND = 1_000_000
SCHEMA = "id bigint, k int, n int, t timestamp"


class Row(NamedTuple):
    """A row of a stream."""

    id: int
    k: int | None
    n: int | None
    t: int | None
    """Its event time in microseconds."""


Members = Mapping[str, Row]
"""Rows of some of the streams, by the streams' names."""


class Condition(NamedTuple):
    """A conjunct of a predicate, which Spark reads as text and the model as a function."""

    kind: str
    streams: tuple[str, ...]
    low: int = 0
    high: int = 0

    @property
    def sql(self) -> str:
        """The text."""
        one, two = (*self.streams, "")[:2]
        match self.kind:
            case "equal":
                return f"{one}.k = {two}.k"
            case "band":
                return f"abs({one}.n - {two}.n) <= {self.high}"
            case "less":
                return f"{one}.n < {two}.n"
            case "unequal":
                return f"{one}.k <> {two}.n"
            case "filter":
                return f"{one}.n >= {self.low}"
            case "near":
                low, high = (f"INTERVAL {abs(end)} MICROSECONDS" for end in (self.low, self.high))
                return f"{two}.t >= {one}.t - {low} AND {two}.t <= {one}.t + {high}"
            case "after":
                return f"{two}.t >= {one}.t - INTERVAL {abs(self.low)} MICROSECONDS"
        raise ValueError(self.kind)

    @property
    def window(self) -> bool:
        """Whether it compares event times."""
        return self.kind in ("near", "after")

    def holds(self, members: Members) -> bool:
        """Whether it is TRUE; NULL is not."""
        one, two = members[self.streams[0]], members[self.streams[-1]]
        match self.kind:
            case "equal":
                return one.k is not None and one.k == two.k
            case "unequal":
                return one.k is not None and two.n is not None and one.k != two.n
            case "filter":
                return one.n is not None and one.n >= self.low
            case "band":
                return one.n is not None and two.n is not None and abs(one.n - two.n) <= self.high
            case "less":
                return one.n is not None and two.n is not None and one.n < two.n
        if one.t is None or two.t is None:
            return False
        above = two.t - one.t >= self.low
        return above and (self.kind == "after" or two.t - one.t <= self.high)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of the streams."""

    kind: str
    """rows, select, distinct, window or running."""
    conditions: tuple[Condition, ...]
    within: tuple[int, int] | None = None
    """Before and after, in microseconds; they are the same for more than two streams."""
    time: tuple[str, ...]
    """The streams that have an event time."""
    delays: tuple[int | None, ...]
    """Of each stream its own watermark's; None takes the delay of the join."""
    delay: int | None = None
    mode: str = "append"
    windows: tuple[int, int, int] = (0, 0, 0)
    """Length, slide and start of time windows."""
    policy: str = "min"
    """How Spark makes one watermark of those of the streams."""
    partitions: int = 1
    """Into how many the units are divided."""

    @property
    def predicate(self) -> str:
        """The conditions as text."""
        return " AND ".join(one.sql for one in self.conditions) or "TRUE"

    @property
    def windowed(self) -> bool:
        """Whether time limits anything, so that there is a watermark."""
        return self.within is not None or any(one.window for one in self.conditions)

    def sql(self, names: Sequence[str]) -> str:
        """The query, for all kinds but `rows`."""
        first, last = names[0], names[-1]
        within = ""
        if self.within is not None:
            before, after = (f"{length} microseconds" for length in self.within)
            within = f" WITHIN {before}"
            if before != after:
                within = f" WITHIN {before} PRECEDING AND {after} FOLLOWING"
        tail = f" FROM {', '.join(names)} WHERE {self.predicate}{within}"
        measures = f"count(*) AS c, sum({last}.n) AS total, min({last}.id) AS least"
        match self.kind:
            case "select":
                return f"SELECT {', '.join(f'{name}.id AS {name}_id' for name in names)}{tail}"
            case "distinct":
                return f"SELECT DISTINCT {first}.k AS k, {last}.n AS n{tail}"
            case "running":
                return f"SELECT {first}.k AS k, {measures}{tail} GROUP BY {first}.k"
        size, slide, start = (f"'{length} microseconds'" for length in self.windows)
        return (
            f"SELECT unix_micros(window.start) AS since, {first}.k AS k, {measures}{tail}"
            f" GROUP BY window(time, {size}, {slide}, {start}), {first}.k"
        )


@dataclass(frozen=True)
class Run:
    """What one start of the query finds: new files of each stream, and the options it is given."""

    files: Mapping[str, tuple[tuple[Row, ...], ...]]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class History:
    """All that happens to a query."""

    question: Question
    runs: tuple[Run, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The streams."""
        return tuple(self.runs[0].files)

    def files(self, name: str) -> list[tuple[Row, ...]]:
        """All files of a stream, in the order in which Spark takes them."""
        return [rows for run in self.runs for rows in run.files[name]]

    def rows(self) -> Iterator[Row]:
        """All rows of all streams."""
        for name in self.names:
            for rows in self.files(name):
                yield from rows

    def to_case(self) -> dict[str, Any]:
        """The history as JSON takes it."""
        return {
            "fuzzer": "histories",
            "question": dataclasses.asdict(self.question),
            "runs": [{"files": dict(run.files), "options": dict(run.options)} for run in self.runs],
        }

    @classmethod
    def from_case(cls, case: Mapping[str, Any]) -> History:
        """The history that `to_case` made, also after it was written as JSON."""
        raw = dict(case["question"])
        for name in ("time", "delays", "windows"):
            raw[name] = tuple(raw[name])
        raw["within"] = None if raw["within"] is None else tuple(raw["within"])
        raw["conditions"] = tuple(
            Condition(kind, tuple(streams), low, high)
            for kind, streams, low, high in raw["conditions"]
        )
        return cls(
            Question(**raw),
            tuple(
                Run(
                    {
                        name: tuple(tuple(Row(*row) for row in rows) for rows in files)
                        for name, files in run["files"].items()
                    },
                    {
                        name: tuple(value) if isinstance(value, list) else value
                        for name, value in run["options"].items()
                    },
                )
                for run in case["runs"]
            ),
        )
