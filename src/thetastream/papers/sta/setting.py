"""STA's cluster, scaled down: six systems on the same streams and as many elements.

Windows are `TIME` times as short and streams are `RATE` times as slow, so that a window holds
`TIME * RATE` times fewer tuples. What grows with the window, results and the comparisons of nested
loops, is counted so many times: a tuple has as much to do as at full scale. Searches in indexes
take steps that grow with the logarithm only, and are counted as they are. Rates, windows and times
are given as the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import numpy as np

from thetastream.options import JoinOptions
from thetastream.papers.sta.data import PREDICATES, Data, tables
from thetastream.papers.sta.indexes import hot_keys
from thetastream.simulator import Cluster, Counted, Replayed, Simulation, Trace, Turn

NAME: Final = "sta"

DELAY: Final = 2.0
"""Milliseconds between two tuples of a stream, where that is not varied."""
ELEMENTS: Final = 40
WINDOW: Final = 50.0
"""Seconds."""
TIME: Final = {True: 50.0, False: 10.0}
"""In the quick form and in the full one."""
RATE: Final = 2.5
HOT_ELEMENTS: Final = 4
"""STA's two for each stream: here an element holds tuples of both streams."""
SEED: Final = 5
SEEN: Final = 5000
"""Tuples after which it is known which values are hot."""
PARTS: Final = {True: 2, False: 4}
"""Batches of a window, in the quick form and in the full one; two more are counted."""
COUNTED: Final = 2

COSTS: Final = Counted()
"""Seconds of what elements do: the simulator's, of a compiled engine; the same for all systems."""
PREDICTION: Final = COSTS.update
"""Seconds for STA's predictor to count a tuple: about an update of an index."""
HOP: Final = 5e-4
"""Seconds of a message between two elements, as in BiStream's cluster."""
GATHERING: Final = 1e-5
"""Seconds that the collector takes for what one element found of a lookup: ten tuples' worth."""


@dataclass(frozen=True)
class System:
    """One of the contestants."""

    name: str
    options: JoinOptions
    copies: bool = False
    """Whether each element stores every tuple, which then visits one of them."""
    scans: bool = False
    """Whether a visitor is compared with all that is stored."""
    predicts: bool = False
    """Whether a predictor counts the tuples."""
    dedicates: bool = False
    """Whether hot values have elements of their own."""

    def options_for(self, data: Data, elements: int) -> JoinOptions:
        """Its options for so many elements."""
        if not self.dedicates:
            return replace(self.options, units=elements)
        # At least one element is left for the cold values.
        hot = min(HOT_ELEMENTS, elements - 1)
        return replace(self.options, units=elements, hot_values=hot_values(data), hot_units=hot)


STA: Final = "STA"
SPREAD: Final = "STA, spread"
"""STA's index in every element, without elements of its own for hot values."""
SYSTEMS: Final = {
    system.name: system
    for system in (
        System(
            "BCHJ",
            JoinOptions(topology="multi-chained", index="nested-loops"),
            copies=True,
            scans=True,
        ),
        System("SJ", JoinOptions(topology="split")),
        System("CI", JoinOptions(topology="random")),
        System("MCI", JoinOptions(topology="multi-chained"), copies=True),
        System("PIM", JoinOptions(topology="random", index="pim")),
        System(STA, JoinOptions(topology="stream-aware"), predicts=True, dedicates=True),
        System(SPREAD, JoinOptions(topology="stream-aware"), predicts=True),
    )
}
"""As in the paper, but exact: elements share no state at check points, and whatever may hold a
partner is visited."""
PIM_EVERYWHERE: Final = System(
    "PIM in every element", JoinOptions(topology="multi-chained", index="pim"), copies=True
)
_KNOWN: Final = {**SYSTEMS, PIM_EVERYWHERE.name: PIM_EVERYWHERE}


@lru_cache(maxsize=16)
def hot_values(data: Data) -> tuple[float | int, ...]:
    """The values in the filter of an ASketch that has seen the first stream."""
    values = tables(data)[0]["v"].to_numpy()
    # The sketch counts whole numbers: the position of each value among all of them.
    known, codes = np.unique(values, return_inverse=True)
    found = known[sorted(hot_keys(codes[:SEEN]))]
    return tuple(found.tolist())


@lru_cache(maxsize=16)
def hot_share(data: Data) -> float:
    """The share of the tuples of both streams that have a hot value."""
    values = np.concatenate([table["v"].to_numpy() for table in tables(data)])
    return float(np.isin(values, hot_values(data)).mean())


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One run, in the paper's terms."""

    system: str
    data: Data
    delay: float = DELAY
    elements: int = ELEMENTS
    window: float = WINDOW
    quick: bool = False

    @property
    def rate(self) -> float:
        """Tuples per second of each stream, in the paper."""
        return 1000 / self.delay

    @property
    def scaled_window(self) -> float:
        """Seconds of the window in the run."""
        return self.window / TIME[self.quick]

    @property
    def smaller(self) -> float:
        """How many times fewer tuples a window holds in the run."""
        return TIME[self.quick] * RATE


@dataclass(frozen=True)
class Element:
    """What an element did in the batches that count."""

    stored: float = 0.0
    """Tuples that it took to be stored."""
    updates: float = 0.0
    lookups: float = 0.0
    compared: float = 0.0
    results: float = 0.0


