"""Spark as the judge of expressions: many of them in one job, whatever single ones raise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    ParseException,
    PySparkException,
    SparkRuntimeException,
)
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from tests.fuzz.tables import ROW, Table, quote

SPARK_ERRORS = (PySparkException, Py4JJavaError)
RAISED_BY_DATA = (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
)
"""What an expression that Spark accepts may raise for some rows."""
Codes = npt.NDArray[np.int8]
NOT_TRUE, TRUE, RAISED = 0, 1, 2
"""What a condition gives for a pair; NULL is not true."""

_INTERPRETED = {
    # Compiling hundreds of columns that are evaluated on 144 rows takes longer than all else.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_ALWAYS = {"spark.sql.timeType.enabled": "true"}


@dataclass(frozen=True)
class Setting:
    """What of the session changes what expressions mean."""

    ansi: bool = True
    zone: str = "UTC"

    @property
    def config(self) -> dict[str, str]:
        """As Spark's configuration."""
        return {
            "spark.sql.ansi.enabled": str(self.ansi).lower(),
            "spark.sql.session.timeZone": self.zone,
            **_ALWAYS,
        }


@contextmanager
def configured(spark: SparkSession, config: Mapping[str, str]) -> Iterator[None]:
    """The session with that configuration, and afterwards as it was."""
    before = {name: spark.conf.get(name, None) for name in config}
    for name, value in config.items():
        spark.conf.set(name, value)
    # PySpark logs each error with its stack, but here most errors are expected.
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@contextmanager
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Expressions are interpreted instead of compiled."""
    with configured(spark, _INTERPRETED):
        yield


class Pairs:
    """All pairs of rows of two tables, as Spark's own join sees them."""

    def __init__(self, tables: Sequence[Table], frames: Sequence[DataFrame]) -> None:
        self.shape = (len(tables[0].rows), len(tables[1].rows))
        one, two = (quote(table.name) for table in tables)
        self._frame = frames[0].alias(tables[0].name).crossJoin(frames[1].alias(tables[1].name))
        self._rows = (f"{one}.{ROW}", f"{two}.{ROW}")
        self._places = [{str(row[0]): n for n, row in enumerate(table.rows)} for table in tables]

    def refusal(self, condition: str) -> str | None:
        """Why Spark does not take the condition; None if it does."""
        try:
            # A join takes nothing but a Boolean.
            self._frame.where(condition)
        except (AnalysisException, ParseException) as error:
            return first_line(error)
        return None

    def truth(self, conditions: Sequence[str]) -> list[Codes | Exception]:
        """What each condition gives for each pair of rows."""
        return self._codes(self._frame, self._rows, conditions)

    def _codes(
        self, frame: DataFrame, rows: tuple[str, str], conditions: Sequence[str]
    ) -> list[Codes | Exception]:
        found = evaluate(frame, [*rows, *map(caught, conditions)], keep=2)
        if isinstance(found[0], Exception):
            return [found[0]] * len(conditions)
        ids = [column.to_pylist() for column in found[:2] if not isinstance(column, Exception)]
        lines = [[self._places[n][str(row)] for row in ids[n]] for n in range(2)]
        codes: list[Codes | Exception] = []
        for column in found[2:]:
            if isinstance(column, Exception):
                codes.append(column)
                continue
            matrix = np.zeros(self.shape, dtype=np.int8)
            matrix[tuple(lines)] = column.to_numpy(zero_copy_only=False)
            codes.append(matrix)
        return codes

    def rechecked(
        self, frames: Sequence[DataFrame], conditions: Sequence[str], among: Sequence[Codes]
    ) -> list[Codes | Exception]:
        """What each condition over results gives for the pairs that are candidates for it."""
        renamed = [
            frame.select(
                *(
                    frame[quote(name)].alias(f"s{side}_{number}")
                    for number, name in enumerate(frame.columns)
                )
            )
            for side, frame in enumerate(frames)
        ]
        texts = []
        for condition, mask in zip(conditions, among, strict=True):
            bits = "".join("1" if bit else "0" for bit in (mask == TRUE).ravel())
            place = f"{self._position(0)} * {self.shape[1]} + {self._position(1)} + 1"
            texts.append(f"substring('{bits}', {place}, 1) = '1' AND ({condition})")
        return self._codes(renamed[0].crossJoin(renamed[1]), ("s0_0", "s1_0"), texts)

    def _position(self, side: int) -> str:
        if list(self._places[side].values()) == [int(row) for row in self._places[side]]:
            return f"s{side}_0"
        cases = " ".join(f"WHEN {row} THEN {n}" for row, n in self._places[side].items())
        return f"CASE s{side}_0 {cases} END"


def caught(condition: str) -> str:
    """The condition as a code: 1 for TRUE, 0 for FALSE and NULL, 2 if it raises.

    Of the functions that forgive errors, the product of an interval and a number is one that
    forgives those in its arguments as well.
    """
    tried = f"try_multiply(INTERVAL '1' DAY, CASE WHEN ({condition}) THEN 1 ELSE 0 END)"
    return f"CAST(coalesce(extract(DAY FROM {tried}), {RAISED}) AS TINYINT)"


def raising(frame: DataFrame, expressions: Sequence[str], keep: Sequence[str]) -> list[bool]:
    """Whether each expression raises for some row."""
    # A hash depends on its argument, so that the argument is evaluated whatever is known of it.
    found = evaluate(frame, [*keep, *(caught(f"hash({e}) = 0") for e in expressions)], keep=1)
    return [
        not isinstance(column, Exception) and RAISED in column.to_pylist() for column in found[1:]
    ]


def evaluate(
    frame: DataFrame, expressions: Sequence[str], *, keep: int = 0
) -> list[pa.ChunkedArray | Exception]:
    """A column for each expression, or what it raises.

    The first `keep` are in every job, and all columns are in their order.
    """
    kept, rest = list(expressions[:keep]), list(expressions[keep:])
    try:
        named = [f"{text} AS e{number}" for number, text in enumerate([*kept, *rest])]
        table = frame.selectExpr(*named).toArrow()
        order = [(f"e{number}", "ascending") for number in range(keep)]
        return list(table.sort_by(order).columns if order else table.columns)
    except SPARK_ERRORS as error:
        if len(rest) < 2:
            return [*evaluate(frame, kept, keep=keep), error] if rest else [error] * keep
        half = len(rest) // 2
        first = evaluate(frame, [*kept, *rest[:half]], keep=keep)
        return [*first, *evaluate(frame, [*kept, *rest[half:]], keep=keep)[keep:]]


def first_line(error: Exception) -> str:
    """The first line of an error that says something."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
