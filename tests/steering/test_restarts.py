"""Restarts of joins with a control directory, and directories that are used wrongly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.steering.histories import GROUPS, KINDS, Kind, batches
from tests.steering.test_hotkeys import SKETCH, Stream
from thetastream.errors import ControlError, FingerprintError
from thetastream.options import JoinOptions
from thetastream.spec import LiveSpec, SketchOptions, Step
from thetastream.steering.directory import Directory, opened
from thetastream.steering.edits import Scale
from thetastream.steering.files import LocalFiles
from thetastream.steering.hotkeys import HotKeys
from thetastream.steering.loop import Progress
from thetastream.steering.tables import Changing
from thetastream.testing import Batch, InProcessJoin, expected_rows, multiset
from thetastream.testing.inprocess import rows_in, stream_names
from thetastream.testing.steered import Steering

MOST = 40
PROGRESS = Progress(query="", batch=0, at=0.0, rows_in=0, seconds=0.0, reports=((0, {}),))


def join_of(kind: Kind, script: list[Batch], **options: Any) -> InProcessJoin:
    given = {"units": 2, "full_history": True, **(kind.options or {}), **options}
    names = stream_names(kind.streams)
    return InProcessJoin(
        kind.predicate,
        [table.schema for table in script[0].tables],
        within=kind.within,
        time=None if kind.within is None else dict.fromkeys(names, "t"),
        options=JoinOptions(**given),
        groups=GROUPS,
    )


ADDED = ("hash", "contrand, full history", "band", "random", "chain", "tree")


@pytest.mark.parametrize("name", ADDED)
def test_a_directory_may_be_added_and_not_left_out_again(name: str) -> None:
    """The rows of before are found, and move with the units."""
    kind = KINDS[name]
    script = batches(np.random.default_rng(3), kind.streams, MOST, 20)
    plain = join_of(kind, script)
    played = script[:2]
    rows = [row for step in played for row in rows_in(plain.results(step))]
    live = Steering(join_of(kind, script), max_units=4)
    live.running.restart(plain.stored())
    live.ask(Scale(units=3))

    def feed() -> Batch:
        played.append(script[len(played)])
        return played[-1]

    while live.version.step.value != "settled" or live.files.names("requests"):
        rows += rows_in(live.batch(feed()))
    assert live.version.joins[0].active(0) == (0, 1, 2)
    rows += rows_in(live.batch(feed()))
    times = None if kind.within is None else "t"
    expected = expected_rows(kind.predicate, played, within=kind.within, time=times)
    assert multiset(rows) == multiset(expected)
    back = join_of(kind, script, units=3)
    back.restart(live.running.stored())
    with pytest.raises(ControlError, match="and none was given"):
        back.results(script[-1])


def test_a_directory_with_fewer_units_than_the_checkpoint_is_not_added() -> None:
    kind = KINDS["random"]
    script = batches(np.random.default_rng(3), 2, 3, 20)
    plain = join_of(kind, script, units=3)
    plain.results(script[0])
    live = Steering(join_of(kind, script, units=2), max_units=4)
    live.running.restart(plain.stored())
    with pytest.raises(FingerprintError, match="units changed"):
        live.batch(script[1])


@pytest.mark.parametrize(
    ("before", "after"),
    [("hash", "contrand"), ("contrand", "hash"), ("random", "split")],
)
def test_another_topology_is_refused(before: str, after: str) -> None:
    """Its tables would not be used: those in the directory are of the first one."""
    kind = KINDS["hash"]
    script = batches(np.random.default_rng(3), 2, 3, 20)
    live = Steering(join_of(kind, script, topology=before))
    other = join_of(kind, script, topology=after)
    # As long as the query has not run, the directory follows the program.
    never_ran = live.directory.open(other.plan.tree, 8, 0.0)
    assert never_ran.control != live.control
    assert live.version.joins[0].made == other.plan.tree.steps[0].routing
    live.directory.open(live.tree, 8, 0.0)
    live.directory.bind("a query")
    with pytest.raises(ControlError, match="belongs to another query: topology") as refused:
        live.directory.open(other.plan.tree, 8, 0.0)
    assert f"topology: was {before}, is {after}" in refused.value.detail


def test_hot_keys_may_be_turned_off_and_on_again() -> None:
    """A key that is split stays so meanwhile, and can cool down afterwards."""
    stream = Stream(units=3, policy=HotKeys())
    hot, cold = np.full(150, 5), np.arange(150)
    sizes = [SKETCH, None, SketchOptions(filter_keys=4, sketch_bytes=256, half_life=2)]
    for size, keys, count in zip(sizes, (hot, hot, cold), (4, 3, 12), strict=True):
        stream.join.predict(size)
        stream.steering.replace_loop()
        if size is not None:
            stream.steering.manage(HotKeys())
        for _ in range(count):
            stream.batch(keys, np.arange(20))
        if keys is hot:
            assert stream.hot() == [5]
    assert stream.hot() == []
    stream.check()


# -- one directory for two queries -----------------------------------------------------------------


def routed(path: str, step: Step, query: str) -> Changing:
    """The tables that the routers of a query read."""
    control = Directory(path).require().control
    live = LiveSpec(path=path, control=control, join=0, token=query)
    return Changing(live, step.spec, opened(path, query), query)


def test_a_second_query_is_refused_as_soon_as_the_first_is_heard_of(tmp_path: Path) -> None:
    kind = KINDS["hash"]
    script = batches(np.random.default_rng(3), 2, MOST, 20)
    live = Steering(join_of(kind, script), files=LocalFiles(tmp_path))
    (step,) = live.tree.steps
    early, first = (routed(str(tmp_path), step, name) for name in ("another query", "a query"))
    assert early.at(0) == first.at(0)
    live.batch(script[0])
    late = routed(str(tmp_path), step, "a third query")
    for call in (lambda: late.at(0), late.newest):
        with pytest.raises(ControlError, match="in use by another query") as refused:
            call()
        assert "control directory of its own" in refused.value.hint
    # One that began before goes on with the table that it has, and with no other.
    live.ask(Scale(units=3))
    live.batch(script[1])
    assert live.version.version == 1
    assert first.newest().version == 1
    with pytest.raises(ControlError, match="in use by another query"):
        early.newest()
    # Nor does the loop listen to it.
    told = live.directory.status()
    live.loop.committed(replace(PROGRESS, query="another query"))
    assert "in use by another query" in live.loop.problem
    assert live.directory.status() == told | {"problem": live.loop.problem}
