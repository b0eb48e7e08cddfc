"""Join graphs of three and more streams: the order of a tree, windows that follow, filters."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from thetastream.options import JoinOptions
from thetastream.planner import Plan, plan_join
from thetastream.spec import ColumnSpec, RangeKind
from thetastream.testing.duck import DuckAnalyst

COLUMNS = [
    ColumnSpec(name="k", type="bigint"),
    ColumnSpec(name="j", type="bigint"),
    ColumnSpec(name="a", type="string"),
    ColumnSpec(name="b", type="string"),
    ColumnSpec(name="at", type="timestamp"),
]
MINUTE = 60_000_000


def planned(predicate: str, names: str, timed: str = "", **options: object) -> Plan:
    streams = dict.fromkeys(names, COLUMNS)
    return plan_join(
        streams=streams,
        predicate=predicate,
        within=None,
        time=dict.fromkeys(timed, "at"),
        options=JoinOptions(**{"full_history": True, **options}),  # type: ignore[arg-type]
        analyst=DuckAnalyst.of(streams),
        fixed_zone=True,
    )


@pytest.mark.parametrize(
    ("predicate", "names"),
    [
        ("r.k = s.k AND s.k = u.k AND u.k = t.k", "rstu"),
        ("r.k = t.k AND s.k = t.k", "rst"),
        ("r.k = s.k AND s.k = t.k AND r.j > t.j", "rst"),
    ],
)
def test_no_join_of_a_tree_is_a_cross_product(predicate: str, names: str) -> None:
    """What follows from other equalities is no reason to join two streams early."""
    plan = planned(predicate, names, scheme="tree")
    assert len(plan.tree.steps) == len(names) - 1
    assert all(step.spec.edge(0, 1).equality is not None for step in plan.tree.steps)


def test_a_tree_uses_windows_that_follow_from_others() -> None:
    """c is at most ten minutes after a and after b: so a and b are at most ten minutes apart."""
    near = "c.at BETWEEN {0}.at AND {0}.at + INTERVAL 10 MINUTES"
    predicate = f"a.k = b.k AND {near.format('a')} AND {near.format('b')}"
    plan = planned(predicate, "abc", "abc", scheme="tree", full_history=False)
    first = plan.tree.steps[0].spec
    assert first.reach == ((None, 10 * MINUTE), (10 * MINUTE, None))
    assert any(item.kind is RangeKind.TIME for item in first.edge(0, 1).ranges)
    assert all("`at` IS NOT NULL" in (stream.filter_sql or "") for stream in first.streams)


@pytest.mark.parametrize("scheme", ["auto", "tree"])
def test_a_stream_without_a_time_among_others(scheme: str) -> None:
    predicate = "a.k = c.k AND c.j = b.j AND b.at BETWEEN a.at AND a.at + INTERVAL 5 MINUTES"
    plan = planned(predicate, "acb", "ab", scheme=scheme)
    if scheme == "tree":
        last = plan.spec
        # A new c may come with an old a at any time, so that every b is kept for it.
        assert last.reach == ((None, 5 * MINUTE), (None, None))
        ranges = last.edge(0, 1).ranges
        assert any(item.kind is RangeKind.TIME and item.low and item.high for item in ranges)
    else:
        assert len(plan.spec.streams) == 3
    assert plan.tree.span is None
    assert plan.tree.windowed


def test_a_tuple_without_a_time_is_left_out_wherever_the_window_is() -> None:
    predicate = "r.k = s.k AND s.k = t.k AND s.at BETWEEN r.at AND r.at + INTERVAL 5 MINUTES"
    plan = planned(predicate, "rst", "rst")
    assert len(plan.spec.streams) == 3
    assert all("`at` IS NOT NULL" in (stream.filter_sql or "") for stream in plan.spec.streams)


def test_a_plan_is_the_same_in_every_process() -> None:
    """A restart plans anew, and must come to the keys that the checkpoint has."""
    program = (
        "from tests.planner.test_graphs import planned\n"
        "plan = planned('lower(r.a) = s.b AND lower(r.b) = s.b AND s.b = t.a', 'rst')\n"
        "print(plan.spec.fingerprint())\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(4)
    }
    assert len(found) == 1
