"""Plans without Spark, over two streams with a column of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from thetastream.options import JoinOptions
from thetastream.planner import Parallelism, Plan, plan_join
from thetastream.spec import ColumnSpec
from thetastream.testing.duck import DuckAnalyst


def _columns(text: str) -> list[ColumnSpec]:
    pairs = [item.rsplit(" ", 1) for item in text.split("; ")]
    return [ColumnSpec(name=name, type=kind) for name, kind in pairs]


R = (
    "id int; x double; f float; big bigint; tiny tinyint; name string; at timestamp; "
    "local timestamp_ntz; day date; price decimal(10,2); wide decimal(30,4); flag boolean; "
    "tags array<int>; where_ struct<lat:double,lon:double>; odd name int; raw binary; solo int"
)


@pytest.fixture
def streams() -> dict[str, list[ColumnSpec]]:
    return {"r": _columns(R), "s": _columns(R.replace("; solo int", "; lone int"))}


@pytest.fixture
def plan(streams: dict[str, list[ColumnSpec]]) -> Callable[..., Plan]:
    """Plan a predicate over r and s; keyword arguments as plan_join, plus ansi and so on."""

    def run(predicate: str, **given: Any) -> Plan:
        settings = {
            name: given.pop(name)
            for name in ("ansi", "case_sensitive", "parallelism")
            if name in given
        }
        if isinstance(settings.get("parallelism"), int):
            settings["parallelism"] = Parallelism(*[settings["parallelism"]] * 2)
        if "options" in given and isinstance(given["options"], dict):
            given["options"] = JoinOptions(**given["options"])
        chosen = given.pop("streams", streams)
        analyst = DuckAnalyst.of(chosen, **settings)
        found = plan_join(streams=chosen, predicate=predicate, analyst=analyst, **given)
        assert isinstance(found, Plan)
        return found

    return run
