"""A predicate over two streams, a window and options to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from thetastream.errors import TypeMismatchError, WindowError
from thetastream.planner.conjuncts import (
    Conjunct,
    ConjunctClass,
    conjoined,
    require_boolean,
    split,
    wrapped,
)
from thetastream.planner.costs import Cost
from thetastream.planner.duration import format_duration, parse_duration
from thetastream.planner.equalities import (
    EqualityForm,
    EqualityPlan,
    equality_form,
    plan_equalities,
)
from thetastream.planner.expression import Column, Comparison, Expr, streams_of
from thetastream.planner.forms import RangeForm, range_form
from thetastream.planner.keys import KeyTable, Scope
from thetastream.planner.names import EVERYTHING, Carried
from thetastream.planner.ranges import Outcome, plan_ranges
from thetastream.planner.report import (
    Alternative,
    Decision,
    Explained,
    Explanation,
    explain_pair,
)
from thetastream.planner.request import Request
from thetastream.planner.routing import Choice, choose, driver
from thetastream.planner.types import KeyForm
from thetastream.planner.window import (
    TimeRange,
    check_times,
    describe_window,
    intersect,
    parse_within,
    time_range,
    window_range,
)
from thetastream.spec import (
    ColumnSpec,
    Encoding,
    JoinSpec,
    KeySpec,
    Range,
    RangeKind,
    StreamSpec,
    Window,
)

ARCHIVE_PERIODS = 10
"""Sub-indexes that a window is cut into."""


@dataclass(frozen=True, repr=False)
class Plan(Explained):
    """How a join of two streams will be carried out, and why; printed as text.

    `spec` is what the workers carry out; it may change from one release to the next.

    >>> plan = ts.streams(orders=orders, rides=rides).explain("orders.x = rides.x")
    >>> print(plan)  # doctest: +ELLIPSIS
    Join of orders and rides on orders.x = rides.x
    ...
    """

    spec: JoinSpec
    decisions: tuple[Decision, ...]
    conjuncts: tuple[Conjunct, ...]
    costs: tuple[Cost, ...]

    @property
    def explanation(self) -> Explanation:
        """What there is to say of it."""
        return explain_pair(self.spec, self.conjuncts, self.decisions, self.costs)

    def explain(self) -> str:
        """The plan as text."""
        return self.explanation.text()

    def _repr_html_(self) -> str:
        return self.explanation.html()


def plan_pair(
    tree: Expr,
    scope: Scope,
    request: Request,
    *,
    carried: tuple[Carried, ...] = (EVERYTHING, EVERYTHING),
    verify: bool = False,
) -> Plan:
    """The plan of a join of two streams on a predicate that was read.

    `verify` lets the units compare what was hashed, instead of Spark on each result.
    """
    plan = PairPlanner(scope, request, carried, verify).plan(tree)
    if plan.spec.window is None and request.time:
        # Without a window the event time is a column like any other, and may be NULL.
        return PairPlanner(scope, request.untimed(), carried, verify).plan(tree)
    return plan


class PairPlanner:
    """The steps of the plan of two streams, in order."""

    def __init__(
        self,
        scope: Scope,
        request: Request,
        carried: tuple[Carried, ...] = (EVERYTHING, EVERYTHING),
        verify: bool = False,
    ) -> None:
        self.request = request
        self.verify = verify
        self.compared: tuple[tuple[ColumnSpec, ColumnSpec], ...] = ()
        self.carried = carried
        self.scope = scope
        self.tables = (KeyTable(0, scope), KeyTable(1, scope))
        self.times = tuple(self._time_column(i) for i in range(len(scope.names.streams)))
        check_times(request.within, self.times, scope)
        self.within = parse_within(request.within)
        self.reports: dict[Expr, Conjunct] = {}
        self.recheck: list[Expr] = []
        self.made: tuple[EqualityPlan, Choice]

    def plan(self, tree: Expr) -> Plan:
        """The plan; afterwards the keys, filters and reports are those of the tree."""
        conjuncts = split(tree)
        rest = [item for item in conjuncts if not self._simple(item)]
        typed = [item for item in rest if self._typed(item)]
        equalities = [f for f in map(_equality, typed) if f is not None]
        ranged = [f for f in map(_range, typed) if f is not None]
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
        choice = choose(
            driver(equality.equality, ordered, self.tables[0].specs),
            self.request.options,
            self.scope.analyst.parallelism,
        )
        self.made = equality, choice
        period = self._archive_period(window)
        self.scope.names.carry(self.carried, self.recheck)
        rechecked = frozenset(self.recheck)
        streams = tuple(self._stream(i) for i in range(len(self.scope.names.streams)))
        spec = JoinSpec(
            streams=streams,
            verified=tuple(
                (streams[0].columns.index(left), streams[1].columns.index(right))
                for left, right in self.compared
            ),
            equality=equality.equality,
            ranges=ordered,
            window=window,
            routing=choice.spec,
            recheck_sql=conjoined(
                (item for item in conjuncts if item in rechecked), self.scope.recheck
            ),
            archive_period=period,
            session=self.scope.session,
            predicate=conjoined(conjuncts, self.scope.show) or "TRUE",
            origin=self.request.origin,
        )
        return Plan(
            spec,
            self.decisions(spec),
            tuple(self.reports[item] for item in conjuncts),
            choice.costs,
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

    def _typed(self, item: Expr) -> bool:
        """Whether what stands on each side of a comparison has a type by itself."""
        if not isinstance(item, Comparison):
            return False
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

    # -- streams --------------------------------------------------------------------------------

    def _time_column(self, stream: int) -> Column | None:
        names, time = self.scope.names, self.request.time
        unknown = [name for name in time if name not in names.streams]
        if unknown:
            raise WindowError(
                f"time names a stream {unknown[0]!r} that was not given",
                hint=f"the streams are {', '.join(names.streams)}",
            )
        wanted = time.get(names.streams[stream])
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

    def _time_keys(self) -> tuple[int, int] | None:
        places = []
        for table, column in zip(self.tables, self.times, strict=True):
            if column is not None:
                kind = self.scope.names.columns[table.stream][column.index].type
                places.append(table.add(column, KeyForm(Encoding.INTEGER, kind, True)))
        return (places[0], places[1]) if len(places) == 2 else None

    def _stream(self, stream: int) -> StreamSpec:
        names, table = self.scope.names, self.tables[stream]
        columns = [names.columns[stream][index] for index in names.carried[stream]]
        columns += self.carried[stream].values
        columns += [pair[stream] for pair in self.compared if pair[stream] not in columns]
        return stream_spec(
            names.streams[stream],
            columns,
            table.specs,
            table.filters,
            timed=self.times[stream] is not None,
        )

    def _archive_period(self, window: Window | None) -> int | None:
        keeps = [] if window is None else [window.keeps(0), window.keeps(1)]
        finite = [abs(length) for length in keeps if length is not None]
        return archive_period(finite, self.request) if finite else None

    # -- decisions ------------------------------------------------------------------------------

    def decisions(self, spec: JoinSpec) -> tuple[Decision, ...]:
        """What was decided about the plan's spec, or about one that was made of it."""
        equality, choice = self.made
        first, second = self.scope.names.streams
        keys = spec.streams[0].keys
        if spec.equality is not None:
            drives = f"equality on {keys[spec.equality.left].sql}"
            why = f"an equality lets the fewest pairs through; {self._matching(equality)}"
        elif spec.ranges:
            drives = f"{spec.ranges[0].kind.value} on {keys[spec.ranges[0].left].sql}"
            why = _WHY_DRIVES[spec.ranges[0].kind]
        else:
            drives, why = "none", "nothing in the predicate or the window bounds a key"
        others = [Alternative(r.kind.value, None, "filters after it") for r in spec.ranges]
        if spec.equality is None:
            others = others[1:]
        index = "chained sorted runs, by the driving key"
        if spec.window is None:
            index_why = "a full history is never expired"
        else:
            index_why = "probes are binary searches; whole slices of time expire at once"
        costs = [
            Alternative(c.routing.value, c.total, f"memory {sum(c.memory):g} copies, "
                        f"bandwidth {sum(c.bandwidth):g} messages")
            for c in choice.costs
            if c.routing is not choice.spec.routing
        ]  # fmt: skip
        m, n = choice.spec.units
        period = spec.archive_period
        archive = "none" if period is None else format_duration(period)
        archive_why = (
            "nothing is ever dropped"
            if period is None
            else "asked for in the options"
            if self.request.options.archive_period != "auto"
            else f"a {ARCHIVE_PERIODS}th of the window"
        )
        window_why = "within and the time ranges of the predicate" if spec.window else "no window"
        return (
            Decision("driving predicate", drives, why, tuple(others)),
            Decision("topology", choice.spec.routing.value, choice.reason, tuple(costs)),
            Decision("index", index, index_why),
            Decision("units", f"{m} for {first}, {n} for {second}", choice.units_reason),
            Decision("window", describe_window(spec.window, first, second), window_why),
            Decision("archive period", archive, archive_why),
        )


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


def archive_period(lengths: Sequence[int], request: Request) -> int:
    """The event time that a sub-index spans, for windows of those lengths."""
    asked = request.options.archive_period
    if asked != "auto":
        return max(1, parse_duration(asked, "archive_period"))
    # Tuples outlive a window that is shorter than the delay.
    return max(1, max(*lengths, request.delay) // ARCHIVE_PERIODS)


_WHY_DRIVES = {
    RangeKind.BAND: "a band lets fewer pairs through than an inequality",
    RangeKind.INEQUALITY: "the window expires whole slices of time, so the inequality sorts them",
    RangeKind.TIME: "the window is all that bounds the pairs",
}


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


def _equality(item: Expr) -> EqualityForm | None:
    return equality_form(item) if isinstance(item, Comparison) else None


def _range(item: Expr) -> RangeForm | None:
    return range_form(item) if isinstance(item, Comparison) else None


def _why_residual(item: Expr) -> str:
    if isinstance(item, Comparison):
        if item.op == "<=>":
            return "<=> also matches NULL with NULL, and keys of NULL are not kept"
        if item.op == "<>":
            return "nearly every pair satisfies a <>"
        return "its sides do not read one stream each, or it is not a plain difference"
    return "it is not a comparison between the streams"
