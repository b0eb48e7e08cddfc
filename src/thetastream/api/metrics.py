"""Reads what a running join did from Spark's progress and from the reports that come with it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from thetastream.api.batches import BatchMetrics, Metrics
from thetastream.api.loads import HeavyKey, StreamLoad, UnitLoad
from thetastream.api.observed import texts
from thetastream.api.wires import site_loads
from thetastream.runtime.dataflow import INNER, OBSERVATION
from thetastream.steering.frequent import gain, told_keys, worst_balance


def metrics(query: StreamingQuery) -> Metrics:
    """The query's recent batches, oldest first; `print` shows them as a table.

    >>> for batch in ts.metrics(query):
    ...     if batch.rows_in:
    ...         print(batch.batch, batch.rows_in, batch.results, batch.stored_rows)
    0 6 3 6
    """
    batches = Metrics()
    for progress in query.recentProgress:
        batches.append(_batch(progress, batches[-1] if batches else None))
    return batches


def _batch(progress: StreamingQueryProgress, last: BatchMetrics | None) -> BatchMetrics:
    observed = progress.observedMetrics or {}
    reports = list(_reports(observed))
    told = [(int(one.get("join", 0)), one) for one in map(json.loads, report_texts(observed))]
    units = [report.unit for report in reports]
    sites, markers = site_loads(progress.observedMetrics or {})
    times = progress.eventTime or {}
    watermark = _time(times.get("watermark"))
    if watermark is not None and watermark.timestamp() <= 0:
        watermark = None
    streams = _streams(reports, () if last is None else last.streams)
    seen = [_time(times.get("max")), None if last is None else last.newest]
    seen += [stream.newest for stream in streams]
    found = BatchMetrics(
        batch=progress.batchId,
        rows_in=max(0, progress.numInputRows - markers),
        seconds=(progress.durationMs or {}).get("triggerExecution", 0) / 1000,
        results=sum(report.unit.results for report in reports if not report.inner),
        late=sum(unit.late for unit in units),
        stored_rows=sum(unit.stored_rows for unit in units),
        stored_bytes=sum(unit.stored_bytes for unit in units),
        watermark=watermark,
        newest=max((time for time in seen if time is not None), default=None),
        streams=streams,
        units=tuple(units),
        gathered_from=sum(report.unit.results > 0 for report in reports if not report.inner),
        hot=told_keys(told),
        balance=worst_balance(gain(told)),
        sites=sites,
    )
    if not units and last is not None:
        # No unit had a turn, so the state is what it was.
        return replace(found, stored_rows=last.stored_rows, stored_bytes=last.stored_bytes)
    return found


# -- reports ------------------------------------------------------------------------------------


_REPORTED = {field.name for field in dataclasses.fields(UnitLoad)}
"""What of a report is shown; the rest is for whoever steers the join."""


class _Report(NamedTuple):
    """A unit's report, and the streams that it counts."""

    unit: UnitLoad
    streams: Sequence[tuple[str, int, int, int | None, int | None]]
    inner: bool
    """Whether the results are a stream of another join."""


def _reports(observed: dict[str, Any]) -> Iterator[_Report]:
    """The reports of the units, in the order of their joins."""
    found: dict[tuple[bool, int, str, int], dict[str, Any]] = {}
    for name, row in observed.items():
        if name.startswith(OBSERVATION):
            for text in texts(row):
                fields = json.loads(text)
                stage, unit = fields.pop("stage"), fields["unit"]
                # A stage that Spark ran again reports again.
                found[not name.startswith(INNER), stage, name, unit] = fields
    joins = sorted({place[:3] for place in found})
    for place in sorted(found):
        fields = found[place]
        heavy = tuple(
            HeavyKey(stream=stream, key=key, rows=rows) for stream, key, rows in fields.pop("heavy")
        )
        streams = fields.pop("streams")
        known = {name: value for name, value in fields.items() if name in _REPORTED}
        load = UnitLoad(heavy=heavy, **(known | {"join": joins.index(place[:3])}))
        yield _Report(load, streams, inner=not place[0])


def report_texts(observed: dict[str, Any]) -> Iterator[str]:
    """The units' reports among the observed metrics of a batch, as they were written."""
    for name, row in observed.items():
        if name.startswith(OBSERVATION):
            yield from texts(row)


def _streams(reports: Iterable[_Report], before: Sequence[StreamLoad]) -> tuple[StreamLoad, ...]:
    """What the units counted of each stream, on top of what was known of it."""
    found = {item.stream: replace(item, rows_in=0, late=0) for item in before}
    for report in reports:
        for name, rows, late, micros, delay in report.streams:
            old = found.get(name) or StreamLoad(
                stream=name, rows_in=0, late=0, newest=None, watermark=None
            )
            new = replace(old, rows_in=old.rows_in + rows, late=old.late + late)
            newest = _instant(micros)
            if newest is not None and (old.newest is None or newest > old.newest):
                mark = None if delay is None else _earlier(newest, delay)
                new = replace(new, newest=newest, watermark=mark)
            found[name] = new
    return tuple(found.values())


def _instant(micros: int | None) -> datetime | None:
    """Microseconds since 1970 as a time; None where Python has none so far away."""
    if micros is None:
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    except OverflowError:
        return None


def _earlier(time: datetime, delay: int) -> datetime | None:
    try:
        return time - timedelta(milliseconds=delay)
    except OverflowError:
        return None


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
