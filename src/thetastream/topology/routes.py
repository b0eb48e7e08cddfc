"""What routing is: which rows go to which unit, to do what.

A topology is a pure function from the keys of a batch to routes. Its one invariant: each pair of
tuples that can match meets in exactly one unit when one of them is stored and the other probes, and
in exactly one when it is the other way round. Which of the two happens is the engine's affair.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from thetastream.errors import OptionError
from thetastream.index.bounds import Interval
from thetastream.index.encoding import Bools, Int64s

UInt64s = npt.NDArray[np.uint64]

STORE = 1
"""The unit keeps the tuple."""
PROBE = 2
"""The unit looks for the tuple's partners among those of the other stream."""
HOME = 4
"""The unit counts the tuple: exactly one of those it is sent to."""


class Route(NamedTuple):
    """Rows of a batch for one unit."""

    unit: int
    role: int
    rows: Int64s


@dataclass(frozen=True, kw_only=True)
class RoutingKeys:
    """What a topology may look at."""

    count: int
    equality: Int64s | None = None
    """The equality key of each row."""
    drive: Int64s | None = None
    """The driving range's key of each row."""
    reach: Interval | None = None
    """The other stream's driving keys that each row can match."""
    spread: UInt64s | None = None
    """A hash of each row's content: random, yet the same when a task runs again."""


class Topology(Protocol):
    """A way of placing and probing tuples."""

    @property
    def units(self) -> int:
        """Units in all."""

    @property
    def needs_spread(self) -> bool:
        """Whether routes depend on `RoutingKeys.spread`."""

    def route(self, stream: int, keys: RoutingKeys) -> Iterator[Route]:
        """Where the rows of a batch of the stream go."""


def mixed(keys: Int64s | UInt64s) -> UInt64s:
    """A well-spread hash of each key; a bijection, so distinct keys stay distinct."""
    bits = keys.view(np.uint64).copy()
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits


def remainder(hashes: UInt64s, count: int) -> npt.NDArray[np.int16]:
    """Each hash as a number below count. Small integers: they sort by radix."""
    if count > np.iinfo(np.int16).max:
        raise OptionError(f"{count} units are more than there can be", hint="use fewer units")
    return (hashes % np.uint64(count)).astype(np.int16)


def by_unit(units: npt.NDArray[np.int16], role: int) -> Iterator[Route]:
    """One route for each unit that occurs."""
    order = np.argsort(units, kind="stable")
    ranked = units[order]
    if len(ranked) == 0:
        return
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    for start, end in zip(starts, [*starts[1:], len(ranked)], strict=True):
        yield Route(int(ranked[start]), role, order[start:end])


def store_and_probe(
    store: npt.NDArray[np.int16], probes: Iterator[tuple[int, Bools | None]]
) -> Iterator[Route]:
    """Routes for rows that one unit stores and several units probe.

    `probes` gives for each unit the rows that probe it (None for all of them). A row that is stored
    where it probes travels there once.
    """
    rest = set(range(int(store.max()) + 1)) if len(store) else set()
    for unit, probing in probes:
        rest.discard(unit)
        here = store == unit
        if probing is None:
            yield from _some(unit, STORE | PROBE | HOME, here)
            yield from _some(unit, PROBE, ~here)
        else:
            yield from _some(unit, STORE | PROBE | HOME, here & probing)
            yield from _some(unit, PROBE, probing & ~here)
            yield from _some(unit, STORE | HOME, here & ~probing)
    for unit in sorted(rest):
        yield from _some(unit, STORE | HOME, store == unit)


def _some(unit: int, role: int, where: Bools) -> Iterator[Route]:
    rows = np.flatnonzero(where)
    if len(rows):
        yield Route(unit, role, rows)
