"""The handle on a query's routing: what it says, shows, draws, asks for and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

import thetastream as ts
from tests.charts.test_charts import drawn
from tests.steering.scene import Scene
from thetastream.api.control import running_plan
from thetastream.api.control_text import bar, size, sparkline, status_line, units_over_time
from thetastream.api.keys import hot_key
from thetastream.planner.heat import code_of
from thetastream.spec import Encoding, KeySpec


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "control")


@pytest.fixture
def running(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """The query runs on while somebody waits for it."""
    scene.feed(2)
    monkeypatch.setattr("thetastream.api.control.sleep", scene.poll)
    return scene


# -- the status -----------------------------------------------------------------------------------


def test_the_first_status(scene: Scene) -> None:
    status = ts.control(scene.path).status()
    assert (status.version, status.step, status.change, status.by) == (0, "settled", 0, "join")
    assert status.settled
    assert (status.batch, status.at, status.samples) == (None, None, ())
    assert [(one.stream, one.units) for one in status.streams] == [("r", (0, 1)), ("s", (0, 1))]
    text = str(status)
    assert text.splitlines()[0] == "Routing tables: version 0, settled"
    assert "none was heard of yet" in text
    assert "No change is under way." in text


def test_a_settled_status_as_text(scene: Scene) -> None:
    scene.feed(3)
    status = ts.control(scene.path).status()
    lines = [line.rstrip() for line in str(status).splitlines()]
    assert repr(status) == str(status)
    assert lines[:5] == [
        "Routing tables: version 0, settled",
        f"  directory    {scene.path}",
        "  last change  0, by join: the first table",
        "  last batch   3, committed 1970-01-12 13:47:10 UTC",
        "  units        at most 4",
    ]
    assert lines[6:12] == [
        "Units, and how many groups each of them holds",
        "  stream  unit  groups",
        f"  r          0   2,520  {'█' * 20}",
        f"             1   2,520  {'█' * 20}",
        f"  s          0   2,520  {'█' * 20}",
        f"             1   2,520  {'█' * 20}",
    ]
    assert "Batches 1 to 3" in lines
    assert any(line.startswith("  units         ███  2") for line in lines)
    assert status_line(status) == "batch 3; version 0, settled; units: r 2, s 2"


def test_a_change_under_way_says_what_it_waits_for(scene: Scene) -> None:
    scene.feed(2)
    control = ts.control(scene.path)
    assert control.scale(1, wait=None) == 0
    waiting = control.status()
    assert not waiting.settled
    assert waiting.waiting == 1
    assert waiting.rest == "1 request waits for the next batch"
    assert "waiting requests" in str(waiting)
    seen = {}
    while not (status := control.status()).settled:
        scene.feed()
        seen[status.step] = status
    assert {"announce", "switch", "forget"} <= set(seen)
    assert seen["announce"].rest.startswith("a batch with rows has to show")
    assert "A batch with rows has to show" in str(seen["announce"])
    text = str(seen["switch"])
    assert "Rows are stored in their new places." in text
    assert "Still to drain" in text
    drains = seen["switch"].draining
    assert [(one.join, one.stage, one.unit) for one in drains] == [(0, 0, 1)]
    assert "still to drain: unit 1" in seen["switch"].rest
    assert "unit 1" in status_line(seen["switch"])
    assert "rows left" in seen["switch"]._repr_html_()
    assert [len(one.units) for one in control.status().streams] == [1, 1]


def test_a_problem_is_shown(scene: Scene) -> None:
    scene.feed(1)
    file = scene.root / "status.json"
    told = json.loads(file.read_text())
    file.write_text(json.dumps(told | {"problem": "the disk is full"}))
    status = ts.control(scene.path).status()
    assert "The query's process could not publish: the disk is full." in str(status)
    assert "the disk is full" in status_line(status)
    assert status.rest == "the query's process cannot publish: the disk is full"


def test_html_is_escaped(scene: Scene) -> None:
    scene.feed(1)
    control = ts.control(scene.path)
    control.scale(3, why="<b>more</b>\x1b[2J", wait=None)
    scene.settle()
    for shown in (control.status(), control.history()):
        assert "&lt;b&gt;more" in shown._repr_html_()
        assert "<b>more" not in shown._repr_html_()
        assert "\x1b" not in str(shown)


def test_many_units_are_not_all_listed(tmp_path: Path) -> None:
    scene = Scene(tmp_path, units=40, max_units=40)
    status = ts.control(scene.path).status()
    assert "(8 more units are not shown)" in str(status)
    assert len(status.streams[0].groups) == 40


# -- what is asked for ----------------------------------------------------------------------------


def test_a_request_is_answered_and_carried_out(running: Scene) -> None:
    control = ts.control(running.path)
    assert control.scale({"r": 3}, why="Friday evening") == 1
    status = control.wait()
    assert status.settled
    assert {one.stream: len(one.units) for one in status.streams} == {"r": 3, "s": 2}
    assert control.scale({"r": 3}) == 0
    assert control.move([0, 1, 2], to=2, stream="r") == 2
    control.wait()
    history = control.history()
    assert [one.change for one in history] == [0, 1, 2]
    assert (history[1].by, history[1].why) == ("hand", "Friday evening")
    assert history[1].what == "scale to 3 units for r"
    assert history[2].units == {"r": 3, "s": 2}


@pytest.mark.parametrize(
    ("units", "more", "words"),
    [
        (0, {}, "not a number of units"),
        ({}, {}, "not a number of units"),
        (3, {"drain": "quickly"}, "not a way to drain"),
        (9, {}, "more than the 4"),
        ({"nobody": 2}, {}, "no stream 'nobody'"),
        (2, {"subgroup": 0}, "no subgroups"),
    ],
)
def test_what_cannot_be_met_is_refused(
    running: Scene, units: int, more: dict[str, object], words: str
) -> None:
    control = ts.control(running.path)
    with pytest.raises(ts.RequestError, match=words) as error:
        control.scale(units, **more)  # type: ignore[arg-type]
    assert error.value.hint
    assert control.status().settled
    assert len(control.history()) == 1


def test_a_query_that_does_not_answer(scene: Scene) -> None:
    control = ts.control(scene.path)
    with pytest.raises(ts.ControlTimeoutError, match="has not answered within 0 s"):
        control.scale(3, wait=0)
    with pytest.raises(ts.ControlTimeoutError, match="is not done after 0 s"):
        control.wait(timeout=0)


def test_a_path_that_is_no_control_directory(tmp_path: Path) -> None:
    with pytest.raises(ts.ControlError, match="is not a control directory"):
        ts.control(str(tmp_path))


def test_a_relative_path_is_a_path(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(scene.root.parent)
    assert ts.control("control").path == scene.path


# -- the history ----------------------------------------------------------------------------------


def test_the_history_as_text(scene: Scene) -> None:
    scene.feed(2)
    control = ts.control(scene.path)
    first = str(control.history())
    assert first.splitlines()[0].split() == [
        *("change", "begun", "(UTC)", "by", "what", "why"),
        *("seconds", "to", "drain", "units", "afterwards"),
    ]
    assert "Units from" not in first
    control.scale(4, why="more load", wait=None)
    scene.settle()
    history = control.history()
    assert history[1].seconds is not None
    assert history[1].drained is not None
    assert history[1].seconds > history[1].drained > 0
    text = str(history)
    assert repr(history) == text
    row = text.splitlines()[2]
    assert "hand  scale to 4 units  more load" in row
    assert row.endswith("r 4, s 4")
    assert any(line.startswith("  r  ▅") and "from 2 to 4" in line for line in text.splitlines())
    assert isinstance(history[1:], ts.History)
    assert str(history[1]) == str(history[1:])
    assert str(ts.History()) == "no changes"


def test_a_change_under_way_has_no_end(scene: Scene) -> None:
    scene.feed(2)
    control = ts.control(scene.path)
    control.scale(1, wait=None)
    scene.feed(1)
    change = control.history()[-1]
    assert (change.ended, change.seconds, change.drained) == (None, None, None)
    assert "under way" in str(change)


def test_several_moves_in_the_history(scene: Scene) -> None:
    scene.feed(2)
    moves = (ts.Move(groups=(0, 1), to=1), ts.Move(groups=(2520,), to=3))
    scene.steering.ask(ts.Moves(moves=moves, drain="move"))
    scene.settle()
    control = ts.control(scene.path)
    (change,) = control.history()[1:]
    words = "move 2 groups (0, 1) to unit 1; move group (2520) to unit 3, drain=move"
    assert change.what == words
    assert change.units == {"r": 3, "s": 3}
    # Cut where it is long.
    assert f"{words[:59]}…" in str(control.history())
    assert [one.groups for one in control.status().streams] == [{0: 2518, 1: 2521, 3: 1}] * 2


def test_a_long_history_is_cut(scene: Scene) -> None:
    scene.feed(1)
    first = ts.control(scene.path).history()[0]
    assert "(5 earlier changes are not shown)" in str(ts.History([first] * 25))


# -- plots ----------------------------------------------------------------------------------------


def texts(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The texts of a figure, none of which lies over another or outside of the picture."""
    found = drawn(figure, monkeypatch)
    width, height = figure.bbox.size
    for at, one in enumerate(found):
        assert one.box.x0 >= 0, one
        assert one.box.y0 >= 0, one
        assert one.box.x1 <= width, one
        assert one.box.y1 <= height, one
        for other in found[:at]:
            common = Bbox.intersection(one.box, other.box)
            assert common is None or not (common.width and common.height), (one, other)
    return {one.text for one in found}


