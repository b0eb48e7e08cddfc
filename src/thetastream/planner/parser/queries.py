"""A whole query's text to a `Query`.

What SQL does not know is read first, by `thetastream.planner.parser.clauses`. The rest is read by
the parser, and each expression in it takes the same way as a predicate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlglot import exp

from thetastream.durations import parse_duration
from thetastream.errors import (
    OptionError,
    ParseError,
    ThetastreamError,
    UnknownStreamError,
)
from thetastream.planner import expression as tree
from thetastream.planner.functions import AGGREGATES as OTHER_AGGREGATES
from thetastream.planner.names import Names, suggestion
from thetastream.planner.parser.clauses import WINDOW_CALL, Clauses, marked
from thetastream.planner.parser.expressions import PlainSpark, Reader
from thetastream.planner.parser.texts import MAX_TEXT, check_text
from thetastream.planner.query import AGGREGATES, Aggregate, Item, Query, Relation, TimeWindow
from thetastream.spec import ColumnSpec

_SYNONYMS = {"mean": "avg"}
_KNOWN_PARTS = frozenset({"expressions", "from_", "joins", "where", "group", "having", "distinct"})
_PARTS = {
    "order": ("ORDER BY", "a stream never ends, so it cannot be sorted; sort what the sink holds"),
    "limit": ("LIMIT", "leave it out; a stream never ends"),
    "offset": ("OFFSET", "leave it out; a stream never ends"),
    "with_": ("WITH", "write the query without it, or compute the stream before the join"),
    "qualify": ("QUALIFY", "filter the result afterwards"),
    "laterals": ("LATERAL VIEW", "explode the stream before the join"),
    "windows": ("WINDOW", "write WITHIN 10 minutes"),
    "sort": ("SORT BY", "leave it out"),
    "cluster": ("CLUSTER BY", "leave it out"),
    "distribute": ("DISTRIBUTE BY", "leave it out"),
    "hint": ("a hint", "leave it out; JoinOptions says how to join"),
    "into": ("INTO", "write the result with a sink"),
    "kind": ("SELECT AS", "name the columns"),
    "connect": ("CONNECT BY", "leave it out"),
    "sample": ("TABLESAMPLE", "sample the stream before the join"),
    "locks": ("FOR UPDATE", "leave it out"),
}


def parse_query(
    text: str,
    streams: Mapping[str, Sequence[ColumnSpec]],
    *,
    case_sensitive: bool,
    functions: Iterable[str] = (),
    hidden: Mapping[str, frozenset[str]] | None = None,
) -> Query:
    """The query with its names resolved; raises with a caret at the place that is wrong.

    `hidden` names columns of the streams that `*` does not stand for.
    """
    if not text.strip():
        raise ParseError("the query is empty", text=text or " ", hint="write SELECT ... FROM ...")
    check_text(text, _QueryReader.noun)
    reader = _QueryReader(text, streams, case_sensitive, tuple(functions), hidden or {})
    try:
        return reader.query()
    except RecursionError:
        raise reader.too_deep() from None


class _QueryReader(Reader):
    """One query on its way through the parser."""

    noun = "query"
    place = "query over streams"
    wanted = "write SELECT ... FROM ... [WHERE ...] [WITHIN ...] [GROUP BY ...]"

    def __init__(
        self,
        text: str,
        streams: Mapping[str, Sequence[ColumnSpec]],
        case_sensitive: bool,
        functions: tuple[str, ...],
        hidden: Mapping[str, frozenset[str]],
    ) -> None:
        super().__init__(text, Names({}, case_sensitive=case_sensitive), functions)
        self.streams = streams
        self.hidden = hidden
        self.relations: list[Relation] = []
        self.case_sensitive = case_sensitive
        names = [column.name.casefold() for columns in streams.values() for column in columns]
        clauses = Clauses(text, online="online" in names)
        self.source = clauses.source
        self.within = clauses.within
        self.aggregates: list[Aggregate] = []
        self.groups: list[tree.Expr] = []
        self.aliases: dict[str, tree.Expr] = {}
        self.in_condition = False
        """Whether what is read is compared and goes nowhere else."""
        self.room = MAX_TEXT
        """Characters that names may still be replaced by."""
        self.window: TimeWindow | None = None
        self.windows_allowed = False
        self.aggregates_allowed = False

    def query(self) -> Query:
        root = self._parse()
        if not isinstance(root, exp.Select):
            kind = "a set operation" if isinstance(root, exp.SetOperation) else "this statement"
            self._refuse(root, kind, self.wanted)
        for part, node in root.args.items():
            if node and part not in _KNOWN_PARTS:
                node = node[0] if isinstance(node, list) else node
                what, hint = _PARTS.get(part, (part.strip("_").upper(), "leave it out"))
                self._refuse(node if isinstance(node, exp.Expr) else root, what, hint)
        relations, conditions = self._relations(root)
        self.relations = relations
        self.names = Names(
            {one.alias: self.streams[one.stream] for one in relations},
            case_sensitive=self.case_sensitive,
        )
        where = root.args.get("where")
        if where is not None:
            conditions.append(where.this)
        self.in_condition = True
        found = [self._expression(condition) for condition in conditions]
        self.in_condition = False
        predicate = found[0] if found else tree.Boolean(value=True)
        if len(found) > 1:
            predicate = tree.And(items=tuple(found), start=found[0].start, end=found[-1].end)
        groups = self.groups = self._groups(root)
        items = self._items(root)
        having = root.args.get("having")
        self.aliases = {item.name.casefold(): item.expr for item in items}
        self.room = MAX_TEXT
        condition = None if having is None else self._expression(having.this, aggregates=True)
        distinct = root.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            self._refuse(distinct, "DISTINCT ON", "write DISTINCT")
        grouped = bool(groups or self.window or self.aggregates or having is not None)
        return Query(
            text=self.text,
            relations=tuple(relations),
            names=self.names,
            predicate=predicate,
            within=self.within,
            items=tuple(items),
            groups=tuple(groups),
            window=self.window,
            aggregates=tuple(self.aggregates),
            having=condition,
            distinct=distinct is not None,
            grouped=grouped,
        )

    # -- FROM -----------------------------------------------------------------------------------

    def _relations(self, root: exp.Select) -> tuple[list[Relation], list[exp.Expr]]:
        source = root.args.get("from_")
        if source is None:
            raise ParseError(
                "the query has no FROM",
                text=self.text,
                end=len(self.text),
                hint=f"name the streams: FROM {', '.join(self.streams)}",
            )
        tables = [source.this]
        conditions: list[exp.Expr] = []
        for join in root.args.get("joins") or []:
            side = " ".join(
                str(join.args[name]) for name in ("method", "side", "kind") if join.args.get(name)
            ).upper()
            if side not in ("", "INNER", "CROSS"):
                self._refuse(join, f"a {side} join", "only inner joins are supported for now")
            if join.args.get("using"):
                self._refuse(join, "USING", "write ON a.k = b.k")
            for name, value in join.args.items():
                if value and name not in ("this", "on", "method", "side", "kind"):
                    self._refuse(join, f"this form of a join ({name})", "write a JOIN b ON ...")
            tables.append(join.this)
            if join.args.get("on") is not None:
                conditions.append(join.args["on"])
        relations = [self._relation(table) for table in tables]
        fold = str if self.case_sensitive else str.casefold
        taken = Counter(fold(one.alias) for one in relations)
        for one, table in zip(relations, tables, strict=True):
            if taken[fold(one.alias)] > 1:
                self._raise(
                    table,
                    f"two relations of the query are called {one.alias!r}",
                    f"give them different names: {one.stream} AS a, {one.stream} AS b",
                )
        return relations, conditions

    def _relation(self, table: exp.Expr) -> Relation:
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            self._refuse(table, "a subquery in FROM", "make it a separate stream first")
        if table.args.get("joins"):
            self._refuse(table, "a join inside a join", "write them one after the other")
        extra = [
            name for name, value in table.args.items() if value and name not in ("this", "alias")
        ]
        alias = table.args.get("alias")
        if extra or (alias is not None and alias.args.get("columns")):
            self._refuse(table, "this form of a relation", "name a stream, with or without AS")
        name = table.this.name
        fold = str if self.case_sensitive else str.casefold
        known = [stream for stream in self.streams if stream == name] or [
            stream for stream in self.streams if fold(stream) == fold(name)
        ]
        if not known:
            hint = suggestion(name, list(self.streams), "the streams are")
            self._raise(table.this, f"there is no stream {name!r}", hint, UnknownStreamError)
        return Relation(known[0], table.alias or name)

    # -- GROUP BY and SELECT --------------------------------------------------------------------

    def _groups(self, root: exp.Select) -> list[tree.Expr]:
        group = root.args.get("group")
        if group is None:
            return []
        for name, what in (
            ("grouping_sets", "GROUPING SETS"),
            ("cube", "CUBE"),
            ("rollup", "ROLLUP"),
            ("all", "GROUP BY ALL"),
            ("totals", "WITH TOTALS"),
        ):
            if group.args.get(name):
                self._refuse(group, what, "name the columns to group by")
        found: list[tree.Expr] = []
        for node in group.expressions:
            target = self._group_target(node, root)
            if _is_call(target, WINDOW_CALL):
                window = self._window_call(target)
                if self.window not in (None, window):
                    self._raise(target, "the query groups by two time windows", "keep one of them")
                self.window = window
            else:
                found.append(self._expression(target))
        return list(dict.fromkeys(found))

    def _group_target(self, node: exp.Expr, root: exp.Select) -> exp.Expr:
        """GROUP BY 1 and GROUP BY alias mean an item of the select list."""
        items = root.expressions
        if isinstance(node, exp.Literal) and not node.is_string:
            digits = str(node.this)
            place = int(digits) if digits.isdigit() and len(digits) < 6 else 0
            if not 1 <= place <= len(items):
                self._raise(node, f"there is no item {node.this} in the select list", "name it")
            return _bare(items[place - 1])
        bare = isinstance(node, exp.Column) and len(node.parts) == 1
        if bare and not self.names.owners(node.name):
            for item in items:
                if isinstance(item, exp.Alias) and item.alias.casefold() == node.name.casefold():
                    return _bare(item)
        return node

    def _window_call(self, node: exp.Expr) -> TimeWindow:
        arguments = node.expressions
        lengths = []
        for argument in arguments[1:]:
            if not isinstance(argument, exp.Literal) or not argument.is_string:
                self._raise(
                    argument,
                    "the length of a window must be a string",
                    "write window(time, '1 minute')",
                )
            try:
                lengths.append(parse_duration(str(argument.this), "window"))
            except ThetastreamError as error:
                self._raise(argument, error.what, "write window(time, '1 minute')")
        if not 1 <= len(lengths) <= 3 or lengths[0] == 0:
            self._raise(
                node,
                "window() takes a time, a length and, optionally, a slide and a start",
                "write window(time, '10 minutes', '5 minutes')",
            )
        size = lengths[0]
        slide = lengths[1] if len(lengths) > 1 else size
        if not 0 < slide <= size:
            self._raise(
                node, "the slide of a window cannot be longer than the window", "make it shorter"
            )
        start = lengths[2] if len(lengths) > 2 else 0
        if start >= slide:
            self._raise(
                node, "the start of a window must be less than its slide", "make it shorter"
            )
        return TimeWindow(self._window_argument(arguments[0]), size, slide, start)

    def _window_argument(self, node: exp.Expr) -> tree.Expr | None:
        """None for the time of the newest member: `time`, or greatest() of both event times."""
        bare = isinstance(node, exp.Column) and len(node.parts) == 1
        if bare and node.name.casefold() == "time":
            owners = self.names.owners(node.name)
            if len(owners) == 1:
                owner = self.names.streams[owners[0]]
                self._raise(
                    node,
                    f"time may mean {owner}.time or the time of the result",
                    f"write {owner}.{node.name}, or greatest() of both event times",
                )
            return None
        return self._expression(node)

    def _items(self, root: exp.Select) -> list[Item]:
        found: list[tuple[tree.Expr, str, bool]] = []
        for node in root.expressions:
            stars = self._stars(_bare(node))
            if stars is not None:
                found += [(column, self._column_name(column), True) for column in stars]
                continue
            expr = self._expression(_bare(node), aggregates=True)
            if isinstance(node, exp.Alias):
                found.append((expr, node.alias, False))
            elif isinstance(expr, tree.Column):
                name = expr.fields[-1] if expr.fields else self._column_name(expr)
                found.append((expr, name, True))
            elif isinstance(expr, tree.Slot) and expr.number == tree.WINDOW:
                found.append((expr, expr.fields[-1] if expr.fields else "window", False))
            else:
                found.append((expr, _as_written(node), False))
        return self._named(found)

    def _named(self, found: list[tuple[tree.Expr, str, bool]]) -> list[Item]:
        """Columns of the same name get their stream's name in front, as in a join."""
        times = Counter(name.casefold() for _, name, _ in found)
        items = []
        for expr, name, from_column in found:
            if from_column and times[name.casefold()] > 1 and isinstance(expr, tree.Column):
                name = f"{self.names.streams[expr.stream]}_{name}"
            items.append(Item(expr, name))
        taken = Counter(item.name.casefold() for item in items)
        for item in items:
            if taken[item.name.casefold()] > 1:
                raise OptionError(
                    f"two columns of the result would be called {item.name!r}",
                    detail=marked(self.text, item.expr.start, item.expr.end),
                    hint="give one of them another name with AS",
                )
        return items

    def _column_name(self, column: tree.Column) -> str:
        return self.names.columns[column.stream][column.index].name

    def _stars(self, node: exp.Expr) -> list[tree.Column] | None:
        """The columns that `*` or `a.*` stands for."""
        chosen: Iterable[int]
        star = node.this if isinstance(node, exp.Column) else node
        if isinstance(star, exp.Star) and any(star.args.values()):
            self._refuse(node, "* with EXCEPT or REPLACE", "name the columns")
        if isinstance(star, exp.Star) and isinstance(node, exp.Column) and len(node.parts) > 2:
            self._refuse(node, "this form of *", "write a.* with the name of one relation")
        if isinstance(node, exp.Star):
            chosen = range(len(self.names.streams))
        elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            table = node.args.get("table")
            place = None if table is None else self.names.stream(table.name)
            if place is None:
                hint = suggestion(node.table, self.names.streams, "the streams are")
                self._raise(node, f"there is no stream {node.table!r}", hint, UnknownStreamError)
            chosen = [place]
        else:
            return None
        start, end = self._span(node)
        return [
            tree.Column(stream=stream, index=index, start=start, end=end)
            for stream in chosen
            for index, column in enumerate(self.names.columns[stream])
            if column.name not in self.hidden.get(self.relations[stream].stream, ())
        ]

    # -- expressions ----------------------------------------------------------------------------

    def _expression(self, node: exp.Expr, *, aggregates: bool = False) -> tree.Expr:
        before = self.aggregates_allowed, self.windows_allowed
        self.aggregates_allowed = aggregates
        self.windows_allowed = aggregates and self.window is not None
        try:
            self._vet(node)
            expr = self._convert(node)
            self._same_when_rebuilt(node, expr)
        finally:
            self.aggregates_allowed, self.windows_allowed = before
        return expr

    def _same_when_rebuilt(self, node: exp.Expr, expr: tree.Expr) -> None:
        """The text that Spark will get must mean what the user's text means."""
        if any(isinstance(node, tree.Slot) for node in tree.nodes(expr)):
            # What stands around aggregates is rebuilt by the parser itself; their arguments are
            # checked one by one.
            return
        if self.read_again(expr) != expr:
            self._raise(
                node,
                "this expression cannot be rebuilt without changing its meaning",
                "write it in a simpler way, or compute it as a column of the stream",
            )

    def _vet_node(self, node: exp.Expr) -> None:
        if self.aggregates_allowed:
            if _aggregate_name(node) is not None:
                self._vet_aggregate(node)
                return
            inside = _aggregate_name(node.parent) if node.parent is not None else None
            if isinstance(node, exp.Star) and inside == "count":
                return
            if isinstance(node, exp.Distinct) and inside is not None:
                return
            if isinstance(node, exp.Filter):
                self._raise(
                    node,
                    "FILTER after an aggregate is not supported",
                    "write sum(CASE WHEN condition THEN value END)",
                )
        if _is_call(node, WINDOW_CALL) or self._is_window_column(node):
            if not self.windows_allowed:
                self._raise(
                    node,
                    "window() may be in the select list only if it is also in GROUP BY",
                    "add window(time, '1 minute') to GROUP BY",
                )
            if self._inside_aggregate(node):
                self._raise(
                    node, "the query already groups by the window", "leave the aggregate out"
                )
            return
        if isinstance(node, exp.Anonymous):
            name = str(node.this).casefold()
            if name == "struct" and not self.in_condition:
                # Its fields would get the names of columns that only exist in here.
                self._raise(node, "struct() has no names here", "write named_struct('k', r.k)")
            if name in OTHER_AGGREGATES:
                self._raise(
                    node,
                    f"{name}() is not a supported aggregate",
                    f"use one of {', '.join(AGGREGATES)} and count(DISTINCT ...)",
                )
        super()._vet_node(node)

    def _inside_aggregate(self, node: exp.Expr) -> bool:
        ancestor = node.parent
        while ancestor is not None and not isinstance(ancestor, exp.Select):
            if _aggregate_name(ancestor) is not None:
                return True
            ancestor = ancestor.parent
        return False

    def _is_window_column(self, node: exp.Expr) -> bool:
        return (
            self.window is not None
            and isinstance(node, exp.Column)
            and node.parts[0].name.casefold() == "window"
            and self.names.stream("window") is None
            and not self.names.owners("window")
        )

    def _vet_aggregate(self, node: exp.Expr) -> None:
        name = _aggregate_name(node)
        if self._inside_aggregate(node):
            self._raise(
                node,
                "an aggregate inside another one is not supported",
                "aggregate twice, in two queries",
            )
        arguments = node.expressions
        distinct = bool(arguments) and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = arguments[0].expressions
        if len(arguments) != 1:
            self._raise(node, f"{name}() takes one argument", f"write {name}(value)")
        if distinct and name in ("sum", "avg"):
            self._raise(node, f"{name}(DISTINCT ...) is not supported", "use count(DISTINCT ...)")

    def _operation(self, node: exp.Expr) -> str:
        # What stands around aggregates is never computed for a row by itself.
        return "" if self.aggregates_allowed else super()._operation(node)

    def _special(self, node: exp.Expr) -> tree.Expr | None:
        start, end = self._span(node)
        if self.windows_allowed and _is_call(node, WINDOW_CALL):
            if self._window_call(node) != self.window:
                self._raise(node, "this is not the window of GROUP BY", "write it the same way")
            return tree.Slot(number=tree.WINDOW, start=start, end=end)
        if self.windows_allowed and isinstance(node, exp.Column) and self._is_window_column(node):
            fields = tuple(part.name.casefold() for part in node.parts[1:])
            if fields not in ((), ("start",), ("end",)):
                self._raise(node, "a window has a start and an end", "write window.start")
            return tree.Slot(number=tree.WINDOW, fields=fields, start=start, end=end)
        if self.aggregates_allowed and isinstance(node, exp.Column) and len(node.parts) == 1:
            item = self.aliases.get(node.name.casefold())
            if item is not None and not self.names.owners(node.name):
                # A name in HAVING stands for all of its item, each time.
                self.room -= len(tree.render(item, lambda _: "column"))
                if self.room < 0:
                    self._raise(
                        node, "HAVING is too long once its names are replaced", "shorten it"
                    )
                return item
        name = _aggregate_name(node) if self.aggregates_allowed else None
        if name is None:
            return self._group_slot(node, start, end)
        argument = node.expressions[0]
        distinct = isinstance(argument, exp.Distinct)
        if distinct:
            argument = argument.expressions[0]
        value = None
        if not isinstance(argument, exp.Star):
            value = self._expression(argument)
        # The smallest and the largest value are the same with and without DISTINCT.
        found = Aggregate(name, value, distinct and name == "count")
        if found not in self.aggregates:
            self.aggregates.append(found)
        return tree.Slot(number=self.aggregates.index(found), start=start, end=end)

    def _group_slot(self, node: exp.Expr, start: int, end: int) -> tree.Slot | None:
        """A part of an item that is grouped by, whatever stands around it."""
        if not self.aggregates_allowed or not self.groups or isinstance(node, _LEAVES):
            return None
        inside = list(node.walk())
        if any(_aggregate_name(item) for item in inside):
            return None
        # To read each part of a large item would take long; most differ at first sight.
        reads = sum(isinstance(item, exp.Column) for item in inside)
        if all(reads != sum(1 for _ in tree.columns(group)) for group in self.groups):
            return None
        try:
            expr = self._expression(node)
        except ThetastreamError:
            # Not of columns alone; what it holds is looked at piece by piece.
            return None
        if expr not in self.groups:
            return None
        return tree.Slot(number=tree.FIRST_GROUP - self.groups.index(expr), start=start, end=end)


_LEAVES = (exp.Column, exp.Literal, exp.Identifier, exp.Boolean, exp.Null, exp.DataType, exp.Var)


def _as_written(node: exp.Expr) -> str:
    """A name for an item that has none: its own text."""
    text = node.sql(dialect=PlainSpark, comments=False, normalize_functions=False)
    return text.replace(WINDOW_CALL, "window")


def _bare(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Alias) else node


def _is_call(node: Any, name: str) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).casefold() == name


def _aggregate_name(node: Any) -> str | None:
    if not isinstance(node, exp.Anonymous):
        return None
    name = str(node.this).casefold()
    name = _SYNONYMS.get(name, name)
    return name if name in AGGREGATES else None
