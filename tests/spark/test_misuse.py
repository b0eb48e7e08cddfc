"""Control directories and sites that are shared, restarted or used wrongly, on Spark."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

import thetastream as ts
from tests.conftest import drain, oracle, results, write_batches
from tests.spark.test_live import EQUALITY, SCHEMA, Live, equality, live, rows, until
from tests.spark.test_site_faults import free_port, start
from tests.spark.test_sites import SEMIJOIN, push, start_site
from tests.transport.conftest import Running
from tests.transport.packets import ALARMS, alarms, packets
from tests.transport.proxy import Proxy
from tests.transport.test_kill import Process

__all__ = ["live", "start_site"]

pytestmark = pytest.mark.spark


# -- control directories --------------------------------------------------------------------------


def beside(live: Live, name: str) -> StreamingQuery:
    """Another query over the same files with the same control directory."""
    frames = {
        stream: live.spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(live.root / stream))
        for stream in live.names
    }
    options = ts.JoinOptions(control=live.path, max_units=3, units=2)
    return start(equality(ts.streams(**frames), options), live.root / name)


def stopped(query: StreamingQuery) -> str:
    """What stops a query."""
    until(lambda: not query.isActive, 60)
    return str(query.exception())


def test_two_queries_with_one_directory(live: Live) -> None:
    """The first batch that begins claims it; the other query stops in its first batch."""
    live.start(equality, units=2)
    assert live.query is not None
    second = beside(live, "second")
    queries = {str(live.query.id): (live.query, live.root)}
    queries[str(second.id)] = second, live.root / "second"
    for stream, name in enumerate(live.names):
        write_batches(live.root / name, [rows(stream, n) for n in range(2)], first=live.given)
    live.given += 2
    claim = Path(live.path, "query.json")
    until(claim.exists, 60)
    owner, folder = queries.pop(json.loads(claim.read_text())["query"])
    ((other, _),) = queries.values()
    text = stopped(other)
    assert "ControlError" in text
    assert "is in use by another query" in text
    owner.processAllAvailable()
    owner.stop()
    assert results(folder, "r_id, s_id") == oracle(EQUALITY, **live.tables())


def test_what_belongs_to_the_tables_cannot_be_chosen_again(live: Live) -> None:
    subgroups = {"topology": "contrand", "units": 2}
    live.start(equality, subgroups=(2, 2), **subgroups)
    live.feed()
    live.stop()
    with pytest.raises(ts.ControlError, match="another query: topology differs"):
        live.start(equality, units=2)
    with pytest.raises(ts.OptionError, match=r"have the subgroups \(2, 2\), and not \(1, 1\)"):
        live.start(equality, subgroups=(1, 1), **subgroups)
    live.start(equality, **subgroups)
    live.feed()
    live.stop()
    assert results(live.root, "r_id, s_id") == oracle(EQUALITY, **live.tables())


# -- sites ----------------------------------------------------------------------------------------

WITHIN = "abs(epoch_us(p.at) - epoch_us(a.raised)) <= 2000000"
NEAR = f"SELECT p.id, p.payload, a.alarm, a.text FROM p, a WHERE p.k = a.k AND {WITHIN}"


@pytest.mark.parametrize("transport", ["simple", "semijoin"])
def test_a_site_that_is_killed_and_restarted_while_a_batch_is_read(
    stream: Callable[..., DataFrame], tmp_path: Path, transport: Any
) -> None:
    """On the same port, with the same folder: the batch gets its tuples, each once."""
    file = tmp_path / "site.toml"
    file.write_text(
        f'dir = "site"\nlisten = "127.0.0.1:{free_port()}"\n'
        '[streams.packets]\ntime = "at"\npush = true\n'
    )
    site = Process(file)
    proxy = Watched(int(site.address.rsplit(":", 1)[1]), rate=400_000.0)
    try:
        table = packets(0, 400, payload=1_000)
        push(site.address, "packets", table)
        folder = write_batches(tmp_path / "alarms", [alarms(0, 80)])
        remote = ts.site(f"grpc://{proxy.address}", patience=60.0).stream("packets")
        joined = ts.streams(p=remote, a=stream(folder, ALARMS)).join(
            "p.k = a.k",
            within="2 seconds",
            delay="1 hour",
            options=ts.JoinOptions(transport=transport),
        )
        proxy.watch(20_000 if transport == "simple" else 5_000)
        query = start(joined, tmp_path)
        assert proxy.reached.wait(60), "the query has not read so much"
        site.end(signal.SIGKILL)
        site = Process(file)
        query.processAllAvailable()
        query.stop()
    finally:
        proxy.close()
        site.end(signal.SIGTERM)
    expected = oracle(NEAR, p=table, a=alarms(0, 80))
    assert len(expected) > 50
    assert results(tmp_path, "id, payload, alarm, text") == expected


class Watched(Proxy):
    """Says when so many bytes more have come from the site."""

    def __init__(self, port: int, **link: Any) -> None:
        self.reached = threading.Event()
        self._mark: int | None = None
        super().__init__(port, **link)

    def watch(self, more: int) -> None:
        self._mark = self.passed + more

    def passing(self, data: bytes, *, up: bool) -> bytes:
        if self._mark is not None and self.passed > self._mark:
            self.reached.set()
        return super().passing(data, up=up)


def test_a_stream_of_a_site_in_two_queries_and_twice_in_one(
    start_site: Callable[..., Running], stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    site = start_site("packets", "at")
    # The first tuples decide the columns.
    push(site.address, "packets", packets(0, 1))
    folder = write_batches(tmp_path / "alarms", [alarms(0, 40)])
    remote = ts.site(site.address).stream("packets", max_rows=60)
    asked: dict[str, Any] = {"within": "2 seconds", "delay": "1 hour", "options": SEMIJOIN}
    twice = ts.streams(p=remote, q=remote).join("p.k = q.k AND p.size < q.size", **asked)
    other = ts.streams(p=remote, a=stream(folder, ALARMS)).join("p.k = a.k", **asked)
    for first, last in ((1, 100), (100, 200)):
        push(site.address, "packets", packets(first, last - first))
        # At the same time, both until the end of what there is.
        with ThreadPoolExecutor(2) as pool:
            running = [pool.submit(drain, twice, tmp_path / "twice")]
            running.append(pool.submit(drain, other, tmp_path / "other"))
            for query in running:
                query.result()
    table = packets(0, 200)
    both = oracle(
        "SELECT p.id, p.payload, q.id, q.payload FROM p, q WHERE p.k = q.k AND p.size < q.size"
        " AND abs(epoch_us(p.at) - epoch_us(q.at)) <= 2000000",
        p=table,
        q=table,
    )
    assert len(both) > 50
    assert results(tmp_path / "twice", "p_id, p_payload, q_id, q_payload") == both
    expected = oracle(NEAR, p=table, a=alarms(0, 40))
    assert results(tmp_path / "other", "id, payload, alarm, text") == expected


def test_a_site_that_forgets_before_another_stream_is_late_is_refused(
    start_site: Callable[..., Running], stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    """A row that is late by its own watermark, not by `delay`, makes the join fetch as well."""
    hour = 3_600_000_000
    site = start_site("packets", "at", retain=3 * hour)
    push(site.address, "packets", packets(0, 10))
    folder = write_batches(tmp_path / "alarms", [alarms(0, 10)])
    late = stream(folder, ALARMS).withWatermark("raised", "150 minutes")
    streams = ts.streams(p=ts.site(site.address).stream("packets"), a=late)
    for transport in ("semijoin", "auto"):
        with pytest.raises(ts.WindowError, match=r"for 3 hours.* up to 3 hours 30 minutes later"):
            streams.join(
                "p.k = a.k",
                within="1 hour",
                delay="1 minute",
                options=ts.JoinOptions(transport=transport),
            )
    # What travels whole is not fetched.
    whole = ts.JoinOptions(transport="simple")
    streams.join("p.k = a.k", within="1 hour", delay="1 minute", options=whole)
