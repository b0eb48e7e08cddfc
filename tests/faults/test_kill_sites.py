"""kill -9 of a query whose tuples are at a site: exact with each transport."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import oracle, results, write_batches
from tests.faults.job import TRANSPORTS
from tests.faults.test_kill import (
    CHAOS_SEEDS,
    CLUSTER,
    FIRST_CHAOS_SEED,
    LOCAL,
    MINUTE,
    crash_and_restart,
    executors,
    long,
    rows,
    run_to_the_end,
    short,
    workers,
)
from tests.transport.conftest import Running
from tests.transport.proxy import Proxy
from thetastream.transport.addresses import Address
from thetastream.transport.client import SiteClient
from thetastream.transport.config import SiteConfig, StreamConfig

BATCHES = 3
ROWS = 300
NOTE = 1_000
"""Bytes of the column that only results need."""


def few_keys(data: np.random.Generator, batch: int) -> pa.Table:
    """Rows most of which have a partner."""
    table = rows(data, batch)[:ROWS]
    keys = pa.array(table.column("k").to_numpy() % 5, pa.int32())
    return table.set_column(table.schema.get_field_index("k"), "k", keys)


@pytest.mark.parametrize(
    ("target", "seed"),
    [
        # The driver, and a worker after that.
        pytest.param("driver", 1, marks=short),
        *(
            pytest.param(target, seed, marks=long)
            for target in ("worker", "executor", "driver")
            for seed in CHAOS_SEEDS
        ),
    ],
)
def test_killed_with_a_site(target: str, seed: int, tmp_path: Path) -> None:
    data = np.random.default_rng(seed)
    rng = random.Random(f"{target}{seed}")
    sides = {
        name: pa.concat_tables([few_keys(data, batch) for batch in range(BATCHES)]) for name in "rs"
    }
    notes = [f"row {number} ".ljust(NOTE, "x") for number in range(BATCHES * ROWS)]
    sides["r"] = sides["r"].append_column("note", [notes])
    write_batches(tmp_path / "s", [sides["s"][n * ROWS : (n + 1) * ROWS] for n in range(BATCHES)])
    streams = {"r": StreamConfig("r", "t")}
    site = Running(SiteConfig(tmp_path / "tuples", Address("127.0.0.1", 0, False), streams))
    # So thin that the choice of a transport does not depend on the machine.
    link = Proxy(site.service.port, rate=1e6, latency=0.001)
    kills = 1 if seed < FIRST_CHAOS_SEED else rng.randint(2, 5)
    try:
        with SiteClient(site.address) as client:
            client.push("r", sides["r"])
        (tmp_path / "site").write_text(f"{link.address} {ROWS}")
        if target == "worker":
            killed = run_to_the_end(tmp_path, LOCAL, rng, workers, kills, "rs", "sites")
        elif target == "executor":
            killed = run_to_the_end(tmp_path, CLUSTER, rng, executors, kills, "rs", "sites")
        else:
            killed = crash_and_restart(tmp_path, rng, kills, "rs", "sites", then=1)
    finally:
        link.close()
        site.stop()
    assert killed >= (2 if target == "driver" else 1)
    wanted = oracle(
        "SELECT r.id, s.id, r.note FROM r, s WHERE r.k = s.k AND abs(r.x - s.x) <= 40"
        f" AND abs(epoch_us(r.t) - epoch_us(s.t)) <= {2 * MINUTE}",
        **sides,
    )
    assert len(wanted) > 500
    for transport in TRANSPORTS:
        assert results(tmp_path / transport, "r_id, s_id, note") == wanted, transport
