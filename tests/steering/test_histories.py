"""Whole joins in process while their tables change, against DuckDB."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.steering.histories import KINDS, ends, play, play_view
from thetastream.index import pim, streamaware

SEEDS = {2: 5, 3: 3}
"""Histories of joins with so many streams: those of three take three times as long."""
SHORT = 10
"""Batches of a history, before those that bring its last change to an end."""
INDEX_SEEDS = {2: 3, 3: 3}
"""Histories with an index other than the default, to which most of a change makes no difference."""


@pytest.fixture(autouse=True)
def _small_components(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows fill the mutable component of a PIM-tree, or make a value hot."""
    monkeypatch.setattr(pim, "MUTABLE_ROWS", 12)
    monkeypatch.setattr(streamaware, "ENOUGH_ROWS", 4)
    monkeypatch.setattr(streamaware, "HOT_SHARE", 0.15)
    monkeypatch.setattr(streamaware, "COOL_SHARE", 0.1)


@pytest.mark.parametrize("name", list(KINDS))
def test_no_row_is_lost_or_doubled_whatever_changes(name: str) -> None:
    seen: Counter[str] = Counter()
    seeds = INDEX_SEEDS if "index" in (KINDS[name].options or {}) else SEEDS
    count = seeds[KINDS[name].streams]
    for seed in range(count):
        seen.update(ends(play(KINDS[name], seed, count=SHORT)))
    # A test in which nothing changes shows nothing.
    assert seen["announce"] >= count / 4
    assert seen["announce"] == seen["switch"] == seen["forget"]


def test_aggregates_in_place_lose_nothing_either() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS[2]):
        seen.update(ends(play_view(seed, count=SHORT)))
    assert seen["forget"] > 0


@pytest.mark.chaos
@pytest.mark.parametrize("name", list(KINDS))
def test_no_row_is_lost_or_doubled_in_many_histories(name: str) -> None:
    first = int(os.environ.get("THETASTREAM_SEED", "1000"))
    for seed in range(first, first + 200):
        play(KINDS[name], seed)


@pytest.mark.chaos
def test_aggregates_in_place_in_many_histories() -> None:
    first = int(os.environ.get("THETASTREAM_SEED", "1000"))
    for seed in range(first, first + 200):
        play_view(seed)
