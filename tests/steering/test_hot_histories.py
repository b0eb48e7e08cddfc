"""Whole joins in process while keys become hot and cool, against DuckDB."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.steering.hot_histories import KINDS, play_hot
from thetastream.index import pim
from thetastream.steering.hotkeys import HotKeys

SEEDS = {"integers": 3, "full history": 2}
"""Histories of each kind: one, but for the plainest ones."""
STEPS = ("copy", "hot", "cooling")


@pytest.fixture(autouse=True)
def _small_components(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows fill the mutable component of a PIM-tree."""
    monkeypatch.setattr(pim, "MUTABLE_ROWS", 12)


@pytest.mark.parametrize("name", list(KINDS))
def test_no_row_is_lost_or_doubled_whatever_becomes_hot(name: str) -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS.get(name, 1)):
        seen += play_hot(KINDS[name], seed).steps
    # A test in which nothing becomes hot shows nothing.
    assert all(seen[step] for step in STEPS), seen


@pytest.mark.parametrize("name", ["integers", "strings"])
def test_a_policy_decides_and_no_row_is_lost_or_doubled(name: str) -> None:
    played = play_hot(
        KINDS[name], 1, count=14, rows=40, policies=(HotKeys(patience=1),), by_hand=False
    )
    assert all(played.steps[step] for step in STEPS), played.steps


@pytest.mark.chaos
@pytest.mark.parametrize("name", list(KINDS))
def test_no_row_is_lost_or_doubled_in_many_histories(name: str) -> None:
    first = int(os.environ.get("THETASTREAM_SEED", "1000"))
    for seed in range(first, first + 100):
        play_hot(KINDS[name], seed)
        play_hot(KINDS[name], seed, rows=30, policies=(HotKeys(patience=1),), by_hand=False)
