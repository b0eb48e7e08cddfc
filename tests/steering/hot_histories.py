"""Random histories of joins with hot keys: keys become hot and cool at any batch, beside scales,
moves, crashes, restarts and lost reports."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tests.steering.histories import later
from thetastream.options import JoinOptions
from thetastream.spec import SketchOptions
from thetastream.steering.edits import Heat, edit_from_json, edit_to_json
from thetastream.steering.policy import Policy
from thetastream.testing import Batch, InProcessJoin, expected_rows, multiset, rows_of
from thetastream.testing.cases import SECOND, START
from thetastream.testing.inprocess import rows_in, stream_names
from thetastream.testing.steered import Steering, random_edit, random_heat
from thetastream.topology.hot import HotStep

MAX_UNITS = 5
SKETCH = SketchOptions(filter_keys=8, sketch_bytes=512, half_life=20)
CARRIED = ("id", "k", "n", "g", "x", "t")


@dataclass(frozen=True)
class Kind:
    """A join to play."""

    predicate: str
    streams: int = 2
    within: str | None = "12 seconds"
    options: dict[str, Any] = field(default_factory=dict)


KINDS = {
    "integers": Kind("r.k = s.k"),
    "integers and a range": Kind("r.k = s.k AND r.n < s.n"),
    "full history": Kind("r.k = s.k AND r.n < s.n", within=None),
    "strings": Kind("r.g = s.g"),
    "several columns": Kind("r.k = s.k AND r.g = s.g"),
    "floats": Kind("r.x = s.x"),
    "different units": Kind("r.k = s.k", options={"units": (2, 4)}),
    "extendible": Kind("r.k = s.k", options={"index": "extendible", "theta": "4 KB"}),
    "nested loops": Kind("r.k = s.k AND r.n < s.n", options={"index": "nested-loops"}),
    "pim": Kind("r.k = s.k", options={"index": "pim"}),
    "tree": Kind("r.k = s.k AND s.k = t.k", streams=3, options={"scheme": "tree"}),
}


@dataclass
class Played:
    """What came of a history."""

    steering: Steering
    steps: Counter[str]
    """How many versions had a key in each step."""
    changes: Counter[str]
    """The steps of scales and moves."""


def skewed(
    random: np.random.Generator, streams: int, number: int, rows: int, share: float = 0.6
) -> Batch:
    """A batch in which one key has such a share of some stream; another one every few batches."""
    tables = []
    hot = np.random.default_rng(number // 4)
    chosen = hot.integers(0, 3)
    for stream in range(streams):
        table = rows_of(int(random.integers(1 << 30)), rows, first=1000 * number, seconds=4.0)
        table = later(table.select(CARRIED), number * 4 * SECOND)
        if stream == chosen or chosen == 2:
            values = hot.integers(0, rows, 1)
            place = np.arange(rows)
            place[random.random(rows) < share] = values[0]
            for name in ("k", "g", "x"):
                at = table.schema.get_field_index(name)
                table = table.set_column(
                    at, table.schema.field(name), table.column(name).take(pa.array(place))
                )
        tables.append(table)
    mark = START + (number * 4 - 5) * SECOND
    return Batch(*tables, watermark=mark if number > 1 else None)


def play_hot(
    kind: Kind,
    seed: int,
    *,
    count: int = 18,
    rows: int = 12,
    policies: tuple[Policy, ...] = (),
    by_hand: bool = True,
    scales: bool = True,
) -> Played:
    """One history; it fails if a row is lost, doubled or wrong."""
    random = np.random.default_rng(seed)
    names = list(stream_names(kind.streams))
    time = dict.fromkeys(names, "t") if kind.within is not None else None
    given = {"units": int(random.integers(2, MAX_UNITS))} | kind.options
    script = [skewed(random, kind.streams, number, rows) for number in range(count)]
    join = InProcessJoin(
        kind.predicate,
        [table.schema for table in script[0].tables],
        within=kind.within,
        time=time,
        options=JoinOptions(**given, full_history=kind.within is None),
        chunk_rows=64,
    )
    steering = Steering(join, max_units=MAX_UNITS, sketch=SKETCH)
    steering.manage(*policies)
    found: list[Any] = []
    for number, step in enumerate(script):
        codes = codes_in(steering)
        if by_hand and codes and random.random() < 0.5:
            heat = random_heat(random, steering.version, steering.tree, codes)
            steering.ask(edit_from_json(edit_to_json(heat)))
        if scales and random.random() < 0.2 and number < count - 3:
            steering.ask(random_edit(random, steering.version, names))
        if random.random() < 0.1:
            steering.running.restart()
        if random.random() < 0.1:
            steering.replace_loop()
            steering.manage(*policies)
        dropped = float(random.random()) if random.random() < 0.15 else 0.0
        found += rows_in(
            steering.batch(
                step,
                mixed=bool(random.random() < 0.4),
                pieces=int(random.integers(1, 4)),
                crash=bool(random.random() < 0.15),
                lose=lambda _, share=dropped: bool(random.random() < share),  # type: ignore[misc]
            )
        )
        assert not steering.loop.problem, steering.loop.problem
    if policies:
        steering.replace_loop()
    cool_down(steering, script, random, found, forever=kind.within is None)
    expected = expected_rows(kind.predicate, script, within=kind.within, time=time)
    assert multiset(found) == multiset(expected), f"seed {seed}"
    steps: Counter[str] = Counter()
    changes: Counter[str] = Counter()
    for version in steering.loop.tables.history():
        changes[version.step.value] += 1
        steps.update({one.step.value for table in version.joins for one in table.hot})
    return Played(steering, steps, changes)


def cool_down(
    steering: Steering,
    script: list[Batch],
    random: np.random.Generator,
    found: list[Any],
    *,
    forever: bool,
) -> None:
    """Every change comes to its end. Then cool all keys: they leave the table, unless their tuples
    are kept for ever."""
    for _ in range(60):
        listed = [
            (join, one) for join, table in enumerate(steering.version.joins) for one in table.hot
        ]
        settled = steering.version.step.value == "settled" and not steering.files.names("requests")
        cold = not listed or (forever and all(one.step is HotStep.COOLING for _, one in listed))
        if cold and settled:
            return
        hot = tuple((join, one.key) for join, one in listed if one.step is HotStep.HOT)
        if hot:
            steering.ask(Heat(cool=hot))
        script.append(skewed(random, len(script[0].tables), len(script), 6))
        found += rows_in(steering.batch(script[-1]))
        assert not steering.loop.problem, steering.loop.problem
    raise AssertionError(f"still hot: {steering.version.joins[0].hot}")


def codes_in(steering: Steering) -> list[tuple[int, int]]:
    """The frequent keys that units have told of, with the numbers of their joins."""
    return sorted(
        {
            (join, one.key)
            for join, runner in enumerate(steering.running.runners)
            for report in runner.reports[-2 * MAX_UNITS :]
            for predicted in report.predicted
            for one in predicted.keys
        }
    )
