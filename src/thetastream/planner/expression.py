"""The planner's own expression tree: as much of SQL as classification needs to look into.

Everything else is `Opaque`: finished Spark SQL with holes where columns stand. A tree can therefore
be written over one stream's columns, over the columns of a result, or with stream names, and it
never depends on the parser's classes. Parentheses are not nodes: rendering puts them where Spark's
precedence asks for them.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any


class Level(enum.IntEnum):
    """Spark's operator precedence, loosest first."""

    OR = 1
    AND = 2
    NOT = 3
    PREDICATE = 4
    COMPARISON = 5
    BIT_OR = 6
    BIT_XOR = 7
    BIT_AND = 8
    SHIFT = 9
    ADDITIVE = 10
    MULTIPLICATIVE = 11
    UNARY = 12
    PRIMARY = 13


class NumberKind(enum.StrEnum):
    """How Spark types a numeric literal; decides in which arithmetic an offset is added."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    DOUBLE = "double"


@dataclass(frozen=True, kw_only=True)
class Expr:
    """A node; the span is where it stands in the user's text."""

    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)

    @property
    def level(self) -> Level:
        return _LEVELS.get(type(self), Level.PRIMARY)

    def children(self) -> tuple[Expr, ...]:
        """The expressions that it is made of, in the order of the text."""
        fields = (value if isinstance(value, tuple) else (value,) for value in vars(self).values())
        return tuple(item for items in fields for item in items if isinstance(item, Expr))


@dataclass(frozen=True, kw_only=True)
class Column(Expr):
    """A column of one stream, by position, and a path of struct fields into it."""

    stream: int
    index: int
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Slot(Expr):
    """Something of a query that is not of one row: an aggregate, or the time window."""

    number: int
    """Which of the query's aggregates, from 0; else `WINDOW`, or from `FIRST_GROUP` downwards."""
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Number(Expr):
    """A numeric literal."""

    value: Fraction
    kind: NumberKind
    sql: str


@dataclass(frozen=True, kw_only=True)
class Interval(Expr):
    """An interval literal of a known length."""

    months: int
    microseconds: int
    sql: str


@dataclass(frozen=True, kw_only=True)
class Boolean(Expr):
    """TRUE or FALSE."""

    value: bool


@dataclass(frozen=True, kw_only=True)
class Cast(Expr):
    """CAST(expr AS type), for the casts that classification looks through."""

    expr: Expr
    type: str


@dataclass(frozen=True, kw_only=True)
class Abs(Expr):
    """abs(expr)."""

    expr: Expr


@dataclass(frozen=True, kw_only=True)
class Negative(Expr):
    """-expr."""

    expr: Expr


@dataclass(frozen=True, kw_only=True)
class Additive(Expr):
    """left + right or left - right."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, kw_only=True)
class Comparison(Expr):
    """left op right, with op one of = <> < <= > >= <=>."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, kw_only=True)
class Between(Expr):
    """expr BETWEEN low AND high."""

    expr: Expr
    low: Expr
    high: Expr


@dataclass(frozen=True, kw_only=True)
class Not(Expr):
    """NOT expr."""

    expr: Expr


@dataclass(frozen=True, kw_only=True)
class And(Expr):
    """A conjunction of two or more."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, kw_only=True)
class Or(Expr):
    """A disjunction of two or more."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, kw_only=True)
class Opaque(Expr):
    """Spark SQL that is only carried along, with its columns as holes."""

    parts: tuple[str | Expr, ...]
    """Text and columns; in an expression that replaces another one, operands as well."""
    binding: Level = Level.PRIMARY
    boolean: bool | None = None
    """Whether it is a truth value by its form; None when only its type can tell."""
    operation: str = field(default="", compare=False)
    """The name of the function or the sign of the operator; empty if nothing is known of it."""
    frame: tuple[str | Expr, ...] = field(default=(), compare=False)
    """The same text once more, with a hole for each operand."""

    @property
    def level(self) -> Level:
        return self.binding

    def children(self) -> tuple[Expr, ...]:
        """The expressions in its parts; those of the frame are the same ones, differently cut."""
        return tuple(part for part in self.parts if isinstance(part, Expr))


