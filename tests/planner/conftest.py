"""An analyst without Spark: DuckDB types the expressions, a table says what compares with what."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pytest
import sqlglot

from thetastream.options import JoinOptions
from thetastream.planner import AnalysisFailure, Plan, plan_join
from thetastream.spec import ColumnSpec

TO_DUCKDB = {
    "string": "VARCHAR",
    "binary": "BLOB",
    "int": "INTEGER",
    "float": "FLOAT",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
    "interval day to second": "INTERVAL",
    "array<int>": "INTEGER[]",
    "struct<lat:double,lon:double>": "STRUCT(lat DOUBLE, lon DOUBLE)",
}
FROM_DUCKDB = {
    "VARCHAR": "string",
    "BLOB": "binary",
    "INTEGER": "int",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
    "TIMESTAMP": "timestamp_ntz",
    "INTERVAL": "interval day to second",
    '"NULL"': "void",
}
INTEGERS = ("tinyint", "smallint", "int", "bigint")
DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}


@dataclass
class TableAnalyst:
    """Answers from DuckDB and from Spark's published rules of type coercion."""

    streams: Mapping[str, Sequence[ColumnSpec]]
    ansi: bool = True
    case_sensitive: bool = False
    parallelism: int = 4
    _connection: duckdb.DuckDBPyConnection | None = field(default=None, repr=False)

    def type_of(self, stream: str, sql: str) -> str:
        if self._connection is None:
            self._connection = duckdb.connect()
            for name, specs in self.streams.items():
                columns = ", ".join(
                    f'"{spec.name}" {TO_DUCKDB.get(spec.type, spec.type)}' for spec in specs
                )
                self._connection.execute(f'CREATE TABLE "{name}" ({columns})')
        try:
            text = sqlglot.transpile(sql, read="spark", write="duckdb")[0]
            found = self._connection.execute(f'DESCRIBE SELECT {text} FROM "{stream}"').fetchall()
        except duckdb.Error as error:
            raise AnalysisFailure(str(error).splitlines()[0]) from error
        return FROM_DUCKDB.get(found[0][1], found[0][1].lower())

    def common_type(self, left: str, right: str) -> str | None:
        pair = {left, right}
        if pair <= set(INTEGERS):
            return max(pair, key=INTEGERS.index)
        numeric = {*INTEGERS, "float", "double"}
        if pair & {"float", "double"} and all(p in numeric or "decimal" in p for p in pair):
            return "double"
        if all(p in INTEGERS or p.startswith("decimal") for p in pair):
            sizes = [_decimal(p) for p in pair]
            scale = max(s for _, s in sizes)
            whole = max(p - s for p, s in sizes)
            return f"decimal({min(38, whole + scale)},{scale})"
        if pair <= {"date", "timestamp", "timestamp_ntz"}:
            return "timestamp" if "timestamp" in pair else "timestamp_ntz"
        if "string" in pair:
            other = (pair - {"string"}).pop()
            return "bigint" if other in INTEGERS else other
        return None


def _decimal(name: str) -> tuple[int, int]:
    if name in DIGITS:
        return DIGITS[name], 0
    precision, scale = re.findall(r"\d+", name)
    return int(precision), int(scale)


def _columns(text: str) -> list[ColumnSpec]:
    pairs = [item.rsplit(" ", 1) for item in text.split("; ")]
    return [ColumnSpec(name=name, type=kind) for name, kind in pairs]


R = (
    "id int; x double; f float; big bigint; tiny tinyint; name string; at timestamp; "
    "local timestamp_ntz; day date; price decimal(10,2); wide decimal(30,4); flag boolean; "
    "tags array<int>; where_ struct<lat:double,lon:double>; odd name int; raw binary; solo int"
)


@pytest.fixture(scope="session")
def analyst_class() -> type[TableAnalyst]:
    return TableAnalyst


@pytest.fixture
def streams() -> dict[str, list[ColumnSpec]]:
    return {"r": _columns(R), "s": _columns(R.replace("; solo int", "; lone int"))}


@pytest.fixture
def plan(streams: dict[str, list[ColumnSpec]]) -> Callable[..., Plan]:
    """Plan a predicate over r and s; keyword arguments as plan_join, plus ansi and so on."""

    def run(predicate: str, **given: Any) -> Plan:
        settings = {
            name: given.pop(name)
            for name in ("ansi", "case_sensitive", "parallelism")
            if name in given
        }
        if "options" in given and isinstance(given["options"], dict):
            given["options"] = JoinOptions(**given["options"])
        chosen = given.pop("streams", streams)
        analyst = TableAnalyst(chosen, **settings)
        return plan_join(streams=chosen, predicate=predicate, analyst=analyst, **given)

    return run
