"""The dataflow on Spark: derive, route, shuffle by unit, join, unpack, re-check."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    FractionalType,
    LongType,
    StructField,
    StructType,
    TimestampType,
)

from thetastream.runtime import shipped
from thetastream.runtime.results import PACKS, PASSED, REPORT, Results
from thetastream.spec import (
    NEWEST,
    Clock,
    Fold,
    JoinSpec,
    JoinTree,
    Step,
    StreamSpec,
    Value,
    carried_column,
    group_column,
    measure_column,
    result_column,
)
from thetastream.spec.codec import to_json
from thetastream.version import VERSION

OBSERVATION = "thetastream"
"""How the names of our observed metrics begin."""
INNER = f"{OBSERVATION}_inner"
"""The same, of a join whose results are not those of the query."""
WATERMARK = "spark.watermarkDelayMs"
"""What Spark writes into the metadata of a column that has a watermark."""


def build(
    tree: JoinTree, inputs: Sequence[DataFrame], *, chunk_rows: int, cache_bytes: int
) -> DataFrame:
    """The joins as a DataFrame with the columns `s0_0`, ... `s1_0`, ...; inputs have watermarks."""
    most = cache_bytes // sum(len(step.spec.stages) for step in tree.steps)
    if len(tree.steps) == 1:
        return _join(tree.steps[0], inputs, tree.clock, chunk_rows, most)
    found = inputs[tree.order[0]]
    for number, (step, stream) in enumerate(zip(tree.steps, tree.order[1:], strict=True)):
        inner = None if number + 1 == len(tree.steps) else number
        both = [found, inputs[stream]]
        found = _join(step, both, tree.clock, chunk_rows, most, inner=inner)
    columns = [
        F.col(name).alias(result_column(stream, number))
        for stream, names in enumerate(tree.output)
        for number, name in enumerate(names)
    ]
    newest = [F.col(NEWEST)] if tree.last.newest is not None else []
    return found.select(*columns, *newest)


def _join(
    step: Step,
    inputs: Sequence[DataFrame],
    clock: Clock,
    chunk_rows: int,
    cache_bytes: int,
    inner: int | None = None,
) -> DataFrame:
    """One join; `inner` is its number where its results are a stream of another one.

    All that a second stage gets comes through the first, and all results leave through the last: a
    DataFrame that is used twice is computed twice.
    """
    spec = replace(step.spec, streams=_with_delays(step.spec.streams, inputs))
    text = to_json(replace(step, spec=spec))
    derived = [derive(stream, frame) for stream, frame in zip(spec.streams, inputs, strict=True)]
    streaming = any(frame.isStreaming for frame in inputs)
    packs = _union(
        frame.mapInArrow(shipped.router(text, stream, VERSION, streaming=streaming), PACKS)
        for stream, frame in enumerate(derived)
    )
    goes_by = clock if streaming else Clock.NONE
    results = Results(_result_type(spec, derived))
    for stage in spec.stages:
        # Unique for each join that is built: what one query caches is never seen by another.
        token = uuid.uuid4().hex
        last = stage.number + 1 == len(spec.stages)
        out = results.wire if last else PASSED
        joined = packs.groupBy("key").transformWithStateInPandas(
            statefulProcessor=shipped.processor(
                text,
                {
                    "stage": stage.number,
                    "token": token,
                    "chunk_rows": chunk_rows,
                    "cache_bytes": cache_bytes,
                    "names": out.names,
                    "typed": results.typed,
                    "clock": goes_by.value,
                },
            ),
            outputStructType=out,
            outputMode="Append",
            # Also of a join that needs no watermark. Spark refuses a checkpoint of another mode
            # before any unit can say what has changed.
            timeMode="EventTime" if streaming else "None",
            eventTimeColumnName=NEWEST if streaming and last and spec.timed else "",
        )
        if streaming:
            joined = observe(joined, token, inner=inner)
        if not last:
            packs = joined.where(F.col(REPORT.name).isNull()).drop(REPORT.name)
    found = results.read(joined)
    return found if spec.recheck_sql is None else found.where(spec.recheck_sql)


def _union(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(lambda first, second: first.unionAll(second), frames)


def derive(described: StreamSpec, frame: DataFrame) -> DataFrame:
    """The columns that travel: the stream's own, and keys that are more than a column."""
    # The SQL of filters, columns and keys calls the stream by its name.
    frame = frame.alias(described.name)
    if described.filter_sql is not None:
        frame = frame.where(described.filter_sql)
    columns = [
        (_own(column.name) if column.sql is None else F.expr(column.sql)).alias(
            carried_column(number)
        )
        for number, column in enumerate(described.columns)
    ]
    keys = [
        F.expr(key.sql).alias(described.key_column(number))
        for number, key in enumerate(described.keys)
        if key.column is None
    ]
    return frame.select(*columns, *keys)


def _own(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


def _with_delays(
    streams: Sequence[StreamSpec], inputs: Sequence[DataFrame]
) -> tuple[StreamSpec, ...]:
    """The streams with the delays of the watermarks that their inputs have."""
    found = []
    for stream, frame in zip(streams, inputs, strict=True):
        delays = [(field.metadata or {}).get(WATERMARK) for field in frame.schema.fields]
        # What another join made has the members' watermarks, and none of its own.
        known = [] if stream.is_join_result else [delay for delay in delays if delay is not None]
        found.append(replace(stream, delay=int(known[0]) if known else None))
    return tuple(found)


def observe(joined: DataFrame, token: str, *, inner: int | None = None) -> DataFrame:
    """The joiner's output with each unit's report among the query's observed metrics.

    One list, which takes the same time for each row however many units there are.
    """
    name = f"{OBSERVATION if inner is None else f'{INNER}_{inner:03d}'}_{token}"
    return joined.observe(name, F.collect_list("report").alias("reports"))


def _columns_type(spec: JoinSpec, derived: Sequence[DataFrame]) -> StructType:
    """The columns of listed results."""
    fields = [
        StructField(result_column(stream, number), frame.schema[carried_column(number)].dataType)
        for stream, frame in enumerate(derived)
        for number in range(len(spec.streams[stream].columns))
    ]
    newest = [StructField(NEWEST, TimestampType())] if spec.newest is not None else []
    return StructType(fields + newest)


def _result_type(spec: JoinSpec, derived: Sequence[DataFrame]) -> StructType:
    """The columns of what leaves the units, results or views."""
    if spec.view is None:
        return _columns_type(spec, derived)

    def type_of(value: Value) -> DataType:
        return derived[value.stream].schema[carried_column(value.column)].dataType

    fields = [
        StructField(group_column(number), type_of(value))
        for number, value in enumerate(spec.view.groups)
    ]
    if spec.view.slice is not None:
        fields.append(StructField(NEWEST, TimestampType()))
    for number, measure in enumerate(spec.view.measures):
        kind: DataType = LongType()
        if measure.value is not None and measure.fold is not Fold.COUNT:
            kind = type_of(measure.value)
        if measure.fold is Fold.SUM:
            kind = _sum_type(kind)
        fields.append(StructField(measure_column(number), kind))
    return StructType(fields)


def _sum_type(kind: DataType) -> DataType:
    if isinstance(kind, DecimalType):
        return DecimalType(38, kind.scale)
    return DoubleType() if isinstance(kind, FractionalType) else DecimalType(38, 0)
