"""What an index is: entries in immutable parts, which it adds, searches, merges and drops.

An index holds metadata only. Parts are made, read and given up through the workspace of the unit,
so that an index does no IO and its state is a small value. Another kind of index is another file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pyarrow as pa

from thetastream.index.encoding import Bools
from thetastream.index.part import Part, PartMeta, Tuples
from thetastream.index.probe import Found, Probe


class Stored(Protocol):
    """A part of an index, of tuples or of packs."""

    def __len__(self) -> int: ...

    @property
    def pairs(self) -> int:
        """Intermediate results in it."""

    @property
    def nbytes(self) -> int:
        """Arrow bytes."""

    @property
    def low(self) -> tuple[int, ...]:
        """The smallest value of each key."""

    @property
    def high(self) -> tuple[int, ...]:
        """The largest value of each key."""

    def to_bytes(self, *, compress: bool = False) -> pa.Buffer:
        """The part as it is stored."""


class Decoder(Protocol):
    """Reads parts back."""

    @property
    def what(self) -> str:
        """What is in a part, for messages."""

    def decode(self, data: pa.Buffer | bytes) -> Stored:
        """The part in stored bytes."""


class Workspace(Protocol):
    """Where the parts of one index are, for the time of a batch."""

    def make(self, part: Stored) -> PartMeta:
        """Take in a new part; it is written at the end of the batch, if it is still needed."""

    def load(self, meta: PartMeta) -> Stored:
        """A part."""

    def drop(self, metas: list[PartMeta]) -> None:
        """The parts are no longer needed."""


class Index(Decoder, Protocol):
    """Stored entries that can be searched."""

    def restore(self, state: Any) -> None:
        """Go on from what `state` gave."""

    def state(self) -> Any:
        """All that it knows, as JSON takes it."""

    def parts(self) -> Iterator[PartMeta]:
        """All live parts."""

    @property
    def runs(self) -> int:
        """How many pieces a search has to visit at most."""

    stamp: int
    """The version of the routing table under which a batch's entries are stored."""

    @property
    def oldest(self) -> int | None:
        """The earliest version under which what is stored was stored."""

    def rows_before(self, version: int) -> int:
        """How much is left that was stored under an earlier version."""

    def restamp(self, version: int) -> None:
        """Nothing of an earlier version matters any more."""

    compared: int
    """Pairs of a probing and a stored entry that this batch's searches looked at."""

    moved: int
    """Entries that this batch put into another place of the index without writing a part."""

    def expire(self, watermark: int | None, space: Workspace) -> None:
        """Drop what nothing to come can match."""

    def merge(self, space: Workspace) -> None:
        """Put parts together that are better searched as one."""

    def rename(self, written: dict[str, PartMeta]) -> None:
        """Parts that were made have been written under other names."""

    def validate(self) -> None:
        """Refuse a state that no sequence of batches leads to."""


class TupleIndex(Index, Protocol):
    """Stored tuples of one stream."""

    def decode(self, data: pa.Buffer | bytes) -> Part:
        """The part in stored bytes."""

    def add(self, tuples: Tuples, space: Workspace) -> None:
        """Add tuples; nothing is written yet, they may still be merged with others."""

    def search(self, probe: Probe, space: Workspace) -> Iterator[tuple[Stored, Part, Found]]:
        """The parts that may have partners: each, as it is searched, and where they are."""

    def freeze(self, version: int) -> None:
        """Leave the parts as they are that were stored under an earlier version."""

    def parts_before(self, version: int) -> Iterator[PartMeta]:
        """The parts that were stored under an earlier version."""

    def keep_only(
        self, version: int | None, staying: Callable[[Part], Bools], space: Workspace
    ) -> Iterator[None]:
        """Drop tuples that were stored under an earlier version, or under any if that is None, but
        for those that stay; a pause whenever something can be written."""
