"""Two streams for joins across sites: packets with a long payload, and alarms."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

ORIGIN = 1_767_225_600_000_000
"""2026-01-01, in microseconds."""
ALARMS = "alarm bigint, k int, level int, raised timestamp, text string"
_TIME = pa.timestamp("us", tz="UTC")


def packets(first: int, rows: int, *, keys: int = 20, payload: int = 200) -> pa.Table:
    """A packet each 100 ms; its payload says which it is, and some are NULL."""
    ids = np.arange(first, first + rows, dtype=np.int64)
    mixed = ids * 2_654_435_761 % 1_000_003
    texts = [None if one % 13 == 5 else f"packet {one} ".ljust(payload, "x") for one in ids]
    return pa.table(
        {
            "id": ids,
            "k": pa.array(mixed % keys, pa.int32(), mask=ids % 17 == 3),
            "size": pa.array(mixed % 101, pa.int64()),
            "payload": texts,
            "at": pa.array(ids * 100_000 + ORIGIN).cast(_TIME),
        }
    )


def alarms(first: int, rows: int, *, keys: int = 20) -> pa.Table:
    """An alarm each 500 ms."""
    ids = np.arange(first, first + rows, dtype=np.int64)
    mixed = ids * 40_503 % 65_537
    return pa.table(
        {
            "alarm": ids,
            "k": pa.array(mixed % keys, pa.int32()),
            "level": pa.array(mixed % 7, pa.int32()),
            "raised": pa.array(ids * 500_000 + ORIGIN).cast(_TIME),
            "text": [f"alarm {one} ".ljust(300, "y") for one in ids],
        }
    )
