"""Hot keys beside a running join: requests, policies, exported files, and older state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.steering.test_hotkeys import Stream
from thetastream.errors import ControlError, OptionError
from thetastream.steering.directory import Answer, Request
from thetastream.steering.edits import Edit, Heat, HotWish, Scale
from thetastream.steering.hotkeys import HotKeys
from thetastream.steering.policy import Moment, Verdict
from thetastream.steering.scaling import TwoPhaseScaling
from thetastream.steering.version import Version
from thetastream.topology.hot import HotStep

KEY = 7


def feed(stream: Stream, count: int = 1) -> None:
    """Batches in which both streams have the key."""
    for _ in range(count):
        r, s = stream.random.integers(0, 50, 60), stream.random.integers(0, 50, 20)
        r[:20], s[:3] = KEY, KEY
        stream.batch(r, s)


def asked(*edits: Edit) -> Stream:
    """A join of which something was asked after its first batch."""
    stream = Stream(units=3, policy=None)
    feed(stream)
    for edit in edits:
        stream.steering.ask(edit)
    return stream


def steps(stream: Stream) -> list[str]:
    return [one.step.value for one in stream.steering.version.joins[0].hot]


def heat(**fields: Any) -> Heat:
    return Heat(keys=(HotWish(**{"stream": "r", "key": KEY, **fields}),))


def test_what_was_there_before_is_taken_in_and_the_files_are_removed() -> None:
    stream = asked(heat())
    feed(stream)
    # In this process units keep their files elsewhere.
    stream.steering.directory.export("00000000-" + "0" * 64, memoryview(b"tuples"))
    seen, files = steps(stream), []
    for _ in range(4):
        feed(stream)
        seen += steps(stream)
        files.append(len(stream.steering.files.names("exports")))
    assert seen == ["copy", "take", "hot", "hot", "hot"]
    # Removed when every unit has gone by the version in which the key is hot.
    assert files == [1, 1, 0, 0]
    assert sum(len(one) for one in stream.join.runner.files.values()) > 0
    stream.check()


def test_a_request_is_answered() -> None:
    stream = Stream(units=3, policy=None)
    feed(stream)
    good = stream.steering.ask(heat())
    bad = stream.steering.ask(heat(units=9))
    # One request for a key after the other.
    feed(stream, 2)
    answers = [stream.steering.directory.answered(name) for name in (good, bad)]
    assert [one.state for one in answers if one is not None] == ["done", "refused"]
    assert answers[1] is not None
    assert "more than the 3" in answers[1].what


def test_a_request_waits_until_it_can_be_met() -> None:
    """A key that is on its way to be hot cools when it is, and one that is dropped is hot again
    after that."""
    stream = asked(heat())
    feed(stream)
    assert steps(stream) == ["copy"]
    cool = stream.steering.ask(Heat(cool=((0, KEY),)))
    while steps(stream) != ["hot"]:
        feed(stream)
        assert stream.steering.directory.answered(cool) is None
    feed(stream)
    answer = stream.steering.directory.answered(cool)
    assert answer is not None
    assert answer.state == "done"
    while steps(stream) != ["drop"]:
        feed(stream)
    again = stream.steering.ask(heat())
    feed(stream)
    assert stream.steering.directory.answered(again) is None
    seen = []
    for _ in range(5):
        feed(stream)
        seen += steps(stream)
    assert stream.steering.directory.answered(again) is not None
    assert seen[-1] == "hot"
    stream.check()


def test_a_cooling_key_gets_more_units_if_that_is_asked_for() -> None:
    """First it is hot again with those that it has."""
    stream = asked(heat(units=2))
    while steps(stream) != ["hot"]:
        feed(stream)
    stream.steering.ask(Heat(cool=((0, KEY),)))
    while steps(stream) != ["cooling"]:
        feed(stream)
    wider = stream.steering.ask(heat(units=3))
    for _ in range(6):
        feed(stream)
    (key,) = stream.steering.version.joins[0].hot
    assert (key.step, key.units) == (HotStep.HOT, (0, 1, 2))
    assert stream.steering.directory.answered(wider) is not None
    stream.check()


def test_a_key_that_is_split_in_the_other_stream_is_refused() -> None:
    stream = asked(heat())
    feed(stream)
    other = stream.steering.ask(heat(stream="s"))
    feed(stream)
    answer = stream.steering.directory.answered(other)
    assert answer is not None
    assert (answer.state, answer.what) == ("refused", "key 7 is split in r, and not in s")


def test_requests_for_one_key_are_met_in_their_order() -> None:
    stream = asked(heat(units=2))
    while steps(stream) != ["hot"]:
        feed(stream)
    stream.steering.ask(Heat(cool=((0, KEY),)))
    stream.steering.ask(heat(units=3))
    seen = []
    for _ in range(8):
        feed(stream)
        seen += steps(stream)
    assert seen[0] == "cooling"
    (key,) = stream.steering.version.joins[0].hot
    assert (key.step, key.units) == (HotStep.HOT, (0, 1, 2))
    stream.check()


@pytest.mark.parametrize("share", [True, float("nan"), float("inf"), "much"])
def test_a_share_is_a_number(share: Any) -> None:
    with pytest.raises(ControlError, match="is not a share of the rows"):
        heat(share=share)


def test_a_whole_number_as_a_share_stops_nothing() -> None:
    """A version is the same after it was written and read."""
    stream = asked(heat(share=1))
    while steps(stream) != ["hot"]:
        feed(stream)
    stream.check()


def test_a_request_is_answered_after_the_version_that_meets_it() -> None:
    """Whoever is killed in between meets it again, which changes nothing."""
    stream = asked(heat())
    directory, published = stream.steering.directory, []
    tables = stream.steering.loop.tables
    (request,) = [one.id for one in directory.requests() if isinstance(one, Request)]
    publish, answer = tables.publish, directory.answer

    def first(version: Version) -> None:
        published.append("version")
        publish(version)

    def second(told: Answer) -> None:
        published.append("answer")
        answer(told)

    tables.publish, directory.answer = first, second  # type: ignore[method-assign]
    feed(stream)
    assert published == ["version", "answer"]
    assert directory.answered(request) is not None


def test_only_a_hot_key_can_cool() -> None:
    stream = asked(Heat(cool=((0, KEY),)))
    (request,) = [
        one.id for one in stream.steering.directory.requests() if isinstance(one, Request)
    ]
    feed(stream)
    answer = stream.steering.directory.answered(request)
    assert answer is not None
    assert (answer.state, answer.what) == ("refused", "key 7 of join 0 is not hot")


def test_a_scale_does_not_wait_for_hot_keys_nor_they_for_it() -> None:
    stream = asked(heat(), Scale(units=2))
    units = []
    for _ in range(12):
        feed(stream)
        units.append(len(stream.steering.version.joins[0].stages[0][0].holders.everywhere))
    assert "hot" in steps(stream)
    assert units[-1] == 2
    assert stream.steering.version.step.value == "settled"
    stream.check()


class Wishes:
    """A policy that always asks for the same."""

    name = "wishes"
    every = 0.0

    def __init__(self, edit: Edit, *, heats: bool) -> None:
        self.edit, self.heats = edit, heats

    def decide(self, moment: Moment, earlier: Sequence[Verdict]) -> Verdict:
        return Verdict(why="always", edit=self.edit)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (Wishes(heat(), heats=False), "asks for hot keys"),
        (Wishes(Scale(units=2), heats=True), "hot keys only"),
        (Wishes(heat(units=9), heats=True), "more than the 3"),
    ],
)
def test_policies_that_ask_for_the_wrong_thing_are_refused(policy: Wishes, says: str) -> None:
    stream = Stream(units=3, policy=None)
    stream.steering.manage(policy)
    feed(stream, 2)
    assert stream.steering.version.version == 0
    assert any(says in one.why for one in stream.steering.loop.decisions(policy))


def test_one_policy_decides_about_hot_keys() -> None:
    loop = Stream(units=3, policy=None).steering.loop
    loop.use_own(HotKeys())
    # A restart of the query in the same process brings its own policy again.
    loop.use_own(HotKeys())
    with pytest.raises(OptionError, match="two policies decide which keys are hot"):
        loop.add([HotKeys()])
    loop.add([TwoPhaseScaling(measure="cpu")])
    loop.use_own(None)
    loop.add([HotKeys()])


def test_a_checkpoint_without_copies_is_refused() -> None:
    stream = asked(heat())
    before = stream.join.stored()
    feed(stream, 5)
    assert steps(stream) == ["hot"]
    stream.join.restart(before)
    with pytest.raises(ControlError, match="the checkpoint is older than the control directory"):
        feed(stream)


def test_a_key_that_is_cold_again_leaves_nothing_behind() -> None:
    stream = asked(heat())
    feed(stream, 4)
    stream.steering.ask(Heat(cool=((0, KEY),)))
    seen = []
    for _ in range(8):
        feed(stream)
        seen += steps(stream) or ["cold"]
    assert list(dict.fromkeys(seen)) == ["cooling", "drop", "cold"]
    stream.check()
    # Copies are gone: each stored row is stored once.
    table = stream.steering.version.joins[0]
    assert table.hot == ()
    feed(stream)
    newest = {report.unit: report for report in stream.join.runner.reports[-3:]}
    assert sum(report.stored_rows for report in newest.values()) <= 2 * 80
    assert not any(report.hot for report in newest.values())


def test_keys_are_listed_with_their_steps() -> None:
    stream = asked(heat())
    feed(stream, 4)
    (one,) = stream.steering.version.joins[0].hot
    assert one.step is HotStep.HOT
    assert one.at > 0
