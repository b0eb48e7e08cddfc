"""Expressions over one stream rewritten so that they raise no error in ANSI mode.

    a.x + 1            try_add(a.x, 1)
    a.x * a.y          try_multiply(a.x, a.y)
    CAST(a.s AS int)   TRY_CAST(a.s AS int)
    upper(a.s)         upper(a.s), which raises nothing
    make_date(a.y, …)  has no such form

Spark evaluates a conjunct for the pairs that the rest of the predicate has let through; a key or a
filter is worked out for every row. A row in which it would raise is in no result, so that NULL,
which matches nothing, is as good as its value. Both forms have the same type, and the same value
wherever the original has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from thetastream.planner.expression import (
    Abs,
    Additive,
    And,
    Between,
    Boolean,
    Cast,
    Column,
    Comparison,
    Expr,
    Interval,
    Negative,
    Not,
    Number,
    NumberKind,
    Opaque,
    Or,
)
from thetastream.planner.functions import CASTS, words
from thetastream.planner.types import (
    DATETIME,
    NUMERIC,
    Family,
    decimal_size,
    family,
    may_overflow,
)

_TEXTS = frozenset({Family.STRING, Family.COLLATED, Family.BINARY})
_TIMES = DATETIME | {Family.TIME, Family.DAY_TIME, Family.YEAR_MONTH}
_INDEXES = words("tinyint smallint int")
_INT_LIMIT = 2**31
_NEGATED_DIGITS = 34
"""Spark rounds the negative of a decimal to so many digits, which can make it too large."""

_ARITHMETIC = {"*": "try_multiply", "/": "try_divide", "%": "try_mod", "mod": "try_mod"}
_PARSERS = {
    "to_binary": "try_to_binary",
    "to_date": "try_to_date",
    "to_number": "try_to_number",
    "to_timestamp": "try_to_timestamp",
}

_CALM: tuple[tuple[frozenset[str], frozenset[Family]], ...] = (
    (
        words(
            """
            acos acosh asin asinh atan atan2 atanh cbrt cos cosh cot csc degrees exp expm1 hypot
            isnan ln log log10 log1p log2 positive pow power radians rint sec sign signum sin sinh
            sqrt tan tanh try_add try_divide try_mod try_multiply try_subtract
            """
        ),
        NUMERIC,
    ),
    (words("ceil ceiling floor"), frozenset({Family.INTEGER, Family.DECIMAL})),
    (words("round bround"), frozenset({Family.FLOAT})),
    (words("& | ^ ~ bit_count"), frozenset({Family.INTEGER})),
    (
        words(
            """
            || ascii base64 bit_length btrim char_length character_length collate concat contains
            crc32 endswith find_in_set hex initcap instr lcase left len length levenshtein like
            locate lower lpad ltrim luhn_check mask md5 octet_length overlay position replace
            reverse right rpad rtrim sha sha1 soundex startswith substr substring substring_index
            translate trim try_to_binary try_to_date try_to_number try_to_timestamp ucase upper
            """
        ),
        _TEXTS,
    ),
    (
        words(
            """
            date_diff date_trunc datediff day dayname dayofmonth dayofweek dayofyear extract hour
            last_day minute month monthname months_between quarter second timestampdiff trunc
            unix_date unix_micros unix_millis unix_seconds unix_timestamp weekday weekofyear year
            """
        ),
        _TIMES,
    ),
    (words("hash literal xxhash64 isnull isnotnull is try_cast typeof"), frozenset(Family)),
)
"""Operations that raise nothing as long as their operands, other than literals, are of a family
that they take without a cast, or with one that always succeeds."""

_ALIKE = words(
    "array case coalesce equal_null greatest if ifnull in least nullif nvl nvl2 nullifzero"
    " zeroifnull"
)
"""Operations that raise nothing as long as their operands have one type, or can always be cast to
the type that they have in common."""

_KEEP_NULL = _ALIKE | words("hash is isnan isnotnull isnull typeof xxhash64")
"""Operations that make a value of NULL: in one of them the two forms of an operand differ."""


@dataclass(frozen=True)
class Tries:
    """The rewriting of expressions over one stream."""

    type_of: Callable[[Expr], str]
    common_type: Callable[[str, str], str | None]

    def rewrite(self, expr: Expr) -> Expr | None:
        """The expression itself if it raises nothing, its other form, or None if it has none."""
        match expr:
            case Column() | Number() | Interval() | Boolean():
                return expr
            case Additive(op=op, left=left, right=right):
                return self._call("try_add" if op == "+" else "try_subtract", (left, right))
            case Cast(expr=inner, type=kind):
                return self._cast(inner, kind)
            case Negative(expr=inner) | Abs(expr=inner):
                return self._negated(expr, inner)
            case Comparison(op=op, left=left, right=right):
                if not self._alike((left, right)):
                    return None
                return self._with(expr, (left, right), strict=op != "<=>")
            case Between(expr=inner, low=low, high=high):
                ends = (inner, low, high)
                return self._with(expr, ends, strict=False) if self._alike(ends) else None
            case Not(expr=inner):
                return self._with(expr, (inner,))
            case And(items=items) | Or(items=items):
                return self._with(expr, items, strict=False)
            case Opaque():
                return self._opaque(expr)
        return None

    def _all(self, operands: Sequence[Expr]) -> list[Expr] | None:
        rewritten = [self.rewrite(operand) for operand in operands]
        return None if None in rewritten else [item for item in rewritten if item is not None]

    def _call(self, name: str, operands: Sequence[Expr]) -> Expr | None:
        rewritten = self._all(operands)
        if rewritten is None:
            return None
        listed: list[str | Expr] = [f"{name}("]
        for place, operand in enumerate(rewritten):
            listed += [", ", operand] if place else [operand]
        return Opaque(parts=(*listed, ")"))

    def _cast(self, inner: Expr, kind: str) -> Expr | None:
        value = self.rewrite(inner)
        return None if value is None else Opaque(parts=("TRY_CAST(", value, f" AS {kind})"))

    def _with(self, expr: Expr, operands: Sequence[Expr], *, strict: bool = True) -> Expr | None:
        """The same operation on rewritten operands; `strict`: whether it is NULL if one is."""
        rewritten = self._all(operands)
        if rewritten is None:
            return None
        changes = {old: new for old, new in zip(operands, rewritten, strict=True) if old is not new}
        if not changes:
            return expr
        if not strict:
            return None
        if isinstance(expr, Opaque):
            parts = [changes.get(part, part) if isinstance(part, Expr) else part
                     for part in expr.frame]  # fmt: skip
            return Opaque(parts=tuple(parts), binding=expr.binding)
        fields: dict[str, Any] = {
            name: changes[value]
            for name, value in vars(expr).items()
            if isinstance(value, Expr) and value in changes
        }
        return replace(expr, **fields)

    def _negated(self, expr: Expr, inner: Expr) -> Expr | None:
        if isinstance(inner, Number | Interval):
            return expr
        kind = self.type_of(inner)
        value = self.rewrite(inner)
        if value is None:
            return None
        match family(kind):
            case Family.INTEGER:
                minus = f"CAST(-1 AS {kind})"
            case Family.DAY_TIME | Family.YEAR_MONTH if kind.endswith(("y to second", "to month")):
                minus = "-1"
            case Family.DECIMAL if decimal_size(kind)[0] <= _NEGATED_DIGITS:
                return self._with(expr, (inner,))
            case Family.FLOAT:
                return self._with(expr, (inner,))
            case _:
                return None
        negative = Opaque(parts=("try_multiply(", value, f", {minus})"))
        if isinstance(expr, Negative):
            return negative
        if minus == "-1":
            return None
        return Opaque(parts=("CASE WHEN ", value, " < 0 THEN ", negative, " ELSE ", value, " END"))

    # -- operations that the planner only carries along ------------------------------------------

    def _opaque(self, expr: Opaque) -> Expr | None:
        operands = [part for part in expr.frame if isinstance(part, Expr)]
        name = expr.operation
        if name in _ARITHMETIC:
            texts = any(family(self.type_of(operand)) in _TEXTS for operand in operands)
            return None if texts else self._call(_ARITHMETIC[name], operands)
        if name in ("[]", "element_at") and len(operands) == 2:
            return self._lookup(expr, operands)
        if name in _PARSERS and family(self.type_of(operands[0])) in _TEXTS:
            return self._call(_PARSERS[name], operands)
        if name in CASTS and len(operands) == 1:
            return self._cast(operands[0], "decimal(10,0)" if name == "decimal" else name)
        if name in ("div", "pmod"):
            divisor = operands[1]
            exact = family(self.type_of(operands[0])) is Family.INTEGER
            if not exact or not isinstance(divisor, Number) or divisor.value in (0, -1):
                return None
            return self._with(expr, operands)
        if name in _ALIKE:
            calm = self._alike(operands, conditions=name in ("case", "if"))
        else:
            calm = any(
                name in names and all(self._takes(taken, operand) for operand in operands)
                for names, taken in _CALM
            )
        return self._with(expr, operands, strict=name not in _KEEP_NULL) if calm else None

    def _lookup(self, expr: Opaque, operands: Sequence[Expr]) -> Expr | None:
        index = operands[1]
        if expr.operation == "[]":
            if isinstance(index, Opaque) and _is_literal(index):
                # The key of a map; one that it lacks gives NULL.
                return self._with(expr, operands)
            fits = isinstance(index, Number) or self.type_of(index) in _INDEXES
            return self._call("get", operands) if fits else None
        # Places count from 1, and even try_element_at() raises for 0.
        fits = _is_literal(index) and not (isinstance(index, Number) and index.value == 0)
        return self._call("try_element_at", operands) if fits else None

    def _takes(self, taken: frozenset[Family], operand: Expr) -> bool:
        # A text is a unit, a pattern and the like, unless only numbers are taken.
        if _is_literal(operand) and (not isinstance(operand, Opaque) or not taken <= NUMERIC):
            return True
        return family(self.type_of(operand)) in taken

    def _alike(self, operands: Sequence[Expr], *, conditions: bool = False) -> bool:
        """Whether no operand can fail to become one of the type that all have in common.

        `conditions`: whether truth values among them only choose one of the others.
        """
        kinds = list(dict.fromkeys(self._kind(operand) for operand in operands))
        left_out = ("void", "boolean") if conditions else ("void",)
        kinds = [kind for kind in kinds if kind not in left_out]
        if len(kinds) <= 1:
            return True
        families = {family(kind) for kind in kinds}
        if not (families <= NUMERIC or families <= DATETIME):
            return False
        common = reduce(lambda one, two: self.common_type(one, two) or "", kinds)
        return bool(common) and not any(may_overflow(kind, common) for kind in kinds)

    def _kind(self, operand: Expr) -> str:
        """The type of an operand; of a literal, of which there may be hundreds, by its form."""
        match operand:
            case Number(kind=NumberKind.INTEGER, value=value) if abs(value) < _INT_LIMIT:
                return "int"
            case Opaque(operation="literal", parts=(str() as text,)) if text.startswith("'"):
                return "string"
        return self.type_of(operand)


def _is_literal(expr: Expr) -> bool:
    return isinstance(expr, Number | Interval) or (
        isinstance(expr, Opaque) and expr.operation == "literal"
    )
