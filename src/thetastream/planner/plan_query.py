"""A query to a plan: the join with as little as possible in it, and what Spark does after it.

Aggregates are made in place, as views inside the units, where the kernel decides the predicate
alone and every argument reads one stream. Otherwise the results are listed and Spark aggregates
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, TypedDict

from thetastream.errors import OptionError, RefusedExpressionError, WindowError
from thetastream.options import JoinOptions
from thetastream.planner.duration import MILLISECOND, format_duration
from thetastream.planner.expression import (
    FIRST_GROUP,
    Column,
    Expr,
    Opaque,
    Slot,
    columns,
    quote,
    render,
    streams_of,
)
from thetastream.planner.keys import Scope
from thetastream.planner.names import Carried
from thetastream.planner.pair import Plan, plan_tree
from thetastream.planner.plan import AnyPlan, plan_any
from thetastream.planner.query import Aggregate, Query, TimeWindow
from thetastream.planner.report import Decision
from thetastream.planner.threeway import TriPlan
from thetastream.planner.tree import TreePlan
from thetastream.planner.types import Analyst, Family, decimal_size, family
from thetastream.planner.window import Within
from thetastream.spec import (
    NEWEST,
    ColumnSpec,
    Fold,
    Measure,
    Value,
    ViewSpec,
    group_column,
    measure_column,
)

SUMMED = frozenset({Family.INTEGER, Family.DECIMAL, Family.FLOAT})
RANKED = SUMMED | {
    Family.BOOLEAN,
    Family.DATE,
    Family.TIMESTAMP,
    Family.TIMESTAMP_NTZ,
    Family.STRING,
    Family.BINARY,
    Family.DAY_TIME,
}
"""Types whose order and equality a unit knows."""

AGGREGATION, DUPLICATES, TIME_WINDOW = "aggregation", "duplicates", "time window"
"""What the decisions of a query are about."""


@dataclass(frozen=True, kw_only=True)
class Finish:
    """What Spark does with the join's output; SQL over its columns."""

    items: tuple[tuple[str, str], ...]
    """Expression and name of each column of the result."""
    grouped: bool = False
    keys: tuple[tuple[str, str], ...] = ()
    """Expression and name of what is grouped by; items and the condition use the names."""
    window: TimeWindow | None = None
    window_sql: str = NEWEST
    aggregates: tuple[str, ...] = ()
    """Aggregate expressions, called `a_0`, `a_1`, ... afterwards."""
    having: str | None = None
    distinct: tuple[str, ...] = ()
    """Columns by which duplicates are told."""


@dataclass(frozen=True)
class QueryPlan:
    """A join and what comes after it."""

    join: AnyPlan
    finish: Finish

    def explain(self) -> str:
        """The plan as text."""
        return self.join.explain()

    def _repr_html_(self) -> str:
        return self.join._repr_html_()


class _How(TypedDict):
    within: Within
    time: Mapping[str, str | None]
    options: JoinOptions
    origin: str
    delay: int


class _NotInPlaceError(Exception):
    """Why the results have to be listed."""


def plan_query(
    query: Query,
    *,
    time: Mapping[str, str | None],
    options: JoinOptions,
    analyst: Analyst,
    origin: str = "",
    fixed_zone: bool = False,
    delay: int = 0,
) -> QueryPlan:
    """The plan of a query; `time` names the event times by alias."""
    return _Planner(query, time, options, analyst, origin, fixed_zone, delay).plan()


