"""The measures by which STA compares ways to divide and to index a stream, from plain numbers and
from the reports of units."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from thetastream.engine.protocol import Report

GATHERED_ROWS = 1000
"""Tuples whose results are gathered together, as `aggregation` counts."""


# -- load ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Imbalance:
    """How far the busiest unit is from an even share of the load."""

    busiest: float
    mean: float

    @property
    def gap(self) -> float:
        """What the busiest unit has more than its share, in units of the load."""
        return self.busiest - self.mean

    @property
    def ratio(self) -> float:
        """How many times its share the busiest unit has; 1.0 is even, as is no load at all."""
        return self.busiest / self.mean if self.mean else 1.0


def imbalance(loads: Iterable[float], units: int | None = None) -> Imbalance:
    """The imbalance of some loads, over so many units if idle ones are not among the loads.

    >>> found = imbalance([60, 20, 40])
    >>> found.gap, found.ratio
    (20.0, 1.5)
    >>> imbalance([60, 20, 40], units=6).ratio
    3.0
    """
    found = list(loads)
    count = len(found) if units is None else units
    if count < len(found):
        raise ValueError(f"{len(found)} units have a load, and there are {count}")
    return Imbalance(max(found, default=0.0), sum(found) / count if count else 0.0)


def per_unit(
    reports: Iterable[Report], load: Callable[[Report], float]
) -> dict[tuple[int, int], float]:
    """A load of each stage and unit, over all batches that are reported.

    >>> batches = [Report(0, rows_in=3), Report(1, rows_in=5), Report(0, rows_in=4)]
    >>> per_unit(batches, lambda report: report.rows_in)
    {(0, 0): 7, (0, 1): 5}
    """
    found: dict[tuple[int, int], float] = {}
    for report in reports:
        place = report.stage, report.unit
        found[place] = found.get(place, 0) + load(report)
    return found


# -- results ------------------------------------------------------------------------------------


def completeness(found: Iterable[Hashable], expected: Iterable[Hashable]) -> float:
    """The share of the expected results that were found; 1.0 if none is expected.

    A result that is expected twice must be found twice. One that is found and not expected makes
    up for none that is missing.

    >>> completeness(["ab", "ac", "xy"], ["ab", "ac", "ad", "ad"])
    0.5
    """
    wanted = Counter(expected)
    there = wanted & Counter(found)
    return there.total() / wanted.total() if wanted else 1.0


def aggregation(units: Iterable[int], rows: int = GATHERED_ROWS) -> float:
    """Units that the results of so many consecutive tuples are gathered from, on average.

    `units` has the unit of each tuple. Fewer tuples than `rows` at the end are left out, unless
    there are no others.

    >>> aggregation([0, 1, 2, 3, 0, 0, 0, 1], rows=4)
    3.0
    """
    if rows < 1:
        raise ValueError("results of at least one tuple are gathered")
    every = iter(units)
    sets: list[list[int]] = []
    while some := list(islice(every, rows)):
        sets.append(some)
    if len(sets) > 1 and len(sets[-1]) < rows:
        del sets[-1]
    return sum(len(set(some)) for some in sets) / len(sets) if sets else 0.0


def gathered_from(reports: Iterable[Report]) -> int:
    """Units that the results of the reported batches are gathered from.

    >>> gathered_from([Report(0, results=3), Report(1), Report(0, results=1), Report(2, results=1)])
    2
    """
    return len({(report.stage, report.unit) for report in reports if report.results})


# -- indexes ------------------------------------------------------------------------------------


def index_updates(keys: Iterable[int], apart: Collection[int] = ()) -> int:
    """By how many ranks the keys of one sorted index move while tuples arrive in this order.

    The rank of a key is the number of smaller keys in the index. It moves up by one with each
    smaller key that arrives later; a key that is there already moves nothing. Keys that are kept
    `apart` have an index of their own and do not count.

    >>> index_updates([5, 7, 5, 3])  # 3 moves 5 and 7
    2
    >>> index_updates([5, 7, 5, 3], apart={5})
    1
    """
    left_out = frozenset(apart)
    ranked: list[int] = []
    moved = 0
    for key in keys:
        if key in left_out:
            continue
        place = bisect_left(ranked, key)
        if place == len(ranked) or ranked[place] != key:
            moved += len(ranked) - place
            insort(ranked, key)
    return moved


@dataclass(frozen=True)
class Redundancy:
    """How often keys are in several sub-indexes."""

    entries: int
    """Keys of all sub-indexes, each as often as there are sub-indexes that have it."""
    distinct: int
    """Different keys."""

    @property
    def repeated(self) -> int:
        """Entries that one index for all keys would not have."""
        return self.entries - self.distinct

    @property
    def per_key(self) -> float:
        """Sub-indexes that have a key, on average; 1.0 if each key is in one, or there is none."""
        return self.entries / self.distinct if self.distinct else 1.0


def redundancy(sub_indexes: Sequence[Iterable[int]], apart: Collection[int] = ()) -> Redundancy:
    """The redundancy of keys in sub-indexes, without those that are kept `apart`.

    >>> redundancy([[1, 1, 2], [1, 3], [1]])
    Redundancy(entries=5, distinct=3)
    >>> redundancy([[1, 1, 2], [1, 3], [1]], apart={1}).per_key
    1.0
    """
    sets = [set(keys) - set(apart) for keys in sub_indexes]
    return Redundancy(sum(map(len, sets)), len(set().union(*sets)))


def updates_per_row(reports: Iterable[Report]) -> float:
    """How often a row that came in was written into an index or moved inside it, on average.

    >>> updates_per_row([Report(0, rows_in=10, updates=10), Report(0, rows_in=10, updates=50)])
    3.0
    """
    found = list(reports)
    rows = sum(report.rows_in for report in found)
    return sum(report.updates for report in found) / rows if rows else 0.0
