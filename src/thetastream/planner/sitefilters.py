"""Conditions on one stream as filters that its site evaluates, where both mean exactly the same.

Spark evaluates all of them again, so that a condition that stays behind costs bytes and nothing
else. What is sent must therefore never drop a tuple that Spark would keep.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from thetastream.planner.expression import (
    MIRROR,
    And,
    Between,
    Boolean,
    Column,
    Comparison,
    Expr,
    Negative,
    Not,
    Number,
    NumberKind,
    Opaque,
    Or,
)
from thetastream.spec import ColumnSpec

_OPERATORS = {"=": "=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_TEXT = re.compile(r"'([^'\\]*)'")
"""A text literal in which no character stands for another."""
_MOST_TEXT = 1_000
_EXACT_FLOAT = 2**53
"""Larger whole numbers are not all floats."""

Filter = dict[str, Any]


def site_filter(conjuncts: Iterable[Expr], columns: Sequence[ColumnSpec]) -> Filter | None:
    """The filter of those conjuncts, over one stream's columns, that a site can evaluate."""
    parts = [found for item in conjuncts if (found := _condition(item, columns)) is not None]
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else {"op": "and", "of": parts}


def show_filter(found: Filter) -> str:
    """The filter for people."""
    match found["op"]:
        case "and" | "or" as op:
            return f" {op.upper()} ".join(f"({show_filter(part)})" for part in found["of"])
        case "not":
            return f"NOT ({show_filter(found['of'][0])})"
        case op:
            return f"{found['left']['column']} {op} {found['right']['value']!r}"


def _condition(expr: Expr, columns: Sequence[ColumnSpec]) -> Filter | None:
    match expr:
        case And(items=items) | Or(items=items):
            parts = [_condition(item, columns) for item in items]
            if any(part is None for part in parts):
                return None
            return {"op": "and" if isinstance(expr, And) else "or", "of": parts}
        case Not(expr=inner):
            part = _condition(inner, columns)
            return None if part is None else {"op": "not", "of": [part]}
        case Between(expr=inner, low=low, high=high):
            both = (
                Comparison(op=">=", left=inner, right=low),
                Comparison(op="<=", left=inner, right=high),
            )
            return _condition(And(items=both), columns)
        case Comparison(op=op, left=Column() as column, right=right):
            return _comparison(op, column, right, columns)
        case Comparison(op=op, left=left, right=Column() as column):
            return _comparison(MIRROR[op], column, left, columns)
        case _:
            return None


def _comparison(
    op: str, column: Column, other: Expr, columns: Sequence[ColumnSpec]
) -> Filter | None:
    spec = columns[column.index]
    if column.fields or spec.sql is not None or op not in _OPERATORS:
        return None
    value = _value(other, spec.type)
    if value is None:
        return None
    return {"op": _OPERATORS[op], "left": {"column": spec.name}, "right": {"value": value}}


def _value(expr: Expr, kind: str) -> int | float | str | bool | None:
    """The literal as a value of the column's type, if it is one exactly."""
    match expr:
        case Boolean(value=truth) if kind == "boolean":
            return truth
        case Opaque(parts=(str() as text,)) if kind == "string":
            found = _TEXT.fullmatch(text)
            return None if found is None or len(found[1]) > _MOST_TEXT else found[1]
        case Negative(expr=Number() as number):
            return _number(-number.value, number.kind, kind)
        case Number(value=value, kind=number_kind):
            return _number(value, number_kind, kind)
        case _:
            return None


def _number(value: Fraction, literal: NumberKind, kind: str) -> int | float | None:
    if kind in _BITS:
        most = 1 << (_BITS[kind] - 1)
        whole = literal is NumberKind.INTEGER and value.denominator == 1
        return int(value) if whole and -most <= value < most else None
    if kind == "double":
        if value.denominator == 1 and abs(value) <= _EXACT_FLOAT:
            return float(value)
        # Only what a float is exactly: Spark may round a decimal in its own way.
        return float(value) if Fraction(float(value)) == value else None
    if kind == "float":
        single = struct.unpack("f", struct.pack("f", float(value)))[0] if abs(value) < 1e30 else 0.0
        return float(single) if Fraction(single) == value else None
    return None
