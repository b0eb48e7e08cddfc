"""Random join predicates of every class over two tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from tests.fuzz.expressions import LITERALS, Expressions, Node, bracketed, filled
from tests.fuzz.tables import Table

T = TypeVar("T")
_OPS = ("<", "<=", ">", ">=")
_NUMBERS = ("int", "decimal", "float")
_ORDERED = (
    *_NUMBERS, "string", "collated", "binary", "boolean", "date", "timestamp", "ntz", "time",
    "daytime", "yearmonth",
)  # fmt: skip
_MIXED = (
    ("int", "decimal"), ("int", "float"), ("decimal", "float"), ("date", "timestamp"),
    ("timestamp", "ntz"), ("date", "ntz"), ("string", "int"), ("string", "date"),
    ("string", "collated"), ("boolean", "string"), ("string", "float"), ("string", "decimal"),
)  # fmt: skip
_OFFSETS: dict[str, tuple[str, ...]] = {
    "int": ("1", "2", "5", "0", "-1", "100", "2L", "1.5", "0.5D", "3S", "1000000", "0.1", "1e2"),
    "decimal": ("0.5", "1", "0.25", "1.5D", "2", "0.000000000000000001", "10.00", "-0.5"),
    "float": ("0.5D", "0.2D", "1", "0.1", "1.0F", "0", "0.3D", "1e300", "0.1F"),
    "date": ("1", "2", "INTERVAL '1' DAY", "INTERVAL 2 DAYS", "INTERVAL 1 MONTH", "30"),
    "timestamp": (
        "INTERVAL 10 SECONDS", "INTERVAL 1 DAY", "INTERVAL '1' DAY", "INTERVAL 24 HOURS",
        "INTERVAL '1 01:00:00' DAY TO SECOND", "INTERVAL '0.000001' SECOND", "INTERVAL 1 MONTH",
        "INTERVAL '36' HOUR", "INTERVAL 1 HOUR", "(INTERVAL 1 HOUR + INTERVAL 30 MINUTES)",
    ),
    "daytime": ("INTERVAL 10 SECONDS", "INTERVAL '1' DAY", "INTERVAL '0.5' SECOND"),
    "yearmonth": ("INTERVAL '1' MONTH",),
    "time": ("INTERVAL '1' HOUR",),
}  # fmt: skip
_OFFSETS["ntz"] = _OFFSETS["timestamp"]


class Conditions:
    """Random predicates; sides are 0 and 1."""

    def __init__(
        self,
        rng: Random,
        tables: tuple[Table, Table],
        depth: int = 1,
        others: Sequence[Table] = (),
    ) -> None:
        """`others`: tables that are there as well, so that bare names must not mean theirs."""
        self.rng = rng
        self.depth = depth
        self.sides = (
            Expressions(rng, tables[0], (tables[1], *others)),
            Expressions(rng, tables[1], (tables[0], *others)),
        )
        self._shared = [f for f in _ORDERED if all(side.has(f) for side in self.sides)]
        self._bands = [f for f in self._shared if f in _OFFSETS]
        # As often as there are columns; what takes an expression to make is rarer.
        self._weights = {
            family: min(len(table.of(family)) for table in tables) or 0.3 for family in self._shared
        }
        self._mixed = [
            pair
            for one, two in _MIXED
            for pair in ((one, two), (two, one))
            if self.sides[0].has(pair[0]) and self.sides[1].has(pair[1])
        ]
        classes: list[tuple[float, Callable[[], Node]]] = [
            (4, self.equality),
            (1.5 if self._mixed else 0, self.mixed),
            (4, self.band),
            (2, self.difference),
            (3, self.inequality),
            (1, self.null_safe),
            (1, self.unequal),
            (1.2, self.either),
            (1.2, self.negated),
            (1, self.member),
            (0.7 if "string" in self._shared else 0, self.alike),
            (0.8, self.chosen),
            (1, self.lambdas),
            (1, self.composite),
            (2, self.filter),
            (0.3, self.constant),
            (1, self.function),
        ]
        self._classes = [(weight, made) for weight, made in classes if weight]

    def predicate(self) -> Node:
        """One to four conjuncts."""
        count = self.rng.choices((1, 2, 3, 4), (50, 30, 15, 5))[0]
        items = [self.conjunct() for _ in range(count)]
        made = items[0]
        for item in items[1:]:
            made = Node("boolean", (self._guarded(made), " AND ", self._guarded(item)))
        return made

    def conjunct(self) -> Node:
        """A condition of a random class."""
        weights = [weight for weight, _ in self._classes]
        return self.rng.choices(self._classes, weights)[0][1]()

    # -- classes --------------------------------------------------------------------------------

    def equality(self) -> Node:
        one, two = self._pair(self._family(self._shared))
        return filled("boolean", "? = ?", *self._turned(one, two))

    def mixed(self) -> Node:
        first, second = self.rng.choice(self._mixed)
        op = self.rng.choice(("=", "=", *_OPS, "<=>"))
        one, two = self._side(0, first), self._side(1, second)
        return filled("boolean", f"? {op} ?", *self._turned(one, two))

    def band(self) -> Node:
        family = self._family(self._bands or self._shared)
        one, two = self._turned(*self._pair(family))
        c, d = self._offset(family), self._offset(family)
        if family in ("time", "yearmonth", "timestamp", "ntz", "date") or self.rng.random() < 0.4:
            text = self.rng.choice(
                (
                    "? BETWEEN ? - ? AND ? + ?",
                    "? >= ? - ? AND ? <= ? + ?",
                    "? > ? - ? AND ? < ? + ?",
                )
            )
            if text.startswith("? BETWEEN"):
                return filled("boolean", text, one, two, c, two, d)
            return filled("boolean", text, one, two, c, one, two, d)
        number = self._number(family)
        text = self.rng.choice(
            (
                "abs(? - ?) <= ?",
                "abs(? - ?) < ?",
                "? >= abs(? - ?)",
                "? - ? BETWEEN -? AND ?",
                "NOT abs(? - ?) > ?",
            )
        )
        if "BETWEEN" in text:
            return filled("boolean", text, one, two, number, self._number(family))
        if text.startswith("? >="):
            return filled("boolean", text, number, one, two)
        return filled("boolean", text, one, two, number)

    def difference(self) -> Node:
        family = self._family(self._bands or self._shared)
        one, two = self._turned(*self._pair(family))
        op = self.rng.choice(_OPS)
        text = self.rng.choice((f"? - ? {op} ?", f"? {op} ? - ?", f"? + ? {op} ?"))
        c = self._offset(family) if "+" in text else self._number(family)
        if text.startswith("? - ?"):
            return filled("boolean", text, one, two, c)
        if "+" in text:
            return filled("boolean", text, one, c, two)
        return filled("boolean", text, c, one, two)

    def inequality(self) -> Node:
        family = self._family(self._shared)
        one, two = self._turned(*self._pair(family))
        return filled("boolean", f"? {self.rng.choice(_OPS)} ?", one, two)

    def null_safe(self) -> Node:
        return filled("boolean", "? <=> ?", *self._pair(self._family(self._shared)))

    def unequal(self) -> Node:
        op = self.rng.choice(("<>", "!="))
        return filled("boolean", f"? {op} ?", *self._pair(self._family(self._shared)))

    def either(self) -> Node:
        return filled("boolean", "(? OR ?)", self.simple(), self.simple())

    def negated(self) -> Node:
        text = self.rng.choice(("NOT (?)", "NOT (? OR ?)", "NOT (? AND ?)", "! (?)"))
        return filled("boolean", text, *(self.simple() for _ in range(text.count("?"))))

    def member(self) -> Node:
        family = self._family(self._shared)
        one, two = self._turned(*self._pair(family))
        if self.rng.random() < 0.3:
            return filled("boolean", "? NOT IN (?)", one, two)
        return filled("boolean", "? IN (?, ?)", one, two, self.sides[0].literal(family))

    def alike(self) -> Node:
        one, two = self._turned(*self._pair("string"))
        texts = ("? LIKE concat(?, '%')", "? NOT LIKE ?", "? ILIKE ?", "startswith(?, ?)")
        return filled("boolean", self.rng.choice(texts), one, two)

    def chosen(self) -> Node:
        if self.rng.random() < 0.5:
            one, two = self.simple(), self.simple()
            return filled("boolean", "CASE WHEN ? THEN ? ELSE false END", one, two)
        one, two = self._turned(*self._pair("int"))
        return filled("boolean", "CASE ? WHEN ? THEN true END", one, two)

    def lambdas(self) -> Node:
        one, two = self._turned(*self._pair("int"))
        name = self.rng.choice(("z", "x", "k", "v", "rid"))
        texts = (
            f"exists(array(1, 200, 2), {name} -> {name} = ?)",
            f"forall(array(0, 1), {name} -> {name} <= ?)",
            f"exists(array(?, 1), {name} -> {name} = ?)",
            f"size(filter(array(?, 1, 2), {name} -> {name} > ?)) > 1",
            f"aggregate(array(?, 1), 0L, ({name}, q) -> {name} + q) > ?",
        )
        text = self.rng.choice(texts)
        return filled("boolean", text, *((one, two)[: text.count("?")]))

    def composite(self) -> Node:
        first, second = (self._pair(self._family(self._shared)) for _ in range(2))
        text = self.rng.choice(
            ("(?, ?) = (?, ?)", "struct(?, ?) = struct(?, ?)", "? = ? AND ? = ?")
        )
        if "AND" in text:
            return filled("boolean", text, *first, *second)
        return filled("boolean", text, first[0], second[0], first[1], second[1])

    def filter(self) -> Node:
        side = self.rng.randrange(2)
        return self.sides[side].value("boolean", self.depth + 1)

    def constant(self) -> Node:
        return Node(
            "boolean", (self.rng.choice(("true", "1 = 1", "false", "(NULL AND true)", "1 > 2")),)
        )

    def function(self) -> Node:
        family = self.rng.choice([f for f in self._shared if f in ("int", "decimal", "string")])
        one, two = self._pair(family)
        if family == "string":
            text = self.rng.choice(("contains(?, ?)", "length(?) = length(?)", "? || 'a' = ?"))
        else:
            text = self.rng.choice(
                ("? + ? = 3", "greatest(?, ?) > 2", "? % 3 = ? % 2", "nvl(?, 1) = ?", "? * ? > 2")
            )
        return filled("boolean", text, one, two)

    def simple(self) -> Node:
        """A condition of a plain class, for use inside another."""
        kinds = (self.equality, self.inequality, self.band, self.filter, self.null_safe)
        return self._guarded(self.rng.choice(kinds)())

    # -- parts ----------------------------------------------------------------------------------

    def _family(self, among: list[str]) -> str:
        return self.rng.choices(among, [self._weights[family] for family in among])[0]

    def _pair(self, family: str) -> tuple[Node, Node]:
        return self._side(0, family), self._side(1, family)

    def _side(self, side: int, family: str) -> Node:
        depth = self.depth if self.rng.random() < 0.35 or family == "yearmonth" else 0
        return bracketed(self.sides[side].value(family, depth))

    def _turned(self, one: T, two: T) -> tuple[T, T]:
        return (one, two) if self.rng.random() < 0.7 else (two, one)

    def _offset(self, family: str) -> Node:
        texts = _OFFSETS.get(family) or LITERALS[family]
        return Node(f"offset {family}", (self.rng.choice(texts),))

    def _number(self, family: str) -> Node:
        """What a difference of two values of the family is compared with."""
        if family in ("timestamp", "ntz", "time", "date"):
            return Node("offset timestamp", (self.rng.choice(_OFFSETS["daytime"]),))
        return self._offset(family)

    def _guarded(self, node: Node) -> Node:
        if self.rng.random() < 0.5 and not _loose(node):
            return node
        return Node("boolean", ("(", node, ")"))


def _loose(node: Node) -> bool:
    text = node.sql()
    return " OR " in text or text.startswith(("NOT", "!")) or " AND " in text
