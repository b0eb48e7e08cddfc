"""Control directories and checkpoints that do not belong together: units refuse them."""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import pytest

from tests.steering.histories import GROUPS, batches
from thetastream.errors import ControlError
from thetastream.options import JoinOptions
from thetastream.steering.edits import Scale
from thetastream.testing import Batch, InProcessJoin
from thetastream.testing.inprocess import State
from thetastream.testing.steered import MemoryFiles, Steering
from thetastream.topology.makers import make


def steered(files: MemoryFiles | None = None) -> tuple[Steering, list[Batch]]:
    script = batches(np.random.default_rng(7), 2, 40, 20)
    join = InProcessJoin(
        "r.k = s.k",
        [table.schema for table in script[0].tables],
        within="12 seconds",
        time={"r": "t", "s": "t"},
        options=JoinOptions(units=2),
        groups=GROUPS,
    )
    return Steering(join, max_units=4, files=files), script


class Scene(NamedTuple):
    """A join that had two units and has three now."""

    live: Steering
    left: list[Batch]
    old_files: MemoryFiles
    """The control directory of before."""
    old_state: State
    """The checkpoint of before."""


@pytest.fixture
def scene() -> Scene:
    live, script = steered()
    live.batch(script[0])
    assert isinstance(live.files, MemoryFiles)
    files, state = copy.deepcopy(live.files), copy.deepcopy(live.running.stored())
    live.ask(Scale(units=3, drain="move"))
    left = iter(script[1:])
    live.settle(lambda: next(left))
    return Scene(live, list(left), files, state)


def test_a_directory_that_is_older_than_the_checkpoint(scene: Scene) -> None:
    late, _ = steered(scene.old_files)
    assert late.version.version == 0
    late.running.restart(scene.live.running.stored())
    with pytest.raises(ControlError, match="control directory is older than the checkpoint") as no:
        late.batch(scene.left[0])
    assert "of the same time" in str(no.value.hint)


def test_a_checkpoint_that_is_older_than_the_directory(scene: Scene) -> None:
    scene.live.running.restart(scene.old_state)
    with pytest.raises(ControlError, match="the checkpoint is older than the control directory"):
        scene.live.batch(scene.left[0])


def test_a_checkpoint_of_another_directory(scene: Scene) -> None:
    other, _ = steered()
    assert other.control != scene.live.control
    other.running.restart(scene.live.running.stored())
    with pytest.raises(ControlError, match="belongs to another control directory"):
        other.batch(scene.left[0])


def test_a_checkpoint_whose_directory_is_not_given(scene: Scene) -> None:
    running = scene.live.running
    step = running.plan.tree.steps[0]
    running.runners[0].tables = [make(step.spec, step.routing)]
    with pytest.raises(ControlError, match="and none was given") as no:
        running.results(scene.left[0])
    assert "control=" in str(no.value.hint)


def test_what_belongs_together_goes_on(scene: Scene) -> None:
    scene.live.running.restart()
    scene.live.replace_loop()
    scene.live.batch(scene.left[0])
    assert not scene.live.loop.problem
    assert scene.live.version.joins[0].active(0) == (0, 1, 2)
