"""Every index in process against DuckDB: all cases, restarts, crashes, expiry, skew, aggregates."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from thetastream.engine.protocol import Report
from thetastream.errors import FingerprintError, OptionError, StateError
from thetastream.index import pim, streamaware
from thetastream.index.directory import Directory
from thetastream.options import JoinOptions
from thetastream.spec import GroupBy, Grouping, IndexKind, Retention, SortOrder, Store
from thetastream.spec.codec import read, to_json
from thetastream.testing import (
    CASES,
    CRASH,
    RESTART,
    Batch,
    Case,
    InProcessJoin,
    expected_rows,
    multiset,
    rows_of,
    run_script,
    units_for,
)
from thetastream.testing.cases import SECOND, START
from thetastream.testing.queries import expected_query, run_query

EXTENDIBLE: dict[str, Any] = {"index": "extendible", "theta": "4 KB"}
NESTED: dict[str, Any] = {"index": "nested-loops"}
PIM: dict[str, Any] = {"index": "pim"}
AWARE: dict[str, Any] = {"index": "stream-aware"}
EQUALITY = [case for case in CASES if "hash" in case.topologies]
EVERY = [(case, index) for index in (NESTED, PIM) for case in CASES]
EVERY += [(case, EXTENDIBLE) for case in EQUALITY]
EVERY += [(case, AWARE) for case in CASES if "stream-aware" in case.topologies]


@pytest.fixture(autouse=True)
def _small_components(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows fill the mutable component of a PIM-tree, or make a value hot."""
    monkeypatch.setattr(pim, "MUTABLE_ROWS", 12)
    monkeypatch.setattr(streamaware, "ENOUGH_ROWS", 4)
    monkeypatch.setattr(streamaware, "HOT_SHARE", 0.15)
    monkeypatch.setattr(streamaware, "COOL_SHARE", 0.1)


def named(value: Any) -> str:
    return value.name if isinstance(value, Case) else str(value["index"])


@pytest.mark.parametrize(("case", "index"), EVERY, ids=named)
def test_each_case_with_each_index(case: Case, index: dict[str, Any]) -> None:
    left, right = rows_of(7, 45), rows_of(8, 45, first=1000)
    script = [
        Batch(left.slice(0, 20), right.slice(0, 5)),
        RESTART,
        Batch(left.slice(20, 10), right.slice(5, 20), watermark=START + 5 * SECOND),
        CRASH,
        Batch(left.slice(30, 0), right.slice(25, 5), watermark=START + 20 * SECOND),
        Batch(left.slice(30), right.slice(30), watermark=START + 20 * SECOND),
    ]
    topology: Any = case.topologies[len(case.name) % len(case.topologies)]
    outcome = run_script(
        case.predicate,
        script,
        within=case.within,
        time=case.time,
        options=JoinOptions(topology=topology, units=units_for(topology), **index),
        chunk_rows=9,
        pieces=2,
    )
    wanted = expected_rows(case.predicate, script, within=case.within, time=case.time)
    assert multiset(outcome.rows) == multiset(wanted)


