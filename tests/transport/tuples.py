"""Tuples for the tests of sites."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("fare", pa.float64()),
        ("zone", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
ORIGIN = 1_767_225_600_000_000
"""2026-01-01, in microseconds."""


def rides(first: int, rows: int) -> pa.RecordBatch:
    """Tuples whose content says which they are; some fares and zones are NULL."""
    ids = np.arange(first, first + rows, dtype=np.int64)
    fares = pa.array(ids * 0.5, mask=ids % 7 == 3)
    zones = pa.array([None if number % 5 == 4 else f"zone {number % 11}" for number in ids])
    times = pa.array(ids * 1000 + ORIGIN).cast(pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_arrays([pa.array(ids), fares, zones, times], schema=SCHEMA)


def ids(batches: list[pa.RecordBatch]) -> list[int]:
    """The ids in the batches, in their order."""
    return [number for batch in batches for number in batch.column("id").to_pylist()]


class Clock:
    """The time of a machine, which a test sets, and the time that really passes."""

    def __init__(self) -> None:
        self._time = ORIGIN
        self._passed = 0

    def wall(self) -> int:
        return self._time

    def steady(self) -> int:
        return self._passed

    def wait(self, microseconds: int) -> None:
        """Time passes."""
        self._time += microseconds
        self._passed += microseconds

    def jump(self, microseconds: int) -> None:
        """The clock is set; no time passes."""
        self._time += microseconds
