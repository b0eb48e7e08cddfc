"""What the units' views of a query are made of: groups, and folds of values of one stream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from thetastream.planner.expression import Column, Expr, quote, streams_of
from thetastream.planner.finish import distinct_count, exists, normalized_float, sum_type
from thetastream.planner.keys import Scope
from thetastream.planner.query import Aggregate
from thetastream.planner.types import DATETIME, NUMERIC, Family, decimal_size, family
from thetastream.spec import (
    ColumnSpec,
    Fold,
    Measure,
    Value,
    ViewSpec,
    group_column,
    measure_column,
)

RANKED = NUMERIC | DATETIME | {Family.BOOLEAN, Family.STRING, Family.BINARY, Family.DAY_TIME}
"""Types whose order and equality a unit knows."""

SAFE_DIGITS = 28
"""Decimals of more digits can have sums that Spark's 38 digits do not hold."""


class NotInPlaceError(Exception):
    """Why the results have to be listed."""


class ViewPlanner:
    """The values that the streams carry for the views, and what is measured of them."""

    def __init__(self, scope: Scope, groups: Iterable[Expr], *, compared_by_bits: bool) -> None:
        """`compared_by_bits` if the groups are: then equal floats are made alike."""
        self.scope = scope
        self.values: list[list[ColumnSpec]] = [[] for _ in scope.names.streams]
        self.groups = [self._value(expr, RANKED, "grouped by") for expr in groups]
        if compared_by_bits:
            for value in self.groups:
                self._make_alike(value)
        self.hidden: list[Value] = []
        """What is counted once each: a view groups by it too, and Spark counts when it merges."""
        self.measures: list[Measure] = []

    def spec(self, slice_length: int | None, every: int) -> ViewSpec:
        """What the units are told."""
        return ViewSpec(
            groups=(*self.groups, *self.hidden),
            measures=tuple(self.measures),
            slice=slice_length,
            every=every,
        )

    def _value(self, expr: Expr, allowed: frozenset[Family], use: str) -> Value:
        """The place of an expression among the values that its stream carries."""
        used = streams_of(expr)
        if len(used) > 1:
            raise NotInPlaceError(f"{self.scope.show(expr)} is {use} and reads both streams")
        stream = min(used, default=0)
        kind = self.scope.type_of(stream, expr)
        if family(kind) not in allowed:
            raise NotInPlaceError(f"{self.scope.show(expr)} is {use} and is a {kind}")
        if isinstance(expr, Column) and not expr.fields:
            # As it is, so that a key on the same column is not carried beside it.
            return self._carried(stream, self.scope.names.columns[stream][expr.index])
        sql, name = self.scope.own(expr), self.scope.show(expr)
        return self._carried(stream, ColumnSpec(name=name, type=kind, sql=sql))

    def _make_alike(self, value: Value) -> None:
        """One form where several are equal: Spark's dropDuplicates takes bits."""
        column = self.values[value.stream][value.column]
        if family(column.type) is Family.FLOAT:
            sql = normalized_float(column.sql or quote(column.name), column.type)
            self.values[value.stream][value.column] = replace(column, sql=sql)

    def _carried(self, stream: int, column: ColumnSpec) -> Value:
        mine = self.values[stream]
        if column not in mine:
            mine.append(column)
        return Value(stream=stream, column=mine.index(column))

    def _measure(self, fold: Fold, value: Value | None) -> str:
        """The column of the views that holds a measure."""
        measure = Measure(fold=fold, value=value)
        if measure not in self.measures:
            self.measures.append(measure)
        return measure_column(self.measures.index(measure))

    def merged(self, one: Aggregate) -> str:
        """How Spark merges the units' views of an aggregate; adds what they must measure."""
        if one.argument is None:
            return f"coalesce(sum({self._measure(Fold.COUNT, None)}), CAST(0 AS BIGINT))"
        if one.distinct:
            value = self._value(one.argument, RANKED, "counted")
            if value not in self.hidden:
                self.hidden.append(value)
            place = len(self.groups) + self.hidden.index(value)
            kind = self.values[value.stream][value.column].type
            return distinct_count(group_column(place), kind)
        if one.function == "count":
            stream = min(streams_of(one.argument), default=0)
            if len(streams_of(one.argument)) > 1:
                raise NotInPlaceError("a counted expression reads both streams")
            self.scope.type_of(stream, one.argument)
            sql, name = self.scope.own(one.argument), self.scope.show(one.argument)
            value = self._carried(stream, exists(sql, name))
            return f"coalesce(sum({self._measure(Fold.COUNT, value)}), CAST(0 AS BIGINT))"
        if one.function in ("min", "max"):
            value = self._value(one.argument, RANKED, "compared")
            return f"{one.function}({self._measure(Fold(one.function), value)})"
        value = self._value(one.argument, NUMERIC, "summed")
        kind = self.values[value.stream][value.column].type
        wide = family(kind) is Family.DECIMAL and decimal_size(kind)[0] > SAFE_DIGITS
        if wide and not self.scope.analyst.ansi:
            raise NotInPlaceError(f"a sum of {kind} may overflow to NULL")
        total = f"sum({self._measure(Fold.SUM, value)})"
        if one.function == "sum":
            return sum_type(total, kind)
        return _average(total, f"nullif(sum({self._measure(Fold.COUNT, value)}), 0)", kind)


def _average(total: str, count: str, kind: str) -> str:
    if family(kind) is not Family.DECIMAL:
        return f"CAST({total} AS DOUBLE) / {count}"
    digits, scale = decimal_size(kind)
    room = 38 - (min(38, digits + 10) - scale)
    # Rounding twice differs from rounding once only for more rows than the spare digits count.
    if room < scale + 4 + 9:
        raise NotInPlaceError(f"the average of a {kind} needs more digits than a division keeps")
    quotient = f"{sum_type(total, kind)} / CAST({count} AS DECIMAL(20,0))"
    return f"CAST({quotient} AS DECIMAL({min(38, digits + 4)},{min(38, scale + 4)}))"
