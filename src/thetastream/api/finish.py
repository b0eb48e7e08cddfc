"""What Spark does after the join of a query: merge the units' views, or aggregate the results."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from thetastream.planner import Finish


def finished(joined: DataFrame, finish: Finish) -> DataFrame:
    """The query's result from the join's output."""
    frame = joined
    if finish.distinct:
        if finish.keys:
            kept = [F.col(finish.distinct[-1])]
            frame = frame.select(*(F.expr(sql).alias(name) for sql, name in finish.keys), *kept)
        frame = frame.dropDuplicates(list(finish.distinct))
    elif finish.grouped:
        frame = _grouped(frame, finish)
    if finish.having is not None:
        frame = frame.where(finish.having)
    return frame.select(*(F.expr(sql).alias(name) for sql, name in finish.items))


def _grouped(frame: DataFrame, finish: Finish) -> DataFrame:
    keys: list[Column] = [F.expr(sql).alias(name) for sql, name in finish.keys]
    if finish.window is not None:
        lengths = (finish.window.size, finish.window.slide, finish.window.start)
        size, slide, start = (f"{length} microseconds" for length in lengths)
        keys.append(F.window(F.expr(finish.window_sql), size, slide, start).alias("window"))
    merged = [F.expr(sql).alias(f"a_{number}") for number, sql in enumerate(finish.aggregates)]
    grouping = frame.groupBy(*keys)
    if merged:
        return grouping.agg(*merged)
    # Spark wants an aggregate; the groups are all that is asked for.
    return grouping.agg(F.count(F.lit(1)).alias("a_0"))
