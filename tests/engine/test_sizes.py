"""Whatever the rows' sizes, what is put together at a time is bounded: Arrow's texts end at 2 GiB.

The limits are made so small that rows of a few hundred bytes reach them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from thetastream import arrow
from thetastream.engine.consumers import listing, packing, totals
from thetastream.engine.runner import Place, Runner, UnitState
from thetastream.index import chain, runs
from thetastream.options import JoinOptions
from thetastream.runtime import router
from thetastream.testing.inprocess import Batch, InProcessJoin, expected_rows, multiset, run_script
from thetastream.testing.queries import expected_query, run_query

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
SAFE = 60_000
PART = 3_000
TIMES = {"r": "t", "s": "t"}


class Watch:
    """Notes the largest batch that was put together or made."""

    def __init__(self) -> None:
        self.concatenated = 0
        self.made = 0


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    monkeypatch.setattr(arrow, "SAFE_BYTES", SAFE)
    monkeypatch.setattr(runs, "PART_BYTES", PART)
    monkeypatch.setattr(runs, "PACKS_BYTES", 4 * PART)
    monkeypatch.setattr(chain, "MERGED_PARTS", 16)
    monkeypatch.setattr(packing, "MEETING_BYTES", SAFE // 2)
    monkeypatch.setattr(totals, "_VIEW_BYTES", SAFE // 2)
    found = Watch()
    concat, result_batch = arrow.concat, listing.result_batch

    def watched(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        if len(batches) > 1:
            found.concatenated = max(found.concatenated, sum(batch.nbytes for batch in batches))
        return concat(batches)

    def made(*arguments: Any) -> pa.RecordBatch:
        batch = result_batch(*arguments)
        if batch.num_rows > 1:
            found.made = max(found.made, batch.nbytes)
        return batch

    monkeypatch.setattr(arrow, "concat", watched)
    monkeypatch.setattr(listing, "result_batch", made)
    return found


def rows(seed: int, count: int, first: int = 0, *, longest: int = 1500) -> pa.Table:
    """Few rows have most of the bytes; they have the same key, so that runs have them together."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 12, count)
    sizes = np.where(keys == 3, longest, rng.integers(0, 30, count))
    return pa.table(
        {
            "id": pa.array(np.arange(count) + first),
            "k": pa.array(keys),
            "n": pa.array(rng.integers(0, 40, count)),
            "w": pa.array([chr(97 + n % 26) * int(n) for n in sizes]),
            "t": pa.array(
                START + first * SECOND + rng.integers(0, count * SECOND, count),
                pa.timestamp("us", tz="UTC"),
            ),
        }
    )


def script(batches: int, count: int) -> list[Any]:
    return [
        Batch(
            left=rows(2 * number, count, number * count),
            right=rows(2 * number + 1, count, number * count),
        )
        for number in range(batches)
    ]


def parts_of(join: InProcessJoin) -> list[int]:
    """Arrow bytes of each stored part of more than one row."""
    found = []
    for state in join.runner.state.values():
        for data in state.parts.values():
            batch = arrow.from_bytes(data)
            if batch.num_rows > 1:
                found.append(batch.nbytes)
    return found


def stored_indexes(runner: Runner) -> list[Any]:
    """The states of the indexes in the first unit's manifest."""
    found: list[Any] = json.loads(runner.state[0, 0].manifest or "")["indexes"]
    return found


@pytest.mark.parametrize("within", [None, "40 seconds"])
@pytest.mark.parametrize("predicate", ["r.k = s.k", "abs(r.n - s.n) <= 1 AND r.k <= s.k"])
def test_two_streams(watch: Watch, predicate: str, within: str | None) -> None:
    steps = script(12, 25)
    time = None if within is None else TIMES
    options = JoinOptions(topology="random", units=1, archive_period="5 minutes")
    outcome = run_script(predicate, steps, within=within, time=time, options=options)
    expected = expected_rows(predicate, steps, within=within, time=time)
    assert multiset(outcome.rows) == multiset(expected)
    assert 0 < watch.concatenated <= SAFE
    assert 0 < watch.made <= SAFE
    # A text has offsets and a bitmap beside its bytes.
    assert max(parts_of(outcome.join)) <= 1.2 * PART


def test_a_huge_batch_is_several_runs(watch: Watch) -> None:
    steps = script(1, 500)
    options = JoinOptions(topology="random", units=1)
    outcome = run_script("r.k = s.k", steps, options=options)
    assert multiset(outcome.rows) == multiset(expected_rows("r.k = s.k", steps))
    assert watch.concatenated <= SAFE
    # The batch came in pieces.
    again = run_script("r.k = s.k", steps, options=options, pieces=50)
    assert multiset(again.rows) == multiset(outcome.rows)
    assert watch.concatenated <= SAFE
    indexes = stored_indexes(again.join.runner)
    assert all(len(sub["runs"]) > 1 for index in indexes for sub in index)


