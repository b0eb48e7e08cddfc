"""A predicate as a list of conjuncts, and what becomes of each."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from thetastream.errors import NotBooleanError
from thetastream.planner.expression import (
    INVERSE,
    Abs,
    Additive,
    And,
    Between,
    Boolean,
    Cast,
    Comparison,
    Expr,
    Interval,
    Level,
    Negative,
    Not,
    Number,
    Opaque,
    Or,
)
from thetastream.planner.names import at


class ConjunctClass(enum.StrEnum):
    """What a conjunct is to the join.

    >>> plan = ts.streams(orders=orders, rides=rides).explain("orders.x <> rides.x")
    >>> plan.conjuncts[0].kind is ts.ConjunctClass.RESIDUAL
    True
    """

    CONSTANT = "constant"
    """Reads no stream."""
    FILTER = "filter"
    """Reads one stream: evaluated before its tuples travel."""
    EQUALITY = "equality"
    """An expression of each stream, equal."""
    TIME = "time range"
    """Compares the event times: part of the window."""
    BAND = "band"
    """The difference of an expression of each stream lies between two bounds."""
    INEQUALITY = "inequality"
    """An expression of each stream, ordered."""
    RESIDUAL = "residual"
    """Anything else: Spark evaluates it on the candidate pairs."""


@dataclass(frozen=True, kw_only=True)
class Conjunct:
    """One conjunct of the predicate, as `explain()` reports it.

    >>> pair = ts.streams(orders=orders, rides=rides)
    >>> for conjunct in pair.explain("orders.x = rides.x AND orders.fare > 2").conjuncts:
    ...     print(conjunct.kind, conjunct.text)
    equality orders.x = rides.x
    filter orders.fare > 2
    """

    text: str
    kind: ConjunctClass
    handling: str
    streams: frozenset[int]


def split(predicate: Expr) -> list[Expr]:
    """The conjuncts of a predicate, normalised; TRUE leaves none."""
    found: list[Expr] = []
    stack = [predicate]
    while stack:
        node = stack.pop()
        match node:
            case And(items=items):
                stack.extend(reversed(items))
            case Not():
                pushed = _push(node)
                if pushed is None:
                    found.append(node)
                else:
                    stack.append(pushed)
            case Between(expr=expr, low=low, high=high):
                span = {"start": node.start, "end": node.end}
                stack.append(Comparison(op="<=", left=expr, right=high, **span))
                stack.append(Comparison(op=">=", left=expr, right=low, **span))
            case Boolean(value=True):
                pass
            case _:
                found.append(node)
    return list(dict.fromkeys(found))


def wrapped(conjunct: Expr, sql: str) -> str:
    """The text of a conjunct as it stands among others."""
    return f"({sql})" if conjunct.level < Level.NOT else sql


def conjoined(conjuncts: Iterable[Expr], render: Callable[[Expr], str]) -> str | None:
    """The text of all of them; None without any."""
    return " AND ".join(wrapped(item, render(item)) for item in conjuncts) or None


def require_boolean(conjunct: Expr, text: str) -> bool:
    """Whether the form alone shows a truth value; raises when it shows that there is none."""
    match conjunct:
        case Comparison() | Between() | Boolean():
            return True
        case And() | Or() | Not():
            certain = [require_boolean(child, text) for child in conjunct.children()]
            return all(certain)
        case Number() | Interval() | Additive() | Negative() | Abs():
            raise not_boolean(conjunct, text)
        case Opaque(boolean=truth):
            if truth is False:
                raise not_boolean(conjunct, text)
            return truth is True
        case Cast(type=name):
            if name.upper() != "BOOLEAN":
                raise not_boolean(conjunct, text, name.lower())
            return True
        case _:
            return False


def not_boolean(conjunct: Expr, text: str, found: str = "") -> NotBooleanError:
    """The error for a conjunct that is not a truth value."""
    what = f"is of type {found}" if found else "is not a condition"
    return NotBooleanError(
        f"this part of the predicate {what}; a join needs true or false",
        **at(text, conjunct),
        hint="compare it with something, or cast it to boolean",
    )


def _push(node: Not) -> Expr | None:
    """NOT moved inwards where that makes conjuncts; None where it does not."""
    span = {"start": node.start, "end": node.end}
    match node.expr:
        case Not(expr=inner):
            return inner
        case Or(items=items):
            return And(items=tuple(Not(expr=item, **span) for item in items), **span)
        case Comparison(op=op, left=left, right=right) if op in INVERSE:
            return Comparison(op=INVERSE[op], left=left, right=right, **span)
        case Boolean(value=value):
            return Boolean(value=not value, **span)
        case _:
            return None
