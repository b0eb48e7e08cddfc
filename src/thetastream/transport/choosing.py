"""The transport of a stream, chosen again with each batch that has been measured.

The choice is written to a file. Whoever plans the next batch reads it there, and makes it a part of
the batch's offset.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thetastream.transport.costmodel import Choice, Link, Quantities, Transport, choose
from thetastream.transport.estimate import BatchCounts, Estimate, Transfer
from thetastream.transport.feed import PARTIAL, WHOLE

ASSUMED_LINK = Link(latency=0.01, bandwidth=12.5e6)
"""Where nothing was measured: 10 ms, 100 Mbit/s."""
ASSUMED_RATE = 1_000.0
"""Tuples per second of a stream of which nothing is known yet."""
ASSUMED_MATCHES = 0.1
"""The share of them that is in results."""
NUMBER_BYTES = 8.0
SHORTEST = 0.001
"""Seconds of a batch, at least."""


def assumed(link: Link, first: float, later: float) -> Quantities:
    """What the cost model is asked before anything is measured, with a batch a second.

    `first` and `later`: the bytes of a tuple that travel at once and on request.
    """
    fetched = ASSUMED_RATE * ASSUMED_MATCHES
    return Quantities(
        link=link,
        rate=ASSUMED_RATE,
        full=first + later,
        partial=first + NUMBER_BYTES,
        messages=1.0,
        fetched=fetched,
        requests=1.0,
        question=fetched * NUMBER_BYTES,
        rest=later,
    )


@dataclass
class Chooser:
    """What is known of a stream by now, and which transport its batches have."""

    estimate: Estimate
    now: Transport
    path: Path
    last: Choice | None = None
    """What was chosen last, and why."""

    def heard(self, seconds: float, reports: Sequence[Mapping[str, Any]]) -> Choice:
        """Take what a batch reported into account, and choose for those that follow."""
        self.estimate = self.estimate.after(counts(max(SHORTEST, seconds), reports))
        self.last = choose(self.estimate.quantities, now=self.now)
        if self.last.transport != self.now:
            self.now = self.last.transport
            self._write()
        return self.last

    def _write(self) -> None:
        text = WHOLE if self.now == "simple" else PARTIAL
        beside = self.path.with_suffix(".new")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        # A reader sees the old choice or the new one.
        beside.replace(self.path)


def counts(seconds: float, reports: Sequence[Mapping[str, Any]]) -> BatchCounts:
    """What the tasks of a batch counted together."""
    reads = [one for one in reports if one["what"] == "read"]
    fetches = [one for one in reports if one["what"] == "fetch"]
    return BatchCounts(
        seconds=seconds,
        full=_transfer([one for one in reads if one["whole"]]),
        partial=_transfer([one for one in reads if not one["whole"]]),
        fetched=_transfer([one for one in fetches if one["rows"]]),
        asked=sum(one["sent"] for one in fetches),
        hits=sum(one["hits"] for one in fetches),
        matched=sum(one["matched"] for one in fetches),
    )


def _transfer(reports: Sequence[Mapping[str, Any]]) -> Transfer:
    return Transfer(
        rows=sum(one["rows"] for one in reports),
        bytes=sum(one["sent"] + one["received"] for one in reports),
        # The tasks of a batch ask at the same time.
        messages=1 if reports else 0,
        seconds=max((one["seconds"] for one in reports), default=0.0),
    )
