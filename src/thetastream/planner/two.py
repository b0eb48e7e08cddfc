"""The plan of two streams: one stage, where the new tuples of each meet the other's stored ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thetastream.durations import format_duration
from thetastream.planner.conjuncts import Conjunct
from thetastream.planner.graph import Graph
from thetastream.planner.indexes import describe_index, index_of
from thetastream.planner.keys import Scope
from thetastream.planner.names import Carried
from thetastream.planner.plan import Plan
from thetastream.planner.report import Alternative, Decision
from thetastream.planner.request import ARCHIVE_PERIODS, Request
from thetastream.planner.routing import Choice, choose, describe_units
from thetastream.planner.window import describe_window
from thetastream.spec import (
    Edge,
    JoinSpec,
    JoinTree,
    Meeting,
    RangeKind,
    Reach,
    Retention,
    Stage,
    Step,
    Store,
    StreamSpec,
    Then,
    window_in,
)


@dataclass(frozen=True)
class Pair:
    """Two streams and what is compared between them."""

    streams: tuple[StreamSpec, ...]
    edge: Edge
    reach: Reach
    matching: str
    """How the equality is decided."""
    conjuncts: tuple[Conjunct, ...]
    predicate: str
    recheck_sql: str | None
    window_reason: str = "within and the time ranges of the predicate"


def plan_two(graph: Graph, carried: Sequence[Carried]) -> Plan:
    """The plan of a join of two streams."""
    return plan_of(pair_of(graph, carried), graph.scope, graph.request)


def pair_of(graph: Graph, carried: Sequence[Carried]) -> Pair:
    """The two streams of a graph with one edge."""
    streams = graph.streams(carried)
    (edge,) = graph.spec_edges(streams)
    return Pair(
        streams=streams,
        edge=edge,
        reach=graph.reach,
        matching=graph.edges[0, 1].plan.matching,
        conjuncts=graph.all_reports(),
        predicate=graph.predicate(),
        recheck_sql=graph.recheck_sql(),
    )


def plan_of(pair: Pair, scope: Scope, request: Request) -> Plan:
    """The plan of a join of two streams, which may be results of another join."""
    choice = choose(pair.edge, pair.streams, request.options, scope.analyst.parallelism)
    period = request.archive_period(pair.reach)
    stage = _stage(pair, choice, period, request)
    spec = JoinSpec(
        streams=pair.streams,
        edges=(pair.edge,),
        reach=pair.reach,
        stages=(stage,),
        order=(0, 1),
        recheck_sql=pair.recheck_sql,
        archive_period=period,
        session=scope.session,
        predicate=pair.predicate,
        origin=request.origin,
    )
    step = Step(spec=spec, routing=choice.routing)
    tree = JoinTree(
        steps=(step,), reach=pair.reach, predicate=pair.predicate, origin=request.origin
    )
    decisions = _decisions(pair, choice, stage, period, request)
    return Plan(tree, decisions, pair.conjuncts, choice.costs)


def _stage(pair: Pair, choice: Choice, period: int | None, request: Request) -> Stage:
    stores = []
    for stream, described in enumerate(pair.streams):
        keeps = pair.reach[stream][1 - stream]
        # What never expires is one sub-index: its runs are merged into ever larger ones.
        kept = Retention(time=described.time, keeps=keeps, period=None if keeps is None else period)
        order = pair.edge.order(stream)
        indexed = index_of(request.options, order, described)
        stores.append(
            Store(
                stream=stream,
                group_by=choice.group_by[stream],
                order=order,
                retention=kept,
                index=indexed.kind,
                theta=indexed.theta,
                sketch=indexed.sketch,
            )
        )
    meetings = tuple(Meeting(new=i, stored=1 - i, then=Then.EMIT) for i in (0, 1))
    return Stage(number=0, stores=tuple(stores), meetings=meetings)


def _decisions(
    pair: Pair, choice: Choice, stage: Stage, period: int | None, request: Request
) -> tuple[Decision, ...]:
    edge, keys = pair.edge, pair.streams[0].keys
    first, second = (stream.name for stream in pair.streams)
    window = window_in(pair.reach, 0, 1)
    if edge.equality is not None:
        drives = f"equality on {keys[edge.equality.left].sql}"
        why = f"an equality lets the fewest pairs through; {pair.matching}"
    elif edge.ranges:
        drives = f"{edge.ranges[0].kind.value} on {keys[edge.ranges[0].left].sql}"
        why = _WHY_DRIVES[edge.ranges[0].kind]
    else:
        drives, why = "none", "nothing in the predicate or the window bounds a key"
    others = [Alternative(item.kind.value, None, "filters after it") for item in edge.ranges]
    if edge.equality is None:
        others = others[1:]
    index_why = "a full history is never expired"
    if window is not None:
        index_why = "probes are binary searches; whole slices of time expire at once"
    costs = [
        Alternative(c.routing.value, c.total, f"memory {sum(c.memory):g} copies, "
                    f"bandwidth {sum(c.bandwidth):g} messages")
        for c in choice.costs
        if c.routing is not choice.routing.routing
    ]  # fmt: skip
    archive, archive_why = "none", "nothing is ever dropped"
    if period is not None:
        archive, archive_why = format_duration(period), "asked for in the options"
        if request.options.archive_period == "auto":
            archive_why = f"a {ARCHIVE_PERIODS}th of the window"
    window_why = "no window" if window is None else pair.window_reason
    return (
        Decision("driving predicate", drives, why, tuple(others)),
        Decision("topology", choice.routing.routing.value, choice.reason, tuple(costs)),
        describe_index(stage.stores, index_why),
        Decision("units", describe_units(choice.routing, (first, second)), choice.units_reason),
        Decision("window", describe_window(window, first, second), window_why),
        Decision("archive period", archive, archive_why),
    )


_WHY_DRIVES = {
    RangeKind.BAND: "a band lets fewer pairs through than an inequality",
    RangeKind.INEQUALITY: "the window expires whole slices of time, so the inequality sorts them",
    RangeKind.TIME: "the window is all that bounds the pairs",
}
