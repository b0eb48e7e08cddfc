"""What a simulated cluster has: processors, a network and memory. All of it is arithmetic.

Seconds are those of the virtual clock, bytes those of real packs and real indexes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from thetastream.engine.protocol import Report
from thetastream.errors import OptionError


def _positive(of: object, name: str) -> None:
    value = getattr(of, name)
    if not value > 0:
        raise OptionError(f"{name}={value!r} is not a positive number")


class Cpu(Protocol):
    """How long a unit works on its batch."""

    def seconds(self, report: Report) -> float:
        """CPU time for what the unit reports."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The CPU time that the unit really took, on a processor so many times as fast as this one."""

    speed: float = 1.0

    def __post_init__(self) -> None:
        _positive(self, "speed")

    def seconds(self, report: Report) -> float:
        """CPU time for what the unit reports."""
        return report.busy / self.speed


@dataclass(frozen=True, kw_only=True)
class Counted:
    """So much for each thing that the unit did: the same on every machine and in every run.

    The defaults are of the order of what a compiled engine needs that takes one tuple at a time.
    """

    row: float = 1e-6
    """For a tuple that comes to be stored, or to visit."""
    comparison: float = 1e-8
    """For a stored tuple that a visitor is compared with, or a step of a search."""
    update: float = 2e-7
    """For a tuple that is written into an index."""
    result: float = 2e-7
    """For a result."""
    turn: float = 0.0
    """For a turn of a unit, however little it does."""

    def __post_init__(self) -> None:
        for name in ("row", "comparison", "update", "result", "turn"):
            if not getattr(self, name) >= 0 or math.isinf(getattr(self, name)):
                raise OptionError(f"{name}={getattr(self, name)!r} is not a number of seconds")

    def seconds(self, report: Report) -> float:
        """CPU time for what the unit reports."""
        return (
            self.turn
            + self.row * (report.rows_in + report.probes)
            + self.comparison * report.compared
            + self.update * report.updates
            + self.result * report.results
        )


@dataclass(frozen=True, kw_only=True)
class Network:
    """What lies between the routers and the units.

    With `serial`, one router serves the units one after the other, in the order of their numbers;
    else each unit's link works for itself. With `slots`, the units are divided into so many
    sub-groups, each of which is served in its own part of the epoch (the Epoch join's n_g).
    """

    bandwidth: float = math.inf
    """Bytes per second, of a unit's link, or of the router's if that is serial."""
    latency: float = 0.0
    """Seconds that a message takes, however short it is."""
    message: float = 0.0
    """Seconds that a message occupies the link, beside its bytes."""
    serial: bool = False
    slots: int = 1

    def __post_init__(self) -> None:
        _positive(self, "bandwidth")
        if self.latency < 0 or self.message < 0:
            raise OptionError("latency and message are seconds, and not negative")
        if isinstance(self.slots, bool) or not isinstance(self.slots, int) or self.slots < 1:
            raise OptionError(
                f"slots={self.slots!r} is not a number of sub-groups",
                hint="give 1 if all units are served together, or more",
            )

    def transfer(self, size: int, messages: int = 1) -> float:
        """Seconds that the link is occupied."""
        return messages * self.message + size / self.bandwidth

    def arrivals(
        self, at: float, sent: Mapping[int, tuple[int, int]], units: Iterable[int]
    ) -> dict[int, float]:
        """When each unit has all that is sent to it from then on: `sent` has bytes and messages."""
        found, before = {}, at
        for unit in sorted(units):
            size, messages = sent.get(unit, (0, 0))
            until = (before if self.serial else at) + self.transfer(size, messages)
            if self.serial:
                before = until
            found[unit] = until + (self.latency if messages else 0.0)
        return found


@dataclass(frozen=True, kw_only=True)
class Memory:
    """How much a unit holds before it has to go to a disk.

    Of the tuples that it stores beyond `capacity`, a share is on disk; each tuple that comes, to be
    stored or to visit, goes there with that probability and waits for `disk` seconds.
    """

    capacity: float = math.inf
    disk: float = 0.0

    def __post_init__(self) -> None:
        _positive(self, "capacity")
        if not self.disk >= 0:
            raise OptionError(f"disk={self.disk!r} is not a number of seconds")

    def seconds(self, report: Report) -> float:
        """What the unit waits for its disk."""
        if report.stored_bytes <= self.capacity:
            return 0.0
        share = 1.0 - self.capacity / report.stored_bytes
        return share * self.disk * (report.rows_in + report.probes)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Units that work side by side.

    >>> Cluster(epoch=2.0, cpu=Counted(), network=Network(slots=2)).tick
    1.0
    """

    epoch: float = 1.0
    """Seconds in which tuples are collected before they are handed out: a trigger, a distribution
    epoch, or the period of the signals that keep tuples in order."""
    cpu: Cpu = field(default_factory=Counted)
    network: Network = Network()
    memory: Memory = Memory()
    signalled: bool = True
    """Whether the results of one join wait for the next signal before another join takes them."""

    def __post_init__(self) -> None:
        _positive(self, "epoch")
        if math.isinf(self.epoch):
            raise OptionError("epoch is not a number of seconds")

    @property
    def tick(self) -> float:
        """Seconds between two times at which units are served."""
        return self.epoch / self.network.slots
