"""Sites as joins are given them: what is refused, and what is never shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

import thetastream as ts
from tests.transport.conftest import Running
from tests.transport.packets import alarms, packets
from tests.transport.test_service import certificate
from thetastream.api import remotes, transports
from thetastream.api.sites import remote_of
from thetastream.arrow import converted
from thetastream.planner import SiteFacts, plan_join
from thetastream.runtime.sitesource import _stream_reader, spark_schema
from thetastream.spec import ColumnSpec
from thetastream.testing.duck import DuckAnalyst, column_specs
from thetastream.transport.addresses import TOKEN_VARIABLE, Address
from thetastream.transport.choosing import ASSUMED_LINK, Chooser, assumed
from thetastream.transport.config import SiteConfig, StreamConfig
from thetastream.transport.estimate import Estimate
from thetastream.transport.feed import MOST_ROWS
from thetastream.transport.messages import NUMBER

TOKEN = "a-token-of-32-characters-0123456"
PUSH_TOKEN = "another-token-of-32-characters-01"
MINUTE = 60_000_000


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    with ExitStack() as stack:

        def run(**more: Any) -> Running:
            streams = {"packets": StreamConfig("packets", "at")}
            found = Running(
                SiteConfig(
                    tmp_path / "site", Address("127.0.0.1", 0, "tls_cert" in more), streams, **more
                )
            )
            stack.callback(found.stop)
            return found

        yield run


def test_the_token_comes_from_a_file_or_the_environment_and_is_not_shown(
    start: Callable[..., Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = start(read_token=TOKEN, push_token=PUSH_TOKEN).address
    with ts.SiteClient(address, token=PUSH_TOKEN) as client:
        client.push("packets", packets(0, 10))
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    found = [ts.site(address, token_file=file), ts.site(address, token=TOKEN)]
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    found.append(ts.site(address))
    for one in found:
        stream = one.stream("packets")
        assert stream.schema.names == ["id", "k", "size", "payload", "at"]
        assert TOKEN not in f"{one!r} {stream!r} {vars(one)!r} {vars(remote_of(stream))!r}"
    monkeypatch.delenv(TOKEN_VARIABLE)
    with pytest.raises(ts.SiteRequestError, match="refuses the token"):
        ts.site(address).stream("packets")


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"address": "10.0.0.7:8815"}, "another machine"),
        ({"address": "grpc+tls://10.0.0.7:8815"}, "another machine"),
        ({"address": "somewhere"}, "not a host and a port"),
        ({"token": TOKEN, "token_file": "t"}, "a token and a token file"),
        ({"token_file": "/none/token"}, "cannot be read"),
        ({"tls_root": "/none/roots.pem"}, "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_site_is_said_at_once(given: dict[str, Any], match: str) -> None:
    with pytest.raises(ts.OptionError, match=match):
        ts.site(**({"address": "127.0.0.1:1"} | given))


def test_a_stream_that_cannot_be_joined_is_refused(start: Callable[..., Running]) -> None:
    running = start()
    site = ts.site(running.address)
    with pytest.raises(ts.SiteRequestError, match="no tuples yet"):
        site.stream("packets")
    with pytest.raises(ts.SiteRequestError, match="no stream 'rides'"):
        site.stream("rides")
    with pytest.raises(ts.OptionError, match="max_rows"):
        site.stream("packets", max_rows=0)
    table = pa.table({"at": packets(0, 1).column("at"), "n": pa.array([1], pa.uint64())})
    with ts.SiteClient(running.address) as client:
        client.push("packets", table)
    with pytest.raises(ts.UnsupportedColumnError, match=r"'n' .* uint64"):
        site.stream("packets")


def planned(**given: Any) -> Any:
    tables = {"p": packets(0, 1), "a": alarms(0, 1)}
    specs = {name: column_specs(table.schema) for name, table in tables.items()}
    specs["p"].append(ColumnSpec(name=NUMBER, type="bigint"))
    options = ts.JoinOptions(transport=given.pop("transport", "semijoin"), full_history=True)
    return plan_join(
        streams=specs,
        predicate="p.k = a.k",
        time={"p": "at", "a": "raised"},
        options=options,
        analyst=DuckAnalyst.of(specs),
        sites={"p": SiteFacts(sizes=dict.fromkeys(tables["p"].column_names, 8.0))},
        **given,
    )


def test_a_retention_that_is_too_short_is_refused(start: Callable[..., Running]) -> None:
    running = start(retain=10 * MINUTE)
    with ts.SiteClient(running.address) as client:
        client.push("packets", packets(0, 10))
    remote = ts.site(running.address).stream("packets")
    assert remote.retain == timedelta(minutes=10)
    stream = remote_of(remote)
    fits = planned(within="5 minutes")
    stream.check_retention(fits.tree, fits.travels[0], 5 * MINUTE)
    with pytest.raises(ts.WindowError, match="keeps tuples for 10 minutes"):
        stream.check_retention(fits.tree, fits.travels[0], 6 * MINUTE)
    for transport in ("semijoin", "auto"):
        forever = planned(transport=transport)
        with pytest.raises(ts.WindowError, match="nothing limits"):
            stream.check_retention(forever.tree, forever.travels[0], 0)
    simple = planned(within="1 hour", transport="simple")
    stream.check_retention(simple.tree, simple.travels[0], 0)


def test_an_unknown_transport_is_refused() -> None:
    with pytest.raises(ts.OptionError, match="unknown transport"):
        ts.JoinOptions(transport="pigeon")  # type: ignore[arg-type]


def test_auto_shows_both_costs_and_the_reason() -> None:
    text = planned(within="1 minute", transport="auto").explain()
    assert "transport of p" in text
    assert "simple costs" in text
    assert "of the tuples match" in text


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[1, 2], None]),
        pa.array([[1], []], pa.large_list(pa.int64())),
        pa.array([[("a", ["x"])], None], pa.map_(pa.string(), pa.list_(pa.large_string()))),
        pa.array([{"x": 1, "y": [1.0]}, None]),
        pa.array([1_001_000, None], pa.timestamp("ns", tz="Europe/Berlin")),
        pa.array([1, None], pa.timestamp("s")),
        pa.array(["a", None], pa.large_string()),
        pa.array([b"a", None], pa.large_binary()),
        pa.array([1, None], pa.date32()),
        pa.array([1.5, None], pa.float32()),
    ],
    ids=lambda values: str(values.type),
)
def test_all_types_of_sites_become_types_of_spark(values: pa.Array) -> None:
    batch = pa.record_batch({"x": values})
    target = to_arrow_schema(spark_schema("s", batch.schema), timezone="UTC")
    found = converted(batch, target)
    assert found.schema.equals(target)
    if pa.types.is_timestamp(values.type):
        assert found.column(0).cast(pa.int64())[0].as_py() in (1_001, 1_000_000)
    else:
        assert found.column(0).to_pylist() == values.to_pylist()


def test_a_site_is_reached_over_tls(start: Callable[..., Running], tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    own = certificate(tmp_path, "client")
    address = start(
        read_token=TOKEN,
        push_token=PUSH_TOKEN,
        tls_cert=cert,
        tls_key=key,
        tls_client_ca=own[0],
    ).address
    roots = tmp_path / "localhost.pem"
    with ts.SiteClient(
        address, token=PUSH_TOKEN, tls_roots=cert, tls_cert=own[0], tls_key=own[1]
    ) as client:
        client.push("packets", packets(0, 10))
    key_file = tmp_path / "client.key"
    files = {"tls_root": roots, "tls_cert": tmp_path / "client.pem", "tls_key": key_file}
    key_file.chmod(0o644)
    with pytest.raises(ts.OptionError, match="can be read by others"):
        ts.site(address, token=TOKEN, **files)
    key_file.chmod(0o600)
    stream = ts.site(address, token=TOKEN, **files).stream("packets")
    assert own[1].decode() not in f"{vars(remote_of(stream))!r}"
    assert remote_of(stream).facts().sizes["id"] == 8


def test_a_backlog_comes_in_batches_of_a_million(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What gathered while a query stood still does not come as one batch, unless that is asked."""
    monkeypatch.setattr(remotes, "parallelism", lambda _: SimpleNamespace(tasks=2))
    running = start()
    rows = MOST_ROWS + 1_000
    times = pa.array(np.arange(rows)).cast(pa.timestamp("us"))
    with ts.SiteClient(running.address) as client:
        client.push("packets", pa.table({"at": times}))

    def batches(**more: Any) -> list[int]:
        stream = ts.site(running.address).stream("packets", **more)
        feed = remote_of(stream)._feed(None, ("at",))
        reader = _stream_reader(feed, spark_schema("packets", feed.schema))
        try:
            places = [reader.initialOffset()]
            while places[-1]["number"] < rows:
                places.append(reader.latestOffset(places[-1], reader.getDefaultReadLimit()))
            return [place["number"] for place in places[1:]]
        finally:
            reader.stop()

    assert batches() == [MOST_ROWS, rows]
    assert batches(max_rows=600_000) == [600_000, rows]
    assert batches(max_rows=None) == [rows]


def test_notes_tell_what_was_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chooser = Chooser(Estimate(assumed(ASSUMED_LINK, 30, 1_000)), "semijoin", tmp_path / "choice")
    read = {"what": "read", "rows": 100, "sent": 9, "received": 3_000, "whole": False}
    fetch = {"what": "fetch", "rows": 100, "sent": 9, "received": 100_000, "hits": 0, "matched": 0}
    for _ in range(5):
        chooser.heard(1.0, [read | {"seconds": 0.02}, fetch | {"seconds": 0.1}])
    listener = transports._Listener()
    listener.choosers["f"] = chooser
    monkeypatch.setattr(transports, "_LISTENERS", {object(): listener})
    whole = ts.SiteLoad(site="s", stream="packets", read_rows=100, feed="f")
    partial = replace(whole, partial_rows=100)
    changed, last = transports.transport_notes([[partial], [partial], [whole], []])
    assert "packets came as partial tuples in 2 batches and as whole ones in 1:" in changed
    assert "For packets, whole tuples were chosen last" in last
    assert chooser.last is not None
    assert chooser.last.reason in last
    # A query of another process, and one whose transport is fixed, have none.
    assert list(transports.transport_notes([[replace(partial, feed="g")]])) == []
