"""Joins and queries in this process, from text to result rows, and scripts that can crash them.

    script = [Batch(r, s), RESTART, Batch(r, s, watermark=...)]
    outcome = run_script("r.k = s.k", script, within="10 seconds", time="t")
    assert multiset(outcome.rows) == multiset(expected_rows("r.k = s.k", script, ...))

A crash is an element of the data, so that a test of recovery is as short as any other. Every unit
checks itself after each of its instructions.
"""

from __future__ import annotations

import enum
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.engine.protocol import Report
from thetastream.engine.runner import Place, Runner, UnitState
from thetastream.options import JoinOptions
from thetastream.planner import Plan, parse_duration, plan_join
from thetastream.spec import JoinSpec, SketchOptions, Stage, Store, result_column
from thetastream.spec.codec import to_json
from thetastream.spec.tree import Step, read_step
from thetastream.testing.duck import DuckAnalyst, DuckJoin, column_specs, query, to_duckdb
from thetastream.topology.makers import make

Within = str | tuple[str, str] | None
Row = tuple[Any, ...]
Time = str | Mapping[str, str | None] | None
"""The event time of all streams, or of those that have one."""
State = list[dict[Place, UnitState]]
"""What is stored for the units of each join."""
NAMES: Final = ("r", "s")
"""The streams' names where a test of two does not choose its own."""


def stream_names(count: int) -> tuple[str, ...]:
    """r, s, t, u, ..."""
    start = string.ascii_lowercase.index("r")
    return tuple(string.ascii_lowercase[start : start + count])


class Sentinel(enum.Enum):
    """What happens between batches."""

    RESTART = "restart"
    CRASH = "crash"


RESTART: Final = Sentinel.RESTART
"""Everything in memory is lost; a new runner goes on from the bytes that were stored."""
CRASH: Final = Sentinel.CRASH
"""The batch that follows is computed, lost with its results and its state, and run again."""


class Batch:
    """What one batch brings of each stream."""

    def __init__(self, *tables: pa.Table, watermark: int | None = None, **named: pa.Table) -> None:
        """`watermark` in microseconds, as it stands when the batch begins; None is Spark's first
        one, 1970. Tables are in the order of the streams; two may be called left and right."""
        self.tables = tables or (named["left"], named["right"])
        self.watermark = watermark


Script = Sequence[Batch | Sentinel]


