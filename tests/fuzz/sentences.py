"""Random SQL queries over streams, as the library takes them and as Spark does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

from tests.fuzz.conditions import Conditions
from tests.fuzz.expressions import Expressions
from tests.fuzz.tables import Table, quote
from thetastream.planner import parse_duration

FAMILIES = ("int", "int", "string", "timestamp", "decimal", "float")
"""What the tables of queries have: one timestamp, so that it is the event time."""
_WITHINS = ("10 seconds", "1 day", "1 hour", "36 hours")
_SUMMED = ("int", "decimal", "float")


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A query in parts, each of which a shrinker may leave out."""

    relations: tuple[tuple[str, str], ...]
    """Table and alias of each."""
    items: tuple[str, ...]
    conjuncts: tuple[str, ...]
    groups: tuple[str, ...] = ()
    having: str | None = None
    within: str | None = None
    side: str = ""
    """PRECEDING, FOLLOWING or nothing."""
    distinct: bool = False
    times: tuple[str, ...] = ()
    """The event-time column of each relation."""

    def text(self) -> str:
        """The query as the library takes it."""
        within = "" if self.within is None else f" WITHIN {self.within} {self.side}".rstrip()
        head = "SELECT DISTINCT" if self.distinct else "SELECT"
        return f"{head} {self._named()} FROM {self._from()}{self._where()}{within}{self._tail()}"

    def spark(self) -> str:
        """The same query for Spark, with the window as a condition."""
        if not self.distinct:
            window = self._window()
            where = self._where(*window)
            return f"SELECT {self._named()} FROM {self._from()}{where}{self._tail()}"
        # Duplicates are dropped within slices of time as long as the window.
        assert self.within is not None
        length = parse_duration(self.within, "within")
        newest = f"floor(unix_micros({self._extreme('greatest')}) / {length}.0D) AS slice"
        inner = f"SELECT DISTINCT {self._named()}, {newest} FROM {self._from()}"
        names = ", ".join(f"i{number}" for number in range(len(self.items)))
        return f"SELECT {names} FROM ({inner}{self._where(*self._window())})"

    def _named(self) -> str:
        return ", ".join(f"{item} AS i{number}" for number, item in enumerate(self.items))

    def _from(self) -> str:
        return ", ".join(f"{quote(table)} AS {quote(alias)}" for table, alias in self.relations)

    def _where(self, *more: str) -> str:
        found = [f"({item})" for item in self.conjuncts] + list(more)
        return f" WHERE {' AND '.join(found)}" if found else ""

    def _tail(self) -> str:
        groups = f" GROUP BY {', '.join(self.groups)}" if self.groups else ""
        return groups + ("" if self.having is None else f" HAVING {self.having}")

    def _extreme(self, function: str) -> str:
        return f"{function}({', '.join(self._columns())})"

    def _columns(self) -> list[str]:
        return [
            f"{quote(alias)}.{quote(time)}"
            for (_, alias), time in zip(self.relations, self.times, strict=True)
        ]

    def _window(self) -> list[str]:
        if self.within is None:
            return []
        length = parse_duration(self.within, "within")
        known = [f"{column} IS NOT NULL" for column in self._columns()]
        if len(self.relations) > 2:
            micros = [f"unix_micros({self._extreme(name)})" for name in ("greatest", "least")]
            return [*known, f"{micros[0]} - {micros[1]} <= {length}"]
        one, two = (f"unix_micros({column})" for column in self._columns())
        low = 0 if self.side == "FOLLOWING" else -length
        high = 0 if self.side == "PRECEDING" else length
        return [*known, f"{two} - {one} BETWEEN {low} AND {high}"]

    def smaller(self) -> Iterator[Sentence]:
        """The query with one part left out."""
        for name in ("conjuncts", "items", "groups"):
            parts = getattr(self, name)
            for place in range(len(parts)):
                if name != "items" or len(parts) > 1:
                    yield replace(self, **{name: parts[:place] + parts[place + 1 :]})
        if self.having is not None:
            yield replace(self, having=None)
        if self.side:
            yield replace(self, side="")
        if self.within is not None and not self.distinct:
            yield replace(self, within=None, side="")

    def to_json(self) -> dict[str, Any]:
        """The query as JSON takes it."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Sentence:
        """The query that `to_json` wrote."""
        lists = ("items", "conjuncts", "groups", "times")
        made = {name: tuple(raw[name]) for name in lists}
        made["relations"] = tuple((table, alias) for table, alias in raw["relations"])
        return cls(**{**raw, **made})


class Sentences:
    """Random queries over some tables."""

    def __init__(self, rng: Random, tables: tuple[Table, ...]) -> None:
        self.rng = rng
        self.tables = tables

    def query(self) -> Sentence:
        """A query of two to four relations, plain, distinct or aggregating."""
        rng = self.rng
        count = rng.choices((2, 3, 4), (70, 22, 8))[0]
        chosen = [rng.choice(self.tables) for _ in range(count)]
        if rng.random() < 0.75 and count <= len(self.tables):
            chosen = rng.sample(self.tables, count)
        aliased = [replace(table, name=alias) for table, alias in zip(chosen, "abcd", strict=False)]
        kind = rng.choices(("plain", "grouped", "distinct"), (25, 60, 15))[0]
        within = rng.choice(_WITHINS)
        if count == 2 and kind != "distinct" and rng.random() < 0.5:
            within = None  # type: ignore[assignment]
        side = rng.choice(("", "", "PRECEDING", "FOLLOWING")) if within and count == 2 else ""
        made = Sentence(
            relations=tuple((t.name, a.name) for t, a in zip(chosen, aliased, strict=True)),
            items=tuple(self._value(aliased) for _ in range(rng.randint(1, 3))),
            conjuncts=tuple(self._conjuncts(aliased)),
            within=within,
            side=side,
            distinct=kind == "distinct",
            times=tuple(table.of("timestamp")[0].name for table in aliased),
        )
        return self._aggregating(made, aliased) if kind == "grouped" else made

    def _conjuncts(self, tables: list[Table]) -> Iterator[str]:
        for place in range(1, len(tables)):
            other = self.rng.randrange(place)
            pair = (tables[other], tables[place])
            rest = [table for table in tables if table not in pair]
            conditions = Conditions(self.rng, pair, 1, rest)
            plain = (conditions.equality, conditions.inequality, conditions.band)
            yield self.rng.choice(plain)().sql()
            if self.rng.random() < 0.35:
                yield conditions.conjunct().sql()

    def _side(self, tables: list[Table]) -> Expressions:
        table = self.rng.choice(tables)
        return Expressions(self.rng, table, [other for other in tables if other is not table])

    def _value(self, tables: list[Table], *families: str) -> str:
        side = self._side(tables)
        known = [f for f in (families or ("int", "string", "decimal", "float")) if side.has(f)]
        depth = self.rng.choice((0, 0, 0, 1))
        return side.value(self.rng.choice(known), depth).sql()

    def _aggregating(self, query: Sentence, tables: list[Table]) -> Sentence:
        rng = self.rng
        groups = tuple(
            dict.fromkeys(self._value(tables) for _ in range(rng.choices((0, 1, 2), (3, 5, 2))[0]))
        )
        # A literal in GROUP BY would be the number of a column.
        groups = tuple(group for group in groups if "." in group and not group[0].isdigit())
        items = (*groups, *(self._aggregate(tables) for _ in range(rng.randint(1, 3))))
        having = None
        if rng.random() < 0.3:
            having = rng.choice(("count(*) > 1", f"{self._aggregate(tables)} IS NOT NULL"))
        return replace(query, items=items, groups=groups, having=having)

    def _aggregate(self, tables: list[Table]) -> str:
        rng = self.rng
        kind = rng.choice(("count(*)", "count", "sum", "sum", "avg", "min", "max", "distinct"))
        if kind == "count(*)":
            return kind
        if kind == "distinct":
            return f"count(DISTINCT {self._value(tables)})"
        if kind in ("sum", "avg"):
            if rng.random() < 0.15:
                return f"{kind}({self._value(tables, 'int')} * {self._value(tables, 'int')})"
            text = f"{kind}({self._value(tables, *_SUMMED)})"
            return f"{text} + 1" if rng.random() < 0.1 else text
        families = ("int", "string", "decimal", "float", "timestamp")
        return f"{kind}({self._value(tables, *families)})"
