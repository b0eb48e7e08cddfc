"""Keys and filters in ANSI mode: what raises an error has another form, or is left to Spark."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from thetastream.planner import ConjunctClass, Plan

Planned = Callable[..., Plan]


def kinds(plan: Plan) -> list[ConjunctClass]:
    return [conjunct.kind for conjunct in plan.conjuncts]


@pytest.mark.parametrize(
    ("side", "key"),
    [
        ("s.big * 2", "try_multiply(`s`.`big`, 2)"),
        ("(s.big + 1) * s.id", "try_multiply(try_add(`s`.`big`, 1), `s`.`id`)"),
        ("s.big * 2 + 1", "try_add(try_multiply(`s`.`big`, 2), 1)"),
        ("s.big % s.id", "try_mod(`s`.`big`, `s`.`id`)"),
        ("-(s.big * 2)", "try_multiply(try_multiply(`s`.`big`, 2), CAST(-1 AS bigint))"),
        ("length(s.name) * 2", "try_multiply(LENGTH(`s`.`name`), 2)"),
        ("s.big DIV 3600", "`s`.`big` DIV 3600"),
        ("(s.big * 2) DIV 10", "(try_multiply(`s`.`big`, 2)) DIV 10"),
        ("CASE WHEN s.flag THEN s.big ELSE s.id END",
         "CASE WHEN `s`.`flag` THEN `s`.`big` ELSE `s`.`id` END"),
        ("coalesce(s.big, 0)", "COALESCE(`s`.`big`, 0)"),
        ("CASE WHEN s.id IN (1, 2, 3) THEN s.big ELSE 2 END",
         "CASE WHEN `s`.`id` IN (1, 2, 3) THEN `s`.`big` ELSE 2 END"),
        ("-5 + s.big", "try_add(-5, `s`.`big`)"),
    ],
)  # fmt: skip
def test_a_side_that_has_another_form_is_a_key(side: str, key: str, plan: Planned) -> None:
    found = plan(f"r.id = s.id AND r.big > {side}")
    assert kinds(found) == [ConjunctClass.EQUALITY, ConjunctClass.INEQUALITY]
    assert found.spec.streams[1].keys[-1].sql == key
    assert f"({key}) IS NOT NULL" in str(found.spec.streams[1].filter_sql)


@pytest.mark.parametrize(
    "side",
    [
        "s.big DIV s.id",
        "s.big DIV 0",
        "s.big DIV -1",
        "floor(s.x)",
        "CASE WHEN s.big > 1 THEN s.big * 2 ELSE 0 END",
        "coalesce(s.big + 1, 0)",
        "CASE WHEN s.name = 1 THEN 1 ELSE 2 END",
        "length(s.name) DIV s.id",
        "element_at(s.tags, s.id)",
        "CASE WHEN isnan(s.x * 2) THEN 1 ELSE 2 END",
        "aggregate(s.tags, 0, (one, two) -> one + two)",
    ],
)
def test_a_side_without_one_is_left_to_spark(side: str, plan: Planned) -> None:
    predicate = f"r.big > {side}"
    assert kinds(plan(predicate)) == [ConjunctClass.INEQUALITY]
    assert kinds(plan(predicate, ansi=False)) == [ConjunctClass.INEQUALITY]
    for text in (f"r.id = s.id AND {predicate}", f"{predicate} AND r.id = s.id"):
        found = plan(text)
        assert sorted(kinds(found)) == [ConjunctClass.EQUALITY, ConjunctClass.RESIDUAL]
        assert "IS NOT NULL" in str(found.spec.streams[1].filter_sql)
        assert "`big`" not in str(found.spec.streams[1].filter_sql)
        assert found.spec.recheck_sql is not None


def test_spark_works_out_both_sides_of_an_equality_for_every_row(plan: Planned) -> None:
    found = plan("r.big DIV r.id = s.big DIV s.id AND r.x > s.x")
    assert kinds(found) == [ConjunctClass.EQUALITY, ConjunctClass.INEQUALITY]


def test_what_comes_first_is_worked_out_for_every_pair(plan: Planned) -> None:
    side = "s.big DIV s.id"
    found = plan(f"r.big BETWEEN {side} AND ({side}) + 5")
    assert kinds(found) == [ConjunctClass.BAND] * 2
    found = plan(f"r.big >= s.big AND r.id <= {side}")
    assert kinds(found) == [ConjunctClass.INEQUALITY, ConjunctClass.RESIDUAL]
    window = {"within": "1 hour", "time": {"r": "at", "s": "at"}}
    assert kinds(plan(f"r.big >= {side}", **window)) == [ConjunctClass.RESIDUAL]
