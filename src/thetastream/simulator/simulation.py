"""A join on a simulated cluster, from the arrival of the tuples to the trace of what happened."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from thetastream.engine.runner import Runner
from thetastream.errors import OptionError
from thetastream.options import JoinOptions
from thetastream.planner import (
    Parallelism,
    Plan,
    parse_query,
    plan_join,
    plan_query,
)
from thetastream.simulator.cluster import Cluster
from thetastream.simulator.sources import TIME, Source, named_sources
from thetastream.simulator.trace import Trace
from thetastream.simulator.units import TimedRunner
from thetastream.spec.tree import Step
from thetastream.steering.policy import Policy
from thetastream.testing.duck import DuckAnalyst, column_specs
from thetastream.testing.inprocess import Batch, InProcess
from thetastream.testing.steered import BEGIN, Steering
from thetastream.topology.makers import make
from thetastream.topology.table import Table
from thetastream.workloads import SECOND, START

TUPLE_BYTES: Final = 160
"""What a live tuple takes in this process beside its columns, about: it is there as stored bytes
and once more while it is read."""


class _Timed(InProcess):
    """A plan whose joins run on a virtual clock."""

    def __init__(self, plan: Plan, cluster: Cluster, trace: Trace, *, separate: bool) -> None:
        self._cluster = cluster
        self._separate = separate
        self._trace = trace
        self._now = (0, 0.0, 0.0)
        super().__init__(plan)

    def new_runner(self, step: Step) -> Runner:
        """What carries out one join of the plan."""
        number = self.plan.tree.steps.index(step)
        table = make(step.spec, step.routing)
        if self._separate and not step.routing.routing.shares_units:
            table = separate(table)
        return TimedRunner(
            step.spec, table, number=number, cluster=self._cluster, trace=self._trace
        )

    def at(self, tick: int, opened: float, closed: float) -> None:
        """The batch that comes next."""
        self._now = tick, opened, closed

    def joined(
        self, number: int, tables: list[pa.Table], watermark: int | None, pieces: int
    ) -> pa.Table:
        """The results of one join of the plan."""
        tick, opened, closed = self._now
        ready = closed
        if number:
            before = self.runners[number - 1]
            assert isinstance(before, TimedRunner)
            ready = before.finished + self._cluster.network.latency
            if self._cluster.signalled:
                # The router of the next join sends its signals in the same rhythm.
                ready = math.ceil(ready / self._cluster.epoch - 1e-9) * self._cluster.epoch
        runner = self.runners[number]
        assert isinstance(runner, TimedRunner)
        runner.begin(tick, opened, closed, max(ready, closed))
        return super().joined(number, tables, watermark, pieces)


def separate(table: Table) -> Table:
    """The table with units of their own for each store: BiStream's m + n units."""
    stages = []
    for placements in table.stages:
        first, found = 0, []
        for placement in placements:
            lines = tuple(tuple(unit + first for unit in line) for line in placement.lines)
            found.append(replace(placement, lines=lines))
            first += 1 + max(placement.holders.everywhere)
        stages.append(tuple(found))
    return replace(table, stages=tuple(stages))


