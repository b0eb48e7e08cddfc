"""Which watermark a join goes by."""

from __future__ import annotations

import enum


class Clock(enum.StrEnum):
    """Which of Spark's watermarks a join goes by, to leave late tuples out and to expire old ones.

    Spark's watermark is never before 1970: it is there before the first batch, and as long as all
    it has seen is older.
    """

    NONE = "none"
    """None of them: time limits nothing."""
    MOVED = "moved"
    """Those after 1970. The one it starts with says nothing about the tuples."""
    ALL = "all"
    """The one it starts with, too: what follows the join drops or refuses older results."""

    def watermark(self, spark: int) -> int | None:
        """What a join makes of Spark's watermark, both in microseconds."""
        if self is Clock.NONE or (self is Clock.MOVED and spark <= 0):
            return None
        return spark


def clock_of(*, windowed: bool, timed: bool) -> Clock:
    """Which of Spark's watermarks a join goes by, all its steps and stages alike."""
    if not windowed:
        return Clock.NONE
    return Clock.ALL if timed else Clock.MOVED
