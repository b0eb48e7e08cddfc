"""Numeric literals as Spark types them."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from thetastream.planner.expression import Number, NumberKind

MAX_DIGITS = 18
"""Literals of more digits make Spark's decimals lose digits in sums; they stay opaque."""

_WIDTHS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}


def read_number(text: str, target: str, sql: str) -> Number | None:
    """The literal `text`, cast to `target` unless that is empty.

    None when the value is not certain: too many digits, or a cast that changes it.
    """
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    digits = value.as_tuple()
    if not isinstance(digits.exponent, int):
        return None
    if max(len(digits.digits), abs(digits.exponent)) > MAX_DIGITS:
        return None
    kind = _kind(text, target, value, -digits.exponent)
    if kind is None:
        return None
    exact = Fraction(float(value)) if kind is NumberKind.DOUBLE else Fraction(value)
    return Number(value=exact, kind=kind, sql=sql)


def _kind(text: str, target: str, value: Decimal, scale: int) -> NumberKind | None:
    whole = re.fullmatch(r"\d+", text) is not None
    if not target:
        if whole:
            return NumberKind.INTEGER
        return NumberKind.DOUBLE if "e" in text.lower() else NumberKind.DECIMAL
    if target in _WIDTHS:
        return NumberKind.INTEGER if whole and value < 2 ** _WIDTHS[target] else None
    if target == "DOUBLE":
        return NumberKind.DOUBLE
    size = re.fullmatch(r"DECIMAL\((\d+), (\d+)\)", target)
    if size is not None:
        room = int(size[1]) - int(size[2])
        if scale <= int(size[2]) and abs(value) < 10**room:
            return NumberKind.DECIMAL
    return None
