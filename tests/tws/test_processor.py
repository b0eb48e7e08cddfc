"""The processor that Spark runs, in Spark's own tester: no JVM, but Spark's state and packs."""

from __future__ import annotations

import json
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.tws.playing import CACHE, ORIGIN, Query
from thetastream.engine.manifest import FORMAT
from thetastream.engine.runner import UnitState
from thetastream.errors import CorruptRunError, FingerprintError, ManifestVersionError, StateError
from thetastream.index import streamaware
from thetastream.options import JoinOptions
from thetastream.runtime import joiner, shipped
from thetastream.runtime.cachefiles import cache_root
from thetastream.spec.codec import to_json
from thetastream.spec.tree import read_step
from thetastream.testing import (
    CASES,
    CRASH,
    RESTART,
    Batch,
    Case,
    InProcessJoin,
    batches_of,
    expected_rows,
    multiset,
    rows_of,
    units_for,
)
from thetastream.testing.cases import SCHEMA, SECOND, START, TIMES
from thetastream.topology.wire import Kind

LEFT, RIGHT = rows_of(21, 45), rows_of(22, 45, first=1000)
EMPTY = LEFT.slice(0, 0)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    joiner._caches.clear()
    yield
    joiner._caches.clear()


def planned(
    predicate: str = "r.k = s.k AND r.n >= s.n",
    *,
    within: Any = "1 hour",
    time: dict[str, str] | None = None,
    **options: Any,
) -> InProcessJoin:
    units = units_for(options.get("topology", "random"), (2, 3))
    chosen = JoinOptions(**{"topology": "random", "units": units, **options})
    times = time if time is not None else (TIMES if within is not None else {})
    return InProcessJoin(predicate, (SCHEMA, SCHEMA), within=within, time=times, options=chosen)


def script_of(marks: Sequence[int | None], between: Sequence[Any]) -> list[Any]:
    lefts, rights = batches_of(LEFT, [15, 5, 10]), batches_of(RIGHT, [5, 15, 0])
    script: list[Any] = []
    for left, right, mark, step in zip(lefts, rights, marks, between, strict=True):
        script += [step] if step is not None else []
        script.append(Batch(left=left, right=right, watermark=mark))
    return script


MARKS = [None, START + 4 * SECOND, START + 4 * SECOND, START + 30 * SECOND]
QUIET = [None] * 4
ROUGH = [None, RESTART, CRASH, RESTART]


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: CASES[number].name)
def test_each_case(number: int) -> None:
    case: Case = CASES[number]
    topology = case.topologies[number % len(case.topologies)]
    script = script_of(MARKS, ROUGH)
    expected = multiset(expected_rows(case.predicate, script, within=case.within, time=case.time))
    for cache, typed in ((CACHE, True), (0, False)):
        joiner._caches.clear()
        join = planned(case.predicate, within=case.within, time=case.time, topology=topology)
        assert multiset(Query(join, cache=cache, typed=typed).run(script)) == expected


@pytest.mark.parametrize(
    ("index", "predicate", "topology"),
    [
        ("extendible", "r.k = s.k", "hash"),
        ("nested-loops", "r.k = s.k", "hash"),
        ("pim", "r.k = s.k", "hash"),
        ("stream-aware", "r.k <= s.k AND r.x > s.x", "stream-aware"),
    ],
)
def test_each_index(
    index: str, predicate: str, topology: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamaware, "ENOUGH_ROWS", 4)
    monkeypatch.setattr(streamaware, "HOT_SHARE", 0.15)
    script = script_of(MARKS, ROUGH)
    expected = multiset(expected_rows(predicate, script, within="20 seconds", time=TIMES))
    assert expected
    for cache, typed in ((CACHE, True), (0, False)):
        joiner._caches.clear()
        join = planned(predicate, within="20 seconds", topology=topology, index=index)
        assert multiset(Query(join, cache=cache, typed=typed).run(script)) == expected


@pytest.mark.parametrize("units", [(1, 1), (1, 3), (3, 1)])
def test_a_matrix_may_have_one_row_or_one_column(units: tuple[int, int]) -> None:
    """Then a tuple has one copy, which visits nonetheless."""
    script = script_of(MARKS, ROUGH)
    expected = expected_rows("r.n > s.n", script, within="3 seconds", time=TIMES)
    assert expected
    join = planned("r.n > s.n", within="3 seconds", topology="matrix", units=units)
    assert multiset(Query(join).run(script)) == multiset(expected)


