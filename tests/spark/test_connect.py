"""Joins on Spark Connect, in a process of its own: a process has one kind of session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from tests.conftest import SHORT_LIVED, oracle, results, write_batches

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import thetastream as ts

root, options = sys.argv[1:]
builder = SparkSession.builder.remote("local[2]").config("spark.driver.extraJavaOptions", options)
spark = ts.configure(builder, local_checkpoints=True).getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)


def stream(name, schema):
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(f"{root}/{name}")


def drain(joined, folder):
    query = (
        joined.writeStream.format("parquet").option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    )
    query.awaitTermination(180)
    return query


frames = {name: stream(f"join/{name}", "id bigint, v double") for name in "rs"}
streams = ts.streams(**frames)
kept = ts.JoinOptions(full_history=True)
again = {"r": streams.join("r.v > s.v", within="1 minute", time=ts.ARRIVAL), "s": frames["s"]}
try:
    ts.streams(**again).join("r.r_id = s.id", within="1 minute", time=ts.ARRIVAL)
except ts.WindowError as error:
    print(error)
print(streams.explain("r.v > s.v").explain())
query = drain(streams.join("r.v > s.v", options=kept), f"{root}/join")
assert sum(batch.results for batch in ts.metrics(query)) == 10, ts.metrics(query)

print("@@@@@")
spark.conf.set("spark.sql.shuffle.partitions", "3")
control = f"{root}/live/control"
joined = ts.streams(
    **{name: stream(f"live/{name}", "id bigint, k int, t timestamp") for name in "rs"}
).join(
    "r.k = s.k", within="1 minute", delay="1 second",
    options=ts.JoinOptions(control=control, units=1, max_units=3),
)
control = ts.control(control)
control.scale(3, wait=None)
query = drain(joined, f"{root}/live")
print(query.exception())
steps = [len(change.versions) for change in control.history()]
print("steps", steps, "units", {one.stream: len(one.units) for one in control.status().streams})
spark.stop()
"""
MINUTE = 60_000_000
START = 1_700_000_000_000_000
BATCHES = 14
"""So many that the change of the live tables has come to its end."""


class Done(NamedTuple):
    """The program after its end."""

    root: Path
    live: dict[str, pa.Table]
    """The streams of the join with live tables."""
    join: str
    """What the first join printed."""
    scaled: str
    """What the join with live tables printed."""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Both joins, one after the other: a server takes longer to start than they take."""
    root = tmp_path_factory.mktemp("connect")
    for name, shift in (("r", 0.5), ("s", 0.0)):
        batches = [
            pa.table({"id": [2 * n, 2 * n + 1], "v": [2 * n + shift, 2 * n + 1 + shift]})
            for n in range(2)
        ]
        write_batches(root / "join" / name, batches)
    live = {}
    for shift, name in enumerate("rs"):
        batches = [
            pa.table(
                {
                    "id": pa.array(range(20 * n, 20 * n + 20)),
                    "k": pa.array([(n + i * (shift + 1)) % 7 for i in range(20)], pa.int32()),
                    "t": pa.array(
                        [START + n * MINUTE + i * 1_000_000 for i in range(20)],
                        pa.timestamp("us", tz="UTC"),
                    ),
                }
            )
            for n in range(BATCHES)
        ]
        write_batches(root / "live" / name, batches)
        live[name] = pa.concat_tables(batches)
    warnings = ("-W", "ignore", "-W", "error::UserWarning:__main__")
    ended = subprocess.run(
        [sys.executable, *warnings, "-c", PROGRAM, str(root), SHORT_LIVED],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return Done(root, live, *ended.stdout.split("@@@@@"))


def test_join_on_connect(done: Done) -> None:
    assert "inequality" in done.join
    assert "as many as tasks run at a time (2)" in done.join
    assert "stream 'r' is the result of a join with a window" in done.join
    wanted = sorted(((i, j) for i in range(4) for j in range(4) if i + 0.5 > j), key=repr)
    assert results(done.root / "join", "r_id, s_id") == wanted


def test_live_tables_on_connect(done: Done) -> None:
    assert "steps [1, 4] units {'r': 3, 's': 3}" in done.scaled, done.scaled
    wanted = oracle(
        "SELECT r.id, s.id FROM r, s WHERE r.k = s.k"
        f" AND abs(epoch_us(r.t) - epoch_us(s.t)) <= {MINUTE}",
        **done.live,
    )
    assert len(wanted) > 50 * BATCHES
    assert results(done.root / "live", "r_id, s_id") == wanted
