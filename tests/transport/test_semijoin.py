"""Joins of partial tuples whose rest is fetched from a site: in process, against DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.transport.conftest import Running
from tests.transport.packets import alarms, packets
from tests.transport.proxy import Proxy
from tests.transport.sited import (
    NUMBER_SPEC,
    STREAMS,
    TIMES,
    Sited,
    Wires,
    facts_of,
    infos_of,
)
from tests.transport.tuples import Clock
from thetastream.errors import ForgottenError, SiteChangedError, UnknownColumnError
from thetastream.options import JoinOptions
from thetastream.planner import SiteFacts
from thetastream.runtime.cachefiles import CacheFiles
from thetastream.testing.duck import query
from thetastream.testing.inprocess import (
    CRASH,
    RESTART,
    Batch,
    expected_rows,
    multiset,
    rows_in,
)
from thetastream.testing.queries import InProcessQuery
from thetastream.transport import fetching
from thetastream.transport.access import Access
from thetastream.transport.choosing import Chooser, assumed
from thetastream.transport.client import SiteStream
from thetastream.transport.config import StreamConfig
from thetastream.transport.estimate import Estimate
from thetastream.transport.feed import Follower
from thetastream.transport.messages import NUMBER
from thetastream.transport.sampling import sample


@pytest.fixture
def site(run_site: Callable[..., Running], connect: Callable[..., Any]) -> Running:
    """A site with 400 tuples of each stream."""
    found = run_site(streams=STREAMS)
    client = connect(found.address)
    client.push("packets", packets(0, 400))
    client.push("alarms", alarms(0, 400))
    return found


CASES = [
    ("p.k = a.k AND p.size > 20", {"p": "packets", "a": "alarms"}, {}),
    ("p.k = a.k AND (p.size + a.level) % 3 <> 1", {"p": "packets", "a": "alarms"}, {}),
    ("abs(p.size - a.level) <= 1 AND a.level BETWEEN 2 AND 5", {"p": "packets", "a": "alarms"}, {}),
    ("p.size < a.level AND p.k = 3", {"p": "packets", "a": "alarms"}, {}),
    ("p.k = q.size AND p.payload < q.payload", {"p": "packets", "q": "packets"}, {}),
    ("p.k = a.k AND a.level = q.size", {"p": "packets", "a": "alarms", "q": "packets"}, {}),
    ("p.k = a.k AND a.k = q.k AND p.size = q.size",
     {"p": "packets", "a": "alarms", "q": "packets"}, {}),
    ("p.k = a.k AND a.level = q.size", {"p": "packets", "a": "alarms", "q": "packets"},
     {"scheme": "tree"}),
    ("p.k = a.k AND a.k = b.k AND b.level = q.size",
     {"p": "packets", "a": "alarms", "b": "alarms", "q": "packets"}, {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("predicate", "names", "how", "transport"),
    [
        *((*case, "semijoin") for case in CASES),
        *((*case, "auto") for case in CASES[:3] + CASES[-1:]),
        *((*case, "simple") for case in CASES[:2]),
    ],
)
def test_both_transports_are_exact(
    site: Running, predicate: str, names: dict[str, str], how: dict[str, Any], transport: str
) -> None:
    within = "5 seconds"
    sited = Sited(site, predicate, names, within=within, transport=transport, **how)
    rows = sited.play([100, 130, 400], None, RESTART, CRASH)
    tables = [packets(0, 400) if one == "packets" else alarms(0, 400) for one in names.values()]
    times = {name: TIMES[name] for name in names}
    expected = expected_rows(
        predicate, [Batch(*tables)], names=list(names), within=within, time=times
    )
    assert expected
    assert multiset(rows) == multiset(expected)
    assert bool(sited.fetched) == (transport != "simple")


QUERIES = [
    ("SELECT p.id, a.text, p.size + a.level AS both FROM p, a WHERE p.k = a.k WITHIN 5 seconds",
     [["id", "size"], ["text", "level"]]),
    ("SELECT p.k, p.payload FROM p, a WHERE p.k = a.k AND a.level > 2 WITHIN 5 seconds",
     [["payload"], []]),
    ("SELECT p.k, a.level FROM p, a WHERE p.k = a.k AND a.level > 2 WITHIN 5 seconds", [[], []]),
    ("SELECT a.level, count(*) AS n, sum(p.size) AS total FROM p, a WHERE p.k = a.k"
     " WITHIN 5 seconds GROUP BY a.level", [[], []]),
    ("SELECT a.level, max(p.id) AS newest FROM p, a WHERE p.k = a.k AND (p.size + a.level) % 3 = 1"
     " WITHIN 5 seconds GROUP BY a.level", [[], []]),
]  # fmt: skip


@pytest.mark.parametrize("transport", ["semijoin", "auto"])
@pytest.mark.parametrize(("text", "fetched"), QUERIES)
def test_queries_fetch_what_they_select(
    site: Running, text: str, fetched: list[list[str]], transport: Any
) -> None:
    names = {"p": "packets", "a": "alarms"}
    infos = infos_of(site, names)
    running = InProcessQuery(
        text,
        {name: info.schema for name, info in infos.items()},
        time={name: TIMES[name] for name in names},
        options=JoinOptions(transport=transport),
        sites={name: facts_of(info) for name, info in infos.items()},
        hidden=NUMBER_SPEC,
    )
    wires = Wires(site, infos, running.plan)
    columns = [[column for column, _ in one.fetched] for one in running.plan.travels]
    assert [sorted(one) for one in columns] == [sorted(one) for one in fetched]
    for start in range(0, 400, 200):
        tables = wires.tables(start, start + 200, whole=start > 0)
        found = running.results(Batch(*tables))
        running.take(wires.complete(found) if wires.errands else found)
    within = "abs(epoch_us(p.at) - epoch_us(a.raised)) <= 5000000"
    sql = text.replace(" WITHIN 5 seconds", f" AND {within}")
    expected = query(sql, p=packets(0, 400), a=alarms(0, 400))
    assert expected.num_rows
    assert _plain(running.rows()) == _plain(rows_in(expected))


def _plain(rows: list[tuple[Any, ...]]) -> Any:
    """Sums are decimals here and integers there."""
    return multiset(
        tuple(int(value) if isinstance(value, Decimal) else value for value in row) for row in rows
    )


def test_the_partial_tuple_is_what_the_join_looks_at(site: Running) -> None:
    names = {"p": "packets", "a": "alarms"}
    predicate = "p.k = a.k AND p.size > 20 AND a.text <> 'none'"
    plan = Sited(site, predicate, names, within="5 seconds").plan
    first, second = plan.travels
    assert (first.columns, second.columns) == (("k", "size", "at"), ("k", "raised", "text"))
    assert [name for name, _ in first.fetched] == ["id", "payload"]
    assert [name for name, _ in second.fetched] == ["alarm", "level"]
    assert first.where == {"op": ">", "left": {"column": "size"}, "right": {"value": 20}}
    assert second.where == {"op": "!=", "left": {"column": "text"}, "right": {"value": "none"}}
    text = plan.explain()
    assert "transport of p" in text
    assert "id, payload is fetched" in text


def test_a_tuple_is_fetched_once_while_it_is_kept(site: Running) -> None:
    fetching._KEPT.clear()
    names = {"p": "packets", "a": "alarms"}
    sited = Sited(site, "p.k = a.k", names, within="5 seconds")
    numbers = []
    for end in range(40, 401, 40):
        for found in sited.join.play([Batch(*sited.tables(end - 40, end))]):
            before = sum(kept.rows for kept in fetching._KEPT.values())
            sited.completed(found)
            numbers.append(sum(kept.rows for kept in fetching._KEPT.values()) - before)
    rows = Sited(site, "p.k = a.k", names, within="5 seconds").play([400])
    distinct = len({row[0] for row in rows}) + len({row[5] for row in rows})
    assert sum(numbers) == distinct


def test_what_is_kept_has_a_bound() -> None:
    kept = fetching.Kept(most_bytes=10_000)
    for first in range(0, 2_000, 10):
        rows = pa.record_batch({NUMBER: np.arange(first, first + 10), "x": ["y" * 50] * 10})
        kept.find(np.array([first], dtype=np.int64))
        kept.add(rows)
        found, left = kept.find(np.arange(first, first + 10))
        assert not len(left)
        assert sum(batch.num_rows for batch in found) == 10
    assert 10 <= kept.rows < 400


def test_workers_of_a_host_share_what_they_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    one, two = (fetching.Kept(shelf=CacheFiles("abc-0", 1_000_000)) for _ in range(2))
    for first in (0, 100, 200):
        numbers = np.arange(first, first + 100, 2)
        one.add(pa.record_batch({NUMBER: numbers, "x": [f"tuple {n}" for n in numbers]}))
    wanted = np.array([2, 3, 150, 198, 202, 900])
    found, left = two.find(wanted)
    assert left.tolist() == [3, 900]
    rows = [row for batch in found for row in batch.column("x").to_pylist()]
    assert sorted(rows) == ["tuple 150", "tuple 198", "tuple 2", "tuple 202"]
    # A file that was read is not read again, and one that is damaged counts as gone.
    (folder,) = tmp_path.glob("*/abc-0")
    for path in list(folder.iterdir()):
        path.unlink()
        path.write_bytes(b"x")
    assert two.find(wanted)[1].tolist() == [3, 900]
    assert fetching.Kept(shelf=CacheFiles("abc-0", 1_000_000)).find(wanted)[0] == []


def test_what_is_kept_goes_half_by_half() -> None:
    """Also when it has been put together: the newest tuples stay."""
    kept = fetching.Kept(most_bytes=100_000)
    for first in range(0, 4_000, 10):
        numbers = np.arange(first, first + 10)
        kept.add(pa.record_batch({NUMBER: numbers, "x": ["y" * 92] * 10}))
        newest = np.arange(max(0, first - 200), first + 10)
        assert not len(kept.find(newest)[1]), first
    assert kept.rows < 1_100


@pytest.mark.parametrize("used", [None, 0])
def test_what_was_used_last_is_kept(used: int | None) -> None:
    """Wherever it is among the pieces that are kept."""
    kept = fetching.Kept(most_bytes=16_000)
    kept.add(pa.record_batch({NUMBER: np.arange(900), "x": np.arange(900)}))
    if used is not None:
        kept.find(np.array([used]))
    kept.add(pa.record_batch({NUMBER: np.arange(1_000, 1_700), "x": np.arange(700)}))
    kept.add(pa.record_batch({NUMBER: np.arange(2_000, 2_100), "x": np.arange(100)}))
    assert 0 < kept.rows * 16 <= 16_000
    assert not len(kept.find(np.arange(2_000, 2_100))[1])


def test_what_is_remembered_of_matches_is_bounded() -> None:
    """Many calls with many numbers each."""
    seen = fetching.Kept(most_bytes=100_000)
    for first in range(0, 200_000, 1_000):
        assert fetching._first_seen(seen, np.arange(first, first + 1_000)) == 1_000
        assert fetching._first_seen(seen, np.arange(first, first + 1_000)) == 0
    assert 1_000 <= seen.rows <= 12_500


def test_a_match_is_counted_once_whichever_worker_sees_it(
    site: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of a tuple that came whole may be in several batches, each in another worker."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names = {"p": "packets", "a": "alarms"}
    sited = Sited(site, "p.k = a.k", names, within="20 seconds", transport="auto")
    shelves = fetching.Shelves(lambda name, most: CacheFiles(f"abc-{name}", most), 1_000_000)
    monkeypatch.setattr(
        "tests.transport.sited.complete", lambda *given: fetching.complete(*given, shelves)
    )
    rows = []
    for start in range(0, 400, 50):
        fetching._SEEN.clear()
        tables = sited.tables(start, start + 50, whole=True)
        for found in sited.join.play([Batch(*tables)]):
            rows += sited.completed(found)
    for place, stream in ((0, "packets"), (5, "alarms")):
        mine = [one for one in sited.reports if one["stream"] == stream and one["what"] == "fetch"]
        assert sum(one["matched"] for one in mine) == len({row[place] for row in rows}), stream


def test_a_tuple_that_the_site_has_forgotten_is_named(
    run_site: Callable[..., Running], connect: Callable[..., Any]
) -> None:
    fetching._KEPT.clear()
    clock = Clock()
    running = run_site(streams=STREAMS, retain=1_000_000, clock=clock)
    client = connect(running.address)
    client.push("packets", packets(0, 50))
    client.push("alarms", alarms(0, 50))
    sited = Sited(running, "p.k = a.k", {"p": "packets", "a": "alarms"})
    (found,) = sited.join.play([Batch(*sited.tables(0, 50))])
    log = running.site.log("packets")
    log.seal()
    clock.wait(10_000_000)
    client.push("packets", packets(50, 1))
    log.maintain()
    with pytest.raises(ForgottenError, match="packets"):
        sited.completed(found)


@pytest.mark.parametrize(
    "spoil",
    [
        {"cut_after": 2_000},
        {"corrupt_at": 4_000},
        {"rate": 2e6, "latency": 0.002, "cut_after": 8_000},
    ],
    ids=["cut", "corrupted", "slow"],
)
def test_a_link_that_fails_changes_nothing(site: Running, spoil: dict[str, Any]) -> None:
    fetching._KEPT.clear()
    proxy = Proxy(site.service.port)
    try:
        names = {"p": "packets", "a": "alarms"}
        sited = Sited(proxy, "p.k = a.k", names, within="5 seconds")
        for name, value in spoil.items():
            is_place = name in ("cut_after", "corrupt_at")
            setattr(proxy, name, value + proxy.passed if is_place else value)
        rows = sited.play([150, 400])
        assert proxy.cut_after is proxy.corrupt_at is None, "nothing was spoiled"
    finally:
        proxy.close()
    script = [Batch(packets(0, 400), alarms(0, 400))]
    times = {name: TIMES[name] for name in names}
    expected = expected_rows("p.k = a.k", script, names=list(names), within="5 seconds", time=times)
    assert multiset(rows) == multiset(expected)


def test_a_site_that_was_set_up_anew_is_refused(
    run_site: Callable[..., Running], connect: Callable[..., Any], tmp_path: Path
) -> None:
    first, second = (run_site(tmp_path / name, streams=STREAMS) for name in "xy")
    for running in (first, second):
        connect(running.address).push("packets", packets(0, 50))
        connect(running.address).push("alarms", alarms(0, 50))
    sited, other = (
        Sited(one, "p.k = a.k", {"p": "packets", "a": "alarms"}) for one in (first, second)
    )
    old, new = Follower(sited.feeds[0]), Follower(other.feeds[0])
    with pytest.raises(SiteChangedError, match="set up anew"):
        new.parts(old.initial(), old.end())
    old.close()
    new.close()


def test_numbers_that_the_site_does_not_have_are_refused(
    run_site: Callable[..., Running], connect: Callable[..., Any]
) -> None:
    clock = Clock()
    running = run_site(streams=STREAMS, retain=1_000_000, clock=clock)
    client = connect(running.address)
    client.push("packets", packets(0, 50))
    client.push("alarms", alarms(0, 50))
    sited = Sited(running, "p.k = a.k", {"p": "packets", "a": "alarms"})
    follower = Follower(sited.feeds[0])
    start = follower.initial()
    with pytest.raises(SiteChangedError, match="lost tuples"):
        follower.latest({**start, "number": 51}, None)
    running.site.log("packets").seal()
    clock.wait(10_000_000)
    client.push("packets", packets(50, 1))
    running.site.log("packets").maintain()
    fresh = Follower(sited.feeds[0])
    with pytest.raises(ForgottenError, match="'packets' from number 0"):
        fresh.latest(start, None)
    follower.close()
    fresh.close()


def test_the_number_of_a_tuple_is_not_a_column(site: Running) -> None:
    with pytest.raises(UnknownColumnError, match="_number"):
        Sited(site, "p._number = a.k", {"p": "packets", "a": "alarms"})


@pytest.mark.parametrize("item", ["p._number", "sum(p._number)"])
def test_nor_is_it_one_in_a_query(site: Running, item: str) -> None:
    infos = infos_of(site, {"p": "packets", "a": "alarms"})
    with pytest.raises(UnknownColumnError, match="_number"):
        InProcessQuery(
            f"SELECT {item} FROM p, a WHERE p.k = a.k",
            {name: info.schema for name, info in infos.items()},
            options=JoinOptions(transport="semijoin"),
            sites={name: facts_of(info) for name, info in infos.items()},
            hidden=NUMBER_SPEC,
        )


def test_a_batch_is_limited_and_cut(site: Running, connect: Callable[..., Any]) -> None:
    sited = Sited(site, "p.k = a.k", {"p": "packets", "a": "alarms"})
    follower = Follower(sited.feeds[0])
    start = follower.initial()
    assert follower.latest(start, 150)["number"] == 150
    assert follower.latest(start, None)["number"] == 400
    end = follower.latest({**start, "number": 390}, 150)
    assert end["number"] == 400
    connect(site.address).push("packets", packets(400, 45_000, payload=5))
    end = follower.end()
    parts = follower.parts(start, end)
    assert [part[:2] for part in parts] == [(0, 22_700), (22_700, 45_400)]
    assert parts[0].received > 0
    assert parts[1].received == 0
    follower.close()


def thin(
    run_site: Callable[..., Running], connect: Callable[..., Any], rows: int, matching: int
) -> tuple[Running, pa.Table]:
    """Rows of 1,500 bytes with a key of 12, and the keys of every `matching`-th one."""
    fetching._KEPT.clear()
    random = np.random.default_rng(3)
    wide = pa.table(
        {
            "k": [f"{number:012d}" for number in range(rows)],
            "at": packets(0, rows, payload=5).column("at"),
            "payload": pa.array([random.bytes(1_480) for _ in range(rows)]),
        }
    )
    keys = wide.select(["k", "at"]).take(pa.array(np.arange(0, rows, matching)))
    running = run_site(
        streams={"packets": StreamConfig("packets", "at"), "q": StreamConfig("q", "at")}
    )
    client = connect(running.address)
    client.push("packets", wide)
    client.push("q", keys)
    return running, wide


NAMES = {"p": "packets", "q": "q"}


@pytest.mark.parametrize(("matching", "most"), [(100, 1 / 20), (1, 1.1)])
def test_few_matches_cost_few_bytes_and_many_hardly_more(
    run_site: Callable[..., Running], connect: Callable[..., Any], matching: int, most: float
) -> None:
    rows = 10_000
    running, wide = thin(run_site, connect, rows, matching)
    payloads = set(wide.column("payload").to_pylist())
    received = {}
    for transport in ("simple", "semijoin"):
        sited = Sited(running, "p.k = q.k", NAMES, transport=transport)
        found = sited.play([rows], None)
        received[transport] = sited.received
        assert len(found) == rows // matching
        assert {row[2] for row in found} <= payloads
    assert received["semijoin"] <= most * received["simple"]


@pytest.mark.parametrize(("matching", "expected"), [(100, "semijoin"), (1, "simple")])
@pytest.mark.parametrize("first", ["semijoin", "simple"])
def test_auto_finds_the_better_transport(
    run_site: Callable[..., Running],
    connect: Callable[..., Any],
    tmp_path: Path,
    matching: int,
    expected: str,
    first: Any,
) -> None:
    """On a link of 2 MB/s, by a sample and what batches measure, whatever it begins with."""
    rows, batches = 3_000, 10
    running, _ = thin(run_site, connect, rows, matching)
    proxy = Proxy(running.service.port, rate=2e6, latency=0.001)
    access = Access(address=proxy.address, patience=5.0)

    def sampled(info: SiteStream) -> SiteFacts:
        sizes, link = sample(access, info, info.schema)
        return SiteFacts(sizes=sizes, link=link)

    try:
        sited = Sited(proxy, "p.k = q.k", NAMES, transport="auto", facts=sampled)
        decision = next(one for one in sited.plan.decisions if one.subject == "transport of p")
        assert decision.choice == "semijoin at first", "one in ten is assumed to match"
        facts, travel = sampled(sited.infos["p"]), sited.plan.travels[0]
        sizes = [sum(facts.sizes[one] for one in some) for some in (travel.columns, travel.rest)]
        chooser = Chooser(Estimate(assumed(facts.link, *sizes)), first, tmp_path / "choice")
        results, used = 0, []
        for start in range(0, rows, rows // batches):
            sited.reports.clear()
            used.append(chooser.now)
            tables = sited.tables(start, start + rows // batches, whole=used[-1] == "simple")
            for found in sited.join.play([Batch(*tables)]):
                results += len(sited.completed(found))
            chooser.heard(1.0, [one for one in sited.reports if one["stream"] == "packets"])
    finally:
        proxy.close()
    assert results == rows // matching
    assert used[-5:] == [expected] * 5
    # What is assumed of the match rate may lead away once, and what is measured back.
    assert sum(a != b for a, b in pairwise(used)) <= 2
    assert chooser.last is not None
    assert chooser.last.cost <= 1.08 * chooser.last.better
