"""DuckDB in the place of Spark SQL: types of expressions, derived keys, filters and re-checks.

Predicates are in Spark's dialect and are rewritten for DuckDB. The two agree on NULL, NaN, -0.0,
decimals, strings and dates. They differ where Spark raises or wraps on overflow; tests of overflow
need another oracle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import sqlglot

from thetastream.planner import AnalysisFailure, Parallelism
from thetastream.planner.types import decimal_size, exact_size
from thetastream.spec import ColumnSpec, JoinSpec, carried_column, result_column

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_NAMED: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.duration("us"): "interval day to second",
}
_FROM_DUCKDB = {
    "VARCHAR": "string",
    "BLOB": "binary",
    "INTEGER": "int",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
    "TIMESTAMP": "timestamp_ntz",
    "INTERVAL": "interval day to second",
    '"NULL"': "void",
}
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_ROW = "_row"
_MOST_DIGITS = 38
_PRESENT = re.compile(r"`[^`]+`\.`[^`]+` IS NOT NULL(?: AND `[^`]+`\.`[^`]+` IS NOT NULL)*")

_connections: list[DuckDBPyConnection] = []
"""The process's one connection: opening one takes longer than most tests."""


def connection() -> DuckDBPyConnection:
    """The connection that all helpers share."""
    if not _connections:
        import duckdb

        opened = duckdb.connect(config={"threads": 1})
        opened.execute("SET TimeZone = 'UTC'")
        add_macros(opened)
        _connections.append(opened)
    return _connections[0]


def add_macros(database: DuckDBPyConnection) -> None:
    """Add what keys call in Spark and DuckDB lacks, under the names that the translation gives."""
    database.execute("CREATE MACRO nanvl(v, w) AS CASE WHEN isnan(v) THEN w ELSE v END")
    for name, op in (
        ("safe_add", "+"),
        ("safe_subtract", "-"),
        ("safe_multiply", "*"),
        ("try_mod", "%"),
    ):
        database.execute(f"CREATE MACRO {name}(v, w) AS TRY(v {op} w)")


def query(sql: str, **tables: pa.Table) -> pa.Table:
    """The result of a query in DuckDB's dialect over the tables."""
    database = connection()
    for name, table in tables.items():
        database.register(name, table)
    try:
        return database.sql(sql).to_arrow_table()
    finally:
        for name in tables:
            database.unregister(name)


def to_duckdb(sql: str) -> str:
    """An expression of Spark's dialect in DuckDB's; DuckDB's hash stands for `xxhash64`."""
    text = sqlglot.transpile(sql, read="spark", write="duckdb", identify=True)[0]
    return text.replace("XXHASH64(", "HASH(")


def quoted(name: str) -> str:
    """The name as a DuckDB identifier."""
    return '"' + name.replace('"', '""') + '"'


def spark_type(kind: pa.DataType) -> str:
    """Spark's short name of an Arrow type."""
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if kind not in _NAMED:
        raise TypeError(f"no Spark type is known for {kind}")
    return _NAMED[kind]


def column_specs(schema: pa.Schema) -> list[ColumnSpec]:
    """The columns of a stream with that schema."""
    return [ColumnSpec(name=item.name, type=spark_type(item.type)) for item in schema]


FOUR = Parallelism(tasks=4, partitions=4)


@dataclass
class DuckAnalyst:
    """A planner's analyst that asks DuckDB, and Spark's published rules of type coercion."""

    schemas: Mapping[str, pa.Schema]
    ansi: bool = True
    case_sensitive: bool = False
    parallelism: Parallelism = FOUR
    zone: str = "UTC"
    _types: dict[tuple[tuple[str, ...], str], str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, streams: Mapping[str, Sequence[ColumnSpec]], **settings: Any) -> DuckAnalyst:
        """An analyst of streams with those columns."""
        return cls({name: _schema(columns) for name, columns in streams.items()}, **settings)

    def type_over(self, streams: Sequence[str], sql: str) -> str:
        """The type of an expression over one stream or several."""
        question = (tuple(streams), sql)
        if question not in self._types:
            import duckdb

            compared = self._compared(streams, sql)
            if compared is not None:
                if not compared:
                    raise AnalysisFailure(f"the sides of {sql} are not compared")
                self._types[question] = "boolean"
                return "boolean"
            database = connection()
            for stream in streams:
                database.register(stream, self.schemas[stream].empty_table())
            try:
                listed = ", ".join(map(quoted, streams))
                text = f"DESCRIBE SELECT {to_duckdb(sql)} FROM {listed}"
                found = str(database.execute(text).fetchall()[0][1])
            except duckdb.Error as error:
                raise AnalysisFailure(str(error).splitlines()[0]) from error
            finally:
                for stream in streams:
                    database.unregister(stream)
            self._types[question] = _FROM_DUCKDB.get(found, found.lower())
        return self._types[question]

    def _compared(self, streams: Sequence[str], sql: str) -> bool | None:
        """Whether Spark compares the two sides of a comparison; None if it is something else.

        DuckDB takes dates for numbers, and refuses texts beside numbers.
        """
        root = sqlglot.parse_one(sql, dialect="spark")
        if not isinstance(root, sqlglot.exp.EQ | sqlglot.exp.LT | sqlglot.exp.GT
                          | sqlglot.exp.LTE | sqlglot.exp.GTE | sqlglot.exp.NEQ):  # fmt: skip
            return None
        one, two = (
            self.type_over(streams, side.sql(dialect="spark"))
            for side in (root.this, root.expression)
        )
        return self.common_type(one, two) is not None

    def with_stream(self, name: str, columns: Sequence[ColumnSpec]) -> DuckAnalyst:
        """An analyst that also knows a stream with those columns."""
        return replace(self, schemas={**self.schemas, name: _schema(columns)}, _types={})

    def common_type(self, left: str, right: str) -> str | None:
        """The type in which Spark compares the two, in ANSI mode."""
        pair = {left, right}
        if len(pair) == 1:
            return left
        if pair <= set(_INTEGERS):
            return max(pair, key=_INTEGERS.index)
        exact = [p for p in pair if p in _INTEGERS or p.startswith("decimal")]
        if pair & {"float", "double"} and pair <= {"float", "double", *exact}:
            return "double"
        if len(exact) == len(pair):
            sizes = [exact_size(p) for p in pair]
            scale = max(s for _, s in sizes)
            whole = max(p - s for p, s in sizes)
            return f"decimal({min(_MOST_DIGITS, whole + scale)},{scale})"
        if pair <= {"date", "timestamp", "timestamp_ntz"}:
            return "timestamp" if "timestamp" in pair else "timestamp_ntz"
        if "string" in pair:
            (other,) = pair - {"string"}
            return "bigint" if other in _INTEGERS else other
        return None


