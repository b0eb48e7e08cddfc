"""Range conjuncts to the ranges that the kernel evaluates.

A single inequality needs no arithmetic: each whole side becomes a key that Spark computes, with its
own rounding and overflow. Two ends on one pair of expressions make a band, whose offsets the kernel
adds itself; that is only done where it gives at least what Spark would give.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from thetastream.durations import DAY
from thetastream.planner.expression import Cast, Comparison, Expr
from thetastream.planner.forms import ConstantKind, End, RangeForm, Shape, strip
from thetastream.planner.keys import KeyTable, Scope
from thetastream.planner.literals import MAX_DIGITS as LITERAL_DIGITS
from thetastream.planner.types import (
    Family,
    KeyForm,
    comparable,
    decimal_size,
    exact_size,
    family,
    key_form,
)
from thetastream.spec import Arithmetic, Bound, Encoding, Range, RangeKind

DIFFERENCE_LIMIT = 2**64
"""No difference of two 64-bit keys reaches this: larger bounds make no difference."""
MOST_DIGITS = 38
"""Digits of a decimal in Spark; where an exact result would need more, it rounds."""
FLOAT32_SLACK = Fraction(1, 2**22)
"""Four times the relative rounding error of a 32-bit subtraction."""


@dataclass(frozen=True)
class Outcome:
    """What became of one comparison."""

    source: Comparison
    range: Range | None
    reason: str


@dataclass(frozen=True)
class _Arithmetic:
    """How the kernel adds the offsets of a group."""

    form: KeyForm
    arithmetic: Arithmetic
    exact: bool
    scale: Fraction
    """From the unit of the constants to the unit of the key."""
    slack: Fraction
    """By how much both ends are widened, in units of the key."""
    relative: Fraction
    """The same as a part of the bound."""


def plan_ranges(
    forms: Sequence[RangeForm], scope: Scope, tables: tuple[KeyTable, KeyTable]
) -> list[Outcome]:
    """An outcome for every form; forms that make one band share its range."""
    groups: dict[tuple[str, str], list[RangeForm]] = {}
    for form in forms:
        pair = (scope.show(form.left), scope.show(form.right))
        groups.setdefault(pair, []).append(form)
    outcomes: list[Outcome] = []
    for group in groups.values():
        outcomes += _Group(group, scope, tables).plan()
    place = {form.source: i for i, form in enumerate(forms)}
    return sorted(outcomes, key=lambda outcome: place[outcome.source])


class _Group:
    """The forms on one pair of expressions."""

    def __init__(
        self, forms: list[RangeForm], scope: Scope, tables: tuple[KeyTable, KeyTable]
    ) -> None:
        self.forms = forms
        self.scope = scope
        self.tables = tables

    def plan(self) -> list[Outcome]:
        lows = any(form.low is not None for form in self.forms)
        highs = any(form.high is not None for form in self.forms)
        if lows and highs:
            arithmetic = self._arithmetic(self.forms)
            if isinstance(arithmetic, _Arithmetic):
                return self._band(self.forms, arithmetic)
            return [self._single(form, arithmetic) for form in self.forms]
        return [self._single(form, "") for form in self.forms]

    def _single(self, form: RangeForm, why_no_band: str) -> Outcome:
        if form.shape is Shape.SUM:
            return self._plain(form, why_no_band)
        arithmetic = self._arithmetic([form])
        if isinstance(arithmetic, str):
            return Outcome(form.source, None, arithmetic)
        return self._band([form], arithmetic)[0]

    # -- without arithmetic ---------------------------------------------------------------------

    def _plain(self, form: RangeForm, why_no_band: str) -> Outcome:
        left, right = form.whole
        types = (self.scope.type_of(0, left), self.scope.type_of(1, right))
        if not comparable(*types):
            return Outcome(form.source, None, self.scope.otherwise_compared(*types))
        common = self.scope.common_type(*types, form.source)
        key = key_form(common)
        if key is None:
            return Outcome(form.source, None, f"the order of {common} has no 64-bit form")
        places = []
        for table, expr in zip(self.tables, form.whole, strict=True):
            table.require(expr, common)
            places.append(table.add(expr, key))
        # A lossy key orders like its value but may be equal where the values are not.
        end = Bound(value=0, inclusive=form.op in ("<=", ">=") or not key.lossless)
        upper = form.op in ("<", "<=")
        found = Range(
            left=places[0],
            right=places[1],
            low=None if upper else end,
            high=end if upper else None,
            kind=RangeKind.INEQUALITY,
            exact=key.lossless,
        )
        reason = "compared as keys" if key.lossless else f"{common} keys are lossy, so re-checked"
        return Outcome(form.source, found, f"{reason}; {why_no_band}" if why_no_band else reason)

    # -- with arithmetic ------------------------------------------------------------------------

    def _band(self, forms: list[RangeForm], how: _Arithmetic) -> list[Outcome]:
        first = forms[0]
        nan_low = [
            all(form.nan_matches and form.subtracted == side for form in forms) for side in (0, 1)
        ]
        places = (
            self.tables[0].add(first.left, how.form, nan_low=nan_low[0]),
            self.tables[1].add(first.right, how.form, nan_low=nan_low[1]),
        )
        self.tables[0].require(first.left, how.form.type)
        self.tables[1].require(first.right, how.form.type)
        low = _tightest([form.low for form in forms if form.low is not None], lower=True)
        high = _tightest([form.high for form in forms if form.high is not None], lower=False)
        found = Range(
            left=places[0],
            right=places[1],
            low=None if low is None else _bound(low, how, lower=True),
            high=None if high is None else _bound(high, how, lower=False),
            kind=RangeKind.BAND if low and high else RangeKind.INEQUALITY,
            arithmetic=how.arithmetic,
            exact=how.exact,
        )
        reason = (
            "the kernel adds the bounds exactly"
            if how.exact
            else "the kernel adds the bounds with some slack, so re-checked"
        )
        return [Outcome(form.source, found, reason) for form in forms]

    def _arithmetic(self, forms: list[RangeForm]) -> _Arithmetic | str:
        """How the kernel adds the offsets of a group, or why it does not."""
        first = forms[0]
        types = (self.scope.type_of(0, first.left), self.scope.type_of(1, first.right))
        kinds = frozenset[ConstantKind]().union(*(form.kinds for form in forms))
        if not comparable(*types):
            return f"{types[0]} and {types[1]} have no arithmetic in common"
        common = self.scope.common_type(*types, first.source)
        kind = family(common)
        interval = ConstantKind.INTERVAL in kinds
        if kind in (Family.DATE, Family.TIMESTAMP, Family.TIMESTAMP_NTZ, Family.DAY_TIME):
            return self._temporal(forms, common, kinds)
        if interval or kind not in (Family.INTEGER, Family.DECIMAL, Family.FLOAT):
            return f"offsets are not added to {common} by the kernel"
        wrapping = kind is Family.INTEGER and not self.scope.analyst.ansi
        if wrapping and any(self._may_wrap(form) for form in forms):
            return (
                f"{common} arithmetic wraps around when spark.sql.ansi.enabled is false "
                "(cast both sides from int to bigint to avoid that)"
            )
        if kind is not Family.FLOAT and any(self._rounds(form, types) for form in forms):
            return "Spark's decimals have 38 digits, so it rounds one of the sides"
        if kind is Family.FLOAT or ConstantKind.DOUBLE in kinds:
            return self._floating(forms, common)
        if kind is Family.DECIMAL:
            form = key_form(common)
            if form is None or not form.lossless:
                return self._floating(forms, "double")
            scale = Fraction(10) ** decimal_size(common)[1]
            return _Arithmetic(form, Arithmetic.INTEGER, True, scale, Fraction(0), Fraction(0))
        return _exact(common, Fraction(1))

    def _temporal(
        self, forms: list[RangeForm], common: str, kinds: frozenset[ConstantKind]
    ) -> _Arithmetic | str:
        kind = family(common)
        for form in forms:
            if form.shape is Shape.SUM:
                sides = {self.scope.type_of(*side) for side in enumerate(form.whole)}
                if sides != {common}:
                    return f"an offset turns {common} into another type"
            elif form.kinds != {ConstantKind.INTERVAL}:
                return f"a difference of {common} is compared with a number"
        if kind is Family.DATE:
            days = kinds == {ConstantKind.INTERVAL}
            if not days and kinds - {ConstantKind.INTEGER}:
                return "dates take whole days"
            return _exact(common, Fraction(1, DAY) if days else Fraction(1))
        if kinds - {ConstantKind.INTERVAL}:
            return f"{common} takes intervals"
        exact = _exact(common, Fraction(1))
        if kind is Family.TIMESTAMP and any(calendar_aware(f, self.scope) for f in forms):
            # A change of the zone's offset moves the end by at most a day.
            return dataclasses.replace(exact, exact=False, slack=Fraction(DAY))
        return exact

    def _floating(self, forms: list[RangeForm], common: str) -> _Arithmetic | str:
        if len({form.shape for form in forms}) > 1 or len({f.subtracted for f in forms}) > 1:
            return "sums and differences treat NaN differently"
        if any(form.two_offsets for form in forms):
            return "offsets on both sides are rounded twice"
        single = common == "float" and family(common) is Family.FLOAT
        if single and forms[0].shape is Shape.SUM:
            return "sums of 32-bit floats are rounded by Spark"
        relative = FLOAT32_SLACK if single else Fraction(0)
        form = KeyForm(Encoding.FLOAT, common if family(common) is Family.FLOAT else "double", True)
        return _Arithmetic(form, Arithmetic.FLOAT, False, Fraction(1), Fraction(0), relative)

    def _rounds(self, form: RangeForm, types: tuple[str, str]) -> bool:
        """Whether Spark drops digits of exact numbers before it compares them."""
        if ConstantKind.DOUBLE in form.kinds and form.shape is Shape.SUM:
            return False
        if form.shape is Shape.DIFFERENCE:
            sizes = [exact_size(name) for name in types]
            whole = max(precision - scale for precision, scale in sizes) + 1
            scales = [scale for _, scale in sizes]
            if ConstantKind.DECIMAL in form.kinds:
                scales.append(LITERAL_DIGITS)
            return whole + max(scales) > MOST_DIGITS
        kinds = []
        for stream, side in enumerate(form.whole):
            base, offset = strip(side)
            kinds.append(self.scope.type_of(stream, side))
            scale = exact_size(kinds[-1])[1]
            shifted = offset.value * 10**scale
            if exact_size(self.scope.type_of(stream, base))[1] > scale or shifted.denominator > 1:
                return True
        common = self.scope.common_type(kinds[0], kinds[1], form.source)
        return exact_size(common)[1] < max(exact_size(kind)[1] for kind in kinds)

    def _may_wrap(self, form: RangeForm) -> bool:
        fractions = {ConstantKind.DECIMAL, ConstantKind.DOUBLE}
        if form.shape is Shape.SUM and form.kinds <= fractions:
            return False
        return not (self._narrow(0, form.left) and self._narrow(1, form.right))

    def _narrow(self, stream: int, expr: Expr) -> bool:
        return (
            isinstance(expr, Cast)
            and expr.type.lower() == "bigint"
            and self.scope.type_of(stream, expr.expr) in ("tinyint", "smallint", "int")
        )


def calendar_aware(form: RangeForm, scope: Scope) -> bool:
    """Whether Spark counts in local days: whole days of an offset, and every difference."""
    if scope.fixed_zone:
        return False
    if form.shape is Shape.DIFFERENCE:
        return True
    ends = [end for end in (form.low, form.high) if end is not None]
    return form.two_offsets or any(abs(end.value) >= DAY for end in ends)


def _exact(common: str, scale: Fraction) -> _Arithmetic:
    form = KeyForm(Encoding.INTEGER, common, True)
    return _Arithmetic(form, Arithmetic.INTEGER, True, scale, Fraction(0), Fraction(0))


def _tightest(ends: list[End], *, lower: bool) -> End | None:
    if not ends:
        return None
    if lower:
        return max(ends, key=lambda end: (end.value, end.strict))
    return min(ends, key=lambda end: (end.value, not end.strict))


def _bound(end: End, how: _Arithmetic, *, lower: bool) -> Bound:
    value = end.value * how.scale
    widening = how.slack + abs(value) * how.relative
    value = value - widening if lower else value + widening
    if how.arithmetic is Arithmetic.FLOAT:
        return Bound(value=float(value))
    return Bound(value=whole_bound(value, strict=end.strict and how.exact, lower=lower))


def whole_bound(value: Fraction, *, strict: bool, lower: bool) -> int:
    """The inclusive whole number that bounds whole numbers as the value does."""
    if lower:
        whole = math.floor(value) + 1 if strict else math.ceil(value)
    else:
        whole = math.ceil(value) - 1 if strict else math.floor(value)
    return max(-DIFFERENCE_LIMIT, min(DIFFERENCE_LIMIT, whole))
