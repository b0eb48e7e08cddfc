"""The dataflow on Spark: derive, route, shuffle by unit, join, unpack, re-check."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from thetastream.index.part import key_column
from thetastream.runtime import shipped
from thetastream.runtime.results import Results
from thetastream.runtime.router import PACK_DDL
from thetastream.spec import JoinSpec
from thetastream.topology.dispatcher import topology_of
from thetastream.version import VERSION

OBSERVATION = "thetastream"
"""How the names of our observed metrics begin."""


def build(
    spec: JoinSpec,
    inputs: Sequence[DataFrame],
    *,
    chunk_rows: int,
    cache_bytes: int,
) -> DataFrame:
    """The join as a DataFrame with the columns `s0_0`, ... `s1_0`, ...; inputs have watermarks."""
    text = spec.to_json()
    # Unique for each join that is built: what one query caches is never seen by another.
    token = uuid.uuid4().hex
    packs = reduce(
        lambda first, second: first.unionAll(second),
        [
            derive(spec, stream, frame).mapInArrow(shipped.router(text, stream, VERSION), PACK_DDL)
            for stream, frame in enumerate(inputs)
        ],
    )
    streaming = any(frame.isStreaming for frame in inputs)
    results = Results(_result_type(inputs))
    joined = packs.groupBy("unit").transformWithStateInPandas(
        statefulProcessor=shipped.processor(
            text, token, chunk_rows, cache_bytes, results.wire.names, results.typed
        ),
        outputStructType=results.wire,
        outputMode="Append",
        timeMode="EventTime" if streaming and spec.window is not None else "None",
    )
    if streaming:
        joined = observe(spec, joined, token)
    found = results.read(joined)
    return found if spec.recheck_sql is None else found.where(spec.recheck_sql)


def derive(spec: JoinSpec, stream: int, frame: DataFrame) -> DataFrame:
    """The columns that travel: the stream's own, and keys that are more than a column."""
    described = spec.streams[stream]
    if described.filter_sql is not None:
        frame = frame.where(described.filter_sql)
    columns = [
        F.col(f"`{column.name.replace('`', '``')}`").alias(f"c_{number}")
        for number, column in enumerate(described.columns)
    ]
    keys = [
        F.expr(key.sql).alias(key_column(spec, stream, number))
        for number, key in enumerate(described.keys)
        if key.column is None
    ]
    return frame.select(*columns, *keys)


def observe(spec: JoinSpec, joined: DataFrame, token: str) -> DataFrame:
    """The joiner's output with each unit's report among the query's observed metrics."""
    reports = [
        F.max(F.when(F.col("unit") == unit, F.col("report"))).alias(f"unit_{unit}")
        for unit in range(topology_of(spec).units)
    ]
    return joined.observe(f"{OBSERVATION}_{token}", *reports)


def _result_type(inputs: Sequence[DataFrame]) -> StructType:
    fields = [
        StructField(f"s{stream}_{number}", field.dataType)
        for stream, frame in enumerate(inputs)
        for number, field in enumerate(frame.schema.fields)
    ]
    return StructType(fields)
