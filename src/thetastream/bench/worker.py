"""One contestant on one case, in a process of its own: `python -m thetastream.bench.worker`.

The parent gives a JSON document on standard input and reads one from the file it names; nothing of
one measurement can slow down or warm up the next.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from thetastream.bench import cases
from thetastream.bench.cases import Case

RESULT_METRIC = "bench"


def main() -> int:
    task = json.load(sys.stdin)
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in task["case"].items()
    }
    case = Case(**fields)
    folder = Path(task["data"])
    if task["contestant"] == cases.DUCKDB:
        report = in_duckdb(case, folder)
    else:
        report = in_spark(case, folder, task)
    target = Path(task["out"])
    partial = target.with_suffix(".part")
    partial.write_text(json.dumps(report))
    partial.rename(target)
    return 0


def in_duckdb(case: Case, folder: Path) -> dict[str, Any]:
    """The whole join as one batch, from the files to the number of results."""
    import duckdb

    with duckdb.connect(config={"threads": 2}) as database:
        begin = time.perf_counter()
        row = database.execute(
            f"""SELECT count(*) FROM read_parquet('{folder}/r/*.parquet') AS r
                JOIN read_parquet('{folder}/s/*.parquet') AS s
                ON {case.duckdb_condition()}"""
        ).fetchone()
        seconds = time.perf_counter() - begin
        rows = database.execute(
            f"""SELECT (SELECT count(*) FROM read_parquet('{folder}/r/*.parquet'))
                     + (SELECT count(*) FROM read_parquet('{folder}/s/*.parquet'))"""
        ).fetchone()
    assert row is not None
    assert rows is not None
    return {"finished": True, "seconds": seconds, "rows": rows[0], "results": row[0]}


def in_spark(case: Case, folder: Path, task: dict[str, Any]) -> dict[str, Any]:
    """The join as a streaming query over all files, one file of each stream per trigger."""
    from pyspark.sql import functions as F

    contestant: str = task["contestant"]
    spark = session(contestant, case.driver_memory)
    for name, value in settings(contestant).items():
        spark.conf.set(name, value)
    reader = spark.readStream.option("maxFilesPerTrigger", 1)
    frames = {
        name: reader.schema(schema).parquet(str(folder / name))
        for name, schema in zip(case.names, case.schemas, strict=True)
    }
    plan = ""
    own = contestant in cases.OWN
    if own:
        given = task["options"] | live_options(case, contestant, task["checkpoint"])
        given |= {} if case.units is None else {"units": case.units}
        joined, plan = ours(case, frames, given, contestant)
    elif contestant == cases.CASCADE:
        joined = cascade(case, **frames)
    elif contestant == cases.WORKAROUND:
        joined = workaround(case, **frames)
    else:
        joined = native(case, condition=case.predicate, **frames)
    # Counting what leaves the join is the cheapest proof that all contestants did the same work.
    counted = joined.observe(RESULT_METRIC, F.count(F.lit(1)).alias("results"))
    begin = time.perf_counter()
    aggregating = case.aggregates and contestant != cases.PLAIN
    query = (
        counted.writeStream.format("noop")
        .outputMode("update" if aggregating else "append")
        .option("checkpointLocation", task["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    finished = query.awaitTermination(task["limit"])
    triggers = [of_progress(json.loads(progress.json)) for progress in query.recentProgress]
    report = {
        "finished": bool(finished),
        "wall": time.perf_counter() - begin,
        "plan": plan,
        # Batches without rows only move the watermark.
        "triggers": [trigger for trigger in triggers if trigger["rows"]],
    }
    if own:
        add_own_metrics(report, query, aggregating=aggregating)
    if finished:
        spark.stop()
    return report


def session(contestant: str, memory: str) -> Any:
    """A local session on two cores, the library's own for the library."""
    if contestant in cases.OWN:
        import thetastream as ts

        return ts.session(app="bench", cores=2, memory=memory)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2,4]").appName("bench")
    return builder.config("spark.driver.memory", memory).getOrCreate()


def settings(contestant: str) -> dict[str, str]:
    """What is set for everyone, and what makes one set-up of Spark differ from the other."""
    common = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    if contestant not in (cases.SPARK_ROCKSDB, cases.SPARK_TUNED):
        return common
    from thetastream.api.session import LOCAL, ROCKSDB

    state = "spark.sql.streaming.stateStore"
    rocksdb = common | {
        f"{state}.providerClass": ROCKSDB,
        f"{state}.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.join.stateFormatVersion": "4",
    }
    if contestant == cases.SPARK_ROCKSDB:
        return rocksdb
    return rocksdb | LOCAL | {f"{state}.rocksdb.trackTotalNumberOfRows": "false"}


VARIANTS: dict[str, dict[str, Any]] = {
    cases.LISTED: {"aggregation": "enumerate"},
    cases.TREE: {"scheme": "tree"},
    cases.PAIRS: {"intermediate": "pairs"},
    cases.PIM: {"index": "pim"},
    cases.STREAM_AWARE: {"topology": "stream-aware"},
    cases.NESTED_LOOPS: {"index": "nested-loops"},
    cases.EXTENDIBLE: {"index": "extendible"},
    cases.STA: {"topology": "stream-aware"},
    cases.CI: {"topology": "random", "index": "runs"},
    cases.SJ: {"topology": "split"},
    cases.BCHJ: {"topology": "broadcast"},
    cases.MCI: {"topology": "multi-chained", "index": "runs"},
    cases.PIM_TREE: {"topology": "random", "index": "pim"},
}
"""The options in which one of our contestants differs from the others."""


