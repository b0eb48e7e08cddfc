"""Hot keys whose manager is killed between any two of its writes; odd keys, ties of hashes, and
sketches of other sizes. Results are those of a plain loop over all pairs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from thetastream.options import JoinOptions
from thetastream.spec import SketchOptions
from thetastream.steering.edits import Heat, HotWish
from thetastream.steering.hotkeys import HotKeys
from thetastream.testing import Batch, InProcessJoin
from thetastream.testing.steered import MemoryFiles, Steering

NAN = float("nan")
WINDOW = 12
"""Seconds."""
SECOND = 1_000_000


class Mortal(MemoryFiles):
    """Files of a process that dies before one of its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.died = False

    def _live(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.died = True
                raise OSError("killed")

    def write(self, name: str, data: bytes | memoryview) -> None:
        self._live()
        super().write(name, data)

    def create(self, name: str, data: bytes | memoryview) -> bool:
        self._live()
        return super().create(name, data)

    def remove(self, name: str) -> None:
        self._live()
        super().remove(name)


class History:
    """A join of two streams on k, fed batch by batch, and all that it was given and gave."""

    def __init__(
        self, kind: pa.DataType, *, hashes: int | None = None, window: bool = True
    ) -> None:
        self.schema = pa.schema([("id", pa.int64()), ("k", kind), ("t", pa.timestamp("us"))])
        self.join = InProcessJoin(
            "r.k = s.k",
            [self.schema, self.schema],
            within=f"{WINDOW} seconds" if window else None,
            time="t" if window else None,
            options=JoinOptions(units=3, topology="hash", full_history=not window),
            hashes=hashes,
            groups=24,
        )
        self.files = Mortal()
        self.steering = Steering(
            self.join, max_units=4, files=self.files, sketch=SketchOptions(half_life=200)
        )
        self.window = window
        self.steps: Counter[str] = Counter()
        self.random = np.random.default_rng(4)
        self.number = 0
        self._given: tuple[list[Any], list[Any]] = ([], [])
        self._found: Counter[tuple[int, int]] = Counter()

    def batch(self, keys: list[Any], hot: Any, **how: Any) -> None:
        """Twenty rows of r, half of them with the hot key, and eight of s."""
        tables = []
        for side, count in enumerate((20, 8)):
            rows = []
            for n in range(count):
                many = n < count // (2 if side == 0 else 8)
                key = hot if many else keys[int(self.random.integers(len(keys)))]
                at = (4 * self.number + n % 4) * SECOND
                rows.append({"id": 100 * self.number + n, "k": key, "t": at})
            self._given[side].extend(rows)
            tables.append(pa.Table.from_pylist(rows, self.schema))
        mark = (4 * self.number - 4) * SECOND if self.window and self.number > 1 else None
        found = self.steering.batch(Batch(*tables, watermark=mark), **how)
        if found.num_rows:
            other = found.column(found.num_columns // 2).to_pylist()
            self._found.update(zip(found.column(0).to_pylist(), other, strict=True))
        self.steps.update(one.step.value for one in self.steering.version.joins[0].hot)
        self.number += 1

    def go_on_after_death(self) -> None:
        """Another process manages the directory."""
        self.files.left = None
        self.steering.replace_loop()
        self.steering.loop.recover()

    def check(self) -> None:
        """Every pair was found, once."""
        wanted: Counter[tuple[int, int]] = Counter()
        for one in self._given[0]:
            for other in self._given[1]:
                near = abs(one["t"] - other["t"]) <= WINDOW * SECOND or not self.window
                if near and _same(one["k"], other["k"]):
                    wanted[one["id"], other["id"]] += 1
        assert wanted
        assert self._found == wanted


def _same(one: Any, other: Any) -> bool:
    """Whether two keys are equal in Spark's eyes: NULL never is, NaN is equal to itself."""
    if one is None or other is None:
        return False
    return bool(one == other or (one != one and other != other))


@pytest.mark.parametrize("left", range(4))
def test_a_manager_that_is_killed_between_two_writes_loses_nothing(left: int) -> None:
    """In each of a key's steps, and when it is asked to be hot or to cool; the batch that runs then
    is computed twice, and routers are a version apart."""
    history = History(pa.int64())
    wishes = {1: Heat(keys=(HotWish(stream="r", key=7),)), 9: Heat(cool=((0, 7),))}
    deaths = 0
    for number in range(15):
        if number in wishes:
            history.steering.ask(wishes[number])
        # Not in every batch, or nothing would ever be published.
        dies = number % 3 == 1
        history.files.left = left if dies else None
        history.batch(list(range(12)), 7, mixed=True, crash=dies)
        deaths += history.files.died
        history.files.died = False
        if dies:
            history.go_on_after_death()
        elif number % 5 == 4:
            history.join.restart()
    assert deaths, "a kill that comes after all writes shows nothing"
    assert history.steps["cooling"]
    assert history.steps["hot"]
    history.check()


@pytest.mark.parametrize(
    ("kind", "keys", "hot"),
    [
        (pa.float64(), [0.0, -0.0, 1.5, NAN, None, float("inf")], NAN),
        (pa.float64(), [0.0, -0.0, 1.5, NAN, None], -0.0),
        (pa.float64(), [0.0, -0.0, 1.5, NAN, None], None),
        (pa.string(), ["", "a", "b", "ab", "ba", None], ""),
        (pa.string(), ["a", "b", "c", "d", "e"], "a"),
    ],
    ids=["NaN", "-0.0", "NULL", "empty text", "ties"],
)
def test_odd_keys_become_hot(
    kind: pa.DataType, keys: list[Any], hot: Any, request: pytest.FixtureRequest
) -> None:
    """With ties, all texts have one of two hashes: different keys are split as one."""
    history = History(kind, hashes=2 if "ties" in request.node.callspec.id else None)
    history.steering.manage(HotKeys(factor=0.5, patience=1))
    for number in range(9):
        history.batch(keys, hot if number < 5 else keys[2], mixed=bool(number % 2))
        if number % 3 == 1:
            # Sketches of another size begin anew, in the middle of it all.
            history.join.predict(SketchOptions(filter_keys=1 + number, sketch_bytes=256))
    assert history.steps["hot"]
    history.check()


def test_reports_that_are_always_lost_change_nothing() -> None:
    history = History(pa.int64(), window=False)
    history.steering.manage(HotKeys(patience=1))
    for number in range(6):
        history.batch(list(range(12)), 7, lose=lambda report: report.unit == number % 3)  # noqa: B023
    assert history.steering.version.version == 0
    history.batch(list(range(12)), 7)
    history.batch(list(range(12)), 7)
    assert history.steering.version.version > 0
    history.check()
