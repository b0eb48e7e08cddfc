"""The join graph of a predicate over three and more streams.

It has an edge for each two streams that the predicate compares. Each edge is planned like a join of
its two streams; what more of them have in common is checked last, by Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from thetastream.errors import OptionError, WindowError
from thetastream.graph import rank
from thetastream.options import JoinOptions
from thetastream.planner.conjuncts import (
    Conjunct,
    ConjunctClass,
    conjoined,
    require_boolean,
    split,
)
from thetastream.planner.equalities import equality_form
from thetastream.planner.expression import (
    Column,
    Comparison,
    Expr,
    conjunction,
    moved,
    streams_of,
)
from thetastream.planner.keys import KeyTable, Scope
from thetastream.planner.names import Names
from thetastream.planner.pair import PairPlanner
from thetastream.planner.request import Request
from thetastream.spec import Equality, KeySpec, Range, Window

Reach = list[list[int | None]]


@dataclass
class EdgePlan:
    """What became of the conjuncts between two streams."""

    tables: tuple[KeyTable, KeyTable]
    equality: tuple[Equality, KeySpec, KeySpec] | None
    """With the keys of both sides, whose places differ from those among all keys of a stream."""
    ranges: tuple[tuple[Range, KeySpec, KeySpec], ...]
    window: Window | None
    recheck: list[Expr]
    reports: dict[Expr, Conjunct]
    joined: bool
    stated: frozenset[ConjunctClass]
    """The classes of the conjuncts that the predicate itself has between the two."""

    @property
    def rank(self) -> int:
        """How few pairs the predicate itself lets through: the lower, the fewer."""
        equality = self.equality is not None and ConjunctClass.EQUALITY in self.stated
        return rank(equality, {item.kind for item, _, _ in self.ranges}, bool(self.stated))


def join_graph(tree: Expr, scope: Scope, request: Request) -> Graph:
    """The join graph of a predicate."""
    graph = Graph(tree, scope, request)
    if request.time and not graph.windowed:
        # Without a window the event time is a column like any other, and may be NULL.
        return Graph(tree, scope, request.untimed())
    return graph


class Graph:
    """The join graph of a predicate over any number of streams."""

    def __init__(self, tree: Expr, scope: Scope, request: Request) -> None:
        self.scope = scope
        self.request = request
        names = scope.names
        if isinstance(request.within, tuple):
            raise WindowError(
                f"within={request.within!r} is for two streams, and there are {len(names.streams)}",
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
        # In the order of the text: sets of expressions are in another one in every process.
        known: dict[str, dict[tuple[int, Expr], None]] = {}
        for form in forms:
            one, two = self._side(form.first), self._side(form.second)
            if self.scope.type_of(*one) != self.scope.type_of(*two):
                continue
            joined = known.get(self._name(one), {one: None}) | known.get(
                self._name(two), {two: None}
            )
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
        options = JoinOptions(archive_period=self.request.options.archive_period)
        planner = PairPlanner(scope, self.request.between(own.streams, options))
        spec = planner.plan(conjunction([*origin, *extra])).spec
        keys = [table.specs for table in planner.tables]
        equality = None
        if spec.equality is not None:
            left, right = keys[0][spec.equality.left], keys[1][spec.equality.right]
            equality = (spec.equality, left, right)
        stated = frozenset(
            report.kind
            for item, report in planner.reports.items()
            if item in origin and len(report.streams) == 2
        )
        return EdgePlan(
            planner.tables,
            equality,
            tuple((item, keys[0][item.left], keys[1][item.right]) for item in spec.ranges),
            spec.window,
            [origin[item] for item in planner.recheck if item in origin],
            {
                origin[item]: replace(report, streams=streams_of(origin[item]))
                for item, report in planner.reports.items()
                if item in origin
            },
            bool(extra) or bool(stated),
            stated,
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
        if open_ended and not self.request.options.full_history:
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

    def filters(self, stream: int) -> list[str]:
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
                yield edge.tables[pair.index(stream)]

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
