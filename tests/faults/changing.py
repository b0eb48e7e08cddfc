"""kill -9 of a job's processes in the middle of a change, until the job comes to its end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.faults.test_kill import (
    CLUSTER,
    FIRST_CHAOS_SEED,
    LOCAL,
    batches_done,
    end_group,
    executors,
    job,
    workers,
)

LIMIT_SECONDS = 600


def kill_while(
    changing: Callable[[], bool],
    root: Path,
    target: str,
    live: str,
    seed: int,
    rng: random.Random,
    *,
    batches: int = 1,
) -> None:
    """Kill the target while something changes, so many batches after the start or the last time."""
    wanted = 1 if seed < FIRST_CHAOS_SEED else 3
    hits = 0
    master = CLUSTER if target == "executor" else LOCAL
    begin = time.monotonic()
    while True:
        assert time.monotonic() - begin < LIMIT_SECONDS, (root / "log.txt").read_text()[-3000:]
        with job(root, master, "rs", live) as process:
            before = batches_done(root)
            while process.poll() is None:
                assert time.monotonic() - begin < LIMIT_SECONDS, "it takes too long"
                if changing() and hits < wanted and batches_done(root) >= before + batches:
                    time.sleep(rng.uniform(0.0, 0.8))
                    before = batches_done(root)
                    if target == "driver":
                        end_group(process)
                        hits += 1
                        break
                    alive = workers(process) if target == "worker" else executors(process)
                    if alive:
                        with suppress(OSError):
                            rng.choice(alive).kill()
                        hits += 1
                time.sleep(0.05)
            if process.poll() == 0:
                break
            assert target == "driver", (root / "log.txt").read_text()[-3000:]
    assert hits >= 1
