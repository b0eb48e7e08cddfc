"""The same calls on Spark Connect, in a process of its own: a session is one or the other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from tests.conftest import oracle, results, write_batches

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import thetastream as ts

builder = SparkSession.builder.remote("local[2]")
spark = ts.configure(builder, local_checkpoints=True).getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
root = sys.argv[1]
frames = {
    name: spark.readStream.schema("id bigint, v double")
    .option("maxFilesPerTrigger", 1).parquet(f"{root}/{name}")
    for name in "rs"
}
streams = ts.streams(**frames)
kept = ts.JoinOptions(full_history=True)
again = {"r": streams.join("r.v > s.v", within="1 minute", time=ts.ARRIVAL), "s": frames["s"]}
try:
    ts.streams(**again).join("r.r_id = s.id", within="1 minute", time=ts.ARRIVAL)
except ts.WindowError as error:
    print(error)
print(streams.explain("r.v > s.v").explain())
query = (
    streams.join("r.v > s.v", options=kept)
    .writeStream.format("parquet").option("path", f"{root}/out")
    .option("checkpointLocation", f"{root}/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination(120)
assert sum(batch.results for batch in ts.metrics(query)) == 10, ts.metrics(query)
spark.stop()
"""


def test_join_on_connect(tmp_path: Path) -> None:
    for name, shift in (("r", 0.5), ("s", 0.0)):
        batches = [
            pa.table({"id": [2 * n, 2 * n + 1], "v": [2 * n + shift, 2 * n + 1 + shift]})
            for n in range(2)
        ]
        write_batches(tmp_path / name, batches)
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-W",
            "error::UserWarning:__main__",
            "-c",
            PROGRAM,
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "inequality" in done.stdout
    assert "as many as tasks run at a time (2)" in done.stdout
    assert "stream 'r' is the result of a join with a window" in done.stdout
    wanted = sorted(((i, j) for i in range(4) for j in range(4) if i + 0.5 > j), key=repr)
    assert results(tmp_path, "r_id, s_id") == wanted


LIVE = """
import sys
from pyspark.sql import SparkSession
import thetastream as ts

builder = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "3")
spark = ts.configure(builder, local_checkpoints=True).getOrCreate()
root = sys.argv[1]
frames = {
    name: spark.readStream.schema("id bigint, k int, t timestamp")
    .option("maxFilesPerTrigger", 1).parquet(f"{root}/{name}")
    for name in "rs"
}
joined = ts.streams(**frames).join(
    "r.k = s.k", within="1 minute", delay="1 second",
    options=ts.JoinOptions(control=f"{root}/control", units=1, max_units=3),
)
control = ts.control(f"{root}/control")
control.scale(3, wait=None)
query = (
    joined.writeStream.format("parquet").option("path", f"{root}/out")
    .option("checkpointLocation", f"{root}/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination(180)
print(query.exception())
steps = [len(change.versions) for change in control.history()]
print("steps", steps, "units", {one.stream: len(one.units) for one in control.status().streams})
spark.stop()
"""


def test_live_tables_on_connect(tmp_path: Path) -> None:
    minute, start = 60_000_000, 1_700_000_000_000_000
    given = {}
    for shift, name in enumerate("rs"):
        batches = [
            pa.table(
                {
                    "id": pa.array(range(20 * n, 20 * n + 20)),
                    "k": pa.array([(n + i * (shift + 1)) % 7 for i in range(20)], pa.int32()),
                    "t": pa.array(
                        [start + n * minute + i * 1_000_000 for i in range(20)],
                        pa.timestamp("us", tz="UTC"),
                    ),
                }
            )
            for n in range(14)
        ]
        write_batches(tmp_path / name, batches)
        given[name] = pa.concat_tables(batches)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LIVE, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "steps [1, 4] units {'r': 3, 's': 3}" in done.stdout, done.stdout
    wanted = oracle(
        "SELECT r.id, s.id FROM r, s WHERE r.k = s.k"
        f" AND abs(epoch_us(r.t) - epoch_us(s.t)) <= {minute}",
        **given,
    )
    assert len(wanted) > 1_000
    assert results(tmp_path, "r_id, s_id") == wanted
