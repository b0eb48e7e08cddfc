"""Shared by all tests: one Spark session, streams made of files, DuckDB as the oracle."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlparse

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import thetastream as ts

Rows = list[tuple[object, ...]]


SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Most code of a test runs a few times only: compiling it well takes longer than it saves."""


@pytest.fixture(scope="session", autouse=True)
def _compiled_pyspark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Lets Spark's workers import PySpark from its package, not from the archive beside it.

    The archive has no compiled modules. Each streaming query starts a worker of its own, which
    would compile them for more than a second.
    """
    if "SPARK_HOME" in os.environ:
        yield
        return
    home = tmp_path_factory.mktemp("home")
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(home))
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The suite's one session; its time zone is fixed so that printed times are."""
    root = tmp_path_factory.mktemp("spark")
    session = ts.session(
        app="tests",
        cores=2,
        memory="2g",
        config={
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(root / "warehouse"),
            "spark.local.dir": str(root / "local"),
            # Old state files are never needed here, and listing them costs time in each batch.
            "spark.sql.streaming.minBatchesToRetain": "2",
            "spark.driver.extraJavaOptions": SHORT_LIVED,
            # Half of the calls to Java that build a join only say which line made a column.
            "spark.python.sql.dataFrameDebugging.enabled": "false",
            # What is refused is refused again: once more is enough.
            "spark.master": "local[2,2]",
        },
    )
    session.sparkContext.setLogLevel("OFF")
    # Not stopped: that takes minutes after so many queries, and the process ends anyway.
    return session


@pytest.fixture
def no_empty_batches(spark: SparkSession) -> Iterator[None]:
    """Leaves out the batch without rows that follows a watermark that has moved.

    It ends windows of aggregates and drops old state, and takes as long as a batch with rows.
    """
    name = "spark.sql.streaming.noDataMicroBatches.enabled"
    before = str(spark.conf.get(name))
    spark.conf.set(name, "false")
    yield
    spark.conf.set(name, before)


@pytest.fixture(autouse=True)
def _no_query_survives(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "spark" in request.fixturenames:
        for query in request.getfixturevalue("spark").streams.active:
            query.stop()


def write_batches(folder: Path, batches: Sequence[pa.Table], *, first: int = 0) -> Path:
    """One file a batch. Spark takes files by age, so each is a second younger than the last."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, table in enumerate(batches, start=first):
        # Whole and of its age before Spark sees it: a running query lists the folder all the time.
        path = folder / f".{number:05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        path.rename(folder / f"{number:05d}.parquet")
    return folder


@pytest.fixture
def stream(spark: SparkSession) -> Callable[..., DataFrame]:
    """A folder of batches as a stream that reads one file a trigger."""

    def read(folder: Path, schema: str) -> DataFrame:
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(folder))

    return read


def drain(joined: DataFrame, folder: Path) -> StreamingQuery:
    """Run a query over all that its sources have, into `folder`; it can be run again later."""
    query = (
        joined.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(180), "the query did not end"
    return query


def results(folder: Path, columns: str = "*") -> Rows:
    """What the sink holds, by its own log: only files of committed batches count."""
    names = committed_files(folder / "out")
    if not names:
        return []
    with duckdb.connect() as database:
        query = f"SELECT {columns} FROM read_parquet($1)"
        return sorted(database.execute(query, [names]).fetchall(), key=repr)


def committed_files(sink: Path) -> list[str]:
    """The files that a file sink's log names; an attempt that failed may have left others."""
    names = set()
    for log in (sink / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines():
            if line.startswith("{"):
                names.add(urlparse(json.loads(line)["path"]).path)
    return sorted(names)


def oracle(sql: str, **tables: pa.Table) -> Rows:
    """The rows of a DuckDB query over Arrow tables."""
    with duckdb.connect() as database:
        for name, table in tables.items():
            database.register(name, table)
        return sorted(database.execute(sql).fetchall(), key=repr)
