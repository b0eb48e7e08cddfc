"""The policy of hot keys: a key whose load would unbalance the units is divided among several."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np

from thetastream.errors import OptionError
from thetastream.spec import GROUPS
from thetastream.steering.edits import Heat, HotWish
from thetastream.steering.policy import FrequentKey, Holding, Moment, SplitKey, Verdict
from thetastream.topology.groups import groups_of_keys


class HotKeys:
    """Splits keys that are too frequent for one unit, and puts them together again.

    A unit's even share of a join's rows is one out of the number of units. A key whose rows in one
    stream exceed `factor` times that share is hot. It gets so many units that none of them has more
    than this of it, `least` at the least, and those that have the least to do. It cools down when
    it had less than half of the threshold in `patience` decisions in a row. At most `most` keys are
    hot at a time.

    In a stream-aware join the same thresholds say which values are stored in the units that are
    there for hot ones.

    >>> policy = ts.HotKeys()
    >>> orders = ts.Holding(stream="orders", join=0, stage=0, units=(0, 1))
    >>> seven = ts.FrequentKey(stream="orders", key=7, share=0.4)
    >>> moment = ts.Moment(
    ...     at=0.0, batch=1, interval=1.0, loads=(), holdings=(orders,), max_units=8,
    ...     frequent=(seven,),
    ... )
    >>> decision = policy.decide(moment, [])
    >>> print(decision.why, "|", decision.edit)
    key 7 of orders has 40.0 % of the rows, above 12.5 % | split key 7 of orders over 2 units
    """

    name = "hot keys"
    heats = True
    """It decides about hot keys, independently of scales and moves."""
    scales = False

    def __init__(
        self,
        *,
        factor: float = 0.25,
        least: int = 2,
        most: int = 32,
        patience: int = 3,
        every: float = 0.0,
    ) -> None:
        """`every`: seconds between two decisions; by default one with each batch."""
        if not factor > 0:
            raise OptionError(
                f"factor={factor!r} is not a share of a unit's load", hint="give a positive number"
            )
        if least < 2:
            raise OptionError(f"least={least!r} units split nothing", hint="give at least 2")
        if most < 1 or patience < 1:
            raise OptionError("most and patience are at least 1")
        self._factor = factor
        self._least = least
        self._most = most
        self._patience = patience
        self.every = every

    def decide(self, moment: Moment, earlier: Sequence[Verdict]) -> Verdict:
        """What to do about keys that have become hot, and about those that are no longer."""
        if moment.frequent is None:
            why = "not all units have told their frequent keys"
            return Verdict(why=why, leaning=_last(earlier))
        wishes: list[HotWish] = []
        cool: list[tuple[int, int]] = []
        said: list[str] = []
        so_far, low = _cool_so_far(earlier), dict[tuple[int, int], int]()
        joins = sorted({one.join for one in moment.holdings})
        few = ""
        for join in joins:
            found = _join(moment, join)
            if found.units < self._least:
                few = f"a hot key is to have {self._least} units, and there are {found.units}"
                continue
            if found.is_silent:
                low |= {place: times for place, times in so_far.items() if place[0] == join}
                continue
            high = self._factor / found.units
            for key in found.cooler(high / 2):
                times = low[join, key.key] = 1 + so_far.get((join, key.key), 0)
                if times >= self._patience:
                    cool.append((join, key.key))
                    said.append(f"key {key.shown or key.key} of {key.stream} has cooled")
            room = self._most - sum(one.join == join for one in moment.split)
            for wish, known in found.hotter(high, self._least):
                if not known and room <= 0:
                    said.append(f"there are {self._most} hot keys already")
                    break
                room -= not known
                wishes.append(wish)
                said.append(
                    f"key {wish.name} of {wish.stream} has {100 * wish.share:.1f} % of the rows,"
                    f" above {100 * high:.1f} %"
                )
        leaning = " ".join(f"{join}:{key}:{times}" for (join, key), times in low.items())
        if not wishes and not cool:
            return Verdict(why=few or _quiet(moment), leaning=leaning)
        edit = Heat(keys=tuple(wishes), cool=tuple(cool))
        return Verdict(why="; ".join(said), edit=edit, leaning=leaning)


def _quiet(moment: Moment) -> str:
    top = moment.frequent[0] if moment.frequent else None
    if top is None:
        return "no key is frequent"
    hot = len(moment.split)
    name = f"key {top.shown or top.key} of {top.stream}"
    return f"the most frequent key, {name}, has {100 * top.share:.1f} % of the rows; {hot} are hot"


def _last(earlier: Sequence[Verdict]) -> str:
    return earlier[-1].leaning if earlier else ""


def _cool_so_far(earlier: Sequence[Verdict]) -> dict[tuple[int, int], int]:
    """In how many decisions in a row keys were too cool, by their joins and codes. A batch that
    tells nothing about a key neither counts nor interrupts."""
    found = (name.split(":") for name in _last(earlier).split())
    return {(int(join), int(key)): int(times) for join, key, times in found}


class _Join:
    """The keys of one join."""

    def __init__(self, moment: Moment, join: int) -> None:
        self._join = join
        self._holdings = [one for one in moment.holdings if one.join == join]
        everywhere = sorted({unit for one in self._holdings for unit in one.units})
        self.units = len(everywhere)
        self._split = {one.key: one for one in moment.split if one.join == join}
        self._best: dict[int, FrequentKey] = {}
        """Each key in the stream in which it is split, or else more frequent."""
        for one in moment.frequent or ():
            known = self._split.get(one.key)
            if one.join == join and (known is None or known.stream == one.stream):
                best = self._best.setdefault(one.key, one)
                if one.share > best.share:
                    self._best[one.key] = one
        rows = {load.unit: load.rows_in for load in moment.loads if load.join == join}
        self.is_silent = bool(rows) and not any(rows.values())
        """Whether the units have had no rows, so that no key has any share of them."""
        total = max(1, sum(rows.values()))
        self._load = {unit: rows.get(unit, 0) / total for unit in everywhere}

    def _share(self, one: SplitKey) -> float:
        """The share of a key in the stream in which it is split."""
        found = self._best.get(one.key)
        return 0.0 if found is None else found.share

    def cooler(self, low: float) -> Iterator[SplitKey]:
        """Hot keys that are rarer than they should be."""
        for one in self._split.values():
            if one.step == "hot" and self._share(one) < low:
                yield one

    def hotter(self, high: float, least: int) -> Iterator[tuple[HotWish, bool]]:
        """Keys to be split, the most frequent first, and whether they have places already."""
        ranked = sorted(self._best.values(), key=lambda key: (-key.share, key.key))
        wanting = []
        for one in ranked:
            count = min(self.units, max(least, math.ceil(one.share / high)))
            known = self._split.get(one.key)
            if one.share > high and (known is None or _is_wanting(known, count)):
                wanting.append((one, known, count))
                self._lift(one, known)
        for one, known, count in wanting:
            wish = HotWish(
                join=self._join,
                stream=one.stream,
                key=one.key,
                units=count,
                prefer=self._idle(one, count),
                share=one.share,
                shown=one.shown,
            )
            yield wish, known is not None

    def _homes(self, key: int) -> list[int]:
        """The units that have the groups of a key."""
        return [unit for holding in self._holdings for unit in _unit_of(holding, key)]

    def _lift(self, one: FrequentKey, known: SplitKey | None) -> None:
        """Take a key's rows from the units that have them now."""
        units = known.units if known is not None and known.step == "hot" else ()
        for unit in units or self._homes(one.key)[:1]:
            self._load[unit] -= one.share / max(1, len(units))

    def _idle(self, one: FrequentKey, count: int) -> tuple[int, ...]:
        """The units in the order of what they have to do; then they have a key as well."""
        load = self._load
        ranked = sorted(load, key=lambda unit: (load[unit], unit))
        for unit in list(dict.fromkeys([*self._homes(one.key), *ranked]))[:count]:
            load[unit] += one.share / count
        return tuple(ranked)


