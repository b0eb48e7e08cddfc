"""What a policy is: a function of the units' reports and the table, which may ask for an edit.

It has no effects and no memory of its own. What it decided before is handed in, so that a decision
can be repeated from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from thetastream.spec import JoinTree, Routing
from thetastream.steering.edits import Edit
from thetastream.steering.version import Version, ranges_of
from thetastream.topology.hotvalues import units_for_values
from thetastream.topology.table import Placement

SHORTEST = 1e-3
"""Seconds that a unit had at least, whatever clocks say."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """One unit in one batch, as a policy sees it.

    >>> ts.Load(join=0, stage=0, unit=3, busy=0.5, stored_bytes=900_000).unit
    3
    """

    join: int
    stage: int
    unit: int
    rows_in: int = 0
    results: int = 0
    busy: float = 0.0
    """Seconds of CPU time for its own work."""
    stored_rows: int = 0
    stored_bytes: int = 0
    draining: int = 0
    """Stored rows that would now be stored elsewhere."""
    bytes_of: dict[str, int] = field(default_factory=dict)
    """Stored bytes of each stream."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """One unit over several batches: those since the policy was last asked or the tables changed.

    >>> ts.Usage(join=0, stage=0, unit=3, batches=10, seconds=20.0, busy=5.0).occupancy
    0.25
    """

    join: int
    stage: int
    unit: int
    batches: int
    """Those that it has reported of."""
    seconds: float
    """The time that it had for them."""
    busy: float
    """Seconds of CPU time for its own work."""

    @property
    def occupancy(self) -> float:
        """The share of its time in which it was busy."""
        return self.busy / max(self.seconds, SHORTEST)


@dataclass(frozen=True, kw_only=True)
class Holding:
    """The units that hold the tuples of one stream.

    >>> ts.Holding(stream="orders", join=0, stage=0, units=(0, 1)).units
    (0, 1)
    """

    stream: str
    join: int
    stage: int
    units: tuple[int, ...]
    subgroups: tuple[tuple[int, ...], ...] = ()
    """ContRand's; empty for other topologies."""
    topology: str = "hash"
    runs: tuple[tuple[int, int, int], ...] = ()
    """The first and the last of groups that follow each other, and the unit that holds them, in the
    order of the groups. Empty if a group does not belong to a single unit, or if no visitor knows
    the group that its partners are in: ContRand and random routing."""
    hot_units: tuple[int, ...] = ()
    """Those of the units that are for hot values alone, in a stream-aware join."""


@dataclass(frozen=True, kw_only=True)
class FrequentKey:
    """A key that came often in recent batches, as the units' predictors estimate it.

    >>> ts.FrequentKey(stream="orders", key=7, share=0.25).share
    0.25
    """

    stream: str
    key: int
    """The 64-bit code by which tuples are routed."""
    share: float
    """Its rows in this stream, out of those of both streams of the join."""
    join: int = 0
    shown: str = ""
    """Its value as people read it, if that is known."""


