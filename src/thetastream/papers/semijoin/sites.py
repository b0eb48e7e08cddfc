"""Two sites and the link between them: the paper's two joins, tuple by tuple, on a virtual clock.

Stream 1 is born at the remote site, stream 2 where the results are wanted. Windows hold the last so
many tuples. Tuples come at even distances, those of stream 1 first where two come together. As in
the paper's program, one thing is done after the other, and its time is the sum of all: what the
link takes for messages, and what the sites take for probes and updates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from typing import Final, Literal

import numpy as np

from thetastream.transport.costmodel import Link

Method = Literal["hash", "nested loops"]

OPERATION: Final = 2e-4
"""Seconds for a probe of a hash table or an update of a window: what the paper measured for a probe
that looks for the first match."""
COMPARISON: Final = 2e-6
"""Seconds to look at one stored tuple: a hundredth of it. The paper does not say."""
ATTRIBUTE: Final = 5
"""Bytes."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The paper's parameters and their default values."""

    distinct: int = 10_000
    ratio: float = 10.0
    """Of the size of a full tuple to that of a partial one, which has 2 attributes."""
    bandwidth: float = 1000.0
    window: int = 500
    """Tuples, of each stream."""
    rate: float = 500.0
    """Tuples per second, of each stream."""
    latency: float = 0.005
    partners: float | None = None
    """The share of remote tuples whose key the local stream has at all; None for all keys alike."""
    method: Method = "hash"
    seed: int = 1

    @property
    def partial(self) -> float:
        """Bytes of a partial tuple."""
        return 2.0 * ATTRIBUTE

    @property
    def full(self) -> float:
        """Bytes of a full tuple."""
        return self.ratio * self.partial

    @property
    def link(self) -> Link:
        """Between the sites."""
        return Link(latency=self.latency, bandwidth=self.bandwidth)


class Arrival:
    """A tuple that comes."""

    __slots__ = ("full", "key", "matched", "number", "remote", "time")

    def __init__(self, time: float, remote: bool, number: int, key: int) -> None:
        self.time = time
        self.remote = remote
        self.number = number
        self.key = key
        self.full = False
        """Whether the mirror window has all of it."""
        self.matched = False


def arrivals(setting: Setting, seconds: float) -> Iterator[Arrival]:
    """The tuples of both streams, in the order in which they come."""
    count = round(setting.rate * seconds)
    draw = np.random.default_rng(setting.seed)
    keys = [draw.integers(0, setting.distinct, count) for _ in range(2)]
    if setting.partners is not None:
        alone = draw.random(count) >= setting.partners
        keys[0] = np.where(alone, keys[0] + setting.distinct, keys[0])

    def stream(remote: bool, of: list[int]) -> Iterator[Arrival]:
        for number, key in enumerate(of):
            yield Arrival(number / setting.rate, remote, number, key)

    both = (stream(True, keys[0].tolist()), stream(False, keys[1].tolist()))
    # A merge keeps the order of its inputs where times are equal.
    return merge(*both, key=lambda one: one.time)


class Window:
    """The last tuples of a stream, searched by their keys, newest first."""

    def __init__(self, size: int, method: Method) -> None:
        self._size = size
        self._method = method
        self._order: deque[Arrival] = deque()
        self._by_key: dict[int, deque[Arrival]] = {}

    def __len__(self) -> int:
        return len(self._order)

    def insert(self, one: Arrival) -> float:
        """Adds a tuple, and removes one if there are too many; returns the seconds it takes."""
        self._order.append(one)
        self._by_key.setdefault(one.key, deque()).append(one)
        if len(self._order) > self._size:
            old = self._order.popleft()
            same = self._by_key[old.key]
            same.popleft()
            if not same:
                del self._by_key[old.key]
        return OPERATION

    def first(self, key: int) -> tuple[Arrival | None, float]:
        """The newest tuple with the key, and the seconds to find it."""
        same = self._by_key.get(key)
        if self._method == "hash":
            return (same[-1] if same else None), OPERATION
        if not same:
            return None, len(self._order) * COMPARISON
        return same[-1], (self._order[-1].number - same[-1].number + 1) * COMPARISON

    def all(self, key: int) -> tuple[list[Arrival], float]:
        """All tuples with the key, newest first, and the seconds to find them."""
        same = list(reversed(self._by_key.get(key, ())))
        if self._method == "hash":
            return same, OPERATION + len(same) * COMPARISON
        return same, len(self._order) * COMPARISON


