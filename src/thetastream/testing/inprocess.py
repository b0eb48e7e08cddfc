"""A join in this process, from predicate to result rows, and a script that can crash it.

    script = [Batch(left=..., right=...), RESTART, Batch(left=..., right=..., watermark=...)]
    outcome = run_script("r.k = s.k", script, within="10 seconds", time={"r": "t", "s": "t"})
    assert multiset(outcome.rows) == multiset(expected_rows("r.k = s.k", script, ...))

A crash is an element of the data, so that a test of recovery is as short as any other.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.engine.runner import Runner, UnitState
from thetastream.options import JoinOptions
from thetastream.planner import Plan, parse_duration, plan_join
from thetastream.spec import JoinSpec, result_column
from thetastream.testing.duck import DuckAnalyst, DuckJoin, column_specs, query, to_duckdb

Within = str | tuple[str, str] | None
Row = tuple[Any, ...]
NAMES: Final = ("r", "s")
"""The streams' names where a test does not choose its own."""


class Sentinel(enum.Enum):
    """What happens between batches."""

    RESTART = "restart"
    CRASH = "crash"


RESTART: Final = Sentinel.RESTART
"""Everything in memory is lost; a new runner goes on from the bytes that were stored."""
CRASH: Final = Sentinel.CRASH
"""The batch that follows is computed, lost with its results and its state, and run again."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one batch brings."""

    left: pa.Table
    right: pa.Table
    watermark: int | None = None
    """In microseconds, as it stands when the batch begins; None is Spark's first one, 1970."""


Script = Sequence[Batch | Sentinel]
_Step = TypeVar("_Step")


@dataclass
class Outcome:
    """What a run gave."""

    rows: list[Row]
    late: int
    """Rows that came after the watermark had passed them."""
    join: InProcessJoin = field(repr=False)


class InProcessJoin:
    """A planned join that takes batches and gives result rows."""

    def __init__(
        self,
        predicate: str,
        schemas: Sequence[pa.Schema],
        *,
        names: tuple[str, str] = NAMES,
        within: Within = None,
        time: Mapping[str, str | None] | None = None,
        options: JoinOptions | None = None,
        chunk_rows: int = 1 << 16,
        hashes: int | None = None,
    ) -> None:
        named = dict(zip(names, schemas, strict=True))
        found = plan_join(
            streams={name: column_specs(schema) for name, schema in named.items()},
            predicate=predicate,
            within=within,
            time=time,
            options=options,
            analyst=DuckAnalyst(named),
            fixed_zone=True,
        )
        assert isinstance(found, Plan)
        self.plan = found
        self.duck = DuckJoin(self.plan.spec, hashes=hashes)
        self._chunk_rows = chunk_rows
        self.runner = Runner(self.plan.spec, chunk_rows=chunk_rows)

    @property
    def spec(self) -> JoinSpec:
        """What the planner decided."""
        return self.plan.spec

    @property
    def late(self) -> int:
        """Late rows that the units counted."""
        return sum(report.late for report in self.runner.reports)

    def batch(self, batch: Batch, *, pieces: int = 1) -> list[Row]:
        """The results of a batch; each stream arrives in so many Arrow batches."""
        inputs = [
            list(_cut(self.duck.derive(stream, table), pieces))
            for stream, table in enumerate((batch.left, batch.right))
        ]
        watermark = self.spec.clock.watermark(batch.watermark or 0)
        found = self.duck.recheck(self.runner.batch(inputs, watermark))
        return rows_in(found)

    def restart(self, state: Mapping[int, UnitState] | None = None) -> None:
        """Forget everything but the stored bytes (or those given) and go on from them."""
        stored = self.stored() if state is None else state
        reports = self.runner.reports
        self.runner = Runner(JoinSpec.from_json(self.spec.to_json()), chunk_rows=self._chunk_rows)
        self.runner.state.update(stored)
        self.runner.reports = reports

    def stored(self) -> dict[int, UnitState]:
        """A copy of what is stored, as a state store would hold it."""
        return {
            unit: replace(state, parts=dict(state.parts))
            for unit, state in self.runner.state.items()
        }