@pytest.mark.parametrize("fed", [0, 1, 2, 30])
def test_a_status_is_drawn(scene: Scene, fed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.feed(fed)
    control = ts.control(scene.path)
    control.scale(4, wait=None)
    scene.feed(min(fed, 5))
    figure = control.status().plot()
    assert len(figure.axes) == 3
    words = texts(figure, monkeypatch)
    assert {"Stored bytes of each unit", "Groups that each unit holds"} <= words


def test_a_status_of_many_units_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, units=40, max_units=40)
    scene.feed(4)
    assert "unit\n(10 of 40)" in texts(ts.control(scene.path).status().plot(), monkeypatch)


@pytest.mark.parametrize("changes", [(), (4,), (4, 1, 3)])
def test_a_history_is_drawn(
    scene: Scene, changes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.feed(1)
    control = ts.control(scene.path)
    for units in changes:
        control.scale(units, wait=None)
        scene.settle()
    words = texts(control.history().plot(), monkeypatch)
    assert {"Units of each stream", "r", "s"} <= words
    counts = units_over_time(control.history(), 10)["r"]
    assert (counts[0], counts[-1]) == (2, changes[-1] if changes else 2)


def test_plots_need_matplotlib_and_nothing_else_does(scene: Scene) -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import thetastream as ts\n"
        f"control = ts.control({scene.path!r})\n"
        "print(control.status().version, len(control.history()))\n"
        "assert 'pyspark' not in sys.modules\n"
        "try:\n"
        "    control.status().plot()\n"
        "except ts.SettingError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "0 1",
        "a plot needs matplotlib",
        "What to do: pip install matplotlib; print(...) needs nothing",
    ]


