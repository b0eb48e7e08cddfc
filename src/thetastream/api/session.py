"""A Spark session that suits the joins, and the check that a session does."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakSet

from pyspark.sql import SparkSession

from thetastream.api.caller import warn
from thetastream.api.interpreter import PACKAGES, other_python
from thetastream.errors import SettingError
from thetastream.planner import Parallelism

_STATE = "spark.sql.streaming.stateStore"
_PARTITIONS = "spark.sql.shuffle.partitions"
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
    # Larger Arrow batches: fewer round trips to Python for the same rows.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    # A limit in bytes makes Spark measure the batch again after each row: half of the time that
    # rows need on their way to Python. The limit in rows stays.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}
"""Settings without which a join is slower, or waits for ever for a worker that hangs."""

LOCAL = {
    # Hadoop's other interface to a local disk starts four processes to rename a file, about 80 for
    # each batch: a third of a second. This one renames; it is as atomic.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings for checkpoints on this machine's disk."""

IDLE_FACTOR = 4
"""More partitions than this per task that runs at a time are probably not intended."""


def configure(
    builder: SparkSession.Builder, *, local_checkpoints: bool = False
) -> SparkSession.Builder:
    """The builder with every setting that joins need, and those that make them faster.

    Settings that the builder already has stay; a value with which joins do not work is refused.
    With a local master, the shuffle also gets one partition per core, and Spark's workers run the
    Python of this process, unless PYSPARK_PYTHON names another one. `local_checkpoints`: the
    checkpoints are on this machine's disk, and renamed without starting processes.

    >>> from pyspark.sql import SparkSession
    >>> builder = ts.configure(SparkSession.builder.appName("orders"))
    >>> isinstance(builder, SparkSession.Builder)
    True
    """
    # Builders of Spark Connect have them as well; there is no public way to read them.
    given: Mapping[str, object] = getattr(builder, "_options", {})
    wrong = [
        Lack(f"the builder has {name} = {given[name]}, and a join needs {value}", why)
        for name, (value, why) in REQUIRED.items()
        if name in given and str(given[name]) != value
    ]
    if wrong:
        raise _refusal(wrong, "remove that setting; ts.configure sets what a join needs")
    wanted = {name: value for name, (value, _) in REQUIRED.items()} | HELPFUL
    if local_checkpoints:
        wanted |= LOCAL
    master = _master_of(given)
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        wanted[_PARTITIONS] = str(_local_cores(master) or os.cpu_count() or 1)
    for name, value in wanted.items():
        if name not in given:
            builder = builder.config(name, value)
    return builder


