"""Joins of streams that are at sites, over real sockets, against DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import thetastream as ts
from tests.conftest import drain, oracle, results, write_batches
from tests.transport.conftest import Running
from tests.transport.packets import ALARMS, alarms, packets
from thetastream.api.wires import added
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


TOKEN = "a-token-of-32-characters-0123456"
PUSH_TOKEN = "another-token-of-32-characters-01"
SIMPLE = ts.JoinOptions(transport="simple")
SEMIJOIN = ts.JoinOptions(transport="semijoin")


@pytest.fixture
def start_site(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts sites, each in its own folder."""
    with ExitStack() as stack:

        def start(name: str, time: str, **more: Any) -> Running:
            streams = {name: StreamConfig(name, time)}
            address = Address("127.0.0.1", 0, False)
            clock = more.pop("clock", None)
            config = SiteConfig(tmp_path / f"site_{name}", address, streams, **more)
            found = Running(config, clock)
            stack.callback(found.stop)
            return found

        yield start


def push(address: str, name: str, table: pa.Table, token: str | None = None) -> None:
    with SiteClient(address, token=token) as client:
        client.push(name, table)


def total(query: StreamingQuery) -> dict[str, ts.SiteLoad]:
    """What went over the wire in all batches, by stream."""
    found = added(load for batch in ts.metrics(query) for load in batch.sites)
    return {load.stream: load for load in found}


def test_simple_transport_is_exact_and_goes_on_after_a_restart(
    start_site: Callable[..., Running],
    stream: Callable[..., DataFrame],
    tmp_path: Path,
) -> None:
    site = start_site("packets", "at")
    push(site.address, "packets", packets(0, 200))
    folder = write_batches(tmp_path / "alarms", [alarms(0, 60)])
    remote = ts.site(site.address).stream("packets", max_rows=200)
    joined = ts.streams(p=remote, a=stream(folder, ALARMS)).join(
        PREDICATE, within="10 seconds", delay="1 hour", options=SIMPLE
    )
    assert joined.columns[:5] == ["id", "p_k", "size", "payload", "at"]
    drain(joined, tmp_path)
    push(site.address, "packets", packets(200, 250))
    write_batches(tmp_path / "alarms", [alarms(60, 60)], first=1)
    query = drain(joined, tmp_path)
    expected = oracle(ORACLE, p=packets(0, 450), a=alarms(0, 120))
    assert len(expected) > 100
    assert results(tmp_path, TIMED) == expected
    load = total(query)["packets"]
    assert 0 < load.read_rows < 250, "the site drops what the filter drops"
    assert load.fetched_rows == load.partial_rows == 0
    assert sum(batch.rows_in for batch in ts.metrics(query)) == load.read_rows + 60