# -- texts ----------------------------------------------------------------------------------------


def test_blocks() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([0, 1, 2]) == "▁▅█"
    assert len(sparkline(range(1000))) == 60
    assert sparkline(range(1000))[-1] == "█"
    assert (bar(0, 10), bar(1, 1000), bar(5, 10)) == ("", "█", "█" * 10)
    assert [size(value) for value in (0, 1023, 1536, 3 * 2**20, 2**45)] == [
        *("0 B", "1023 B", "1.5 KiB", "3.0 MiB", "32.0 TiB"),
    ]


# -- hot keys by hand -----------------------------------------------------------------------------


def test_a_key_is_split_and_cools_by_hand(running: Scene) -> None:
    control = ts.control(running.path)
    control.heat(3, stream="r")
    (one,) = control.status().hot
    assert (one.key, one.shown, one.stream, one.units) == (3, "3", "r", (0, 1))
    while control.status().hot[0].step != "hot":
        running.feed()
    control.cool("3")
    assert control.status().hot[0].step == "cooling"
    while control.status().hot:
        running.feed()
    with pytest.raises(ts.RequestError, match="key 3 is not hot") as caught:
        control.cool(3)
    assert caught.value.hint == "no key is"


@pytest.mark.parametrize(
    ("given", "says", "hint"),
    [
        ({"key": "seven", "stream": "r"}, "'seven' is no value of", "give a value of the key"),
        ({"key": 7.5, "stream": "r"}, "7.5 is no value of", "give a value of the key"),
        ({"key": 7, "stream": "x"}, "no stream 'x'", "choose among r, s"),
        ({"key": 7, "stream": "r", "join": 1}, "no join 1", "counted from 0"),
        ({"key": 7, "stream": "r", "units": 9}, "more than the 2", "give at most 2"),
        ({"key": 7, "stream": "r", "units": 1}, "two units or more", "give units=2"),
    ],
)
def test_keys_that_cannot_be_hot_are_refused(
    running: Scene, given: dict[str, Any], says: str, hint: str
) -> None:
    with pytest.raises(ts.RequestError, match=says) as caught:
        ts.control(running.path).heat(**given)
    assert hint in caught.value.hint


