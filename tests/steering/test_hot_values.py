"""Hot values of stream-aware joins that change while these run: whatever is listed, each pair is
found once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from tests.steering.hot_histories import Kind, play_hot
from tests.steering.test_hotkeys import SCHEMA, SKETCH, decided, hot, moment, zipf
from thetastream.errors import OptionError
from thetastream.options import JoinOptions
from thetastream.steering.edits import Edit, Heat, HotWish, Move, Moves, Scale
from thetastream.steering.frequent import frequent_keys, split_keys, told_keys
from thetastream.steering.hotkeys import HotKeys
from thetastream.steering.policy import Moment, SplitKey, Verdict
from thetastream.steering.version import Version
from thetastream.testing import Batch, InProcessJoin, expected_rows, multiset
from thetastream.testing.cases import SECOND, START
from thetastream.testing.inprocess import rows_in
from thetastream.testing.steered import Steering
from thetastream.topology.hotvalues import units_for_values

AWARE = {"topology": "stream-aware", "control": "routing", "hot_keys": "watch"}
KINDS = {
    "inequality": Kind("r.n > s.n AND r.x > s.x", options=AWARE),
    "band, full history": Kind("abs(r.k - s.k) <= 1", within=None, options=AWARE),
    "floats": Kind("r.x > s.x", options=AWARE | {"units": 4, "hot_units": 3}),
    "a difference": Kind("r.x - s.x < 0.5", options=AWARE),
    "texts": Kind("r.g <= s.g", options=AWARE | {"units": (2, 4)}),
    "named values": Kind("r.k < s.k", options=AWARE | {"units": 3, "hot_values": (1, 2)}),
    "sorted runs": Kind("r.k < s.k", options=AWARE | {"index": "runs"}),
    "pim": Kind("r.k < s.k", options=AWARE | {"index": "pim"}),
    "nested loops": Kind("r.k < s.k", options=AWARE | {"index": "nested-loops"}),
}


def changes_in(steering: Steering) -> int:
    """How often the list of hot values has changed."""
    lists = [[one.values for one in found.joins] for found in steering.loop.tables.history()]
    return sum(a != b for a, b in pairwise(lists))


@pytest.mark.parametrize("name", KINDS)
def test_histories(name: str) -> None:
    played = play_hot(KINDS[name], 1, count=12)
    assert changes_in(played.steering) >= 2
    assert set(played.changes) == {"settled"}


@pytest.mark.parametrize("name", ["inequality", "floats", "named values"])
def test_histories_that_a_policy_makes(name: str) -> None:
    policy = HotKeys(factor=0.1, patience=1)
    played = play_hot(KINDS[name], 5, count=12, policies=(policy,), by_hand=False, scales=False)
    assert changes_in(played.steering) >= 2


@pytest.mark.chaos
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("seed", range(100, 125))
def test_many_histories(name: str, seed: int) -> None:
    play_hot(KINDS[name], seed)
    play_hot(KINDS[name], seed, policies=(HotKeys(factor=0.1, patience=1),))


# -- joins whose values are given -----------------------------------------------------------------


class Stream:
    """Batches of a band join of r and s, whose keys are given."""

    def __init__(self, *policies: HotKeys, units: int = 4, **options: Any) -> None:
        self.random = np.random.default_rng(3)
        self.predicate = "abs(r.k - s.k) <= 1"
        self.join = InProcessJoin(
            self.predicate,
            [SCHEMA, SCHEMA],
            within="2 seconds",
            time={"r": "t", "s": "t"},
            options=JoinOptions(**AWARE, units=units, **options),
        )
        self.steering = Steering(self.join, max_units=8, sketch=SKETCH)
        self.steering.manage(*policies)
        self.script: list[Batch] = []
        self.rows: list[Any] = []

    def _table(self, keys: npt.NDArray[Any]) -> pa.Table:
        begin = START + len(self.script) * 4 * SECOND
        times = begin + np.sort(self.random.integers(0, 4 * SECOND, len(keys)))
        ids = np.arange(len(keys)) + 1_000_000 * len(self.script)
        columns = [keys.astype(np.int64), ids, pa.array(times).cast(SCHEMA.field("t").type)]
        return pa.table(columns, schema=SCHEMA)

    def batch(self, r: npt.NDArray[Any], s: npt.NDArray[Any], **how: Any) -> None:
        number = len(self.script)
        mark = START + (number * 4 - 1) * SECOND if number else None
        self.script.append(Batch(self._table(r), self._table(s), watermark=mark))
        self.rows += rows_in(self.steering.batch(self.script[-1], **how))
        assert not self.steering.loop.problem, self.steering.loop.problem

    def skewed(self, value: int, count: int = 300) -> None:
        """A batch in which a value has two thirds of the rows of r."""
        keys = self.random.integers(100, 1100, count)
        keys[: 2 * count // 3] = value
        self.batch(keys, self.random.integers(0, 1100, count // 10))

    @property
    def version(self) -> Version:
        return self.steering.version

    def hot(self) -> list[int]:
        return [one.key for one in self.version.joins[0].values]

    def check(self) -> None:
        expected = expected_rows(
            self.predicate, self.script, within="2 seconds", time={"r": "t", "s": "t"}
        )
        assert multiset(self.rows) == multiset(expected)


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0, 1.5, 2.0])
def test_skewed_values_that_drift(skew: float) -> None:
    stream = Stream(HotKeys(), units=6)
    seen = []
    for number in range(8):
        if number == 5:
            stream.join.restart()
        drift = number // 4 * 1000
        keys = zipf(stream.random, skew, 1000) + drift
        others = stream.random.integers(drift, drift + 1000, 60)
        stream.batch(keys, others, mixed=number % 2 == 1, crash=number % 3 == 1)
        seen.append(stream.hot())
    if skew < 1:
        assert stream.version.version == 0
    else:
        assert 0 in seen[3]
        assert 1000 in seen[-1]
    stream.check()


def test_a_value_is_hot_after_a_batch_and_cold_again_when_it_is_rare() -> None:
    stream = Stream(HotKeys())
    for value in (7, 8, 9):
        stream.skewed(value)
        stream.skewed(value)
        assert value in stream.hot()
    for _ in range(12):
        stream.skewed(9)
    assert stream.hot() == [9]
    assert {one.step.value for one in stream.steering.loop.tables.history()} == {"settled"}
    stream.check()


def test_what_is_hot_is_stored_in_the_hot_units_alone_from_then_on() -> None:
    stream = Stream(HotKeys())
    stream.skewed(7)
    before = len(stream.join.runner.reports)
    stream.skewed(7)
    # Two of four units have the two thirds of the rows, and the others the rest.
    homes = {one.unit: one.rows_in for one in stream.join.runner.reports[before:]}
    assert homes[2] + homes[3] >= 200
    assert homes[0] + homes[1] <= 130


def test_named_values_are_the_first_ones() -> None:
    stream = Stream(hot_values=(8, 7), hot_units=1)
    assert stream.hot() == [7, 8]
    assert [one.shown for one in stream.version.joins[0].values] == ["7", "8"]
    assert units_for_values(stream.version.joins[0]) == (3,)
    stream.steering.manage(HotKeys(patience=1))
    for _ in range(8):
        stream.skewed(8)
    assert stream.hot() == [8]
    stream.check()


def test_floats_are_shown_and_nan_is_a_value() -> None:
    join = InProcessJoin(
        "r.x < s.x",
        [pa.schema([("x", pa.float64())])] * 2,
        options=JoinOptions(**AWARE, units=3, hot_values=(float("nan"), -0.0), full_history=True),
    )
    version = Steering(join, sketch=SKETCH).version
    assert {one.shown for one in version.joins[0].values} == {"0.0", "nan"}


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edit",
    [
        Scale(units=2),
        Scale(units={"r": 5}),
        Move(groups=(3,), to=1),
        Moves(moves=(Move(groups=(5000,), to=1),)),
    ],
)
def test_units_and_groups_stay(edit: Edit) -> None:
    stream = Stream()
    stream.skewed(7)
    name = stream.steering.ask(edit)
    stream.skewed(7)
    answer = stream.steering.directory.answered(name)
    assert answer is not None
    assert answer.state == "refused"
    assert "for hot values" in answer.what
    assert "without hot_keys" in answer.hint
    assert stream.version.version == 0


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        (HotWish(stream="q", key=7), "no stream 'q'"),
        (HotWish(stream="r", key=7, join=3), "no join 3"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused(wish: HotWish, says: str) -> None:
    stream = Stream()
    stream.skewed(7)
    name = stream.steering.ask(Heat(keys=(wish,)))
    stream.skewed(7)
    answer = stream.steering.directory.answered(name)
    assert answer is not None
    assert says in answer.what
    assert stream.hot() == []


def test_wishes_by_hand_are_met_in_one_version() -> None:
    stream = Stream()
    stream.skewed(7)
    seven, five = HotWish(stream="s", key=7, units=9), HotWish(stream="r", key=5)
    stream.steering.ask(Heat(keys=(seven, five)))
    stream.skewed(7)
    assert (stream.version.version, stream.hot()) == (1, [5, 7])
    stream.steering.ask(Heat(cool=((0, 7),)))
    stream.skewed(7)
    assert (stream.version.version, stream.hot()) == (2, [5])
    stream.check()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hot_keys": "off", "hot_units": 2}, "it names none"),
        ({"topology": "auto", "hot_units": 2}, "it names none"),
        ({"control": None}, "changes the routing"),
        ({"topology": "random"}, 'topology="random"'),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says) as caught:
        JoinOptions(**AWARE | options)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("predicate", "options", "says"),
    [
        ("r.k = s.k", {}, "an equality"),
        ("r.k < s.k", {"units": 1}, "has one unit in all"),
        ("r.k < s.k", {"hot_units": 3}, "leaves none of the 3 units"),
    ],
)
def test_joins_that_have_no_hot_values_are_refused(
    predicate: str, options: dict[str, Any], says: str
) -> None:
    given = JoinOptions(**AWARE | {"units": 3, "full_history": True} | options)
    with pytest.raises(OptionError, match=says):
        InProcessJoin(predicate, [SCHEMA, SCHEMA], options=given)


def test_joins_of_a_tree_have_no_hot_values() -> None:
    options = JoinOptions(**AWARE, scheme="tree", full_history=True)
    with pytest.raises(OptionError, match="no equality") as caught:
        InProcessJoin("r.k < s.k AND s.k < t.k", [SCHEMA] * 3, options=options)
    assert "A join of two streams" in caught.value.hint


# -- what is decided, and shown -------------------------------------------------------------------


def apart(
    shares: dict[tuple[str, int], float], split: Sequence[SplitKey] = (), units: int = 4
) -> Moment:
    """A moment of a join whose last two units are for hot values."""
    found = moment(shares, units=units, split=split)
    last = (units - 2, units - 1)
    holdings = tuple(replace(one, hot_units=last) for one in found.holdings)
    return replace(found, holdings=holdings)


def test_a_value_that_is_frequent_in_either_stream_is_hot() -> None:
    shares = {("r", 7): 0.1, ("s", 7): 0.2, ("s", 8): 0.07, ("r", 9): 0.06}
    found = decided(HotKeys(), apart(shares))
    assert found == {"keys": {("s", 7): 2, ("s", 8): 2}, "cool": []}


def test_a_hot_value_asks_for_nothing_more() -> None:
    assert decided(HotKeys(), apart({("r", 7): 0.9}, [hot(7, units=(2, 3))])) == {}
    # Frequent in the other stream now: it stays.
    assert decided(HotKeys(patience=1), apart({("s", 7): 0.9}, [hot(7, units=(2, 3))])) == {}


def test_a_value_cools_after_several_decisions_in_a_row() -> None:
    policy, earlier = HotKeys(patience=2), list[Verdict]()
    cooled = []
    for share in (0.02, 0.05, 0.02, 0.02):
        verdict = policy.decide(apart({("r", 7): share}, [hot(7)]), earlier)
        earlier.append(verdict)
        cooled.append(verdict.edit is not None)
    assert cooled == [False, False, False, True]


def test_values_that_are_equally_warm_are_left_alone() -> None:
    assert decided(HotKeys(), apart({("r", key): 1 / 2000 for key in range(2000)})) == {}


def test_status_and_reports_tell_of_hot_values() -> None:
    stream = Stream(HotKeys())
    stream.skewed(7)
    before = len(stream.join.runner.reports)
    stream.skewed(7)
    (known,) = split_keys(stream.version)
    assert (known.key, known.shown, known.stream, known.step) == (7, "7", "r", "hot")
    assert known.units == (2, 3)
    assert known.share == pytest.approx(200 / 330, abs=0.1)
    told = [(0, asdict(one)) for one in stream.join.runner.reports[before:]]
    assert told_keys(told) == (known,)
    # Of what the other units remember of the value nothing is counted.
    found = frequent_keys(stream.version, told)
    assert found is not None
    assert found[0].share == pytest.approx(200 / 330, abs=0.05)


def test_a_plan_says_that_values_are_followed() -> None:
    (said,) = (one for one in Stream().join.plan.decisions if one.subject == "hot keys")
    assert said.choice == "watch"
    assert "in the units for hot values" in said.reason
