"""What a running join did: each batch's rows, results, state and the load of its units."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from thetastream.runtime.dataflow import INNER, OBSERVATION


@dataclass(frozen=True, kw_only=True)
class UnitLoad:
    """One unit in one batch."""

    unit: int
    rows_in: int
    """Tuples that the unit is home to."""
    probes: int
    """Tuples that looked for partners here."""
    results: int
    out_bytes: int
    """Bytes of results, or of the view, that left the unit."""
    late: int
    stored_rows: int
    stored_bytes: int
    runs: int
    busy: float
    """Seconds from the unit's first to its last instruction."""
    entries: int = 0
    """Intermediate results of a three-way join that are stored: packs, or pairs if not packed."""
    pairs: int = 0
    """Pairs in them."""
    heavy: tuple[tuple[int, int], ...] = ()
    """The most frequent equality keys of the batch, encoded, each with its count."""


@dataclass(frozen=True, kw_only=True)
class BatchMetrics:
    """One batch of a query."""

    batch: int
    rows_in: int
    """Rows that the query read from its sources."""
    seconds: float
    results: int
    """Pairs that left the units, before what the kernel cannot decide is re-checked."""
    late: int
    """Tuples older than the watermark, dropped."""
    stored_rows: int
    stored_bytes: int
    watermark: datetime | None
    lag: float
    """Seconds by which the watermark trails the newest event time."""
    units: tuple[UnitLoad, ...]
    """Empty for a batch without rows, and when Spark did not deliver the reports."""

    @property
    def rows_per_second(self) -> float:
        """Rows read for each second of the batch."""
        return self.rows_in / self.seconds if self.seconds else 0.0


def metrics(query: StreamingQuery) -> list[BatchMetrics]:
    """The query's recent batches, oldest first."""
    batches: list[BatchMetrics] = []
    for progress in query.recentProgress:
        batch = _batch(progress)
        if not batch.units and batches:
            # No unit had a turn, so the state is what it was.
            last = batches[-1]
            batch = replace(batch, stored_rows=last.stored_rows, stored_bytes=last.stored_bytes)
        batches.append(batch)
    return batches


def _batch(progress: StreamingQueryProgress) -> BatchMetrics:
    found: dict[tuple[str, int], UnitLoad] = {}
    for name, row in sorted((progress.observedMetrics or {}).items()):
        if not name.startswith(OBSERVATION):
            continue
        for report in _reports(row):
            fields = json.loads(report)
            heavy = tuple((key, count) for key, count in fields.pop("heavy"))
            # A stage that Spark ran again reports again.
            found[name, fields["unit"]] = UnitLoad(heavy=heavy, **fields)
    units = sorted(found.values(), key=lambda unit: unit.unit)
    times = progress.eventTime or {}
    watermark = _time(times.get("watermark"))
    newest = _time(times.get("max"))
    if watermark is not None and watermark.timestamp() <= 0:
        watermark = None
    lag = (newest - watermark).total_seconds() if newest and watermark else 0.0
    return BatchMetrics(
        batch=progress.batchId,
        rows_in=progress.numInputRows,
        seconds=(progress.durationMs or {}).get("triggerExecution", 0) / 1000,
        results=sum(
            unit.results for (name, _), unit in found.items() if not name.startswith(INNER)
        ),
        late=sum(unit.late for unit in units),
        stored_rows=sum(unit.stored_rows for unit in units),
        stored_bytes=sum(unit.stored_bytes for unit in units),
        watermark=watermark,
        lag=lag,
        units=tuple(units),
    )


def _reports(row: object) -> Iterator[str]:
    """The units' reports in an observed row; a unit that had no turn left none."""
    if isinstance(row, str):
        if row.startswith("{"):
            yield row
    elif isinstance(row, list | tuple):
        # On Connect the values are a list of their own, beside their names.
        for item in row:
            yield from _reports(item)


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