class InProcess:
    """A plan that takes batches."""

    def __init__(
        self,
        plan: Plan,
        *,
        chunk_rows: int = 1 << 16,
        hashes: int | None = None,
        groups: int | None = None,
    ) -> None:
        """`groups`: so many in each store, instead of the usual thousands, which take their time
        where tables change."""
        self.plan = plan if groups is None else _with_groups(plan, groups)
        self._chunk_rows = chunk_rows
        self._hashes = hashes
        self._sketch: SketchOptions | None = None
        self.runners = self._new_runners()

    def predict(self, sketch: SketchOptions | None) -> None:
        """Let the units look for hot keys from now on, or no longer."""
        self._sketch = sketch
        self.restart()

    @property
    def spec(self) -> JoinSpec:
        """The join whose results are those of the plan."""
        return self.plan.spec

    @property
    def runner(self) -> Runner:
        """The runner of the first join."""
        return self.runners[0]

    @property
    def duck(self) -> DuckJoin:
        """What Spark SQL does around the first join."""
        return DuckJoin(self.plan.tree.steps[0].spec, hashes=self._hashes)

    @property
    def reports(self) -> list[Report]:
        """What the units reported."""
        return [report for runner in self.runners for report in runner.reports]

    @property
    def late(self) -> int:
        """Late rows that the units counted."""
        return sum(report.late for report in self.reports)

    def _new_runners(self) -> list[Runner]:
        # Through their JSON, as the workers get them.
        steps = [read_step(to_json(step)) for step in self.plan.tree.steps]
        return [self.new_runner(step) for step in steps]

    def new_runner(self, step: Step) -> Runner:
        """What carries out one join of the plan."""
        table = make(step.spec, step.routing)
        rows, sketch = self._chunk_rows, self._sketch
        return Runner(step.spec, table, chunk_rows=rows, validate=True, sketch=sketch)

    def results(self, step: Batch, pieces: int = 1) -> pa.Table:
        """The results of a batch, or views; each stream arrives in so many Arrow batches."""
        tree = self.plan.tree
        # One for all the joins of a tree, as on Spark.
        watermark = tree.clock.watermark(step.watermark or 0)
        if len(tree.steps) == 1:
            return self.joined(0, list(step.tables), watermark, pieces)
        found = step.tables[tree.order[0]]
        for number, stream in enumerate(tree.order[1:]):
            found = self.joined(number, [found, step.tables[stream]], watermark, pieces)
        names = [name for columns in tree.output for name in columns]
        return found.select(names) if found.num_columns else found

    def joined(
        self, number: int, tables: list[pa.Table], watermark: int | None, pieces: int
    ) -> pa.Table:
        """The results of one join of the plan."""
        spec = self.plan.tree.steps[number].spec
        duck = DuckJoin(spec, hashes=self._hashes)
        inputs = [
            list(_cut(duck.derive(stream, table), pieces)) if table.num_columns else []
            for stream, table in enumerate(tables)
        ]
        found = self.runners[number].batch(inputs, watermark)
        if spec.view is None and not found:
            return duck.empty_results() if len(self.runners) == 1 else pa.table({})
        return duck.recheck(found) if found else pa.table({})

    def attempt(self, step: Batch, pieces: int = 1) -> None:
        """Compute a batch, its rows in another order, and forget what came of it."""
        before, reports = self.stored(), [list(runner.reports) for runner in self.runners]
        self.results(Batch(*map(_reversed, step.tables), watermark=step.watermark), pieces)
        self.restart(before)
        for runner, old in zip(self.runners, reports, strict=True):
            runner.reports = old

    def restart(self, state: State | None = None) -> None:
        """Forget everything but the stored bytes (or those given) and go on from them."""
        stored = self.stored() if state is None else state
        before, self.runners = self.runners, self._new_runners()
        for runner, units, old in zip(self.runners, stored, before, strict=True):
            runner.state.update(units)
            # What is not lost with the process: reports that were read, and files.
            runner.reports, runner.files, runner.tables = old.reports, old.files, old.tables

    def stored(self) -> State:
        """A copy of what is stored, as a state store would hold it."""
        return [
            {place: replace(state, parts=dict(state.parts)) for place, state in one.state.items()}
            for one in self.runners
        ]

    def play(self, script: Script, pieces: int = 1) -> Iterator[pa.Table]:
        """The results of each batch of a script; a batch after a crash runs twice."""
        crashing = False
        for step in script:
            if step is RESTART:
                self.restart()
            elif step is CRASH:
                crashing = True
            elif isinstance(step, Batch):
                if crashing:
                    self.attempt(step, pieces)
                    crashing = False
                yield self.results(step, pieces)


def _with_groups(plan: Plan, groups: int) -> Plan:
    """The plan with another number of groups."""

    def store(one: Store) -> Store:
        return replace(one, group_by=replace(one.group_by, groups=groups))

    def stage(one: Stage) -> Stage:
        return replace(one, stores=tuple(map(store, one.stores)))

    def step(one: Step) -> Step:
        return replace(one, spec=replace(one.spec, stages=tuple(map(stage, one.spec.stages))))

    return replace(plan, tree=replace(plan.tree, steps=tuple(map(step, plan.tree.steps))))


class InProcessJoin(InProcess):
    """A join on a predicate, of streams that are called r, s, t, ... unless named."""

    def __init__(
        self,
        predicate: str,
        schemas: Sequence[pa.Schema],
        *,
        names: Sequence[str] | None = None,
        within: Within = None,
        time: Time = None,
        options: JoinOptions | None = None,
        chunk_rows: int = 1 << 16,
        hashes: int | None = None,
        groups: int | None = None,
    ) -> None:
        named = dict(zip(names or stream_names(len(schemas)), schemas, strict=True))
        plan = plan_join(
            streams={name: column_specs(schema) for name, schema in named.items()},
            predicate=predicate,
            within=within,
            time=_times(named, time),
            options=options,
            analyst=DuckAnalyst(named),
            fixed_zone=True,
        )
        super().__init__(plan, chunk_rows=chunk_rows, hashes=hashes, groups=groups)

    def batch(self, step: Batch, *, pieces: int = 1) -> list[Row]:
        """The result rows of a batch."""
        return rows_in(self.results(step, pieces))


