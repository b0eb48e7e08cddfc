"""How results leave the joiner: typed where pandas passes Arrow columns on, else packed.

Typed results go to the JVM in one step. PySpark takes a nested column apart value by value,
though, so that results with one travel as a blob and are unpacked by a second Python worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    AtomicType,
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from thetastream import arrow
from thetastream.errors import UnsupportedColumnError
from thetastream.runtime import shipped
from thetastream.spec import NEWEST
from thetastream.topology import wire
from thetastream.topology.wire import PackRow

REPORT = StructField("report", StringType())
"""The column beside the results; only a unit's last row has it filled."""

_BLOB = StructField("blob", BinaryType())

PACKS = from_arrow_schema(wire.SCHEMA)
"""Packs on their way to the first stage."""
PASSED = StructType([*PACKS.fields, REPORT])
"""What a stage passes on to the next: packs, and reports."""


class Results:
    """The results' columns, and their form on the way out of the joiner."""

    def __init__(self, columns: StructType) -> None:
        self._columns = columns
        nested = [field for field in columns if not _flat(field.dataType)]
        self.typed = not nested
        if nested and NEWEST in columns.names:
            raise UnsupportedColumnError(
                f"a {nested[0].dataType.simpleString()} cannot be told apart by its time",
                hint="select, group by or aggregate a part of it, for instance its length",
            )

    @property
    def wire(self) -> StructType:
        """The type of what the joiner puts out."""
        if not self.typed:
            return StructType([REPORT, _BLOB])
        return StructType([REPORT, *(StructField(f.name, _wire_type(f)) for f in self._columns)])

    def read(self, joined: DataFrame) -> DataFrame:
        """The results in what the joiner put out."""
        results = joined.where(F.col(REPORT.name).isNull())
        if not self.typed:
            return results.select("blob").mapInArrow(shipped.unpacker(), self._columns)
        return results.select(*(_read(field) for field in self._columns))


def frame_of(batches: Sequence[pa.RecordBatch], *, typed: bool) -> pd.DataFrame:
    """Results for Spark, without a copy where there is one batch."""
    if not typed:
        blob = arrow.to_bytes(*batches).to_pybytes()
        return pd.DataFrame({REPORT.name: [None], _BLOB.name: [blob]})
    batch = arrow.concat(batches)
    columns = {REPORT.name: pa.nulls(batch.num_rows, pa.string())}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        columns[name] = column.view(pa.int64()) if _is_instant(column.type) else column
    made = {name: pd.arrays.ArrowExtensionArray(column) for name, column in columns.items()}
    if NEWEST in columns:
        made[NEWEST] = batch.column(NEWEST).to_pandas()
    return pd.DataFrame(made, copy=False)


def passed_frame(row: PackRow) -> pd.DataFrame:
    """A row for a unit of the next stage."""
    return pd.DataFrame([(*row, None)], columns=PASSED.names)


def report_frame(report: str, names: Sequence[str]) -> pd.DataFrame:
    """A unit's report as a row without results."""
    columns = {name: pd.Series([None], dtype=object) for name in names}
    columns[REPORT.name] = pd.Series([report])
    return pd.DataFrame(columns)


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results in the blobs of a batch. Runs in `mapInArrow`."""
    for batch in batches:
        blobs = batch.column("blob")
        for position in range(len(blobs)):
            yield from arrow.read_batches(blobs[position].as_buffer())


def _flat(kind: DataType) -> bool:
    return isinstance(kind, AtomicType) and not isinstance(kind, VariantType)


def _wire_type(field: StructField) -> DataType:
    """PySpark converts a timestamp through the session's time zone: it travels as a number.

    Not so the time of the newest member, which Spark has to know for its watermark.
    """
    as_number = isinstance(field.dataType, TimestampType) and field.name != NEWEST
    return LongType() if as_number else field.dataType


def _read(field: StructField) -> Column:
    column = F.col(field.name)
    if _wire_type(field) != field.dataType:
        return F.timestamp_micros(column).alias(field.name)
    return column


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)
