"""Whole joins in process while keys become hot and cool, against DuckDB."""

from __future__ import annotations

import os

import pytest

from tests.steering.hot_histories import KINDS, play_hot
from thetastream.index import pim
from thetastream.steering.hotkeys import HotKeys

SHORT = 10
"""Batches of a history, before all keys cool."""
SIMILAR = ("integers and a range", "nested loops")
"""Kinds that differ little from others here."""
STEPS = ("copy", "hot", "cooling")


@pytest.fixture(autouse=True)
def _small_components(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows fill the mutable component of a PIM-tree."""
    monkeypatch.setattr(pim, "MUTABLE_ROWS", 12)


@pytest.mark.parametrize("name", [name for name in KINDS if name not in SIMILAR])
def test_no_row_is_lost_or_doubled_whatever_becomes_hot(name: str) -> None:
    seen = play_hot(KINDS[name], 2, count=SHORT).steps
    # A test in which nothing becomes hot shows nothing.
    assert all(seen[step] for step in STEPS), seen


@pytest.mark.parametrize("name", ["strings"])
def test_a_policy_decides_and_no_row_is_lost_or_doubled(name: str) -> None:
    played = play_hot(
        KINDS[name], 1, count=SHORT, rows=40, policies=(HotKeys(patience=1),), by_hand=False
    )
    assert all(played.steps[step] for step in STEPS), played.steps


@pytest.mark.chaos
@pytest.mark.parametrize("name", list(KINDS))
def test_no_row_is_lost_or_doubled_in_many_histories(name: str) -> None:
    first = int(os.environ.get("THETASTREAM_SEED", "1000"))
    for seed in range(first, first + 100):
        play_hot(KINDS[name], seed)
        play_hot(KINDS[name], seed, rows=30, policies=(HotKeys(patience=1),), by_hand=False)
