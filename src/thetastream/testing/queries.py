"""A query in this process: parsed, planned, run batch by batch, and finished by DuckDB."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from thetastream.options import JoinOptions
from thetastream.planner import QueryPlan, SiteFacts, parse_query, plan_query
from thetastream.spec import ColumnSpec
from thetastream.testing.duck import DuckAnalyst, column_specs, query, to_duckdb
from thetastream.testing.inprocess import NAMES, Batch, InProcess, Row, Script, on_time, rows_in


class InProcessQuery(InProcess):
    """A query that takes batches and gives its result so far."""

    def __init__(
        self,
        text: str,
        schemas: Mapping[str, pa.Schema],
        *,
        time: Mapping[str, str | None] | None = None,
        options: JoinOptions | None = None,
        sites: Mapping[str, SiteFacts] | None = None,
        hidden: ColumnSpec | None = None,
        chunk_rows: int = 1 << 16,
        hashes: int | None = None,
        groups: int | None = None,
    ) -> None:
        """`sites`: the streams that are at sites; `hidden`: a column that these have besides."""
        beside = [] if hidden is None else [hidden]
        specs = {
            name: [*column_specs(schema), *(beside if name in (sites or {}) else [])]
            for name, schema in schemas.items()
        }
        names = frozenset(spec.name for spec in beside)
        read = parse_query(text, specs, case_sensitive=False, hidden=dict.fromkeys(specs, names))
        self.streams = [relation.stream for relation in read.relations]
        aliases = {one.alias: one.stream for one in read.relations}
        self.query: QueryPlan = plan_query(
            read,
            time={alias: (time or {}).get(stream) for alias, stream in aliases.items()},
            options=options or JoinOptions(),
            analyst=DuckAnalyst({alias: schemas[stream] for alias, stream in aliases.items()}),
            fixed_zone=True,
            sites={
                alias: sites[stream]
                for alias, stream in aliases.items()
                if sites is not None and stream in sites
            },
        )
        super().__init__(self.query.join, chunk_rows=chunk_rows, hashes=hashes, groups=groups)
        self.out: list[pa.RecordBatch] = []

    def batch(self, inputs: Sequence[pa.Table], watermark: int | None) -> None:
        """Take in a batch of each relation."""
        self.take(self.results(Batch(*inputs, watermark=watermark)))

    def take(self, found: pa.Table) -> None:
        """Results, or views, of a batch."""
        self.out += found.to_batches() if found.num_rows else []

    def rows(self) -> list[Row]:
        """The result over everything so far, as Spark would merge it."""
        if not self.out:
            return []
        return rows_in(query(self._finish_sql(), out=pa.Table.from_batches(self.out)))

    def _finish_sql(self) -> str:
        finish = self.query.finish
        items = ", ".join(f'{_duck(sql)} AS "i{n}"' for n, (sql, _) in enumerate(finish.items))
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
        return f"SELECT {items} FROM (SELECT {columns} FROM out{group}){where}"


def run_query(text: str, script: Script, **how: Any) -> InProcessQuery:
    """Carry out a script over the streams `r` and `s`; batches after a crash run twice.

    `how` are further arguments of `InProcessQuery`.
    """
    first = next(step for step in script if isinstance(step, Batch))
    schemas = dict(zip(NAMES, (table.schema for table in first.tables), strict=True))
    running = InProcessQuery(text, schemas, **how)
    places = [NAMES.index(stream) for stream in running.streams]
    ordered = [
        Batch(*(step.tables[place] for place in places), watermark=step.watermark)
        if isinstance(step, Batch)
        else step
        for step in script
    ]
    for found in running.play(ordered):
        running.take(found)
    return running


def expected_query(
    sql: str, script: Script, *, time: Mapping[str, str | None] | None = None
) -> list[Row]:
    """What DuckDB makes of its own text over all rows that were on time."""
    tables: dict[str, Any] = {}
    for place, name in enumerate(NAMES):
        pieces = [
            on_time(step.tables[place], (time or {}).get(name), step.watermark)
            for step in script
            if isinstance(step, Batch)
        ]
        tables[name] = pa.concat_tables(pieces)
    return rows_in(query(sql, **tables))


def _duck(sql: str) -> str:
    counted = re.sub(r"CAST\(size\(collect_set\((.*)\)\) AS BIGINT\)", r"count(DISTINCT \1)", sql)
    return to_duckdb(counted)
