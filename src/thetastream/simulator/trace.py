"""What a simulation has seen: one line for each turn of a unit, and the measures of the papers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from thetastream.engine.measures import imbalance

Unit = tuple[int, int, int]
"""A join, a stage and a unit."""

SAMPLE = 64
"""Delays of a turn that are kept one by one; their sum and number are those of all."""


@dataclass(kw_only=True)
class Turn:
    """A unit with one batch."""

    join: int
    stage: int
    unit: int
    tick: int
    closed: float
    """When the last tuple of the batch had come."""
    arrived: float = 0.0
    """When all of it had reached the unit."""
    forwarded: float = 0.0
    """When the packs of the stage before had reached it, if there were any."""
    start: float = 0.0
    finish: float = 0.0
    cpu: float = 0.0
    disk: float = 0.0
    """Seconds that it waited for its disk, in `cpu` as well."""
    rows: int = 0
    probes: int = 0
    compared: int = 0
    updates: int = 0
    results: int = 0
    bytes: int = 0
    """Sent to the unit."""
    messages: int = 0
    tuples: int = 0
    """Tuples sent to the unit, to be stored or to visit."""
    transfer: float = 0.0
    """Seconds that its link was occupied."""
    moved: int = 0
    """Bytes of tuples that it exported to other units."""
    stored_rows: int = 0
    stored_bytes: int = 0
    kept: list[tuple[str, int]] = field(default_factory=list)
    """Stored bytes of each stream."""
    entries: int = 0
    pairs: int = 0
    out_bytes: int = 0
    delays: int = 0
    """Results whose delay is known."""
    delay: float = 0.0
    """The sum of their delays."""
    late: int = 0
    """Those that came of packs of the stage before, which it had to wait for."""
    sample: npt.NDArray[np.float32] = field(
        default_factory=lambda: np.empty(0, np.float32), repr=False
    )

    @property
    def place(self) -> Unit:
        """Which unit it was."""
        return self.join, self.stage, self.unit

    def to_json(self) -> dict[str, Any]:
        """The line as JSON takes it, without the sample."""
        found = asdict(self)
        del found["sample"]
        return found


@dataclass(kw_only=True)
class Trace:
    """Everything that a simulation has seen; measures leave the seconds before `after` out."""

    epoch: float
    seconds: float
    turns: list[Turn] = field(default_factory=list)
    arrived: list[tuple[float, int]] = field(default_factory=list)
    """When each batch was closed, and the tuples in it."""
    held: list[int] = field(default_factory=list)
    """Tuples that waited at the router, before each time at which units were served."""
    units: list[tuple[float, int]] = field(default_factory=list)
    """How many units held tuples."""
    decisions: list[str] = field(default_factory=list)
    """What policies said, in words."""

    def since(self, after: float = 0.0) -> Iterator[Turn]:
        """The turns whose batch was closed later than that."""
        return (turn for turn in self.turns if turn.closed > after)

    def per_unit(
        self, value: Callable[[Turn], float], after: float = 0.0, *, join: int | None = None
    ) -> dict[Unit, float]:
        """The sum of something over the turns of each unit."""
        found: dict[Unit, float] = {}
        for turn in self.since(after):
            if join is None or turn.join == join:
                found[turn.place] = found.get(turn.place, 0.0) + value(turn)
        return found

    def rows(self, after: float = 0.0) -> int:
        """Tuples that came into the system."""
        return sum(rows for closed, rows in self.arrived if closed > after)

    def results(self, after: float = 0.0) -> int:
        """Results."""
        return sum(turn.results for turn in self._last(after))

    def _last(self, after: float) -> list[Turn]:
        """The turns of the join whose results are those of all."""
        last = max((turn.join for turn in self.turns), default=0)
        return [turn for turn in self.since(after) if turn.join == last]

    def delay(self, after: float = 0.0) -> float:
        """Mean seconds from the arrival of a result's newest member to the result."""
        turns = self._last(after)
        count = sum(turn.delays for turn in turns)
        return sum(turn.delay for turn in turns) / count if count else 0.0

    def delays(self, after: float = 0.0) -> npt.NDArray[np.float32]:
        """A sample of the delays."""
        found = [turn.sample for turn in self._last(after)]
        return np.concatenate(found) if found else np.empty(0, np.float32)

    def cpu(self, after: float = 0.0) -> dict[Unit, float]:
        """CPU seconds of each unit."""
        return self.per_unit(lambda turn: turn.cpu, after)

    def utilisation(self, after: float = 0.0) -> float:
        """The share of the time in which the busiest unit works; above 1 it falls behind."""
        seconds = self.seconds - after
        return max(self.cpu(after).values(), default=0.0) / seconds if seconds > 0 else 0.0

    def imbalance(self, after: float = 0.0) -> float:
        """The CPU time of the busiest unit over the mean."""
        return imbalance(self.cpu(after).values()).ratio

    def throughput(self, after: float = 0.0) -> float:
        """Tuples per second at which the busiest unit or link would be busy all the time."""
        work = self.cpu(after)
        for place, seconds in self.per_unit(lambda turn: turn.transfer, after).items():
            work[place] = max(work[place], seconds)
        busiest = max(work.values(), default=0.0)
        return self.rows(after) / busiest if busiest else float("inf")

    def idle(self, after: float = 0.0) -> dict[Unit, float]:
        """Seconds in which each unit neither computed nor waited for what was being sent to it."""
        seconds = self.seconds - after
        used = self.per_unit(lambda turn: turn.cpu + turn.arrived - turn.closed, after)
        return {place: max(0.0, seconds - spent) for place, spent in used.items()}

    def communication(self, after: float = 0.0) -> dict[Unit, float]:
        """Seconds of each unit from the end of an epoch until it had all that was sent to it."""
        return self.per_unit(lambda turn: turn.arrived - turn.closed, after)

    def bytes(self, after: float = 0.0) -> int:
        """Sent to the units, and between them."""
        return sum(turn.bytes + turn.moved for turn in self.since(after))

    def stored(self, tick: int | None = None) -> dict[Unit, int]:
        """Bytes that each unit stored after a tick, the last one by default."""
        found = {}
        for turn in self.turns:
            if tick is None or turn.tick <= tick:
                found[turn.place] = turn.stored_bytes
        return found

    def by_tick(self, value: Callable[[Turn], float]) -> dict[int, float]:
        """The sum of something over all units, for each tick."""
        found: dict[int, float] = {}
        for turn in self.turns:
            found[turn.tick] = found.get(turn.tick, 0.0) + value(turn)
        return found

    def summary(self, after: float = 0.0) -> dict[str, float]:
        """The measures that most questions are about."""
        stored = self.stored().values()
        return {
            "seconds": self.seconds - after,
            "units": float(len(self.cpu(after))),
            "rows": float(self.rows(after)),
            "results": float(self.results(after)),
            "delay": self.delay(after),
            "throughput": self.throughput(after),
            "utilisation": self.utilisation(after),
            "imbalance": self.imbalance(after),
            "bytes": float(self.bytes(after)),
            "stored_bytes": float(sum(stored)),
            "largest_unit_bytes": float(max(stored, default=0)),
        }
