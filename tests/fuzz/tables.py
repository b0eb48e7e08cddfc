"""Random small tables with all of Spark's types, odd names and awkward values.

A cell is the text of an SQL literal, so a table can be kept as JSON and pasted as SQL. The tables
of one scene draw from the same few values, so that many pairs match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from pyspark.sql import DataFrame, SparkSession

ROW = "rid"
"""The first column of each table: the row's number, by which pairs are told apart."""


@dataclass(frozen=True)
class Column:
    """A column and the family of its type."""

    name: str
    type: str
    family: str


@dataclass(frozen=True)
class Table:
    """A named table whose cells are SQL literals; None is NULL."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str | None, ...], ...]

    def sql(self) -> str:
        """A query that gives the table."""
        names = ", ".join(quote(column.name) for column in self.columns)
        if not self.rows:
            nulls = ", ".join(f"CAST(NULL AS {column.type})" for column in self.columns)
            return f"SELECT * FROM VALUES ({nulls}) AS t({names}) WHERE false"
        rows = ",\n  ".join(
            "(" + ", ".join(_cell(v, c) for v, c in zip(row, self.columns, strict=True)) + ")"
            for row in self.rows
        )
        return f"SELECT * FROM VALUES\n  {rows}\nAS t({names})"

    def frame(self, spark: SparkSession) -> DataFrame:
        """The table as a DataFrame."""
        return spark.sql(self.sql())

    def of(self, *families: str) -> list[Column]:
        """The columns of those families."""
        return [column for column in self.columns if column.family in families]

    def without_row(self, place: int) -> Table:
        """The table without one of its rows."""
        return replace(self, rows=self.rows[:place] + self.rows[place + 1 :])

    def without_column(self, place: int) -> Table:
        """The table without one of its columns."""
        return replace(
            self,
            columns=self.columns[:place] + self.columns[place + 1 :],
            rows=tuple(row[:place] + row[place + 1 :] for row in self.rows),
        )

    def to_json(self) -> dict[str, Any]:
        """The table as JSON takes it."""
        columns = [[column.name, column.type, column.family] for column in self.columns]
        return {"name": self.name, "columns": columns, "rows": [list(row) for row in self.rows]}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Table:
        """The table that `to_json` wrote."""
        return cls(
            raw["name"],
            tuple(Column(*column) for column in raw["columns"]),
            tuple(tuple(row) for row in raw["rows"]),
        )


def quote(name: str) -> str:
    """The name as an SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def _cell(value: str | None, column: Column) -> str:
    if value is None:
        return f"CAST(NULL AS {column.type})"
    if column.family in ("array", "struct", "map"):
        return f"CAST({value} AS {column.type})"
    return value if value.startswith("CAST(") else f"CAST({value} AS {column.type})"


# -- values -------------------------------------------------------------------------------------

_LIMITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_DECIMALS = ((5, 2), (10, 0), (18, 0), (18, 2), (18, 18), (20, 5), (38, 0), (38, 10), (38, 37))
_COLLATIONS = ("UTF8_LCASE", "UNICODE_CI", "UNICODE", "UTF8_BINARY_RTRIM", "UTF8_LCASE_RTRIM")
_DAY_TIMES = ("day to second", "hour to second", "day")
STRUCT = "struct<x: int, y: double, n: string>"

TYPES: dict[str, tuple[str, ...]] = {
    "int": tuple(_LIMITS),
    "decimal": tuple(f"decimal({p},{s})" for p, s in _DECIMALS),
    "float": ("float", "double"),
    "string": ("string",),
    "collated": tuple(f"string collate {name}" for name in _COLLATIONS),
    "binary": ("binary",),
    "boolean": ("boolean",),
    "date": ("date",),
    "timestamp": ("timestamp",),
    "ntz": ("timestamp_ntz",),
    "time": ("time(6)", "time(3)"),
    "daytime": tuple(f"interval {fields}" for fields in _DAY_TIMES),
    "array": ("array<int>", "array<double>", "array<string>"),
    "struct": (STRUCT,),
    "map": ("map<string, int>",),
}
"""The families of types and their members. Spark cannot send a year-month interval to Python, so
that these occur inside predicates only."""

