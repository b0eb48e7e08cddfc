"""What a DataFrame was made of: whether a watermark can still be set on it."""

from __future__ import annotations

import io
import re
import sys
import threading
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import TextIO

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from thetastream.errors import WindowError

# A node of a plan begins its line, after the lines that draw the tree.
_WATERMARK = re.compile(r"^[\s:+\-~*!|()\d]*EventTimeWatermark\s", re.MULTILINE)
_JOIN = re.compile(r"^[\s:+\-~*!|()\d]*TransformWithStateInPySpark\s", re.MULTILINE)


def refuse_second_watermark(frames: Mapping[str, DataFrame]) -> None:
    """Refuse streams with a watermark that is no longer theirs: Spark lets a query set it once.

    Spark itself refuses them, in the first batch.
    """
    for name, frame in frames.items():
        plan = plan_text(frame)
        if _WATERMARK.search(plan) is None:
            continue
        if _JOIN.search(plan) is not None:
            raise WindowError(
                f"stream {name!r} is the result of a join with a window, and Spark lets a query set"
                " its watermarks only once",
                hint="give all streams to one join, ts.streams(a=..., b=..., c=...).join(...), or"
                " write the first result to a sink and read it from there",
            )
        raise WindowError(
            f"stream {name!r} has a watermark on a column that is no longer its event time, and"
            " Spark lets a query set its watermarks only once",
            hint="set no watermark before the join, which sets its own with delay=..., or keep the"
            " column with the watermark unchanged and name it with time=...",
        )


def plan_text(frame: DataFrame) -> str:
    """Spark's plan as text; empty where Spark does not show it."""
    own = _OwnThread(sys.stdout)
    try:
        with redirect_stdout(own):
            frame.explain(mode="extended")
    except PySparkException:
        # It is only looked at: what is wrong with it Spark says when the query starts.
        return ""
    return own.getvalue()


class _OwnThread(io.StringIO):
    """Keeps what this thread prints, and passes on what the others do."""

    def __init__(self, others: TextIO) -> None:
        super().__init__()
        self._others = others
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        own = threading.get_ident() == self._thread
        return super().write(text) if own else self._others.write(text)

    def flush(self) -> None:
        if threading.get_ident() != self._thread:
            self._others.flush()
