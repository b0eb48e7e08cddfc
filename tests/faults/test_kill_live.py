"""kill -9 in the middle of a change of the routing: the result stays the oracle's."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import thetastream as ts
from tests.conftest import oracle, results, write_batches
from tests.faults.changing import kill_while
from tests.faults.test_kill import CHAOS_SEEDS, MINUTE, long, rows, short

BATCHES = 14
ROWS = 400


class Hand:
    """Asks for one change after the other."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.path = root / "control"
        self.rng = rng
        self.asked = 0

    def step(self) -> str:
        """The step of the change under way; the next change is asked for once there is none."""
        if not (self.path / "control.json").exists():
            return ""
        status = ts.control(str(self.path)).status()
        if status.step == "settled" and not status.waiting and status.batch is not None:
            drain = self.rng.choice(["auto", "move"])
            units = self.rng.choice([n for n in (1, 2, 3) if n != len(status.streams[0].units)])
            ts.control(str(self.path)).scale(units, drain=drain, wait=None)
            self.asked += 1
        return status.step


@pytest.mark.parametrize(
    ("target", "live", "seed"),
    [
        pytest.param("driver", "window", 1, marks=short),
        pytest.param("executor", "history", 1, marks=long),
        *(
            pytest.param(target, live, seed, marks=long)
            for target in ("worker", "executor", "driver")
            for live in ("window", "history")
            for seed in CHAOS_SEEDS
        ),
    ],
)
def test_killed_while_the_routing_changes(
    target: str, live: str, seed: int, tmp_path: Path
) -> None:
    data = np.random.default_rng(seed)
    rng = random.Random(f"{target}{live}{seed}")
    sides = {name: [rows(data, n)[:ROWS] for n in range(BATCHES)] for name in "rs"}
    for name, batches in sides.items():
        write_batches(tmp_path / name, batches)
    hand = Hand(tmp_path, rng)
    kill_while(
        lambda: hand.step() not in ("", "settled"), tmp_path, target, live, seed, rng, batches=2
    )
    changes = ts.control(str(tmp_path / "control")).history()
    assert len(changes) > 1
    window = "" if live == "history" else f" AND abs(epoch_us(r.t) - epoch_us(s.t)) <= {2 * MINUTE}"
    wanted = oracle(
        f"SELECT r.id, s.id FROM r, s WHERE r.k = s.k AND abs(r.x - s.x) <= 40{window}",
        **{name: pa.concat_tables(batches) for name, batches in sides.items()},
    )
    assert len(wanted) > 1_000
    assert results(tmp_path, "r_id, s_id") == wanted
