"""The query fuzzer: random SQL over streams against the same text in Spark."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import thetastream as ts
from tests.fuzz.oracle import RAISED_BY_DATA, SPARK_ERRORS, Setting, configured, first_line
from tests.fuzz.protocol import Budget, Failure, Progress, Summary
from tests.fuzz.refusals import explained, general
from tests.fuzz.sentences import FAMILIES, Sentence, Sentences
from tests.fuzz.tables import Table, random_tables
from tests.fuzz.trials import (
    BOTH_RAISE,
    BOTH_REFUSE,
    CRASHED,
    EARLY,
    EQUAL,
    LENIENT,
    OPEN,
    REFUSED,
    UNEXPLAINED,
    WRONG,
    Manner,
    Verdict,
    run_batches,
)
from thetastream import planner
from thetastream.api.analyst import SparkAnalyst
from thetastream.api.columns import column_specs
from thetastream.api.finish import finished
from thetastream.options import JoinOptions
from thetastream.runtime.dataflow import _result_type, derive
from thetastream.spec import NEWEST, JoinTree, Step, result_column

Rows = list[tuple[Any, ...]]
_PLAIN = {
    # Tables of a few rows: a second partition would only be another task.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass(frozen=True)
class QueryCase:
    """Tables, a session and a query: all that a failure needs."""

    tables: tuple[Table, ...]
    setting: Setting
    query: Sentence
    manner: Manner
    whole: bool = False

    def to_json(self) -> dict[str, Any]:
        """The case as JSON takes it."""
        return {
            "fuzzer": "queries",
            "tables": [table.to_json() for table in self.tables],
            "ansi": self.setting.ansi,
            "zone": self.setting.zone,
            "whole": self.whole,
            "query": self.query.to_json(),
            "batches": self.manner.batches,
            "units": self.manner.units,
            "order": self.manner.order,
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> QueryCase:
        """The case that `to_json` wrote."""
        units = None if raw["units"] is None else tuple(raw["units"])
        return cls(
            tuple(Table.from_json(table) for table in raw["tables"]),
            Setting(raw["ansi"], raw["zone"]),
            Sentence.from_json(raw["query"]),
            Manner(units=units, batches=raw["batches"], order=raw["order"]),
            raw["whole"],
        )

    def reproduction(self) -> str:
        """A program that shows the failure."""
        lines = [
            "import thetastream as ts",
            f"spark = ts.session(cores=2, config={self.setting.config!r})",
        ]
        for table in self.tables:
            lines.append(f'{table.name} = spark.sql(r"""{table.sql()}""")')
            lines.append(f"{table.name}.createOrReplaceTempView({table.name!r})")
        named = ", ".join(f"{table.name}={table.name}" for table in self.tables)
        lines += [
            f'ts.streams({named}).sql(r"""{self.query.text()}""").show()',
            f'spark.sql(r"""{self.query.spark()}""").show()',
            f"# in process: {self.manner!r}",
        ]
        return "\n".join(lines)


class QueryFuzzer:
    """Random queries, most of them with the units in this process, some wholly on Spark."""

    name = "queries"

    def __init__(
        self, spark: SparkSession, *, size: int = 25, whole: int = 1, shrink: bool = True
    ) -> None:
        """`size`: queries for each set of tables; `whole`: how many of them also run on Spark."""
        self._spark = spark
        self._size = size
        self._whole = whole
        self._shrink = shrink

    def run(self, seed: int, budget: Budget, progress: Progress) -> Summary:
        """Try until the budget is used up; the same seed tries the same."""
        summary = Summary(self.name, seed)
        seen: set[str] = set()
        scene = 0
        while budget.left(summary.done):
            rng = Random(f"queries {seed} {scene}")
            tables = random_tables(
                rng, count=4, rows=rng.choice((6, 9)), families=FAMILIES, odd=0.0, rare=0.2
            )
            setting = Setting(rng.random() < 0.6, rng.choice(("UTC", "Europe/Berlin")))
            sentences = Sentences(rng, tables)
            wholes = self._whole
            for _ in range(min(self._size, budget.left(summary.done))):
                case = QueryCase(tables, setting, sentences.query(), _manner(rng))
                verdict, reason = explained(self.judged(case))
                if verdict.kind == EQUAL and wholes and verdict.share:
                    wholes -= 1
                    summary.counts["also wholly on Spark"] += 1
                    case = replace(case, whole=True)
                    verdict, reason = explained(self.judged(case))
                self._count(summary, case, verdict, reason, seen)
                progress(1, f"{len(summary.failures)} failures")
                if not budget.left(summary.done):
                    break
            scene += 1
        return summary

    def replay(self, case: Mapping[str, Any]) -> str | None:
        """What is wrong with a kept case; None if nothing is any more."""
        verdict = explained(self.judged(QueryCase.from_json(dict(case))))[0]
        bad = verdict.failed or verdict.kind == OPEN
        return f"{verdict.kind}: {verdict.detail}" if bad else None

    def judged(self, case: QueryCase) -> Verdict:
        """What comes of one case."""
        spark = self._spark
        with configured(spark, {**case.setting.config, **_PLAIN}):
            frames = {table.name: table.frame(spark) for table in case.tables}
            for name, frame in frames.items():
                frame.createOrReplaceTempView(name)
            wanted = _rows(lambda: spark.sql(case.query.spark()))
            if case.whole:
                found = _rows(lambda: ts.streams(**frames).sql(case.query.text()))
            else:
                found = _rows(lambda: in_process(spark, frames, case.query.text(), case.manner))
        return compared(wanted, found)

    def _count(
        self, summary: Summary, case: QueryCase, verdict: Verdict, reason: str, seen: set[str]
    ) -> None:
        summary.done += 1
        summary.counts[verdict.kind] += 1
        if verdict.kind in (REFUSED, UNEXPLAINED, OPEN):
            summary.refusals[reason] += 1
        if verdict.kind == EQUAL:
            summary.counts["some rows" if verdict.share else "no rows"] += 1
        mark = f"{verdict.kind} {general(verdict.detail)}"
        if not verdict.failed or mark in seen:
            return
        seen.add(mark)
        small = self._small(case, verdict) if self._shrink else case
        again = self.judged(small)
        text = f"{small.reproduction()}\n# {again.detail}"
        summary.failures.append(
            Failure(f"{verdict.kind}: {small.query.text()}", text, small.to_json())
        )

    def _small(self, case: QueryCase, verdict: Verdict) -> QueryCase:
        """The case with parts of its query and rows of its tables left out."""

        def fails(candidate: QueryCase) -> bool:
            found = explained(self.judged(candidate))[0]
            return found.kind == verdict.kind and (
                verdict.kind == WRONG or general(found.detail) == general(verdict.detail)
            )

        for plain in (Manner(), Manner(units=case.manner.units)):
            if fails(candidate := replace(case, manner=plain)):
                case = candidate
                break
        changed = True
        while changed:
            changed = False
            for query in case.query.smaller():
                if fails(candidate := replace(case, query=query)):
                    case, changed = candidate, True
                    break
        read = {table for table, _ in case.query.relations}
        case = replace(case, tables=tuple(table for table in case.tables if table.name in read))
        case = self._narrow(case, fails)
        for number, table in enumerate(case.tables):
            place = len(table.rows) - 1
            while place >= 0:
                tables = list(case.tables)
                tables[number] = tables[number].without_row(place)
                if fails(candidate := replace(case, tables=tuple(tables))):
                    case = candidate
                place -= 1
        return case

    def _narrow(self, case: QueryCase, fails: Callable[[QueryCase], bool]) -> QueryCase:
        """The case without the columns that its query does not name."""
        text = f"{case.query.text()} {' '.join(case.query.times)}".casefold()
        tables = []
        for table in case.tables:
            for place in reversed(range(1, len(table.columns))):
                if table.columns[place].name.casefold() not in text:
                    table = table.without_column(place)
            tables.append(table)
        candidate = replace(case, tables=tuple(tables))
        return candidate if fails(candidate) else case


def _manner(rng: Random) -> Manner:
    return Manner(
        units=rng.choice((None, (2, 3), (1, 1))),
        batches=rng.choice((1, 2, 3)),
        order=rng.randrange(1, 1000),
    )


# -- the library's query in this process ----------------------------------------------------------


def in_process(
    spark: SparkSession, frames: Mapping[str, DataFrame], text: str, manner: Manner
) -> DataFrame:
    """The result of the query with the units of its join in this process."""
    specs = {name: column_specs(name, frame) for name, frame in frames.items()}
    query = planner.parse_query(text, specs, case_sensitive=False)
    chosen = {one.alias: frames[one.stream] for one in query.relations}
    analyst = SparkAnalyst(spark, chosen)
    stamps = {
        alias: next(name for name, kind in frame.dtypes if kind == "timestamp")
        for alias, frame in chosen.items()
    }
    units = manner.units if len(chosen) == 2 and manner.units is not None else 2
    plan = planner.plan_query(
        query,
        time=stamps if query.needs_time else {},
        options=JoinOptions(units=units),
        analyst=analyst,
        origin="",
        fixed_zone=analyst.fixed_zone,
        delay=0,
    )
    return finished(joined(spark, plan.join.tree, list(chosen.values()), manner), plan.finish)


def joined(
    spark: SparkSession, tree: JoinTree, inputs: Sequence[DataFrame], manner: Manner
) -> DataFrame:
    """The results of the joins, as `thetastream.runtime.dataflow.build` gives them."""
    if len(tree.steps) == 1:
        return _joined(spark, tree.steps[0], inputs, manner)
    found = inputs[tree.order[0]]
    for step, stream in zip(tree.steps, tree.order[1:], strict=True):
        found = _joined(spark, step, [found, inputs[stream]], manner)
    newest = [NEWEST] if tree.last.newest is not None else []
    return found.selectExpr(
        *(
            f"{name} AS {result_column(stream, number)}"
            for stream, names in enumerate(tree.output)
            for number, name in enumerate(names)
        ),
        *newest,
    )


def _joined(
    spark: SparkSession, step: Step, inputs: Sequence[DataFrame], manner: Manner
) -> DataFrame:
    spec = step.spec
    derived = [derive(stream, frame) for stream, frame in zip(spec.streams, inputs, strict=True)]
    results = run_batches(step, [_batch(frame) for frame in derived], manner)
    found = _frame(spark, results, _result_type(spec, derived))
    return found if spec.recheck_sql is None else found.where(spec.recheck_sql)


def _batch(frame: DataFrame) -> pa.RecordBatch:
    table = frame.toArrow().combine_chunks()
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _frame(spark: SparkSession, results: list[pa.RecordBatch], schema: StructType) -> DataFrame:
    if not results:
        return spark.createDataFrame([], schema)
    table = pa.Table.from_batches(results).select(schema.names)
    return spark.createDataFrame(table, schema)


# -- comparison -----------------------------------------------------------------------------------


def _rows(ask: Any) -> Rows | Exception:
    try:
        return [tuple(row) for row in ask().collect()]
    except Exception as error:
        return error


def compared(wanted: Rows | Exception, found: Rows | Exception) -> Verdict:
    """The verdict on the library's rows by Spark's."""
    if isinstance(found, ts.ThetastreamError) and not isinstance(found, ts.SumOverflowError):
        detail = f"{type(found).__name__}: {found.what}"
        return Verdict(BOTH_REFUSE if isinstance(wanted, Exception) else REFUSED, detail)
    if isinstance(found, Exception):
        detail = f"{type(found).__name__}: {first_line(found)}"
        data = isinstance(found, (*RAISED_BY_DATA, ts.SumOverflowError))
        if isinstance(wanted, Exception):
            return Verdict(BOTH_RAISE, detail)
        return Verdict(EARLY if data else CRASHED, detail)
    if isinstance(wanted, SPARK_ERRORS):
        return Verdict(LENIENT, first_line(wanted))
    if isinstance(wanted, Exception):
        raise wanted
    one, two = sorted(wanted, key=_order), sorted(found, key=_order)
    same = len(one) == len(two) and all(
        _close(a, b) for x, y in zip(one, two, strict=True) for a, b in zip(x, y, strict=True)
    )
    if same:
        return Verdict(EQUAL, share=float(len(one)))
    return Verdict(WRONG, f"Spark has {one[:4]}, thetastream {two[:4]}")


def _order(row: tuple[Any, ...]) -> tuple[list[str], list[str]]:
    """Floats come last: they may differ in their last digits."""
    exact = [repr(value) for value in row if not isinstance(value, float)]
    return exact, [f"{value + 0.0:.6g}" for value in row if isinstance(value, float)]


def _close(one: object, two: object) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        if math.isnan(one) or math.isnan(two):
            return math.isnan(one) and math.isnan(two)
        return math.isclose(one, two, rel_tol=1e-6, abs_tol=1e-9)
    return type(one) is type(two) and one == two
