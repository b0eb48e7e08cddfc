"""The Epoch join's cluster, scaled down: what all its figures share.

The scale has two factors. The stretch of time (windows, the run) is `time` times as short, the
streams are `rate` times as slow. What a tuple has to look at is then `time * rate` times as little,
what a slave has to look at in a second `time * rate ** 2` times as little: with such a cost of a
comparison the slaves are as busy as the paper's. Epochs are as long as the paper's. Rates are
given as the paper's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from thetastream.options import JoinOptions
from thetastream.simulator import BModel, Cluster, Counted, Generated, Network, Simulation, Trace
from thetastream.steering.policy import Policy

NAME: Final = "epoch-join"

WINDOW: Final = 600.0
"""Seconds of the paper's windows."""
RATE: Final = 1500.0
"""Tuples per second of each stream, where the rate is not what is varied."""
EPOCH: Final = 2.0
"""Seconds of a distribution epoch, t_d."""
REORGANISATION: Final = 20.0
"""Seconds of a reorganisation epoch, t_r."""
KEYS: Final = 10_000_000
SKEW: Final = 0.7
PAYLOAD: Final = 48
"""With the key and the time a tuple has 64 bytes."""
THETA: Final = 3 * 512 * 1024
"""1.5 MB of a partition-group, which has the tuples of both streams."""
STREAMS: Final = 2

COMPARISON: Final = 13.5e-9
"""Seconds to look at one stored tuple. Fitted, the only number that is: so that four slaves without
fine tuning, at 4,000 tuples/s, have the paper's mean delay of 48 s."""
ROW: Final = 1e-6
"""Seconds to take a tuple that comes, as in `Counted`."""
UPDATE: Final = 2e-7
"""Seconds to write a tuple into an index, as in `Counted`."""
RESULT: Final = 2e-7
"""Seconds to make a result, as in `Counted`."""
BANDWIDTH: Final = 125e6
"""Bytes per second of the paper's gigabit Ethernet."""
MESSAGE: Final = 1e-4
"""Seconds of a message beside its bytes: what MPI takes on such a network."""
PACKS: Final = 2
"""The paper merges both streams into one message for a slave; here each stream has its own."""

Tuning = Literal["none", "both", "each"]
"""Whether there is fine tuning, and if so, whether θ bounds the tuples of both streams in a
mini-group together, as in the paper's partition-groups, or those of each."""

SCALED: Final = (
    "Windows of 30 s for 10 minutes (20 times as short); rates and bandwidth divided by 3.2; θ"
    " divided by both, and half of it for each stream's store, since a partition-group has the"
    " tuples of both. A comparison costs 13.5 ns times 20 × 3.2²: so the slaves are as busy as at"
    " full scale. Epochs of 2 s, 60 partition-groups, b-model 0.7 and keys up to 10⁷ are the"
    " paper's. Rates and times are shown as the paper's."
)
TWO_WINDOWS: Final = f"A window that is not counted, and then another one. {SCALED}"
"""Of the runs that are as the paper's."""
DELAYS: Final = (
    "A slave that falls behind lets tuples wait the longer the longer the run is: this part of the"
    f" delay is counted 20 times. {TWO_WINDOWS}"
)
"""Of those in which delays are measured."""


@dataclass(frozen=True)
class Scale:
    """How much shorter and slower all is."""

    time: float
    rate: float

    @property
    def window(self) -> float:
        """Seconds of a window; so many are not counted, and then as many are."""
        return WINDOW / self.time

    @property
    def theta(self) -> int:
        """Bytes of one stream in a mini-group."""
        return round(THETA / STREAMS / self.time / self.rate)

    @property
    def cpu(self) -> Counted:
        """With what the slaves are as busy as the paper's."""
        pairs = self.time * self.rate**2
        return Counted(
            row=ROW * self.rate,
            update=UPDATE * self.rate,
            comparison=COMPARISON * pairs,
            result=RESULT * pairs,
        )

    def network(self, *, slots: int = 1) -> Network:
        """One link, over which the master serves its slaves one after the other."""
        bandwidth, message = BANDWIDTH / self.rate, MESSAGE / PACKS
        return Network(bandwidth=bandwidth, message=message, serial=True, slots=slots)

    def source(self, rate: float, skew: float = SKEW) -> Generated:
        """A stream of so many tuples per second in the paper."""
        columns = {"k": BModel(KEYS, skew)}
        return Generated(rate=rate / self.rate, columns=columns, payload=PAYLOAD)

    def options(self, slaves: int, tuning: Tuning) -> JoinOptions:
        """With fine tuning, or without."""
        if tuning == "none":
            return JoinOptions(topology="hash", units=slaves, index="nested-loops")
        theta = self.theta * (STREAMS if tuning == "each" else 1)
        return JoinOptions(topology="hash", units=slaves, index="extendible", theta=theta)


