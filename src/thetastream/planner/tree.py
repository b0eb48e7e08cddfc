"""A predicate over three and more streams to a tree of two-way joins (BiStream+Tree).

The results of each join are a stream for the next one. The two streams with the strongest
predicate come first, then always the stream with the strongest predicate on those before it. All
conjuncts are evaluated in the first join that knows their streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from thetastream.planner.edges import order_ranges
from thetastream.planner.expression import Column, conjunction, map_columns, quote, streams_of
from thetastream.planner.expression import columns as columns_of
from thetastream.planner.graph import Graph
from thetastream.planner.keys import KeyTable, Scope
from thetastream.planner.names import Carried, Names
from thetastream.planner.plan import Plan
from thetastream.planner.report import Decision
from thetastream.planner.request import Request
from thetastream.planner.two import Pair, pair_of, plan_of
from thetastream.planner.types import KeyForm
from thetastream.planner.window import window_range
from thetastream.spec import (
    ColumnSpec,
    Encoding,
    JoinTree,
    Range,
    Window,
    result_column,
)

Place = tuple[int, int]
"""A column of one of the streams: the stream and the column's place in it."""


def plan_steps(graph: Graph, carried: Sequence[Carried], *, timed: bool, why: str) -> Plan:
    """The plan of a tree; `timed` if the results need the time of their newest member."""
    return _Tree(graph, carried, timed).plan(why)


