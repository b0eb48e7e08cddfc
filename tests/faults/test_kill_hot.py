"""kill -9 while keys become hot and cool: the result stays the oracle's."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import thetastream as ts
from tests.conftest import oracle, results, write_batches
from tests.faults.test_kill import (
    CHAOS_SEEDS,
    CLUSTER,
    FIRST_CHAOS_SEED,
    LOCAL,
    MINUTE,
    batches_done,
    end_group,
    executors,
    job,
    long,
    rows,
    workers,
)

BATCHES = 12
ROWS = 300
DRIFT = 4
"""Batches after which another key is hot."""
LIMIT_SECONDS = 600


def skewed(data: np.random.Generator, batch: int, share: float) -> pa.Table:
    """Rows of which such a share has the hot key of the batch."""
    table = rows(data, batch)[:ROWS]
    keys = table.column("k").to_numpy().copy()
    keys[data.random(ROWS) < share] = 7 + batch // DRIFT
    place = table.schema.get_field_index("k")
    return table.set_column(place, "k", pa.array(keys, pa.int32()))


def listed(root: Path) -> set[tuple[int, str]]:
    """The keys that have places of their own, with their steps."""
    if not (root / "control" / "control.json").exists():
        return set()
    with suppress(ts.ControlError):
        return {(one.key, one.step) for one in ts.control(str(root / "control")).status().hot}
    return set()


@pytest.mark.parametrize(
    ("target", "seed"),
    [
        pytest.param("driver", 1, marks=long),
        *(
            pytest.param(target, seed, marks=long)
            for target in ("worker", "executor", "driver")
            for seed in CHAOS_SEEDS
        ),
    ],
)
def test_killed_while_keys_become_hot(target: str, seed: int, tmp_path: Path) -> None:
    data = np.random.default_rng(seed)
    rng = random.Random(f"{target}{seed}")
    shares = {"r": 0.6, "s": 0.05}
    sides = {
        name: [skewed(data, n, share) for n in range(BATCHES)] for name, share in shares.items()
    }
    for name, batches in sides.items():
        write_batches(tmp_path / name, batches)
    kills_wanted = 1 if seed < FIRST_CHAOS_SEED else 3
    hits = 0
    seen: set[tuple[int, str]] = set()
    master = CLUSTER if target == "executor" else LOCAL
    begin = time.monotonic()
    while True:
        assert time.monotonic() - begin < LIMIT_SECONDS, (tmp_path / "log.txt").read_text()[-3000:]
        with job(tmp_path, master, "rs", "hot") as process:
            before = batches_done(tmp_path)
            while process.poll() is None:
                assert time.monotonic() - begin < LIMIT_SECONDS, "it takes too long"
                now = listed(tmp_path)
                changing, seen = bool(now - seen), seen | now
                if changing and hits < kills_wanted and batches_done(tmp_path) > before:
                    time.sleep(rng.uniform(0.0, 0.8))
                    before = batches_done(tmp_path)
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
            assert target == "driver", (tmp_path / "log.txt").read_text()[-3000:]
    assert hits >= 1
    steps = [
        {(one.key, one.step.value) for table in version.joins for one in table.hot}
        for version in ts.control(str(tmp_path / "control"))._directory.history()
    ]
    assert {(7, "hot"), (8, "hot")} <= set().union(*steps)
    wanted = oracle(
        "SELECT r.id, s.id FROM r, s WHERE r.k = s.k AND abs(r.x - s.x) <= 40"
        f" AND abs(epoch_us(r.t) - epoch_us(s.t)) <= {2 * MINUTE}",
        **{name: pa.concat_tables(batches) for name, batches in sides.items()},
    )
    assert len(wanted) > 300
    assert results(tmp_path, "r_id, s_id") == wanted