_COMMON: dict[str, tuple[str, ...]] = {
    "int": ("'0'", "'1'", "'2'", "'3'", "'4'", "'-1'", "'7'", "'100'"),
    "float": ("'0.0'", "'1.0'", "'1.5'", "'2.0'", "'0.1'", "'0.3'", "'-1.0'", "'NaN'", "'-0.0'"),
    "string": ("''", "'a'", "'A'", "'ab'", "'abcdefgh'", "'abcdefghi'", "'abcdefghj'", "'1'"),
    "binary": ("X''", "X'61'", "X'6162'", "X'00'", "X'0000'", "X'FF'", "X'6162636465666768'"),
    "boolean": ("true", "false"),
    "date": ("'2026-03-28'", "'2026-03-29'", "'2026-03-30'", "'2026-04-01'", "'2018-11-04'"),
    "timestamp": (
        "'2026-03-28 03:00:00'",
        "'2026-03-29 01:59:59.999999'",
        "'2026-03-29 03:00:00'",
        "'2026-03-29 03:00:10'",
        "'2026-03-30 03:00:00'",
        "'2018-11-03 23:30:00'",
        "'2018-11-04 01:00:00'",
        "'2026-10-25 02:30:00'",
    ),
    "time": ("'00:00:00'", "'12:00:00'", "'12:00:00.5'", "'23:59:59.999'"),
    "daytime": (
        "INTERVAL '0 00:00:00' DAY TO SECOND",
        "INTERVAL '0 00:00:10' DAY TO SECOND",
        "INTERVAL '1 00:00:00' DAY TO SECOND",
        "INTERVAL '-1 02:03:04.5' DAY TO SECOND",
        "INTERVAL '2 00:00:00.000001' DAY TO SECOND",
    ),
}
_RARE: dict[str, tuple[str, ...]] = {
    "float": ("'NaN'", "'Infinity'", "'-Infinity'", "'16777217'", "'1e38'", "'1e-45'"),
    "string": ("'ä'", "'Ä'", "'a '", "'%'", "'日本'", "'ß'", "'abcdefgh\\u0000'", "'2026-03-29'"),
    "binary": ("X'FFFFFFFFFFFFFFFF'", "X'6162636465666769'", "X'6162636465666768FF'"),
    "boolean": (),
    "date": ("'1970-01-01'", "'0001-01-01'", "'9999-12-31'", "'1582-10-15'", "'1582-10-04'"),
    "timestamp": (
        "'1969-12-31 23:59:59.5'",
        "'0001-01-01 00:00:00'",
        "'9999-12-31 23:59:59.999999'",
        "'1582-10-04 12:00:00'",
        "'1893-03-31 23:53:28'",
    ),
    "time": ("'23:59:59.999999'", "'00:00:00.000001'"),
    "daytime": (
        "INTERVAL '106751991 04:00:54.775807' DAY TO SECOND",
        "INTERVAL '-106751991 04:00:54.775807' DAY TO SECOND",
    ),
}


