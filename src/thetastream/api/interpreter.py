"""The Python that Spark's workers run, compared with the one that runs this program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakSet

from pyspark import SparkFiles
from pyspark.sql import SparkSession

PACKAGES = ("google.protobuf", "pandas", "pyarrow")
"""What a worker needs besides the library itself."""
PATIENCE = 60
"""Seconds after which a Python that does not answer is assumed to be the right one."""

_FINE: WeakSet[SparkSession] = WeakSet()
"""Sessions whose workers' Python was checked."""


class Worker(NamedTuple):
    """What Spark starts on this machine."""

    executable: str
    packages: tuple[str, ...]
    """What must be there without Spark's help."""
    paths: tuple[str, ...] = ()
    """Where it also finds packages, with Spark's help."""


def other_python(spark: SparkSession) -> str | None:
    """Why the session's workers cannot run a join; None if they can, or are elsewhere."""
    if spark in _FINE:
        return None
    found = worker(spark)
    problem = None if found is None else problem_of(found)
    if problem is None:
        # A good answer stays good; after a bad one somebody may install what is missing.
        _FINE.add(spark)
    return problem


def worker(spark: SparkSession) -> Worker | None:
    """The Python of the session's workers; None where this machine does not know it."""
    context = getattr(spark, "sparkContext", None)
    if context is None:
        if "SPARK_LOCAL_REMOTE" not in os.environ:
            return None
        # What a server of Spark Connect goes by. The library may be one of its artifacts.
        default = os.environ.get("PYSPARK_DRIVER_PYTHON", "python3")
        return Worker(os.environ.get("PYSPARK_PYTHON", default), PACKAGES)
    if not context.master.startswith("local") or spark.conf.get("spark.archives", None):
        return None
    shipped = SparkFiles.getRootDirectory()
    # What was added with addPyFile is on this process's path, too.
    paths = tuple(path for path in sys.path if path.startswith(shipped))
    return Worker(context.pythonExec, ("thetastream", *PACKAGES), paths)


def problem_of(worker: Worker) -> str | None:
    """Why this Python cannot serve the driver's joins; None if it can."""
    found = shutil.which(worker.executable)
    if found is None:
        return f"Spark's workers would run {worker.executable!r}, and there is no such program"
    if _same_environment(found):
        return None
    version, error = _ask(found, worker.packages, worker.paths)
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if version not in ("", own):
        return (
            f"Spark's workers would run Python {version} ({found}), and this program runs Python"
            f" {own} ({sys.executable})"
        )
    if error:
        return (
            f"Spark's workers would run {found}, not the Python of this program"
            f" ({sys.executable}), and it cannot import what a join needs: {error}"
        )
    return None


def _same_environment(executable: str) -> bool:
    """Whether it is this process's Python, by whatever name."""

    def place(path: str) -> tuple[str, str]:
        # All virtual environments of a Python link to it: the folder tells them apart.
        return os.path.dirname(os.path.abspath(path)), os.path.realpath(path)

    return place(executable) == place(sys.executable)


def _ask(executable: str, packages: Sequence[str], paths: Sequence[str]) -> tuple[str, str]:
    """The version of a Python, and what it says when it imports the packages."""
    program = (
        "import sys\n"
        "print('%d.%d' % sys.version_info[:2])\n"
        "sys.stdout.flush()\n"
        f"import {', '.join(packages)}\n"
    )
    path = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            [executable, "-c", program],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path} if path else None,
        )
    except subprocess.TimeoutExpired:
        return "", ""
    except OSError as error:
        return "", str(error)
    if done.returncode == 0:
        return done.stdout.strip(), ""
    said = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"]
    return done.stdout.strip(), said[-1]