def keyed(keys: Any, second: int, first: int = 0) -> pa.Table:
    """Rows with these keys, all within the second."""
    count = len(keys)
    times = START + second * SECOND + np.arange(count) % SECOND
    return pa.table(
        {
            "id": pa.array(np.arange(first, first + count)),
            "k": pa.array(np.asarray(keys, dtype=np.int64)),
            "t": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )


def directories(join: InProcessJoin, unit: int = 0) -> list[Directory]:
    """The directories of the first stream's store, as they are stored."""
    manifest = json.loads(join.runner.state[0, unit].manifest or "")
    return [Directory.from_json(raw) for raw in manifest["indexes"][0]["groups"]]


def depths(join: InProcessJoin) -> set[int]:
    return {one.depth for one in directories(join)}


def join_of(index: dict[str, Any], within: str | None = "10 seconds") -> InProcessJoin:
    schema = keyed([], 0).schema
    time = None if within is None else {"r": "t", "s": "t"}
    options = JoinOptions(units=1, **index)
    return InProcessJoin("r.k = s.k", (schema, schema), within=within, time=time, options=options)


def test_mini_groups_are_split_and_merged_again() -> None:
    random = np.random.default_rng(5)
    join = join_of(EXTENDIBLE)
    script, rows = [], []
    for number in range(8):
        # The rate goes up and down again; then the window passes.
        size = (4_000, 40_000, 40_000, 4_000, 0, 100, 100, 100)[number]
        keys = random.integers(0, 1 << 30, size)
        tables = keyed(keys, 4 * number, 100_000 * number), keyed(keys[::50], 4 * number)
        mark = START + (4 * number - 2) * SECOND if number else None
        script.append(Batch(*tables, watermark=mark))
    seen = []
    for number, step in enumerate(script):
        if number == 2:
            join.attempt(step)
        rows += join.batch(step)
        seen.append(max(depths(join)))
        sizes = [mini.bytes for one in directories(join) for mini in one.minis]
        assert max(sizes) <= 2 * 4096, "all keys differ, so that all can be split"
        join.restart()
    assert seen[1] > 1, "mini-groups were split"
    assert seen[-1] == 0, "and are merged when the window has passed"
    wanted = expected_rows("r.k = s.k", script, within="10 seconds", time="t")
    assert multiset(rows) == multiset(wanted)
    moved = max(report.updates - report.rows_in for report in join.reports)
    assert moved > 0, "splits and buddies count as updates"


@pytest.mark.parametrize("index", [EXTENDIBLE, NESTED], ids=named)
def test_equal_keys_stay_together(index: dict[str, Any]) -> None:
    join = join_of(index, None)
    many, few = keyed([7] * 3_000, 0), keyed([7] * 3, 1)
    rows = join.batch(Batch(many, few)) + join.batch(Batch(few, few.slice(0, 1)))
    assert len(rows) == 3 * 3_000 + 3 * 3 + 3_003
    assert depths(join) == {0}


def test_a_hot_key_is_divided_from_the_others() -> None:
    """What shares its partition-group is split off; its own mini-group is as large as it must."""
    random = np.random.default_rng(2)
    keys = np.where(random.random(20_000) < 0.2, 7, random.integers(8, 1 << 40, 20_000))
    join = join_of(EXTENDIBLE, None)
    script = [Batch(keyed(keys, 0), keyed([7, int(keys.max())], 1)), RESTART]
    script.append(Batch(keyed([7], 2), keyed(np.sort(keys)[-200:], 2)))
    found = sum(table.num_rows for table in join.play(script))
    assert found == len(expected_rows("r.k = s.k", script))
    large = [mini for one in directories(join) for mini in one.minis if mini.bytes > 2 * 4096]
    assert len(large) == 1
    assert large[0].rows == int((keys == 7).sum()) + 1


JOINS = [
    ("r.k = s.k", "20 seconds"),
    ("r.g = s.g AND r.k = s.k", None),
    ("r.g = s.g AND r.n < s.n", "30 seconds"),
    ("r.n <= s.n AND r.x > s.x", "15 seconds"),
]
QUERY = "SELECT r.k AS a, count(*) AS c, sum(s.n) AS n, min(s.g) AS g, max(r.d) AS d FROM r, s"


@pytest.mark.parametrize("hashes", [None, 2])
@pytest.mark.parametrize(
    ("index", "predicate", "within"),
    [(index, *join) for index in (NESTED, PIM) for join in JOINS]
    + [(EXTENDIBLE, *join) for join in JOINS[:3]]
    + [(AWARE, *JOINS[3])],
)
def test_aggregates_in_place(
    index: dict[str, Any], predicate: str, within: str | None, hashes: int | None
) -> None:
    left, right = rows_of(3, 60), rows_of(4, 60, first=1000)
    script = [
        Batch(left.slice(0, 30), right.slice(0, 25)),
        CRASH,
        Batch(left.slice(30), right.slice(25)),
    ]
    times = {"r": "t", "s": "t"}
    window = "" if within is None else f" WITHIN {within}"
    query = run_query(
        f"{QUERY} WHERE {predicate}{window} GROUP BY r.k",
        script,
        time=times if within else None,
        options=JoinOptions(units=2, **index),
        hashes=hashes,
    )
    close = ""
    if within is not None:
        close = f" AND abs(epoch_us(r.t) - epoch_us(s.t)) <= {int(within.split()[0]) * SECOND}"
    wanted = expected_query(
        f"{QUERY} WHERE {predicate}{close} GROUP BY r.k", script, time=times if within else None
    )
    found = query.rows()

    def plain(rows: Any) -> Any:
        return multiset((a, int(c), None if n is None else int(n), g, d) for a, c, n, g, d in rows)

    assert plain(found) == plain(wanted)


@pytest.mark.parametrize("options", [EXTENDIBLE, NESTED, PIM], ids=named)
@pytest.mark.parametrize("scheme", ["symmetric", "semi-symmetric", "tree"])
def test_three_streams(scheme: Any, options: dict[str, Any]) -> None:
    tables = [rows_of(n, 24, first=1000 * n) for n in (1, 2, 3)]
    script = [
        Batch(*(table.slice(0, 10) for table in tables)),
        RESTART,
        Batch(*(table.slice(10) for table in tables), watermark=START + 2 * SECOND),
    ]
    predicate = "r.k = s.k AND s.n = t.n"
    how: dict[str, Any] = {"within": "20 seconds", "time": "t"}
    chosen = JoinOptions(scheme=scheme, units=2, **options)
    outcome = run_script(predicate, script, options=chosen, **how)
    assert multiset(outcome.rows) == multiset(expected_rows(predicate, script, **how))


# -- what is counted ----------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["symmetric", "semi-symmetric", "tree"])
def test_three_streams_by_inequalities(scheme: Any) -> None:
    """A store that several streams visit is searched in several orders."""
    tables = [rows_of(n, 24, first=1000 * n) for n in (4, 5, 6)]
    script = [
        Batch(*(table.slice(0, 14) for table in tables)),
        RESTART,
        Batch(*(table.slice(14) for table in tables), watermark=START + 2 * SECOND),
    ]
    predicate = "abs(r.k - s.k) <= 1 AND s.n < t.n"
    how: dict[str, Any] = {"within": "9 seconds", "time": "t"}
    chosen = JoinOptions(scheme=scheme, units=2, **AWARE)
    outcome = run_script(predicate, script, options=chosen, **how)
    assert multiset(outcome.rows) == multiset(expected_rows(predicate, script, **how))


def counted(index: dict[str, Any]) -> list[Report]:
    join = join_of(index, None)
    random = np.random.default_rng(9)
    keys = random.integers(0, 1 << 40, 30_000)
    join.batch(Batch(keyed(keys, 0), keyed([], 0)))
    join.batch(Batch(keyed([], 0), keyed(keys[:100], 0)))
    assert [report.results for report in join.reports] == [0, 100]
    return join.reports


def test_pairs_and_updates_are_counted() -> None:
    runs, nested, tuned = (counted(index) for index in ({}, NESTED, EXTENDIBLE))
    assert [report.compared for report in runs] == [0, 100 + 100 * 2 * 15]
    assert nested[1].compared == pytest.approx(100 * 30_000 / 60, rel=0.1)
    assert 100 <= tuned[1].compared < 0.6 * nested[1].compared
    assert [report.updates for report in runs] == [30_000, 100]
    assert [report.updates for report in nested] == [30_000, 100]
    # All were split: each was put into another mini-group once.
    assert [report.updates for report in tuned] == [60_000, 100]


# -- what is refused, and what may change -------------------------------------------------------


def after_a_batch(index: dict[str, Any]) -> InProcessJoin:
    join = join_of(index)
    join.batch(Batch(keyed(range(2_000), 0), keyed(range(5), 0)))
    return join


@pytest.mark.parametrize(
    ("old", "new"),
    [({}, NESTED), (NESTED, {}), (EXTENDIBLE, NESTED), ({}, EXTENDIBLE), ({}, PIM), (PIM, {})],
)
def test_another_index_is_refused_by_name(old: dict[str, Any], new: dict[str, Any]) -> None:
    state, other = after_a_batch(old).stored(), join_of(new)
    other.restart(state)
    was, now = old.get("index", "runs"), new.get("index", "runs")
    with pytest.raises(FingerprintError, match=f"index: was {was}, is {now}") as caught:
        other.batch(Batch(keyed([], 0), keyed([], 0)))
    assert f'JoinOptions(index="{was}")' in str(caught.value)


def test_theta_may_change() -> None:
    join = after_a_batch({"index": "extendible"})
    assert depths(join) == {0}
    smaller = join_of(EXTENDIBLE)
    smaller.restart(join.stored())
    assert len(smaller.batch(Batch(keyed(range(40_000), 1), keyed([17], 1)))) == 2 + 1 + 4
    assert max(depths(smaller)) > 0
    join.restart(smaller.stored())
    assert len(join.batch(Batch(keyed([3], 2), keyed([4], 2)))) == 1 + 2 + 0
    assert depths(join) == {0}


def test_a_damaged_directory_is_refused() -> None:
    join = after_a_batch(EXTENDIBLE)
    state = join.runner.state[0, 0]
    raw = json.loads(state.manifest or "")
    raw["indexes"][0]["groups"].pop()
    state.manifest = json.dumps(raw)
    with pytest.raises(StateError):
        join.batch(Batch(keyed([], 0), keyed([], 0)))


def test_the_default_is_sorted_runs_in_old_specs_and_fingerprints() -> None:
    order, kept = SortOrder(0, None), Retention()
    store = Store(stream=0, group_by=GroupBy(kind=Grouping.CONTENT), order=order, retention=kept)
    raw = json.loads(to_json(store))
    for old in ({}, {"index": "sorted"}):
        given = {name: value for name, value in raw.items() if name not in ("index", "theta")}
        assert read(Store, given | old) == store
    assert store.index is IndexKind.RUNS
    assert "index" not in join_of({}).spec.fingerprint()
    assert join_of({"index": "runs"}).spec == join_of({}).spec
    assert join_of(NESTED).spec.fingerprint()["index"] == "nested-loops"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"index": "btree"},
            "choose one of auto, runs, extendible, nested-loops, pim, stream-aware",
        ),
        ({"theta": "1 MB"}, "theta is the size of a mini-group"),
        ({"index": "nested-loops", "theta": "1 MB"}, 'add index="extendible"'),
        ({"index": "pim", "theta": "1 MB"}, 'add index="extendible"'),
        ({"index": "extendible", "theta": "4095"}, 'give at least "4 KB"'),
        ({"index": "extendible", "theta": 0}, "smaller than a block of 4 KB"),
        ({"index": "extendible", "theta": "large"}, "is not a size"),
        ({"index": "extendible", "theta": "-1 MB"}, "is not a size"),
        ({"index": "extendible", "theta": True}, "is not a size"),
        ({"index": "extendible", "theta": 1.5}, "is not a size"),
    ],
)
def test_options_that_make_no_sense(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        JoinOptions(**given)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("theta", "size"),
    [("1.5 MB", 1572864), ("4kb", 4096), ("2 GiB", 2**31), (" 8192 bytes ", 8192), (5000, 5000)],
)
def test_sizes(theta: str | int, size: int) -> None:
    assert JoinOptions(index="extendible", theta=theta).mini_group == size
    assert JoinOptions(index="extendible").mini_group == 1572864


def test_extendible_hashing_needs_an_equality() -> None:
    schema = keyed([], 0).schema
    options = JoinOptions(**EXTENDIBLE)
    with pytest.raises(OptionError, match="needs an equality") as caught:
        InProcessJoin("r.k < s.k", (schema, schema), options=options)
    assert 'use index="nested-loops"' in str(caught.value)
    with pytest.raises(OptionError, match="a key of 't'"):
        InProcessJoin(
            "r.k = s.k AND s.id < t.id",
            (schema,) * 3,
            options=JoinOptions(**EXTENDIBLE, full_history=True),
        )


def test_explain_says_which_index() -> None:
    tuned = join_of({"index": "extendible"}).plan.explain()
    assert "extendible hashing into mini-groups of 1.5 MB to 3 MB (theta 1.5 MB)" in tuned
    assert "buddy" in tuned
    assert "nested loops over the blocks of a partition-group" in join_of(NESTED).plan.explain()
    assert "PIM-tree: a mutable component that is merged" in join_of(PIM).plan.explain()
    assert "chained sorted runs, by the driving key" in join_of({}).plan.explain()