def session(
    *,
    app: str = "thetastream",
    cores: int | None = None,
    memory: str = "4g",
    config: dict[str, str] | None = None,
) -> SparkSession:
    """A local Spark session for joins, or the running one, which is left as it is.

    `cores` defaults to all cores of the machine. For a cluster, create the session yourself, with
    `configure`; a join says what is missing.

    >>> spark = ts.session(cores=2)
    >>> spark.conf.get("spark.sql.streaming.stateStore.checkpointFormatVersion")
    '2'
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    own = {
        "spark.app.name": app,
        # Plain local[N] never runs a failed task again.
        "spark.master": f"local[{cores or os.cpu_count() or 1},4]",
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder
    for name, value in (own | (config or {})).items():
        builder = builder.config(name, value)
    return configure(builder, local_checkpoints=True).getOrCreate()


class Lack(NamedTuple):
    """Something that a session lacks, and what to do about it."""

    what: str
    why: str
    fix: str = ""
    line: str = ""
    """A line of a program that adds it."""


def check_session(spark: SparkSession, units: int) -> None:
    """Refuse a session that lacks something, all of it in one message; warn of what is slow.

    `units`: how many of the partitions of a shuffle have something to do.
    """
    lacks = [*_packages(), *_required(spark), *_python(spark)]
    idle = idle_partitions(parallelism(spark), units)
    # What has been set, to whatever value, is assumed to be intended.
    given = spark.conf.getAll
    unset = [name for name in HELPFUL if name not in given]
    # The others need another session: that is no reason to repeat the warning for ever.
    lines = [_line(name, HELPFUL[name]) for name in unset if name.startswith("spark.sql.")]
    if lacks:
        every = [item.line for item in (*lacks, *idle) if item.line] + lines
        raise _refusal(lacks, _way_out([item.fix for item in lacks if item.fix], every))
    for item in idle:
        warn(item.what, hint=f"{item.line} {item.fix}")
    if lines and spark not in _WARNED:
        _WARNED.add(spark)
        warn(
            "joins are slower in this Spark session than they need to be: it lacks"
            f" {', '.join(unset)}",
            hint=_way_out([], lines),
        )


_WARNED: WeakSet[SparkSession] = WeakSet()
"""Sessions whose user knows what would make joins faster."""


def _refusal(lacks: Sequence[Lack], hint: str) -> SettingError:
    if len(lacks) == 1:
        return SettingError(lacks[0].what, detail=f"  {lacks[0].why}", hint=hint)
    return SettingError(
        f"this Spark session lacks {len(lacks)} things that a streaming join needs",
        detail="\n".join(f"  {item.what}: {item.why}" for item in lacks),
        hint=hint,
    )


def _way_out(fixes: Sequence[str], lines: Sequence[str]) -> str:
    ways = list(fixes)
    if lines:
        listed = "".join(f"\n    {line}" for line in lines)
        ways.append(
            "create the session with\n"
            "    spark = ts.configure(SparkSession.builder).getOrCreate()\n"
            f"  or, before the query starts, run{listed}"
        )
    return "\n  and ".join(ways)


def _line(name: str, value: str) -> str:
    return f'spark.conf.set("{name}", "{value}")'


def _packages() -> Iterator[Lack]:
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            yield Lack(
                f"the Python package {package} is missing",
                "Spark's Python operators import it",
                f"install it: pip install {package.replace('google.', '')}",
            )


def _required(spark: SparkSession) -> Iterator[Lack]:
    for name, (wanted, why) in REQUIRED.items():
        # Without a default of ours, which Spark refuses where the setting is not a text.
        value = spark.conf.get(name)
        if value != wanted:
            yield Lack(
                f"the Spark session has {name} = {value or 'nothing'}",
                why,
                line=_line(name, wanted),
            )


def _python(spark: SparkSession) -> Iterator[Lack]:
    problem = other_python(spark)
    if problem is not None:
        yield Lack(
            problem,
            "Spark uses PYSPARK_PYTHON, or else the first python3 on the PATH",
            'stop the session and create it again after os.environ["PYSPARK_PYTHON"] ='
            " sys.executable, or activate the virtual environment before the program starts",
        )


def idle_partitions(found: Parallelism, units: int) -> list[Lack]:
    """A shuffle with far more partitions than there is work for, if this is one."""
    tasks, partitions = found
    if tasks is None or partitions <= max(IDLE_FACTOR * tasks, units):
        return []
    return [
        Lack(
            f"each batch starts {partitions} tasks, most of which have nothing to do: there are"
            f" {units} units, and the cores run {tasks} tasks at a time",
            "the number is spark.sql.shuffle.partitions",
            "before the query starts for the first time, because its checkpoint keeps the number",
            _line(_PARTITIONS, str(tasks)),
        )
    ]


def parallelism(spark: SparkSession) -> Parallelism:
    """The tasks that the session runs at a time, as far as it is known, and those of a shuffle."""

    def setting(name: str) -> str | None:
        return spark.conf.get(name, None)

    context = getattr(spark, "sparkContext", None)
    here: int | None = None
    if context is not None:
        master = str(context.master)
        if master.startswith("local[*"):
            # Java may count fewer cores than Python does, but the setting would hide them.
            chosen = setting("spark.default.parallelism") is not None
            here = os.cpu_count() if chosen else int(context.defaultParallelism)
    else:
        master = setting("spark.master") or ""
        # A server of Spark Connect on another machine has other cores.
        here = os.cpu_count() if "SPARK_LOCAL_REMOTE" in os.environ else None
    partitions = int(str(spark.conf.get(_PARTITIONS)))
    return Parallelism(tasks_at_a_time(master, setting, here), partitions)


def tasks_at_a_time(
    master: str, setting: Callable[[str], str | None], here: int | None
) -> int | None:
    """What the settings say of the tasks that run at a time; None if they do not.

    `here`: the cores of a local master that takes all. A cluster is never asked for its own: it
    counts the executors that have come up so far, and a query that starts again must get the same
    answer.
    """

    def number(name: str) -> int | None:
        text = setting(f"spark.{name}") or ""
        return int(text) if text.isdecimal() else None

    if master.startswith("local"):
        cores = here if master.startswith("local[*") else _local_cores(master)
    else:
        dynamic = setting("spark.dynamicAllocation.enabled") == "true"
        executors = number("dynamicAllocation.maxExecutors" if dynamic else "executor.instances")
        # A standalone cluster gives an executor all cores of its machine, the others give it one.
        each = number("executor.cores") or (None if master.startswith("spark:") else 1)
        if executors is not None and each is not None:
            cores = executors * each
        else:
            cores = number("cores.max") or number("default.parallelism")
    return None if cores is None else max(1, cores // (number("task.cpus") or 1))


def _local_cores(master: str) -> int | None:
    """The number of cores in a local master."""
    if master == "local":
        return 1
    found = re.fullmatch(r"local\[\s*(\d+)\s*(?:,\s*\d+\s*)?\]", master)
    if found is not None:
        return int(found[1])
    cluster = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", master)
    return None if cluster is None else int(cluster[1]) * int(cluster[2])


def _master_of(given: Mapping[str, object]) -> str:
    """The master that a builder's session will have; empty where it cannot be told."""
    for name, variable in (("spark.master", "MASTER"), ("spark.remote", "SPARK_REMOTE")):
        value = given.get(name) or os.environ.get(variable)
        if value:
            return str(value)
    # Where another program has started this one, or Spark is set up in a place of its own.
    elsewhere = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME", "SPARK_CONF_DIR")
    return "" if any(name in os.environ for name in elsewhere) else "local[*]"
