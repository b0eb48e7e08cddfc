"""The predicate fuzzer: random joins of two tables against Spark's own evaluation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as ts
from tests.fuzz.conditions import Conditions
from tests.fuzz.expressions import Node
from tests.fuzz.oracle import SPARK_ERRORS, Setting, configured, first_line
from tests.fuzz.protocol import Budget, Failure, Progress, Summary
from tests.fuzz.refusals import explained, general
from tests.fuzz.shrink import Case, shrunk
from tests.fuzz.tables import Table, random_tables
from tests.fuzz.trials import (
    BOTH_RAISE,
    CRASHED,
    EQUAL,
    OPEN,
    REFUSED,
    UNEXPLAINED,
    WRONG,
    Manner,
    Scene,
    Trial,
    Verdict,
)

ZONES = ("UTC", "UTC", "Europe/Berlin", "America/Sao_Paulo", "+05:30")
_TOPOLOGIES = (
    *("auto", "auto", "hash", "contrand", "random", "band", "matrix"),
    *("split", "broadcast", "multi-chained", "stream-aware", "stream-aware"),
)
_WITHINS = (("10 seconds", "10 seconds"), ("0 seconds", "1 day"), ("2 days", "1 hour"))


class PredicateFuzzer:
    """Random predicates over random tables, most of them in process, some as whole joins."""

    name = "predicates"

    def __init__(
        self,
        spark: SparkSession,
        *,
        size: int = 150,
        whole: int = 1,
        shrink: bool = True,
        most: int = 12,
        families: Sequence[str] = (),
    ) -> None:
        """`size`: predicates for each pair of tables; `whole`: how many of them also run on
        Spark; `shrink`: whether failures are made small; `most`: how many of them are shown;
        `families`: the types of the tables' columns, if they are not to be random."""
        self._spark = spark
        self._size = size
        self._whole = whole
        self._shrink = shrink
        self._most = most
        self._families = families

    def run(self, seed: int, budget: Budget, progress: Progress) -> Summary:
        """Try until the budget is used up; the same seed tries the same."""
        summary = Summary(self.name, seed)
        seen: set[str] = set()
        scene = 0
        while size := min(self._size, budget.left(summary.done)):
            rng = Random(f"{seed} {scene}")
            self._scene(rng, size, summary, seen)
            progress(size, f"{len(summary.failures)} failures")
            scene += 1
        shares = f"{summary.share('some pairs, not all'):.0%} of all have some results, not all"
        summary.notes.append(shares)
        return summary

    def replay(self, case: Mapping[str, Any]) -> str | None:
        """What is wrong with a kept case; None if nothing is any more."""
        verdict = self.judged(Case.from_json(dict(case)))
        bad = verdict.failed or verdict.kind == OPEN
        return f"{verdict.kind}: {verdict.detail}" if bad else None

    def judged(self, case: Case) -> Verdict:
        """What comes of one case."""
        return self._judged(case, [case.trial])[0]

    def _judged(self, case: Case, trials: Sequence[Trial]) -> list[Verdict]:
        scene = Scene(self._spark, case.tables, case.setting)
        found = [explained(verdict)[0] for verdict in scene.judge(trials)]
        if not case.whole:
            return found
        # A whole join takes seconds, so that only the first few are tried.
        few = zip(found[:8], trials, strict=False)
        return [v if v.failed else whole_join(scene, trial) for v, trial in few] + found[8:]

    # -- one scene ------------------------------------------------------------------------------

    def _scene(self, rng: Random, size: int, summary: Summary, seen: set[str]) -> None:
        one, two = random_tables(rng, rows=rng.choice((12, 12, 5)), families=self._families)
        setting = Setting(ansi=rng.random() < 0.6, zone=rng.choice(ZONES))
        scene = Scene(self._spark, (one, two), setting)
        conditions = Conditions(rng, (one, two), depth=rng.choice((1, 1, 2)))
        trees = [conditions.predicate() for _ in range(size)]
        trials = [self._trial(rng, tree, (one, two)) for tree in trees]
        verdicts = [explained(verdict) for verdict in scene.judge(trials)]
        for tree, trial, (verdict, reason) in zip(trees, trials, verdicts, strict=True):
            count(summary, verdict, reason)
            if verdict.failed:
                self._keep(Case((one, two), setting, trial), tree, verdict, summary, seen)
        good = [n for n, (verdict, _) in enumerate(verdicts) if verdict.kind == EQUAL]
        rng.shuffle(good)
        # Empty results say less of how values travel.
        good.sort(key=lambda n: verdicts[n][0].share == 0)
        for number in good[: self._whole]:
            verdict = whole_join(scene, trials[number])
            summary.counts["also as a whole join on Spark"] += 1
            if verdict.failed:
                case = Case((one, two), setting, trials[number], whole=True)
                self._keep(case, trees[number], verdict, summary, seen)

    def _trial(self, rng: Random, tree: Node, tables: Sequence[Table]) -> Trial:
        stamps = [table.of("timestamp") for table in tables]
        times = within = None
        if all(stamps) and rng.random() < 0.15:
            times = (rng.choice(stamps[0]).name, rng.choice(stamps[1]).name)
            if rng.random() < 0.7:
                within = rng.choice(_WITHINS)
        return Trial(
            predicate=tree.sql(),
            within=within,
            times=times,
            manner=Manner(
                topology=rng.choice(_TOPOLOGIES),
                units=rng.choice((None, (1, 1), (2, 3), (4, 1), (3, 5))),
                chunk_rows=rng.choice((1, 3, 1 << 16)),
                batches=rng.choice((1, 2, 3)),
                pieces=rng.choice((1, 2)),
                restarts=rng.random() < 0.5,
                hashes=rng.choice((None, 1, 2)),
                order=rng.randrange(1, 1000),
            ),
        )

    def _keep(
        self, case: Case, tree: Node, verdict: Verdict, summary: Summary, seen: set[str]
    ) -> None:
        """Shrink a failure, unless one of the same kind was kept already."""
        mark = f"{verdict.kind} {general(verdict.detail)}"
        if (verdict.kind != WRONG and mark in seen) or len(summary.failures) >= self._most:
            return
        seen.add(mark)

        def fails(candidate: Case, trials: Sequence[Trial]) -> list[bool]:
            try:
                found = self._judged(candidate, trials)
            except SPARK_ERRORS:  # a scene that cannot be set up shows nothing
                return [False] * len(trials)
            return [
                one.kind == verdict.kind
                and (verdict.kind == WRONG or general(one.detail) == general(verdict.detail))
                for one in found
            ]

        small = shrunk(case, tree, fails, verdict.pair) if self._shrink else case
        again = self.judged(small)
        shape = f"{verdict.kind} {outline(small.trial.predicate)}"
        if shape not in seen:
            seen.add(shape)
            text = f"{small.reproduction()}\n# {again.detail}"
            title = f"{verdict.kind}: {small.trial.predicate}"
            summary.failures.append(Failure(title, text, small.to_json()))