def test_semijoin_of_two_sites_is_exact_and_shows_no_token(
    spark: SparkSession, start_site: Callable[..., Running], tmp_path: Path
) -> None:
    first = start_site("packets", "at", read_token=TOKEN, push_token=PUSH_TOKEN)
    second = start_site("alarms", "raised", read_token=TOKEN, push_token=PUSH_TOKEN)
    push(first.address, "packets", packets(0, 300), PUSH_TOKEN)
    push(second.address, "alarms", alarms(0, 60), PUSH_TOKEN)
    streams = ts.streams(
        p=ts.site(first.address, token=TOKEN).stream("packets"),
        a=ts.site(second.address, token=TOKEN).stream("alarms"),
    )
    asked: dict[str, Any] = {"within": "10 seconds", "delay": "1 hour", "options": SEMIJOIN}
    plan = streams.explain(PREDICATE, **asked)
    assert [(one.name, one.columns) for one in plan.travels] == [
        ("p", ("k", "size", "at")),
        ("a", ("k", "level", "raised")),
    ]
    joined = streams.join(PREDICATE, **asked)
    drain(joined, tmp_path)
    push(first.address, "packets", packets(300, 300), PUSH_TOKEN)
    push(second.address, "alarms", alarms(60, 60), PUSH_TOKEN)
    query = drain(joined, tmp_path)
    expected = oracle(ORACLE, p=packets(0, 600), a=alarms(0, 120))
    assert results(tmp_path, TIMED) == expected
    found = total(query)
    assert found["packets"].fetched_rows > 0
    assert found["alarms"].fetched_rows > 0
    assert found["alarms"].partial_rows == found["alarms"].read_rows == 60
    # Nowhere that others look: plans, checkpoints, the arguments of processes.
    shown = [str(joined._jdf.queryExecution().toString()), str(plan), repr(streams)]
    shown += [path.read_text(errors="replace") for path in _files(tmp_path / "checkpoint")]
    shown += [path.read_text(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert not [text for text in shown if TOKEN in text]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("transport", ["semijoin", "auto"])
def test_three_streams_two_of_them_at_sites(
    start_site: Callable[..., Running],
    stream: Callable[..., DataFrame],
    tmp_path: Path,
    transport: Any,
) -> None:
    first, second = start_site("packets", "at"), start_site("alarms", "raised")
    push(first.address, "packets", packets(0, 300))
    push(second.address, "alarms", alarms(0, 60))
    near = alarms(0, 60).rename_columns(["near", "k", "level", "raised", "text"])
    folder = write_batches(tmp_path / "near", [near[:30], near[30:]])
    streams = ts.streams(
        p=ts.site(first.address).stream("packets", max_rows=150),
        a=ts.site(second.address).stream("alarms", max_rows=30),
        n=stream(folder, ALARMS.replace("alarm", "near", 1)),
    )
    joined = streams.join(
        "p.k = a.k AND a.level = n.level AND n.near <= 40",
        within="3 seconds",
        delay="1 hour",
        options=ts.JoinOptions(transport=transport),
    )
    drain(joined, tmp_path)
    times = "epoch_us(p.at), epoch_us(a.raised), epoch_us(n.raised)"
    expected = oracle(
        "SELECT p.id, p.payload, a.alarm, a.text, n.near, n.text FROM p, a, n WHERE p.k = a.k AND"
        " a.level = n.level AND n.near <= 40 AND"
        f" greatest({times}) - least({times}) <= 3000000",
        p=packets(0, 300),
        a=alarms(0, 60),
        n=near,
    )
    assert len(expected) > 50
    assert results(tmp_path, "id, payload, alarm, a_text, near, n_text") == expected


def test_an_aggregate_fetches_nothing(
    spark: SparkSession, start_site: Callable[..., Running]
) -> None:
    first, second = start_site("packets", "at"), start_site("alarms", "raised")
    push(first.address, "packets", packets(0, 300))
    push(second.address, "alarms", alarms(0, 60))
    p = ts.site(first.address).stream("packets", batch=True)
    a = ts.site(second.address).stream("alarms", batch=True)
    text = (
        "SELECT a.level, count(*) AS pairs, sum(p.size) AS bytes FROM p, a"
        " WHERE p.k = a.k AND p.size > 20 GROUP BY a.level"
    )
    streams = ts.streams(p=p, a=a)
    plan = streams.explain(text, options=SEMIJOIN)
    assert [(one.columns, one.fetched) for one in plan.travels] == [
        (("k", "size"), ()),
        (("k", "level"), ()),
    ]
    found = streams.sql(text, options=SEMIJOIN).collect()
    expected = oracle(text, p=packets(0, 300), a=alarms(0, 60))
    assert sorted((tuple(map(int, row)) for row in found), key=repr) == [
        tuple(map(int, row)) for row in expected
    ]


def test_what_does_not_recover_stops_the_query_by_name(
    spark: SparkSession,
    start_site: Callable[..., Running],
    stream: Callable[..., DataFrame],
    tmp_path: Path,
) -> None:
    site = start_site("packets", "at")
    push(site.address, "packets", packets(0, 10))
    remote = ts.site(site.address, patience=0.5).stream("packets")
    folder = write_batches(tmp_path / "alarms", [alarms(0, 10)])
    joined = ts.streams(p=remote, a=stream(folder, ALARMS)).join(
        PREDICATE, within="10 seconds", delay="1 hour"
    )
    site.stop()
    with pytest.raises(StreamingQueryException) as caught:
        drain(joined, tmp_path)
    assert "SiteUnreachableError" in str(caught.value)
    assert f"the site {site.address} does not answer" in str(caught.value)
