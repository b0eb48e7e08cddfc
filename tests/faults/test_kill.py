"""kill -9 of a Python worker, an executor and the driver: the result stays the oracle's.

A run with faults must equal a run without. The moments are random, from a seed that is in the
test's name; a few seeds run with the suite, many with `make chaos`.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

from tests.conftest import oracle, results, write_batches

JOB = Path(__file__).with_name("job.py")
BATCHES = 6
ROWS = 3000
START = 1_700_000_000_000_000
MINUTE = 60_000_000
LIMIT_SECONDS = 240
LOCAL = "local[2,8]"
CLUSTER = "local-cluster[2,1,1024]"

FIRST_CHAOS_SEED = 100
CHAOS_SEEDS = range(FIRST_CHAOS_SEED, FIRST_CHAOS_SEED + int(os.environ.get("CHAOS_SEEDS", "10")))

short = pytest.mark.spark
long = pytest.mark.chaos


def rows(rng: np.random.Generator, batch: int) -> pa.Table:
    times = START + batch * MINUTE + rng.integers(0, MINUTE, ROWS)
    return pa.table(
        {
            "id": pa.array(np.arange(ROWS) + batch * ROWS),
            "k": pa.array(rng.integers(0, 50, ROWS).astype(np.int32)),
            "x": pa.array(rng.integers(0, 10_000, ROWS)),
            "t": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )


@contextmanager
def job(root: Path, master: str, *how: str) -> Iterator[subprocess.Popen[bytes]]:
    """The job in a process group of its own, which is gone afterwards."""
    with (root / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(JOB), str(root), master, *(how or ("rs",))],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            end_group(process)


def end_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def victims(process: subprocess.Popen[bytes], mark: str) -> list[psutil.Process]:
    """Processes below the job whose command line has the mark."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            # Processes come and go while they are looked at.
            with suppress(psutil.NoSuchProcess):
                if mark in " ".join(child.cmdline()):
                    found.append(child)
    return found


def workers(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Python workers: the children of the daemons."""
    daemons = victims(process, "pyspark.daemon")
    pids = {daemon.pid for daemon in daemons}
    return [daemon for daemon in daemons if daemon.ppid() in pids]


def executors(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return victims(process, "CoarseGrainedExecutorBackend")


def batches_done(root: Path) -> int:
    """Of all queries of the job."""
    return sum(
        1
        for pattern in ("checkpoint", "*/checkpoint")
        for _ in root.glob(f"{pattern}/commits/[0-9]*")
    )


def run_to_the_end(
    root: Path,
    master: str,
    rng: random.Random,
    targets: Callable[[subprocess.Popen[bytes]], list[psutil.Process]],
    kills: int,
    *how: str,
) -> int:
    """Run the job and kill a random target `kills` times while batches run."""
    killed = 0
    begin = time.monotonic()
    with job(root, master, *how) as process:
        while process.poll() is None:
            assert time.monotonic() - begin < LIMIT_SECONDS, (root / "log.txt").read_text()[-3000:]
            if killed < kills and batches_done(root) > killed:
                time.sleep(rng.uniform(0.05, 1.0))
                alive = targets(process)
                if alive:
                    rng.choice(alive).kill()
                    killed += 1
            time.sleep(0.05)
        assert process.returncode == 0, (root / "log.txt").read_text()[-3000:]
    return killed


def crash_and_restart(
    root: Path, rng: random.Random, crashes: int, *how: str, then: int = 0
) -> int:
    """Kill the driver with all it started `crashes` times, then let it finish.

    `then`: how many workers are killed in the last run.
    """
    crashed = 0
    while crashed < crashes:
        before = batches_done(root)
        with job(root, LOCAL, *how) as process:
            begin = time.monotonic()
            while batches_done(root) < before + 1 and process.poll() is None:
                assert time.monotonic() - begin < LIMIT_SECONDS, "no batch was committed"
                time.sleep(0.05)
            if process.poll() is not None:
                break
            time.sleep(rng.uniform(0.0, 2.0))
            end_group(process)
            crashed += 1
    crashed += run_to_the_end(root, LOCAL, rng, workers, then, *how)
    return crashed


@pytest.mark.parametrize(
    ("target", "seed"),
    [
        # With the suite, a worker is killed below, and the driver in `test_kill_live`.
        *(
            pytest.param(target, seed, marks=long)
            for target in ("worker", "executor", "driver")
            for seed in CHAOS_SEEDS
        ),
    ],
)
def test_killed(target: str, seed: int, tmp_path: Path) -> None:
    data = np.random.default_rng(seed)
    rng = random.Random(seed)
    sides = {name: [rows(data, batch) for batch in range(BATCHES)] for name in "rs"}
    for name, batches in sides.items():
        write_batches(tmp_path / name, batches)
    kills = 1 if seed < FIRST_CHAOS_SEED else rng.randint(1, 3)
    if target == "worker":
        killed = run_to_the_end(tmp_path, LOCAL, rng, workers, kills)
    elif target == "executor":
        killed = run_to_the_end(tmp_path, CLUSTER, rng, executors, kills)
    else:
        killed = crash_and_restart(tmp_path, rng, kills)
    assert killed >= 1
    wanted = oracle(
        "SELECT r.id, s.id FROM r, s WHERE r.k = s.k AND abs(r.x - s.x) <= 40"
        f" AND abs(epoch_us(r.t) - epoch_us(s.t)) <= {2 * MINUTE}",
        **{name: pa.concat_tables(batches) for name, batches in sides.items()},
    )
    assert len(wanted) > 5_000
    assert results(tmp_path, "r_id, s_id") == wanted


@pytest.mark.parametrize(
    ("target", "seed"),
    [
        pytest.param("worker", 2, marks=short),
        *(pytest.param(t, seed, marks=long) for t in ("worker", "driver") for seed in CHAOS_SEEDS),
    ],
)
def test_killed_with_three_streams(target: str, seed: int, tmp_path: Path) -> None:
    """A chain of three: two stages, and a worker of either may be the one that dies."""
    data = np.random.default_rng(seed)
    rng = random.Random(seed)
    sides = {name: [rows(data, batch)[: ROWS // 10] for batch in range(4)] for name in "rst"}
    for name, batches in sides.items():
        write_batches(tmp_path / name, batches)
    kills = rng.randint(2, 4)
    if target == "worker":
        killed = run_to_the_end(tmp_path, LOCAL, rng, workers, kills, "rst")
    else:
        killed = crash_and_restart(tmp_path, rng, kills, "rst")
    assert killed >= 1
    times = ", ".join(f"epoch_us({name}.t)" for name in "rst")
    wanted = oracle(
        "SELECT r.id, s.id, t.id FROM r, s, t WHERE r.k = s.k AND abs(s.x - t.x) <= 40"
        f" AND greatest({times}) - least({times}) <= {2 * MINUTE}",
        **{name: pa.concat_tables(batches) for name, batches in sides.items()},
    )
    assert len(wanted) > 5_000
    assert results(tmp_path, "r_id, s_id, t_id") == wanted
