"""A handle on the routing tables of a query that runs anywhere: it only reads and asks.

The query's own process carries out what is asked for, when its next batches are committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import monotonic, sleep, time
from typing import Any, SupportsIndex, overload

from thetastream.api import control_text, hot_text
from thetastream.api.keys import hot_key, key_code
from thetastream.errors import (
    ControlError,
    ControlTimeoutError,
    RequestError,
    ThetastreamError,
)
from thetastream.planner import Plan
from thetastream.spec import JoinTree
from thetastream.steering.directory import Answer, Directory, live_fingerprint
from thetastream.steering.edits import edit_from_json
from thetastream.steering.files import full_path
from thetastream.steering.frequent import split_keys, worst_balance
from thetastream.steering.policy import SplitKey, holdings_of
from thetastream.steering.steps import leaving_units
from thetastream.steering.version import Version
from thetastream.topology.live import Step

POLL_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class StreamPlaces:
    """Where the tuples of one stream are stored.

    >>> places = ts.control(control_path).status().streams[0]
    >>> places.stream, places.units, sum(places.groups.values())
    ('orders', (0, 1), 5040)
    """

    stream: str
    join: int
    units: tuple[int, ...]
    groups: dict[int, int]
    """How many groups each of its units holds; a group with several holders counts for each."""


@dataclass(frozen=True, kw_only=True)
class UnitDraining:
    """A unit that still has tuples which would now be stored elsewhere.

    >>> ts.UnitDraining(join=0, stage=0, unit=3, rows=1200).rows
    1200
    """

    join: int
    stage: int
    unit: int
    rows: int | None
    """None until it has reported."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The load of the units in one batch; a status has those of the last batches.

    >>> for sample in ts.control(control_path).status().samples[:1]:
    ...     print(sample.batch, sample.rows_in, sample.units, sample.stored_rows)
    0 6 2 6
    """

    batch: int
    at: float
    """When the batch was committed, in seconds since 1970."""
    rows_in: int
    seconds: float
    version: int
    units: int
    busy: float
    """Seconds of CPU time of all units together."""
    stored_rows: int
    stored_bytes: int
    loads: dict[int, int]
    """Stored bytes of each unit."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Status:
    """The state of a query's routing; printed as text, shown as tables by a notebook.

    >>> status = ts.control(control_path).status()
    >>> status.version, status.step, status.max_units
    (0, 'settled', 2)
    >>> print(status)  # doctest: +ELLIPSIS
    Routing tables: version 0, settled
    ...
    Units, and how many groups each of them holds
      stream  unit  groups
      orders     0   2,520  ████████████████████
                 1   2,520  ████████████████████
    ...
    """

    path: str
    version: int
    step: str
    """`settled`, or how far the change under way has come."""
    change: int
    by: str
    why: str
    max_units: int
    streams: tuple[StreamPlaces, ...]
    draining: tuple[UnitDraining, ...]
    waiting: int
    """Requests that were not looked at yet."""
    batch: int | None
    """The last batch that was heard of."""
    at: datetime | None
    """When that batch was committed."""
    confirmed: bool
    """Whether every router of that batch used this version."""
    problem: str
    """What keeps the query's process from publishing; empty if nothing does."""
    samples: tuple[Sample, ...]
    """The last batches, oldest first."""
    hot: tuple[SplitKey, ...] = ()
    """The keys that are split, or were so and are not drained yet."""
    balance: tuple[float, float] | None = None
    """How many times its share of the visiting rows the busiest unit had in the last batch, with
    hot keys and as it would have been without; the worst join of several. None without such keys
    or reports."""

    @property
    def settled(self) -> bool:
        """Whether no change is under way and none is waiting."""
        return self.step == Step.SETTLED.value and not self.waiting

    @property
    def rest(self) -> str:
        """What a change that is under way waits for, in words."""
        return control_text.rest(self)

    def plot(self) -> Any:
        """Stored bytes, units and groups as a figure of matplotlib, which must be installed.

        >>> ts.control(control_path).status().plot().savefig(folder / "status.svg")
        """
        return _charts().status_chart(self)

    def __str__(self) -> str:
        return control_text.status_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return control_text.status_html(self)


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change, from its announcement to its end.

    >>> first = ts.control(control_path).history()[0]
    >>> first.change, first.by, first.units
    (0, 'join', {'orders': 2, 'rides': 2})
    """

    change: int
    by: str
    """`hand`, or the name of a policy."""
    why: str
    what: str
    """The edit that was asked for, in words."""
    versions: tuple[int, ...]
    begun: datetime
    ended: datetime | None
    """None while it is under way."""
    drained: float | None
    """Seconds from the switch until nothing was left in the old places."""
    units: dict[str, int]
    """How many units each stream had after it."""

    @property
    def seconds(self) -> float | None:
        """How long it took from its announcement to its end; None while it is under way."""
        return None if self.ended is None else (self.ended - self.begun).total_seconds()

    def __str__(self) -> str:
        return str(History([self]))


class History(list[Change]):
    """Changes of a query's routing tables, oldest first: a list that is printed as a table.

    >>> history = ts.control(control_path).history()
    >>> isinstance(history, list), len(history)
    (True, 1)
    >>> print(history)  # doctest: +ELLIPSIS
      change  begun (UTC) ...  units afterwards
           0 ... orders 2, rides 2
    """

    def plot(self) -> Any:
        """The units of each stream over time, as a figure of matplotlib, which must be installed.

        >>> ts.control(control_path).history().plot().savefig(folder / "history.svg")
        """
        return _charts().history_chart(self)

    def __str__(self) -> str:
        return control_text.history_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return control_text.history_html(self)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Change: ...
    @overload
    def __getitem__(self, index: slice) -> History: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Change | History:
        if isinstance(index, slice):
            return History(super().__getitem__(index))
        return super().__getitem__(index)


class Control:
    """The routing tables of a query, by their control directory.

    >>> control = ts.control(control_path)
    >>> control.status().step
    'settled'
    """

    def __init__(self, path: str) -> None:
        self._directory = Directory(full_path(path))
        self._directory.require()

    @property
    def path(self) -> str:
        """The control directory, without a password that its URI may have."""
        return self._directory.name

    def status(self) -> Status:
        """Version, units, groups, and how far a change has drained."""
        directory = self._directory
        join = directory.require()
        tree, version = join.tree, directory.tables(join.control).current()
        told, problem = _reported(directory)
        at = told.get("at")
        return Status(
            path=directory.name,
            version=version.version,
            step=version.step.value,
            change=version.note.change,
            by=version.note.by,
            why=version.note.why,
            max_units=directory.max_units(join),
            streams=tuple(_places(version, tree)),
            draining=tuple(_draining(version, tree, told)),
            waiting=len(directory.files.names("requests")),
            batch=told.get("batch"),
            at=None if at is None else _instant(at),
            confirmed=told.get("confirmed", -1) >= version.version,
            problem=problem,
            samples=tuple(map(_sample, told.get("samples", []))),
            hot=split_keys(version),
            balance=worst_balance(told.get("hot", [])) if split_keys(version) else None,
        )

    def scale(
        self,
        units: int | dict[str, int],
        *,
        subgroup: int | None = None,
        drain: str = "auto",
        why: str = "",
        wait: float | None = 60.0,
    ) -> int:
        """Ask for so many units, for all streams or for some by their names.

        Returns the number of the change that has begun; 0 if there is nothing to change. `subgroup`
        scales only one of ContRand's subgroups. `drain` says what becomes of stored tuples whose
        place changes: "expire" leaves them until the window has passed, "move" carries them over,
        and "auto" carries them over only where they would never expire. `wait` is how many seconds
        to wait for the query's answer; with None the method returns 0 at once.
        """
        raw = {"kind": "scale", "units": units, "subgroup": subgroup, "drain": drain}
        return self._ask(raw, why, wait)

    def move(
        self,
        groups: int | Iterable[int],
        to: int,
        *,
        stream: str | None = None,
        drain: str = "auto",
        why: str = "",
        wait: float | None = 60.0,
    ) -> int:
        """Ask for groups to be held by another unit, those of all streams or of one.

        Returns the number of the change; the other arguments are those of `scale`.
        """
        listed = [groups] if isinstance(groups, int) else list(groups)
        raw = {"kind": "move", "groups": listed, "to": to, "stream": stream, "drain": drain}
        return self._ask(raw, why, wait)

    def heat(
        self,
        key: Any,
        *,
        stream: str,
        units: int = 2,
        join: int = 0,
        wait: float | None = 60.0,
    ) -> None:
        """Ask for a key to be split over so many units, in the stream in which it is frequent.

        `key` is a value of the key that the predicate compares, or text that says it; where that is
        a hash, of a text or of several columns, its code. Of a stream-aware join, a value that is
        to be stored in the units for hot ones. `join` counts the joins of a tree from 0; `wait` is
        that of `scale`. With `hot_keys="auto"` the join goes on to decide by itself, and a key that
        is not frequent cools again.
        """
        code = key_code(self._directory.require().tree, key, stream, join)
        wish = {"stream": stream, "key": code, "units": units, "join": join, "shown": str(key)}
        self._ask({"kind": "heat", "keys": [wish], "cool": []}, "", wait)

    def cool(self, key: Any, *, join: int | None = None, wait: float | None = 60.0) -> None:
        """Ask for a hot key to be like any other again: the value that `status` shows, or its code.

        `join` says which one is meant, where keys of several joins have that name.
        """
        found = hot_key(self.status().hot, key, join)
        self._ask({"kind": "heat", "keys": [], "cool": [[found.join, found.key]]}, "", wait)

    def wait(self, timeout: float = 600.0) -> Status:
        """Wait until no change is under way and none is waiting; the status after that."""
        end = monotonic() + timeout
        while not (status := self.status()).settled:
            if monotonic() > end:
                raise ControlTimeoutError(
                    f"change {status.change} is not done after {timeout:g} s: it is in step"
                    f" {status.step!r}",
                    detail=f"  {status.rest}",
                    hint="a change goes on with each batch, and drains as the window passes; wait"
                    " longer, or check whether the query is still running",
                )
            sleep(POLL_SECONDS)
        return status

    def history(self) -> History:
        """Every change: who asked for it and why, when, and how long it took to drain."""
        found: dict[int, list[Version]] = {}
        join = self._directory.require()
        for version in self._directory.tables(join.control).history():
            found.setdefault(version.note.change, []).append(version)
        return History(_change(some, join.tree) for some in found.values())

    def _ask(self, raw: dict[str, Any], why: str, wait: float | None) -> int:
        try:
            edit = edit_from_json(raw)
        except ControlError as error:
            raise _refused(error) from None
        request = self._directory.ask(edit, by="hand", why=why or str(edit), at=time())
        if wait is None:
            return 0
        end = monotonic() + wait
        while (answer := self._directory.answered(request)) is None:
            if monotonic() > end:
                raise ControlTimeoutError(
                    f"the query has not answered within {wait:g} s",
                    detail=f"  {self.status().rest}",
                    hint="requests are looked at when a batch is committed and no other change is"
                    " under way; this one stays in the directory until then",
                )
            sleep(POLL_SECONDS)
        return _accepted(answer)


def control(path: str) -> Control:
    """A handle on the routing tables of the query that was started with that control directory.

    >>> ts.control(control_path).status().version
    0
    """
    return Control(path)


def running_plan(plan: Plan, path: str | None) -> Plan:
    """The plan with the keys that were hot in its query's last batch, if that control directory
    belongs to it."""
    if path is None:
        return plan
    try:
        directory = Directory(full_path(path))
        known = directory.belongs()
        if known is None or known.fingerprint != live_fingerprint(plan.tree):
            return plan
        status = Control(path).status()
    except (ThetastreamError, OSError, ValueError, RuntimeError, LookupError, TypeError):
        # A plan can be explained wherever its query will run, whatever is there.
        return plan
    found = hot_text.decisions(status.hot, status.balance, status.batch)
    return replace(plan, decisions=(*plan.decisions, *found))


def _reported(directory: Directory) -> tuple[dict[str, Any], str]:
    """Return the last status of the units, and what is in the way, in words."""
    try:
        status = directory.status()
        problem = str(status.get("problem", ""))
    except ControlError as error:
        status, problem = {}, f"{error.what}: {error.detail.strip()}"
    aside = directory.aside()
    if aside and not problem:
        problem = f"damaged files were put aside: {', '.join(aside)[:500]}"
    return status, problem


def _accepted(answer: Answer) -> int:
    if answer.state == "refused":
        raise RequestError(answer.what, hint=answer.hint)
    return answer.change


def _refused(error: ControlError) -> RequestError:
    return RequestError(error.what, detail=error.detail, hint=error.hint)


def _charts() -> Any:
    # Imported on first use: it needs matplotlib, which the joins themselves do not.
    from thetastream.api import control_charts

    return control_charts


def _places(version: Version, tree: JoinTree) -> Iterator[StreamPlaces]:
    for holding in holdings_of(version, tree):
        spec = tree.steps[holding.join].spec
        names = [spec.streams[store.stream].name for store in spec.stages[holding.stage].stores]
        stage = version.joins[holding.join].stages[holding.stage]
        placement = stage[names.index(holding.stream)]
        counted: Counter[int] = Counter()
        for line, groups in Counter(placement.assigned).items():
            counted.update(dict.fromkeys(placement.lines[line], groups))
        yield StreamPlaces(
            stream=holding.stream,
            join=holding.join,
            units=holding.units,
            groups=dict(sorted(counted.items())),
        )


def _draining(version: Version, tree: JoinTree, told: dict[str, Any]) -> Iterator[UnitDraining]:
    rows = {tuple(one[:3]): int(one[3]) for one in told.get("draining", [])}
    for place in sorted(leaving_units(version, tree)):
        join, stage, unit = place
        yield UnitDraining(join=join, stage=stage, unit=unit, rows=rows.get(place))


def _sample(raw: dict[str, Any]) -> Sample:
    loads: Counter[int] = Counter()
    for _, _, unit, _, _, size in raw["units"]:
        loads[unit] += size
    return Sample(
        batch=raw["batch"],
        at=raw["at"],
        rows_in=raw["rows_in"],
        seconds=raw["seconds"],
        version=raw["version"],
        units=len(loads),
        busy=sum(one[3] for one in raw["units"]),
        stored_rows=sum(one[4] for one in raw["units"]),
        stored_bytes=sum(one[5] for one in raw["units"]),
        loads=dict(loads),
    )


def _change(versions: Sequence[Version], tree: JoinTree) -> Change:
    first, last = versions[0], versions[-1]
    times: dict[Step, float] = {}
    for version in versions:
        # Hot keys change in between: what counts is when a step began.
        times.setdefault(version.step, version.at)
    drained = None
    if Step.SWITCH in times and Step.FORGET in times:
        drained = times[Step.FORGET] - times[Step.SWITCH]
    what = first.note.what
    return Change(
        change=first.note.change,
        by=first.note.by,
        why=first.note.why,
        what=str(edit_from_json(what)) if what else "",
        versions=tuple(version.version for version in versions),
        begun=_instant(first.at),
        ended=_instant(times[Step.SETTLED]) if last.step is Step.SETTLED else None,
        drained=drained,
        units={one.stream: len(one.units) for one in holdings_of(last, tree)},
    )


def _instant(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