def count(summary: Summary, verdict: Verdict, reason: str) -> None:
    """Add a verdict to the summary."""
    summary.done += 1
    summary.counts[verdict.kind] += 1
    if verdict.kind in (REFUSED, UNEXPLAINED, OPEN):
        summary.refusals[reason] += 1
    if verdict.kind == EQUAL:
        shares = {0.0: "no pair", 1.0: "all pairs"}
        summary.counts[shares.get(verdict.share, "some pairs, not all")] += 1


def outline(predicate: str) -> str:
    """The predicate without its names and numbers: failures that share it are one."""
    return re.sub(r"(`[^`]+`|\w+)(\.(`[^`]+`|\w+))+|\b[\d.]+", "_", predicate)


def whole_join(scene: Scene, trial: Trial) -> Verdict:
    """The verdict on the trial as a user would run it, against Spark's own batch join."""
    names = [table.name for table in scene.tables]
    frames = dict(zip(names, scene.frames, strict=True))
    with configured(scene.spark, {**scene.setting.config, "spark.sql.shuffle.partitions": "2"}):
        try:
            first, second = (frames[name].alias(name) for name in names)
            wanted = rows_of(first.join(second, F.expr(scene.condition(trial))))
        except SPARK_ERRORS:
            return Verdict(BOTH_RAISE)
        options = trial.manner.options()
        times = None if trial.times is None else dict(zip(names, trial.times, strict=True))
        try:
            joined = ts.streams(**frames).join(
                trial.predicate, within=trial.within, time=times, options=options
            )
            found = rows_of(joined)
        except ts.ThetastreamError as error:
            if "does not fit" in error.what:
                manner = replace(trial.manner, topology="auto")
                return whole_join(scene, replace(trial, manner=manner))
            if "two columns of the result" in error.what:
                return Verdict(REFUSED, error.what)
            return Verdict(UNEXPLAINED, f"{type(error).__name__}: {error.what}")
        except Exception as error:
            return Verdict(CRASHED, f"{type(error).__name__}: {first_line(error)}")
    if found == wanted:
        return Verdict(EQUAL)
    detail = f"missing {list((wanted - found).elements())[:2]},"
    return Verdict(WRONG, f"{detail} too much {list((found - wanted).elements())[:2]}")


def rows_of(frame: DataFrame) -> Counter[tuple[str | None, ...]]:
    """The rows as a bag of texts, in which NaN equals NaN and -0.0 is not 0.0.

    Spark writes them, because Python has no years before 1.
    """
    named = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    texts = [
        f"hex({name})" if kind == "binary" else f"CAST({name} AS STRING)"
        for name, kind in named.dtypes
    ]
    return Counter(tuple(row) for row in named.selectExpr(*texts).collect())
