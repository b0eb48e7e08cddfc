"""The transport of a stream follows what its batches measure."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.transport.conftest import Running
from tests.transport.packets import packets
from thetastream.transport.access import Access
from thetastream.transport.choosing import ASSUMED_LINK, Chooser, assumed, counts
from thetastream.transport.client import SiteClient
from thetastream.transport.config import StreamConfig
from thetastream.transport.estimate import Estimate
from thetastream.transport.feed import PARTIAL, WHOLE, Feed, Follower
from thetastream.transport.sampling import ASSUMED_TEXT, sample

PARTIAL_BYTES, FULL_BYTES, RATE = 30, 60, 2e6


def batch(chooser: Chooser, matches: float, rows: int = 10_000) -> list[dict[str, Any]]:
    """What the tasks of a batch report on a link of 2 MB/s, with the transport of the moment."""
    whole = chooser.now == "simple"
    size = rows * (FULL_BYTES if whole else PARTIAL_BYTES)
    found = int(rows * matches)
    read = {"what": "read", "rows": rows, "sent": 300, "received": size, "whole": whole}
    fetch = {"what": "fetch", "rows": 0, "sent": 0, "received": 0, "hits": 0, "matched": 0}
    if whole:
        fetch["matched"] = found
    else:
        rest = found * (FULL_BYTES - PARTIAL_BYTES + 8)
        fetch |= {"rows": found, "sent": found * 3, "received": rest}
    return [
        read | {"seconds": 0.01 + size / RATE},
        fetch | {"seconds": 0.01 + int(str(fetch["received"])) / RATE},
    ]


@pytest.fixture
def chooser(tmp_path: Path) -> Chooser:
    known = assumed(ASSUMED_LINK, PARTIAL_BYTES, FULL_BYTES - PARTIAL_BYTES)
    return Chooser(Estimate(known), "semijoin", tmp_path / "choice")


def test_the_choice_follows_the_match_rate(chooser: Chooser) -> None:
    for _ in range(5):
        chooser.heard(8.0, batch(chooser, 0.01))
    assert chooser.now == "semijoin"
    assert not chooser.path.exists()
    for _ in range(40):
        chooser.heard(8.0, batch(chooser, 1.0))
    assert chooser.now == "simple"
    assert chooser.path.read_text() == WHOLE
    assert stat.S_IMODE(chooser.path.stat().st_mode) == 0o600
    for _ in range(60):
        chooser.heard(8.0, batch(chooser, 0.01))
    assert chooser.now == "semijoin"
    assert chooser.path.read_text() == PARTIAL
    assert chooser.last is not None
    assert "match" in chooser.last.reason


def test_the_tasks_of_a_batch_are_counted_together() -> None:
    reads = [
        {"what": "read", "rows": 5, "sent": 1, "received": 10, "whole": False, "seconds": 0.5},
        {"what": "read", "rows": 6, "sent": 1, "received": 20, "whole": False, "seconds": 0.7},
    ]
    fetch = {"what": "fetch", "rows": 3, "sent": 4, "received": 9, "hits": 2, "matched": 1}
    found = counts(2.0, [*reads, fetch | {"seconds": 0.1}])
    assert (found.partial.rows, found.partial.bytes, found.partial.messages) == (11, 32, 1)
    assert (found.partial.seconds, found.full.rows) == (0.7, 0)
    assert (found.fetched.rows, found.asked, found.hits, found.matched) == (3, 4, 2, 1)


@pytest.fixture
def site(run_site: Callable[..., Running], connect: Callable[..., SiteClient]) -> Running:
    found = run_site(streams={"packets": StreamConfig("packets", "at")})
    connect(found.address).push("packets", packets(0, 300))
    return found


def test_the_choice_of_a_batch_is_part_of_its_offset(
    site: Running, connect: Callable[..., SiteClient], tmp_path: Path
) -> None:
    info = connect(site.address).stream("packets")
    path = tmp_path / "choice"
    feed = Feed(
        access=Access(address=site.address),
        stream="packets",
        id=info.id,
        schema=info.schema,
        columns=("k", "at"),
        rest=("payload",),
        numbered=True,
        choice=str(path),
    )
    follower = Follower(feed)
    start = follower.initial()
    first = follower.latest(start, 100)
    path.write_text(WHOLE)
    second = follower.latest(first, 100)
    assert (first["whole"], second["whole"]) == (False, True)
    # A batch that runs again goes by its offset, whatever has been chosen since.
    assert [part.whole for part in follower.parts(start, first)] == [False]
    assert [part.whole for part in follower.parts(first, second)] == [True]
    follower.close()


def test_a_sample_tells_the_sizes_of_columns(
    site: Running, connect: Callable[..., SiteClient]
) -> None:
    info = connect(site.address).stream("packets")
    assert info.schema is not None
    sizes, link = sample(Access(address=site.address), info, info.schema)
    assert sizes["id"] == 8
    assert 150 < sizes["payload"] < 210
    assert link.latency > 0
    forgotten = replace(info, first=info.next)
    none = sample(Access(address=site.address), forgotten, info.schema)[0]
    assert (none["id"], none["payload"]) == (8, ASSUMED_TEXT)
