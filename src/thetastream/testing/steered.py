"""A plan in this process whose routing tables change while it runs, as they do beside Spark.

The loop that publishes, the control directory and the units are the real ones; what is played are
the file system, the routers, which may be one version apart, and reports that get lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from thetastream.engine.manifest import followed_version
from thetastream.engine.protocol import Report
from thetastream.engine.runner import Place, UnitState
from thetastream.spec import JoinTree, SketchOptions
from thetastream.steering.directory import Directory
from thetastream.steering.edits import Edit, Heat, HotWish, Move, Moves, Scale
from thetastream.steering.files import Files
from thetastream.steering.loop import Loop, Progress, reports_of
from thetastream.steering.policy import Policy
from thetastream.steering.version import Version
from thetastream.testing.inprocess import Batch, InProcess

BEGIN: Final = 1_000_000.0
"""The time at which a steered plan starts, in seconds since 1970."""


class MemoryFiles:
    """Files in a dictionary."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def write(self, name: str, data: bytes | memoryview) -> None:
        self.files[name] = bytes(data)

    def create(self, name: str, data: bytes | memoryview) -> bool:
        if name in self.files:
            return False
        self.files[name] = bytes(data)
        return True

    def names(self, folder: str) -> list[str]:
        found = (name for name in self.files if name.startswith(f"{folder}/"))
        return sorted(name.removeprefix(f"{folder}/") for name in found)

    def remove(self, name: str) -> None:
        self.files.pop(name, None)

    def rename(self, name: str, target: str) -> None:
        self.files[target] = self.files.pop(name)


class Steering:
    """Steers a plan that runs in this process."""

    def __init__(
        self,
        running: InProcess,
        *,
        max_units: int = 8,
        files: Files | None = None,
        cpu: Callable[[Report], float] | None = None,
        seconds: float = 10.0,
        sketch: SketchOptions | None = None,
    ) -> None:
        """`files`: those of the control directory, in memory by default; `cpu`: the seconds of CPU
        time that a report is to tell of, instead of those that were measured; `seconds`: from one
        batch to the next; `sketch`: the size of the units' predictors of hot keys."""
        if sketch is not None:
            running.predict(sketch)
        self.running = running
        self.tree: JoinTree = running.plan.tree
        self.files: Files = MemoryFiles() if files is None else files
        self._cpu = cpu
        self.seconds = seconds
        self.now = BEGIN
        self.batches = 0
        self.directory = Directory("memory", self.files)
        self.join = self.directory.open(self.tree, max_units, self.now)
        self.control = self.join.control
        self.loop = self._new_loop()
        self.used = self.version
        """The newest version that a router has used."""

    def _new_loop(self) -> Loop:
        return Loop(self.directory, self.join, clock=lambda: self.now)

    @property
    def version(self) -> Version:
        """The version in use."""
        return self.loop.tables.current()

    def ask(self, edit: Edit) -> str:
        """Ask for a change by hand."""
        return self.directory.ask(edit, by="hand", why=str(edit), at=self.now)

    def manage(self, *policies: Policy) -> None:
        """Let policies ask for changes."""
        self.loop.add(policies)

    def replace_loop(self) -> None:
        """Let the process of the loop die, and another one go on."""
        self.directory = Directory("memory", self.files)
        self.loop = self._new_loop()

    def batch(
        self,
        step: Batch,
        *,
        mixed: bool = False,
        pieces: int = 2,
        crash: bool = False,
        lose: Callable[[Report], bool] = lambda _: False,
    ) -> pa.Table:
        """The results of a batch; `mixed`: some routers still use the version before."""
        newest = self.version
        versions = [self.used, newest] if mixed and self.used.version < newest.version else [newest]
        for number, runner in enumerate(self.running.runners):
            runner.tables = [version.joins[number] for version in versions]
        if crash:
            self.running.attempt(step, pieces)
        before = [len(runner.reports) for runner in self.running.runners]
        found = self.running.results(step, pieces)
        followed = max(_newest(runner.state) for runner in self.running.runners)
        if followed > self.used.version:
            # What one router has seen, none overlooks in the next batch.
            self.used = newest
        self._hear(before, step, lose)
        return found

    def _hear(self, before: list[int], step: Batch, lose: Callable[[Report], bool]) -> None:
        texts = []
        for number, (runner, start) in enumerate(zip(self.running.runners, before, strict=True)):
            for report in runner.reports[start:]:
                if not lose(report):
                    told = asdict(report) | {"control": self.control, "join": number}
                    if self._cpu is not None:
                        told["busy"] = self._cpu(report)
                    texts.append(json.dumps(told))
        self.now += self.seconds
        self.batches += 1
        self.deliver(
            Progress(
                query="a query",
                batch=self.batches,
                at=self.now,
                rows_in=sum(table.num_rows for table in step.tables),
                seconds=1.0,
                reports=reports_of(texts).get(self.control, ()),
            )
        )

    def deliver(self, progress: Progress) -> None:
        """Hand a committed batch to the loop that publishes."""
        self.loop.committed(progress)

    def settle(self, step: Callable[[], Batch], most: int = 50) -> int:
        """Run batches until no change is under way; how many it took."""
        for number in range(most):
            if self.version.step.value == "settled" and not self.files.names("requests"):
                return number
            self.batch(step())
        raise AssertionError(f"{self.version.step} after {most} batches: {self.loop.problem}")


