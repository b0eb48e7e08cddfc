"""Pairs that stay in the unit as packs, for the third stream to complete, and perhaps go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from thetastream import arrow
from thetastream.engine.consumers import Consumer
from thetastream.engine.indexes import UnitIndexes
from thetastream.engine.protocol import Forward, Instruction
from thetastream.index.encoding import Int64s
from thetastream.index.packing import Links, Packs, compact
from thetastream.index.part import Part, Tuples, concat
from thetastream.index.probe import Found
from thetastream.spec import Meeting, Then
from thetastream.topology.dispatch import Dispatcher

MEETING_PAIRS = 1 << 21
MEETING_BYTES = arrow.SAFE_BYTES // 2
"""Intermediate results, and Arrow bytes of their stored members, that are packed together; more of
them make another run."""


class _Waiting(NamedTuple):
    """Pairs of new tuples with some of the stored ones."""

    mine: Int64s
    stored: Tuples
    partners: Int64s


class Packing(Consumer):
    """The packs of one meeting."""

    def __init__(self, meeting: Meeting, indexes: UnitIndexes, dispatcher: Dispatcher) -> None:
        """`dispatcher` is that of the meeting's new stream to the last stage."""
        self._meeting = meeting
        self._indexes = indexes
        self._dispatcher = dispatcher
        self._waiting: list[_Waiting] = []
        self._pairs = self._bytes = 0
        self._tuples: Tuples | None = None

    def take(
        self, meeting: Meeting, tuples: Tuples, part: Part, found: Found
    ) -> Iterator[Instruction]:
        """The pairs wait until there are enough of them for a run."""
        for mine, partners in found.pairs(part, MEETING_PAIRS):
            some = _Waiting(mine, *compact(part, partners))
            # With each of them: a run that was full in between has let go of the tuples.
            self._tuples = tuples
            self._waiting.append(some)
            self._pairs += len(mine)
            self._bytes += int(some.stored.batch.nbytes)
            if self._pairs >= MEETING_PAIRS or self._bytes >= MEETING_BYTES:
                yield from self.met()

    def met(self) -> Iterator[Instruction]:
        """What waits becomes a run of packs: the next stream may complete them."""
        waiting, tuples = self._waiting, self._tuples
        self._waiting, self._pairs, self._bytes, self._tuples = [], 0, 0, None
        if not waiting or tuples is None:
            return
        stored = concat([some.stored for some in waiting])
        bases = np.cumsum([0, *(len(some.stored) for some in waiting[:-1])])
        mine = np.concatenate([some.mine for some in waiting])
        partners = np.concatenate(
            [some.partners + base for some, base in zip(waiting, bases, strict=True)]
        )
        if self._meeting.hub == self._meeting.new:
            pairs = Links(tuples, mine, stored, partners)
        else:
            pairs = Links(stored, partners, tuples, mine)
        index, space = self._indexes.packs_of(self._meeting)
        for packs in index.add(pairs, space):
            if self._meeting.then is Then.FORWARD:
                yield from self._forward(packs)

    def _forward(self, packs: Packs) -> Iterator[Instruction]:
        """Packs for the units of the next stage that may hold partners of their hubs."""
        for unit, rows in self._dispatcher.visits(self._meeting.third, packs.hubs):
            yield Forward(unit, packs if rows is None else packs.take(rows))
