"""What a run says at its end."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from thetastream.cli.progress import Totals, still_open

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("totals", "windowed", "grouped", "words"),
    [
        (Totals(10, 0, 7, NOON), True, False, "7 stored rows can still match later rows"),
        (Totals(10, 0, 0, NOON), True, False, None),
        (Totals(10, 0, 7, None), False, False, None),
        (Totals(10, 0, 7, NOON), True, True, "end after 2026-01-01T12:00:00+00:00 are still open"),
        (Totals(10, 0, 7, None), True, True, "no time window has ended yet"),
        (Totals(), True, True, None),
    ],
)
def test_what_is_still_open(
    totals: Totals, windowed: bool, grouped: bool, words: str | None
) -> None:
    said = still_open(totals, windowed=windowed, grouped=grouped)
    assert said is None if words is None else words in (said or "")
