"""Two-phase scaling, the 2PS of BiStream: units are added and removed as the load asks for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from thetastream.errors import OptionError
from thetastream.steering.edits import Edit, Scale
from thetastream.steering.policy import Holding, Load, Moment, Verdict

MEASURES = ("bytes", "cpu")


class _Subgroup(NamedTuple):
    """Units that are scaled together."""

    name: str
    edit: Scale
    """With the number of units that there are."""
    units: int
    used: float
    """What is used of one unit's capacity, over all units together."""

    @property
    def load(self) -> float:
        """The paper's τ."""
        return self.used / self.units


class TwoPhaseScaling:
    """Scales each subgroup of units so that its load comes to `target`.

    The load τ of a subgroup of k units is the sum of their stored bytes over k times `capacity`, or
    with `measure="cpu"` the share of the time in which they were busy. Above `high` or below `low`
    in `patience` decisions in a row, the subgroup gets (τ / target − 1) k units more, rounded up.

    >>> policy = ts.TwoPhaseScaling(capacity=1_000_000, patience=1)
    >>> load = ts.Load(join=0, stage=0, unit=0, stored_bytes=900_000)
    >>> orders = ts.Holding(stream="orders", join=0, stage=0, units=(0,))
    >>> moment = ts.Moment(
    ...     at=0.0, batch=1, interval=1.0, loads=(load,), holdings=(orders,), max_units=8
    ... )
    >>> decision = policy.decide(moment, [])
    >>> print(decision.why, "|", decision.edit)
    orders: load 0.90 is above 0.80, 1 time in a row | scale to 2 units
    """

    name = "two-phase scaling"
    scales = True
    """It decides how many units there are, and no other policy beside it may."""

    def __init__(
        self,
        *,
        capacity: float | None = None,
        measure: str = "bytes",
        high: float = 0.8,
        low: float = 0.3,
        target: float = 0.6,
        patience: int = 3,
        every: float = 60.0,
        least: int = 1,
        most: int | None = None,
    ) -> None:
        """`capacity`: bytes that a unit may store; `every`: seconds between two decisions."""
        if measure not in MEASURES:
            raise OptionError(f"unknown measure {measure!r}", hint='choose "bytes" or "cpu"')
        if measure == "bytes" and (capacity is None or not capacity > 0):
            raise OptionError(
                f"capacity={capacity!r} is not a number of bytes",
                hint='give the bytes that a unit may store, or use measure="cpu"',
            )
        if not 0 <= low < target < high:
            raise OptionError(
                f"low={low}, target={target} and high={high} are not in this order",
                hint="the load after a change must be between both thresholds",
            )
        if patience < 1 or least < 1 or (most is not None and most < least):
            raise OptionError(
                "patience, least and most are at least 1, and most is not below least"
            )
        self._capacity = capacity or 1.0
        self._measure = measure
        self._high, self._low, self._target = high, low, target
        self._patience = patience
        self._least, self._most = least, most
        self.every = every

    def decide(self, moment: Moment, earlier: Sequence[Verdict]) -> Verdict:
        """What to do about the subgroup that needs it most."""
        found = list(self._subgroups(moment))
        if not found:
            return Verdict(why="no unit has reported")
        worst = max(found, key=lambda one: abs(math.log(max(one.load, 1e-9) / self._target)))
        wanted = max(self._least, math.ceil(worst.used / self._target - 1e-9))
        wanted = min(wanted, self._most or moment.max_units, moment.max_units)
        beyond = "above" if worst.load > self._high else "below" if worst.load < self._low else ""
        said = f"{worst.name}: load {worst.load:.2f}"
        if not beyond:
            return Verdict(why=f"{said} is between {self._low:.2f} and {self._high:.2f}")
        limit = self._high if beyond == "above" else self._low
        leaning = f"{worst.name} {beyond}"
        times = 1
        for decision in reversed(earlier):
            if decision.leaning != leaning:
                break
            times += 1
        said = f"{said} is {beyond} {limit:.2f}, {times} time{'s' if times > 1 else ''} in a row"
        if wanted == worst.units:
            return Verdict(why=f"{said}; there can be no other number of units", leaning=leaning)
        if times < self._patience:
            return Verdict(why=f"{said}: waiting for {self._patience}", leaning=leaning)
        return Verdict(why=said, edit=self._edit(worst, wanted), leaning=leaning)

    @staticmethod
    def _edit(group: _Subgroup, wanted: int) -> Edit:
        units = group.edit.units
        named = wanted if isinstance(units, int) else dict.fromkeys(units, wanted)
        return Scale(units=named, subgroup=group.edit.subgroup)

    def _subgroups(self, moment: Moment) -> Iterator[_Subgroup]:
        places: dict[tuple[int, int], list[Holding]] = {}
        for holding in moment.holdings:
            places.setdefault((holding.join, holding.stage), []).append(holding)
        for some in places.values():
            if not any(one.subgroups for one in some) and len({one.units for one in some}) == 1:
                # The same units hold all streams: they are scaled together.
                names = " and ".join(one.stream for one in some)
                edit = Scale(units=len(some[0].units))
                yield from self._subgroup(names, edit, moment.of(some[0]), some[0].units, moment)
                continue
            for one in some:
                for number, units in enumerate(one.subgroups or (one.units,)):
                    subgroup = number if one.subgroups else None
                    name = one.stream if subgroup is None else f"{one.stream}, subgroup {number}"
                    edit = Scale(units={one.stream: len(units)}, subgroup=subgroup)
                    loads = moment.of(one, units)
                    yield from self._subgroup(name, edit, loads, units, moment, one.stream)

    def _subgroup(
        self,
        name: str,
        edit: Scale,
        loads: Sequence[Load],
        units: Sequence[int],
        moment: Moment,
        stream: str | None = None,
    ) -> Iterator[_Subgroup]:
        if len(loads) < len(units):
            # Spark did not deliver all reports.
            return
        if self._measure == "cpu":
            used = sum(load.busy for load in loads) / max(moment.interval, 1e-3)
        else:
            sizes = (
                load.stored_bytes if stream is None else load.bytes_of.get(stream, 0)
                for load in loads
            )
            used = sum(sizes) / self._capacity
        yield _Subgroup(name, edit, len(units), used)