_LEVELS: dict[type[Expr], Level] = {
    Negative: Level.UNARY,
    Additive: Level.ADDITIVE,
    Comparison: Level.COMPARISON,
    Between: Level.PREDICATE,
    Not: Level.NOT,
    And: Level.AND,
    Or: Level.OR,
}

WINDOW = -1
"""The slot of the time window."""
FIRST_GROUP = -2
"""The slot of the first grouped expression; the others count down from it."""

INVERSE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
"""NOT (a op b): right in three-valued logic, and for NaN because Spark's order is total."""

MIRROR = {"=": "=", "<>": "<>", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""a op b as b op' a."""


def nodes(expr: Expr) -> Iterator[Expr]:
    """The expression and all that it is made of."""
    yield expr
    for child in expr.children():
        yield from nodes(child)


def columns(expr: Expr) -> Iterator[Column]:
    """Every column that the expression reads, with repetition."""
    return (node for node in nodes(expr) if isinstance(node, Column))


def streams_of(expr: Expr) -> frozenset[int]:
    """The streams that the expression reads."""
    return frozenset(column.stream for column in columns(expr))


def conjunction(items: Sequence[Expr]) -> Expr:
    """All of them in one; TRUE without any."""
    if not items:
        return Boolean(value=True)
    return items[0] if len(items) == 1 else And(items=tuple(items))


def map_columns(expr: Expr, change: Callable[[Column], Column]) -> Expr:
    """The expression over other columns."""
    if isinstance(expr, Column):
        return change(expr)

    def new(value: Any) -> Any:
        if isinstance(value, Expr):
            return map_columns(value, change)
        return tuple(map(new, value)) if isinstance(value, tuple) else value

    found = {item.name: new(getattr(expr, item.name)) for item in dataclasses.fields(expr)}
    return type(expr)(**found)


def quote(name: str) -> str:
    """The name as a Spark identifier."""
    return "`" + name.replace("`", "``") + "`"


def render(expr: Expr, name: Callable[[Any], str]) -> str:
    """Spark SQL for the tree, with `name` deciding how a column or a slot is written."""

    def write(node: Expr, at_least: Level) -> str:
        text = _text(node, write, name)
        return f"({text})" if node.level < at_least else text

    return write(expr, Level.OR)


def _text(node: Expr, write: Callable[[Expr, Level], str], name: Callable[[Any], str]) -> str:
    match node:
        case Column() | Slot():
            return name(node)
        case Number() | Interval():
            return node.sql
        case Boolean():
            return "TRUE" if node.value else "FALSE"
        case Cast():
            return f"CAST({write(node.expr, Level.OR)} AS {node.type})"
        case Abs():
            return f"ABS({write(node.expr, Level.OR)})"
        case Negative():
            # Two signs in a row would start a comment.
            tighter = Level.PRIMARY if isinstance(node.expr, Negative) else Level.UNARY
            return f"-{write(node.expr, tighter)}"
        case Additive():
            left = write(node.left, Level.ADDITIVE)
            return f"{left} {node.op} {write(node.right, Level.MULTIPLICATIVE)}"
        case Comparison():
            # Operands one level tighter than Spark needs: chained comparisons stay readable.
            left = write(node.left, Level.BIT_OR)
            return f"{left} {node.op} {write(node.right, Level.BIT_OR)}"
        case Between():
            ends = [write(end, Level.BIT_OR) for end in (node.expr, node.low, node.high)]
            return "{} BETWEEN {} AND {}".format(*ends)
        case Not():
            return f"NOT {write(node.expr, Level.PREDICATE)}"
        case And():
            return " AND ".join(write(item, Level.NOT) for item in node.items)
        case Or():
            return " OR ".join(write(item, Level.AND) for item in node.items)
        case Opaque():
            # An operand stands where it stood in the text, which has the parentheses it needs.
            return "".join(
                part if isinstance(part, str) else _text(part, write, name) for part in node.parts
            )
        case _:
            raise TypeError(f"no SQL for {type(node).__name__}")
