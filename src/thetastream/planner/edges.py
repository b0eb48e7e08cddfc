"""What becomes of the conjuncts between two streams: keys, an equality, ranges, a window.

What the kernel cannot decide, or only nearly, is left for Spark to evaluate on the pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from thetastream.errors import TypeMismatchError, WindowError
from thetastream.planner.conjuncts import Conjunct, ConjunctClass, require_boolean, wrapped
from thetastream.planner.equalities import EqualityPlan, equality_form, plan_equalities
from thetastream.planner.expression import Column, Comparison, Expr, streams_of
from thetastream.planner.forms import RangeForm, range_form
from thetastream.planner.keys import KeyTable, Scope
from thetastream.planner.ranges import Outcome, plan_ranges
from thetastream.planner.request import Request
from thetastream.planner.types import KeyForm
from thetastream.planner.window import (
    TimeRange,
    check_times,
    intersect,
    parse_within,
    time_range,
    window_range,
)
from thetastream.spec import (
    ColumnSpec,
    Edge,
    Encoding,
    KeySpec,
    Range,
    RangeKind,
    StreamSpec,
    Window,
)


@dataclass(frozen=True)
class EdgePlan:
    """What became of the conjuncts between two streams."""

    tables: tuple[KeyTable, KeyTable]
    """The keys and filters of both; the edge's keys are places in them."""
    edge: Edge
    """As if the two were streams 0 and 1."""
    window: Window | None
    compared: tuple[tuple[ColumnSpec, ColumnSpec], ...]
    """What was hashed, for the units to compare."""
    matching: str
    """How the equality is decided."""
    recheck: tuple[Expr, ...]
    reports: dict[Expr, Conjunct]


