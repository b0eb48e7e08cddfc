"""A query in this process: parsed, planned, run batch by batch, and finished by DuckDB."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from thetastream.engine.runner import Runner, UnitState
from thetastream.options import JoinOptions
from thetastream.planner import QueryPlan, parse_query, plan_query
from thetastream.spec import JoinSpec
from thetastream.testing.duck import DuckAnalyst, DuckJoin, column_specs, query, to_duckdb
from thetastream.testing.inprocess import Batch, Row, Script, on_time, play, rows_in


class InProcessQuery:
    """A planned query that takes batches and gives its result so far."""

    def __init__(
        self,
        text: str,
        schemas: Mapping[str, pa.Schema],
        *,
        time: Mapping[str, str | None] | None = None,
        options: JoinOptions | None = None,
        chunk_rows: int = 1 << 16,
        hashes: int | None = None,
    ) -> None:
        self._chunk_rows = chunk_rows
        read = parse_query(
            text,
            {name: column_specs(schema) for name, schema in schemas.items()},
            case_sensitive=False,
        )
        self.streams = [relation.stream for relation in read.relations]
        aliases = {one.alias: one.stream for one in read.relations}
        self.plan: QueryPlan = plan_query(
            read,
            time={alias: (time or {}).get(stream) for alias, stream in aliases.items()},
            options=options or JoinOptions(),
            analyst=DuckAnalyst({alias: schemas[stream] for alias, stream in aliases.items()}),
            fixed_zone=True,
        )
        self.duck = DuckJoin(self.spec, hashes=hashes)
        self.runner = Runner(self.spec, chunk_rows=chunk_rows)
        self.out: list[pa.RecordBatch] = []

    @property
    def spec(self) -> JoinSpec:
        """The join under the query."""
        spec = self.plan.join.spec
        assert isinstance(spec, JoinSpec)
        return spec

    def batch(self, inputs: Sequence[pa.Table], watermark: int | None) -> None:
        """Take in a batch of each relation."""
        derived = [[self.duck.derive(n, table)] for n, table in enumerate(inputs)]
        found = self.runner.batch(derived, self.spec.clock.watermark(watermark or 0))
        if self.spec.recheck_sql is not None and found:
            found = self.duck.recheck(found).to_batches()
        self.out += found

    def restart(self, state: dict[int, UnitState] | None = None) -> None:
        """Go on from the stored bytes in a new runner."""
        stored = state if state is not None else self.stored()
        self.runner = Runner(JoinSpec.from_json(self.spec.to_json()), chunk_rows=self._chunk_rows)
        self.runner.state.update(stored)

    def stored(self) -> dict[int, UnitState]:
        """A copy of what is stored."""
        return {
            unit: UnitState(state.manifest, dict(state.parts))
            for unit, state in self.runner.state.items()
        }

    def rows(self) -> list[Row]:
        """The result over everything so far, as Spark would merge it."""
        if not self.out:
            return []
        return rows_in(query(self._finish_sql(), out=pa.Table.from_batches(self.out)))

    def _finish_sql(self) -> str:
        finish = self.plan.finish
        items = ", ".join(f'{_duck(sql)} AS "i{n}"' for n, (sql, _) in enumerate(finish.items))
        source = "out"
        if finish.distinct:
            chosen = finish.keys or [(name, name) for name in finish.distinct[:-1]]
            inner = ", ".join(f'{_duck(sql)} AS "{name}"' for sql, name in chosen)
            return f"SELECT {items} FROM (SELECT DISTINCT {inner}, newest FROM out)"
        if not finish.grouped:
            return f"SELECT {items} FROM out"
        keys = [f'{_duck(sql)} AS "{name}"' for sql, name in finish.keys]
        if finish.window is not None:
            size = finish.window.size
            assert finish.window.slide == size
            start = f"epoch_us({_duck(finish.window_sql)}) // {size} * {size}"
            keys.append(f"{{'start': {start}, 'end': {start} + {size}}} AS \"window\"")
        merged = [f'{_duck(sql)} AS "a_{n}"' for n, sql in enumerate(finish.aggregates)]
        where = "" if finish.having is None else f" WHERE {_duck(finish.having)}"
        group = f" GROUP BY {', '.join(str(n + 1) for n in range(len(keys)))}" if keys else ""
        columns = ", ".join(keys + merged) or "count(*)"
        return f"SELECT {items} FROM (SELECT {columns} FROM {source}{group}){where}"


def run_query(
    text: str,
    script: Script,
    *,
    time: Mapping[str, str | None] | None = None,
    options: JoinOptions | None = None,
    chunk_rows: int = 1 << 16,
    hashes: int | None = None,
) -> InProcessQuery:
    """Carry out a script over the streams `r` and `s`; batches after a crash run twice."""
    first = next(step for step in script if isinstance(step, Batch))
    running = InProcessQuery(
        text,
        {"r": first.left.schema, "s": first.right.schema},
        time=time,
        options=options,
        chunk_rows=chunk_rows,
        hashes=hashes,
    )

    def run(step: Batch) -> None:
        tables = {"r": step.left, "s": step.right}
        running.batch([tables[stream] for stream in running.streams], step.watermark)

    def attempt(step: Batch) -> None:
        before, out = running.stored(), list(running.out)
        run(step)
        running.restart(before)
        running.out = out

    play(script, run=run, attempt=attempt, restart=running.restart)
    return running


def expected_query(
    sql: str, script: Script, *, time: Mapping[str, str | None] | None = None
) -> list[Row]:
    """What DuckDB makes of its own text over all rows that were on time."""
    tables: dict[str, Any] = {}
    for name, side in (("r", "left"), ("s", "right")):
        pieces = [
            on_time(getattr(step, side), (time or {}).get(name), step.watermark)
            for step in script
            if isinstance(step, Batch)
        ]
        tables[name] = pa.concat_tables(pieces)
    return rows_in(query(sql, **tables))


def _duck(sql: str) -> str:
    counted = re.sub(r"CAST\(size\(collect_set\((.*)\)\) AS BIGINT\)", r"count(DISTINCT \1)", sql)
    return to_duckdb(counted)