def test_a_join_without_an_equality_says_what_to_use_instead(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "control", "r.k > s.k")
    with pytest.raises(ts.RequestError, match="no key of this join") as caught:
        ts.control(scene.path).heat(7, stream="r")
    assert 'topology="stream-aware"' in caught.value.hint


@pytest.mark.parametrize(
    ("kind", "value", "same"),
    [
        ("double", "-0.0", 0.0),
        ("double", "NaN", float("nan")),
        ("double", "6.5", 6.5),
        ("date", "2026-01-01", date(2026, 1, 1)),
        ("boolean", "true", True),
        ("decimal(9,2)", "6.50", Decimal("6.5")),
        ("timestamp_ntz", "2026-01-01 10:00:00", datetime(2026, 1, 1, 10)),
        ("bigint", "-7", -7),
    ],
)
def test_a_value_may_be_given_as_text(kind: str, value: str, same: object) -> None:
    encoding = {"double": Encoding.FLOAT, "decimal(9,2)": Encoding.DECIMAL}
    key = KeySpec(sql="k", type=kind, encoding=encoding.get(kind, Encoding.INTEGER))
    assert code_of(value, key) == code_of(same, key)


def test_a_hash_is_known_by_its_code() -> None:
    key = KeySpec(sql="xxhash64(a, b)", type="bigint", encoding=Encoding.INTEGER, of=("a", "b"))
    assert code_of("-5", key) == -5
    with pytest.raises(ts.OptionError, match="no value of") as caught:
        code_of("Smith", key)
    assert "give its code" in caught.value.hint


def test_hot_keys_of_one_name_are_told_apart() -> None:
    listed = [
        ts.SplitKey(join=join, stream="r", key=key, step="hot", units=(0, 1), share=0.1, shown="a")
        for join, key in ((0, 5), (0, 6), (1, 5))
    ]
    assert hot_key(listed, 6, None) == listed[1]
    assert hot_key(listed, "a", 1) == listed[2]
    for key, join in (("a", None), ("a", 0), (5, None)):
        with pytest.raises(ts.RequestError, match="hot keys are called") as caught:
            hot_key(listed, key, join)
        assert "5 in join 0" in caught.value.hint
    with pytest.raises(ts.RequestError, match="not hot") as caught:
        hot_key(listed, 9, 1)
    assert caught.value.hint == "these are: a"


def test_a_plan_says_which_keys_are_hot(running: Scene, tmp_path: Path) -> None:
    plan = running.steering.running.plan
    assert running_plan(plan, running.path) is not plan
    assert running_plan(plan, running.path).decisions == plan.decisions
    control = ts.control(running.path)
    control.heat(3, stream="r")
    while control.status().hot[0].step != "hot":
        running.feed()
    running.feed(2)
    found = running_plan(plan, running.path)
    key, gained = found.decisions[len(plan.decisions) :]
    assert (key.subject, key.choice) == ("hot key", "3 of r in units 0, 1")
    assert key.reason.startswith("split since 1970-01-12 ")
    last = control.status().batch
    assert f" UTC; in batch {last} it is in step hot, with " in key.reason
    assert gained.subject == "gain of hot keys"
    assert "With hot keys the busiest unit has" in gained.reason
    assert key.choice in str(found)
    # Of another query, of none, and of a directory that cannot be read.
    other = Scene(tmp_path / "other", "r.k > s.k").steering.running.plan
    assert running_plan(other, running.path) is other
    assert running_plan(plan, str(tmp_path / "nothing")) is plan
    assert running_plan(plan, None) is plan
    for odd in ("s3://", "~nobody-has-this-name/x"):
        assert running_plan(plan, odd) is plan
    (running.root / "control.json").write_text("{")
    assert running_plan(plan, running.path) is plan


def test_a_key_that_was_named_by_hand_does_nothing_to_a_terminal() -> None:
    named = "\x1b[2J" + "x" * 100
    assert ts.HotWish(stream="r", key=5, shown=named).name == "?[2J" + "x" * 35 + "…"
