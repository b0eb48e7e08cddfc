"""Queries over links that are slow or fail, to sites that are killed or forget."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import thetastream as ts
from tests.conftest import drain, oracle, results, write_batches
from tests.spark.test_sites import COLUMNS, SEMIJOIN, TIMED, push, start_site
from tests.transport.conftest import Running
from tests.transport.packets import ALARMS, alarms, packets
from tests.transport.proxy import Proxy
from tests.transport.test_kill import Process
from tests.transport.tuples import Clock

__all__ = ["start_site"]

pytestmark = pytest.mark.spark

PREDICATE = "p.k = a.k"
WITHIN = "abs(epoch_us(p.at) - epoch_us(a.raised)) <= 2000000"
ORACLE = f"SELECT {TIMED} FROM (SELECT {COLUMNS} FROM p, a WHERE {PREDICATE} AND {WITHIN})"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def start(joined: DataFrame, folder: Path) -> Any:
    return (
        joined.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )


def test_a_link_that_fails_and_a_site_that_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(
        f'dir = "site"\nlisten = "127.0.0.1:{free_port()}"\n'
        '[streams.packets]\ntime = "at"\npush = true\n'
        '[streams.alarms]\ntime = "raised"\npush = true\n'
    )
    site = Process(file)
    proxy = Proxy(int(site.address.rsplit(":", 1)[1]), latency=0.002)
    try:
        push(site.address, "packets", packets(0, 100, payload=2_000))
        push(site.address, "alarms", alarms(0, 20))
        remote = ts.site(f"grpc://{proxy.address}")
        streams = ts.streams(p=remote.stream("packets"), a=remote.stream("alarms"))
        joined = streams.join(PREDICATE, within="2 seconds", delay="1 hour")
        query = start(joined, tmp_path)
        query.processAllAvailable()
        proxy.corrupt_at = proxy.passed + 5_000
        push(site.address, "packets", packets(100, 100, payload=2_000))
        query.processAllAvailable()
        proxy.cut_after = proxy.passed + 3_000
        site.end(signal.SIGKILL)
        site = Process(file)
        push(site.address, "packets", packets(200, 100, payload=2_000))
        push(site.address, "alarms", alarms(20, 40))
        query.processAllAvailable()
        query.stop()
        push(site.address, "alarms", alarms(60, 20))
        query = start(joined, tmp_path)
        query.processAllAvailable()
        query.stop()
        assert proxy.cuts == 1
    finally:
        proxy.close()
        site.end(signal.SIGTERM)
    expected = oracle(ORACLE, p=packets(0, 300, payload=2_000), a=alarms(0, 80))
    assert len(expected) > 50
    assert results(tmp_path, TIMED) == expected
    # The choice of each batch is part of its offset.
    offsets = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))
    assert '"whole"' in offsets[-1].read_text()


def tickets(first: int, rows: int) -> pa.Table:
    """Ten for each alarm, with a payload that cannot be compressed."""
    ids = np.arange(first, first + rows)
    return pa.table(
        {
            "id": ids,
            "key": ids // 10,
            "payload": [np.random.default_rng(number).bytes(2_000).hex() for number in ids],
            "at": packets(first, rows).column("at"),
        }
    )


def wholes(folder: Path) -> list[bool]:
    """Whether full tuples came, of each batch, by the offsets in the checkpoint."""
    found = []
    for path in sorted((folder / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)):
        (offset,) = (line for line in path.read_text().splitlines() if '"whole"' in line)
        found.append(json.loads(offset)["whole"])
    return found


def test_a_query_changes_its_transport_on_a_slow_link(
    spark: SparkSession,
    start_site: Callable[..., Running],
    stream: Callable[..., DataFrame],
    tmp_path: Path,
) -> None:
    """One in ten tuples is assumed to match, but all do. A batch that runs again does the same."""
    rows, batches = 50, 8
    site = start_site("tickets", "at")
    push(site.address, "tickets", tickets(0, rows * batches))
    folder = write_batches(tmp_path / "alarms", [alarms(0, 100)])
    proxy = Proxy(site.service.port, rate=1e6, latency=0.001)

    def joined() -> DataFrame:
        remote = ts.site(f"grpc://{proxy.address}").stream("tickets", max_rows=rows)
        streams = ts.streams(t=remote, a=stream(folder, ALARMS))
        asked = {"within": "1 hour", "delay": "1 hour"}
        decision = streams.explain("t.key = a.alarm", **asked).decisions[-1]
        assert decision.choice == "semijoin at first"
        assert "simple costs" in decision.reason
        return streams.join("t.key = a.alarm", **asked)

    # All offsets are kept, and only tuples make batches.
    settings = {"minBatchesToRetain": "100", "noDataMicroBatches.enabled": "false"}
    before = {name: spark.conf.get(f"spark.sql.streaming.{name}") for name in settings}
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.streaming.{name}", value)
    try:
        notes = ts.metrics(drain(joined(), tmp_path)).notes
        used = wholes(tmp_path / "checkpoint")
        assert len(used) == batches
        assert used[0] is False
        assert used[-1] is True
        assert used == sorted(used), "it changes once"
        counted = f"in {used.count(False)} batches and as whole ones in {used.count(True)}:"
        assert [note for note in notes if counted in note]
        assert [note for note in notes if "For tickets, whole tuples were chosen last" in note]
        # As if the driver had died in the last batch. Who starts anew would choose otherwise.
        for log in (tmp_path / "checkpoint" / "commits", tmp_path / "out" / "_spark_metadata"):
            for path in log.glob(f"*{batches - 1}*"):
                path.unlink()
        push(site.address, "tickets", tickets(rows * batches, 2 * rows))
        query = drain(joined(), tmp_path)
        loads = [load for batch in ts.metrics(query) for load in batch.sites if load.read_rows]
    finally:
        for name, old in before.items():
            spark.conf.set(f"spark.sql.streaming.{name}", str(old))
        proxy.close()
    assert [load.read_rows for load in loads] == [rows] * 3
    assert [load.partial_rows for load in loads[:2]] == [0, rows]
    assert wholes(tmp_path / "checkpoint")[:batches] == used
    sql = "SELECT t.id, t.payload, a.alarm, a.text FROM t, a WHERE t.key = a.alarm"
    expected = oracle(sql, t=tickets(0, (batches + 2) * rows), a=alarms(0, 100))
    assert len(expected) == (batches + 2) * rows
    assert results(tmp_path, "id, payload, alarm, text") == expected


def test_a_tuple_that_its_site_has_forgotten_stops_the_query(
    spark: SparkSession,
    start_site: Callable[..., Running],
    stream: Callable[..., DataFrame],
    tmp_path: Path,
) -> None:
    clock = Clock()
    site = start_site("packets", "at", retain=3 * 3_600_000_000, clock=clock)
    push(site.address, "packets", packets(0, 50))
    # Keys that no packet has, and then those of packets.
    folder = write_batches(tmp_path / "alarms", [alarms(0, 10, keys=1).slice(0, 1)])
    remote = ts.site(site.address).stream("packets")
    streams = ts.streams(p=remote, a=stream(folder, ALARMS))
    with pytest.raises(ts.WindowError, match="keeps tuples for 3 hours"):
        streams.join("p.k = a.k", within="2 hours", delay="2 hours", options=SEMIJOIN)
    joined = streams.join(
        "p.k = a.k AND a.level > 0", within="1 hour", delay="1 hour", options=SEMIJOIN
    )
    drain(joined, tmp_path)
    assert results(tmp_path) == []
    site.site.log("packets").seal()
    clock.wait(10 * 3_600_000_000)
    push(site.address, "packets", packets(50, 1))
    site.site.log("packets").maintain()
    write_batches(tmp_path / "alarms", [alarms(0, 20)], first=1)
    with pytest.raises(StreamingQueryException) as caught:
        drain(joined, tmp_path)
    assert "ForgottenError" in str(caught.value)
    assert f"the site {site.address} no longer has tuples of 'packets'" in str(caught.value)
    assert results(tmp_path) == [], "no result is given without its other half"
