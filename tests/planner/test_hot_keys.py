"""Which joins may have hot keys, what a plan says of them, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from thetastream.errors import OptionError
from thetastream.options import JoinOptions
from thetastream.planner import Plan
from thetastream.spec import SketchOptions
from thetastream.testing import InProcessJoin
from thetastream.testing.cases import SCHEMA


def planned(predicate: str, streams: int = 2, **options: Any) -> Plan:
    given = {"control": "routing", "hot_keys": "auto", "units": 2, **options}
    return InProcessJoin(
        predicate,
        [SCHEMA] * streams,
        within="10 seconds",
        time=dict.fromkeys("rst"[:streams], "t"),
        options=JoinOptions(**given),
    ).plan


@pytest.mark.parametrize(
    ("predicate", "streams", "options"),
    [
        ("r.k = s.k", 2, {}),
        ("r.k = s.k AND r.g = s.g AND r.n < s.n", 2, {"topology": "hash"}),
        ("r.k = s.k AND s.k = t.k", 3, {"scheme": "tree"}),
    ],
)
def test_a_plan_says_that_hot_keys_are_split(
    predicate: str, streams: int, options: dict[str, Any]
) -> None:
    (said,) = (
        one for one in planned(predicate, streams, **options).decisions if one.subject == "hot keys"
    )
    assert said.choice == "auto"
    assert "the join itself splits a key that is too frequent for one unit" in said.reason


def test_a_policy_may_decide_instead() -> None:
    (said,) = (
        one for one in planned("r.k = s.k", hot_keys="watch").decisions if one.subject == "hot keys"
    )
    assert (said.choice, "ts.manage" in said.reason) == ("watch", True)


def test_joins_without_an_equality_of_a_tree_are_left_out() -> None:
    plan = planned("r.k = s.k AND abs(s.n - t.n) <= 1", 3, scheme="tree")
    (said,) = (one for one in plan.decisions if one.subject == "hot keys")
    assert "in join" in said.reason


@pytest.mark.parametrize(
    ("predicate", "streams", "says", "hint"),
    [
        ("r.n < s.n", 2, "no equality", 'topology="random"'),
        ("r.n > s.n", 2, "no equality", '"stream-aware"'),
        ("abs(r.n - s.n) <= 1", 2, "no equality", 'topology="random"'),
        ("r.k = s.k AND s.k = t.k", 3, "three-way", 'scheme="tree"'),
    ],
)
def test_other_joins_are_refused(predicate: str, streams: int, says: str, hint: str) -> None:
    with pytest.raises(OptionError, match=says) as caught:
        planned(predicate, streams)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hot_keys": "auto"}, "changes the routing"),
        ({"hot_keys": "always", "control": "c"}, "unknown hot_keys"),
        ({"hot_keys": "auto", "control": "c", "topology": "contrand"}, 'topology="contrand"'),
        ({"hot_keys": "auto", "control": "c", "topology": "matrix"}, 'topology="matrix"'),
        ({"sketch": SketchOptions()}, "look for hot keys or values"),
        ({"hot_keys": "auto", "control": "c", "sketch": 5}, "not the size of a sketch"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says) as caught:
        JoinOptions(**options)
    assert caught.value.hint