def test_tiny_chunks_and_a_tiny_cache() -> None:
    script = script_of(MARKS, QUIET)
    expected = expected_rows("r.k = s.k AND r.n >= s.n", script, within="1 hour", time=TIMES)
    for chunk_rows, cache in ((1, 1), (3, 4000)):
        joiner._caches.clear()
        query = Query(planned(), chunk_rows=chunk_rows, cache=cache)
        assert multiset(query.run(script)) == multiset(expected)


def cache_files() -> list[Path]:
    return [path for path in cache_root().rglob("*") if path.is_file()]


def _delete(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _header_only(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:64])


def _half_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:10])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def _garbage(path: Path) -> None:
    path.write_bytes(b"not a cache file" * 50)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _unreadable(path: Path) -> None:
    path.chmod(0)


DAMAGES = [
    _delete, _empty, _cut, _header_only, _half_header, _flip, _garbage, _folder, _unreadable,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__[1:])
def test_a_damaged_cache_costs_time_and_nothing_else(damage: Any) -> None:
    script = script_of(QUIET, QUIET)
    query = Query(planned())
    rows = []
    for step in script:
        rows += query.batch(step)
        files = cache_files()
        assert files
        query.restart()
        for path in files:
            damage(path)
    expected = expected_rows("r.k = s.k AND r.n >= s.n", script, within="1 hour", time=TIMES)
    assert multiset(rows) == multiset(expected)


def test_a_cache_folder_that_vanishes() -> None:
    script = script_of(QUIET, QUIET)
    query = Query(planned())
    rows = []
    for step in script:
        rows += query.batch(step)
        for path in cache_files():
            path.unlink()
        for folder in list(cache_root().iterdir()):
            folder.rmdir()
    expected = expected_rows("r.k = s.k AND r.n >= s.n", script, within="1 hour", time=TIMES)
    assert multiset(rows) == multiset(expected)


def test_the_cache_is_the_users_own_and_forgets_what_is_dropped() -> None:
    query = Query(planned(within="5 seconds"))
    query.batch(Batch(left=LEFT, right=RIGHT))
    files = cache_files()
    assert files
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in files)
    assert stat.S_IMODE(cache_root().stat().st_mode) == 0o700
    names = {name.split("/")[0] for state in query.state().values() for name in state.parts}
    assert {path.name for path in files} == names
    query.batch(Batch(left=EMPTY, right=EMPTY, watermark=START + 3600 * SECOND))
    assert cache_files() == []


def test_a_part_is_stored_in_several_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joiner, "VALUE_BYTES", 100)
    script = script_of(QUIET, QUIET)
    query = Query(planned(), cache=0)
    rows = []
    for step in script:
        rows += query.batch(step)
        query.restart()
    expected = expected_rows("r.k = s.k AND r.n >= s.n", script, within="1 hour", time=TIMES)
    assert multiset(rows) == multiset(expected)
    names = [name for state in query.state().values() for name in state.parts]
    assert any(name.endswith("/2") for name in names)
    assert all(
        len(data) <= 100 for state in query.state().values() for data in state.parts.values()
    )


@pytest.mark.parametrize("cache", [0, CACHE])
def test_damaged_state_is_refused(cache: int) -> None:
    query = Query(planned(), cache=cache)
    query.batch(Batch(left=LEFT, right=RIGHT))
    damaged = {
        unit: UnitState(
            stored.manifest, {name: data[:-1] + b"!" for name, data in stored.parts.items()}
        )
        for unit, stored in query.state().items()
    }
    query.restart(damaged, token="cd34")
    with pytest.raises(CorruptRunError, match="damaged") as caught:
        query.batch(Batch(left=LEFT, right=RIGHT))
    assert ORIGIN in str(caught.value)


def test_a_part_that_is_missing_from_state_is_refused() -> None:
    query = Query(planned(), cache=0)
    query.batch(Batch(left=LEFT, right=RIGHT))
    bare = {unit: UnitState(stored.manifest) for unit, stored in query.state().items()}
    query.restart(bare)
    with pytest.raises(CorruptRunError, match="missing"):
        query.batch(Batch(left=LEFT, right=RIGHT))


