"""What a run says at its end."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

import pytest

import thetastream as ts
from thetastream.cli.progress import Json, Totals, still_open

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


def test_a_batch_for_machines_has_its_streams() -> None:
    orders = ts.StreamLoad(stream="orders", rows_in=4, late=1, newest=NOON, watermark=None)
    batch = ts.BatchMetrics(
        batch=3,
        rows_in=4,
        seconds=0.5,
        results=2,
        late=1,
        stored_rows=9,
        stored_bytes=99,
        watermark=NOON,
        newest=NOON,
        streams=(orders,),
        units=(),
    )
    out = io.StringIO()
    Json(out).batch(batch)
    found = json.loads(out.getvalue())
    assert list(found) == [
        *("batch", "rows_in", "seconds", "results", "late", "stored_rows", "stored_bytes"),
        *("watermark", "lag", "busy", "streams"),
    ]
    assert found["watermark"] == "2026-01-01T12:00:00+00:00"
    assert found["streams"] == [
        {
            "stream": "orders",
            "rows_in": 4,
            "late": 1,
            "newest": "2026-01-01T12:00:00+00:00",
            "watermark": None,
        }
    ]
