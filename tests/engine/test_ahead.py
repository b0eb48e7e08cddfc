"""Rows whose time is far ahead, and what they keep: themselves, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from thetastream.engine.runner import Runner
from thetastream.options import JoinOptions
from thetastream.testing.inprocess import Batch, expected_rows, multiset, run_script

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
YEAR = 365 * 86_400 * SECOND
TIMES = {"r": "t", "s": "t"}
BATCHES = 60
STEP = 4 * SECOND


def rows(
    seed: int, number: int, *, ahead: int, offset: int = YEAR, count: int = 12, keys: int = 20
) -> pa.Table:
    """Rows of one batch, and some whose times are far ahead."""
    tables = []
    for some, later in ((count, 0), (ahead, offset)):
        rng = np.random.default_rng([seed, number, later])
        times = START + number * STEP + later + rng.integers(0, STEP, some)
        columns = {
            "k": pa.array(rng.integers(0, keys, some)),
            "n": pa.array(rng.integers(0, 9, some)),
            "t": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)


def watermark(number: int) -> int:
    """The other stream holds it back: it does not follow the times that are far ahead."""
    return START + number * STEP - 5 * SECOND


def stored(runner: Runner) -> list[int]:
    """The rows, or packs, that are stored after each batch."""
    units = len({report.unit for report in runner.reports})
    found = [report.stored_rows for report in runner.reports]
    return [sum(found[start : start + units]) for start in range(0, len(found), units)]


def script(ahead: int, offset: int = YEAR) -> list[Batch]:
    return [
        Batch(
            left=rows(1, number, ahead=ahead, offset=offset),
            right=rows(2, number, ahead=0),
            watermark=watermark(number),
        )
        for number in range(BATCHES)
    ]


@pytest.mark.parametrize("predicate", ["r.k = s.k", "abs(r.n - s.n) <= 1"])
def test_they_keep_no_other_rows(predicate: str) -> None:
    options = JoinOptions(topology="random", units=1)
    settings: dict[str, Any] = {"within": "10 seconds", "time": TIMES}
    plain = run_script(predicate, script(0), options=options, **settings)
    steps = script(1)
    mixed = run_script(predicate, steps, options=options, **settings)
    assert multiset(mixed.rows) == multiset(expected_rows(predicate, steps, **settings))
    without, found = stored(plain.join.runner), stored(mixed.join.runner)
    assert len(found) == len(without) == BATCHES
    for number, (few, more) in enumerate(zip(without, found, strict=True), 1):
        assert more <= few + number
    assert max(without) < 12 * 12
    assert mixed.join.runner.reports[-1].runs <= plain.join.runner.reports[-1].runs + 9


@pytest.mark.parametrize("windows", [4, 20, 200])
def test_they_are_rows_like_others_once_their_time_has_come(windows: int) -> None:
    steps = script(2, windows * 10 * SECOND)
    settings: dict[str, Any] = {"within": "10 seconds", "time": TIMES}
    options = JoinOptions(topology="random", units=1)
    outcome = run_script("r.k = s.k", steps, options=options, **settings)
    assert multiset(outcome.rows) == multiset(expected_rows("r.k = s.k", steps, **settings))


CYCLIC = "r.k = s.k AND s.n >= t.n AND abs(t.n - r.n) <= 3"
CHAIN = "r.k = s.k AND abs(s.n - t.n) <= 1"


def three_streams(predicate: str, ahead: int) -> list[int]:
    """Two of the streams have rows that are ahead, so that there are packs that matter as long."""
    steps = [
        Batch(
            *(rows(seed, number, ahead=seed and ahead, count=6, keys=9) for seed in range(3)),
            watermark=watermark(number),
        )
        for number in range(BATCHES // 2)
    ]
    options = JoinOptions(units=1)
    join = run_script(predicate, steps, within="10 seconds", time="t", options=options)
    expected = expected_rows(predicate, steps, within="10 seconds", time="t")
    assert multiset(join.rows) == multiset(expected)
    (runner,) = join.join.runners
    return stored(runner)


@pytest.mark.parametrize("predicate", [CYCLIC, CHAIN])
def test_nor_do_packs_of_them(predicate: str) -> None:
    plain, mixed = three_streams(predicate, 0), three_streams(predicate, 1)
    for number, (few, more) in enumerate(zip(plain, mixed, strict=True), 1):
        # Two rows that are ahead, and the packs of such rows.
        assert more <= few + 7 * number