def _schema(columns: Sequence[ColumnSpec]) -> pa.Schema:
    return pa.schema([(column.name, _arrow_type(column.type)) for column in columns])


def _arrow_type(name: str) -> pa.DataType:
    known = {spark: kind for kind, spark in _NAMED.items()}
    if name in known:
        return known[name]
    kind, _, inner = name.removesuffix(">").partition("<")
    if kind == "array":
        return pa.list_(_arrow_type(inner))
    if kind == "struct":
        parts = [part.split(":") for part in inner.split(",")]
        return pa.struct([(field, _arrow_type(type_name)) for field, type_name in parts])
    return pa.decimal128(*decimal_size(name))


class DuckJoin:
    """What Spark SQL does around a join: derived keys and filters before it, re-check after it."""

    def __init__(self, spec: JoinSpec, *, hashes: int | None = None) -> None:
        """`hashes`: so many different hashes at most, to have collisions; None for 64 bits."""
        self._spec = spec
        self._hashes = hashes

    def derive(self, stream: int, table: pa.Table) -> pa.RecordBatch:
        """The rows that can match, with the columns and keys that travel."""
        described = self._spec.streams[stream]
        keys = [
            (described.key_column(number), to_duckdb(key.sql))
            for number, key in enumerate(described.keys)
            if key.column is None
        ]
        values = [
            (carried_column(number), to_duckdb(column.sql))
            for number, column in enumerate(described.columns)
            if column.sql is not None
        ]
        names = [carried_column(number) for number in range(len(described.columns))]
        if not keys and not values and _takes_all(described.filter_sql, table):
            plain = [table.column(column.name) for column in described.columns]
            return _one_batch(pa.table(plain, names))
        select = ", ".join([f'"{_ROW}"', *(f'{sql} AS "{name}"' for name, sql in keys + values)])
        where = f" WHERE {to_duckdb(described.filter_sql)}" if described.filter_sql else ""
        numbered = table.append_column(_ROW, pa.array(np.arange(table.num_rows)))
        source = f"derived AS {quoted(described.name)}"
        found = query(f"SELECT {select} FROM {source}{where}", derived=numbered)
        rows = table.take(found.column(_ROW))
        columns = [
            found.column(name) if column.sql is not None else rows.column(column.name)
            for name, column in zip(names, described.columns, strict=True)
        ]
        for name, _ in keys:
            columns.append(self._key(found.column(name)))
            names.append(name)
        return _one_batch(pa.table(columns, names))

    def recheck(self, results: Iterable[pa.RecordBatch]) -> pa.Table:
        """The results that the kernel and the rest of the predicate let through."""
        batches = list(results)
        if not batches:
            return self.empty_results()
        table = pa.Table.from_batches(batches)
        if self._spec.recheck_sql is None:
            return table
        numbered = table.append_column(_ROW, pa.array(np.arange(table.num_rows)))
        sql = f'SELECT "{_ROW}" FROM results WHERE {to_duckdb(self._spec.recheck_sql)}'
        return table.take(query(sql, results=numbered).column(_ROW))

    def empty_results(self) -> pa.Table:
        """No result, without the types that only the input knows."""
        names = [
            result_column(stream, number)
            for stream, described in enumerate(self._spec.streams)
            for number in range(len(described.columns))
        ]
        return pa.table([pa.nulls(0) for _ in names], names)

    def _key(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if not pa.types.is_uint64(column.type):
            return column
        hashes = column.to_numpy()
        if self._hashes is not None:
            hashes = hashes % np.uint64(self._hashes)
        return pa.chunked_array([hashes.view(np.int64)], pa.int64())


def _takes_all(condition: str | None, table: pa.Table) -> bool:
    """Whether a filter plainly keeps every row: it asks for values, and none is missing."""
    if not condition:
        return True
    return bool(_PRESENT.fullmatch(condition)) and not any(one.null_count for one in table.columns)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches: Sequence[Any] = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_pylist([], schema=table.schema)
