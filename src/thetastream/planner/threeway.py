"""A predicate over three streams to a plan of TriJoin.

The join graph has an edge for each two streams that the predicate compares. Each edge is planned
like a join of its two streams; what three streams have in common is checked last, by Spark. Three
edges make a cyclic join, two make a chain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from thetastream.errors import OptionError, WindowError
from thetastream.graph import PAIRS, Edge, Placement, TriSpec, content_range, rank
from thetastream.graph import Scheme as SchemeKind
from thetastream.options import JoinOptions
from thetastream.planner.conjuncts import (
    Conjunct,
    ConjunctClass,
    not_boolean,
    require_boolean,
    split,
)
from thetastream.planner.costs import sends
from thetastream.planner.duration import format_duration
from thetastream.planner.equalities import equality_form
from thetastream.planner.expression import And, Boolean, Column, Comparison, Expr, moved, streams_of
from thetastream.planner.expression import columns as columns_of
from thetastream.planner.keys import Scope
from thetastream.planner.names import Names
from thetastream.planner.plan import Carried, PairPlanner, archive_period
from thetastream.planner.report import Decision, explain_graph, explain_graph_html
from thetastream.planner.routing import bucket_width
from thetastream.planner.window import Within, window_range
from thetastream.spec import (
    ColumnSpec,
    Equality,
    KeySpec,
    Range,
    RangeKind,
    Routing,
    StreamSpec,
    Window,
)

Reach = list[list[int | None]]


@dataclass(frozen=True)
class TriPlan:
    """How three streams will be joined, and why."""

    spec: TriSpec
    decisions: tuple[Decision, ...]
    conjuncts: tuple[Conjunct, ...]

    def explain(self) -> str:
        """The plan as text."""
        return explain_graph(self.spec, self.conjuncts, self.decisions)

    def _repr_html_(self) -> str:
        return explain_graph_html(self.spec, self.conjuncts, self.decisions)


@dataclass
class EdgePlan:
    """What became of the conjuncts between two streams."""

    streams: tuple[int, int]
    planner: PairPlanner
    equality: tuple[Equality, KeySpec, KeySpec] | None
    """With the keys of both sides, whose places differ from those among all keys of a stream."""
    ranges: tuple[tuple[Range, KeySpec, KeySpec], ...]
    window: Window | None
    recheck: list[Expr]
    reports: dict[Expr, Conjunct]
    joined: bool

    @property
    def rank(self) -> int:
        """How few pairs it lets through: the lower, the fewer."""
        return rank(
            self.equality is not None, {item.kind for item, _, _ in self.ranges}, self.joined
        )


def join_graph(
    tree: Expr,
    scope: Scope,
    *,
    within: Within,
    time: Mapping[str, str | None],
    options: JoinOptions,
    delay: int,
) -> Graph:
    """The join graph of a predicate."""
    graph = Graph(tree, scope, within=within, time=time, options=options, delay=delay)
    if graph.time and not graph.windowed:
        # Without a window the event time is a column like any other, and may be NULL.
        return Graph(tree, scope, within=None, time={}, options=options, delay=delay)
    return graph


class Graph:
    """The join graph of a predicate over any number of streams."""

    def __init__(
        self,
        tree: Expr,
        scope: Scope,
        *,
        within: Within,
        time: Mapping[str, str | None],
        options: JoinOptions,
        delay: int,
    ) -> None:
        self.scope = scope
        self.options = options
        self.delay = delay
        self.time = {name: column for name, column in time.items() if column is not None}
        self.within = within
        names = scope.names
        if isinstance(within, tuple):
            raise WindowError(
                f"within={within!r} is for two streams, and there are {len(names.streams)}",
                hint="give one length: the newest and the oldest member of a result are at most"
                " that far apart; or write the time ranges into the predicate",
            )
        self.conjuncts = split(tree)
        self.recheck: list[Expr] = []
        self.reports: dict[Expr, Conjunct] = {}
        self.count = len(names.streams)
        self.pairs = [(i, j) for i in range(self.count) for j in range(i + 1, self.count)]
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
        implied = self._implied()
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
        if not require_boolean(item, self.scope.text) and not used:
            kind = self.scope.type_of(0, item)
            if kind not in ("boolean", "void"):
                raise not_boolean(item, self.scope.text, kind)
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
        known: dict[str, set[tuple[int, Expr]]] = {}
        for form in forms:
            one, two = self._side(form.first), self._side(form.second)
            if self.scope.type_of(*one) != self.scope.type_of(*two):
                continue
            joined = known.get(self._name(one), {one}) | known.get(self._name(two), {two})
            for member in joined:
                known[self._name(member)] = joined
        said = {frozenset((self._name(self._side(f.first)), self._name(self._side(f.second))))
                for f in forms}  # fmt: skip
        found: dict[tuple[int, int], list[Comparison]] = {}
        for members in {id(group): group for group in known.values()}.values():
            for one in members:
                for two in members:
                    names = frozenset((self._name(one), self._name(two)))
                    if one[0] < two[0] and names not in said:
                        made = Comparison(op="=", left=one[1], right=two[1])
                        found.setdefault((one[0], two[0]), []).append(made)
        return found

    @staticmethod
    def _side(expr: Expr) -> tuple[int, Expr]:
        return min(streams_of(expr)), expr

    def _name(self, side: tuple[int, Expr]) -> str:
        return self.scope.show(side[1])

    def _edge(
        self, pair: tuple[int, int], conjuncts: list[Expr], implied: list[Comparison]
    ) -> EdgePlan:
        names = self.scope.names
        own = Names(
            {names.streams[stream]: names.columns[stream] for stream in pair},
            case_sensitive=self.scope.analyst.case_sensitive,
        )
        scope = Scope(self.scope.text, own, self.scope.analyst, self.scope.fixed_zone)
        places = {stream: place for place, stream in enumerate(pair)}

        def local(column: Column) -> Column:
            return replace(column, stream=places[column.stream])

        origin = {moved(item, local): item for item in conjuncts}
        extra = [item for item in (moved(one, local) for one in implied) if item not in origin]
        planner = PairPlanner(
            scope,
            JoinOptions(archive_period=self.options.archive_period),
            self.within,
            {name: self.time[name] for name in own.streams if name in self.time},
            self.delay,
        )
        items = [*origin, *extra]
        tree: Expr = And(items=tuple(items)) if len(items) > 1 else (
            items[0] if items else Boolean(value=True))  # fmt: skip
        spec = planner.plan(tree, "").spec
        keys = [table.specs for table in planner.tables]
        equality = None
        if spec.equality is not None:
            left, right = keys[0][spec.equality.left], keys[1][spec.equality.right]
            equality = (spec.equality, left, right)
        return EdgePlan(
            pair,
            planner,
            equality,
            tuple((item, keys[0][item.left], keys[1][item.right]) for item in spec.ranges),
            spec.window,
            [origin[item] for item in planner.recheck if item in origin],
            {
                origin[item]: replace(report, streams=streams_of(origin[item]))
                for item, report in planner.reports.items()
                if item in origin
            },
            bool(extra) or any(len(streams_of(item)) == 2 for item in conjuncts),
        )

    # -- times ----------------------------------------------------------------------------------

    def _reach(self) -> Reach:
        """How much later one stream's tuple may be than another's, in a result."""
        reach: Reach = [[None] * self.count for _ in range(self.count)]
        for (one, two), edge in self.edges.items():
            if edge.window is not None:
                reach[one][two] = edge.window.high
                reach[two][one] = None if edge.window.low is None else -edge.window.low
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
        open_ended = any(reach[i][j] is None for i, j in self.pairs) or any(
            reach[j][i] is None for i, j in self.pairs
        )
        if open_ended and not self.options.full_history:
            raise WindowError(
                f"a join of {self.count} streams needs a window: its intermediate results would be"
                " kept for ever",
                hint='add within="10 minutes", or ask for the full history with'
                " options=ts.JoinOptions(full_history=True)",
            )
        return reach

    @property
    def windowed(self) -> bool:
        """Whether time limits anything at all."""
        return any(length is not None for row in self.reach for length in row)

    def window(self, one: int, two: int) -> Window | None:
        """What is known of the times of two streams, the lower number first."""
        there, back = self.reach[one][two], self.reach[two][one]
        if there is None and back is None:
            return None
        return Window(low=None if back is None else -back, high=there)

    def _check_connected(self) -> None:
        """Refuse a stream that nothing is compared with, unless that was asked for."""
        names = self.scope.names.streams
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
        if not self.options.cross:
            raise OptionError(
                f"the predicate compares {', '.join(alone)} with no other stream",
                detail=f"  {self.scope.text}",
                hint="add a comparison; or allow all combinations with"
                " options=ts.JoinOptions(cross=True)",
            )
        for number in sorted(set(range(self.count)) - reached):
            self.edges[0, number].joined = True

    # -- streams --------------------------------------------------------------------------------

    def filters(self, stream: int) -> list[str]:
        """The conditions on one stream's rows."""
        found: list[str] = []
        for pair, edge in self.edges.items():
            if stream in pair:
                mine = edge.planner.tables[pair.index(stream)].filters
                found += [condition for condition in mine if condition not in found]
        return found

    def keys(self, stream: int) -> list[KeySpec]:
        """The keys of one stream, its event time first."""
        found: list[KeySpec] = []
        for pair, edge in self.edges.items():
            if stream in pair:
                mine = edge.planner.tables[pair.index(stream)].specs
                found += [key for key in mine if key not in found]
        return found

    def settle_columns(self, carried: Sequence[Carried]) -> None:
        """Results have the columns that were asked for and those that are re-checked."""
        names = self.scope.names
        read = {(c.stream, c.index) for item in self.recheck for c in columns_of(item)}
        names.carried = tuple(
            tuple(
                index
                for index in range(len(names.columns[stream]))
                if mine.columns is None or index in mine.columns or (stream, index) in read
            )
            for stream, mine in enumerate(carried)
        )

    def recheck_sql(self) -> str | None:
        """What Spark evaluates on the results."""
        parts = [
            PairPlanner.wrapped(item, self.scope.output(item))
            for item in self.conjuncts
            if item in self.recheck
        ]
        return " AND ".join(parts) if parts else None

    def predicate(self) -> str:
        """The normalised predicate."""
        shown = (PairPlanner.wrapped(item, self.scope.show(item)) for item in self.conjuncts)
        return " AND ".join(shown) or "TRUE"

    def all_reports(self) -> tuple[Conjunct, ...]:
        """What became of each conjunct, in the order of the text."""
        return tuple(self.reports[item] for item in self.conjuncts)


