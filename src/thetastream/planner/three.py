"""A predicate over three streams to a plan of TriJoin.

Three edges of the join graph make a cyclic join, which takes the symmetric scheme; two make a
chain, which takes the semi-symmetric one.
"""

from __future__ import annotations

from collections.abc import Sequence

from thetastream.durations import format_duration
from thetastream.errors import OptionError
from thetastream.planner.graph import Graph
from thetastream.planner.indexes import describe_index, index_of
from thetastream.planner.names import Carried
from thetastream.planner.plan import Plan
from thetastream.planner.report import Decision
from thetastream.planner.routing import bucket_width, unit_counts
from thetastream.spec import (
    Edge,
    GroupBy,
    Grouping,
    IndexKind,
    JoinSpec,
    JoinTree,
    Meeting,
    Range,
    Retention,
    Routing,
    RoutingSpec,
    Stage,
    Step,
    Store,
    StreamSpec,
    Then,
    needed,
)
from thetastream.topology.groups import is_sent_by_content


def plan_three(graph: Graph, carried: Sequence[Carried]) -> Plan:
    """The plan of a join of three streams."""
    return _ThreeWay(graph, carried).plan()


class _ThreeWay:
    def __init__(self, graph: Graph, carried: Sequence[Carried]) -> None:
        self.graph = graph
        self.scope = graph.scope
        self.options = graph.request.options
        self.carried = carried

    def plan(self) -> Plan:
        graph, options = self.graph, self.options
        if options.topology not in ("auto", "random"):
            raise OptionError(
                f"topology={options.topology!r} is for two streams",
                hint='leave it "auto", or use "random" to send every tuple to all units',
            )
        stages, order, scheme = self._scheme()
        streams = graph.streams(self.carried)
        edges = graph.spec_edges(streams)
        units, units_why = unit_counts(options, self.scope.analyst.parallelism, 3)
        spec = JoinSpec(
            streams=streams,
            edges=edges,
            reach=graph.reach,
            stages=self._stages(stages, order, edges, streams),
            order=order,
            packed=options.intermediate == "packed",
            recheck_sql=graph.recheck_sql(),
            archive_period=graph.request.archive_period(graph.reach),
            session=self.scope.session,
            predicate=graph.predicate(),
            origin=graph.request.origin,
        )
        routing = RoutingSpec(routing=Routing.HASH, units=units)
        step = Step(spec=spec, routing=routing)
        tree = JoinTree(
            steps=(step,), reach=graph.reach, predicate=spec.predicate, origin=spec.origin
        )
        return Plan(tree, self._decisions(spec, units, scheme, units_why), graph.all_reports())

    def _scheme(self) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...], Decision]:
        """The streams that each stage stores, the order of all, and why."""
        names = self.scope.names.streams
        joined = [pair for pair in self.graph.pairs if self.graph.edges[pair].joined]
        asked = self.options.scheme
        if len(joined) == 3 or asked == "symmetric":
            if asked == "semi-symmetric":
                raise OptionError(
                    'scheme="semi-symmetric" is for a chain, and every two streams are compared',
                    hint='leave it "auto", or use "symmetric" or "tree"',
                )
            why = "asked for"
            if len(joined) == 3:
                why = "every two streams are compared: whatever comes last completes a stored pair"
            for pair in self.graph.pairs:
                self.graph.edges[pair].joined = True
            return ((0, 1, 2),), (0, 1, 2), Decision("scheme", "symmetric", why)
        (middle,) = set(joined[0]) & set(joined[1])
        first, last = (number for number in range(3) if number != middle)
        why = (
            f"{names[first]} and {names[last]} are not compared: what {names[middle]} makes with"
            f" {names[first]} goes on to {names[last]}"
        )
        # The first stage has the first end alone: what it finds has to pass the second.
        order = (first, middle, last)
        return ((first,), (middle, last)), order, Decision("scheme", "semi-symmetric", why)

    def _stages(
        self,
        stored: tuple[tuple[int, ...], ...],
        order: tuple[int, ...],
        edges: tuple[Edge, ...],
        streams: tuple[StreamSpec, ...],
    ) -> tuple[Stage, ...]:
        between = {edge.streams: edge for edge in edges}

        def edge(one: int, two: int) -> Edge:
            return between[min(one, two), max(one, two)]

        def hub(new: int, old: int) -> int:
            """The one with the stronger predicate on the third stream, which looks for it; the new
            tuple's where both are as strong."""
            third = 3 - new - old
            return old if edge(old, third).rank < edge(new, third).rank else new

        def then(new: int, old: int) -> Then:
            forwards = len(stored) > 1 and (old, new) == order[:2]
            return Then.FORWARD if forwards else Then.PACK

        met = [
            tuple(
                Meeting(new=new, stored=old, then=then(new, old), hub=hub(new, old))
                for old in mine
                for new in order
                if new != old and edge(new, old).joined
            )
            for mine in stored
        ]
        bare = [Stage(number=n, stores=(), meetings=some) for n, some in enumerate(met)]
        period = self.graph.request.archive_period(self.graph.reach)
        stages = []
        for stage, mine in zip(bare, stored, strict=True):
            stores = []
            for stream in mine:
                # Sorted for the visitors that have the strongest predicate; others sort it again.
                others = [other for other in order if other != stream]
                strongest = min(others, key=lambda other: edge(stream, other).rank)
                keeps = needed(self.graph.reach, bare, stream)
                sorted_by = edge(stream, strongest).order(stream)
                indexed = index_of(self.options, sorted_by, streams[stream])
                stores.append(
                    Store(
                        stream=stream,
                        group_by=self._group_by(stream, edges, streams),
                        order=sorted_by,
                        retention=Retention(
                            time=streams[stream].time,
                            keeps=keeps,
                            period=None if keeps is None else period,
                        ),
                        index=indexed.kind,
                        theta=indexed.theta,
                        sketch=indexed.sketch,
                    )
                )
            stages.append(Stage(number=stage.number, stores=tuple(stores), meetings=stage.meetings))
        return tuple(stages)

    def _group_by(
        self, stream: int, edges: Sequence[Edge], streams: Sequence[StreamSpec]
    ) -> GroupBy:
        """By the key on which most visitors are compared; an equality's before a band's."""
        if self.options.topology == "random":
            return GroupBy(kind=Grouping.CONTENT)
        hashed: dict[int, int] = {}
        bands: dict[int, Range] = {}
        for edge in edges:
            if stream not in edge.streams or not edge.joined:
                continue
            side = edge.side(stream)
            if edge.equality is not None:
                key = edge.equality.of(side)
                hashed[key] = hashed.get(key, 0) + 1
            for item in edge.ranges:
                key = item.of(side)
                if edge.band_on(stream, key) is item and key not in bands:
                    bands[key] = item
        if hashed:
            return GroupBy(kind=Grouping.KEY, key=max(hashed, key=lambda key: hashed[key]))
        if bands:
            key, item = next(iter(bands.items()))
            width = bucket_width(item, streams[stream].keys[key], self.options)
            return GroupBy(kind=Grouping.BUCKET, key=key, width=width)
        return GroupBy(kind=Grouping.CONTENT)

    # -- decisions ------------------------------------------------------------------------------

    def _decisions(
        self, spec: JoinSpec, units: tuple[int, ...], scheme: Decision, units_why: str
    ) -> tuple[Decision, ...]:
        names = [stream.name for stream in spec.streams]
        joined = [
            f"{names[edge.streams[0]]}-{names[edge.streams[1]]} ({edge.kind})"
            for edge in spec.edges
            if edge.joined
        ]
        shape = "cyclic" if len(joined) == 3 else f"chain, {names[spec.order[1]]} in the middle"
        found = [Decision("join graph", shape, ", ".join(joined)), scheme]
        stores = {store.stream: store for stage in spec.stages for store in stage.stores}
        for stream, store in sorted(stores.items()):
            sent = []
            for other in range(3):
                if other != stream:
                    by_content = is_sent_by_content(spec.edge(other, stream), store)
                    how = "by content" if by_content else "to every unit"
                    sent.append(f"{names[other]} is sent {how}")
            key = store.group_by.key
            by = "at random" if key is None else f"by {spec.streams[stream].keys[key].sql}"
            found.append(Decision(f"store of {names[stream]}", f"stored {by}", ", ".join(sent)))
        if stores[0].index is not IndexKind.RUNS:
            found.append(describe_index(list(stores.values()), ""))
        lengths = {length for row in spec.reach for length in row if length is not None}
        window = "full history"
        if len(lengths) == 1:
            window = f"newest and oldest at most {format_duration(lengths.pop())} apart"
        elif lengths:
            window = "time ranges of the predicate"
        packs = "packs of a hub and its partners" if spec.packed else "single pairs"
        kept = [
            f"{names[meeting.new]} with stored {names[meeting.stored]}"
            for stage in spec.stages
            for meeting in stage.meetings
        ]
        found += [
            Decision("intermediate", packs, "kept where they are made: " + ", ".join(kept)),
            Decision(
                "units", ", ".join(f"{n} for {s}" for n, s in zip(units, names, strict=True)),
                units_why,
            ),
            Decision("window", window, "of all three members"),
        ]  # fmt: skip
        return tuple(found)
