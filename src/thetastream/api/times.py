"""Which column is a stream's event time, and whether it has a watermark."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, TimestampNTZType, TimestampType

from thetastream.errors import WindowError
from thetastream.runtime.dataflow import WATERMARK


class Arrival(enum.Enum):
    """The time at which the batch that brought a row began."""

    ARRIVAL = "arrival"


ARRIVAL: Final = Arrival.ARRIVAL
"""Use the time of arrival where a stream has no time of its own: time={"orders": ts.ARRIVAL}."""

Time = str | Arrival | Mapping[str, str | Arrival] | None


@dataclass(frozen=True)
class TimedFrame:
    """A stream with its event time, if it has one."""

    name: str
    frame: DataFrame
    column: str | None
    watermarked: bool

    @property
    def own_delay(self) -> int:
        """Microseconds that its rows may be late by a watermark that it came with; 0 without."""
        delays = [(field.metadata or {}).get(WATERMARK) for field in self.frame.schema.fields]
        return max((1000 * int(delay) for delay in delays if delay is not None), default=0)

    def with_delay(self, delay: str | None) -> DataFrame:
        """The frame with a watermark, for a join with a window."""
        if not self.frame.isStreaming or self.watermarked or self.column is None:
            return self.frame
        if delay is None:
            raise WindowError(
                f"stream {self.name!r} has no watermark, and without one a window never ends",
                hint=f'say how late a row of {self.column!r} may be: delay="5 seconds"',
            )
        if isinstance(self.frame.schema[self.column].dataType, TimestampNTZType):
            raise WindowError(
                f"the event time {self.column!r} of stream {self.name!r} has no time zone, and"
                " Spark has no watermarks without one",
                hint=f"cast it first: df.withColumn({self.column!r},"
                f" F.col({self.column!r}).cast('timestamp'))",
            )
        return self.frame.withWatermark(self.column, delay)


def at_site(timed: TimedFrame, frame: DataFrame) -> TimedFrame:
    """The same event time, on the tuples as they come from a site."""
    if timed.column is None or timed.column in frame.columns:
        return replace(timed, frame=frame)
    return _stamped(timed.name, frame, timed.column)


def timed_frames(
    frames: Mapping[str, DataFrame], time: Time, *, needed: bool
) -> dict[str, TimedFrame]:
    """Each stream with its event time; `needed` if there is a window, which requires one."""
    if isinstance(time, Mapping):
        unknown = [name for name in time if name not in frames]
        if unknown:
            raise WindowError(
                f"time names a stream {unknown[0]!r} that was not given",
                hint=f"the streams are {', '.join(frames)}",
            )
    timed = {}
    for name, frame in frames.items():
        wanted = time.get(name) if isinstance(time, Mapping) else time
        if wanted is ARRIVAL:
            timed[name] = _arriving(name, frame)
        else:
            timed[name] = _timed(name, frame, wanted, needed=needed)
    return timed


def _arriving(name: str, frame: DataFrame) -> TimedFrame:
    column = "_arrival_time"
    while column in frame.columns:
        column += "_"
    return _stamped(name, frame, column)


def _stamped(name: str, frame: DataFrame, column: str) -> TimedFrame:
    stamped = frame.withColumn(column, F.current_timestamp())
    if stamped.isStreaming:
        # Batches start one after the other: nothing is ever late.
        stamped = stamped.withWatermark(column, "0 seconds")
    return TimedFrame(name, stamped, column, watermarked=True)


def _timed(
    name: str, frame: DataFrame, wanted: str | Arrival | None, *, needed: bool
) -> TimedFrame:
    fields = frame.schema.fields
    marked = [field.name for field in fields if WATERMARK in (field.metadata or {})]
    if isinstance(wanted, str):
        field = _field(name, fields, wanted)
        if marked and field.name not in marked:
            raise WindowError(
                f"stream {name!r} has its watermark on {marked[0]!r}, not on {field.name!r}",
                hint=f"give time={marked[0]!r}, or set the watermark on {field.name!r}",
            )
        return TimedFrame(name, frame, field.name, watermarked=field.name in marked)
    if marked:
        return TimedFrame(name, frame, marked[0], watermarked=True)
    stamps = [field.name for field in fields if isinstance(field.dataType, TimestampType)]
    if len(stamps) == 1 and needed:
        return TimedFrame(name, frame, stamps[0], watermarked=False)
    if not needed:
        return TimedFrame(name, frame, None, watermarked=False)
    if stamps:
        raise WindowError(
            f"stream {name!r} has several timestamps: {', '.join(stamps)}",
            hint=f'say which is the event time: time={{"{name}": "{stamps[0]}"}}',
        )
    raise WindowError(
        f"stream {name!r} has no timestamp column, and a window needs a time",
        hint=f'cast a column to timestamp and name it with time={{"{name}": ...}}, or use the time'
        f' of arrival: time={{"{name}": ts.ARRIVAL}}',
    )


def _field(name: str, fields: list[StructField], wanted: str) -> StructField:
    found = [field for field in fields if field.name == wanted] or [
        field for field in fields if field.name.lower() == wanted.lower()
    ]
    if not found:
        raise WindowError(
            f"stream {name!r} has no time column {wanted!r}",
            hint=f"its columns are {', '.join(field.name for field in fields)}",
        )
    if not isinstance(found[0].dataType, TimestampType | TimestampNTZType):
        raise WindowError(
            f"the time column {wanted!r} of stream {name!r} is a"
            f" {found[0].dataType.simpleString()}, not a timestamp",
            hint="cast it first: df.withColumn(..., F.col(...).cast('timestamp'))",
        )
    return found[0]
