"""Several publishers of one control directory: whoever is paused or fails does no harm."""

from __future__ import annotations

import pytest

from tests.steering.publishers import PLAYED, play_crowd


def test_publishers_that_pause_and_fail_do_no_harm() -> None:
    versions = [play_crowd(PLAYED[seed % len(PLAYED)], seed).version.version for seed in range(15)]
    assert sum(versions) > 40, "histories in which little is published show little"


@pytest.mark.chaos
def test_a_thousand_histories_of_publishers() -> None:
    versions = [
        play_crowd(PLAYED[seed % len(PLAYED)], seed).version.version for seed in range(1_000)
    ]
    assert sum(versions) > 3_000
