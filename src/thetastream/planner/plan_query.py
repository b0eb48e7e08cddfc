"""A query to a plan: the join with as little as possible in it, and what Spark does after it.

Aggregates are made in place, as views inside the units, where the kernel decides the predicate
alone and every argument reads one stream. Otherwise the results are listed and Spark aggregates
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from thetastream.durations import MILLISECOND, format_duration
from thetastream.errors import OptionError, RefusedExpressionError, WindowError
from thetastream.options import JoinOptions
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
from thetastream.planner.finish import Finish, distinct_count, normalized_float
from thetastream.planner.joins import plan_any
from thetastream.planner.keys import Scope
from thetastream.planner.names import Carried, at
from thetastream.planner.plan import Plan, with_last
from thetastream.planner.query import Aggregate, Query, TimeWindow
from thetastream.planner.report import Decision, Explained
from thetastream.planner.request import Request, SiteFacts, named_times
from thetastream.planner.travels import Places
from thetastream.planner.types import Analyst, Family, family
from thetastream.planner.views import NotInPlaceError, ViewPlanner
from thetastream.spec import NEWEST, group_column

AGGREGATION, DUPLICATES, TIME_WINDOW = "aggregation", "duplicates", "time window"
"""What the decisions of a query are about."""


@dataclass(frozen=True, repr=False)
class QueryPlan(Explained):
    """A join and what comes after it; printed as the join's text."""

    join: Plan
    finish: Finish

    def explain(self) -> str:
        """The plan as text."""
        return self.join.explain()

    def _repr_html_(self) -> str:
        return self.join._repr_html_()


def plan_query(
    query: Query,
    *,
    time: Mapping[str, str | None],
    options: JoinOptions,
    analyst: Analyst,
    origin: str = "",
    fixed_zone: bool = False,
    delay: int = 0,
    sites: Mapping[str, SiteFacts] | None = None,
) -> QueryPlan:
    """The plan of a query; `time` names the event times by alias, `sites` what is at sites."""
    request = Request(
        within=query.within,
        time=named_times(time),
        options=options,
        delay=delay,
        sites=sites or {},
        origin=origin,
    )
    scope = Scope(query.text, query.names, analyst, fixed_zone)
    return _Planner(query, scope, request).plan()