FULL: Final = Scale(20.0, 3.2)
QUICK: Final = Scale(60.0, 3.2)


def scale_of(quick: bool) -> Scale:
    """The scale of a form of a figure."""
    return QUICK if quick else FULL


@dataclass(frozen=True)
class Run:
    """A run and its scale; what it measures is in the paper's rates and seconds."""

    scale: Scale
    trace: Trace
    after: float
    """From then on it counts."""

    @property
    def counted(self) -> float:
        """Seconds of the epochs that count."""
        return self.trace.epoch * sum(closed > self.after for closed, _ in self.trace.arrived)

    def _of_ten_minutes(self, seconds: Iterable[float]) -> list[float]:
        return [WINDOW * one / self.counted for one in seconds]

    @property
    def delay(self) -> float:
        """Mean seconds from the arrival of a result's newer member to the result.

        While a slave falls behind, what comes waits the longer the longer the run is: that part of
        the delay is counted as often as the run is shortened. The rest belongs to the epochs, which
        are not.
        """
        total, count = 0.0, 0
        for turn in self.trace.since(self.after):
            total += turn.delay + (self.scale.time - 1) * turn.delays * (turn.start - turn.arrived)
            count += turn.delays
        return total / count if count else 0.0

    @property
    def cpu(self) -> list[float]:
        """Seconds of each slave for what came in ten minutes, though it may be done only later."""
        return self._of_ten_minutes(self.trace.cpu(self.after).values())

    @property
    def communication(self) -> list[float]:
        """Seconds of ten minutes in which each slave waited for its tuples, in their order."""
        found = self.trace.communication(self.after)
        return self._of_ten_minutes(found[place] for place in sorted(found))

    @property
    def idle(self) -> list[float]:
        """Seconds of ten minutes in which each slave neither computed nor waited for tuples."""
        spent = self.trace.per_unit(lambda turn: turn.cpu + turn.arrived - turn.closed, self.after)
        return [max(0.0, WINDOW - one) for one in self._of_ten_minutes(spent.values())]

    @property
    def kept(self) -> float:
        """Tuples that are stored in the end, over those of the windows."""
        last = max(turn.tick for turn in self.trace.turns)
        rows = sum(turn.stored_rows for turn in self.trace.turns if turn.tick == last)
        return rows / self.trace.rows(self.trace.seconds - self.scale.window)


@lru_cache(maxsize=256)
def run(
    slaves: int, rate: float, tuning: Tuning = "both", *, quick: bool, epoch: float = EPOCH
) -> Run:
    """A run as the paper's: one window that is not counted, and then as long again."""
    scale = scale_of(quick)
    simulation = Simulation(
        {"r": scale.source(rate), "s": scale.source(rate)},
        "r.k = s.k",
        within=f"{scale.window:g} seconds",
        options=scale.options(slaves, tuning),
        cluster=Cluster(epoch=epoch, cpu=scale.cpu, network=scale.network()),
        seed=1,
    )
    return Run(scale, simulation.run(2 * scale.window), scale.window)


def steered(
    slaves: int,
    rate: float,
    policies: Sequence[Policy],
    *,
    most: int,
    seconds: float,
    after: float,
    quick: bool,
    skew: float = SKEW,
) -> Run:
    """A run with fine tuning whose partition-groups are moved."""
    scale = scale_of(quick)
    simulation = Simulation(
        {"r": scale.source(rate, skew), "s": scale.source(rate, skew)},
        "r.k = s.k",
        within=f"{scale.window:g} seconds",
        options=scale.options(slaves, "both"),
        cluster=Cluster(epoch=EPOCH, cpu=scale.cpu, network=scale.network()),
        policies=policies,
        max_units=most,
        seed=1,
    )
    return Run(scale, simulation.run(seconds), after)


def mean(values: Sequence[float]) -> float:
    """The mean."""
    return sum(values) / len(values)