def _newest(state: Mapping[Place, UnitState]) -> int:
    """The newest version that a unit has gone by."""
    return max((followed_version(unit.manifest) for unit in state.values()), default=0)


def random_heat(
    random: np.random.Generator, version: Version, tree: JoinTree, codes: list[tuple[int, int]]
) -> Heat:
    """Some keys of these, given with the numbers of their joins, become hot, and others cool."""
    some = [codes[place] for place in random.permutation(len(codes))[: int(random.integers(1, 4))]]
    wishes = tuple(
        HotWish(
            join=join,
            stream=str(random.choice([stream.name for stream in tree.steps[join].spec.streams])),
            key=key,
            units=int(random.integers(2, 4)),
            prefer=tuple(random.permutation(version.max_units).tolist()),
        )
        for join, key in some
    )
    listed = [(join, one.key) for join, table in enumerate(version.joins) for one in table.hot]
    listed += [(join, one.key) for join, table in enumerate(version.joins) for one in table.values]
    cool = tuple(one for one in listed if one not in some and random.random() < 0.5)
    return Heat(keys=wishes, cool=cool)


def random_edit(random: np.random.Generator, version: Version, names: list[str]) -> Edit:
    """Some edit, not always one that can be met."""
    count = len(version.joins[0].stages[0][0].assigned)
    drain = str(random.choice(["auto", "auto", "move"]))
    if random.random() < 0.6:
        units = int(random.integers(1, version.max_units + 1))
        if random.random() < 0.3:
            return Scale(units={str(random.choice(names)): units}, drain=drain)
        return Scale(units=units, drain=drain)
    if random.random() < 0.4:
        cuts = sorted({int(cut) for cut in random.integers(0, count + 1, 6)})
        pieces = [range(a, b) for a, b in pairwise(cuts)]
        some = tuple(_move(random, version, names, piece) for piece in pieces)
        return Moves(moves=some, drain=drain)
    first = int(random.integers(0, count))
    groups = range(first, min(count, first + 1 + int(random.integers(0, count // 3))))
    return replace(_move(random, version, names, groups), drain=drain)


def _move(random: np.random.Generator, version: Version, names: list[str], groups: range) -> Move:
    stream = str(random.choice(names)) if random.random() < 0.5 else None
    return Move(groups=tuple(groups), to=int(random.integers(0, version.max_units)), stream=stream)
