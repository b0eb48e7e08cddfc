"""A history on Spark, from files to what comes out of each batch, compared with the model."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import thetastream as ts
from tests.conftest import write_batches
from tests.fuzz.history import SCHEMA, History, Question, Row, Run
from tests.fuzz.history_model import Expected, Model
from thetastream.planner import Plan
from thetastream.spec import StreamSpec
from thetastream.testing.duck import query as duck_query
from thetastream.testing.duck import quoted, to_duckdb

POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
PARTITIONS = "spark.sql.shuffle.partitions"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMED = "`t` IS NOT NULL"


@dataclass(frozen=True)
class Played:
    """One batch as Spark ran it."""

    number: int
    watermark: int | None
    """In milliseconds; None where the query has no watermark."""
    files: Mapping[str, range]
    """Which of its files each stream brought."""
    rows: Counter[tuple[Any, ...]]
    late: int


@dataclass
class Outcome:
    """What became of a history."""

    difference: str | None
    batches: int = 0
    results: int = 0
    late: int = 0


def check(spark: SparkSession, history: History) -> Outcome:
    """Play a history; the difference between Spark and the model, if there is one."""
    folder = Path(tempfile.mkdtemp(prefix="history-"))
    try:
        with _settings(spark, history.question):
            return _Play(spark, history, folder).outcome()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _settings(spark: SparkSession, question: Question) -> Iterator[None]:
    wanted = {POLICY: question.policy, PARTITIONS: str(question.partitions)}
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


class _Play:
    def __init__(self, spark: SparkSession, history: History, folder: Path) -> None:
        self.spark = spark
        self.history = history
        self.folder = folder
        self.written = dict.fromkeys(history.names, 0)
        self.read = dict.fromkeys(history.names, 0)
        self.model: Model | None = None
        self.latest: dict[Any, tuple[Any, ...]] = {}

    def outcome(self) -> Outcome:
        found = Outcome(None)
        for number, run in enumerate(self.history.runs):
            joined = self._built(run)
            assert self.model is not None
            self.model.watermark.restart()
            for batch in list(self._played(joined)):
                before = self.model.watermark.now
                expected = self.model.batch(self._arrived(batch))
                found.batches += 1
                found.results += sum(batch.rows.values())
                found.late += batch.late
                wrong = self._wrong(batch, expected, before, run)
                if wrong is not None:
                    found.difference = f"run {number}, batch {batch.number}: {wrong}"
                    return found
            found.difference = self._unread(number)
            if found.difference is not None:
                return found
        if self.history.question.kind == "running":
            assert self.model is not None
            given = Counter(self.latest.values())
            if given != self.model.latest():
                found.difference = f"in the end: {_compared(given, self.model.latest())}"
        return found

    def _unread(self, number: int) -> str | None:
        """A run must have read all files, or the comparison says nothing of the rest."""
        left = [name for name, count in self.written.items() if self.read[name] != count]
        return f"run {number} left files of {', '.join(left)} unread" if left else None

    def _wrong(self, batch: Played, expected: Expected, mark: int, run: Run) -> str | None:
        if batch.watermark is not None and batch.watermark != mark:
            return f"the watermark is {batch.watermark} ms, the model's {mark} ms"
        if batch.late != expected.late:
            return f"{batch.late} rows were late, of the model's {expected.late}"
        if not self._holds_back(run) and batch.rows != expected.rows:
            return _compared(batch.rows, expected.rows)
        return None

    def _holds_back(self, run: Run) -> bool:
        """Whether units may keep results back in this run, or in an earlier one did."""
        runs = self.history.runs
        upto = runs[: runs.index(run) + 1]
        return any(one.options.get("update_batches", 1) > 1 for one in upto)

    # -- building -------------------------------------------------------------------------------

    def _built(self, run: Run) -> DataFrame:
        question, frames = self.history.question, {}
        for place, name in enumerate(self.history.names):
            files = run.files[name]
            source = write_batches(
                self.folder / name, [_table(rows) for rows in files], first=self.written[name]
            )
            self.written[name] += len(files)
            reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
            frame = reader.parquet(str(source))
            own = question.delays[place]
            if own is not None and name in question.time:
                frame = frame.withWatermark("t", f"{own} microseconds")
            frames[name] = frame
        streams = ts.streams(**frames)
        settings: dict[str, Any] = {
            "time": dict.fromkeys(question.time, "t"),
            "delay": None if question.delay is None else f"{question.delay} microseconds",
            # That rows are kept for ever is meant where there is no window.
            "options": ts.JoinOptions(**{"full_history": True, **run.options}),
        }
        text = question.predicate
        if question.kind == "rows":
            if question.within is not None:
                lengths = tuple(f"{length} microseconds" for length in question.within)
                settings["within"] = lengths[0] if len(set(lengths)) == 1 else lengths
        else:
            text = question.sql(self.history.names)
        if self.model is None:
            self.model = Model(self.history, self._passing(streams.explain(text, **settings)))
        if question.kind == "rows":
            joined = streams.join(text, **settings)
            return joined.select(*(f"{name}_id" for name in self.history.names))
        return streams.sql(text, **settings)

    def _passing(self, plan: Plan) -> Any:
        """Which rows pass the filters, asked of DuckDB once for all of them.

        Spark filters before it looks at a row's time for the watermark, unless the filter is on
        that time.
        """
        passing: dict[tuple[str, bool], set[int]] = {}
        for stream in _inputs(plan):
            if stream.name not in self.history.names:
                continue
            rows = [row for rows in self.history.files(stream.name) for row in rows]
            text = stream.filter_sql or "TRUE"
            for any_time, condition in (
                (False, text),
                (True, text.replace(f"`{stream.name}`.{_TIMED}", "TRUE")),
            ):
                source = f"given AS {quoted(stream.name)}"
                sql = f"SELECT id FROM {source} WHERE {to_duckdb(condition)}"
                found = duck_query(sql, given=_table(rows))
                passing[stream.name, any_time] = set(found.column("id").to_pylist())
        return lambda name, row, any_time: row.id in passing[name, any_time]

    # -- running --------------------------------------------------------------------------------

    def _played(self, joined: DataFrame) -> Iterator[Played]:
        given: dict[int, list[tuple[Any, ...]]] = {}
        query = (
            joined.writeStream.foreachBatch(
                lambda frame, number: given.__setitem__(
                    number, [tuple(row) for row in frame.collect()]
                )
            )
            .outputMode(self.history.question.mode)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(180):
            query.stop()
            raise TimeoutError("the query did not end")
        yield from self._batches(query, given)

    def _batches(
        self, query: StreamingQuery, given: Mapping[int, list[tuple[Any, ...]]]
    ) -> Iterator[Played]:
        late = {batch.batch: batch.late for batch in ts.metrics(query)}
        for progress in query.recentProgress:
            if progress.batchId not in given:
                continue
            files = {}
            for source in progress.sources:
                name = Path(urlparse(source.description.split("[")[1].rstrip("]")).path).name
                end = _offset(source.endOffset)
                files[name] = range(self.read[name], max(end + 1, self.read[name]))
                self.read[name] = files[name].stop
            rows = given[progress.batchId]
            if self.history.question.kind == "running":
                self.latest.update({row[0]: row for row in rows})
            yield Played(
                progress.batchId,
                _milliseconds(progress.eventTime.get("watermark")),
                files,
                Counter(rows),
                late[progress.batchId],
            )

    def _arrived(self, batch: Played) -> dict[str, list[Row]]:
        return {
            name: [row for place in places for row in self.history.files(name)[place]]
            for name, places in batch.files.items()
        }


def _inputs(plan: Plan) -> Iterator[StreamSpec]:
    """The streams as Spark filters them before they travel."""
    for step in plan.tree.steps:
        yield from (stream for stream in step.spec.streams if not stream.is_join_result)


def _table(rows: tuple[Row, ...] | list[Row]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([row.id for row in rows], pa.int64()),
            "k": pa.array([row.k for row in rows], pa.int32()),
            "n": pa.array([row.n for row in rows], pa.int32()),
            "t": pa.array([row.t for row in rows], pa.timestamp("us", tz="UTC")),
        }
    )


def _offset(text: Any) -> int:
    """The number of the last file that a source has given out."""
    raw = json.loads(text) if isinstance(text, str) else text
    return -1 if not raw else int(raw["logOffset"])


def _milliseconds(text: str | None) -> int | None:
    if text is None:
        return None
    apart = datetime.fromisoformat(text) - _EPOCH
    return (apart.days * 86_400 + apart.seconds) * 1000 + apart.microseconds // 1000


def _compared(given: Counter[tuple[Any, ...]], wanted: Counter[tuple[Any, ...]]) -> str:
    missing, extra = wanted - given, given - wanted
    return f"missing {dict(missing)}, too many {dict(extra)}, of {sum(wanted.values())}"
