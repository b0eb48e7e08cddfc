"""TriJoin and BiStream+Tree on the same streams and as many units, and when results are there.

How long the second join of the tree waits depends on the signals of its router, of which the paper
says little. A trace has all that is needed to time its results by another rule, so that one run
answers for all of them.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from thetastream.options import JoinOptions, Scheme
from thetastream.papers.trijoin.streams import PARTNERS, PREDICATES, Data, Join, streams
from thetastream.simulator import Cluster, Counted, Network, Simulation, Trace, Turn

System = Literal["TriJoin", "BiStream+Tree"]

SLOWER: Final = 20
"""The streams are about so many times slower than what an engine takes in that handles one tuple at
a time. What a tuple costs, and the time that a byte takes, are as many times higher."""
NETWORK: Final = Network(bandwidth=125e6 / SLOWER, latency=0.001)
"""1,000 Mbit/s, and a millisecond from one process to another."""
RATE: Final = 400.0
"""Tuples per second of each stream."""
PERIOD: Final = 0.1
"""Seconds between two signals."""
WINDOW: Final = 0.6
"""Seconds."""
SEED: Final = 11


def costs(slower: float) -> Counted:
    """The simulator's costs of a compiled engine, so many times as high; those of both systems."""
    usual = Counted()
    return Counted(
        row=slower * usual.row,
        comparison=slower * usual.comparison,
        update=slower * usual.update,
        result=slower * usual.result,
    )


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One run."""

    join: Join
    system: System
    data: Data = "gps"
    instances: int = 36
    period: float = PERIOD
    window: float = WINDOW
    seconds: float = 1.0
    partners: float = 0.0
    """In a window of the usual length; 0 for those of the data."""
    packed: bool = True
    slower: float = SLOWER
    sub_indexes: int = 1
    """Of a window. Few are fast; with many, what has left the window is dropped soon."""

    @property
    def units(self) -> int:
        """Of each stream: TriJoin has three groups of units; the tree has two joins of two."""
        groups = 3 if self.system == "TriJoin" else 4
        if self.instances % groups:
            raise ValueError(f"{self.instances} instances are not {groups} groups of one size")
        return self.instances // groups

    @property
    def cluster(self) -> Cluster:
        """What it runs on."""
        return Cluster(epoch=self.period, cpu=costs(self.slower), network=NETWORK)


@lru_cache(maxsize=128)
def run(setting: Setting) -> Trace:
    """The trace of a run; each is made once."""
    return simulation(setting, setting.cluster).run(setting.seconds)


def simulation(setting: Setting, cluster: Cluster) -> Simulation:
    """A run that is yet to be made."""
    schemes: dict[Join, Scheme] = {"cyclic": "symmetric", "chain": "semi-symmetric"}
    return Simulation(
        streams(
            setting.data,
            rate=RATE,
            stored=RATE * WINDOW,
            partners=setting.partners or PARTNERS[setting.data],
        ),
        PREDICATES[setting.join],
        within=f"{round(1000 * setting.window)} milliseconds",
        options=JoinOptions(
            scheme=schemes[setting.join] if setting.system == "TriJoin" else "tree",
            intermediate="packed" if setting.packed else "pairs",
            topology="random",
            units=setting.units,
            archive_period=f"{round(1000 * setting.window / setting.sub_indexes)} milliseconds",
        ),
        cluster=cluster,
        separate=True,
        seed=SEED,
    )


class Wait(enum.StrEnum):
    """What results wait for before other units go on with them."""

    IN_STEP = "signals in step"
    """Both joins of the tree get their signals at the same times, as from one router: what the
    first one finds has just missed a signal."""
    APART = "signals half a period apart"
    """The mean of two routers that know nothing of each other."""
    ARRIVAL = "no signals between the joins"
    """The second join begins when the first has done with the batch."""
    PACKS = "packs wait for signals"
    """TriJoin's packs that go on wait for a signal, too: so does the published code."""


Sums = dict[int, tuple[int, float]]
"""For each tick, results and the sum of their delays."""


def delays(setting: Setting, wait: Wait = Wait.IN_STEP) -> Sums:
    """The delays of a run's results, if they wait for that."""
    trace = run(setting)
    if setting.system == "TriJoin":
        shifted = {id(turn): _packs_later(turn, setting) for turn in trace.turns}
        later = shifted if wait is Wait.PACKS else {}
    else:
        later = _join_later(trace, setting, wait)
    last = max(turn.join for turn in trace.turns)
    found: Sums = {}
    for turn in trace.turns:
        if turn.join == last:
            count, total = found.get(turn.tick, (0, 0.0))
            total += turn.delay + later.get(id(turn), 0.0)
            found[turn.tick] = count + turn.delays, total
    return found


def mean_delay(setting: Setting, wait: Wait = Wait.IN_STEP) -> float:
    """Mean seconds from the arrival of a result's newest member to the result, once the window is
    full."""
    warm = math.ceil(setting.window / setting.period - 1e-9)
    sums = [one for tick, one in delays(setting, wait).items() if tick >= warm]
    count = sum(number for number, _ in sums)
    return sum(total for _, total in sums) / count if count else 0.0


def ready(finished: float, closed: float, period: float, wait: Wait) -> float:
    """When the second join of a tree can begin with a batch that the first has done with."""
    if wait is Wait.ARRIVAL:
        return max(finished, closed)
    phase = 0.5 if wait is Wait.APART else 0.0
    signal = (math.ceil(finished / period - phase - 1e-9) + phase) * period
    return max(signal, closed)


def first_done(trace: Trace) -> dict[int, float]:
    """When the results of the first join had reached the router of the second, for each tick."""
    found: dict[int, float] = {}
    for turn in trace.turns:
        if turn.join == 0:
            at = turn.finish + NETWORK.latency
            found[turn.tick] = max(found.get(turn.tick, 0.0), at)
    return found


def _join_later(trace: Trace, setting: Setting, wait: Wait) -> dict[int, float]:
    """By how much the delays of each turn of the second join grow, in sum."""
    done = first_done(trace)
    free: dict[int, float] = {}
    found = {}
    for turn in trace.turns:
        if turn.join == 0:
            continue
        was, now = (
            ready(done[turn.tick], turn.closed, setting.period, one) for one in (Wait.IN_STEP, wait)
        )
        start = max(turn.arrived + now - was, free.get(turn.unit, 0.0))
        free[turn.unit] = start + turn.cpu
        found[id(turn)] = turn.delays * (start - turn.start)
    return found


def _packs_later(turn: Turn, setting: Setting) -> float:
    """By how much the delays of a turn grow if packs wait for the next signal, in sum."""
    if not turn.late:
        return 0.0
    signal = math.ceil(turn.forwarded / setting.period - 1e-9) * setting.period
    return turn.late * (signal - turn.forwarded)


def throughput(setting: Setting) -> float:
    """Tuples per second at which the busiest unit or link has no rest."""
    return run(setting).throughput(setting.window + 1e-9)
