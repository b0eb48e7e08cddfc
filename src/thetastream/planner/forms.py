"""Comparisons read as a bound on the difference of two expressions, one of each stream.

`a <= b + 5`, `a - b <= 5` and `abs(a - b) <= 5` bound the same difference, but Spark computes them
differently (NaN, overflow, calendars), so a form remembers how it was written.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from fractions import Fraction

from thetastream.planner.expression import (
    MIRROR,
    Abs,
    Additive,
    Comparison,
    Expr,
    Interval,
    Negative,
    Number,
    streams_of,
)


class ConstantKind(enum.StrEnum):
    """In what an offset is counted: what a `NumberKind` says of a number, and two more."""

    NONE = "none"
    """There is no offset."""
    INTEGER = "integer"
    DECIMAL = "decimal"
    DOUBLE = "double"
    INTERVAL = "interval"
    """Microseconds."""


@dataclass(frozen=True)
class Constant:
    """A literal offset."""

    value: Fraction
    kind: ConstantKind


NOTHING = Constant(Fraction(0), ConstantKind.NONE)


@dataclass(frozen=True)
class End:
    """One end of a difference."""

    value: Fraction
    strict: bool


class Shape(enum.StrEnum):
    """How a comparison was written."""

    SUM = "sum"
    """Each side reads one stream: `a + c op b + d`."""
    DIFFERENCE = "difference"
    """One side subtracts: `a - b op c`, also under abs()."""


@dataclass(frozen=True)
class RangeForm:
    """low <= left - right <= high, with left over the first stream and right over the second."""

    source: Comparison
    shape: Shape
    left: Expr
    right: Expr
    low: End | None
    high: End | None
    kinds: frozenset[ConstantKind]
    """The kinds of the offsets, NONE left out."""
    op: str = ""
    """SUM: how the first of `whole` compares with the second."""
    whole: tuple[Expr, ...] = ()
    """SUM: both sides with their offsets."""
    subtracted: int = 1
    """DIFFERENCE: the stream whose expression is subtracted in the text."""
    nan_matches: bool = False
    """DIFFERENCE: whether a difference of NaN satisfies the text (NaN is larger than all)."""
    two_offsets: bool = False
    """Whether both sides have an offset, so that rounding happens on both."""


def constant(expr: Expr) -> Constant | None:
    """The value of a literal offset of fixed length; None for anything else."""
    match expr:
        case Number(value=value, kind=kind):
            return Constant(value, ConstantKind(kind.value))
        case Interval(months=0, microseconds=micros):
            return Constant(Fraction(micros), ConstantKind.INTERVAL)
        case Negative(expr=inner):
            found = constant(inner)
            return None if found is None else Constant(-found.value, found.kind)
        case Additive(op=op, left=left, right=right):
            one, two = constant(left), constant(right)
            interval = ConstantKind.INTERVAL
            if one is None or two is None or {one.kind, two.kind} != {interval}:
                return None
            value = one.value + two.value if op == "+" else one.value - two.value
            return Constant(value, interval)
        case _:
            return None


def strip(expr: Expr) -> tuple[Expr, Constant]:
    """The expression without a literal offset at its top, and the offset."""
    if isinstance(expr, Additive):
        right = constant(expr.right)
        if right is not None:
            sign = 1 if expr.op == "+" else -1
            return expr.left, Constant(sign * right.value, right.kind)
        left = constant(expr.left)
        if left is not None and expr.op == "+":
            return expr.right, left
    return expr, NOTHING


def range_form(node: Comparison) -> RangeForm | None:
    """The comparison as a bound on a difference; None if it is none."""
    if node.op not in ("<", "<=", ">", ">="):
        return None
    left, right = streams_of(node.left), streams_of(node.right)
    if len(left) == 1 and len(right) == 1 and left != right:
        return _sum(node)
    if not right:
        return _difference(node, node.op, node.left, node.right)
    if not left:
        return _difference(node, MIRROR[node.op], node.right, node.left)
    return None


def _sum(node: Comparison) -> RangeForm:
    op, first, second = node.op, node.left, node.right
    if streams_of(first) > streams_of(second) or min(streams_of(first)) > min(streams_of(second)):
        op, first, second = MIRROR[op], second, first
    left, c = strip(first)
    right, d = strip(second)
    kinds = frozenset({c.kind, d.kind} - {ConstantKind.NONE})
    if ConstantKind.INTERVAL in kinds and len(kinds) > 1:
        left, right, c, d, kinds = first, second, NOTHING, NOTHING, frozenset()
    end = End(d.value - c.value, op in ("<", ">"))
    upper = op in ("<", "<=")
    return RangeForm(
        source=node,
        shape=Shape.SUM,
        left=left,
        right=right,
        low=None if upper else end,
        high=end if upper else None,
        kinds=kinds,
        op=op,
        whole=(first, second),
        two_offsets=ConstantKind.NONE not in (c.kind, d.kind),
    )


def _difference(node: Comparison, op: str, expr: Expr, bound: Expr) -> RangeForm | None:
    limit = constant(bound)
    absolute = isinstance(expr, Abs)
    inner = expr.expr if isinstance(expr, Abs) else expr
    if limit is None or not isinstance(inner, Additive) or inner.op != "-":
        return None
    one, two = streams_of(inner.left), streams_of(inner.right)
    if len(one) != 1 or len(two) != 1 or one == two:
        return None
    upper = op in ("<", "<=")
    if absolute and not upper:
        return None
    end = End(limit.value, op in ("<", ">"))
    mirrored = End(-limit.value, end.strict)
    swapped = min(one) > min(two)
    low: End | None
    high: End | None
    if absolute:
        low, high = mirrored, end
    elif upper != swapped:
        low, high = None, mirrored if swapped else end
    else:
        low, high = mirrored if swapped else end, None
    return RangeForm(
        source=node,
        shape=Shape.DIFFERENCE,
        left=inner.right if swapped else inner.left,
        right=inner.left if swapped else inner.right,
        low=low,
        high=high,
        kinds=frozenset({limit.kind}),
        subtracted=0 if swapped else 1,
        nan_matches=not upper,
    )