class Simulation:
    """A join of streams on a cluster that does not exist.

    >>> from thetastream.simulator import Cluster, Generated, Simulation, Uniform
    >>> stream = Generated(rate=200, columns={"k": Uniform(100)})
    >>> simulation = Simulation(
    ...     {"orders": stream, "rides": stream},
    ...     "orders.k = rides.k",
    ...     within="5 seconds",
    ...     options=ts.JoinOptions(topology="hash", units=4),
    ...     cluster=Cluster(epoch=0.5),
    ...     seed=1,
    ... )
    >>> trace = simulation.run(10.0)
    >>> 0.25 < trace.delay(after=5.0) < 0.3
    True
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        predicate: str | None = None,
        *,
        query: str | None = None,
        within: str | tuple[str, str] | None = None,
        options: JoinOptions | None = None,
        cluster: Cluster | None = None,
        policies: Sequence[Policy] = (),
        max_units: int | None = None,
        separate: bool = False,
        seed: int = 0,
    ) -> None:
        """Streams are joined on a predicate, or by a query in SQL that says it all.

        `policies` steer it, with `max_units` units at most. `separate` gives each stream units of
        its own; else a unit holds tuples of all of them.
        """
        self._separate = separate
        names = named_sources(sources)
        self._sources = dict(sources)
        self._cluster = cluster or Cluster()
        self._seed = seed
        self._policies = list(policies)
        chosen = options or JoinOptions()
        schemas = {name: source.schema for name, source in sources.items()}
        if (predicate is None) == (query is None):
            raise OptionError("a simulation has either a predicate or a query")
        if self._policies and self._cluster.network.slots > 1:
            raise OptionError(
                "policies are not simulated with sub-groups that are served one after the other",
                hint="leave out slots, or the policies",
            )
        if separate and (self._policies or max_units is not None):
            raise OptionError("policies are not simulated with units that hold one stream only")
        many = Parallelism(tasks=1024, partitions=1024)
        if predicate is not None:
            self.plan = plan_join(
                streams={name: column_specs(schemas[name]) for name in names},
                predicate=predicate,
                within=within,
                time=dict.fromkeys(names, TIME),
                options=chosen,
                analyst=DuckAnalyst(schemas, parallelism=many),
                fixed_zone=True,
            )
        else:
            assert query is not None
            columns = {name: column_specs(schema) for name, schema in schemas.items()}
            read = parse_query(query, columns, case_sensitive=False)
            aliases = {one.alias: one.stream for one in read.relations}
            self._sources = {alias: sources[stream] for alias, stream in aliases.items()}
            analyst = DuckAnalyst(
                {alias: schemas[stream] for alias, stream in aliases.items()}, parallelism=many
            )
            self.plan = plan_query(
                read,
                time=dict.fromkeys(aliases, TIME),
                options=chosen,
                analyst=analyst,
                fixed_zone=True,
            ).join
        self._max_units = max_units
        self.steering: Steering | None = None
        """What steers the last run, if there are policies."""

    def needs(self, seconds: float) -> int:
        """Bytes of memory that a run of that length takes at most, about."""
        span = self.plan.tree.span
        live = seconds if span is None else min(seconds, span / SECOND + 2 * self._cluster.epoch)
        total = 0.0
        for source in self._sources.values():
            one = source.between(0.0, 1e-9, np.random.default_rng(0)).schema
            width = sum(_width(field.type) for field in one) + getattr(source, "payload", 0)
            total += source.most(live) * (2 * width + TUPLE_BYTES)
        routing = self.plan.tree.steps[0].routing
        if routing.routing.copies:
            total *= max(routing.units)
        return int(total)

    def run(
        self,
        seconds: float,
        *,
        keep: Callable[[pa.Table], None] | None = None,
        stop: Callable[[Trace], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> Trace:
        """Let so many seconds pass. The same seed gives the same tuples and, with CPU time that is
        counted, the same trace.

        `keep` is given the results of each batch. `stop` may end it early. `progress` is told how
        much of it is done.
        """
        if not 0 < seconds < math.inf:
            raise OptionError(f"{seconds!r} is not a number of seconds")
        self._check_memory(seconds)
        cluster = self._cluster
        trace = Trace(epoch=cluster.epoch, seconds=0.0)
        running = _Timed(self.plan, cluster, trace, separate=self._separate)
        steering = self.steering = self._steering(running)
        ticks = max(1, round(seconds / cluster.tick))
        for tick in range(ticks):
            opened, closed = tick * cluster.tick, (tick + 1) * cluster.tick
            batch = self._batch(tick, opened, closed)
            running.at(tick, opened, closed)
            trace.arrived.append((closed, sum(table.num_rows for table in batch.tables)))
            trace.seconds = closed
            if steering is None:
                found = running.results(batch)
            else:
                found = steering.batch(batch, pieces=1)
            trace.units.append((closed, _active(running)))
            for runner in running.runners:
                runner.reports.clear()
            if keep is not None:
                keep(found)
            if progress is not None:
                progress((tick + 1) / ticks)
            if stop is not None and stop(trace):
                break
        if steering is not None:
            trace.decisions = self._decisions(steering)
        return trace

    def _decisions(self, steering: Steering) -> list[str]:
        """What the policies said, in the order of time."""
        said = [
            (verdict.at, f"{verdict.at - BEGIN:,.0f} s, {policy.name}: {verdict.why}")
            for policy in self._policies
            for verdict in steering.loop.decisions(policy)
        ]
        return [text for _, text in sorted(said)]

    def _batch(self, tick: int, opened: float, closed: float) -> Batch:
        tables = [
            source.between(opened, closed, np.random.default_rng((self._seed, tick, number)))
            for number, source in enumerate(self._sources.values())
        ]
        # What waits for a later slot must not be late when it comes.
        waits = self._cluster.epoch if self._cluster.network.slots > 1 else 0.0
        return Batch(*tables, watermark=START + math.floor(max(0.0, opened - waits) * SECOND))

    def _steering(self, running: InProcess) -> Steering | None:
        if not self._policies and self._max_units is None:
            return None
        units = max(max(step.routing.units) for step in self.plan.tree.steps)
        found = Steering(
            running, max_units=self._max_units or 4 * units, seconds=self._cluster.epoch
        )
        found.manage(*self._policies)
        return found

    def _check_memory(self, seconds: float) -> None:
        needed, there = self.needs(seconds), _available()
        if there is not None and needed > there:
            raise OptionError(
                f"the tuples of this simulation take about {needed / 2**30:.1f} GiB; this machine"
                f" has {there / 2**30:.1f} GiB to spare",
                hint="take a shorter window, lower rates, or a smaller scale of all of them",
            )


def _available() -> int | None:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # pragma: no cover
        return None


def _width(kind: pa.DataType) -> float:
    try:
        return float(kind.bit_width) / 8
    except ValueError:
        return 16.0


def _active(running: InProcess) -> int:
    """How many units hold tuples."""
    return sum(
        len({u for placement in placements for u in placement.holders.everywhere})
        for runner in running.runners
        for placements in runner.tables[-1].stages
    )