def live_options(case: Case, contestant: str, checkpoint: str) -> dict[str, Any]:
    """The options of a join that splits hot keys, or that has a live table without any."""
    if not case.hot_keys or contestant not in (cases.OURS, cases.LIVE):
        return {}
    mode = "auto" if contestant == cases.OURS else "off"
    return {"control": f"{checkpoint}-control", "hot_keys": mode}


def ours(
    case: Case, frames: dict[str, Any], options: dict[str, Any], contestant: str
) -> tuple[Any, str]:
    """The library's join or query, and its plan as text."""
    import thetastream as ts

    streams = ts.streams(**frames)
    options = {**options, **VARIANTS.get(contestant, {}), "full_history": case.within is None}
    how: dict[str, Any] = {"options": ts.JoinOptions(**options)}
    if case.within is not None:
        how |= {"delay": f"{cases.DELAY_SECONDS} seconds", "time": "t"}
    if case.query and contestant != cases.PLAIN:
        plan = streams.explain(case.sql(), **how)
        return streams.sql(case.sql(), **how), _published(plan.explain())
    if case.within is not None:
        how["within"] = case.within
    plan = streams.explain(case.predicate, **how)
    return streams.join(case.predicate, **how), _published(plan.explain())


def _published(plan: str) -> str:
    """The plan without the line that says where this file is."""
    return "\n".join(line for line in plan.splitlines() if not line.startswith("  built at "))


def native(case: Case, r: Any, s: Any, condition: str) -> Any:
    """Spark's own stream-stream join."""
    from pyspark.sql import functions as F

    if case.window is not None:
        delay = f"{cases.DELAY_SECONDS} seconds"
        r, s = r.withWatermark("t", delay), s.withWatermark("t", delay)
        condition = f"{condition} AND {case.time_range()}"
    return r.alias("r").join(s.alias("s"), F.expr(condition))


def cascade(case: Case, r: Any, s: Any, t: Any) -> Any:
    """Two of Spark's joins, one after the other, on one key.

    Spark refuses a second join of a stream with two event times, so that the one of s goes on as a
    plain number, and its distance from t is checked on the results.
    """
    from pyspark.sql import functions as F

    assert case.window is not None
    first = native(case, r, s, "r.k = s.k").selectExpr(
        "r.id AS id", "r.k AS k", "r.v AS v", "r.t AS t", "s.id AS s_id", "s.v AS s_v",
        "unix_micros(s.t) AS s_t",
    )  # fmt: skip
    width = case.window * cases.SPAN_SECONDS
    t = t.withWatermark("t", f"{cases.DELAY_SECONDS} seconds")
    condition = (
        f"a.k = t.k AND t.t >= a.t - INTERVAL {width} SECONDS"
        f" AND t.t <= a.t + INTERVAL {width} SECONDS"
        f" AND abs(a.s_t - unix_micros(t.t)) <= {width} * 1000000L"
    )
    return first.alias("a").join(t.alias("t"), F.expr(condition))


def workaround(case: Case, r: Any, s: Any) -> Any:
    """What Spark accepts instead: an equality on buckets, or on a constant."""
    from pyspark.sql import functions as F

    if case.workaround == "constant":
        r, s = r.withColumn("c", F.lit(1)), s.withColumn("c", F.lit(1))
        return native(case, r, s, f"r.c = s.c AND {case.predicate}")
    value, width, band = case.bucket_column, case.bucket_width, case.band
    # The low end may fall below zero and then lands in bucket 0, where the smallest values are.
    touched = (
        f"array_distinct(array(({value} - {band}) DIV {width}, ({value} + {band}) DIV {width}))"
    )
    r = r.withColumn("b", F.explode(F.expr(touched)))
    s = s.withColumn("b", F.expr(f"{value} DIV {width}"))
    return native(case, r, s, f"r.b = s.b AND {case.predicate}")


def of_progress(progress: dict[str, Any]) -> dict[str, Any]:
    """What a trigger's progress tells, in plain numbers."""
    state = progress.get("stateOperators") or [{}]
    observed = progress.get("observedMetrics", {}).get(RESULT_METRIC)
    return {
        "batch": progress["batchId"],
        "rows": progress["numInputRows"],
        "seconds": progress["durationMs"]["triggerExecution"] / 1000,
        "durations": progress["durationMs"],
        "results": observed["results"] if observed else None,
        "state_rows": state[0].get("numRowsTotal"),
        "state_bytes": state[0].get("memoryUsedBytes"),
        "state_metrics": state[0].get("customMetrics", {}),
    }


def add_own_metrics(report: dict[str, Any], query: Any, *, aggregating: bool) -> None:
    """Replaces Spark's view of the state, a few large values, by the library's: tuples.

    A query that aggregates puts out groups; what it must agree on is the number of pairs.
    """
    import thetastream as ts

    own = {metrics.batch: metrics for metrics in ts.metrics(query)}
    for trigger in report["triggers"]:
        metrics = own.get(trigger["batch"])
        # Spark may lose a batch's reports: that is no state of zero rows.
        metrics = metrics if metrics and metrics.units else None
        trigger["state_rows"] = metrics.stored_rows if metrics else None
        trigger["state_bytes"] = metrics.stored_bytes if metrics else None
        if aggregating:
            trigger["results"] = metrics.results if metrics else None
        trigger["out_bytes"] = sum(u.out_bytes for u in metrics.units) if metrics else None
        trigger["entries"] = sum(u.entries for u in metrics.units) if metrics else None
        trigger["pairs"] = sum(u.pairs for u in metrics.units) if metrics else None
        trigger["units_busy"] = [unit.busy for unit in metrics.units] if metrics else []


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # A query that ran into its limit may be deep in a trigger: the parent ends the whole group.
    sys.exit(code)