@dataclass
class Outcome:
    """What a run gave."""

    rows: list[Row]
    late: int
    """Rows that came after the watermark had passed them."""
    join: InProcessJoin = field(repr=False)

    @property
    def plan(self) -> Plan:
        """How it was planned."""
        return self.join.plan


def run_script(predicate: str, script: Script, *, pieces: int = 1, **how: Any) -> Outcome:
    """Carry out a script, batch by batch; `how` are further arguments of `InProcessJoin`."""
    first = next(step for step in script if isinstance(step, Batch))
    join = InProcessJoin(predicate, [table.schema for table in first.tables], **how)
    rows = [row for found in join.play(script, pieces) for row in rows_in(found)]
    return Outcome(rows, join.late, join)


def _reversed(table: pa.Table) -> pa.Table:
    return table.take(pa.array(np.arange(table.num_rows)[::-1].copy()))


def expected_rows(
    predicate: str,
    script: Script,
    *,
    names: Sequence[str] | None = None,
    within: Within = None,
    time: Time = None,
) -> list[Row]:
    """What the join must give by definition: cross product of the rows on time, then the filter."""
    batches = [step for step in script if isinstance(step, Batch)]
    known = tuple(names or stream_names(len(batches[0].tables)))
    times = _times(known, time)
    tables = {
        name: pa.concat_tables(
            [on_time(step.tables[n], times.get(name), step.watermark) for step in batches]
        )
        for n, name in enumerate(known)
    }
    conditions = [f"({to_duckdb(predicate)})", *_in_window(known, within, times)]
    if len(known) > 2:
        conditions += [f'"{name}"."{column}" IS NOT NULL' for name, column in times.items()]
    columns = ", ".join(
        f'"{name}"."{column}" AS "{result_column(stream, number)}"'
        for stream, (name, table) in enumerate(tables.items())
        for number, column in enumerate(table.column_names)
    )
    listed = ", ".join(f'"{name}"' for name in known)
    sql = f"SELECT {columns} FROM {listed} WHERE {' AND '.join(conditions)}"
    return rows_in(query(sql, **tables))


def _in_window(names: Sequence[str], within: Within, times: Mapping[str, str]) -> Iterator[str]:
    if within is None:
        return
    micros = [f'epoch_us("{name}"."{times[name]}")' for name in names if name in times]
    if len(names) == 2:
        before, after = within if isinstance(within, tuple) else (within, within)
        low, high = -parse_duration(before, "within"), parse_duration(after, "within")
        yield f"{micros[1]} - {micros[0]} BETWEEN {low} AND {high}"
    else:
        assert isinstance(within, str)
        listed = ", ".join(micros)
        yield f"greatest({listed}) - least({listed}) <= {parse_duration(within, 'within')}"


def _times(names: Iterable[str], time: Time) -> dict[str, str]:
    if isinstance(time, str):
        return dict.fromkeys(names, time)
    return {name: column for name, column in (time or {}).items() if column is not None}


def on_time(table: pa.Table, time: str | None, watermark: int | None) -> pa.Table:
    """The rows that the watermark has not passed; rows without a time are left in."""
    if time is None or watermark is None:
        return table
    micros = table.column(time).cast(pa.timestamp("us")).cast(pa.int64())
    return table.filter(pc.fill_null(pc.greater_equal(micros, watermark), True))


def rows_in(table: pa.Table) -> list[Row]:
    """The rows of a table as tuples."""
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True))


def multiset(rows: Iterable[Row]) -> Counter[Row]:
    """Rows that compare as they should: by the value printed, so that NaN equals NaN."""
    return Counter(tuple(repr(value) for value in row) for row in rows)


def batches_of(table: pa.Table, sizes: Iterable[int]) -> list[pa.Table]:
    """The table cut into pieces of those sizes; what is left over is the last piece."""
    cut, start = [], 0
    for size in sizes:
        cut.append(table.slice(start, size))
        start += size
    cut.append(table.slice(start))
    return cut


def _cut(batch: pa.RecordBatch, pieces: int) -> Iterator[pa.RecordBatch]:
    step = max(1, -(-batch.num_rows // pieces))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)
