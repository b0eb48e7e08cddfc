"""A Spark session that suits the joins, and the check that a session does."""

from __future__ import annotations

import importlib.util
import os
import sys

from pyspark.sql import SparkSession

from thetastream.errors import SettingError

_STATE = "spark.sql.streaming.stateStore"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

REQUIRED = {
    f"{_STATE}.providerClass": (
        ROCKSDB,
        "the operator that holds the join's state runs on this provider only",
    ),
    f"{_STATE}.checkpointFormatVersion": (
        "2",
        "with version 1 a batch that runs again can load state of an attempt that failed",
    ),
}
"""Settings without which a streaming join is refused, each with its reason."""

HELPFUL = {
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    # Counting rows makes the store look up each value before it is written.
    f"{_STATE}.rocksdb.trackTotalNumberOfRows": "false",
    # Without both a worker that hangs blocks its query for ever.
    "spark.sql.execution.pyspark.udf.idleTimeoutSeconds": "300",
    "spark.sql.execution.pyspark.udf.killOnIdleTimeout": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    # Larger Arrow batches: fewer turns of Python's loop for the same rows.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    # A limit in bytes makes Spark measure the batch again after each row: half of the time that
    # rows need on their way to Python. The limit in rows stays.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of `session` that are safe to leave out."""

LOCAL = {
    # Hadoop's other interface to a local disk starts four processes to rename a file, about 80 for
    # each batch: a third of a second. This one renames; it is as atomic.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings of `session` for checkpoints on this machine's disk."""


def session(
    *,
    app: str = "thetastream",
    cores: int | None = None,
    memory: str = "4g",
    config: dict[str, str] | None = None,
) -> SparkSession:
    """A local Spark session for joins, or the running one, which is left as it is.

    `cores` defaults to all of the machine. For a cluster, make the session yourself: the settings
    that matter are in `docs/deployment.md`, and a join that misses one says so.

    >>> spark = ts.session(cores=2)
    >>> spark.conf.get("spark.sql.streaming.stateStore.checkpointFormatVersion")
    '2'
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    workers = cores or os.cpu_count() or 1
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.appName(app)
        # Plain local[N] never runs a failed task again.
        .master(f"local[{workers},4]")
        .config("spark.driver.memory", memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(workers))
    )
    required = {name: value for name, (value, _) in REQUIRED.items()}
    for name, value in (required | HELPFUL | LOCAL | (config or {})).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def check_session(spark: SparkSession) -> None:
    """Refuse a session that lacks something, with the line that adds it."""
    for package in ("google.protobuf", "pandas", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            raise SettingError(
                f"the Python package {package} is missing",
                hint=f"install it: pip install {package.replace('google.', '')}",
            )
    for name, (wanted, why) in REQUIRED.items():
        # Without a default of ours, which Spark refuses where the setting is not a text.
        value = spark.conf.get(name)
        if value != wanted:
            raise SettingError(
                f"the Spark session has {name} = {value or 'nothing'}",
                detail=f"  {why}",
                hint=f'before the query starts: spark.conf.set("{name}", "{wanted}")',
            )
