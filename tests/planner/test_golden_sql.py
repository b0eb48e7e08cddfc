"""Queries and their plans as text a reviewer can read: tests/golden/sql/queries.txt.

After a change that is meant, `UPDATE_GOLDEN=1 pytest tests/planner/test_golden_sql.py` rewrites the
file; read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from thetastream.planner import AGGREGATION, DUPLICATES, QueryPlan
from thetastream.spec import Value
from thetastream.testing.queries import InProcessQuery

FILE = Path(__file__).parent.parent / "golden" / "sql" / "queries.txt"
TIME = pa.timestamp("us", tz="UTC")
SCHEMAS = {
    "orders": pa.schema(
        [("id", pa.int64()), ("zone", pa.int32()), ("fare", pa.float64()), ("placed", TIME)]
    ),
    "rides": pa.schema(
        [
            ("id", pa.int64()),
            ("zone", pa.int32()),
            ("fare", pa.float64()),
            ("name", pa.string()),
            ("seen", TIME),
        ]
    ),
}
TIMES = {"orders": "placed", "rides": "seen"}


def describe(plan: QueryPlan) -> str:
    spec, finish = plan.join.spec, plan.finish
    between = spec.window(0, 1)

    def named(value: Value | None) -> str:
        if value is None:
            return "*"
        return spec.streams[value.stream].columns[value.column].name

    lines = []
    for stream in spec.streams:
        carried = ", ".join(
            column.name if column.sql is None else f"{column.name} = {column.sql}"
            for column in stream.columns
        )
        lines.append(f"  {stream.name} carries {carried or 'its keys alone'}")
        if stream.filter_sql:
            lines.append(f"  {stream.name} is filtered by {stream.filter_sql}")
    lines += [f"  {c.kind.value}: {c.text}" for c in plan.join.conjuncts]
    if between:
        lines.append(f"  window {between.low} .. {between.high}")
    if spec.recheck_sql:
        lines.append(f"  re-checked: {spec.recheck_sql}")
    if spec.view:
        groups = ", ".join(named(value) for value in spec.view.groups) or "nothing"
        lines.append(
            f"  view by {groups}" + (f", slices of {spec.view.slice}" if spec.view.slice else "")
        )
        lines += [f"    {m.fold.value}({named(m.value)})" for m in spec.view.measures]
    if spec.newest is not None:
        lines.append(f"  results carry their time, in slices of {spec.newest}")
    for decision in plan.join.decisions:
        if decision.subject in (AGGREGATION, DUPLICATES):
            lines.append(f"  {decision.subject} {decision.choice}: {decision.reason}")
    if finish.grouped:
        keys = ", ".join(f"{sql} AS {name}" for sql, name in finish.keys) or "nothing"
        lines.append(f"  Spark groups by {keys}")
        if finish.window:
            window = finish.window
            lengths = f"{window.size}, {window.slide}, {window.start}"
            lines.append(f"    and by window({finish.window_sql}, {lengths})")
        lines += [f"    a_{n} = {sql}" for n, sql in enumerate(finish.aggregates)]
    if finish.distinct:
        lines.append(f"  Spark drops duplicates in {', '.join(finish.distinct)}")
    if finish.having:
        lines.append(f"  having {finish.having}")
    lines += [f"  -> {sql} AS {name}" for sql, name in finish.items]
    return "\n".join(lines)


def test_plans_of_queries_are_as_written() -> None:
    head, *blocks = FILE.read_text().strip("\n").split("\n\n")
    actual = []
    for block in blocks:
        text = block.split("\n")[0]
        time = TIMES if "WITHIN" in text else {}
        actual.append(f"{text}\n{describe(InProcessQuery(text, SCHEMAS, time=time).query)}")
    if os.environ.get("UPDATE_GOLDEN"):
        FILE.write_text("\n\n".join([head, *actual]) + "\n")
    assert blocks == actual
    assert len(blocks) >= 12