@dataclass(frozen=True)
class Measures:
    """What a run measures, at the paper's scale."""

    setting: Setting
    tuples: int
    """That came in the batches that count, of both streams."""
    elements: tuple[Element, ...] = field(repr=False)

    @property
    def _system(self) -> System:
        return _KNOWN[self.setting.system]

    def _inserting(self, one: Element) -> float:
        predicted = PREDICTION * one.stored if self._system.predicts else 0.0
        return COSTS.row * one.stored + COSTS.update * one.updates + predicted

    def looking(self, one: Element, *, results: bool = True) -> float:
        """Seconds that an element looked for partners, at the paper's scale."""
        smaller = self.setting.smaller
        compared = one.compared * (smaller if self._system.scans else 1.0)
        found = smaller * one.results if results else 0.0
        return COSTS.row * one.lookups + COSTS.comparison * compared + COSTS.result * found

    @property
    def insertion(self) -> float:
        """Tuples per second at which the busiest element does nothing but insert."""
        return self.tuples / max(self._inserting(one) for one in self.elements)

    @property
    def lookups(self) -> float:
        """Tuples per second at which the busiest element does nothing but look up."""
        return self.tuples / max(self.looking(one) for one in self.elements)

    @property
    def throughput(self) -> float:
        """Tuples per second at which the busiest element has no rest."""
        return self.tuples / max(self._inserting(one) + self.looking(one) for one in self.elements)

    @property
    def visited(self) -> float:
        """Elements that a tuple visits."""
        return sum(one.lookups for one in self.elements) / self.tuples

    def busy(self, one: Element) -> float:
        """The share of its time that an element works, at the paper's rate."""
        each = (self._inserting(one) + self.looking(one)) / self.tuples
        return each * 2 * self.setting.rate

    @property
    def utilisation(self) -> float:
        """Of the busiest element."""
        return max(self.busy(one) for one in self.elements)

    @property
    def search(self) -> float:
        """Seconds that the search of a lookup takes in the slowest element, without results."""
        return max(
            self.looking(one, results=False) / one.lookups for one in self.elements if one.lookups
        )

    @property
    def latency(self) -> float:
        """Mean seconds from a tuple's start to the collector's last answer; infinite if an element
        falls behind.

        A tuple waits as tuples do that come at random and take equally long; where it visits
        several elements, for the slowest of them.
        """
        if self.utilisation >= 1:
            return float("inf")
        visited = [one for one in self.elements if one.lookups]
        times = []
        for one in visited:
            times.append(waiting(self.looking(one) / one.lookups, self.busy(one)))
        if self._system.copies:
            count = sum(one.lookups for one in visited)
            slowest = (
                sum(one.lookups * time for one, time in zip(visited, times, strict=True)) / count
            )
        else:
            slowest = max(times)
        return 2 * HOP + slowest + GATHERING * max(1.0, self.visited)

    @property
    def largest_share(self) -> float:
        """The share of all results that one element finds."""
        results = [one.results for one in self.elements]
        return max(results) / sum(results) if sum(results) else 0.0


def waiting(service: float, busy: float) -> float:
    """Mean seconds of what takes so long, in an element that works for such a share of its time."""
    return service * (1 + busy / (2 * (1 - busy))) if busy < 1 else float("inf")


def trace_of(setting: Setting) -> Trace:
    """A run of the real elements."""
    rate, window = setting.rate / RATE, setting.scaled_window
    epoch = window / PARTS[setting.quick]
    first, second = tables(setting.data)
    simulation = Simulation(
        {"r": Replayed(first, rate), "s": Replayed(second, rate)},
        PREDICATES.get(setting.data, "r.v > s.v"),
        within=f"{round(1000 * window)} milliseconds",
        options=_KNOWN[setting.system].options_for(setting.data, setting.elements),
        cluster=Cluster(epoch=epoch, cpu=COSTS),
        seed=SEED,
    )
    return simulation.run((PARTS[setting.quick] + COUNTED) * epoch)


@lru_cache(maxsize=512)
def measured(setting: Setting) -> Measures:
    """What a run measures; each is made once."""
    trace = trace_of(setting)
    after = setting.scaled_window + 1e-9
    found: dict[int, Element] = {}
    copies = _KNOWN[setting.system].copies
    for turn in trace.since(after):
        found[turn.unit] = _with(found.get(turn.unit, Element()), turn, copies)
    return Measures(setting, trace.rows(after), tuple(found[unit] for unit in sorted(found)))


def _with(one: Element, turn: Turn, copies: bool) -> Element:
    return Element(
        # Whatever comes to an element that has copies is stored there.
        one.stored + (turn.tuples if copies else turn.rows),
        one.updates + turn.updates,
        one.lookups + turn.probes,
        one.compared + turn.compared,
        one.results + turn.results,
    )


SCALE: Final = (
    f"Windows {TIME[False]:g} times as short and streams {RATE:g} times as slow as the paper's;"
    " results, and comparisons of nested loops, are counted"
    f" {TIME[False] * RATE:g} times, so that a tuple has as much to do as at full scale."
)
SCALED: Final = (
    f"{SCALE} Elements, routing and indexes are the real ones, and every result is found: nothing"
    " is shared at check points, and a tuple visits all elements that may hold a partner. BCHJ is"
    " as in the paper's algorithm 3: every tuple in every element, and nested loops in one of"
    " them. STA has 4 elements for the 32 values that its predictor found before, two for each"
    " stream; the other line of STA has only its index, in every element. An element decides by"
    " 1,024 tuples which of its values are hot in its index, and none sees so many at this scale:"
    " a search then takes the steps of the chained index."
)
