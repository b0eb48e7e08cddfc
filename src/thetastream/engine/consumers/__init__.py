"""What is made of the pairs that meet in a unit: results, aggregates, or packs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from thetastream.engine.protocol import Instruction
from thetastream.index.part import Part, Tuples
from thetastream.index.probe import Found
from thetastream.spec import Meeting


class Consumer(ABC):
    """Takes what a meeting finds."""

    @abstractmethod
    def take(
        self, meeting: Meeting, tuples: Tuples, part: Part, found: Found
    ) -> Iterator[Instruction]:
        """New tuples and where in a part of the stored ones their partners are."""

    def met(self) -> Iterable[Instruction]:
        """These tuples have met all that is stored."""
        return ()

    def finish(self) -> Iterable[Instruction]:
        """All tuples of the batch have."""
        return ()