@dataclass(frozen=True, kw_only=True)
class SplitKey:
    """A key that is hot, or was so and is not drained yet.

    >>> ts.SplitKey(stream="orders", key=7, step="hot", units=(0, 1), share=0.25).units
    (0, 1)
    """

    stream: str
    """The stream that is divided among the units; the other one's tuples are copied to them. Of a
    hot value in a stream-aware join, the stream in which it is frequent; nothing is copied."""
    key: int
    step: str
    """`copy`, `take`, `hot`, `cooling` or `drop`."""
    units: tuple[int, ...]
    share: float
    """Its share of the rows when it was last decided about."""
    join: int = 0
    shown: str = ""
    since: float = 0.0
    """Seconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What a policy is asked about: a batch that is committed.

    >>> moment = ts.Moment(at=60.0, batch=7, interval=2.0, loads=(), holdings=(), max_units=8)
    >>> moment.max_units
    8
    """

    at: float
    """Seconds since 1970."""
    batch: int
    interval: float
    """Seconds from the batch before to this one: the time that the units had."""
    loads: tuple[Load, ...]
    holdings: tuple[Holding, ...]
    max_units: int
    usages: tuple[Usage, ...] = ()
    """The units since this policy was last asked, or since the tables last changed."""
    frequent: tuple[FrequentKey, ...] | None = None
    """The frequent keys of all joins; None if some units have not told theirs."""
    split: tuple[SplitKey, ...] = ()
    """The keys that have places of their own."""

    @property
    def units(self) -> int:
        """How many units hold tuples."""
        return len({(one.join, one.stage, unit) for one in self.holdings for unit in one.units})

    def of(self, holding: Holding, units: Iterable[int] | None = None) -> list[Load]:
        """The loads of units of a stream, of some of them or of all."""
        wanted = set(holding.units if units is None else units)
        return [
            load
            for load in self.loads
            if (load.join, load.stage) == (holding.join, holding.stage) and load.unit in wanted
        ]

    def usage(self, join: int, stage: int) -> dict[int, Usage]:
        """The units of a stage that were heard of, over several batches if these are known."""
        known = self.usages or [
            Usage(
                join=load.join,
                stage=load.stage,
                unit=load.unit,
                batches=1,
                seconds=self.interval,
                busy=load.busy,
            )
            for load in self.loads
        ]
        return {one.unit: one for one in known if (one.join, one.stage) == (join, stage)}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a policy made of a moment.

    >>> ts.Verdict(why="the load is 0.5: nothing to do").edit is None
    True
    """

    why: str
    """In words, for the log."""
    edit: Edit | None = None
    leaning: str = ""
    """What it would like to do, to be compared with what it liked before: a policy that waits for
    several equal decisions in a row counts them in the decisions that it made earlier."""
    at: float = 0.0
    """Filled in by whoever asked."""


class Policy(Protocol):
    """Decides whether the routing of a query should change.

    >>> class AtMostFour:
    ...     name = "at most four"
    ...     every = 60.0
    ...
    ...     def decide(self, moment, earlier):
    ...         if moment.units <= 4:
    ...             return ts.Verdict(why=f"{moment.units} units are fine")
    ...         return ts.Verdict(why="that is too many", edit=ts.Scale(units=4))
    >>> moment = ts.Moment(at=0.0, batch=1, interval=1.0, loads=(), holdings=(), max_units=8)
    >>> AtMostFour().decide(moment, []).why
    '0 units are fine'
    """

    name: str
    """Shown in the history of the changes that it asks for."""
    every: float
    """Seconds between two decisions, at least."""

    def decide(self, moment: Moment, earlier: Sequence[Verdict]) -> Verdict:
        """What to do; `earlier`: its decisions since the last change that it asked for itself or
        that changed the number of units, oldest first."""


def holdings_of(version: Version, tree: JoinTree) -> tuple[Holding, ...]:
    """Who holds what."""
    found = []
    for join, (table, step) in enumerate(zip(version.joins, tree.steps, strict=True)):
        for stage, placements in zip(step.spec.stages, table.stages, strict=True):
            for store, placement in zip(stage.stores, placements, strict=True):
                lines = dict.fromkeys(placement.lines[line] for line in placement.assigned)
                contrand = table.made.routing is Routing.CONTRAND
                is_placed = store.group_by.key is not None and placement.holders.is_single
                found.append(
                    Holding(
                        stream=step.spec.streams[store.stream].name,
                        join=join,
                        stage=stage.number,
                        units=placement.holders.everywhere,
                        subgroups=tuple(lines) if contrand else (),
                        topology=table.made.routing.value,
                        runs=_runs(placement) if is_placed and not contrand else (),
                        hot_units=units_for_values(table),
                    )
                )
    return tuple(found)


def _runs(placement: Placement) -> tuple[tuple[int, int, int], ...]:
    return tuple(
        (first, last, placement.lines[line][0])
        for first, last, line in ranges_of(placement.assigned)
    )


def load_of(join: int, report: dict[str, Any]) -> Load:
    """The load in a unit's report."""
    return Load(
        join=join,
        stage=int(report["stage"]),
        unit=int(report["unit"]),
        rows_in=int(report["rows_in"]),
        results=int(report["results"]),
        busy=float(report["busy"]),
        stored_rows=int(report["stored_rows"]),
        stored_bytes=int(report["stored_bytes"]),
        draining=int(report["draining"]),
        bytes_of={str(name): int(size) for name, size in report["kept"]},
    )
