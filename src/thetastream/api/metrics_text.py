"""The batches of a query as rows of tables."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thetastream.api.batches import BatchMetrics
    from thetastream.api.loads import StreamLoad

HEAD = (
    *("batch", "rows in", "seconds", "rows/s", "results", "late", "stored rows", "stored bytes"),
    *("watermark (UTC)", "lag (s)", "imbalance"),
)
STREAMS_HEAD = ("stream", "rows in", "late", "newest time (UTC)", "watermark (UTC)")
KEYS_HEAD = ("stream", "key", "rows")


def batch_row(batch: BatchMetrics) -> tuple[str, ...]:
    return (
        str(batch.batch),
        f"{batch.rows_in:,}",
        f"{batch.seconds:.2f}",
        f"{batch.rows_per_second:,.0f}",
        f"{batch.results:,}",
        f"{batch.late:,}",
        f"{batch.stored_rows:,}",
        f"{batch.stored_bytes:,}",
        shown_time(batch.watermark),
        "-" if batch.lag is None else f"{batch.lag:,.1f}",
        "-" if batch.imbalance is None else f"{batch.imbalance:.2f}",
    )


def work_rows(batch: BatchMetrics) -> list[tuple[str, ...]]:
    # Of a tree, results come from the units of its last join.
    units = Counter(unit.join for unit in batch.units)
    return [
        ("rows of the busiest unit above the mean", f"{batch.excess or 0:,.1f}"),
        ("units that results come from", f"{batch.gathered_from} of {units[max(units)]}"),
        ("index updates per row", f"{batch.updates_per_row or 0:.2f}"),
    ]


def stream_row(stream: StreamLoad) -> tuple[str, ...]:
    return (
        stream.stream,
        f"{stream.rows_in:,}",
        f"{stream.late:,}",
        shown_time(stream.newest),
        shown_time(stream.watermark),
    )


def shown_time(time: datetime | None) -> str:
    return "-" if time is None else time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