def _decimals(kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    precision, scale = (int(part) for part in kind[len("decimal(") : -1].split(","))
    one, most = 10**scale, 10**precision - 1
    common = [0, one, 2 * one, 3 * one, -one, one // 10, one // 4, 1, 2]
    rare = [most, -most, most - 1, one + 1, most // 2]

    def texts(values: Sequence[int]) -> tuple[str, ...]:
        kept = dict.fromkeys(value for value in values if abs(value) <= most)
        return tuple(f"'{_decimal(value, scale)}'" for value in kept)

    return texts(common), texts(rare)


def _decimal(value: int, scale: int) -> str:
    digits = f"{abs(value):0{scale + 1}d}"
    point = len(digits) - scale
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[:point]}.{digits[point:]}" if scale else f"{sign}{digits}"


def values_of(column_type: str, family: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ordinary values of a type, and rare ones such as its limits."""
    if family == "decimal":
        return _decimals(column_type)
    if family == "int":
        bits = _LIMITS[column_type]
        most = 2**bits
        limits = (most - 1, most - 2, -most, 1 - most)
        return _COMMON["int"], tuple(f"'{value}'" for value in limits)
    if family == "array":
        return _arrays(column_type), ("array()",)
    if family == "struct":
        return _STRUCTS, ("named_struct('x', NULL, 'y', NULL, 'n', NULL)",)
    if family == "map":
        return ("map('a', 1)", "map('a', 1, 'b', 2)", "map()"), ("map('a', NULL)",)
    name = {"collated": "string", "ntz": "timestamp"}.get(family, family)
    common, rare = _COMMON[name], _RARE[name]
    if family == "collated":
        rare += ("'AB'", "'Abcdefghi'", "'i\\u0307'", "'İ'")
    if column_type == "time(3)":
        rare = ()
    if column_type == "interval hour to second":
        # Limits of the narrower interval: in ANSI mode the cast of a longer one raises.
        rare = ()
    return common, rare


def _arrays(column_type: str) -> tuple[str, ...]:
    if column_type == "array<string>":
        return "array('a', 'b')", "array('a')", "array('A', NULL)"
    if column_type == "array<double>":
        return "array(1.0D, 2.0D)", "array(DOUBLE('NaN'))", "array(-0.0D, NULL)", "array(0.0D)"
    return "array(1, 2)", "array(1)", "array(3, NULL, 1)", "array(2)"


_STRUCTS = (
    "named_struct('x', 1, 'y', 1.0D, 'n', 'a')",
    "named_struct('x', 2, 'y', 0.0D, 'n', 'A')",
    "named_struct('x', 2, 'y', -0.0D, 'n', 'A')",
    "named_struct('x', 3, 'y', DOUBLE('NaN'), 'n', 'ab')",
    "named_struct('x', 1, 'y', 1.5D, 'n', NULL)",
)


# -- tables -------------------------------------------------------------------------------------

_PLAIN_NAMES = ("k", "x", "y", "v", "w", "t", "u", "price", "name", "at", "zone", "item", "flag")
_ODD_NAMES = (
    "odd name", "a.b", "tick`s", "select", "größe", "from", "Mixed", "time", "interval", "date",
    "array", "1st", "_", "$x", "struct", "end", "value", "key", "s0_0", "c_0", "k_0",
)  # fmt: skip
_QUALIFIERS = (("a", "b"), ("r", "s"), ("orders", "rides"), ("Left1", "right1"))
_ODD_QUALIFIERS = (("x", "y"), ("k", "select"), ("odd name", "b"), ("name", "at"), ("v", "größe"))
_FAMILY_WEIGHTS = {
    "int": 5, "decimal": 3, "float": 3, "string": 3, "collated": 1, "binary": 1, "boolean": 1,
    "date": 2, "timestamp": 3, "ntz": 1, "time": 1, "daytime": 1, "array": 1, "struct": 1, "map": 1,
}  # fmt: skip


def random_tables(
    rng: Random,
    count: int = 2,
    rows: int = 12,
    columns: int = 9,
    families: Sequence[str] = (),
    odd: float = 0.25,
    rare: float = 0.5,
) -> tuple[Table, ...]:
    """So many tables that draw from the same values; the families are chosen if not given.

    `odd` is how likely odd names are, `rare` how likely a column has rare values.
    """
    chosen = list(families) or rng.choices(
        list(_FAMILY_WEIGHTS), list(_FAMILY_WEIGHTS.values()), k=columns
    )
    if count == 2:
        qualifiers = rng.choice(_ODD_QUALIFIERS if rng.random() < odd else _QUALIFIERS)
    else:
        qualifiers = tuple("rstuvw"[:count])  # type: ignore[assignment]
    pools: dict[str, list[str]] = {}
    made = []
    for qualifier in qualifiers:
        described = [Column(ROW, "int", "int")]
        taken = {ROW}
        for family in chosen:
            if not families and rng.random() < 0.2:
                family = rng.choice(chosen)
            name = _name(rng, taken, odd, qualifiers)
            kind = rng.choice(TYPES[family])
            described.append(Column(name, kind, family))
            pools.setdefault(kind, _pool(rng, kind, family, rare))
        cells = [
            (str(number), *(_value(rng, pools[column.type]) for column in described[1:]))
            for number in range(rows)
        ]
        made.append(Table(qualifier, tuple(described), tuple(cells)))
    return tuple(made)


def _pool(rng: Random, kind: str, family: str, rare: float) -> list[str]:
    common, limits = values_of(kind, family)
    pool = rng.sample(common, min(len(common), rng.randint(3, 6)))
    if limits and rng.random() < rare:
        pool += rng.sample(limits, min(len(limits), rng.randint(1, 2)))
    return pool


def _value(rng: Random, pool: Sequence[str]) -> str | None:
    return None if rng.random() < 0.08 else rng.choice(pool)


def _name(rng: Random, taken: set[str], odd: float, qualifiers: Sequence[str]) -> str:
    while True:
        name = rng.choice(_PLAIN_NAMES)
        if rng.random() < odd / 2:
            name = rng.choice((*_ODD_NAMES, *qualifiers))
        if name.casefold() not in taken:
            taken.add(name.casefold())
            return name
