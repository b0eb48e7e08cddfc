"""The contestants of BiStream's figures, what the simulated cluster is made of, and shared runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from thetastream.options import JoinOptions
from thetastream.papers.bistream.data import AGGREGATES, PREDICATES, streams
from thetastream.simulator import Cluster, Counted, Memory, Network, Simulation, Trace, Turn
from thetastream.simulator.sources import Rate

PAGE: Final = "bistream"
SEED: Final = 7
CAPACITY: Final = 192 * 1024
"""Bytes that a unit may store, in place of the paper's 1.5 GB: about 10,500 tuples. With much less,
what an index takes beside its tuples would count: a unit of a matrix has two indexes."""
CPU: Final = Counted()
"""What a unit's work costs, for all contestants of all figures alike: the simulator's defaults."""
LINK: Final = Network(bandwidth=125e6, latency=0.0005)
"""Ethernet of 1 Gbit/s to each unit, and half a millisecond through a switch and two stacks."""
DISK: Final = 0.0127
"""Seconds for a random access to a hard disk of 7,200 turns per minute: 8.5 ms until the head is
there, as data sheets of desktop disks say, and half a turn, 4.2 ms."""


@dataclass(frozen=True)
class Setting:
    """A contestant, by the paper's name: JM16, JB16, JB16-CR4."""

    name: str

    @property
    def units(self) -> int:
        """How many units there are."""
        return int(self.name[2:].split("-")[0])

    @property
    def matrix(self) -> bool:
        """Whether it is a join-matrix."""
        return self.name.startswith("JM")

    @property
    def subgroups(self) -> int:
        """ContRand's, on each side; 1 for random routing."""
        return int(self.name.split("-CR")[1]) if "-CR" in self.name else 1

    @property
    def side(self) -> int:
        """Partitions of each relation."""
        return math.isqrt(self.units) if self.matrix else self.units // 2

    def options(self, query: str, *, window: bool = False, update_batches: int = 1) -> JoinOptions:
        """What the join is told."""
        plain = JoinOptions(
            units=(self.side, self.side), full_history=not window, update_batches=update_batches
        )
        if self.matrix:
            return replace(plain, topology="matrix")
        if self.subgroups == 1:
            return replace(plain, topology="random")
        if query == "Band":
            # A band has no key to hash: buckets of the order key are its content-sensitive routing.
            return replace(plain, topology="band")
        return replace(plain, topology="contrand", subgroups=(self.subgroups, self.subgroups))


def label(query: str, setting: str) -> str:
    """The contestant's name in a plot: Band has buckets of the order key in place of ContRand.

    >>> label("Q5", "JB16-CR4"), label("Band", "JB16-CR4")
    ('JB16-CR4', 'JB16-buckets')
    """
    return f"{setting.split('-')[0]}-buckets" if query == "Band" and "-CR" in setting else setting


def simulation(
    query: str,
    setting: str,
    rate: Rate,
    *,
    rows: int,
    cluster: Cluster,
    within: float | None = None,
    aggregate: bool = False,
    options: JoinOptions | None = None,
    update_batches: int = 1,
) -> Simulation:
    """A query on a contestant; `rows` are there of each side before they begin again."""
    chosen = Setting(setting)
    window = None if within is None else f"{within} seconds"
    told = options or chosen.options(
        query, window=window is not None, update_batches=update_batches
    )
    return Simulation(
        streams(query, rows).sources(rate),
        None if aggregate else PREDICATES[query],
        query=AGGREGATES[query] if aggregate else None,
        within=window,
        options=told,
        cluster=cluster,
        separate=not chosen.matrix,
        seed=SEED,
    )


def mean_stored(trace: Trace) -> list[float]:
    """The mean bytes of a unit after each tick: the average memory load volume."""
    sizes = trace.by_tick(lambda turn: turn.stored_bytes)
    units = len({turn.place for turn in trace.turns})
    return [size / units for _, size in sorted(sizes.items())]


def volumes(trace: Trace) -> list[float]:
    """Tuples that had come by the end of each tick."""
    found, total = [], 0.0
    for _, rows in trace.arrived:
        total += rows
        found.append(total)
    return found


def crossing(xs: list[float], ys: list[float], limit: float) -> float:
    """The x at which y, which rises from zero, reaches a limit; infinity if it does not."""
    x0 = y0 = 0.0
    for x, y in zip(xs, ys, strict=True):
        if y >= limit:
            return x0 + (x - x0) * (limit - y0) / (y - y0)
        x0, y0 = x, y
    return math.inf


@lru_cache(maxsize=256)
def growth(query: str, setting: str, ticks: int) -> Trace:
    """Full history until the mean unit is full, in about so many ticks."""
    chosen = Setting(setting)
    # Only how fine the line is drawn depends on this guess of the largest volume.
    guess = 10_500 * (chosen.side if chosen.matrix else chosen.units)
    cluster = Cluster(epoch=1.0, cpu=CPU, network=LINK)
    running = simulation(query, setting, guess / ticks, rows=4 * guess, cluster=cluster)

    def full(trace: Trace) -> bool:
        last = [turn.stored_bytes for turn in trace.turns if turn.tick == trace.turns[-1].tick]
        return sum(last) >= CAPACITY * len(last)

    return running.run(3.0 * ticks, stop=full)


def largest_volume(query: str, setting: str, ticks: int) -> float:
    """Tuples that have come when the mean unit is full."""
    trace = growth(query, setting, ticks)
    return crossing(volumes(trace), mean_stored(trace), CAPACITY)


def busiest(trace: Trace, cost: Callable[[Turn], float]) -> list[float]:
    """For each tick, the seconds of the unit or link that takes longest."""
    found: dict[int, float] = {}
    for turn in trace.turns:
        found[turn.tick] = max(found.get(turn.tick, 0.0), cost(turn), turn.transfer)
    return [found[tick] for tick in sorted(found)]


def spilling(capacity: float = CAPACITY, disk: float = DISK) -> Memory:
    """Units that go to a disk when their memory is full."""
    return Memory(capacity=capacity, disk=disk)
