"""What deserves a look in the batches of a query, and what to do about it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from thetastream.api.metrics_text import shown_time

if TYPE_CHECKING:
    from thetastream.api.batches import BatchMetrics

UNEVEN = 1.3
"""Times its share that the busiest unit may get before there is a note on it."""
ENOUGH_ROWS = 100
"""Rows per unit from which on their balance is meaningful."""


class Share(NamedTuple):
    """The busiest unit of a join."""

    join: int
    unit: int
    rows: int
    total: int
    units: int

    @property
    def times(self) -> float:
        return self.rows * self.units / self.total

    @property
    def excess(self) -> float:
        return self.rows - self.total / self.units


def shares(batches: Iterable[BatchMetrics]) -> list[Share]:
    """The busiest unit of each join, over some batches."""
    rows: dict[int, Counter[int]] = defaultdict(Counter)
    for batch in batches:
        for unit in batch.units:
            rows[unit.join][unit.unit] += unit.rows_in
    found = []
    for join, counted in sorted(rows.items()):
        fullest, most = counted.most_common(1)[0]
        if most:
            found.append(Share(join, fullest, most, counted.total(), len(counted)))
    return found


def balance_notes(batches: Sequence[BatchMetrics]) -> Iterator[str]:
    frequent = next((batch.heavy for batch in reversed(batches) if batch.units), ())
    many = bool(batches) and len(batches[-1].streams) > 2
    for share in shares(batches):
        if share.times < UNEVEN or share.total < ENOUGH_ROWS * share.units:
            continue
        note = (
            f"Unit {share.unit} got {share.rows:,} of {share.total:,} rows,"
            f" {share.times:.1f} times its share of {share.units} units:"
        )
        if many:
            yield f'{note} topology="random" spreads rows evenly, but sends each to more units.'
        elif frequent:
            yield (
                f"{note} there are few keys, or frequent ones such as {frequent[0].key!r} of"
                f' {frequent[0].stream}. hot_keys="auto" splits frequent keys, topology="contrand"'
                " spreads the rows of all, and more hot_units spread those of hot_values."
            )
        else:
            yield f"{note} use a smaller bucket_width to get more buckets, or fewer units."


def idle_notes(batches: Sequence[BatchMetrics]) -> Iterator[str]:
    """Streams that bring nothing while others do."""
    counted = [batch for batch in batches if any(item.rows_in for item in batch.streams)]
    if not counted:
        return
    for stream in counted[-1].streams:
        silent = 0
        for batch in reversed(counted):
            if any(item.rows_in for item in batch.streams if item.stream == stream.stream):
                break
            silent += 1
        if not silent:
            continue
        since = f"{stream.stream} brought no rows in the last {silent} batches that had rows"
        marks = [item.watermark for item in counted[-1].streams if item.watermark is not None]
        if stream.newest is None:
            yield f"{since}: no result can leave before it does."
        elif stream.watermark is not None and stream.watermark == min(marks):
            yield (
                f"{since}: its newest time, {shown_time(stream.newest)}, holds the watermark back,"
                " and the state of the other streams grows."
            )
        else:
            yield f"{since}; its newest time is {shown_time(stream.newest)}."


def late_notes(batches: Sequence[BatchMetrics]) -> Iterator[str]:
    late = sum(batch.late for batch in batches)
    if late:
        yield (
            f"{late:,} rows came after the watermark and were dropped: raise delay, or check the"
            " order in which the sources deliver their rows."
        )