@dataclass
class Spent:
    """Where the time went."""

    transmission: float = 0.0
    processing: float = 0.0
    bytes: float = 0.0
    requests: int = 0
    shipped: int = 0
    """Full tuples."""
    results: int = 0

    @property
    def total(self) -> float:
        """Seconds."""
        return self.transmission + self.processing


@dataclass
class Sites:
    """Both sites with their windows; `keep` is given each result."""

    setting: Setting
    keep: Callable[[Arrival, Arrival], None] | None = None
    spent: Spent = field(default_factory=Spent)

    def __post_init__(self) -> None:
        size, method = self.setting.window, self.setting.method
        self.own = Window(size, method)
        """Of stream 1, where it is born."""
        self.mirror = Window(size, method)
        """Of stream 1, where the results are wanted."""
        self.local = Window(size, method)
        """Of stream 2."""
        self._link = self.setting.link

    def ship(self, size: float) -> None:
        """One message of so many bytes."""
        self.spent.transmission += self._link.seconds(1, size)
        self.spent.bytes += size

    def work(self, seconds: float) -> None:
        """At either site."""
        self.spent.processing += seconds

    def give(self, one: Arrival, partners: list[Arrival]) -> None:
        """Results of a tuple and those that it met."""
        self.spent.results += len(partners)
        if self.keep is not None:
            for other in partners:
                self.keep(*((one, other) if one.remote else (other, one)))

    # -- the simple join ---------------------------------------------------------------------

    def simple(self, one: Arrival) -> None:
        """SPJ: whole tuples travel."""
        if one.remote:
            self.ship(self.setting.full)
            self.spent.shipped += 1
            one.full = True
        met, seconds = (self.local if one.remote else self.mirror).all(one.key)
        self.work(seconds)
        self.give(one, met)
        self.work((self.mirror if one.remote else self.local).insert(one))

    # -- the semijoin -------------------------------------------------------------------------

    def semijoin(self, one: Arrival) -> None:
        """SMJ: partial tuples travel, and whole ones of those that match."""
        if one.remote:
            self._partial(one)
        else:
            self._meet_mirror(one)

    def _partial(self, one: Arrival) -> None:
        self.ship(self.setting.partial)
        self.work(self.own.insert(one))
        met, seconds = self.local.first(one.key)
        self.work(seconds)
        if met is not None:
            self._request()
            # At its own site, too, the tuple is the newest with its key.
            self.work(self.own.first(one.key)[1])
            self.ship(self.setting.full)
            self.spent.shipped += 1
            one.full = True
            partners, seconds = self.local.all(one.key)
            self.work(seconds)
            self.give(one, partners)
        self.work(self.mirror.insert(one))

    def _meet_mirror(self, one: Arrival) -> None:
        met, seconds = self.mirror.first(one.key)
        self.work(seconds)
        if met is not None and not met.full:
            self._request()
            found, seconds = self.own.all(one.key)
            self.work(seconds)
            self.ship(len(found) * self.setting.full)
            self.spent.shipped += len(found)
            for other in found:
                other.full = True
            # They take the places of the partial ones.
            self.work(len(found) * OPERATION)
            self.give(one, found)
        elif met is not None:
            found, seconds = self.mirror.all(one.key)
            self.work(seconds)
            self.give(one, found)
        self.work(self.local.insert(one))

    def _request(self) -> None:
        self.ship(self.setting.partial)
        self.spent.requests += 1


Join = Literal["SPJ", "SMJ"]


def run(
    setting: Setting,
    join: Join,
    seconds: float,
    keep: Callable[[Arrival, Arrival], None] | None = None,
) -> Spent:
    """What a join takes for the tuples of so many seconds, once the windows are full."""
    sites = Sites(setting, keep)
    take = sites.simple if join == "SPJ" else sites.semijoin
    full = setting.window / setting.rate
    counted = False
    for one in arrivals(setting, full + seconds):
        if not counted and one.time >= full:
            sites.spent = Spent()
            counted = True
        take(one)
    return sites.spent
