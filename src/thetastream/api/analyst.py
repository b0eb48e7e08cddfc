"""Spark's analyser as the planner's source of types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce

from pyspark.errors import AnalysisException, ParseException, PySparkValueError
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from thetastream.api.columns import type_text
from thetastream.api.session import parallelism
from thetastream.planner import AnalysisFailure, Parallelism
from thetastream.planner.expression import quote
from thetastream.spec import ColumnSpec

_UTC = frozenset({"UTC", "GMT", "Z", "Etc/UTC", "Etc/GMT", "Etc/UCT", "UCT", "Zulu"})


class SparkAnalyst:
    """Asks Spark; each question once."""

    def __init__(self, spark: SparkSession, frames: Mapping[str, DataFrame]) -> None:
        self._spark = spark
        self._frames = {name: frame.alias(name) for name, frame in frames.items()}
        self._types: dict[tuple[tuple[str, ...], str], str] = {}
        self._common: dict[tuple[str, str], str | None] = {}

    @property
    def ansi(self) -> bool:
        """Whether overflow raises."""
        return self._setting("spark.sql.ansi.enabled") == "true"

    @property
    def case_sensitive(self) -> bool:
        """Whether names that differ in case only differ."""
        return self._setting("spark.sql.caseSensitive") == "true"

    @property
    def parallelism(self) -> Parallelism:
        """The tasks that the session runs at a time, and those of a shuffle."""
        return parallelism(self._spark)

    @property
    def zone(self) -> str:
        """The session's time zone, under one name for UTC."""
        zone = self._setting("spark.sql.session.timeZone")
        return "UTC" if zone in _UTC else zone

    @property
    def fixed_zone(self) -> bool:
        """Whether every day of the session's time zone has 24 hours."""
        return self.zone == "UTC" or self.zone.startswith(("+", "-"))

    def type_over(self, streams: Sequence[str], sql: str) -> str:
        """The type of an expression over one stream or several."""
        question = (tuple(streams), sql)
        if question not in self._types:
            # Only analysed, never run: a product is as good as any join.
            first, *others = (self._frames[stream] for stream in streams)
            product = reduce(DataFrame.crossJoin, others, first)
            with _quiet():
                try:
                    field = product.selectExpr(sql).schema.fields[0]
                except (AnalysisException, ParseException, PySparkValueError) as error:
                    raise AnalysisFailure(_first_line(error)) from error
            self._types[question] = type_text(field.dataType)
        return self._types[question]

    def with_stream(self, name: str, columns: Sequence[ColumnSpec]) -> SparkAnalyst:
        """An analyst that also knows a stream with those columns."""
        nulls = [f"CAST(NULL AS {column.type}) AS {quote(column.name)}" for column in columns]
        empty = self._spark.range(0).selectExpr(*nulls)
        return SparkAnalyst(self._spark, {**self._frames, name: empty})

    def common_type(self, left: str, right: str) -> str | None:
        """The type Spark compares the two in."""
        question = (left, right)
        if question not in self._common:
            self._common[question] = self._ask_common(left, right)
        return self._common[question]

    def _ask_common(self, left: str, right: str) -> str | None:
        first, second = f"CAST(NULL AS {left})", f"CAST(NULL AS {right})"
        with _quiet():
            try:
                _ = self._spark.sql(f"SELECT {first} <= {second}").schema
                both = self._spark.sql(f"SELECT coalesce({first}, {second})")
                return type_text(both.schema.fields[0].dataType)
            except (AnalysisException, ParseException):
                return None

    def _setting(self, name: str) -> str:
        # No default of ours: all of these have one in Spark, and it may refuse another.
        return str(self._spark.conf.get(name))


@contextmanager
def _quiet() -> Iterator[None]:
    """PySpark logs each refusal with its stack, but here a refusal is an answer."""
    # PySpark's own class: a plain logger of that name would fail when PySpark uses it.
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
