"""Random streaming histories on Spark against a model of the watermark and of the results.

Rows come in any order, late ones exactly at the edge of the watermark, before 1970 and far ahead,
in empty batches and from idle streams; queries restart with other options.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from tests.fuzz.history import SECOND, Condition, History, Question, Row, Run
from tests.fuzz.history_model import MILLISECOND, Model
from tests.fuzz.history_play import Outcome, check
from tests.fuzz.protocol import Budget, Failure, Progress, Summary
from thetastream.errors import ThetastreamError
from thetastream.testing import units_for

SHRINKS = 30
"""Smaller histories that are tried to explain a failure."""
KINDS = ("rows", "rows", "rows", "select", "distinct", "distinct", "window", "window", "running")
LENGTHS = (0, 1500, *(length * SECOND for length in (1, 1, 2, 2, 5, 5, 5, 9)))
DELAYS = (0, 1, 1500, SECOND, 2 * SECOND, 3 * SECOND + 1, 5 * SECOND, 9 * SECOND)
NOW = 1_700_000_000 * SECOND
BASES = (NOW, NOW, NOW, 0, 3 * SECOND)
OLD = -1_000_000_000 * SECOND
"""In 1938."""
AHEAD = 40_000_000_000 * SECOND
"""In the year 3237."""


class HistoryFuzzer:
    """Plays random histories."""

    name = "histories"

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def run(self, seed: int, budget: Budget, progress: Progress) -> Summary:
        """Play histories until the budget is used up."""
        summary = Summary(self.name, seed)
        while budget.left(summary.done):
            history = generate(random.Random(f"{seed}-{summary.done}"))
            outcome = self._outcome(history)
            summary.done += 1
            summary.counts[history.question.kind] += 1
            summary.counts["with results"] += bool(outcome.results)
            summary.counts["with late rows"] += bool(outcome.late)
            summary.counts["batches"] += outcome.batches
            if outcome.difference is not None:
                summary.failures.append(self._failure(history, outcome.difference))
            progress(1, f"{len(summary.failures)} failures")
        return summary

    def replay(self, case: Mapping[str, Any]) -> str | None:
        """What is wrong with a kept case; None if nothing is any more."""
        return self._outcome(History.from_case(case)).difference

    def _outcome(self, history: History) -> Outcome:
        try:
            return check(self._spark, history)
        except ThetastreamError as error:
            return Outcome(f"refused: {error}")
        except Exception as error:
            return Outcome(f"{type(error).__name__}: {str(error)[:2000]}")

    def _failure(self, history: History, difference: str) -> Failure:
        small, why = self._smaller(history, difference)
        case = small.to_case()
        text = json.dumps(case)
        return Failure(
            title=why.splitlines()[0],
            reproduction=f"HistoryFuzzer(spark).replay(json.loads({text!r}))",
            case=case,
        )

    def _smaller(self, history: History, difference: str) -> tuple[History, str]:
        """A history with fewer rows that is wrong, too."""
        tries = 0
        found, why = history, difference
        progress = True
        while progress and tries < SHRINKS:
            progress = False
            for other in simpler(found):
                tries += 1
                wrong = self._outcome(other).difference
                if wrong is not None:
                    found, why, progress = other, wrong, True
                    break
                if tries >= SHRINKS:
                    break
        return found, why


def simpler(history: History) -> Iterator[History]:
    """The history without some of its rows: whole files first, then halves of the rows."""
    ids = [row.id for row in history.rows()]
    for parts in (2, 4, 8):
        size = -(-len(ids) // parts)
        if size >= 1 and len(ids) > 1:
            for start in range(0, len(ids), size):
                yield without(history, set(ids[start : start + size]))


def without(history: History, gone: set[int]) -> History:
    """The history without those rows; their files stay, so that the batches do."""
    runs = tuple(
        replace(
            run,
            files={
                name: tuple(tuple(row for row in rows if row.id not in gone) for rows in files)
                for name, files in run.files.items()
            },
        )
        for run in history.runs
    )
    return replace(history, runs=runs)


# -- generating -----------------------------------------------------------------------------------


def generate(rng: random.Random) -> History:
    """A random history."""
    names = "rstu"[: rng.choices((2, 3, 4), (6, 3, 1))[0]]
    question = _question(rng, tuple(names))
    options = _options(rng, question, len(names))
    layout = _layout(rng, names)
    files = _files(rng, question, names, layout)
    runs = []
    for number, mine in enumerate(files):
        runs.append(Run(mine, _changed(rng, options, number, question, last=len(files) - 1)))
    return History(question, tuple(runs))


def _question(rng: random.Random, names: tuple[str, ...]) -> Question:
    kind = rng.choice(KINDS)
    conditions = _conditions(rng, names)
    within: tuple[int, int] | None = None
    time = names
    timed = kind in ("distinct", "window")
    partly = len(names) > 2 and not timed and rng.random() < 0.4
    if partly:
        one, two = rng.sample(names, 2)
        length = rng.choice(LENGTHS)
        conditions.append(
            Condition("near", (one, two), -rng.choice(LENGTHS), length)
            if rng.random() < 0.7
            else Condition("after", (one, two), -length)
        )
        time = tuple(name for name in names if name in (one, two) or rng.random() < 0.6)
    elif len(names) > 2 or timed or rng.random() < 0.85:
        length = rng.choice(LENGTHS)
        within = (length, length)
        if len(names) == 2 and rng.random() < 0.3:
            within = (length, rng.choice(LENGTHS))
            if within[0] == within[1]:
                within = (length, length + 1)
    windowed = within is not None or partly
    delays = tuple(rng.choice(DELAYS) if windowed and rng.random() < 0.2 else None for _ in names)
    size = rng.choice((1000, SECOND, 3 * SECOND))
    windows = rng.choice(
        ((size, size, 0), (2 * size, size, 0), (size, size, size // 2 // 1000 * 1000))
    )
    modes = {"running": ("update",), "window": ("append", "append", "update")}
    return Question(
        kind=kind,
        conditions=tuple(conditions),
        within=within,
        time=time if windowed else (),
        delays=delays,
        delay=rng.choice(DELAYS) if windowed else None,
        mode=rng.choice(modes.get(kind, ("append",))),
        windows=windows,
        policy="max" if rng.random() < 0.15 else "min",
        partitions=1 if rng.random() < 0.7 else 2,
    )


def _conditions(rng: random.Random, names: Sequence[str]) -> list[Condition]:
    """A predicate that compares every stream with an earlier one."""
    found = []
    for place, name in enumerate(names[1:], start=1):
        other = rng.choice(names[:place])
        pair = (other, name) if rng.random() < 0.7 else (name, other)
        kinds = rng.choices(
            ("equal", "band", "less", "unequal"), (5, 3, 2, 2), k=1 + (rng.random() < 0.2)
        )
        found += [
            Condition(kind, pair, high=rng.choice((0, 1, 1))) for kind in dict.fromkeys(kinds)
        ]
    if rng.random() < 0.3:
        found.append(Condition("filter", (rng.choice(names),), low=rng.choice((0, 1))))
    return found


def _options(rng: random.Random, question: Question, count: int) -> dict[str, Any]:
    kinds = {one.kind for one in question.conditions}
    options: dict[str, Any] = {"units": rng.choice((1, 2, 3))}
    if count == 2:
        fitting = ["auto", "random", "matrix"]
        if "equal" in kinds:
            fitting += ["hash", "contrand"]
        elif "band" in kinds:
            fitting += ["band"]
        fitting += ["split", "broadcast", "multi-chained"]
        options["topology"] = rng.choice(fitting)
        if rng.random() < 0.3:
            options["units"] = units_for(
                options["topology"], (rng.choice((1, 2)), rng.choice((1, 3)))
            )
    else:
        options["topology"] = rng.choice(("auto", "random"))
        options["full_history"] = True
        if count == 3:
            options["scheme"] = rng.choice(("auto", "auto", "tree"))
            options["intermediate"] = rng.choice(("packed", "pairs"))
    if question.kind in ("distinct", "window", "running"):
        options["aggregation"] = rng.choice(("auto", "auto", "enumerate"))
    if question.kind == "running" and options["aggregation"] == "auto" and rng.random() < 0.5:
        options["update_batches"] = rng.choice((2, 3))
    return options


def _changed(
    rng: random.Random, options: dict[str, Any], number: int, question: Question, last: int
) -> dict[str, Any]:
    """The options of a run; what may change between runs does."""
    mine = dict(options)
    mine["chunk_rows"] = rng.choice((1, 3, 262_144))
    mine["cache_bytes"] = rng.choice((0, 1000, 1 << 30))
    if rng.random() < 0.3:
        mine["archive_period"] = rng.choice(("1 millisecond", "1 second"))
    if number and options["topology"] == "random" and isinstance(options["units"], int):
        # Units may be added where every unit is probed.
        options["units"] = mine["units"] = options["units"] + rng.choice((0, 1))
    if number == last:
        # What was held back comes out.
        mine.pop("update_batches", None)
    return mine


def _layout(rng: random.Random, names: Sequence[str]) -> list[dict[str, int]]:
    """For each run how many files of each stream there are."""
    runs = rng.choice((1, 1, 2, 2, 3))
    most = 3 if runs == 1 else 2
    found = []
    for number in range(runs):
        count = {name: rng.randint(1, most) for name in names}
        if number and rng.random() < 0.4:
            # A stream that is idle. Not all of them are, so that the run has a batch.
            count[rng.choice(names[1:])] = 0
        found.append(count)
    return found


def _files(
    rng: random.Random, question: Question, names: Sequence[str], layout: list[dict[str, int]]
) -> list[dict[str, tuple[tuple[Row, ...], ...]]]:
    """Rows of each file, with times that are chosen where the watermark will be."""
    maker = _Maker(rng, question, names)
    runs: list[dict[str, tuple[tuple[Row, ...], ...]]] = []
    for counts in layout:
        files: dict[str, list[tuple[Row, ...]]] = {name: [] for name in names}
        maker.model.watermark.restart()
        for batch in range(max(counts.values())):
            brought = {name: maker.rows(name) for name in names if batch < counts[name]}
            for name, rows in brought.items():
                files[name].append(rows)
            maker.seen(brought)
        runs.append({name: tuple(rows) for name, rows in files.items()})
    return runs


class _Maker:
    """Makes rows, and follows the watermark to know where its edge is."""

    def __init__(self, rng: random.Random, question: Question, names: Sequence[str]) -> None:
        self.rng = rng
        self.question = question
        blank = Run(dict.fromkeys(names, ()), {})
        self.model = Model(History(question, (blank,)), lambda *_: True)
        timed = question.kind in ("distinct", "window")
        self.base = rng.choice(BASES if timed else (*BASES, OLD))
        self.ahead = rng.random() < 0.1
        self.few = rng.choice((1, 2, 2, 3))
        self.most = {2: 6, 3: 4, 4: 3}[len(names)]
        self.times: list[int] = []
        self.count = 0

    def rows(self, name: str) -> tuple[Row, ...]:
        rng = self.rng
        count = 0 if rng.random() < 0.12 else rng.randint(1, self.most)
        made = []
        for _ in range(count):
            self.count += 1
            key = None if rng.random() < 0.06 else rng.randrange(self.few)
            number = None if rng.random() < 0.06 else rng.randrange(3)
            made.append(Row(self.count, key, number, self._time()))
        return tuple(made)

    def _time(self) -> int | None:
        rng = self.rng
        draw = rng.random()
        mark = self.model.watermark.now * MILLISECOND
        if draw < 0.04:
            return None
        if draw < 0.24 and (mark or self.base <= 3 * SECOND):
            made = mark + rng.choice((-MILLISECOND, -1, 0, 0, 0, 1, 999, MILLISECOND))
        elif draw < 0.55 and self.times:
            edge = rng.choice((*(self.question.within or (SECOND,)), SECOND, 0, 0))
            made = rng.choice(self.times) + rng.choice((-1, 1)) * edge + rng.choice((-1, 0, 0, 1))
        elif draw < 0.59 and self.ahead:
            made = AHEAD
        elif draw < 0.58:
            made = self.base - rng.choice((100, 5_000_000_000)) * SECOND
        else:
            made = self.base + rng.choice((rng.randrange(4) * SECOND, rng.randrange(4 * SECOND)))
        self.times.append(made)
        return made

    def seen(self, brought: Mapping[str, Sequence[Row]]) -> None:
        for name, rows in brought.items():
            self.model.watermark.see(name, [row.t for row in rows])
        self.model.watermark.move()
        self.base += self.rng.choice((0, SECOND, 2 * SECOND, 6 * SECOND))