class _Planner:
    def __init__(
        self,
        query: Query,
        time: Mapping[str, str | None],
        options: JoinOptions,
        analyst: Analyst,
        origin: str,
        fixed_zone: bool,
        delay: int,
    ) -> None:
        self.query = query
        self.time = time
        self.options = options
        self.origin = origin
        self.delay = delay
        self.scope = Scope(query.text, query.names, analyst, fixed_zone)
        self.window = self._normal_window()
        self.values: list[list[ColumnSpec]] = [[] for _ in query.names.streams]

    def plan(self) -> QueryPlan:
        """The plan; what follows the join is part of what a checkpoint belongs to."""
        found = self._plan()
        finish = found.finish
        window = self.window and (self.window.size, self.window.slide, self.window.start)
        after = (finish.keys, finish.aggregates, finish.distinct, window, finish.window_sql)
        if finish.grouped or finish.distinct:
            found = replace(found, join=_with(found.join, after=repr(after)))
        return found

    def _plan(self) -> QueryPlan:
        query = self.query
        if query.distinct and query.grouped:
            raise RefusedExpressionError(
                "DISTINCT together with aggregates is not supported",
                text=query.text,
                hint="the rows of an aggregation are distinct already if its groups are selected",
            )
        if not query.grouped and not query.distinct:
            return self._rows()
        if query.grouped:
            # Refused before anything is planned: a column that is neither grouped nor aggregated.
            for expr in [item.expr for item in query.items]:
                self._over_groups(expr)
        if self.options.aggregation == "enumerate":
            return self._listed("asked for in the options")
        try:
            return self._in_place()
        except _NotInPlaceError as reason:
            return self._listed(str(reason))

    # -- without aggregates ---------------------------------------------------------------------

    def _rows(self) -> QueryPlan:
        plan = self._join([item.expr for item in self.query.items])
        return QueryPlan(plan, Finish(items=self._items_over_results()))

    def _items_over_results(self) -> tuple[tuple[str, str], ...]:
        return tuple((self.scope.output(item.expr), item.name) for item in self.query.items)

    # -- in place -------------------------------------------------------------------------------

    def _in_place(self) -> QueryPlan:
        query = self.query
        if self.window is not None and self.window.argument is not None:
            raise _NotInPlaceError("the time window is not of the newest member's time")
        exprs = list(query.groups) if query.grouped else [item.expr for item in query.items]
        groups = [self._value(expr, RANKED, "grouped by") for expr in exprs]
        if query.distinct:
            groups = [self._told_apart(value) for value in groups]
        hidden: list[Value] = []
        measures: list[Measure] = []
        merged = [self._merged(one, groups, hidden, measures) for one in query.aggregates]
        if len(query.names.streams) > 2:
            raise _NotInPlaceError("more than two streams are joined")
        plan = self._two(self._carried_by([], values=True))
        slice_length = self._slice(plan)
        if plan.spec.recheck_sql is not None:
            self.values = [[] for _ in query.names.streams]
            raise _NotInPlaceError("Spark has to re-check a part of the predicate on each result")
        every = self.options.update_batches
        if slice_length is not None and every > 1:
            raise OptionError(
                f"update_batches={every} does not go with time windows or DISTINCT",
                hint="leave it out: the watermark may pass results that are kept back",
            )
        view = ViewSpec(
            groups=(*groups, *hidden), measures=tuple(measures), slice=slice_length, every=every
        )
        spec = replace(plan.spec, view=view)
        what = "duplicates are dropped" if query.distinct else "aggregated"
        decision = Decision(
            self._subject(),
            "in place, in two phases",
            f"{what} in each unit, merged by Spark; the kernel decides the predicate alone",
        )
        plan = replace(plan, spec=spec, decisions=(*plan.decisions, decision, *self._times()))
        if query.distinct:
            names = tuple(group_column(number) for number in range(len(groups)))
            items = tuple((name, item.name) for name, item in zip(names, query.items, strict=True))
            return QueryPlan(plan, Finish(items=items, distinct=(*names, NEWEST)))
        keys = tuple((group_column(number), group_column(number)) for number in range(len(groups)))
        return QueryPlan(plan, self._grouped(keys, tuple(merged), NEWEST))

    def _value(self, expr: Expr, allowed: frozenset[Family], use: str) -> Value:
        """The place of an expression among the values that its stream carries."""
        used = streams_of(expr)
        if len(used) > 1:
            raise _NotInPlaceError(f"{self.scope.show(expr)} is {use} and reads both streams")
        stream = min(used, default=0)
        kind = self.scope.type_of(stream, expr)
        if family(kind) not in allowed:
            raise _NotInPlaceError(f"{self.scope.show(expr)} is {use} and is a {kind}")
        if isinstance(expr, Column) and not expr.fields:
            # As it is, so that a key on the same column is not carried beside it.
            return self._carried(stream, self.query.names.columns[stream][expr.index])
        sql, name = self.scope.own(expr), self.scope.show(expr)
        return self._carried(stream, ColumnSpec(name=name, type=kind, sql=sql))

    def _told_apart(self, value: Value) -> Value:
        """The value in one form where several are equal: Spark's dropDuplicates takes bits."""
        column = self.values[value.stream][value.column]
        if family(column.type) is not Family.FLOAT:
            return value
        sql = one_zero(column.sql or quote(column.name), column.type)
        same = ColumnSpec(name=column.name, type=column.type, sql=sql)
        self.values[value.stream][value.column] = same
        return value

    def _carried(self, stream: int, column: ColumnSpec) -> Value:
        mine = self.values[stream]
        if column not in mine:
            mine.append(column)
        return Value(stream=stream, column=mine.index(column))

    def _merged(
        self, one: Aggregate, groups: list[Value], hidden: list[Value], measures: list[Measure]
    ) -> str:
        """How Spark merges the units' views of an aggregate; adds what they must measure."""

        def column(fold: Fold, value: Value | None) -> str:
            measure = Measure(fold=fold, value=value)
            if measure not in measures:
                measures.append(measure)
            return measure_column(measures.index(measure))

        if one.argument is None:
            return f"coalesce(sum({column(Fold.COUNT, None)}), CAST(0 AS BIGINT))"
        if one.distinct:
            value = self._value(one.argument, RANKED, "counted")
            if value not in hidden:
                hidden.append(value)
            place = len(groups) + hidden.index(value)
            kind = self.values[value.stream][value.column].type
            return distinct_count(group_column(place), kind)
        if one.function == "count":
            stream = min(streams_of(one.argument), default=0)
            if len(streams_of(one.argument)) > 1:
                raise _NotInPlaceError("a counted expression reads both streams")
            self.scope.type_of(stream, one.argument)
            sql, name = self.scope.own(one.argument), self.scope.show(one.argument)
            value = self._carried(stream, _exists(sql, name))
            return f"coalesce(sum({column(Fold.COUNT, value)}), CAST(0 AS BIGINT))"
        if one.function in ("min", "max"):
            value = self._value(one.argument, RANKED, "compared")
            return f"{one.function}({column(Fold(one.function), value)})"
        value = self._value(one.argument, SUMMED, "summed")
        kind = self.values[value.stream][value.column].type
        total = f"sum({column(Fold.SUM, value)})"
        if one.function == "sum":
            return _sum_type(total, kind)
        return _average(total, f"nullif(sum({column(Fold.COUNT, value)}), 0)", kind)

    # -- listed ---------------------------------------------------------------------------------

    def _listed(self, reason: str) -> QueryPlan:
        query = self.query
        exprs = [item.expr for item in query.items] if query.distinct else list(query.groups)
        exprs += [one.argument for one in query.aggregates if one.argument is not None]
        if self.window is not None and self.window.argument is not None:
            exprs.append(self.window.argument)
        plan = self._join(exprs)
        slice_length = self._slice(plan)
        decision = Decision(self._subject(), "by Spark, over the listed results", reason)
        plan = _with(plan, newest=slice_length)
        plan = replace(plan, decisions=(*plan.decisions, decision, *self._times()))
        if query.distinct:
            names = tuple(group_column(number) for number in range(len(query.items)))
            return QueryPlan(
                plan,
                Finish(
                    keys=tuple(
                        (self._output_apart(item.expr), name)
                        for item, name in zip(query.items, names, strict=True)
                    ),
                    items=tuple(
                        (name, item.name) for item, name in zip(query.items, names, strict=True)
                    ),
                    distinct=(*names, NEWEST),
                ),
            )
        keys = tuple(
            (self.scope.output(group), group_column(number))
            for number, group in enumerate(query.groups)
        )
        merged = tuple(self._listed_aggregate(one) for one in query.aggregates)
        argument = None if self.window is None else self.window.argument
        return QueryPlan(
            plan,
            self._grouped(
                keys, merged, NEWEST if argument is None else self.scope.output(argument)
            ),
        )

    def _output_apart(self, expr: Expr) -> str:
        sql, used = self.scope.output(expr), streams_of(expr)
        kind = self.scope.type_of(min(used, default=0), expr) if len(used) < 2 else ""
        return one_zero(sql, kind) if family(kind) is Family.FLOAT else sql

    def _subject(self) -> str:
        return DUPLICATES if self.query.distinct else AGGREGATION

    def _times(self) -> tuple[Decision, ...]:
        if self.window is None:
            return ()
        of_newest = self.window.argument is None
        return (
            Decision(
                TIME_WINDOW,
                format_duration(self.window.size),
                "of the newest member's time" if of_newest else "of an expression",
            ),
        )

    def _listed_aggregate(self, one: Aggregate) -> str:
        if one.argument is None:
            return "count(1)"
        sql = self.scope.output(one.argument)
        if not one.distinct:
            return f"{one.function}({sql})"
        used = streams_of(one.argument)
        kind = self.scope.type_of(min(used), one.argument) if len(used) == 1 else ""
        return distinct_count(sql, kind)

    # -- both -----------------------------------------------------------------------------------

    def _carried_by(self, exprs: list[Expr], *, values: bool = False) -> tuple[Carried, ...]:
        """The columns that the expressions read, and with `values` those that views are made of."""
        read = {(column.stream, column.index) for expr in exprs for column in columns(expr)}
        if not read and not values:
            read.add((0, 0))
        return tuple(
            Carried(
                frozenset(index for stream, index in read if stream == mine),
                tuple(self.values[mine]) if values else (),
            )
            for mine in range(len(self.query.names.streams))
        )

    def _two(self, carried: tuple[Carried, ...]) -> Plan:
        """The join of two streams whose units compare what was hashed."""
        plan = plan_tree(
            self.query.predicate, self.scope, **self._how, carried=carried, verify=True
        )
        self._check_times(plan)
        return plan

    def _join(self, exprs: list[Expr]) -> AnyPlan:
        """The join with the columns that the expressions read."""
        plan = plan_any(
            self.query.predicate,
            self.scope,
            **self._how,
            carried=self._carried_by(exprs),
            timed=self._needs_time,
        )
        self._check_times(plan)
        return plan

    @property
    def _how(self) -> _How:
        return _How(
            within=self.query.within,
            time=self.time,
            options=self.options,
            origin=self.origin,
            delay=self.delay,
        )

    @property
    def _needs_time(self) -> bool:
        newest = self.window is not None and self.window.argument is None
        return self.query.distinct or newest

    def _check_times(self, plan: AnyPlan) -> None:
        """Refuse results that need a time and have none."""
        if not self._needs_time:
            return
        if plan.spec.span is None:
            what = "SELECT DISTINCT" if self.query.distinct else "a time window of the results"
            raise WindowError(
                f"{what} needs a window: over a full history its state would never end",
                hint="add WITHIN 10 minutes to the query",
            )
        for alias, column in self.time.items():
            stream = self.query.names.streams.index(alias)
            index = self.query.names.position(stream, column or "")
            kind = "" if index is None else self.query.names.columns[stream][index].type
            if family(kind) is Family.TIMESTAMP_NTZ:
                raise WindowError(
                    f"the event time of {alias!r} has no time zone, so results have no time",
                    hint=f"cast {column!r} to timestamp before the join",
                )

    def _grouped(
        self, keys: tuple[tuple[str, str], ...], merged: tuple[str, ...], window_sql: str
    ) -> Finish:
        return Finish(
            grouped=True,
            keys=keys,
            window=self.window,
            window_sql=window_sql,
            aggregates=merged,
            having=None if self.query.having is None else self._over_groups(self.query.having),
            items=tuple((self._over_groups(item.expr), item.name) for item in self.query.items),
        )

    def _over_groups(self, expr: Expr) -> str:
        """An expression over the names of groups, aggregates and the window."""
        groups = self.query.groups

        def name(node: Column | Slot) -> str:
            if isinstance(node, Slot):
                if node.number <= FIRST_GROUP:
                    return group_column(FIRST_GROUP - node.number)
                head = f"a_{node.number}" if node.number >= 0 else "window"
                return ".".join((head, *(quote(field) for field in node.fields)))
            if node in groups:
                return group_column(groups.index(node))
            raise RefusedExpressionError(
                f"{self.scope.show(node)} is neither grouped by nor aggregated",
                text=self.query.text,
                start=node.start,
                end=node.end,
                hint=f"add it to GROUP BY, or write max({self.scope.show(node)})",
            )

        return render(expr, name)

    def _slice(self, plan: AnyPlan) -> int | None:
        """How finely the time of results must be told apart."""
        if self.query.distinct:
            assert plan.spec.span is not None
            # In whole steps of Spark's watermark, so that no result is as old as it.
            return -(-max(1, plan.spec.span) // MILLISECOND) * MILLISECOND
        if self.window is None or self.window.argument is not None:
            return None
        length = gcd(self.window.size, self.window.slide, self.window.start)
        if length % MILLISECOND:
            raise WindowError(
                "a time window of the results is not a whole number of milliseconds",
                hint="Spark's watermark has no finer steps: round the window",
            )
        return length

    def _normal_window(self) -> TimeWindow | None:
        """greatest(a.t, b.t) of both event times is the time of the newest member."""
        window = self.query.window
        if window is None or not isinstance(window.argument, Opaque):
            return window
        names = self.query.names
        times = {
            (stream, names.position(stream, self.time.get(alias) or ""))
            for stream, alias in enumerate(names.streams)
        }
        read = {(column.stream, column.index) for column in columns(window.argument)}
        text = "".join(
            part if isinstance(part, str) else "?" for part in window.argument.parts
        ).replace(" ", "")
        marks = ",".join("?" * len(times))
        if read == times and text.casefold() == f"greatest({marks})":
            return replace(window, argument=None)
        return window


def _with(plan: AnyPlan, **changes: Any) -> AnyPlan:
    """The plan with some of its spec changed; of a tree, the last join's."""
    if isinstance(plan, TreePlan):
        *before, last = plan.spec.steps
        spec = replace(plan.spec, steps=(*before, replace(last, **changes)))
        return replace(plan, spec=spec)
    if isinstance(plan, TriPlan):
        return replace(plan, spec=replace(plan.spec, **changes))
    return replace(plan, spec=replace(plan.spec, **changes))


def distinct_count(sql: str, kind: str) -> str:
    """The number of different values; floats are made alike first, as Spark's DISTINCT does."""
    if family(kind) is Family.FLOAT:
        sql = f"CASE WHEN isnan({sql}) THEN CAST('NaN' AS DOUBLE) ELSE {sql} + 0.0D END"
    return f"CAST(size(collect_set({sql})) AS BIGINT)"


def one_zero(sql: str, kind: str) -> str:
    """A float with one form for zero and one for NaN."""
    return (
        f"CASE WHEN isnan({sql}) THEN CAST('NaN' AS {kind})"
        f" WHEN {sql} = 0 THEN CAST(0 AS {kind}) ELSE {sql} END"
    )


def _exists(sql: str, name: str) -> ColumnSpec:
    """Whether there is a value, which is all that counting it takes."""
    return ColumnSpec(
        name=f"{name} IS NOT NULL",
        type="boolean",
        sql=f"CASE WHEN ({sql}) IS NOT NULL THEN TRUE END",
    )


def _sum_type(total: str, kind: str) -> str:
    """A sum in the type that Spark gives to sums."""
    match family(kind):
        case Family.INTEGER:
            return f"CAST({total} AS BIGINT)"
        case Family.DECIMAL:
            digits, scale = decimal_size(kind)
            return f"CAST({total} AS DECIMAL({min(38, digits + 10)},{scale}))"
        case _:
            return total


def _average(total: str, count: str, kind: str) -> str:
    if family(kind) is not Family.DECIMAL:
        return f"CAST({total} AS DOUBLE) / {count}"
    digits, scale = decimal_size(kind)
    room = 38 - (min(38, digits + 10) - scale)
    # Rounding twice differs from rounding once only for more rows than the spare digits count.
    if room < scale + 4 + 9:
        raise _NotInPlaceError(f"the average of a {kind} needs more digits than a division keeps")
    quotient = f"{_sum_type(total, kind)} / CAST({count} AS DECIMAL(20,0))"
    return f"CAST({quotient} AS DECIMAL({min(38, digits + 4)},{min(38, scale + 4)}))"
