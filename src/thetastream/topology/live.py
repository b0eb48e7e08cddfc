"""What a table says of itself if it changes while a query runs.

Versions are numbered. A step to the next one is safe for routers that still use the one before:

1. announce: the new units are visited as well; tuples are still stored in the old ones;
2. switch: tuples are stored in the new units; the old ones, which drain, are still visited;
3. take, if tuples are carried over: the new units take in what the old ones have exported, and
   these drop it, all in one batch;
4. forget: the old units are visited no more;
5. settled: units that hold nothing any more have no more turns.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Step(enum.StrEnum):
    """How far a change has come."""

    SETTLED = "settled"
    ANNOUNCE = "announce"
    SWITCH = "switch"
    TAKE = "take"
    FORGET = "forget"

    @property
    def drains(self) -> bool:
        """Whether tuples may still be where they would no longer be stored."""
        return self in (Step.SWITCH, Step.TAKE)


@dataclass(frozen=True, order=True)
class Transfer:
    """Tuples of one stream on their way from a unit to another one, in a file."""

    stage: int
    stream: int
    source: int
    target: int
    part: str
    """The part of the source's index that they are of."""
    name: str
    """The digest of the file's content."""
    rows: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Live:
    """One version of a table that changes while the query runs."""

    control: str
    """The control directory that it is from."""
    version: int
    step: Step
    max_units: int
    since: tuple[tuple[int, ...], ...]
    """By stage, the version since which each unit has had a turn in every batch; -1 for none."""
    digest: int = 0
    """Of what the version says."""
    previous: int = 0
    """The digest of the version before."""
    transfers: tuple[Transfer, ...] = ()
    """What is taken in and dropped with this version."""
