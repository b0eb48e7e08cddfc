"""A query over a link that fails, to a site that is killed: exact, with changing transports."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as ts
from tests.conftest import oracle, results
from tests.spark.test_sites import COLUMNS, TIMED, push
from tests.transport.packets import alarms, packets
from tests.transport.proxy import Proxy
from tests.transport.test_kill import Process

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
