"""What a join is asked for besides its predicate."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from thetastream.durations import parse_duration
from thetastream.options import JoinOptions
from thetastream.planner.window import Within
from thetastream.spec import Reach
from thetastream.transport.choosing import ASSUMED_LINK
from thetastream.transport.costmodel import Link

ARCHIVE_PERIODS = 10
"""Sub-indexes that a window is cut into."""


@dataclass(frozen=True, kw_only=True)
class SiteFacts:
    """What is known of a stream at a site before anything is joined."""

    sizes: Mapping[str, float]
    """Its columns, each with the bytes that a value takes."""
    link: Link = ASSUMED_LINK


@dataclass(frozen=True, kw_only=True)
class Request:
    """The window, the event times and the options of a join."""

    within: Within = None
    time: Mapping[str, str] = field(default_factory=dict)
    """The event-time column of each stream that has one."""
    options: JoinOptions = field(default_factory=JoinOptions)
    delay: int = 0
    """How late a tuple may be, in microseconds."""
    sites: Mapping[str, SiteFacts] = field(default_factory=dict)
    """The streams that are at sites, and what is known of them."""
    origin: str = ""
    """The line of the user's program that asked."""

    def archive_period(self, reach: Reach) -> int | None:
        """The event time that a sub-index spans; None in a full history."""
        lengths = [abs(length) for row in reach for length in row if length is not None]
        if not lengths:
            return None
        asked = self.options.archive_period
        if asked != "auto":
            return max(1, parse_duration(asked, "archive_period"))
        # Tuples outlive a window that is shorter than the delay.
        return max(1, max(*lengths, self.delay) // ARCHIVE_PERIODS)

    def untimed(self) -> Request:
        """The same without a window: the event time is a column like any other."""
        return replace(self, within=None, time={})

    def between(self, streams: Collection[str]) -> Request:
        """The same for a join of some of the streams."""
        time = {name: column for name, column in self.time.items() if name in streams}
        return replace(self, time=time)


def named_times(time: Mapping[str, str | None] | None) -> dict[str, str]:
    """The event times of the streams that have one."""
    return {name: column for name, column in (time or {}).items() if column is not None}