class EdgePlanner:
    """Decides what becomes of each conjunct between two streams."""

    def __init__(
        self, scope: Scope, request: Request, *, verify: bool = False, only: bool = True
    ) -> None:
        """`verify` lets the units compare what was hashed, instead of Spark on each result.

        `only`: whether the join has no other edge.
        """
        self.only = only
        self.request = request
        self.verify = verify
        self.compared: tuple[tuple[ColumnSpec, ColumnSpec], ...] = ()
        self.scope = scope
        self.tables = (KeyTable(0, scope), KeyTable(1, scope))
        self.times = tuple(time_column(scope, request, i) for i in range(2))
        check_times(request.within, self.times, scope)
        self.within = parse_within(request.within)
        self.reports: dict[Expr, Conjunct] = {}
        self.recheck: list[Expr] = []

    def plan(self, conjuncts: Sequence[Expr]) -> EdgePlan:
        """The edge of these conjuncts."""
        rest = [item for item in conjuncts if not self._simple(item)]
        typed = [item for item in rest if isinstance(item, Comparison) and self._typed(item)]
        typed = self._without_risk(rest, typed)
        equalities = [form for form in map(equality_form, typed) if form is not None]
        ranged = [form for form in map(range_form, typed) if form is not None]
        time_keys = self._time_keys()
        times, ranged = self._times(ranged)
        window = intersect(self.within, times, self.scope.text)
        if window is not None:
            for table, column in zip(self.tables, self.times, strict=True):
                if column is not None:
                    table.require(column)
        equality = plan_equalities(equalities, self.scope, self.tables)
        outcomes = plan_ranges(ranged, self.scope, self.tables)
        self._report_equalities(equality)
        self._report_ranges(outcomes)
        for item in rest:
            if item not in self.reports:
                self._residual(item, _why_residual(item))
        ranges = [o.range for o in outcomes if o.range is not None]
        if window is not None and time_keys is not None:
            ranges.append(window_range(window, *time_keys))
        ordered = order_ranges(list(dict.fromkeys(ranges)), equality=equality.equality is not None)
        return EdgePlan(
            self.tables,
            Edge(streams=(0, 1), equality=equality.equality, ranges=ordered),
            window,
            self.compared,
            self._matching(equality),
            tuple(self.recheck),
            self.reports,
        )

    # -- conjuncts ------------------------------------------------------------------------------

    def _simple(self, item: Expr) -> bool:
        """Deal with conjuncts of one stream or none."""
        used = streams_of(item)
        require_boolean(item, self.scope.text)
        if len(used) > 1:
            return False
        if not used:
            self.recheck.append(item)
            self._report(item, ConjunctClass.CONSTANT, "evaluated by Spark on each result")
            return True
        stream = min(used)
        condition = self.scope.condition(item, self.scope.own(item))
        self.tables[stream].keep(wrapped(item, condition))
        name = self.scope.names.streams[stream]
        self._report(item, ConjunctClass.FILTER, f"filters {name} before its tuples travel")
        return True

    def _typed(self, item: Comparison) -> bool:
        """Whether what stands on each side of a comparison has a type by itself."""
        try:
            for side in (item.left, item.right):
                used = streams_of(side)
                if len(used) == 1:
                    self.scope.type_of(min(used), side)
        except TypeMismatchError:
            # Spark may know it from the other side: collations are like that.
            self._residual(item, "the type of one side is not known without the other")
            return False
        return True

    def _without_risk(self, rest: Sequence[Expr], typed: Sequence[Comparison]) -> list[Comparison]:
        """The comparisons whose sides may be worked out for every row, even if they raise errors.

        Spark works out both sides of equalities for every row of two streams, and without any, of
        what comes first in the text. What it does for some pairs only is a residual.
        """
        equal = [item for item in rest if isinstance(item, Comparison) and item.op in ("=", "<=>")]
        certain = equal or ([] if self.within is not None else rest[:1])
        risks: dict[Expr, set[Expr]] = {item: self._risks(item) for item in typed}
        raised = {risk for item in certain if self.only for risk in risks.get(item, set())}
        kept = []
        for item in typed:
            if risks[item] <= raised:
                kept.append(item)
            else:
                self._residual(item, "one side may raise an error that other conjuncts prevent")
        return kept

    def _risks(self, item: Comparison) -> set[Expr]:
        """The expressions of one stream that would become keys and may raise an error."""
        sides: tuple[Expr, ...] = ()
        equality, ranged = equality_form(item), range_form(item)
        if equality is not None:
            sides = equality.sides
        elif ranged is not None:
            sides = (ranged.left, ranged.right)
        return {side for place, side in enumerate(sides) if self.scope.may_raise(place, side)}

    def _report(self, item: Expr, kind: ConjunctClass, handling: str) -> None:
        self.reports[item] = Conjunct(
            text=self.scope.show(item), kind=kind, handling=handling, streams=streams_of(item)
        )

    def _residual(self, item: Expr, reason: str) -> None:
        self.recheck.append(item)
        handling = f"evaluated by Spark on the candidate pairs: {reason}"
        self._report(item, ConjunctClass.RESIDUAL, handling)

    def _times(self, forms: list[RangeForm]) -> tuple[list[TimeRange], list[RangeForm]]:
        found, others = [], []
        for form in forms:
            item = time_range(form, self.times, self.scope)
            if item is None:
                others.append(form)
                continue
            found.append(item)
            handling = "becomes part of the window"
            if not item.exact:
                handling += ", a day wider because local days differ in length, and re-checked"
                self.recheck.append(item.source)
            self._report(item.source, ConjunctClass.TIME, handling)
        return found, others

    def _report_equalities(self, plan: EqualityPlan) -> None:
        for source, reason in plan.refused:
            self._residual(source, reason)
        hashed = plan.equality is not None and not plan.equality.exact
        if hashed and self.verify:
            self.compared = plan.compared
        for source in plan.used:
            self._report(source, ConjunctClass.EQUALITY, self._matching(plan))
            if hashed and not self.compared:
                self.recheck.append(source)

    def _matching(self, plan: EqualityPlan) -> str:
        """What the equality's keys are, and how what they only nearly decide is made certain."""
        if plan.equality is None or plan.equality.exact:
            return plan.reason
        if self.compared:
            return f"{plan.reason}, and the values are compared in the unit"
        return f"{plan.reason}, so re-checked"

    def _report_ranges(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.range is None:
                self._residual(outcome.source, outcome.reason)
                continue
            band = outcome.range.kind is RangeKind.BAND
            kind = ConjunctClass.BAND if band else ConjunctClass.INEQUALITY
            self._report(outcome.source, kind, outcome.reason)
            if not outcome.range.exact:
                self.recheck.append(outcome.source)

    def _time_keys(self) -> tuple[int, int] | None:
        places = []
        for table, column in zip(self.tables, self.times, strict=True):
            if column is not None:
                kind = self.scope.names.columns[table.stream][column.index].type
                places.append(table.add(column, KeyForm(Encoding.INTEGER, kind, True)))
        return (places[0], places[1]) if len(places) == 2 else None


def time_column(scope: Scope, request: Request, stream: int) -> Column | None:
    """The event time of a stream, if it has one."""
    names = scope.names
    wanted = request.time.get(names.streams[stream])
    if wanted is None:
        return None
    index = names.position(stream, wanted)
    if index is None:
        known = ", ".join(column.name for column in names.columns[stream])
        raise WindowError(
            f"stream {names.streams[stream]!r} has no time column {wanted!r}",
            hint=f"its columns are {known}",
        )
    return Column(stream=stream, index=index)


def stream_spec(
    name: str,
    columns: Sequence[ColumnSpec],
    keys: Sequence[KeySpec],
    filters: Sequence[str],
    *,
    timed: bool,
) -> StreamSpec:
    """A stream of the join; its time key is the first that is made, where there is one."""
    known = {column.name for column in columns if column.sql is None}
    if not columns and not keys:
        # A tuple without anything would not travel.
        columns = (ColumnSpec(name="one", type="boolean", sql="TRUE"),)
    return StreamSpec(
        name=name,
        columns=tuple(columns),
        keys=tuple(key if key.column in known else replace(key, column=None) for key in keys),
        filter_sql=" AND ".join(filters) or None,
        time=0 if timed else None,
    )


def order_ranges(ranges: Sequence[Range], *, equality: bool) -> tuple[Range, ...]:
    """The driving range first; among equals the one that comes first in the text."""

    def rank(item: Range) -> int:
        closed = item.low is not None and item.high is not None
        if item.kind is RangeKind.BAND:
            return 0
        if item.kind is RangeKind.TIME:
            return 1 if equality and closed else 3
        return 2

    return tuple(sorted(ranges, key=rank))


def _why_residual(item: Expr) -> str:
    if isinstance(item, Comparison):
        if item.op == "<=>":
            return "<=> also matches NULL with NULL, and keys of NULL are not kept"
        if item.op == "<>":
            return "nearly every pair satisfies a <>"
        return "its sides do not read one stream each, or it is not a plain difference"
    return "it is not a comparison between the streams"
