"""A query as the parser reads it: relations, predicate, window, what is selected and grouped."""

from __future__ import annotations

from dataclasses import dataclass

from thetastream.planner.expression import Expr
from thetastream.planner.names import Names
from thetastream.planner.window import Within

AGGREGATES = ("count", "sum", "avg", "min", "max")
"""The aggregate functions; `mean` is another name of `avg`."""


@dataclass(frozen=True)
class Relation:
    """A stream in FROM, under the name that the query gives it."""

    stream: str
    alias: str


@dataclass(frozen=True)
class Aggregate:
    """A call of an aggregate function; without an argument it is count(*)."""

    function: str
    argument: Expr | None
    distinct: bool = False


@dataclass(frozen=True)
class TimeWindow:
    """window(...) in GROUP BY, in microseconds; without an argument it is of the newest member."""

    argument: Expr | None
    size: int
    slide: int
    start: int


@dataclass(frozen=True)
class Item:
    """One column of the result."""

    expr: Expr
    name: str


@dataclass(frozen=True, kw_only=True)
class Query:
    """SELECT ... FROM ... [WHERE ...] [WITHIN ...] [GROUP BY ...] [HAVING ...]."""

    text: str
    relations: tuple[Relation, ...]
    names: Names
    predicate: Expr
    within: Within
    items: tuple[Item, ...]
    groups: tuple[Expr, ...] = ()
    window: TimeWindow | None = None
    aggregates: tuple[Aggregate, ...] = ()
    having: Expr | None = None
    distinct: bool = False
    grouped: bool = False
    """Whether it aggregates; GROUP BY alone does so, too."""

    @property
    def needs_time(self) -> bool:
        """Whether it cannot do without the event times of its streams."""
        of_newest = self.window is not None and self.window.argument is None
        return self.within is not None or of_newest or self.distinct