class _Planner:
    def __init__(self, query: Query, scope: Scope, request: Request) -> None:
        self.query = query
        self.scope = scope
        self.request = request
        self.window = self._normal_window()

    def plan(self) -> QueryPlan:
        """The plan; what follows the join is part of what a checkpoint belongs to."""
        found = self._plan()
        finish = found.finish
        window = self.window and (self.window.size, self.window.slide, self.window.start)
        after = (finish.keys, finish.aggregates, finish.distinct, window, finish.window_sql)
        if finish.grouped or finish.distinct:
            found = replace(found, join=with_last(found.join, after=repr(after)))
        return found

    def _plan(self) -> QueryPlan:
        query = self.query
        if query.distinct and query.grouped:
            raise RefusedExpressionError(
                "DISTINCT together with aggregates is not supported",
                text=query.text,
                hint="leave DISTINCT out: the rows of an aggregation are distinct if all its groups"
                " are selected",
            )
        if not query.grouped and not query.distinct:
            return self._rows()
        if query.grouped:
            # Refused before anything is planned: a column that is neither grouped nor aggregated.
            for item in query.items:
                self._over_groups(item.expr)
        if self.request.options.aggregation == "enumerate":
            return self._listed("asked for in the options")
        try:
            return self._in_place()
        except NotInPlaceError as reason:
            return self._listed(str(reason))

    # -- without aggregates ---------------------------------------------------------------------

    def _rows(self) -> QueryPlan:
        items = self.query.items
        plan = self._join([item.expr for item in items], first=frozenset())
        named = tuple((self.scope.output(item.expr), item.name) for item in items)
        return QueryPlan(plan, Finish(items=named))

    # -- in place -------------------------------------------------------------------------------

    def _in_place(self) -> QueryPlan:
        query = self.query
        if self.window is not None and self.window.argument is not None:
            raise NotInPlaceError("the time window is not of the newest member's time")
        exprs = list(query.groups) if query.grouped else [item.expr for item in query.items]
        views = ViewPlanner(self.scope, exprs, compared_by_bits=query.distinct)
        merged = tuple(views.merged(one) for one in query.aggregates)
        if len(query.names.streams) > 2:
            raise NotInPlaceError("more than two streams are joined")
        plan = self._two(views)
        slice_length = self._slice(plan)
        if plan.spec.recheck_sql is not None:
            raise NotInPlaceError("Spark has to re-check a part of the predicate on each result")
        every = self.request.options.update_batches
        if slice_length is not None and every > 1:
            raise OptionError(
                f"update_batches={every} cannot be combined with time windows or DISTINCT",
                hint="leave it out: the watermark may pass results that are held back",
            )
        what = "duplicates are dropped" if query.distinct else "aggregated"
        decision = Decision(
            self._subject(),
            "in place, in two phases",
            f"{what} in each unit, merged by Spark; the kernel decides the predicate alone",
        )
        plan = with_last(plan, view=views.spec(slice_length, every))
        plan = replace(plan, decisions=(*plan.decisions, decision, *self._times()))
        if query.distinct:
            return QueryPlan(plan, self._distinct(()))
        keys = [group_column(number) for number in range(len(views.groups))]
        return QueryPlan(plan, self._grouped(keys, merged, NEWEST))

    # -- listed ---------------------------------------------------------------------------------

    def _listed(self, reason: str) -> QueryPlan:
        query = self.query
        exprs = [item.expr for item in query.items] if query.distinct else list(query.groups)
        exprs += [one.argument for one in query.aggregates if one.argument is not None]
        if self.window is not None and self.window.argument is not None:
            exprs.append(self.window.argument)
        plan = self._join(exprs, first=self._read())
        slice_length = self._slice(plan)
        decision = Decision(self._subject(), "by Spark, over the listed results", reason)
        plan = with_last(plan, newest=slice_length)
        plan = replace(plan, decisions=(*plan.decisions, decision, *self._times()))
        if query.distinct:
            keys = [self._output_apart(item.expr) for item in query.items]
            return QueryPlan(plan, self._distinct(keys))
        keys = [self.scope.output(group) for group in query.groups]
        merged = tuple(self._listed_aggregate(one) for one in query.aggregates)
        argument = None if self.window is None else self.window.argument
        time = NEWEST if argument is None else self.scope.output(argument)
        return QueryPlan(plan, self._grouped(keys, merged, time))

    def _output_apart(self, expr: Expr) -> str:
        sql, used = self.scope.output(expr), streams_of(expr)
        kind = self.scope.type_of(min(used, default=0), expr) if len(used) < 2 else ""
        return normalized_float(sql, kind) if family(kind) is Family.FLOAT else sql

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

    def _two(self, views: ViewPlanner) -> Plan:
        """The join of two streams with the values of views; its units compare what was hashed."""
        carried = tuple(Carried(frozenset(), tuple(values)) for values in views.values)
        plan = plan_any(
            self.query.predicate,
            self.scope,
            self.request,
            carried=carried,
            first=self._read(),
            verify=True,
        )
        self._check_times(plan)
        return plan

    def _read(self) -> Places:
        """All columns that the query reads after its join."""
        query = self.query
        exprs = [item.expr for item in query.items] + list(query.groups)
        exprs += [one.argument for one in query.aggregates if one.argument is not None]
        for more in (query.having, None if self.window is None else self.window.argument):
            exprs += [] if more is None else [more]
        return frozenset((column.stream, column.index) for e in exprs for column in columns(e))

    def _join(self, exprs: list[Expr], first: Places) -> Plan:
        """The join with the columns that the expressions read."""
        read = {(column.stream, column.index) for expr in exprs for column in columns(expr)}
        read = read or {(0, 0)}
        carried = tuple(
            Carried(frozenset(index for stream, index in read if stream == mine), ())
            for mine in range(len(self.query.names.streams))
        )
        plan = plan_any(
            self.query.predicate,
            self.scope,
            self.request,
            carried=carried,
            first=first,
            timed=self._needs_time,
        )
        self._check_times(plan)
        return plan

    @property
    def _needs_time(self) -> bool:
        newest = self.window is not None and self.window.argument is None
        return self.query.distinct or newest

    def _check_times(self, plan: Plan) -> None:
        """Refuse results that need a time and have none."""
        if not self._needs_time:
            return
        if plan.tree.span is None:
            what = "SELECT DISTINCT" if self.query.distinct else "a time window of the results"
            raise WindowError(
                f"{what} needs a window: over a full history its state would never end",
                hint="add WITHIN 10 minutes to the query",
            )
        for alias, column in self.request.time.items():
            stream = self.query.names.streams.index(alias)
            index = self.query.names.position(stream, column)
            kind = "" if index is None else self.query.names.columns[stream][index].type
            if family(kind) is Family.TIMESTAMP_NTZ:
                raise WindowError(
                    f"the event time of {alias!r} has no time zone, so results have no time",
                    hint=f"cast {column!r} to timestamp before the join",
                )

    def _distinct(self, keys: Sequence[str]) -> Finish:
        """Each row once; `keys` make its columns where the results do not have them already."""
        items = self.query.items
        names = [group_column(number) for number in range(len(items))]
        return Finish(
            keys=_named(keys),
            items=tuple((name, item.name) for name, item in zip(names, items, strict=True)),
            distinct=(*names, NEWEST),
        )

    def _grouped(self, keys: Sequence[str], merged: tuple[str, ...], window_sql: str) -> Finish:
        return Finish(
            grouped=True,
            keys=_named(keys),
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
                **at(self.query.text, node),
                hint=f"add it to GROUP BY, or write max({self.scope.show(node)})",
            )

        return render(expr, name)

    def _slice(self, plan: Plan) -> int | None:
        """How finely the time of results must be told apart."""
        if self.query.distinct:
            # In whole steps of Spark's watermark, so that no result is as old as it.
            return -(-max(1, plan.tree.span or 0) // MILLISECOND) * MILLISECOND
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
            (stream, names.position(stream, self.request.time.get(alias, "")))
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


def _named(keys: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The keys with the names of their columns."""
    return tuple((sql, group_column(number)) for number, sql in enumerate(keys))
