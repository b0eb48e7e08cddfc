"""Processes that publish for one control directory and are paused, fail, or have wrong clocks.

Each process runs in a thread of its own, but only one thread runs at a time: an operation on a file
may pause its process until the history resumes it, many batches later. So histories depend on
nothing but their seed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import Queue
from typing import Any

import numpy as np
import pyarrow as pa

from tests.steering.histories import GROUPS, KINDS, MAX_UNITS, Kind, batches
from thetastream.errors import ControlError
from thetastream.options import JoinOptions
from thetastream.spec import JoinTree
from thetastream.steering.directory import Directory
from thetastream.steering.files import Files
from thetastream.steering.loop import Loop, Progress
from thetastream.testing import Batch, InProcessJoin, expected_rows, multiset
from thetastream.testing.inprocess import rows_in, stream_names
from thetastream.testing.steered import MemoryFiles, Steering, random_edit


class FaultyFiles:
    """The shared files as one process sees them: an operation may wait, or fail with or without
    effect."""

    def __init__(self, files: Files, before: Callable[[], Callable[[], None]]) -> None:
        self._files = files
        self._before = before

    def _faulty(self, operation: Callable[[], Any]) -> Any:
        after = self._before()
        result = operation()
        after()
        return result

    def read(self, name: str) -> bytes | None:
        data: bytes | None = self._faulty(lambda: self._files.read(name))
        return data

    def write(self, name: str, data: bytes | memoryview) -> None:
        self._faulty(lambda: self._files.write(name, data))

    def create(self, name: str, data: bytes | memoryview) -> bool:
        return bool(self._faulty(lambda: self._files.create(name, data)))

    def names(self, folder: str) -> list[str]:
        names: list[str] = self._faulty(lambda: self._files.names(folder))
        return names

    def remove(self, name: str) -> None:
        self._faulty(lambda: self._files.remove(name))

    def rename(self, name: str, target: str) -> None:
        self._faulty(lambda: self._files.rename(name, target))


class Process:
    """A process that publishes, with a clock of its own."""

    def __init__(self, crowd: Crowd, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._crowd = crowd
        self._waiting: deque[Callable[[], None]] = deque()
        self._events: Queue[BaseException | str] = Queue()
        self._resumed: Queue[None] = Queue()
        self.paused = False
        self.calm = False
        """Whether nothing happens to it any more."""
        self._files = FaultyFiles(crowd.files, self._fault)
        directory = Directory("memory", self._files)
        self._loop = Loop(directory, crowd.join, clock=self._clock)

    def _clock(self) -> float:
        return self._crowd.now + float(self._random.choice([-7200.0, 0.0, 0.0, 7200.0]))

    def _fault(self) -> Callable[[], None]:
        """Called before each operation on files; what it returns is called after it."""
        if not self.calm:
            chance = self._random.random()
            if chance < 0.03:
                self._events.put("paused")
                self._resumed.get()
            elif chance < 0.05:
                raise OSError("failed before it was done")
            elif chance < 0.07:
                return self._fail_late
        return lambda: None

    def _fail_late(self) -> None:
        raise OSError("failed after it was done")

    def run(self, call: Callable[[], None]) -> None:
        """Let the process make a call, as soon as those before it have ended."""
        self._waiting.append(call)
        if not self.paused:
            self._go_on()

    def resume(self) -> None:
        """End a pause, and make the calls that have waited."""
        if self.paused:
            self.paused = False
            self._resumed.put(None)
            if self._await():
                self._go_on()

    def _go_on(self) -> None:
        while self._waiting:
            call = self._waiting.popleft()
            threading.Thread(target=self._call, args=(call,), daemon=True).start()
            if not self._await():
                return

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            self._events.put(error)
        else:
            self._events.put("done")

    def _await(self) -> bool:
        """Wait until the call has ended or is paused; whether it has ended."""
        event = self._events.get(timeout=60)
        if isinstance(event, BaseException):
            raise event
        self.paused = event == "paused"
        return not self.paused

    def committed(self, progress: Progress) -> None:
        """Report a committed batch to the process, as Spark does: in order, one at a time."""
        self.run(lambda: self._loop.committed(progress))

    def build(self, tree: JoinTree) -> None:
        """Build a join with the same directory, and never run it."""

        def call() -> None:
            try:
                Directory("memory", self._files).open(tree, MAX_UNITS, self._clock())
            except (ControlError, OSError):
                return

        self.run(call)


class Crowd(Steering):
    """A plan in this process for whose control directory several processes publish."""

    def begin(self, seeds: list[int]) -> None:
        """Start the processes."""
        self.processes = [Process(self, seed) for seed in seeds]
        self.random = np.random.default_rng(seeds)

    def batch(self, step: Batch, **how: Any) -> pa.Table:
        """Run a batch whose units find exported tuples only where the directory has them."""
        runners = self.running.runners
        for runner in runners:
            names = self.files.names("exports")
            runner.files = {name: self.directory.exported(name) for name in names}
        results = super().batch(step, **how)
        for runner in runners:
            for name, data in runner.files.items():
                self.directory.export(name, memoryview(data))
        return results

    def deliver(self, progress: Progress) -> None:
        for process in self.processes:
            if self.random.random() < 0.8:
                process.committed(progress)

    def calm_down(self) -> None:
        """Let every process end what it is doing, and nothing more happen to it."""
        for process in self.processes:
            process.calm = True
            process.resume()
            assert not process.paused


def play_crowd(kind: Kind, seed: int, *, count: int = 18, rows: int = 12) -> Crowd:
    """One history; it fails if a batch fails, or a row is lost, doubled or wrong."""
    random = np.random.default_rng(seed)
    names = list(stream_names(kind.streams))
    time = dict.fromkeys(names, "t") if kind.within is not None else None
    script = batches(random, kind.streams, count, rows)
    schemas = [table.schema for table in script[0].tables]
    given = dict(kind.options or {}) | {"units": int(random.integers(2, MAX_UNITS))}
    options = JoinOptions(**given, full_history=kind.within is None)

    def join(predicate: str) -> InProcessJoin:
        return InProcessJoin(
            predicate,
            schemas,
            within=kind.within,
            time=time,
            options=options,
            chunk_rows=64,
            groups=GROUPS,
        )

    crowd = Crowd(join(kind.predicate), max_units=MAX_UNITS, files=MemoryFiles())
    crowd.begin([seed * 10 + number for number in range(3)])
    other = join(f"{kind.predicate} AND r.n < s.n + 3").plan.tree
    results: list[Any] = []
    for number, step in enumerate(script):
        if random.random() < 0.35 and number < len(script) - 3:
            crowd.ask(random_edit(random, crowd.version, names))
        if random.random() < 0.1:
            crowd.processes[int(random.integers(3))].build(other)
        if random.random() < 0.1:
            crowd.running.restart()
        results += rows_in(crowd.batch(step, crash=bool(random.random() < 0.1)))
        for process in crowd.processes:
            if random.random() < 0.25:
                process.resume()
    crowd.calm_down()
    for _ in range(80):
        if crowd.version.step.value == "settled" and not crowd.files.names("requests"):
            break
        script += batches(random, kind.streams, 1, 8, first=len(script))
        results += rows_in(crowd.batch(script[-1]))
    else:
        raise AssertionError(f"seed {seed}: still in {crowd.version.step}")
    expected = expected_rows(kind.predicate, script, within=kind.within, time=time)
    assert multiset(results) == multiset(expected), f"seed {seed}"
    return crowd


PLAYED = [KINDS[name] for name in ("hash", "hash, full history", "contrand", "random", "symmetric")]