def run_script(
    predicate: str,
    script: Script,
    *,
    names: tuple[str, str] = NAMES,
    within: Within = None,
    time: Mapping[str, str | None] | None = None,
    options: JoinOptions | None = None,
    chunk_rows: int = 1 << 16,
    hashes: int | None = None,
    pieces: int = 1,
) -> Outcome:
    """Carry out a script, batch by batch."""
    first = next(step for step in script if isinstance(step, Batch))
    join = InProcessJoin(
        predicate,
        (first.left.schema, first.right.schema),
        names=names,
        within=within,
        time=time,
        options=options,
        chunk_rows=chunk_rows,
        hashes=hashes,
    )
    rows: list[Row] = []

    def run(step: Batch) -> None:
        rows.extend(join.batch(step, pieces=pieces))

    def attempt(step: Batch) -> None:
        before, reports = join.stored(), list(join.runner.reports)
        # The rows may come in another order than later on.
        other = replace(step, left=_reversed(step.left), right=_reversed(step.right))
        join.batch(other, pieces=pieces)
        join.runner.reports = reports
        join.restart(before)

    play(script, run=run, attempt=attempt, restart=join.restart)
    return Outcome(rows, join.late, join)


def play(
    script: Sequence[_Step | Sentinel],
    *,
    run: Callable[[_Step], None],
    attempt: Callable[[_Step], None],
    restart: Callable[[], None],
) -> None:
    """Carry out a script; `attempt` computes a batch and forgets what came of it."""
    crashing = False
    for step in script:
        if step is RESTART:
            restart()
        elif step is CRASH:
            crashing = True
        elif not isinstance(step, Sentinel):
            if crashing:
                attempt(step)
                crashing = False
            run(step)


def _reversed(table: pa.Table) -> pa.Table:
    return table.take(pa.array(np.arange(table.num_rows)[::-1].copy()))


def run_in_process(
    predicate: str,
    left: Sequence[pa.Table],
    right: Sequence[pa.Table],
    *,
    watermarks: Sequence[int | None] | None = None,
    within: Within = None,
    time: Mapping[str, str | None] | None = None,
    options: JoinOptions | None = None,
) -> list[Row]:
    """The results of a join of streams `r` and `s`, given batch by batch."""
    marks = watermarks if watermarks is not None else [None] * len(left)
    script = [
        Batch(left=one, right=two, watermark=mark)
        for one, two, mark in zip(left, right, marks, strict=True)
    ]
    return run_script(predicate, script, within=within, time=time, options=options).rows


def expected_rows(
    predicate: str,
    script: Script,
    *,
    names: tuple[str, str] = NAMES,
    within: Within = None,
    time: Mapping[str, str | None] | None = None,
) -> list[Row]:
    """What the join must give by definition: cross product of the rows on time, then the filter."""
    batches = [step for step in script if isinstance(step, Batch)]
    lefts, rights = [], []
    for batch in batches:
        lefts.append(on_time(batch.left, (time or {}).get(names[0]), batch.watermark))
        rights.append(on_time(batch.right, (time or {}).get(names[1]), batch.watermark))
    tables = dict(zip(names, (pa.concat_tables(lefts), pa.concat_tables(rights)), strict=True))
    conditions = [f"({to_duckdb(predicate)})"]
    if within is not None:
        assert time is not None
        first, second = (f'epoch_us("{name}"."{time[name]}")' for name in names)
        before, after = within if isinstance(within, tuple) else (within, within)
        conditions.append(
            f"{second} - {first} BETWEEN {-parse_duration(before, 'within')}"
            f" AND {parse_duration(after, 'within')}"
        )
    columns = ", ".join(
        f'"{name}"."{column}" AS "{result_column(stream, number)}"'
        for stream, (name, table) in enumerate(tables.items())
        for number, column in enumerate(table.column_names)
    )
    sql = f'SELECT {columns} FROM "{names[0]}", "{names[1]}" WHERE {" AND ".join(conditions)}'
    return rows_in(query(sql, **tables))


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
