"""The loop that publishes: requests, reports and policies."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.steering.histories import batches
from thetastream.options import JoinOptions
from thetastream.steering.edits import Move, Scale
from thetastream.steering.policy import Moment, Verdict
from thetastream.testing import Batch, InProcessJoin
from thetastream.testing.steered import Steering

import numpy as np  # isort: skip

TIME = {"r": "t", "s": "t"}


def steering(units: int = 2) -> tuple[Steering, list[Batch]]:
    script = batches(np.random.default_rng(7), 2, 40, 10)
    schemas = [table.schema for table in script[0].tables]
    join = InProcessJoin(
        "r.k = s.k", schemas, within="12 seconds", time=TIME, options=JoinOptions(units=units)
    )
    return Steering(join, max_units=4), script


def test_requests_wait_for_each_other() -> None:
    live, script = steering()
    live.batch(script[0])
    first, second = live.ask(Scale(units=3)), live.ask(Scale(units=1))
    live.batch(script[1])
    answers = [live.directory.answered(one) for one in (first, second)]
    assert answers[0] is not None
    assert answers[0].state == "started"
    assert answers[1] is None
    left = iter(script[2:])
    live.settle(lambda: next(left), most=30)
    assert [live.directory.answered(one).state for one in (first, second)] == ["done", "done"]  # type: ignore[union-attr]
    assert live.version.joins[0].active(0) == (0,)


def test_a_request_that_is_refused_is_answered_and_the_next_one_is_met() -> None:
    live, script = steering()
    live.batch(script[0])
    wrong, same, right = (live.ask(Scale(units=units)) for units in (9, 2, 3))
    live.batch(script[1])
    refused = live.directory.answered(wrong)
    assert refused is not None
    assert refused.state == "refused"
    assert "from 1 to 4" in refused.hint
    assert live.directory.answered(same).state == "nothing"  # type: ignore[union-attr]
    assert live.directory.answered(right).state == "started"  # type: ignore[union-attr]


def test_a_request_that_is_no_request() -> None:
    live, script = steering()
    live.batch(script[0])
    live.files.write(
        "requests/0123456789abcdef.json", b'{"at": 1, "by": "x", "why": "", "edit": 3}'
    )
    live.files.write("requests/00000000deadbeef.json", b"{")
    live.files.write("requests/../../etc.json", b"{}")
    live.batch(script[1])
    assert live.directory.answered("0123456789abcdef").state == "refused"  # type: ignore[union-attr]
    assert live.version.version == 0


def test_nothing_is_published_before_a_batch_has_used_the_version() -> None:
    live, script = steering()
    live.ask(Scale(units=3))
    live.loop.idle()
    assert live.version.version == 0
    live.batch(script[0])
    assert live.version.version == 1
    live.loop.idle()
    assert live.version.version == 1


def test_without_reports_nothing_goes_on() -> None:
    live, script = steering()
    live.batch(script[0])
    live.ask(Scale(units=3))
    for step in script[1:5]:
        live.batch(step, lose=lambda _: True)
    assert live.version.version == 0
    live.batch(script[5])
    live.batch(script[6], lose=lambda report: report.unit == 0)
    assert live.version.version == 1


def test_a_change_in_which_nothing_moves_comes_to_its_end() -> None:
    """A full history with one key, whose group stays where it is."""
    script = batches(np.random.default_rng(3), 2, 30, 6)
    schemas = [table.schema for table in script[0].tables]
    options = JoinOptions(units=2, full_history=True)
    live = Steering(InProcessJoin("r.k = s.k", schemas, options=options), max_units=4)
    one_key = [_with_key(step, 5) for step in script]
    for step in one_key[:3]:
        live.batch(step)
    (holder,) = (unit for (_, unit), state in live.running.runners[0].state.items() if state.parts)
    groups = live.version.joins[0].stages[0][0]
    mine = [g for g in range(5040) if groups.lines[groups.assigned[g]] == (holder,)]
    moved = mine[:10] if holder else mine[-10:]
    live.ask(Move(groups=tuple(moved), to=1 - holder))
    left = iter(one_key[3:])
    live.settle(lambda: next(left), most=12)
    assert [one.step.value for one in live.loop.tables.history()][1:] == [
        *("announce", "switch", "take", "forget", "settled")
    ]


def _with_key(step: Batch, key: int) -> Batch:
    tables = []
    for table in step.tables:
        keys = pa.array([key] * table.num_rows, pa.int32())
        tables.append(table.set_column(1, table.schema.field(1), keys))
    return Batch(*tables, watermark=step.watermark)


def test_what_others_leave_in_the_folder_of_requests() -> None:
    live, script = steering()
    live.batch(script[0])
    odd = {
        "0" * 12: b'{"at": 1' + b"0" * 400 + b', "by": "x", "why": "", "edit": {}}',
        "0" * 11 + "1": b"[" * 100_000,
        "0" * 11 + "2": b"\xff\xfe",
    }
    for name, data in odd.items():
        live.files.write(f"requests/{name}.json", data)
    right = live.ask(Scale(units=3))
    live.batch(script[1])
    for name in odd:
        assert live.directory.answered(name).state == "refused"  # type: ignore[union-attr]
    assert live.directory.answered(right).state == "started"  # type: ignore[union-attr]


@pytest.mark.parametrize("units", [0, -1, 2.5, "3", 99])
def test_a_policy_that_asks_for_nonsense(units: Any) -> None:
    class Wild:
        name = "wild"
        every = 0.0

        def decide(self, moment: Moment, earlier: Any) -> Verdict:
            return Verdict(why="because", edit=Scale(units=units))

    live, script = steering()
    live.manage(Wild())
    for step in script[:3]:
        live.batch(step)
    assert live.version.version == 0
    assert live.directory.status()["batch"] >= 1


def test_a_policy_that_fails_is_not_the_end() -> None:
    class Broken:
        name = "broken"
        every = 0.0

        def decide(self, moment: Moment, earlier: Any) -> Verdict:
            raise RuntimeError("no idea")

    live, script = steering()
    broken = Broken()
    live.manage(broken)
    live.batch(script[0])
    (verdict,) = live.loop.decisions(broken)
    assert "no idea" in verdict.why
    live.ask(Scale(units=3))
    live.batch(script[1])
    assert live.version.version == 1


def test_another_query_is_refused() -> None:
    live, script = steering()
    live.batch(script[0])
    owner = json.dumps({"query": "another", "control": live.control})
    live.files.write("query.json", owner.encode())
    live.ask(Scale(units=3))
    live.batch(script[1])
    assert "in use by another query" in live.loop.problem
    assert live.version.version == 0
