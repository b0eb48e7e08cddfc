"""Equality conjuncts to one 64-bit key per side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thetastream.planner.expression import Comparison, Expr, columns, streams_of
from thetastream.planner.keys import KeyTable, Scope
from thetastream.planner.types import (
    DATETIME,
    EXACT,
    Family,
    comparable,
    compared_as,
    family,
    hashable,
    key_form,
)
from thetastream.spec import ColumnSpec, Encoding, Equality

_COMPARED = EXACT | DATETIME | {Family.BOOLEAN, Family.STRING, Family.BINARY}
"""Types whose values are equal to Spark iff they are equal to Arrow: not so NaN."""


@dataclass(frozen=True)
class EqualityForm:
    """An equality between the first of the sides and the second, each over its own stream."""

    source: Comparison
    sides: tuple[Expr, Expr]


@dataclass(frozen=True)
class EqualityPlan:
    """The equality that drives, the comparisons in it, and those that Spark must evaluate."""

    equality: Equality | None
    used: tuple[Comparison, ...]
    refused: tuple[tuple[Comparison, str], ...]
    reason: str
    compared: tuple[tuple[ColumnSpec, ColumnSpec], ...] = ()
    """What was hashed, one column per side for each equality; empty if the units could not compare
    it as Spark does."""


def equality_form(node: Comparison) -> EqualityForm | None:
    """The comparison as an equality between the two streams; None if it is none."""
    one, two = streams_of(node.left), streams_of(node.right)
    if node.op != "=" or len(one) != 1 or len(two) != 1 or one == two:
        return None
    if min(one) > min(two):
        return EqualityForm(node, (node.right, node.left))
    return EqualityForm(node, (node.left, node.right))


def plan_equalities(
    forms: Sequence[EqualityForm], scope: Scope, tables: tuple[KeyTable, KeyTable]
) -> EqualityPlan:
    """One key per side for all equalities: the value itself if it fits 64 bits, else a hash."""
    usable: list[tuple[EqualityForm, str]] = []
    refused: list[tuple[Comparison, str]] = []
    for form in forms:
        types = (scope.type_of(0, form.sides[0]), scope.type_of(1, form.sides[1]))
        if not comparable(*types):
            refused.append((form.source, scope.otherwise_compared(*types)))
            continue
        common = scope.common_type(*types, form.source)
        if not hashable(common):
            refused.append((form.source, f"equal values of {common} may hash differently"))
        else:
            usable.append((form, common))
    if not usable:
        return EqualityPlan(None, (), tuple(refused), "")
    for form, common in usable:
        for table, side in zip(tables, form.sides, strict=True):
            table.require(side, common)
    used = tuple(form.source for form, _ in usable)
    if len(usable) == 1:
        form, common = usable[0]
        key = key_form(common)
        if key is not None and key.lossless:
            left, right = (t.add(side, key) for t, side in zip(tables, form.sides, strict=True))
            equality = Equality(left=left, right=right)
            return EqualityPlan(equality, used, tuple(refused), f"{common} fits a 64-bit key")
    places: list[int] = []
    hashed: list[list[ColumnSpec]] = []
    for stream, table in enumerate(tables):
        sides = [(form.sides[stream], common) for form, common in usable]
        texts = [_normal(side, common, stream, scope) for side, common in sides]
        read = _read([side for side, _ in sides], scope)
        made = f"xxhash64({', '.join(texts)})"
        places.append(table.add_sql(made, "bigint", Encoding.INTEGER, of=read))
        hashed.append(
            [
                ColumnSpec(name=scope.show(side), type=common, sql=sql)
                for (side, common), sql in zip(sides, texts, strict=True)
            ]
        )
    reason = f"{len(usable)} equalities become one 64-bit hash"
    if len(usable) == 1:
        reason = f"{usable[0][1]} becomes a 64-bit hash"
    known = all(family(common) in _COMPARED for _, common in usable)
    return EqualityPlan(
        Equality(left=places[0], right=places[1], exact=False),
        used,
        tuple(refused),
        reason,
        tuple(zip(hashed[0], hashed[1], strict=True)) if known else (),
    )


def _read(exprs: Sequence[Expr], scope: Scope) -> tuple[str, ...]:
    """The names of the columns that some expressions over one stream read."""
    found = [column for expr in exprs for column in columns(expr)]
    return tuple(dict.fromkeys(scope.names.columns[c.stream][c.index].name for c in found))


def _normal(expr: Expr, common: str, stream: int, scope: Scope) -> str:
    """The expression in the common type, with one form for values that are equal."""
    sql = scope.tried(stream, expr)
    if family(common) is Family.FLOAT:
        # -0.0 equals 0.0 and all NaNs are equal, but their bits, and so their hashes, differ.
        wide = f"CAST({sql} AS double)"
        if common == "float" and scope.type_of(stream, expr) != "float":
            wide = f"CAST(CAST({sql} AS float) AS double)"
        zero = f"CASE WHEN {wide} = 0 THEN CAST(0 AS double) ELSE {wide} END"
        return f"nanvl({zero}, CAST('NaN' AS double))"
    return compared_as(common, sql, scope.type_of(stream, expr))
