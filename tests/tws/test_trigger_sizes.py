"""However much a trigger brings: a unit joins it share by share, or refuses it by name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tws.playing import CACHE, ORIGIN, Query
from thetastream.engine.manifest import Manifest
from thetastream.engine.protocol import PutManifest, PutPart, StateChange
from thetastream.engine.runner import Memory, UnitState, carry_out
from thetastream.engine.unit import Unit
from thetastream.errors import TriggerSizeError
from thetastream.options import JoinOptions
from thetastream.runtime import joiner, router
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
)
from thetastream.testing.cases import SCHEMA, SECOND, START
from thetastream.topology.dispatch import Pack

MARKS = [None, START + 4 * SECOND, START + 12 * SECOND]
CYCLIC = "r.k = s.k AND s.n > t.n AND abs(t.n - r.n) <= 3"
CHAIN = "abs(r.n - s.n) <= 1 AND s.k = t.k"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    joiner._caches.clear()
    yield
    joiner._caches.clear()


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Packs of each share that a unit joins; routers send several for each stream."""
    monkeypatch.setattr(router, "PACK_BYTES", 1)
    monkeypatch.setattr(router, "UNIT_BYTES", 1)
    sizes: list[int] = []
    take_in = Unit._take_in

    def counted(self: Unit, packs: Iterable[Pack], *arguments: Any) -> Any:
        share = list(packs)
        sizes.append(len(share))
        return take_in(self, share, *arguments)

    monkeypatch.setattr(Unit, "_take_in", counted)
    return sizes


def script(streams: int, between: Any = None) -> list[Any]:
    tables = [rows_of(40 + stream, 48, first=1000 * stream) for stream in range(streams)]
    steps: list[Any] = []
    for number, mark in enumerate(MARKS):
        steps += [between] if between is not None and number else []
        steps.append(Batch(*(t.slice(16 * number, 16) for t in tables), watermark=mark))
    return steps


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: CASES[number].name)
def test_shares_of_a_batch_equal_the_oracle(number: int, shares: list[int]) -> None:
    case: Case = CASES[number]
    steps = script(2, (RESTART, CRASH)[number % 2])
    options = JoinOptions(topology=case.topologies[number % len(case.topologies)], units=2)
    join = InProcessJoin(
        case.predicate, (SCHEMA, SCHEMA), within=case.within, time=case.time, options=options
    )
    query = Query(join, cache=(0, CACHE)[number % 2], limits={"share_bytes": 1})
    rows = query.run(steps)
    expected = expected_rows(case.predicate, steps, within=case.within, time=case.time)
    assert multiset(rows) == multiset(expected)
    assert max(shares) == 1
    assert len(shares) > len(query.reports), "units had several shares, and reported once"


def three(predicate: str) -> InProcessJoin:
    options = JoinOptions(units=2)
    return InProcessJoin(predicate, [SCHEMA] * 3, within="20 seconds", time="t", options=options)


def test_shares_of_three_streams_equal_the_oracle(shares: list[int]) -> None:
    steps = script(3, RESTART)
    rows = Query(three(CYCLIC), limits={"share_bytes": 1}).run(steps)
    expected = expected_rows(CYCLIC, steps, within="20 seconds", time="t")
    assert len(expected) > 20
    assert multiset(rows) == multiset(expected)
    assert max(shares) == 1


def test_a_share_is_written_before_the_next_packs_are_read() -> None:
    """So memory holds a share, and not what the trigger brings."""
    join = InProcessJoin("r.k = s.k", (SCHEMA, SCHEMA), options=JoinOptions(units=1))
    (step,) = join.plan.tree.steps
    (stage,) = step.spec.stages
    given = [[join.duck.derive(stream, rows_of(7 + stream, 20))] for stream in (0, 1)]
    packs = join.runner.route(stage, given)[0] * 3
    state, read, read_when_written = UnitState(), 0, []

    def counted() -> Iterator[Pack]:
        nonlocal read
        for pack in packs:
            read += 1
            yield pack

    unit = Unit(
        step.spec,
        join.runner.tables[0],
        stage,
        0,
        Manifest(),
        Memory(state.parts, {}),
        chunk_rows=1000,
        share_bytes=1,
    )
    manifests = 0
    for instruction in unit.process(counted(), None):
        if isinstance(instruction, PutPart):
            read_when_written.append(read)
        manifests += isinstance(instruction, PutManifest)
        if isinstance(instruction, StateChange):
            carry_out(instruction, state)
    assert len(packs) == 6
    # The second share is complete when the third pack is seen: then the first one is written.
    assert set(read_when_written) == {3, 4, 5, 6}
    assert manifests == 1


@pytest.mark.parametrize("predicate", [CYCLIC, CHAIN], ids=["one stage", "two stages"])
def test_what_a_unit_cannot_take_is_refused_by_name(predicate: str) -> None:
    query = Query(three(predicate), limits={"unit_bytes": 2000})
    steps = script(3)
    if predicate == CYCLIC:
        assert query.run(steps), "it is joined share by share"
        return
    with pytest.raises(TriggerSizeError, match=r"more than 1\.953 KB for unit \d") as caught:
        query.run(steps)
    assert "maxFilesPerTrigger" in caught.value.hint
    assert ORIGIN in caught.value.detail
    assert not any(stored.manifest for stored in query.state().values()), "nothing was written"
