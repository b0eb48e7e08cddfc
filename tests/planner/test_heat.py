"""Hot values of every type that a key may have, encoded as the keys of rows are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from thetastream.errors import OptionError
from thetastream.planner import Plan
from thetastream.spec import HotValues

DAY = dt.date(2024, 2, 29)
AT = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
MICROS = int(AT.timestamp()) * 1_000_000
NAN = 2**63 - 1


def hot_of(plan: Callable[..., Plan], predicate: str, *values: Any) -> list[HotValues | None]:
    options = {"topology": "stream-aware", "units": 3, "hot_values": values}
    found = plan(predicate, options=options)
    return [store.group_by.hot for store in found.spec.stages[0].stores]


@pytest.mark.parametrize(
    ("predicate", "values", "codes"),
    [
        ("r.id < s.id", (5, -3, 5), (-3, 5)),
        ("r.tiny <= s.big", (7,), (7,)),
        ("r.big - s.big BETWEEN -1 AND 2", (2**62,), (2**62,)),
        ("r.price > s.price", (Decimal("2.5"), 1, 0.25), (25, 100, 250)),
        ("r.day < s.day", (DAY,), ((DAY - dt.date(1970, 1, 1)).days,)),
        ("r.at < s.at", (AT, AT.astimezone(dt.timezone(dt.timedelta(hours=5)))), (MICROS,)),
        ("r.local < s.local", (AT.replace(tzinfo=None),), (MICROS,)),
        ("r.flag < s.flag", (True,), (1,)),
        ("r.x < s.x", (float("nan"), 0.0, -0.0), (0, NAN)),
        ("r.f < s.f", (float("nan"), 0), (0, NAN)),
    ],
)
def test_values_of_every_type(
    predicate: str, values: tuple[Any, ...], codes: tuple[int, ...], plan: Callable[..., Plan]
) -> None:
    for found in hot_of(plan, predicate, *values):
        assert found == HotValues(key=0, codes=codes)


def test_texts_are_told_apart_by_their_first_bytes(plan: Callable[..., Plan]) -> None:
    for predicate, values in (
        ("r.name < s.name", ("abcdefgh", "abcdefghi", "b")),
        ("r.raw < s.raw", (b"abcdefgh", b"abcdefghi", b"b")),
    ):
        found = hot_of(plan, predicate, *values)
        assert [len(one.codes) for one in found if one is not None] == [2, 2]


def test_wide_decimals_are_keys_as_well(plan: Callable[..., Plan]) -> None:
    (left, right) = hot_of(plan, "r.wide < s.wide", Decimal("1.5"), Decimal("-2"))
    assert left == right
    assert left is not None
    assert len(left.codes) == 2


@pytest.mark.parametrize(
    ("predicate", "value"),
    [
        ("r.id < s.id", "5"),
        ("r.id < s.id", 2**31),
        ("r.id < s.id", 5.0),
        ("r.id < s.id", False),
        ("r.id < s.id", None),
        ("r.flag < s.flag", 1),
        ("r.price < s.price", Decimal("0.125")),
        ("r.price < s.price", float("nan")),
        ("r.x < s.x", "much"),
        ("r.at < s.at", AT.replace(tzinfo=None)),
        ("r.local < s.local", AT),
        ("r.at < s.at", DAY),
        ("r.day < s.day", "2024-02-29"),
        ("r.name < s.name", 5),
        ("r.name < s.name", b"\xff"),
        ("r.id < s.id", [1]),
        ("r.id < s.id", object()),
    ],
)
def test_values_that_a_key_cannot_have(
    predicate: str, value: Any, plan: Callable[..., Plan]
) -> None:
    with pytest.raises(OptionError, match="which is no value of"):
        hot_of(plan, predicate, value)
