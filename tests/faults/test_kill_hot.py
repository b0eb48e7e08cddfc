"""kill -9 while keys become hot and cool: the result stays the oracle's."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import thetastream as ts
from tests.conftest import oracle, results, write_batches
from tests.faults.changing import kill_while
from tests.faults.test_kill import CHAOS_SEEDS, MINUTE, long, rows
from thetastream.steering.directory import Directory
from thetastream.steering.version import Version

BATCHES = 12
ROWS = 300
DRIFT = 4
"""Batches after which another key is hot."""


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


def versions(path: str) -> list[Version]:
    """Return the versions of the routing tables, oldest first."""
    directory = Directory(path)
    return list(directory.tables(directory.require().control).history())


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
    seen: set[tuple[int, str]] = set()

    def changing() -> bool:
        now = listed(tmp_path)
        changed = bool(now - seen)
        seen.update(now)
        return changed

    kill_while(changing, tmp_path, target, "hot", seed, rng)
    steps = [
        {(one.key, one.step.value) for table in version.joins for one in table.hot}
        for version in versions(str(tmp_path / "control"))
    ]
    assert {(7, "hot"), (8, "hot")} <= set().union(*steps)
    wanted = oracle(
        "SELECT r.id, s.id FROM r, s WHERE r.k = s.k AND abs(r.x - s.x) <= 40"
        f" AND abs(epoch_us(r.t) - epoch_us(s.t)) <= {2 * MINUTE}",
        **{name: pa.concat_tables(batches) for name, batches in sides.items()},
    )
    assert len(wanted) > 300
    assert results(tmp_path, "r_id, s_id") == wanted
