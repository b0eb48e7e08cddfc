"""Filters that a site evaluates, so that tuples that cannot match never travel.

A filter is JSON, checked against the stream's columns before it is used and never run as code:

    {"op": "and", "of": [
        {"op": ">=", "left": {"column": "fare"}, "right": {"value": 5}},
        {"op": "not", "of": [{"op": "is null", "of": [{"column": "zone"}]}]}]}

It means what it means in Spark: NULL is neither true nor false, a row is kept only when the filter
is true, and NaN equals itself and is larger than every other number. Timestamps are given in
microseconds since 1970 (UTC), dates as "2026-01-31", decimals as text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import date
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from thetastream.errors import SiteRequestError

Mask = Callable[[pa.RecordBatch], Any]
"""From a batch to a Boolean array, or a scalar, with NULL where nothing is known."""
Value = Callable[[pa.RecordBatch], Any]

MAX_DEPTH = 20
MAX_NODES = 500
MAX_TEXT = 10_000
"""Characters of a text that a column is compared with."""

MAX_DIGITS = 100
"""Characters of a decimal; a type has at most 38 digits."""

_EXACTLY = Context(prec=MAX_DIGITS, traps=[Inexact, InvalidOperation])
_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
_FLIPPED = {">": "<", ">=": "<="}
_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Filter:
    """A filter over the columns of one stream."""

    def __init__(self, described: object, schema: pa.Schema) -> None:
        """Raises SiteRequestError for anything that is not a filter over the schema."""
        self.columns: list[str] = []
        """The columns that it reads."""
        self._schema = schema
        self._left = MAX_NODES
        self._mask = self._condition(described, MAX_DEPTH)
        self._described = described

    def __call__(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Which rows are kept; never NULL."""
        mask = self._mask(batch)
        if isinstance(mask, pa.Scalar):
            mask = pa.repeat(mask, batch.num_rows)
        return pc.fill_null(mask, False)

    def __repr__(self) -> str:
        return f"Filter({json.dumps(self._described)})"

    # -- conditions -----------------------------------------------------------------------------

    def _condition(self, node: object, depth: int) -> Mask:
        op, found = self._node(node, depth)
        if op in ("and", "or"):
            parts = [self._condition(part, depth - 1) for part in _arguments(found, op)]
            if not parts:
                raise _wrong(f"{op!r} has nothing to combine")
            return _combined(parts, pc.and_kleene if op == "and" else pc.or_kleene)
        if op == "not":
            (inner,) = _exactly_one(_arguments(found, op), op)
            condition = self._condition(inner, depth - 1)
            return lambda batch: pc.invert(condition(batch))
        if op == "is null":
            (inner,) = _exactly_one(_arguments(found, op), op)
            name, _ = self._column(inner)
            return lambda batch: pc.is_null(batch.column(name))
        if op in _COMPARISONS:
            if set(found) != {"op", "left", "right"}:
                raise _wrong(f"{op!r} does not have exactly a left and a right side")
            return self._comparison(op, found["left"], found["right"])
        raise _wrong(f"there is no operation {str(op)[:40]!r}")

    def _node(self, node: object, depth: int) -> tuple[Any, dict[str, Any]]:
        self._left -= 1
        if depth <= 0 or self._left < 0:
            raise _wrong("it is too large or nested too deeply")
        if not isinstance(node, dict) or not isinstance(node.get("op"), str):
            raise _wrong("a condition is not an object with an op")
        return node["op"], node

    def _comparison(self, op: str, left: object, right: object) -> Mask:
        if op in _FLIPPED:
            op, left, right = _FLIPPED[op], right, left
        kinds = [self._column(side)[1] for side in (left, right) if _is_column(side)]
        if not kinds:
            raise _wrong("a comparison names no column")
        if kinds[0] != kinds[-1]:
            raise _wrong(f"a comparison of {kinds[0]} with {kinds[-1]}")
        compare = _comparing(op, kinds[0])
        one, other = self._value(left, kinds[0]), self._value(right, kinds[0])
        return lambda batch: compare(one(batch), other(batch))

    # -- values ---------------------------------------------------------------------------------

    def _column(self, node: object) -> tuple[str, pa.DataType]:
        if not _is_column(node):
            raise _wrong("a column is not given as an object with its name")
        assert isinstance(node, dict)
        name = node["column"]
        if name not in self._schema.names:
            raise _wrong(f"the stream has no column {str(name)[:80]!r}")
        if name not in self.columns:
            self.columns.append(name)
        return name, self._schema.field(name).type

    def _value(self, node: object, kind: pa.DataType) -> Value:
        self._left -= 1
        if _is_column(node):
            name, _ = self._column(node)
            return lambda batch: batch.column(name)
        if not isinstance(node, dict) or set(node) != {"value"}:
            raise _wrong("a side of a comparison is neither a column nor a value")
        scalar = _scalar(node["value"], kind)
        return lambda batch: scalar


