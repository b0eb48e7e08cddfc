"""The keys of the streams: expressions over one stream that become 64-bit integers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from thetastream.errors import TypeMismatchError
from thetastream.planner.conjuncts import not_boolean
from thetastream.planner.expression import Column, Expr, Opaque, nodes, render, streams_of
from thetastream.planner.names import Names, at
from thetastream.planner.tries import Tries
from thetastream.planner.types import AnalysisFailure, Analyst, KeyForm, compared_as, may_overflow
from thetastream.spec import Encoding, KeySpec


@dataclass
class Scope:
    """What all the planner's steps share while one predicate is planned."""

    text: str
    names: Names
    analyst: Analyst
    fixed_zone: bool
    _types: dict[tuple[int, str], str] = field(default_factory=dict)
    _tries: dict[tuple[int, Expr], str | None] = field(default_factory=dict)

    @property
    def session(self) -> str:
        """The settings of the session that the values of expressions depend on."""
        return f"time zone {self.analyst.zone}, ANSI mode {'on' if self.analyst.ansi else 'off'}"

    def show(self, expr: Expr) -> str:
        """The expression with stream names, for people and for comparing."""
        return render(expr, self.names.qualified)

    def own(self, expr: Expr) -> str:
        """The expression over its stream's DataFrame."""
        return render(expr, self.names.own)

    def tried(self, stream: int, expr: Expr) -> str:
        """The same, but NULL where it would raise an error in ANSI mode, if it can be written so.

        A row in which a side of a comparison raises is in no result: Spark raises the error for a
        pair, or something else in the predicate has already excluded it. So nothing that is worked
        out for a row by itself should raise it, and the row can be left out.
        """
        return self._tried(stream, expr) or self.own(expr)

    def may_raise(self, stream: int, expr: Expr) -> bool:
        """Whether even the text that is tried may raise an error."""
        return self._tried(stream, expr) is None

    def _tried(self, stream: int, expr: Expr) -> str | None:
        if not self.analyst.ansi or isinstance(expr, Column):
            return self.own(expr)
        if (stream, expr) not in self._tries:
            self._tries[stream, expr] = self._try(stream, expr)
        return self._tries[stream, expr]

    def _try(self, stream: int, expr: Expr) -> str | None:
        tries = Tries(lambda part: self.type_of(stream, part), self.analyst.common_type)
        try:
            other = tries.rewrite(expr)
            if other is None:
                return None
            opaque = any(isinstance(node, Opaque) for node in nodes(expr))
            # Sums and casts have the type of their other form; the rest Spark is asked for.
            if (
                other is not expr
                and opaque
                and self.type_of(stream, other) != self.type_of(stream, expr)
            ):
                return None
            return self.own(other)
        except TypeMismatchError:
            # A part that has no type by itself.
            return None

    def output(self, expr: Expr) -> str:
        """The expression over the columns of a result."""
        return render(expr, self.names.output)

    def type_of(self, stream: int, expr: Expr) -> str:
        """The type of an expression over one stream."""
        sql = self.own(expr)
        if (stream, sql) not in self._types:
            if isinstance(expr, Column) and not expr.fields:
                found = self.names.columns[stream][expr.index].type
            else:
                with self._accepted(expr):
                    found = self.analyst.type_over([self.names.streams[stream]], sql)
            self._types[stream, sql] = found
        return self._types[stream, sql]

    def recheck(self, conjunct: Expr) -> str:
        """The conjunct as a condition over the columns of a result."""
        return self.condition(conjunct, self.output(conjunct))

    def condition(self, expr: Expr, sql: str) -> str:
        """SQL of a conjunct that can stand alone; raises if Spark does not take it for a condition.

        NULL by itself is a truth value beside AND, but no filter.
        """
        used = [self.names.streams[stream] for stream in sorted(streams_of(expr))]
        with self._accepted(expr):
            kind = self.analyst.type_over(used or self.names.streams[:1], self.own(expr))
        if kind not in ("boolean", "void"):
            raise not_boolean(expr, self.text, kind)
        return sql if kind == "boolean" else f"CAST({sql} AS BOOLEAN)"

    @contextmanager
    def _accepted(self, expr: Expr) -> Iterator[None]:
        """Spark's refusal of an expression becomes an error that shows where it stands."""
        try:
            yield
        except AnalysisFailure as failure:
            raise TypeMismatchError(
                f"Spark does not accept this expression: {failure}",
                **at(self.text, expr),
                hint="check the types of its parts",
            ) from failure

    def common_type(self, left: str, right: str, place: Expr) -> str:
        """The type in which Spark compares the two; raises when it does not."""
        if left == right:
            return left
        found = self.analyst.common_type(left, right)
        if found is None:
            raise TypeMismatchError(
                f"Spark does not compare {left} with {right}",
                **at(self.text, place),
                hint="cast one side to the type of the other",
            )
        return found

    def otherwise_compared(self, left: str, right: str) -> str:
        """Why keys are of no use for two types."""
        common = self.analyst.common_type(left, right)
        how = "in its own way" if common is None else f"as {common}"
        return f"Spark compares {left} with {right} {how}, value by value"


class KeyTable:
    """The keys of one stream so far; asking twice for the same key gives the same place."""

    def __init__(self, stream: int, scope: Scope) -> None:
        self.stream = stream
        self.scope = scope
        self.specs: list[KeySpec] = []
        self.filters: list[str] = []

    def add(self, expr: Expr, form: KeyForm, *, nan_low: bool = False) -> int:
        """The place of the key for the expression in that form."""
        actual = self.scope.type_of(self.stream, expr)
        sql = form.key_sql(self.scope.tried(self.stream, expr), actual)
        encoding = form.encoding
        if nan_low and encoding is Encoding.FLOAT:
            encoding = Encoding.FLOAT_NAN_LOW
        name = None
        if isinstance(expr, Column) and not expr.fields and sql == self.scope.own(expr):
            name = self.scope.names.columns[self.stream][expr.index].name
        return self._place(KeySpec(sql=sql, type=form.type, encoding=encoding, column=name))

    def add_sql(
        self, sql: str, type_name: str, encoding: Encoding, *, of: tuple[str, ...] = ()
    ) -> int:
        """The place of a key that is finished SQL; `of` are the columns that it hashes."""
        return self._place(KeySpec(sql=sql, type=type_name, encoding=encoding, of=of))

    def require(self, expr: Expr, common: str = "") -> None:
        """Drop rows in which the expression, compared in a type, is NULL: they cannot match."""
        sql = self.scope.tried(self.stream, expr)
        actual = self.scope.type_of(self.stream, expr)
        if may_overflow(actual, common):
            sql = compared_as(common, sql, actual)
        wrapped = sql if isinstance(expr, Column) else f"({sql})"
        self.keep(f"{wrapped} IS NOT NULL")

    def keep(self, condition: str) -> None:
        """Drop rows in which the condition does not hold."""
        if condition not in self.filters:
            self.filters.append(condition)

    def _place(self, spec: KeySpec) -> int:
        if spec not in self.specs:
            self.specs.append(spec)
        return self.specs.index(spec)
