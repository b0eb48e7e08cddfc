"""The join graph of a predicate over two and more streams.

It has an edge for each two streams that the predicate compares. Each edge is planned by itself;
what more streams have in common is checked last, by Spark.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from thetastream.errors import OptionError, WindowError
from thetastream.planner.conjuncts import (
    Conjunct,
    ConjunctClass,
    conjoined,
    not_boolean,
    require_boolean,
    split,
)
from thetastream.planner.edges import EdgePlan, EdgePlanner, stream_spec
from thetastream.planner.equalities import equality_form
from thetastream.planner.expression import Column, Comparison, Expr, map_columns, streams_of
from thetastream.planner.keys import KeyTable, Scope
from thetastream.planner.names import Carried, Names
from thetastream.planner.request import Request
from thetastream.planner.window import window_range
from thetastream.spec import (
    Edge,
    KeySpec,
    RangeKind,
    Reach,
    StreamSpec,
    Window,
    is_windowed,
    longest,
    rank,
    window_in,
)


@dataclass
class GraphEdge:
    """Two streams of the graph, and what became of the conjuncts between them."""

    plan: EdgePlan
    recheck: list[Expr]
    reports: dict[Expr, Conjunct]
    """Both of the conjuncts of the predicate itself."""
    stated: frozenset[ConjunctClass]
    """The classes of the conjuncts that the predicate itself has between the two."""
    joined: bool

    @property
    def rank(self) -> int:
        """How few pairs the predicate itself lets through: the lower, the fewer."""
        edge = self.plan.edge
        equality = edge.equality is not None and ConjunctClass.EQUALITY in self.stated
        return rank(equality, {item.kind for item in edge.ranges}, bool(self.stated))


def join_graph(tree: Expr, scope: Scope, request: Request, *, verify: bool = False) -> Graph:
    """The join graph of a predicate.

    `verify` lets the units compare what was hashed, instead of Spark on each result.
    """
    known = scope.names.streams
    unknown = [name for name in request.time if name not in known]
    if unknown:
        raise WindowError(
            f"time names a stream {unknown[0]!r} that was not given",
            hint=f"the streams are {', '.join(known)}",
        )
    if len(split(tree)) == 1 and not streams_of(tree) and scope.type_of(0, tree) == "void":
        # NULL is a truth value beside AND, but to Spark no condition by itself.
        raise not_boolean(tree, scope.text, "void")
    graph = Graph(tree, scope, request, verify)
    if request.time and not graph.windowed:
        # Without a window the event time is a column like any other, and may be NULL.
        return Graph(tree, scope, request.untimed(), verify)
    return graph


class Graph:
    """The join graph of a predicate over any number of streams."""

    def __init__(self, tree: Expr, scope: Scope, request: Request, verify: bool = False) -> None:
        self.scope = scope
        self.request = request
        self.verify = verify
        names = scope.names
        if isinstance(request.within, tuple) and len(names.streams) > 2:
            raise WindowError(
                f"within={request.within!r} is for two streams, and there are {len(names.streams)}",
                hint="give one length: the newest and the oldest member of a result are at most"
                " that far apart; or write the time ranges into the predicate",
            )
        self.conjuncts = split(tree)
        self.recheck: list[Expr] = []
        self.reports: dict[Expr, Conjunct] = {}
        self.count = len(names.streams)
        self.pairs = list(itertools.combinations(range(self.count), 2))
        mine: dict[tuple[int, int], list[Expr]] = {pair: [] for pair in self.pairs}
        for item in self.conjuncts:
            used = sorted(streams_of(item))
            if len(used) == 2:
                mine[used[0], used[1]].append(item)
            elif len(used) == 1:
                # Its filter is planned with any edge of the stream.
                other = 0 if used[0] else 1
                mine[min(used[0], other), max(used[0], other)].append(item)
            else:
                self._last(item, used)
        # Of two streams all that follows between them is said already.
        implied = self._implied() if self.count > 2 else {}
        self.edges = {
            pair: self._edge(pair, mine[pair], implied.get(pair, [])) for pair in self.pairs
        }
        for edge in self.edges.values():
            self.recheck += [item for item in edge.recheck if item not in self.recheck]
            self.reports.update(edge.reports)
        self.reach = self._reach()
        self._check_connected()

    # -- conjuncts ------------------------------------------------------------------------------

    def _last(self, item: Expr, used: list[int]) -> None:
        """A conjunct over no stream, or over more than two."""
        require_boolean(item, self.scope.text)
        self.recheck.append(item)
        kinds = ConjunctClass.RESIDUAL if used else ConjunctClass.CONSTANT
        handling = "evaluated by Spark on each result"
        if used:
            handling += f": it reads {len(used)} streams"
        self.reports[item] = Conjunct(
            text=self.scope.show(item), kind=kinds, handling=handling, streams=frozenset(used)
        )

    def _implied(self) -> dict[tuple[int, int], list[Comparison]]:
        """a = b and b = c say that a = c: it lets two more streams meet by content."""
        forms = [
            form
            for item in self.conjuncts
            if isinstance(item, Comparison) and (form := equality_form(item)) is not None
        ]
        show = self.scope.show
        # In the order of the text: sets of expressions are in another one in every process.
        known: dict[str, dict[Expr, None]] = {}
        for form in forms:
            one, two = form.sides
            if len({self.scope.type_of(min(streams_of(side)), side) for side in form.sides}) > 1:
                continue
            joined = known.get(show(one), {one: None}) | known.get(show(two), {two: None})
            for member in joined:
                known[show(member)] = joined
        said = {frozenset(map(show, form.sides)) for form in forms}
        found: dict[tuple[int, int], list[Comparison]] = {}
        for members in {id(group): group for group in known.values()}.values():
            for one, two in itertools.permutations(members, 2):
                pair = min(streams_of(one)), min(streams_of(two))
                if pair[0] < pair[1] and frozenset((show(one), show(two))) not in said:
                    found.setdefault(pair, []).append(Comparison(op="=", left=one, right=two))
        return found

    def _edge(
        self, pair: tuple[int, int], conjuncts: list[Expr], implied: list[Comparison]
    ) -> GraphEdge:
        names, scope = self.scope.names, self.scope
        places = {stream: place for place, stream in enumerate(pair)}
        if self.count > 2:
            own = Names(
                {names.streams[stream]: names.columns[stream] for stream in pair},
                case_sensitive=scope.analyst.case_sensitive,
            )
            scope = Scope(scope.text, own, scope.analyst, scope.fixed_zone)

        def local(column: Column) -> Column:
            return replace(column, stream=places[column.stream])

        origin = {map_columns(item, local): item for item in conjuncts}
        extra = [
            item for item in (map_columns(one, local) for one in implied) if item not in origin
        ]
        request = self.request.between([names.streams[stream] for stream in pair])
        planner = EdgePlanner(scope, request, verify=self.verify, only=self.count == 2)
        plan = planner.plan([*origin, *extra])
        stated = frozenset(
            report.kind
            for item, report in plan.reports.items()
            if item in origin and len(report.streams) == 2
        )
        return GraphEdge(
            plan,
            [origin[item] for item in plan.recheck if item in origin],
            {
                origin[item]: replace(report, streams=streams_of(origin[item]))
                for item, report in plan.reports.items()
                if item in origin
            },
            stated,
            joined=bool(extra) or bool(stated) or self.count == 2,
        )

    # -- times ----------------------------------------------------------------------------------

    def _reach(self) -> Reach:
        """How much later one stream's tuple may be than another's, in a result."""
        reach: list[list[int | None]] = [[None] * self.count for _ in range(self.count)]
        for (one, two), edge in self.edges.items():
            window = edge.plan.window
            if window is not None:
                reach[one][two] = window.high
                reach[two][one] = None if window.low is None else -window.low
        for middle in range(self.count):
            for one in range(self.count):
                for two in range(self.count):
                    legs = reach[one][middle], reach[middle][two]
                    if one == two or legs[0] is None or legs[1] is None:
                        continue
                    direct = reach[one][two]
                    through = legs[0] + legs[1]
                    reach[one][two] = through if direct is None else min(direct, through)
        for one, two in self.pairs:
            there, back = reach[one][two], reach[two][one]
            if there is not None and back is not None and there + back < 0:
                raise WindowError(
                    "no tuples can be within all the time ranges",
                    detail=f"  {self.scope.text}",
                    hint="compare the time ranges in the predicate with each other",
                )
        open_ended = self.count > 2 and longest(reach) is None
        if open_ended and not self.request.options.full_history:
            raise WindowError(
                f"a join of {self.count} streams needs a window: its intermediate results would be"
                " kept for ever",
                hint='add within="10 minutes", or ask for the full history with'
                " options=ts.JoinOptions(full_history=True)",
            )
        return tuple(tuple(row) for row in reach)

    @property
    def windowed(self) -> bool:
        """Whether time limits anything at all."""
        return is_windowed(self.reach)

    def window(self, one: int, two: int) -> Window | None:
        """What is known of the times of two streams, the lower number first."""
        return window_in(self.reach, one, two)

    def _check_connected(self) -> None:
        """Refuse a stream that nothing is compared with, unless that was asked for."""
        names = self.scope.names.streams
        if self.count == 2:
            return
        reached = {0}
        while True:
            more = {
                stream
                for pair, edge in self.edges.items()
                if edge.joined and reached & set(pair)
                for stream in pair
            }
            if more <= reached:
                break
            reached |= more
        alone = [name for number, name in enumerate(names) if number not in reached]
        if not alone:
            return
        if not self.request.options.cross:
            raise OptionError(
                f"the predicate compares {', '.join(alone)} with no other stream",
                detail=f"  {self.scope.text}",
                hint="add a comparison; or allow all combinations with"
                " options=ts.JoinOptions(cross=True)",
            )
        for number in sorted(set(range(self.count)) - reached):
            self.edges[0, number].joined = True

    # -- streams --------------------------------------------------------------------------------

    def streams(self, carried: Sequence[Carried]) -> tuple[StreamSpec, ...]:
        """The streams, with the columns that results carry and all keys."""
        self.scope.names.carry(carried, self.recheck)
        return tuple(self._stream(number, carried[number]) for number in range(self.count))

    def _stream(self, number: int, carried: Carried) -> StreamSpec:
        names = self.scope.names
        columns = [names.columns[number][index] for index in names.carried[number]]
        columns += carried.values
        for pair, edge in self.edges.items():
            if number in pair:
                hashed = [both[pair.index(number)] for both in edge.plan.compared]
                columns += [column for column in dict.fromkeys(hashed) if column not in columns]
        timed = names.streams[number] in self.request.time
        name, keys = names.streams[number], self.keys(number)
        return stream_spec(name, columns, keys, self._filters(number), timed=timed)

    def spec_edges(self, streams: Sequence[StreamSpec]) -> tuple[Edge, ...]:
        """The edges, with the places that their keys have among all keys of a stream."""
        return tuple(self._spec_edge(pair, streams) for pair in self.pairs)

    def _spec_edge(self, pair: tuple[int, int], streams: Sequence[StreamSpec]) -> Edge:
        edge = self.edges[pair]
        first, second = (table.specs for table in edge.plan.tables)
        places = [
            [self.keys(stream).index(key) for key in keys]
            for stream, keys in zip(pair, (first, second), strict=True)
        ]
        found = [
            replace(item, left=places[0][item.left], right=places[1][item.right])
            for item in edge.plan.edge.ranges
        ]
        window = self.window(*pair)
        if window is not None and all(item.kind is not RangeKind.TIME for item in found):
            found.append(window_range(window, 0, 0))
        equality = edge.plan.edge.equality
        if equality is not None:
            left, right = places[0][equality.left], places[1][equality.right]
            equality = replace(equality, left=left, right=right)
        compared = tuple(
            (streams[pair[0]].columns.index(left), streams[pair[1]].columns.index(right))
            for left, right in edge.plan.compared
        )
        return Edge(
            streams=pair,
            equality=equality,
            ranges=tuple(found),
            joined=edge.joined,
            compared=compared,
        )

    def _filters(self, stream: int) -> list[str]:
        """The conditions on one stream's rows."""
        found = _each(table.filters for table in self._tables(stream))
        name = self.scope.names.streams[stream]
        if self.windowed and name in self.request.time:
            # Also where the window is between other streams: a tuple without a time is in none.
            index = self.scope.names.position(stream, self.request.time[name])
            assert index is not None
            condition = f"{self.scope.own(Column(stream=stream, index=index))} IS NOT NULL"
            found += [] if condition in found else [condition]
        return found

    def keys(self, stream: int) -> list[KeySpec]:
        """The keys of one stream, its event time first."""
        return _each(table.specs for table in self._tables(stream))

    def _tables(self, stream: int) -> Iterator[KeyTable]:
        for pair, edge in self.edges.items():
            if stream in pair:
                yield edge.plan.tables[pair.index(stream)]

    def recheck_sql(self) -> str | None:
        """What Spark evaluates on the results."""
        again = (item for item in self.conjuncts if item in self.recheck)
        return conjoined(again, self.scope.recheck)

    def predicate(self) -> str:
        """The normalised predicate."""
        return conjoined(self.conjuncts, self.scope.show) or "TRUE"

    def all_reports(self) -> tuple[Conjunct, ...]:
        """What became of each conjunct, in the order of the text."""
        return tuple(self.reports[item] for item in self.conjuncts)


_Item = TypeVar("_Item")


def _each(lists: Iterable[list[_Item]]) -> list[_Item]:
    """What is in any of the lists, once."""
    return list(dict.fromkeys(item for some in lists for item in some))
