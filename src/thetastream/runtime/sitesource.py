"""A site's stream as a data source of Spark.

The class is made inside a function, so that it travels by value and brings its feed along. The
feed has the token. It is part of what Spark pickles for its own processes, and of nothing that
Spark shows: no option, no plan, no argument of a process.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from thetastream.errors import UnsupportedColumnError
from thetastream.transport.feed import WIRE, Feed
from thetastream.transport.messages import NUMBER

WIRES = "wire_thetastream"
"""How the names of observed metrics begin that say what went over a wire."""


def read_site(spark: SparkSession, feed: Feed, *, batch: bool) -> DataFrame:
    """The feed's columns as a DataFrame, with the numbers of tuples if it has them."""
    # Spark takes a name with a dot for one of Java's.
    name = re.sub(r"\W", "_", feed.stream)
    source = _source(feed, f"site_{name}_{uuid.uuid4().hex[:12]}")
    spark.dataSource.register(source)
    fields = [StructField(NUMBER, LongType())] if feed.numbered else []
    fields += [
        field
        for field in spark_schema(feed.stream, feed.schema)
        if field.name in feed.columns or field.name in feed.rest
    ]
    schema = StructType([*fields, StructField(WIRE, StringType())])
    reader: Any = spark.read if batch else spark.readStream
    return without_reports(reader.format(source.name()).schema(schema).load())


def without_reports(frame: DataFrame) -> DataFrame:
    """The rows that are tuples; what the others report is among a stream's observed metrics."""
    if frame.isStreaming:
        name = f"{WIRES}_{uuid.uuid4().hex}"
        frame = frame.observe(name, F.collect_list(WIRE).alias("reports"))
    return frame.where(F.col(WIRE).isNull()).drop(WIRE)


def spark_schema(stream: str, schema: pa.Schema) -> StructType:
    """The columns of a site's stream, as Spark has them."""
    fields = []
    for field in schema:
        try:
            kind = from_arrow_type(field.type)
        except PySparkException:
            raise UnsupportedColumnError(
                f"column {field.name!r} of the site's stream {stream!r} is a {field.type}, which"
                " Spark does not have",
                hint="let the source cast it before the site takes it in",
            ) from None
        fields.append(StructField(field.name, kind))
    return StructType(fields)


def _source(feed: Feed, name: str) -> type[DataSource]:
    class SiteSource(DataSource):
        """Reads ranges of numbers."""

        @classmethod
        def name(cls) -> str:
            return name

        def reader(self, schema: StructType) -> DataSourceReader:
            return _batch_reader(feed, schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return _stream_reader(feed, schema)

    return SiteSource


def _batch_reader(feed: Feed, schema: StructType) -> DataSourceReader:
    class SiteReader(DataSourceReader):
        """Everything that the site has when the query is planned."""

        def partitions(self) -> Sequence[InputPartition]:
            from thetastream.transport.feed import Follower

            follower = Follower(feed)
            try:
                end = {**follower.end(), "whole": feed.whole}
                parts = follower.parts(follower.initial(), end)
            finally:
                follower.close()
            return [InputPartition(tuple(part)) for part in parts]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return _read(feed, schema, partition)

    return SiteReader()


def _stream_reader(feed: Feed, schema: StructType) -> DataSourceStreamReader:
    class SiteStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        """Batches between two numbers."""

        def __init__(self) -> None:
            self._follower: Any = None
            self._until: int | None = None

        @property
        def _following(self) -> Any:
            if self._follower is None:
                from thetastream.transport.feed import Follower

                self._follower = Follower(feed)
            return self._follower

        def initialOffset(self) -> dict[str, Any]:
            found: dict[str, Any] = self._following.initial()
            return found

        def getDefaultReadLimit(self) -> ReadLimit:
            most = feed.most_rows
            return ReadAllAvailable() if most is None else ReadMaxRows(most)

        def prepareForTriggerAvailableNow(self) -> None:
            self._until = int(self._following.end()["number"])

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            if self._until is not None:
                left = max(0, self._until - int(start["number"]))
                most = left if most is None else min(most, left)
            found: dict[str, Any] = self._following.latest(start, most)
            return found

        def partitions(
            self, start: dict[str, Any], end: dict[str, Any]
        ) -> Sequence[InputPartition]:
            return [InputPartition(tuple(part)) for part in self._following.parts(start, end)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return _read(feed, schema, partition)

        def stop(self) -> None:
            if self._follower is not None:
                self._follower.close()

    return SiteStreamReader()


def _read(feed: Feed, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    from pyspark.sql.pandas.types import to_arrow_schema

    from thetastream.transport.feed import Part

    if partition.value is None:
        # Spark makes a partition where there is none.
        return iter(())
    return feed.read(Part(*partition.value), to_arrow_schema(schema, timezone="UTC"))
