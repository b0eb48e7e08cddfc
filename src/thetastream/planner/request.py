"""What a join is asked for beside its predicate."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from thetastream.options import JoinOptions
from thetastream.planner.window import Within


@dataclass(frozen=True, kw_only=True)
class Request:
    """The window, the event times and the options of a join."""

    within: Within = None
    time: Mapping[str, str] = field(default_factory=dict)
    """The event-time column of each stream that has one."""
    options: JoinOptions = field(default_factory=JoinOptions)
    delay: int = 0
    """How late a tuple may be, in microseconds."""
    origin: str = ""
    """The line of the user's program that asked."""

    def untimed(self) -> Request:
        """The same without a window: the event time is a column like any other."""
        return replace(self, within=None, time={})

    def between(self, streams: Collection[str], options: JoinOptions) -> Request:
        """The same for a join of some of the streams."""
        time = {name: column for name, column in self.time.items() if name in streams}
        return replace(self, time=time, options=options)


def named_times(time: Mapping[str, str | None] | None) -> dict[str, str]:
    """The event times of the streams that have one."""
    return {name: column for name, column in (time or {}).items() if column is not None}