class _Tree:
    def __init__(self, graph: Graph, carried: Sequence[Carried], timed: bool) -> None:
        self.graph = graph
        self.request = graph.request
        self.scope = graph.scope
        self.names = graph.scope.names
        self.timed = timed
        asked = [
            range(len(self.names.columns[stream])) if mine.columns is None else mine.columns
            for stream, mine in enumerate(carried)
        ]
        self.asked = [tuple(sorted(columns)) for columns in asked]
        self.times = [
            self.names.position(stream, self.request.time[name])
            if name in self.request.time
            else None
            for stream, name in enumerate(self.names.streams)
        ]
        self.pending = list(graph.conjuncts)

    def plan(self, why: str) -> Plan:
        order = self._order()
        steps: list[Plan] = []
        held: list[Place] = []
        joined = [order[0]]
        for stream in order[1:]:
            plan, held = self._step(joined, held, stream)
            steps.append(plan)
            joined.append(stream)
        self.names.carried = tuple(self.asked)
        last = self._final_names(held, joined)
        tree = JoinTree(
            steps=tuple(step.tree.steps[0] for step in steps),
            order=tuple(order),
            output=tuple(
                tuple(last[stream, index] for index in columns)
                for stream, columns in enumerate(self.asked)
            ),
            reach=self.graph.reach,
            predicate=self.graph.predicate(),
            origin=self.request.origin,
        )
        shown = ", ".join(self.names.streams[stream] for stream in order)
        decisions = (
            Decision("scheme", "tree of two-way joins", why),
            Decision("order", shown, "the strongest predicates first"),
        )
        return Plan(tree, decisions, self.graph.all_reports(), steps=tuple(steps))

    # -- the order ------------------------------------------------------------------------------

    def _rank(self, one: int, two: int) -> int:
        return self.graph.edges[min(one, two), max(one, two)].rank

    def _order(self) -> list[int]:
        first = min(self.graph.pairs, key=lambda pair: self._rank(*pair))
        order = list(first)
        rest = [stream for stream in range(self.graph.count) if stream not in order]
        while rest:
            best = min(rest, key=lambda stream: min(self._rank(stream, one) for one in order))
            order.append(best)
            rest.remove(best)
        return order

    # -- one join -------------------------------------------------------------------------------

    def _needed(self, stream: int) -> list[int]:
        """The columns of a stream that results or later joins read."""
        read = {
            column.index
            for item in self.graph.conjuncts
            if len(streams_of(item)) > 1
            for column in columns_of(item)
            if column.stream == stream
        }
        time = self.times[stream]
        read |= set(self.asked[stream]) | ({time} if time is not None else set())
        return sorted(read)

    def _step(self, joined: list[int], held: list[Place], stream: int) -> tuple[Plan, list[Place]]:
        first = len(joined) == 1
        if first:
            left = self.names.streams[joined[0]]
            held = [(joined[0], index) for index in range(len(self.names.columns[joined[0]]))]
            columns = list(self.names.columns[joined[0]])
        else:
            left = self._free_name(joined)
            known = self._final_names(held, joined)
            columns = [
                ColumnSpec(name=known[place], type=self.names.columns[place[0]][place[1]].type)
                for place in held
            ]
        right = self.names.streams[stream]
        analyst = self.scope.analyst if first else self.scope.analyst.with_stream(left, columns)
        names = Names(
            {left: columns, right: self.names.columns[stream]},
            case_sensitive=self.scope.analyst.case_sensitive,
        )
        scope = Scope(self.scope.text, names, analyst, self.scope.fixed_zone)

        def local(column: Column) -> Column:
            if column.stream == stream:
                return replace(column, stream=1)
            return replace(column, stream=0, index=held.index((column.stream, column.index)))

        have = {*joined, stream}
        mine = [item for item in self.pending if streams_of(item) <= have]
        self.pending = [item for item in self.pending if item not in mine]
        conjuncts = [map_columns(item, local) for item in mine]
        keep = frozenset(self._needed(joined[0])) if first else None
        carried = Carried(keep), Carried(frozenset(self._needed(stream)))
        request = self._request((left, right))
        if not first:
            request = request.untimed()
        else:
            # Also what follows from time ranges with other streams.
            request = replace(request, within=self.graph.window(joined[0], stream))
        graph = Graph(conjunction(conjuncts), scope, request)
        tables = graph.edges[0, 1].plan.tables
        if first and self.graph.windowed:
            # The window may be between other streams: without a time a tuple is in none.
            for table, time in zip(
                tables, (self.times[joined[0]], self.times[stream]), strict=True
            ):
                if time is not None:
                    table.require(Column(stream=table.stream, index=time))
        times = None if first else self._time_keys(tables, held, joined, stream)
        pair = pair_of(graph, carried)
        if not first:
            pair = self._with_times(pair, times, joined, stream)
        after = [held[index] for index in names.carried[0]]
        after += [(stream, index) for index in names.carried[1]]
        return plan_of(pair, scope, request), after

    def _request(self, streams: tuple[str, str]) -> Request:
        """What is asked of one of the joins."""
        options = self.request.options
        units = options.units
        options = replace(
            options,
            units=max(units) if isinstance(units, tuple) else units,
            topology="random" if options.topology == "random" else "auto",
        )
        return replace(self.request.between(streams), options=options)

    def _free_name(self, joined: list[int]) -> str:
        """A name for the results so far: no stream's, nor a lambda variable's in the predicate."""
        name = "_".join(self.names.streams[stream] for stream in joined)
        taken = [other.casefold() for other in self.names.streams]
        while name.casefold() in taken or name.casefold() in self.scope.text.casefold():
            name += "_"
        return name

    def _final_names(self, held: list[Place], joined: list[int]) -> dict[Place, str]:
        """The names that the columns have in the results of the join that held them last."""
        found: dict[Place, str] = {}
        numbers = [0, 0]
        for place in held:
            side = 1 if len(joined) > 1 and place[0] == joined[-1] else 0
            found[place] = result_column(side, numbers[side])
            numbers[side] += 1
        return found

    # -- times ----------------------------------------------------------------------------------

    def _time_keys(
        self,
        tables: tuple[KeyTable, KeyTable],
        held: list[Place],
        joined: list[int],
        stream: int,
    ) -> _Times | None:
        known = self._final_names(held, joined)
        own = self.times[stream]
        if own is None:
            return None
        members: dict[int, int] = {}
        texts = []
        kind = self.names.columns[stream][own].type
        form = KeyForm(Encoding.INTEGER, kind, True)
        for member in joined:
            place = self.times[member]
            if place is not None:
                index = held.index((member, place))
                members[member] = tables[0].add(Column(stream=0, index=index), form)
                texts.append(quote(known[member, place]))
        oldest = latest = None
        if len(members) == 1:
            # Spark's least() takes two arguments or more.
            (oldest,) = members.values()
            latest = oldest if self.timed else None
        elif members:
            listed = ", ".join(texts)
            oldest = tables[0].add_sql(f"least({listed})", kind, Encoding.INTEGER)
            if self.timed:
                latest = tables[0].add_sql(f"greatest({listed})", kind, Encoding.INTEGER)
        mine = tables[1].add(Column(stream=1, index=own), form)
        tables[1].require(Column(stream=1, index=own))
        return _Times(members, oldest, latest, mine)

    def _with_times(self, pair: Pair, times: _Times | None, joined: list[int], stream: int) -> Pair:
        """The pair with the results so far as its first stream, and the windows to them."""
        first, second = pair.streams
        if times is None:
            return replace(pair, streams=(replace(first, is_join_result=True), second))
        ranges: list[Range] = list(pair.edge.ranges)
        ahead: list[int | None] = []
        # Of all members: a new one without a time may come with old ones at any time.
        behind = [self.graph.reach[stream][member] for member in joined]
        for member, key in times.members.items():
            there, back = self.graph.reach[member][stream], self.graph.reach[stream][member]
            ahead.append(there)
            if there is not None or back is not None:
                window = Window(low=None if back is None else -back, high=there)
                ranges.append(window_range(window, key, times.own))
        ordered = order_ranges(ranges, equality=pair.edge.equality is not None)
        results = replace(first, time=times.oldest, latest=times.latest, is_join_result=True)
        return replace(
            pair,
            streams=(results, replace(second, time=times.own)),
            edge=replace(pair.edge, ranges=ordered),
            reach=((None, _most(ahead)), (_most(behind), None)),
            window_reason="to the oldest of the members before",
        )


@dataclass(frozen=True)
class _Times:
    """The places of keys of time."""

    members: dict[int, int]
    oldest: int | None
    latest: int | None
    own: int


def _most(lengths: list[int | None]) -> int | None:
    """The longest of them, or none where one has no end or there is none."""
    finite = [length for length in lengths if length is not None]
    return max(finite) if finite and len(finite) == len(lengths) else None
