"""Joins of streams that are at sites, over real sockets, against DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as ts
from tests.conftest import drain, oracle, results, write_batches
from tests.transport.conftest import Running
from tests.transport.packets import ALARMS, alarms, packets
from thetastream.transport.addresses import Address
from thetastream.transport.client import SiteClient
from thetastream.transport.config import SiteConfig, StreamConfig

pytestmark = pytest.mark.spark

PREDICATE = "p.k = a.k AND p.size > 20 AND (p.size + a.level) % 3 <> 1"
WITHIN = "abs(epoch_us(p.at) - epoch_us(a.raised)) <= 10000000"
COLUMNS = (
    "p.id, p.k AS p_k, p.size, p.payload, p.at, a.alarm, a.k AS a_k, a.level, a.raised, a.text"
)
TIMED = '* REPLACE (epoch_us("at") AS "at", epoch_us(raised) AS raised)'
"""Times as numbers, which are the same with and without a time zone."""
ORACLE = f"SELECT {TIMED} FROM (SELECT {COLUMNS} FROM p, a WHERE {PREDICATE} AND {WITHIN})"


@pytest.fixture
def start_site(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts sites, each in its own folder."""
    with ExitStack() as stack:

        def start(name: str, time: str, **more: Any) -> Running:
            streams = {name: StreamConfig(name, time)}
            address = Address("127.0.0.1", 0, False)
            found = Running(SiteConfig(tmp_path / f"site_{name}", address, streams, **more))
            stack.callback(found.stop)
            return found

        yield start


def push(running: Running, name: str, *tables: pa.Table) -> None:
    with SiteClient(running.address) as client:
        for table in tables:
            client.push(name, table)


def wire(query: Any) -> dict[tuple[str, str], int]:
    """Bytes from the sites, by stream and by what they were for."""
    found: dict[tuple[str, str], int] = {}
    for batch in ts.metrics(query):
        for load in batch.sites:
            found[load.stream, "read"] = found.get((load.stream, "read"), 0) + load.read_received
            found[load.stream, "fetch"] = found.get((load.stream, "fetch"), 0) + load.fetch_received
    return found


def test_simple_transport_is_exact_and_goes_on_after_a_restart(
    spark: SparkSession,
    start_site: Callable[..., Running],
    stream: Callable[..., DataFrame],
    tmp_path: Path,
) -> None:
    site = start_site("packets", "at")
    push(site, "packets", packets(0, 200))
    first, second = alarms(0, 60), alarms(60, 60)
    folder = write_batches(tmp_path / "alarms", [first])
    remote = ts.site(site.address).stream("packets", max_rows=200)
    joined = ts.streams(p=remote, a=stream(folder, ALARMS)).join(
        PREDICATE, within="10 seconds", delay="1 hour"
    )
    assert joined.columns[:5] == ["id", "p_k", "size", "payload", "at"]
    drain(joined, tmp_path)
    push(site, "packets", packets(200, 250))
    write_batches(tmp_path / "alarms", [second], first=1)
    query = drain(joined, tmp_path)
    expected = oracle(ORACLE, p=packets(0, 450), a=pa.concat_tables([first, second]))
    assert len(expected) > 100
    assert results(tmp_path, TIMED) == expected
    assert wire(query)["packets", "read"] > 0
    assert wire(query)["packets", "fetch"] == 0


def test_semijoin_of_two_sites_is_exact_and_goes_on_after_a_restart(
    spark: SparkSession, start_site: Callable[..., Running], tmp_path: Path
) -> None:
    first, second = start_site("packets", "at"), start_site("alarms", "raised")
    push(first, "packets", packets(0, 300))
    push(second, "alarms", alarms(0, 60))
    streams = ts.streams(
        p=ts.site(first.address).stream("packets"), a=ts.site(second.address).stream("alarms")
    )
    options = ts.JoinOptions(transport="semijoin")
    asked: dict[str, Any] = {"within": "10 seconds", "delay": "1 hour", "options": options}
    plan = streams.explain(PREDICATE, **asked)
    assert [(one.name, one.columns) for one in plan.travels] == [
        ("p", ("k", "size", "at")),
        ("a", ("k", "level", "raised")),
    ]
    joined = streams.join(PREDICATE, **asked)
    drain(joined, tmp_path)
    push(first, "packets", packets(300, 300))
    push(second, "alarms", alarms(60, 60))
    query = drain(joined, tmp_path)
    expected = oracle(ORACLE, p=packets(0, 600), a=alarms(0, 120))
    assert results(tmp_path, TIMED) == expected
    found = wire(query)
    assert found["packets", "fetch"] > 0
    assert found["alarms", "fetch"] > 0
