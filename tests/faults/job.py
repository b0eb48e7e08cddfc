"""Joins to files, as a program of its own that can be killed and started again."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import thetastream as ts

SCHEMA = "id bigint, k int, x bigint, t timestamp"
PREDICATES = {
    "rs": "r.k = s.k AND abs(r.x - s.x) <= 40",
    "rst": "r.k = s.k AND abs(s.x - t.x) <= 40",
}


TRANSPORTS = ("simple", "semijoin", "auto")


def main(root: Path, master: str, names: str, mode: str = "") -> int:
    """`mode`: "window", "history" or "hot" for a live join, "sites" for three joins with a site."""
    live = mode in ("window", "history", "hot")
    spark = ts.session(
        app="faults",
        memory="1g",
        config={
            "spark.master": master,
            "spark.sql.shuffle.partitions": "3" if live else "1" if mode else "2",
            "spark.sql.streaming.noDataMicroBatches.enabled": "false" if mode else "true",
            "spark.sql.session.timeZone": "UTC",
            "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "spark.sql.streaming.minBatchesToRetain": "5",
            # An executor that was killed is not the job's fault: it may happen often.
            "spark.task.maxFailures": "20",
            "spark.deploy.maxExecutorRetries": "-1",
            "spark.executor.memory": "768m",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    frames = {
        name: spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(root / name))
        for name in names
        if mode != "sites" or name != "r"
    }
    options = ts.JoinOptions(units=2, full_history=mode == "history")
    if live:
        options = replace(options, control=str(root / "control"), max_units=3)
    if mode == "hot":
        options = replace(options, units=3, hot_keys="auto", sketch=ts.SketchOptions(half_life=50))
    window = {} if mode == "history" else {"within": "2 minutes", "delay": "2 minutes"}
    queries = []
    for transport in TRANSPORTS if mode == "sites" else ("",):
        if transport:
            address, rows = (root / "site").read_text().split()
            frames = {"r": ts.site(address).stream("r", max_rows=int(rows)), "s": frames["s"]}
            options = replace(options, units=1, transport=transport)
        queries.append(
            ts.streams(**frames)
            .join(PREDICATES[names], options=options, **window)
            .writeStream.format("parquet")
            .option("path", str(root / transport / "out"))
            .option("checkpointLocation", str(root / transport / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
    for query in queries:
        query.awaitTermination()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
