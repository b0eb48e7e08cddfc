"""The policy of hot keys: on tables of frequent keys that a reader can check, and in joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from thetastream.engine.measures import imbalance
from thetastream.errors import OptionError
from thetastream.options import JoinOptions
from thetastream.spec import SketchOptions
from thetastream.steering.edits import Heat
from thetastream.steering.hotkeys import HotKeys
from thetastream.steering.policy import FrequentKey, Holding, Load, Moment, SplitKey, Verdict
from thetastream.testing import Batch, InProcessJoin, expected_rows, multiset
from thetastream.testing.cases import SECOND, START
from thetastream.testing.inprocess import rows_in
from thetastream.testing.steered import Steering
from thetastream.topology.hot import HotStep

# -- decisions ------------------------------------------------------------------------------------


def moment(
    shares: dict[tuple[str, int], float],
    *,
    units: int = 4,
    split: Sequence[SplitKey] = (),
    rows: Sequence[int] = (),
) -> Moment:
    """Streams r and s on so many units; shares of the rows by stream and key."""
    everywhere = tuple(range(units))
    return Moment(
        at=0.0,
        batch=1,
        interval=1.0,
        loads=tuple(Load(join=0, stage=0, unit=u, rows_in=n) for u, n in enumerate(rows)),
        holdings=tuple(Holding(stream=name, join=0, stage=0, units=everywhere) for name in "rs"),
        max_units=8,
        frequent=tuple(
            FrequentKey(stream=stream, key=key, share=share)
            for (stream, key), share in shares.items()
        ),
        split=tuple(split),
    )


def hot(key: int, step: str = "hot", units: tuple[int, ...] = (0, 1)) -> SplitKey:
    return SplitKey(stream="r", key=key, step=step, units=units, share=0.3)


def decided(policy: HotKeys, given: Moment, earlier: Sequence[Verdict] = ()) -> dict[str, Any]:
    edit = policy.decide(given, earlier).edit
    if edit is None:
        return {}
    assert isinstance(edit, Heat)
    keys = {(one.stream, one.key): one.units for one in edit.keys}
    return {"keys": keys, "cool": [key for _, key in edit.cool]}


@pytest.mark.parametrize(
    ("shares", "keys"),
    [
        # With four units a key is hot above a sixteenth of the rows.
        ({("r", 7): 0.06}, {}),
        ({("r", 7): 0.07}, {("r", 7): 2}),
        ({("r", 7): 0.13}, {("r", 7): 3}),
        ({("r", 7): 0.9}, {("r", 7): 4}),
        # In the stream in which it is more frequent.
        ({("r", 7): 0.1, ("s", 7): 0.2}, {("s", 7): 4}),
        ({("r", 7): 0.1, ("s", 8): 0.1}, {("r", 7): 2, ("s", 8): 2}),
        # Many keys that are equally warm.
        ({("r", key): 1 / 2000 for key in range(2000)}, {}),
    ],
)
def test_keys_above_the_threshold_are_split(
    shares: dict[tuple[str, int], float], keys: dict[tuple[str, int], int]
) -> None:
    found = decided(HotKeys(), moment(shares))
    assert found.get("keys", {}) == keys


def test_at_most_so_many_keys_are_hot() -> None:
    shares = {("r", key): 0.2 - key / 1000 for key in range(5)}
    assert list(decided(HotKeys(most=3), moment(shares))["keys"]) == [("r", 0), ("r", 1), ("r", 2)]
    known = [hot(key, units=(0, 1, 2, 3)) for key in range(3)]
    verdict = HotKeys(most=3).decide(moment(shares, split=known), [])
    assert verdict.edit is None


def test_one_unit_splits_nothing() -> None:
    assert decided(HotKeys(), moment({("r", 7): 0.9}, units=1)) == {}


def test_a_key_cools_after_several_decisions_in_a_row() -> None:
    policy, earlier = HotKeys(patience=3), list[Verdict]()
    shares = [0.3, 0.02, 0.02, 0.05, 0.02, 0.02, 0.02]
    cooled = []
    for share in shares:
        verdict = policy.decide(moment({("r", 7): share}, split=[hot(7)]), earlier)
        earlier.append(verdict)
        cooled.append(isinstance(verdict.edit, Heat) and verdict.edit.cool == ((0, 7),))
    # 0.05 is below the threshold and not below half of it: counting begins anew.
    assert cooled == [False] * 6 + [True]


def test_a_batch_without_all_reports_decides_and_counts_nothing() -> None:
    policy = HotKeys(patience=2)
    low = policy.decide(moment({}, split=[hot(7)]), [])
    unheard = replace(moment({}, split=[hot(7)]), frequent=None)
    silent = policy.decide(unheard, [low])
    assert silent.edit is None
    patient, earlier = HotKeys(patience=3), [low]
    for given in (unheard, unheard, moment({}, split=[hot(7)])):
        earlier.append(patient.decide(given, earlier))
        assert earlier[-1].edit is None, "it was cool in two batches only"
    assert decided(patient, moment({}, split=[hot(7)]), earlier) == {"keys": {}, "cool": [7]}


def test_a_batch_without_rows_decides_and_counts_nothing() -> None:
    """Spark runs such batches to move a watermark: no key has become rare by that."""
    policy, earlier = HotKeys(patience=2), list[Verdict]()
    empty = moment({}, split=[hot(7)], rows=[0, 0, 0, 0])
    for given in (empty, empty, empty, moment({}, split=[hot(7)], rows=[5, 5, 0, 0]), empty):
        earlier.append(policy.decide(given, earlier))
        assert earlier[-1].edit is None
    given = moment({}, split=[hot(7)], rows=[5, 5, 0, 0])
    assert decided(policy, given, earlier) == {"keys": {}, "cool": [7]}


def test_keys_of_several_joins_are_decided_on_together() -> None:
    """A key of the first becomes hot while one of the second cools."""
    one = moment({("r", 7): 0.5}, rows=[5, 5, 5, 5])
    other = Holding(stream="s", join=1, stage=0, units=(0, 1, 2, 3))
    loads = (*one.loads, Load(join=1, stage=0, unit=0, rows_in=9))
    given = replace(
        one, holdings=(*one.holdings, other), loads=loads, split=(replace(hot(9), join=1),)
    )
    policy, earlier = HotKeys(patience=2), list[Verdict]()
    earlier.append(policy.decide(given, earlier))
    edit = policy.decide(given, earlier).edit
    assert isinstance(edit, Heat)
    assert ([wish.key for wish in edit.keys], edit.cool) == ([7], ((1, 9),))


def test_a_policy_that_wants_more_units_than_there_are_says_so() -> None:
    verdict = HotKeys(least=6).decide(moment({("r", 7): 0.9}), [])
    assert verdict.edit is None
    assert verdict.why == "a hot key is to have 6 units, and there are 4"


def test_a_cooling_key_that_is_frequent_again_is_hot_again() -> None:
    assert decided(HotKeys(), moment({("r", 7): 0.1}, split=[hot(7, "cooling")]))["keys"]
    for step in ("copy", "take", "hot", "drop"):
        assert decided(HotKeys(), moment({("r", 7): 0.1}, split=[hot(7, step)])) == {}


def test_a_key_cools_that_is_frequent_in_the_other_stream_only() -> None:
    shares = {("r", 7): 0.01, ("s", 7): 0.5}
    given = moment(shares, split=[hot(7)])
    assert decided(HotKeys(patience=1), given) == {"keys": {}, "cool": [7]}
    # Nor is it hot again before it can be split in that stream.
    assert decided(HotKeys(), moment(shares, split=[hot(7, "cooling")])) == {}


def test_a_key_that_needs_twice_its_units_gets_them() -> None:
    found = decided(HotKeys(), moment({("r", 7): 0.5}, split=[hot(7)]))
    assert found["keys"] == {("r", 7): 4}


def test_idle_units_are_preferred() -> None:
    edit = HotKeys().decide(moment({("r", 7): 0.1}, rows=[50, 10, 40, 20]), []).edit
    assert isinstance(edit, Heat)
    assert edit.keys[0].prefer == (1, 3, 2, 0)


@pytest.mark.parametrize(
    "wrong", [{"factor": 0}, {"least": 1}, {"most": 0}, {"patience": 0}, {"factor": float("nan")}]
)
def test_policies_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        HotKeys(**wrong)


# -- whole joins ----------------------------------------------------------------------------------

SCHEMA = pa.schema([("k", pa.int64()), ("id", pa.int64()), ("t", pa.timestamp("us", tz="UTC"))])
SKETCH = SketchOptions(half_life=500)


class Stream:
    """Batches of a join of r and s, whose keys are given."""

    def __init__(self, *, units: int, policy: HotKeys | None, seed: int = 1) -> None:
        self.random = np.random.default_rng(seed)
        self.join = InProcessJoin(
            "r.k = s.k",
            [SCHEMA, SCHEMA],
            within="2 seconds",
            time={"r": "t", "s": "t"},
            options=JoinOptions(units=units),
        )
        self.steering = Steering(self.join, max_units=units, sketch=SKETCH)
        if policy is not None:
            self.steering.manage(policy)
        self.script: list[Batch] = []
        self.rows: list[Any] = []

    def _table(self, keys: npt.NDArray[Any]) -> pa.Table:
        begin = START + len(self.script) * 4 * SECOND
        times = begin + np.sort(self.random.integers(0, 4 * SECOND, len(keys)))
        ids = np.arange(len(keys)) + 1_000_000 * len(self.script)
        columns = [keys.astype(np.int64), ids, pa.array(times).cast(SCHEMA.field("t").type)]
        return pa.table(columns, schema=SCHEMA)

    def batch(self, r: npt.NDArray[Any], s: npt.NDArray[Any]) -> float:
        """Join a batch; how many times its share the busiest unit had."""
        number = len(self.script)
        mark = START + (number * 4 - 1) * SECOND if number else None
        self.script.append(Batch(self._table(r), self._table(s), watermark=mark))
        before = len(self.join.runner.reports)
        self.rows += rows_in(self.steering.batch(self.script[-1]))
        assert not self.steering.loop.problem, self.steering.loop.problem
        reports = self.join.runner.reports[before:]
        return imbalance([report.probes for report in reports]).ratio

    def hot(self) -> list[int]:
        """The keys that are hot in the version of the next batch."""
        listed = self.steering.version.joins[0].hot
        return [one.key for one in listed if one.step is HotStep.HOT]

    def check(self) -> None:
        """Everything was found, and once."""
        expected = expected_rows(
            "r.k = s.k", self.script, within="2 seconds", time={"r": "t", "s": "t"}
        )
        assert multiset(self.rows) == multiset(expected)


def zipf(random: np.random.Generator, skew: float, count: int) -> npt.NDArray[Any]:
    weights = np.arange(1, 100_001, dtype=float) ** -skew
    return random.choice(100_000, count, p=weights / weights.sum())


@pytest.mark.parametrize(
    ("skew", "most"),
    [(0.0, 1.2), (1.0, 1.35), (1.5, 1.2), (2.0, 1.2)],
)
def test_the_load_of_skewed_keys_is_even(skew: float, most: float) -> None:
    plain = Stream(units=8, policy=None)
    split = Stream(units=8, policy=HotKeys())
    found = []
    for _ in range(6):
        found.append(
            split.batch(zipf(split.random, skew, 4000), split.random.integers(0, 100_000, 200))
        )
    uneven = plain.batch(zipf(plain.random, skew, 4000), plain.random.integers(0, 100_000, 200))
    assert float(np.mean(found[3:])) <= most
    if skew >= 1.5:
        assert uneven >= 2
    assert bool(split.hot()) == (skew > 0)
    split.check()


def test_a_new_hot_key_is_split_within_three_batches() -> None:
    stream = Stream(units=4, policy=HotKeys())
    waited = []
    for hot in (11, 22, 33):
        for number in range(4):
            keys = stream.random.integers(0, 1000, 600)
            keys[:400] = hot
            stream.batch(keys, stream.random.integers(0, 50, 60))
            if hot in stream.hot():
                waited.append(number + 1)
                break
    # Decided after the first batch that has the key; hot from the one after the third on.
    assert len(waited) == 3
    assert max(waited) <= 3
    stream.check()


def test_keys_that_are_equally_warm_are_left_alone() -> None:
    stream = Stream(units=4, policy=HotKeys())
    for _ in range(5):
        stream.batch(stream.random.integers(0, 2000, 4000), stream.random.integers(0, 2000, 400))
    assert stream.steering.version.version == 0
    stream.check()


def test_both_streams_may_be_hot_on_a_key() -> None:
    stream = Stream(units=3, policy=HotKeys())
    for _ in range(5):
        r, s = stream.random.integers(0, 500, 120), stream.random.integers(0, 500, 120)
        r[:50], s[:40] = 7, 7
        stream.batch(r, s)
    assert stream.hot() == [7]
    assert stream.steering.version.joins[0].hot[0].stream == "r"
    stream.check()


def test_sketches_of_another_size_begin_anew() -> None:
    stream = Stream(units=2, policy=HotKeys())
    keys = np.full(200, 5)
    for size in (SKETCH, SketchOptions(filter_keys=4, sketch_bytes=256, half_life=100), None):
        stream.join.predict(size)
        for _ in range(2):
            stream.batch(keys, np.arange(20))
    assert stream.join.runner.reports[-1].predicted == []
    stream.check()


def test_a_status_tells_of_hot_keys_and_what_they_gained() -> None:
    stream = Stream(units=4, policy=HotKeys())
    for _ in range(5):
        keys = stream.random.integers(0, 1000, 600)
        keys[:300] = 11
        stream.batch(keys, stream.random.integers(0, 1000, 60))
    (told,) = stream.steering.directory.status()["hot"]
    assert told["without"] > 1.8
    assert told["with"] < 1.3
    (one,) = stream.steering.version.joins[0].hot
    assert (one.key, one.shown, one.stream) == (11, "11", "r")
    assert one.share == pytest.approx(300 / 660, abs=0.1)
