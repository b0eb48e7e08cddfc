"""The first join of somebody who has a session already, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys, warnings
from pyspark.sql import SparkSession
import thetastream as ts

warnings.simplefilter("always", ts.ThetastreamWarning)

def join(spark):
    spark.sparkContext.setLogLevel("OFF")
    rate = spark.readStream.format("rate").load()
    streams = ts.streams(r=rate, s=rate)
    return streams.explain("r.value = s.value", within="1 s").explain(), streams.join(
        "r.value = s.value", within="1 second", delay="1 second"
    )

plain = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = plain.getOrCreate()
try:
    join(spark)
except ts.SettingError as error:
    print(error)
spark.stop()

print("-----")
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = plain.getOrCreate()
try:
    join(spark)
except ts.SettingError as error:
    lines = [line.strip() for line in str(error).splitlines() if "spark.conf.set" in line]
for line in lines:
    exec(line)
print(join(spark)[0])
spark.stop()

print("-----")
os.environ.pop("PYSPARK_PYTHON")
spark = ts.configure(SparkSession.builder.master("local[2]")).getOrCreate()
join(spark)
print("done")
spark.stop()
"""


def test_from_a_plain_builder_to_a_join(tmp_path: Path) -> None:
    """All that is missing is said at once, and what is said is enough."""
    other = tmp_path / "python3"
    # A Python without any package, as the machine's own often is.
    other.write_text(f'#!/bin/sh\nexec {sys._base_executable} -I -S "$@"\n')  # type: ignore[attr-defined]
    other.chmod(0o755)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK", "SPARK"))
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**environment, "PATH": f"{tmp_path}{os.pathsep}{environment['PATH']}"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    refused, added, configured = done.stdout.split("-----")
    assert refused.startswith("this Spark session lacks 3 things that a streaming join needs")
    assert f"{other}, not the Python of this program ({sys.executable})" in refused
    assert "as many as tasks run at a time (2)" in added
    assert configured.strip() == "done"
    assert "ThetastreamWarning" not in done.stderr
