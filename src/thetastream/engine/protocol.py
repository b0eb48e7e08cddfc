"""What goes into a unit and what comes out of it, for units of every join.

A unit takes the packs of a batch, the watermark and, in a second stage, packs of the first. It
returns instructions, which others carry out: on Spark's state, or in a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa

from thetastream.engine.arrivals import HeavyRow, StreamRow
from thetastream.index.packing import Packs
from thetastream.index.part import PartMeta
from thetastream.index.protocol import Decoder, Stored
from thetastream.topology.hot import CopyFile
from thetastream.topology.hotvalues import HotValue
from thetastream.topology.live import Transfer


class StateReader(Protocol):
    """What a unit may ask of its stored state."""

    def part(self, meta: PartMeta, decoder: Decoder) -> Stored:
        """A part."""

    def exported(self, name: str) -> bytes:
        """A file that another unit has exported."""


class Emit(NamedTuple):
    """Results leave the unit."""

    batches: tuple[pa.RecordBatch, ...]


class PutPart(NamedTuple):
    """A part of an index, or a view that is not sent yet, is to be stored."""

    meta: PartMeta
    data: pa.Buffer
    part: Stored
    """The part itself: it will be read again soon."""


class DropPart(NamedTuple):
    """A part is no longer needed."""

    meta: PartMeta


class PutManifest(NamedTuple):
    """The manifest is to be stored; the last word on the unit's state."""

    text: str


class Forward(NamedTuple):
    """Packs of a first stage go on to a unit of the second."""

    unit: int
    packs: Packs


class Pass(NamedTuple):
    """Results of a first stage leave through a unit of the second, as `factored`."""

    unit: int
    rows: int
    data: pa.Buffer


class Mark(NamedTuple):
    """A unit of the second stage is to use this watermark of the first."""

    unit: int
    watermark: int


class Export(NamedTuple):
    """Tuples are to be written into a file, for another unit to take in. Twice does no harm."""

    name: str
    data: pa.Buffer


class Turn(NamedTuple):
    """A unit of the second stage has a turn, under a version of the table that a router used."""

    unit: int
    version: int
    digest: int


@dataclass(frozen=True, kw_only=True)
class KeyNews:
    """A hot key in one of its units, in one batch."""

    key: int
    stream: str
    """The stream in which it is split."""
    since: int
    """The version since which copies are made."""
    step: str
    at: float
    """When it was first split, in seconds since 1970."""
    share: float
    shown: str
    """Its value as people read it."""
    has_split: bool
    """Whether the unit has the group of the key's split stream."""
    has_copied: bool
    """Whether it has that of the other stream."""
    exported: tuple[CopyFile, ...] | None = None
    """What was there before copies were made; None if the unit did not export it."""
    remains: bool = True
    """Whether tuples of the split stream may be left that would now be stored elsewhere."""
    split_rows: int = 0
    """Tuples of the split stream that came to visit."""
    copied_rows: int = 0
    """Tuples of the other stream that did."""


class FrequentRow(NamedTuple):
    """A key, how often it was estimated to come, and its value if that is known."""

    key: int
    times: int
    shown: str


class Predicted(NamedTuple):
    """The frequent keys of one stream in one unit."""

    stream: str
    rows: int
    """Rows of the batch."""
    counted: int
    """Rows that the counts of keys are out of: those of recent batches."""
    keys: list[FrequentRow]


@dataclass
class Report:
    """A unit's load in one batch; the last thing that it says."""

    unit: int
    stage: int = 0
    rows_in: int = 0
    probes: int = 0
    results: int = 0
    out_bytes: int = 0
    late: int = 0
    stored_rows: int = 0
    stored_bytes: int = 0
    runs: int = 0
    busy: float = 0.0
    """Seconds of CPU time for the unit's own work."""
    entries: int = 0
    """Packs, or pairs if they are not packed, that are stored."""
    pairs: int = 0
    """Pairs in them."""
    streams: list[StreamRow] = field(default_factory=list)
    """What came of each stream."""
    heavy: list[HeavyRow] = field(default_factory=list)
    """The most frequent keys of the batch."""
    kept: list[tuple[str, int]] = field(default_factory=list)
    """Stored bytes of each stream."""
    version: int = 0
    """The oldest version of the table that a router used."""
    draining: int = 0
    """Stored rows that would now be stored elsewhere, with what is kept beside them."""
    to_export: int = 0
    """Those of them that are yet to be exported."""
    pending: bool = False
    """Whether there are aggregates that it has not sent yet."""
    transfers: list[Transfer] = field(default_factory=list)
    """What is exported and not dropped yet."""
    compared: int = 0
    """Pairs of a probing and a stored tuple that the indexes looked at, and steps of searches."""
    updates: int = 0
    """Tuples, hubs and links that were written into indexes, again by merging them as well."""
    hot: list[KeyNews] = field(default_factory=list)
    """The hot keys that the unit is one of the places of."""
    values: list[HotValue] = field(default_factory=list)
    """The hot values of an inequality or a band, if the unit is there for such."""
    predicted: list[Predicted] = field(default_factory=list)
    """The frequent keys of each stream, where hot keys are looked for."""


StateChange = PutPart | DropPart | PutManifest
Instruction = Emit | StateChange | Forward | Pass | Mark | Turn | Export | Report


def metered(steps: Iterator[Instruction], clock: Callable[[], float]) -> Iterator[Instruction]:
    """A unit's instructions, with the time that they took in its report.

    While an instruction is carried out the unit waits: that is not its own time. `clock` gives the
    seconds of CPU time that were used so far.
    """
    used = 0.0
    while True:
        started = clock()
        step = next(steps, None)
        used += clock() - started
        if step is None:
            return
        if isinstance(step, Report):
            step.busy = used
        yield step