class _Apart(_Join):
    """The values of a join that has units for hot ones: a value is hot for both streams, if it is
    frequent in either, and how many units there are for it is not asked."""

    def __init__(self, moment: Moment, join: int) -> None:
        super().__init__(moment, join)
        self._best = {}
        for one in moment.frequent or ():
            if one.join == join:
                best = self._best.setdefault(one.key, one)
                if one.share > best.share:
                    self._best[one.key] = one

    def hotter(self, high: float, least: int) -> Iterator[tuple[HotWish, bool]]:
        """Values to be stored apart, the most frequent first."""
        apart = max((len(one.hot_units) for one in self._holdings), default=0)
        for one in sorted(self._best.values(), key=lambda key: (-key.share, key.key)):
            if one.share > high and one.key not in self._split:
                wish = HotWish(
                    join=self._join,
                    stream=one.stream,
                    key=one.key,
                    units=max(least, apart),
                    share=one.share,
                    shown=one.shown,
                )
                yield wish, False


def _join(moment: Moment, join: int) -> _Join:
    apart = any(one.hot_units for one in moment.holdings if one.join == join)
    return _Apart(moment, join) if apart else _Join(moment, join)


def _is_wanting(known: SplitKey, count: int) -> bool:
    """Whether a key that has places needs something: to be hot again, or many more units."""
    if known.step == "cooling":
        return True
    return known.step == "hot" and count >= 2 * len(known.units)


def _unit_of(holding: Holding, key: int) -> Iterator[int]:
    """The unit that has the group of a key, if groups have one unit each."""
    if holding.runs:
        group = int(groups_of_keys(np.array([key], dtype=np.int64), GROUPS)[0])
        place = bisect_right([first for first, _, _ in holding.runs], group) - 1
        yield holding.runs[place][2]
