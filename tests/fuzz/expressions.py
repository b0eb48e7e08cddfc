"""Random expressions over one table, by the family of their type.

An expression is a tree that knows the family of each part, so that a smaller one of the same kind
can take its place when a failure is shrunk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tests.fuzz.tables import Column, Table, quote
from thetastream.planner.functions import words


@dataclass(frozen=True)
class Node:
    """A piece of SQL with holes that hold other pieces."""

    family: str
    parts: tuple[str | Node, ...]

    def sql(self) -> str:
        """The text."""
        return "".join(part if isinstance(part, str) else part.sql() for part in self.parts)

    @property
    def children(self) -> list[Node]:
        """The pieces in its holes."""
        return [part for part in self.parts if isinstance(part, Node)]

    def replaced(self, old: Node, new: Node) -> Node:
        """The tree with one piece, this very object, in place of another."""
        if self is old:
            return new
        parts = tuple(
            part if isinstance(part, str) else part.replaced(old, new) for part in self.parts
        )
        same = all(one is two for one, two in zip(parts, self.parts, strict=True))
        return self if same else Node(self.family, parts)

    def walk(self) -> Iterator[Node]:
        """The node and all below it, the largest first."""
        yield self
        for child in self.children:
            yield from child.walk()


def filled(family: str, template: str, *children: Node) -> Node:
    """A node from a text with `?` for each child in turn."""
    texts = template.split("?")
    parts: list[str | Node] = [texts[0]]
    for child, text in zip(children, texts[1:], strict=True):
        parts += [child, text]
    return Node(family, tuple(part for part in parts if part != ""))


LITERALS: dict[str, tuple[str, ...]] = {
    "int": ("0", "1", "2", "3", "-1", "5L", "2S", "1Y", "100"),
    "decimal": ("0.5", "1.25", "0.1", "2BD", "0.000000000000000001", "-0.25", "1.0"),
    "float": ("0.5D", "1.0D", "0.1F", "1e0", "-0.0D", "DOUBLE('NaN')", "2.5D"),
    "string": ("'a'", "'ab'", "''", "'abcdefghi'", "'A'", "'1'"),
    "collated": ("'A' COLLATE UTF8_LCASE", "'AB' COLLATE UNICODE_CI"),
    "binary": ("X'61'", "X''"),
    "boolean": ("true", "false"),
    "date": ("DATE '2026-03-29'", "DATE '2026-03-30'"),
    "timestamp": ("TIMESTAMP '2026-03-29 03:00:00'", "TIMESTAMP '2018-11-04 01:00:00'"),
    "ntz": ("TIMESTAMP_NTZ '2026-03-29 03:00:00'",),
    "time": ("TIME '12:00:00'",),
    "daytime": (
        "INTERVAL '10' SECOND",
        "INTERVAL '1' DAY",
        "INTERVAL '1 02:03:04.5' DAY TO SECOND",
        "INTERVAL 10 SECONDS",
        "INTERVAL 1 DAY",
        "INTERVAL '25' HOUR",
    ),
    "yearmonth": ("INTERVAL '1' MONTH", "INTERVAL '1-2' YEAR TO MONTH"),
}

_LENGTHS = (
    "INTERVAL 10 SECONDS", "INTERVAL '1' DAY", "INTERVAL 1 HOUR", "INTERVAL '0.5' SECOND",
    "INTERVAL 2 DAYS", "INTERVAL '1 00:00:00' DAY TO SECOND", "INTERVAL 1 MONTH", "INTERVAL 1 WEEK",
)  # fmt: skip

# What makes a value of a family out of others: `?int` is a hole for an expression, `!int` for a
# literal. All of it is written so that it rarely raises.
_MADE: dict[str, tuple[str, ...]] = {
    "int": (
        "?int + !int", "?int - !int", "-?int", "abs(?int)", "?int * 2", "CAST(?int AS BIGINT)",
        "coalesce(?int, !int)", "CASE WHEN ?boolean THEN ?int ELSE ?int END", "length(?string)",
        "if(?boolean, ?int, !int)", "pmod(?int, 5)", "?int % 4", "?int div 2", "year(?date)",
        "greatest(?int, ?int)", "nullif(?int, !int)", "?int & 3", "?int | 1", "sign(?int)",
        "CAST(?float AS INT)", "month(?timestamp)", "datediff(?date, DATE '2026-03-29')",
        "try_add(?int, !int)", "bit_count(?int)", "?int << 1", "~?int", "(?int)", "+?int",
        "hour(?timestamp)", "CAST(?boolean AS INT)", "cardinality(array(?int, 1))",
        "ascii(?string)",
        "element_at(array(?int, !int), 1)", "array(?int, 1)[0]", "named_struct('q', ?int).q",
        "unix_date(?date)", "least(?int, !int)", "round(?int, -1)", "CAST(?int AS SMALLINT)",
    ),
    "decimal": (
        "?decimal + !decimal", "?decimal - !int", "-?decimal", "abs(?decimal)", "?decimal * 2",
        "CAST(?int AS DECIMAL(20,2))", "round(?decimal, 1)", "coalesce(?decimal, 0)",
        "?decimal + ?int", "CAST(?decimal AS DECIMAL(38,6))", "?decimal / 2", "?int + 0.5",
        "CASE WHEN ?boolean THEN ?decimal END", "floor(?decimal)", "(?decimal)",
    ),
    "float": (
        "?float + !float", "?float - 1", "-?float", "abs(?float)", "?float / 2", "?float * 0.1D",
        "CAST(?int AS DOUBLE)", "CAST(?decimal AS DOUBLE)", "nanvl(?float, 1.0D)", "round(?float)",
        "coalesce(?float, ?float)", "CAST(?float AS FLOAT)", "sqrt(abs(?float))", "?int / 2.0D",
        "CASE WHEN ?boolean THEN ?float ELSE 0.0D END", "?float + ?int", "greatest(?float, 1.0D)",
    ),
    "string": (
        "upper(?string)", "lower(?string)", "?string || 'b'", "concat(?string, ?string)",
        "substring(?string, 1, 2)", "trim(?string)", "coalesce(?string, '')", "left(?string, 1)",
        "CAST(?int AS STRING)", "CASE WHEN ?boolean THEN ?string ELSE 'a' END", "reverse(?string)",
        "CAST(?date AS STRING)", "substr(?string, 2)", "rpad(?string, 3, 'x')", "hex(?binary)",
        "replace(?string, 'a', 'b')", "CAST(?decimal AS STRING)", "date_format(?timestamp, 'y-M')",
    ),
    "collated": (
        "?string COLLATE UTF8_LCASE", "?string COLLATE UNICODE_CI", "lower(?collated)",
        "collate(?string, 'UTF8_LCASE')", "coalesce(?collated, ?collated)",
    ),
    "binary": ("CAST(?string AS BINARY)", "unhex(hex(?binary))", "coalesce(?binary, X'00')"),
    "boolean": (
        "?int > !int", "?int = !int", "?string = !string", "?int IS NULL", "NOT ?boolean",
        "?float > !float", "?string LIKE 'a%'", "?int IN (1, 2, NULL)", "?date >= !date",
        "?int BETWEEN 0 AND 3", "?string IS NOT NULL", "isnan(?float)", "?boolean AND ?boolean",
        "?boolean OR ?boolean", "?int <=> !int", "?decimal < !decimal", "?timestamp > !timestamp",
        "?string IN ('a', 'ab')", "?string LIKE '_a%'", "?boolean = true", "?int <> !int",
        "exists(array(1, 2), z -> z = ?int)", "?boolean IS TRUE", "?collated = 'A'",
        "startswith(?string, 'a')", "?int NOT IN (0, 1)", "?string ILIKE 'A%'",
        "?daytime > !daytime", "?ntz < !ntz", "?time <= !time", "?binary = !binary",
        "array_contains(array(1, 3), ?int)", "contains(?string, 'b')", "coalesce(?boolean, false)",
        "CASE ?int WHEN 1 THEN true WHEN 2 THEN false END",
    ),
    "date": (
        "?date + 1", "?date - 1", "date_add(?date, 2)", "CAST(?timestamp AS DATE)",
        "?date + INTERVAL '1' DAY", "last_day(?date)", "trunc(?date, 'MONTH')",
        "add_months(?date, 1)", "coalesce(?date, !date)", "date_sub(?date, 1)",
    ),
    "timestamp": (
        "?timestamp + ~", "?timestamp - ~", "date_trunc('hour', ?timestamp)",
        "CAST(?date AS TIMESTAMP)", "coalesce(?timestamp, !timestamp)", "~ + ?timestamp",
        "CAST(?ntz AS TIMESTAMP)", "timestampadd(HOUR, 1, ?timestamp)",
    ),
    "ntz": (
        "?ntz + ~", "?ntz - ~", "CAST(?timestamp AS TIMESTAMP_NTZ)", "CAST(?date AS TIMESTAMP_NTZ)",
    ),
    "time": ("coalesce(?time, !time)",),
    "daytime": (
        "?timestamp - !timestamp", "-?daytime", "?daytime + !daytime", "?ntz - !ntz",
        "coalesce(?daytime, !daytime)", "!daytime * pmod(?int, 3)", "?date - !date",
        "CAST(?daytime AS INTERVAL DAY TO SECOND)",
    ),
    "yearmonth": (
        "make_ym_interval(pmod(?int, 4), 1)", "INTERVAL '1' MONTH * pmod(?int, 5)",
        "CAST(pmod(?int, 3) AS INTERVAL YEAR)",
    ),
}  # fmt: skip

_HOLE = re.compile(r"([?!])(int|decimal|float|string|collated|binary|boolean|date|timestamp|ntz"
                   r"|time|daytime|yearmonth)\b|~(?= |$)")  # fmt: skip


class Expressions:
    """Random expressions over one table."""

    def __init__(self, rng: Random, table: Table, others: Sequence[Table] = ()) -> None:
        self.rng = rng
        self.table = table
        self._others = others

    def has(self, family: str) -> bool:
        """Whether the table has something of the family to begin with."""
        return bool(self._leaves(family)) or family == "yearmonth"

    def value(self, family: str, depth: int) -> Node:
        """An expression of the family; a literal where the table has nothing of it."""
        plain = depth <= 0 or (self.rng.random() < 0.45 and family != "yearmonth")
        if plain or family not in _MADE:
            leaves = self._leaves(family)
            if leaves and (family not in LITERALS or self.rng.random() < 0.95):
                return self.rng.choice(leaves)
            if depth <= 0 or not leaves:
                return self.literal(family)
        templates = [text for text in _MADE[family] if self._fits(text)]
        if not templates:
            return self.value(family, 0)
        return self._made(family, self.rng.choice(templates), depth)

    def literal(self, family: str) -> Node:
        """A literal of the family, now and then NULL."""
        if family not in LITERALS:
            return Node(family, ("NULL",))
        if self.rng.random() < 0.02:
            return Node(family, ("NULL",))
        return Node(family, (self.rng.choice(LITERALS[family]),))

    def column(self, column: Column, *fields: str) -> str:
        """A name that means the column, written in one of the ways that Spark takes."""
        name = self._spelled(column.name)
        path = ".".join((name, *map(self._spelled, fields)))
        if self.rng.random() < 0.15 and self._alone(column.name):
            return path
        return f"{self._spelled(self.table.name)}.{path}"

    def _spelled(self, name: str) -> str:
        if not name.isascii() or not name.isidentifier() or self.rng.random() < 0.1:
            return quote(name)
        if name in _KEYWORDS:
            return quote(name)
        return name.upper() if self.rng.random() < 0.05 else name

    def _alone(self, name: str) -> bool:
        taken = [c.name.casefold() for table in self._others for c in table.columns]
        return name.casefold() not in taken

    def _fits(self, template: str) -> bool:
        wanted = [found.group(2) for found in _HOLE.finditer(template) if found.group(1) == "?"]
        return all(self.has(family) or family == "boolean" for family in wanted)

    def _made(self, family: str, template: str, depth: int) -> Node:
        parts: list[str | Node] = []
        place = 0
        for found in _HOLE.finditer(template):
            parts.append(template[place : found.start()])
            place = found.end()
            if found.group(1) is None:
                parts.append(self.rng.choice(_LENGTHS))
            elif found.group(1) == "!":
                parts.append(self.literal(found.group(2)))
            else:
                parts.append(bracketed(self.value(found.group(2), depth - 1)))
        parts.append(template[place:])
        return Node(family, tuple(part for part in parts if part != ""))

    def _leaves(self, family: str) -> list[Node]:
        found = [Node(family, (self.column(column),)) for column in self.table.of(family)]
        for column in self.table.of("struct"):
            if family in _FIELDS:
                found.append(Node(family, (self.column(column, _FIELDS[family]),)))
        for column in self.table.of("array"):
            if _ELEMENTS[column.type] == family:
                found.append(Node(family, (f"get({self.column(column)}, 0)",)))
        for column in self.table.of("map"):
            if family == "int":
                found.append(Node(family, (f"try_element_at({self.column(column)}, 'a')",)))
        return found


def bracketed(node: Node) -> Node:
    """The node as it can stand inside any other."""
    text = node.sql()
    if re.fullmatch(r"[\w.`$]+|[a-z_]+\(.*\)|'[^']*'", text) and text.count("(") <= 1:
        return node
    return Node(node.family, ("(", node, ")"))


_KEYWORDS = words(
    """select from interval date array struct time end value key order where not null true false
    case when then else and or in is like between exists cast left right"""
)
_FIELDS = {"int": "x", "float": "y", "string": "n"}
_ELEMENTS = {"array<int>": "int", "array<double>": "float", "array<string>": "string"}