def test_rows_too_large_to_be_merged_are_left_as_they_are(watch: Watch) -> None:
    large = rows(1, 1, longest=0).set_column(3, "w", pa.array(["x" * (SAFE // 3)]))
    steps = [
        Batch(left=large.set_column(0, "id", pa.array([number])), right=rows(number, 3, number))
        for number in range(30)
    ]
    options = JoinOptions(topology="random", units=1)
    outcome = run_script("r.id = s.id", steps, options=options)
    assert multiset(outcome.rows) == multiset(expected_rows("r.id = s.id", steps))
    assert watch.concatenated <= SAFE
    state = outcome.join.runner.state[0, 0]
    indexes = stored_indexes(outcome.join.runner)
    listed = [part[0] for index in indexes for sub in index for run in sub["runs"] for part in run]
    assert sorted(listed) == sorted(state.parts), "each part is listed once"
    runs = [len(run) for sub in indexes[0] for run in sub["runs"]]
    assert sum(runs) == 30
    assert len(runs) < 10, "they count as merged, and are not looked at in every batch"


CYCLIC = "r.k = s.k AND s.n > t.n AND abs(t.n - r.n) <= 3"
CHAIN = "abs(r.n - s.n) <= 1 AND s.k = t.k"


@pytest.mark.parametrize("predicate", [CYCLIC, CHAIN])
@pytest.mark.parametrize("intermediate", ["packed", "pairs"])
@pytest.mark.parametrize("within", [None, "20 seconds"])
def test_three_streams(watch: Watch, predicate: str, intermediate: Any, within: str | None) -> None:
    steps = [
        Batch(*(rows(10 * number + stream, 16, 16 * number) for stream in range(3)))
        for number in range(5)
    ]
    options = JoinOptions(units=1, intermediate=intermediate, full_history=True)
    time = None if within is None else "t"
    join = run_script(predicate, steps, within=within, time=time, options=options)
    expected = expected_rows(predicate, steps, within=within, time=time)
    assert multiset(join.rows) == multiset(expected)
    assert 0 < watch.concatenated <= SAFE
    assert watch.made <= SAFE
    sizes = [size for runner in join.join.runners for size in packs_of(runner.state)]
    assert sizes
    assert max(sizes) <= 1.5 * 4 * PART


def packs_of(states: dict[Place, UnitState]) -> list[int]:
    """Arrow bytes of each stored part of packs of more than one pair."""
    found = []
    for state in states.values():
        for data in state.parts.values():
            sections = arrow.sections_from_bytes(data)
            if len(sections) == 3 and sections[2].num_rows > 1:
                found.append(sum(section.nbytes for section in sections))
    return found


@pytest.mark.parametrize("intermediate", ["packed", "pairs"])
@pytest.mark.parametrize(
    "predicate", ["r.k = s.k AND s.k = t.k", "r.k = s.k AND s.n <= t.n", "r.k = s.k AND s.k < t.k"]
)
def test_more_pairs_of_one_part_than_make_a_run(
    monkeypatch: pytest.MonkeyPatch, predicate: str, intermediate: Any
) -> None:
    monkeypatch.setattr(packing, "MEETING_PAIRS", 7)
    steps = [Batch(*(rows(3 * n + i, 12, longest=9) for i in range(3))) for n in range(3)]
    options = JoinOptions(full_history=True, units=2, intermediate=intermediate)
    outcome = run_script(predicate, steps, options=options)
    assert multiset(outcome.rows) == multiset(expected_rows(predicate, steps))


def test_the_router_cuts_huge_batches_and_joins_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "MOST_BYTES", 16_000)
    small, huge = rows(1, 4).combine_chunks(), rows(2, 300).combine_chunks()
    batches = [*small.to_batches(), *huge.to_batches()] * 2
    batches += [batches[0].slice(0, 0), *small.to_batches()]
    found = list(router._gathered(iter(batches), 1000))
    assert pa.Table.from_batches(found) == pa.Table.from_batches(batches)
    assert max(batch.nbytes for batch in found) <= 1.2 * 16_000
    assert len(found) < 40


def test_a_view_of_large_texts(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 0
    combined = totals.Totals._combined

    def watched(self: totals.Totals, partials: Sequence[totals.Partial]) -> totals.Partial:
        nonlocal largest
        largest = max(largest, sum(partial.nbytes for partial in partials))
        return combined(self, partials)

    monkeypatch.setattr(totals.Totals, "_combined", watched)
    steps = [
        Batch(left=rows(number, 60, 60 * number), right=rows(number + 9, 60)) for number in range(3)
    ]
    sql = (
        "SELECT r.id, r.w, max(s.w) AS m, count(*) AS c FROM r JOIN s ON r.k = s.k"
        " GROUP BY r.id, r.w"
    )
    query = run_query(sql, steps, options=JoinOptions(topology="random", units=1))
    found = [(name, text, most, int(count)) for name, text, most, count in query.rows()]
    assert multiset(found) == multiset(expected_query(sql, steps))
    assert SAFE // 2 < largest <= SAFE