def plan_three(graph: Graph, carried: Sequence[Carried], origin: str) -> TriPlan:
    """The plan of a join of three streams."""
    return _ThreeWay(graph, carried, origin).plan()


class _ThreeWay:
    def __init__(self, graph: Graph, carried: Sequence[Carried], origin: str) -> None:
        self.graph = graph
        self.scope = graph.scope
        self.options = graph.options
        self.carried = carried
        self.origin = origin

    def plan(self) -> TriPlan:
        graph, options = self.graph, self.options
        if options.topology not in ("auto", "random"):
            raise OptionError(
                f"topology={options.topology!r} is for two streams",
                hint='leave it "auto", or use "random" to send every tuple to all units',
            )
        scheme, order, why = self._scheme()
        graph.settle_columns(self.carried)
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
            archive_period=archive_period(lengths, options, graph.delay)
            if graph.windowed
            else None,
            predicate=graph.predicate(),
            origin=self.origin,
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
        names = self.scope.names
        columns = [names.columns[number][index] for index in names.carried[number]]
        known = {column.name for column in columns}
        keys = self.graph.keys(number)
        if not columns and not keys:
            # A tuple without anything would not travel.
            columns.append(ColumnSpec(name="one", type="boolean", sql="TRUE"))
        filters = self.graph.filters(number)
        return StreamSpec(
            name=names.streams[number],
            columns=tuple(columns),
            keys=tuple(key if key.column in known else replace(key, column=None) for key in keys),
            filter_sql=" AND ".join(filters) if filters else None,
            time=0 if names.streams[number] in self.graph.time else None,
        )

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
        if asked == "auto":
            count = max(1, self.scope.analyst.parallelism)
            return (count,) * 3, f"as many as tasks run at a time ({count})"
        return (asked,) * 3, "asked for in the options"

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
