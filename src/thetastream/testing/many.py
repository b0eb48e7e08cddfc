"""Joins of three and more streams in this process, and what they must give.

script = [Arrivals(r, s, t), RESTART, Arrivals(r, s, t, watermark=...)]
join = run_many("r.k = s.k AND s.k = t.k", script, within="10 seconds", time="t")
assert multiset(join.rows) == multiset(expected_many(...))
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from thetastream.engine.runner import Runner, UnitState
from thetastream.engine.trirunner import TriRunner
from thetastream.graph import TreeSpec, TriSpec
from thetastream.options import JoinOptions
from thetastream.planner import AnyPlan, parse_duration, plan_join
from thetastream.spec import JoinSpec, result_column
from thetastream.testing.duck import DuckAnalyst, DuckJoin, column_specs, query, to_duckdb
from thetastream.testing.inprocess import Row, Sentinel, on_time, play, rows_in


class Arrivals:
    """What one batch brings of each stream."""

    def __init__(self, *tables: pa.Table, watermark: int | None = None) -> None:
        self.tables = tables
        self.watermark = watermark


Script = Sequence[Arrivals | Sentinel]
Time = str | Mapping[str, str] | None
"""The event time of all streams, or of those that have one."""


def stream_names(count: int) -> tuple[str, ...]:
    """r, s, t, u, ..."""
    start = string.ascii_lowercase.index("r")
    return tuple(string.ascii_lowercase[start : start + count])


class ManyJoin:
    """A planned join of several streams that takes batches and collects result rows."""

    def __init__(
        self,
        predicate: str,
        schemas: Sequence[pa.Schema],
        *,
        within: str | None = None,
        time: Time = None,
        options: JoinOptions | None = None,
        chunk_rows: int = 1 << 16,
        hashes: int | None = None,
    ) -> None:
        named = dict(zip(stream_names(len(schemas)), schemas, strict=True))
        self.plan: AnyPlan = plan_join(
            streams={name: column_specs(schema) for name, schema in named.items()},
            predicate=predicate,
            within=within,
            time=_times(named, time),
            options=options,
            analyst=DuckAnalyst(named),
            fixed_zone=True,
        )
        self._chunk_rows = chunk_rows
        self._hashes = hashes
        self.rows: list[Row] = []
        self.runners: list[Any] = self._new_runners()

    @property
    def specs(self) -> list[TriSpec | JoinSpec]:
        """The three-way join, or the two-way joins of a tree."""
        spec = self.plan.spec
        return list(spec.steps) if isinstance(spec, TreeSpec) else [spec]

    @property
    def late(self) -> int:
        """Late rows that the units counted."""
        return sum(report.late for runner in self.runners for report in runner.reports)

    def _new_runners(self) -> list[Any]:
        runners: list[Any] = []
        for spec in self.specs:
            if isinstance(spec, TriSpec):
                again = TriSpec.from_json(spec.to_json())
                runners.append(TriRunner(again, chunk_rows=self._chunk_rows))
            else:
                same = JoinSpec.from_json(spec.to_json())
                runners.append(Runner(same, chunk_rows=self._chunk_rows))
        return runners

    def batch(self, step: Arrivals) -> None:
        """Take in a batch of each stream."""
        self.rows += rows_in(self._results(step))

    def _results(self, step: Arrivals) -> pa.Table:
        spec = self.plan.spec
        # One for all the joins of a tree, as on Spark.
        watermark = spec.clock.watermark(step.watermark or 0)
        if not isinstance(spec, TreeSpec):
            duck = DuckJoin(spec, hashes=self._hashes)
            inputs = [[duck.derive(n, table)] for n, table in enumerate(step.tables)]
            return duck.recheck(self.runners[0].batch(inputs, watermark))
        found = step.tables[spec.order[0]]
        for stream, join, runner in zip(spec.order[1:], spec.steps, self.runners, strict=True):
            duck = DuckJoin(join, hashes=self._hashes)
            left = [] if not found.num_columns else [duck.derive(0, found)]
            right = [duck.derive(1, step.tables[stream])]
            batches = runner.batch([left, right], watermark)
            found = duck.recheck(batches) if batches else pa.table({})
        names = [name for columns in spec.output for name in columns]
        return found.select(names) if found.num_columns else found

    def stored(self) -> list[dict[int, UnitState]]:
        """A copy of what is stored."""
        return [
            {
                unit: UnitState(state.manifest, dict(state.parts))
                for unit, state in one.state.items()
            }
            for one in self.runners
        ]

    def restart(self, state: list[dict[int, UnitState]] | None = None) -> None:
        """Forget everything but the stored bytes (or those given) and go on from them."""
        stored = self.stored() if state is None else state
        before = self.runners
        self.runners = self._new_runners()
        for runner, old, one in zip(self.runners, before, stored, strict=True):
            runner.state.update(one)
            runner.reports = old.reports


def run_many(predicate: str, script: Script, **settings: Any) -> ManyJoin:
    """Carry out a script; a batch after a crash runs twice, the first time in vain."""
    first = next(step for step in script if isinstance(step, Arrivals))
    join = ManyJoin(predicate, [table.schema for table in first.tables], **settings)

    def attempt(step: Arrivals) -> None:
        before, rows = join.stored(), list(join.rows)
        reports = [list(runner.reports) for runner in join.runners]
        join.batch(step)
        join.restart(before)
        join.rows = rows
        for runner, old in zip(join.runners, reports, strict=True):
            runner.reports = old

    play(script, run=join.batch, attempt=attempt, restart=join.restart)
    return join


def expected_many(
    predicate: str, script: Script, *, within: str | None = None, time: Time = None
) -> list[Row]:
    """What the join must give by definition: cross product of the rows on time, then the filter."""
    steps = [step for step in script if isinstance(step, Arrivals)]
    names = stream_names(len(steps[0].tables))
    columns = _times(names, time)
    tables = {
        name: pa.concat_tables(
            [on_time(s.tables[n], columns.get(name), s.watermark) for s in steps]
        )
        for n, name in enumerate(names)
    }
    conditions = [f"({to_duckdb(predicate)})"]
    if within is not None:
        length = parse_duration(within, "within")
        times = ", ".join(f'epoch_us("{name}"."{column}")' for name, column in columns.items())
        conditions.append(f"greatest({times}) - least({times}) <= {length}")
    conditions += [f'"{name}"."{column}" IS NOT NULL' for name, column in columns.items()]
    selected = ", ".join(
        f'"{name}"."{column}" AS "{result_column(stream, number)}"'
        for stream, (name, table) in enumerate(tables.items())
        for number, column in enumerate(table.column_names)
    )
    listed = ", ".join(f'"{name}"' for name in names)
    sql = f"SELECT {selected} FROM {listed} WHERE {' AND '.join(conditions)}"
    return rows_in(query(sql, **tables))


def _times(names: Iterable[str], time: Time) -> dict[str, str]:
    return dict.fromkeys(names, time) if isinstance(time, str) else dict(time or {})
