"""What a history must give, by definition: Spark's watermark, the late rows, and the results.

The model knows nothing of units, indexes and expiry. A result is made of rows that were on time
when they came, and comes out in the batch of the last of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.history import History, Members, Question, Row

MILLISECOND = 1000
Passes = Callable[[str, Row, bool], bool]
"""Whether a row of a stream passes its filters before it travels; last, whether its event time
may be NULL, which Spark checks after it has seen the row for the watermark."""


@dataclass
class Watermark:
    """Spark's watermark in milliseconds."""

    policy: str
    delays: Mapping[str, int]
    """In microseconds, of the streams that have a watermark."""
    now: int = 0
    _newest: dict[str, int] = field(default_factory=dict)

    def restart(self) -> None:
        """The query keeps its watermark, and forgets what it had seen of each stream."""
        self._newest.clear()

    def see(self, stream: str, times: Sequence[int | None]) -> None:
        """A batch has brought those times of a stream; NULL counts as 1970."""
        if stream in self.delays and times:
            newest = max(time or 0 for time in times) // MILLISECOND
            mark = newest - self.delays[stream] // MILLISECOND
            self._newest[stream] = max(mark, self._newest.get(stream, mark))

    def move(self) -> None:
        """The batch is over: of a stream that brought nothing yet 1970 is assumed."""
        if self.delays:
            marks = [self._newest.get(stream, 0) for stream in self.delays]
            self.now = max(self.now, (min if self.policy == "min" else max)(marks))


Arrived = Mapping[str, Sequence[Row]]
"""The rows that a batch brought of each stream."""


@dataclass
class Expected:
    """What a batch must give."""

    rows: Counter[tuple[Any, ...]]
    late: int


class Model:
    """Takes the batches of a history one after the other."""

    def __init__(self, history: History, passes: Passes) -> None:
        self.question = history.question
        self.names = history.names
        self.passes = passes
        question = self.question
        delays = {
            name: question.delay if own is None else own
            for name, own in zip(self.names, question.delays, strict=True)
            if name in question.time and question.windowed
        }
        self.watermark = Watermark(
            question.policy, {name: delay or 0 for name, delay in delays.items()}
        )
        self._stored: dict[str, list[Row]] = {name: [] for name in self.names}
        self._found: list[Members] = []
        self._sent: set[tuple[Any, ...]] = set()

    def batch(self, arrived: Arrived) -> Expected:
        """Of a batch with those rows, under the watermark as it stands."""
        late = 0
        fresh: dict[str, list[Row]] = {}
        for name in self.names:
            rows = [row for row in arrived.get(name, ()) if self.passes(name, row, False)]
            kept = [row for row in rows if not self._late(name, row)]
            late += len(rows) - len(kept)
            fresh[name] = kept
        new = list(self._results(fresh))
        for name, rows in fresh.items():
            self._stored[name] += rows
        self._found += new
        mark = self.watermark.now
        for name in self.names:
            seen = [row.t for row in arrived.get(name, ()) if self.passes(name, row, True)]
            self.watermark.see(name, seen)
        self.watermark.move()
        return Expected(self._shown(new, mark), late)

    def _late(self, name: str, row: Row) -> bool:
        if name not in self.watermark.delays:
            return False
        mark = self.watermark.now
        # A join does not count the watermark that Spark starts with.
        if mark <= 0 and self.question.kind not in ("distinct", "window"):
            return False
        assert row.t is not None
        return row.t < mark * MILLISECOND

    # -- results --------------------------------------------------------------------------------

    def _results(self, fresh: Mapping[str, Sequence[Row]]) -> Iterator[Members]:
        """The results with at least one new row."""
        for newest in range(len(self.names)):
            # Those whose first new row is of this stream: the streams before it give old ones.
            pools = [
                self._stored[name]
                if place < newest
                else fresh[name]
                if place == newest
                else [*self._stored[name], *fresh[name]]
                for place, name in enumerate(self.names)
            ]
            yield from self._matching({}, pools)

    def _matching(
        self, members: dict[str, Row], pools: Sequence[Sequence[Row]]
    ) -> Iterator[Members]:
        if len(members) == len(self.names):
            yield dict(members)
            return
        name = self.names[len(members)]
        for row in pools[len(members)]:
            more = {**members, name: row}
            if self._possible(more, name):
                yield from self._matching(more, pools)

    def _possible(self, members: dict[str, Row], newest: str) -> bool:
        question = self.question
        if question.windowed and newest in question.time and members[newest].t is None:
            return False
        for condition in question.conditions:
            used = set(condition.streams)
            if newest in used and used <= members.keys() and not condition.holds(members):
                return False
        if question.within is not None:
            times = [row.t for row in members.values() if row.t is not None]
            before, after = question.within
            if before == after:
                return max(times) - min(times) <= after
            return len(times) < 2 or -before <= times[1] - times[0] <= after
        return True

    # -- what comes out -------------------------------------------------------------------------

    def _shown(self, new: Sequence[Members], mark: int) -> Counter[tuple[Any, ...]]:
        question = self.question
        first, last = self.names[0], self.names[-1]
        match question.kind:
            case "rows" | "select":
                return Counter(tuple(one[name].id for name in self.names) for one in new)
            case "distinct":
                return self._distinct(new)
            case "running":
                touched = {(one[first].k,) for one in new}
                found = self._aggregates(lambda one: [(one[first].k,)], last)
                return Counter(found[key] for key in touched)
        size = question.windows[0]
        found = self._aggregates(self._windows, last)
        if question.mode == "update":
            touched_windows = {key for one in new for key in self._windows(one)}
            return Counter(found[key] for key in touched_windows)
        over = {key for key in found if key[0] + size <= mark * MILLISECOND} - self._sent
        self._sent |= over
        return Counter(found[key] for key in over)

    def _distinct(self, new: Sequence[Members]) -> Counter[tuple[Any, ...]]:
        within = self.question.within
        assert within is not None
        length = -(-max(1, *within) // MILLISECOND) * MILLISECOND
        shown: Counter[tuple[Any, ...]] = Counter()
        for one in new:
            row = (one[self.names[0]].k, one[self.names[-1]].n)
            key = (*row, _newest(one) // length)
            if key not in self._sent:
                self._sent.add(key)
                shown[row] += 1
        return shown

    def _windows(self, one: Members) -> list[tuple[Any, ...]]:
        size, slide, start = self.question.windows
        time = _newest(one)
        begin = (time - start) // slide * slide + start
        found = []
        while begin + size > time:
            found.append((begin, one[self.names[0]].k))
            begin -= slide
        return found

    def _aggregates(
        self, keys: Callable[[Members], list[tuple[Any, ...]]], last: str
    ) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for one in self._found:
            for key in keys(one):
                groups.setdefault(key, []).append(one[last])
        return {key: (*key, *_measured(rows)) for key, rows in groups.items()}

    def latest(self) -> Counter[tuple[Any, ...]]:
        """The running aggregates over everything so far."""
        first, last = self.names[0], self.names[-1]
        return Counter(self._aggregates(lambda one: [(one[first].k,)], last).values())


def _measured(rows: Sequence[Row]) -> tuple[Any, ...]:
    values = [row.n for row in rows if row.n is not None]
    return len(rows), sum(values) if values else None, min(row.id for row in rows)


def _newest(one: Members) -> int:
    return max(row.t for row in one.values() if row.t is not None)


def span(question: Question) -> int:
    """The longest of its window's two sides."""
    return 0 if question.within is None else max(question.within)