def test_a_manifest_that_is_not_ours_is_refused() -> None:
    query = Query(planned())
    query.batch(Batch(left=LEFT, right=RIGHT))
    kept = query.state()
    written, other_format = (f'"format":{number},' for number in (FORMAT, FORMAT + 1))
    assert all(written in (stored.manifest or "") for stored in kept.values())
    newer = {
        unit: UnitState((stored.manifest or "").replace(written, other_format), stored.parts)
        for unit, stored in kept.items()
    }
    query.restart(newer)
    with pytest.raises(ManifestVersionError):
        query.batch(Batch(left=LEFT, right=RIGHT))
    query.restart({unit: UnitState("?", stored.parts) for unit, stored in kept.items()})
    with pytest.raises(StateError):
        query.batch(Batch(left=LEFT, right=RIGHT))
    other = Query(planned("r.k = s.k AND r.n > s.n"))
    other.restart(kept)
    with pytest.raises(FingerprintError, match="predicate, comparisons changed"):
        other.batch(Batch(left=LEFT, right=RIGHT))


def test_an_attempt_that_failed_leaves_nothing_that_counts() -> None:
    """Its cache files stay on the host; the second attempt may meet its rows in another order."""
    query = Query(planned("r.g = s.g", units=3, topology="contrand"))
    rows = query.batch(Batch(left=LEFT.slice(0, 20), right=RIGHT.slice(0, 20)))
    before = query.state()
    backwards = [table.take(list(range(24, -1, -1))) for table in (LEFT.slice(20), RIGHT.slice(20))]
    query.batch(Batch(left=backwards[0], right=backwards[1]))
    query.restart(before)
    rows += query.batch(Batch(left=LEFT.slice(20), right=RIGHT.slice(20)))
    rows += query.batch(Batch(left=LEFT, right=RIGHT))
    script = [
        Batch(left=LEFT, right=RIGHT),
        Batch(left=LEFT, right=RIGHT),
    ]
    expected = expected_rows("r.g = s.g", script, within="1 hour", time=TIMES)
    assert multiset(rows) == multiset(expected)


def test_more_units_go_on_with_the_same_state() -> None:
    query = Query(planned(units=(1, 2)))
    rows = query.batch(Batch(left=LEFT.slice(0, 20), right=RIGHT.slice(0, 20)))
    kept = query.state()
    larger = Query(planned(units=(4, 3)))
    larger.restart(kept)
    rows += larger.batch(Batch(left=LEFT.slice(20), right=RIGHT.slice(20)))
    whole = [Batch(left=LEFT, right=RIGHT)]
    expected = expected_rows("r.k = s.k AND r.n >= s.n", whole, within="1 hour", time=TIMES)
    assert multiset(rows) == multiset(expected)


@pytest.mark.parametrize("topology", ["hash", "contrand", "random", "matrix", "multi-chained"])
def test_heartbeats_expire_state(topology: str) -> None:
    query = Query(planned(within="5 seconds", topology=topology))
    query.batch(Batch(left=LEFT, right=RIGHT))
    assert any(stored.parts for stored in query.state().values())
    silent = Batch(left=EMPTY, right=EMPTY, watermark=START + 3600 * SECOND)
    packs = query.packs(silent)
    assert (packs["kind"] == Kind.HEARTBEAT).all()
    assert len(packs) == 2 * query.units
    assert query.batch(silent) == []
    assert not any(stored.parts for stored in query.state().values())
    assert all(report["stored_rows"] == 0 for report in query.reports[-query.units :])


def test_late_rows_are_counted_in_the_reports() -> None:
    query = Query(planned("TRUE", within="5 seconds", topology="matrix"))
    query.batch(Batch(left=LEFT, right=EMPTY, watermark=START + 30 * SECOND))
    times = LEFT.column("t").drop_null().cast(pa.int64()).to_numpy()
    assert sum(report["late"] for report in query.reports) == int(
        (times < START + 30 * SECOND).sum()
    )
    assert sum(report["rows_in"] for report in query.reports) == len(times)


def test_a_router_of_another_version_says_so() -> None:
    route = shipped.router(to_json(planned().plan.tree.steps[0]), 0, "0.0.0")
    with pytest.raises(RuntimeError, match=r"the driver has 0\.0\.0") as caught:
        list(route(iter([])))
    assert "install the same version" in str(caught.value)


def test_what_is_shipped_needs_nothing_but_text() -> None:
    (step,) = planned().plan.tree.steps
    assert read_step(json.loads(json.dumps(to_json(step)))) == step
