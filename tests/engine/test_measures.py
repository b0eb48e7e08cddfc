"""The measures of STA, by their definitions and on a skewed stream."""

from __future__ import annotations

import doctest
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetastream.engine import measures
from thetastream.engine.measures import (
    aggregation,
    completeness,
    imbalance,
    index_updates,
    redundancy,
    updates_per_row,
)
from thetastream.options import JoinOptions
from thetastream.simulator.trace import Trace, Turn
from thetastream.testing import Batch, InProcessJoin, rows_of

keys = st.lists(st.integers(0, 9), max_size=30)


def test_examples() -> None:
    found = doctest.testmod(measures)
    assert found.attempted > 0
    assert found.failed == 0


@given(st.lists(st.integers(0, 100), min_size=1, max_size=20), st.integers(0, 5))
def test_imbalance(loads: list[int], idle: int) -> None:
    found = imbalance(loads, units=len(loads) + idle)
    assert found == imbalance([*loads, *[0] * idle])
    assert found.gap >= 0
    assert 1 <= found.ratio <= len(loads) + idle or not any(loads)


def test_imbalance_of_nothing() -> None:
    assert (imbalance([]).gap, imbalance([]).ratio) == (0, 1)
    assert imbalance([0, 0]).ratio == 1
    with pytest.raises(ValueError, match="3 units have a load, and there are 2"):
        imbalance([1, 2, 3], units=2)


def test_a_simulation_measures_by_the_same_function() -> None:
    trace = Trace(epoch=1.0, seconds=2.0)
    assert trace.imbalance() == 1
    for unit, cpu in enumerate((0.6, 0.2, 0.4)):
        trace.turns.append(Turn(join=0, stage=0, unit=unit, tick=0, closed=1.0, cpu=cpu))
    assert trace.imbalance() == pytest.approx(1.5)


@given(keys, keys)
def test_completeness(found: list[int], expected: list[int]) -> None:
    lost = (Counter(expected) - Counter(found)).total()
    wanted = 1 - lost / len(expected) if expected else 1.0
    assert completeness(found, expected) == pytest.approx(wanted)
    assert completeness(expected + found, expected) == 1


def test_aggregation() -> None:
    assert aggregation([]) == 0
    assert aggregation([3, 3, 4]) == 2, "fewer than a set are one"
    turns = np.arange(5_000) % 100
    assert aggregation(turns.tolist()) == 100
    assert aggregation([0, 1, 2, 3, 3], rows=2) == 2, "the last one is not a whole set"
    with pytest.raises(ValueError, match="at least one"):
        aggregation([1], rows=0)


def ranks_moved(arrived: list[int]) -> int:
    """By the definition: for each key the largest rank that it ever had less the smallest."""
    seen: dict[int, list[int]] = {}
    index: set[int] = set()
    for key in arrived:
        index.add(key)
        for rank, one in enumerate(sorted(index)):
            seen.setdefault(one, []).append(rank)
    return sum(max(ranks) - min(ranks) for ranks in seen.values())


@given(keys, st.sets(st.integers(0, 9)))
def test_index_updates_are_the_moves_of_ranks(arrived: list[int], apart: set[int]) -> None:
    assert index_updates(arrived) == ranks_moved(arrived)
    others = [key for key in arrived if key not in apart]
    assert index_updates(arrived, apart) == ranks_moved(others) <= index_updates(arrived)


@given(st.lists(keys, max_size=6), st.sets(st.integers(0, 9)))
def test_redundancy(subs: list[list[int]], apart: set[int]) -> None:
    found = redundancy(subs, apart)
    wanted = Counter(key for keys in subs for key in set(keys) if key not in apart)
    assert (found.entries, found.distinct) == (wanted.total(), len(wanted))
    assert found.repeated == sum(count - 1 for count in wanted.values())
    assert 1 <= found.per_key <= max(1, len(subs))


def test_keys_apart_leave_less_to_do() -> None:
    """A separate index for the most frequent keys: the others are repeated less."""
    random = np.random.default_rng(6)
    for exponent in (1.2, 2.0):
        arrived = [int(key) for key in random.zipf(exponent, 4_000) % 10_007 * 7_919 % 10_007]
        hot = {key for key, _ in Counter(arrived).most_common(32)}
        subs = [arrived[start : start + 400] for start in range(0, 4_000, 400)]
        assert redundancy(subs, hot).per_key < redundancy(subs).per_key
        assert index_updates(arrived, hot) < index_updates(arrived)


@pytest.mark.parametrize("index", ["runs", "pim"])
def test_updates_of_a_join(index: Any) -> None:
    rows = rows_of(1, 30)
    join = InProcessJoin("r.k = s.k", (rows.schema,) * 2, options=JoinOptions(units=1, index=index))
    for start in range(0, 30, 10):
        join.batch(Batch(rows.slice(start, 10), rows.slice(0, 0)))
    kept = sum(report.rows_in for report in join.reports)
    assert kept > 0
    assert updates_per_row(join.reports) == 1, "three runs are not merged yet"
