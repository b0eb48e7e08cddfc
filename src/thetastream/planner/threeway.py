"""A predicate over three streams to a plan of TriJoin.

Three edges of the join graph make a cyclic join, which takes the symmetric scheme; two make a
chain, which takes the semi-symmetric one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from thetastream.errors import OptionError
from thetastream.graph import PAIRS, Edge, Placement, TriSpec, content_range
from thetastream.graph import Scheme as SchemeKind
from thetastream.planner.conjuncts import Conjunct
from thetastream.planner.costs import sends
from thetastream.planner.duration import format_duration
from thetastream.planner.joingraph import Graph
from thetastream.planner.names import Carried
from thetastream.planner.pair import archive_period, stream_spec
from thetastream.planner.report import Decision, Explained, Explanation, explain_graph
from thetastream.planner.routing import bucket_width, unit_count
from thetastream.planner.window import window_range
from thetastream.spec import KeySpec, Range, RangeKind, Routing, StreamSpec


@dataclass(frozen=True, repr=False)
class TriPlan(Explained):
    """How three streams will be joined, and why; printed as text.

    `spec` is what the workers carry out; it may change from one release to the next.

    >>> three = ts.streams(orders=orders, first=rides, second=rides)
    >>> plan = three.explain("orders.x = first.x AND first.x = second.x", within="1 minute")
    >>> print(plan.decisions[1].choice)
    symmetric
    """

    spec: TriSpec
    decisions: tuple[Decision, ...]
    conjuncts: tuple[Conjunct, ...]

    @property
    def explanation(self) -> Explanation:
        """What there is to say of it."""
        return explain_graph(self.spec, self.conjuncts, self.decisions)

    def explain(self) -> str:
        """The plan as text."""
        return self.explanation.text()

    def _repr_html_(self) -> str:
        return self.explanation.html()


def plan_three(graph: Graph, carried: Sequence[Carried]) -> TriPlan:
    """The plan of a join of three streams."""
    return _ThreeWay(graph, carried).plan()


class _ThreeWay:
    def __init__(self, graph: Graph, carried: Sequence[Carried]) -> None:
        self.graph = graph
        self.scope = graph.scope
        self.options = graph.request.options
        self.carried = carried

    def plan(self) -> TriPlan:
        graph, options = self.graph, self.options
        if options.topology not in ("auto", "random"):
            raise OptionError(
                f"topology={options.topology!r} is for two streams",
                hint='leave it "auto", or use "random" to send every tuple to all units',
            )
        scheme, order, why = self._scheme()
        self.scope.names.carry(self.carried, graph.recheck)
        streams = tuple(self._stream(number) for number in range(3))
        keys = [graph.keys(number) for number in range(3)]
        edges = tuple(self._edge(pair, keys) for pair in PAIRS)
        units, units_why = self._units()
        placements = tuple(self._placement(group, edges, streams) for group in range(3))
        lengths = [abs(length) for row in graph.reach for length in row if length is not None]
        spec = TriSpec(
            streams=streams,
            edges=edges,
            scheme=scheme,
            order=order,
            reach=tuple(tuple(row) for row in graph.reach),
            units=units,
            placements=placements,
            packed=options.intermediate == "packed",
            recheck_sql=graph.recheck_sql(),
            archive_period=archive_period(lengths, graph.request) if graph.windowed else None,
            session=self.scope.session,
            predicate=graph.predicate(),
            origin=graph.request.origin,
        )
        return TriPlan(spec, self._decisions(spec, why, units_why), graph.all_reports())

    def _scheme(self) -> tuple[SchemeKind, tuple[int, ...], str]:
        names = self.scope.names.streams
        joined = [pair for pair in PAIRS if self.graph.edges[pair].joined]
        asked = self.options.scheme
        if len(joined) == 3 or asked == "symmetric":
            if asked == "semi-symmetric":
                raise OptionError(
                    'scheme="semi-symmetric" is for a chain, and every two streams are compared',
                    hint='leave it "auto", or use "symmetric" or "tree"',
                )
            if len(joined) < 3:
                for pair in PAIRS:
                    self.graph.edges[pair].joined = True
            why = "every two streams are compared: whatever comes last completes a stored pair"
            return SchemeKind.SYMMETRIC, (0, 1, 2), why if len(joined) == 3 else "asked for"
        (middle,) = set(joined[0]) & set(joined[1])
        first, last = (number for number in range(3) if number != middle)
        why = (
            f"{names[first]} and {names[last]} are not compared: what {names[middle]} makes with"
            f" {names[first]} goes on to {names[last]}"
        )
        return SchemeKind.SEMI_SYMMETRIC, (first, middle, last), why

    def _stream(self, number: int) -> StreamSpec:
        names, graph = self.scope.names, self.graph
        name = names.streams[number]
        columns = [names.columns[number][index] for index in names.carried[number]]
        keys, filters = graph.keys(number), graph.filters(number)
        return stream_spec(name, columns, keys, filters, timed=name in graph.request.time)

    def _edge(self, pair: tuple[int, int], keys: list[list[KeySpec]]) -> Edge:
        edge = self.graph.edges[pair]
        first, second = (keys[stream] for stream in pair)
        found = [
            replace(item, left=first.index(left), right=second.index(right))
            for item, left, right in edge.ranges
        ]
        window = self.graph.window(*pair)
        if window is not None and all(item.kind is not RangeKind.TIME for item in found):
            found.append(window_range(window, 0, 0))
        equality = None
        if edge.equality is not None:
            base, left, right = edge.equality
            equality = replace(base, left=first.index(left), right=second.index(right))
        return Edge(equality=equality, ranges=tuple(found), joined=edge.joined)

    def _units(self) -> tuple[tuple[int, ...], str]:
        asked = self.options.units
        if isinstance(asked, tuple):
            if len(asked) != 3:
                raise OptionError(
                    f"units={asked!r} are for {len(asked)} streams, and there are 3",
                    hint="give one number, or one for each stream",
                )
            return asked, "asked for in the options"
        count, why = unit_count(asked, self.scope.analyst.parallelism)
        return (count,) * 3, why

    def _placement(
        self, group: int, edges: Sequence[Edge], streams: Sequence[StreamSpec]
    ) -> Placement:
        """By the key on which most visitors are compared; an equality's before a band's."""
        if self.options.topology == "random":
            return Placement(routing=Routing.RANDOM)
        hashed: dict[int, int] = {}
        bands: dict[int, Range] = {}
        for pair, edge in zip(PAIRS, edges, strict=True):
            if group not in pair or not edge.joined:
                continue
            side = pair.index(group)
            if edge.equality is not None:
                key = edge.equality.of(side)
                hashed[key] = hashed.get(key, 0) + 1
            for item in edge.ranges:
                key = item.of(side)
                if content_range(edge, side, key) is item and key not in bands:
                    bands[key] = item
        if hashed:
            key = max(hashed, key=lambda key: hashed[key])
            return Placement(routing=Routing.HASH, key=key)
        if bands:
            key, item = next(iter(bands.items()))
            width = bucket_width(item, streams[group].keys[key], self.options)
            return Placement(routing=Routing.BAND, key=key, width=width)
        return Placement(routing=Routing.RANDOM)

    # -- decisions ------------------------------------------------------------------------------

    def _decisions(self, spec: TriSpec, why: str, units_why: str) -> tuple[Decision, ...]:
        names = [stream.name for stream in spec.streams]
        joined = [
            f"{names[one]}-{names[two]} ({edge.kind})"
            for (one, two), edge in zip(PAIRS, spec.edges, strict=True)
            if edge.joined
        ]
        shape = "cyclic" if len(joined) == 3 else f"chain, {names[spec.order[1]]} in the middle"
        found = [
            Decision("join graph", shape, ", ".join(joined)),
            Decision("scheme", spec.scheme.value, why),
        ]
        for group, placement in enumerate(spec.placements):
            sent = []
            for other in range(3):
                if other != group:
                    how = "by content" if sends(spec, other, group) else "to every unit"
                    sent.append(f"{names[other]} is sent {how}")
            key = placement.key
            by = "at random" if key is None else f"by {spec.streams[group].keys[key].sql}"
            found.append(Decision(f"group of {names[group]}", f"stored {by}", ", ".join(sent)))
        lengths = {length for row in spec.reach for length in row if length is not None}
        window = "full history"
        if len(lengths) == 1:
            window = f"newest and oldest at most {format_duration(lengths.pop())} apart"
        elif lengths:
            window = "time ranges of the predicate"
        packs = "packs of a hub and its partners" if spec.packed else "single pairs"
        kept = [
            f"{names[new]} with stored {names[group]}"
            for stage in spec.stages
            for new, group in stage.meetings
        ]
        found += [
            Decision("intermediate", packs, "kept where they are made: " + ", ".join(kept)),
            Decision(
                "units", ", ".join(f"{n} for {s}" for n, s in zip(spec.units, names, strict=True)),
                units_why,
            ),
            Decision("window", window, "of all three members"),
        ]  # fmt: skip
        return tuple(found)