def _is_column(node: object) -> bool:
    return isinstance(node, dict) and set(node) == {"column"} and isinstance(node["column"], str)


def _arguments(node: dict[str, Any], op: str) -> list[Any]:
    if set(node) != {"op", "of"} or not isinstance(node["of"], list):
        raise _wrong(f"{op!r} does not have exactly a list named of")
    return node["of"]


def _exactly_one(found: list[Any], op: str) -> list[Any]:
    if len(found) != 1:
        raise _wrong(f"{op!r} takes one argument")
    return found


def _combined(parts: list[Mask], combine: Any) -> Mask:
    def mask(batch: pa.RecordBatch) -> Any:
        found = parts[0](batch)
        for part in parts[1:]:
            found = combine(found, part(batch))
        return found

    return mask


def _scalar(value: object, kind: pa.DataType) -> pa.Scalar:
    """The value in the column's own type, exactly, or a refusal."""
    try:
        return _exact(value, kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, KeyError, DecimalException):
        shown = json.dumps(value)[:80] if isinstance(value, str | int | float) else "it"
        raise _wrong(f"{shown} is not a value of the type {kind}") from None


def _exact(value: object, kind: pa.DataType) -> pa.Scalar:
    types = pa.types
    if types.is_boolean(kind) and isinstance(value, bool):
        return pa.scalar(value, kind)
    if isinstance(value, bool) or value is None:
        raise ValueError
    if types.is_integer(kind) and isinstance(value, int):
        return pa.scalar(value, kind)
    if types.is_floating(kind):
        return _exact_float(value, kind)
    if types.is_decimal(kind) and isinstance(value, str | int):
        return pa.scalar(_exact_decimal(value, kind), kind)
    if types.is_timestamp(kind) and isinstance(value, int):
        micros = pa.scalar(value, pa.timestamp("us", tz=kind.tz))
        return micros.cast(kind)
    if types.is_date(kind) and isinstance(value, str):
        return pa.scalar(date.fromisoformat(value), kind)
    text = types.is_string(kind) or types.is_large_string(kind)
    if text and isinstance(value, str) and len(value) <= MAX_TEXT:
        return pa.scalar(value, kind)
    raise TypeError


def _exact_float(value: object, kind: pa.DataType) -> pa.Scalar:
    if isinstance(value, str):
        return pa.scalar(_FLOATS[value], kind)
    if not isinstance(value, int | float):
        raise TypeError
    # Python reads 1e999 as infinity, which has a name of its own.
    scalar = pa.scalar(float(value), kind)
    if not math.isfinite(value) or scalar.as_py() != value:
        raise ValueError
    return scalar


def _exact_decimal(value: str | int, kind: pa.DataType) -> Decimal:
    """The value with exactly the digits of the type.

    Arrow must never see any other: it computes the powers of ten that an exponent asks for, and
    `1e-999999999` makes it end the process.
    """
    if isinstance(value, str) and len(value) > MAX_DIGITS:
        raise ValueError
    number = Decimal(value)
    if not number.is_finite():
        raise ValueError
    exact = number.quantize(Decimal((0, (1,), -kind.scale)), context=_EXACTLY)
    if len(exact.as_tuple().digits) > kind.precision:
        raise ValueError
    return exact


def _comparing(op: str, kind: pa.DataType) -> Any:
    if not _is_comparable(kind):
        raise _wrong(f"values of the type {kind} are not compared by a site")
    if not pa.types.is_floating(kind):
        return {
            "=": pc.equal,
            "!=": pc.not_equal,
            "<": pc.less,
            "<=": pc.less_equal,
        }[op]
    return {
        "=": _float_equal,
        "!=": lambda left, right: pc.invert(_float_equal(left, right)),
        "<": _float_less,
        "<=": lambda left, right: pc.invert(_float_less(right, left)),
    }[op]


def _is_comparable(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or (types.is_decimal(kind) and kind.scale >= 0)
        or types.is_timestamp(kind)
        or types.is_date(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
    )


def _float_equal(left: Any, right: Any) -> Any:
    return pc.or_(pc.equal(left, right), pc.and_(pc.is_nan(left), pc.is_nan(right)))


def _float_less(left: Any, right: Any) -> Any:
    smaller = pc.and_(pc.invert(pc.is_nan(left)), pc.is_nan(right))
    return pc.or_(pc.less(left, right), smaller)


def _wrong(what: str) -> SiteRequestError:
    return SiteRequestError(
        f"the filter cannot be used: {what}",
        hint="give comparisons of columns and values, combined by and, or, not, is null",
    )
