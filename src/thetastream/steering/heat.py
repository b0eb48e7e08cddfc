"""The steps of hot keys: each makes the next version of the tables, and none has effects.

They are independent of the steps of a scale or a move. While one of these drains, keys become hot
and cool as ever; in its other steps, which last a batch each, they wait. The groups and the units
of hot keys are left out of scales and moves, see `targets`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from thetastream.engine.protocol import KeyNews
from thetastream.errors import ControlError
from thetastream.spec import JoinSpec, JoinTree
from thetastream.steering.edits import Heat, HotWish
from thetastream.steering.steps import Heard, confirmed
from thetastream.steering.version import Version
from thetastream.steering.warm import next_values
from thetastream.topology.groups import groups_of_keys
from thetastream.topology.hot import HotKey, HotStep, base_unit, is_steady, why_not
from thetastream.topology.live import Step
from thetastream.topology.table import Table

OPEN_STEPS = (Step.SETTLED, Step.SWITCH)
"""Steps of scales and moves in which those of hot keys may be taken."""

News = Mapping[tuple[int, int], KeyNews]
"""What units say of the keys of one join, by unit and key."""


def next_keys(
    version: Version, heard: Sequence[Heard], wish: Heat | None, tree: JoinTree, at: float
) -> Version | None:
    """The next steps of hot keys, and the first ones of those that a wish names; None if there are
    none. A wish that cannot be met is refused."""
    if version.step not in OPEN_STEPS or not confirmed(version, heard):
        return None
    number = version.version + 1
    tables = []
    for join, (table, step) in enumerate(zip(version.joins, tree.steps, strict=True)):
        news = {
            (one.unit, told.key): told
            for one in heard
            if one.join == join and one.version >= version.version
            for told in one.hot
        }
        settled = version.step is Step.SETTLED
        steps = _Steps(table, step.spec, news, number, at, settled=settled)
        values = next_values(table, join, wish, at)
        tables.append(replace(table, hot=steps.next(join, wish), values=values))
    if tables == list(version.joins):
        return None
    return replace(
        version, version=number, at=at, joins=tuple(tables), previous=version.digest
    ).lived()


def check_wish(version: Version, wish: Heat, tree: JoinTree) -> None:
    """Refuse a wish that can never be met."""
    for one in wish.keys:
        if not 0 <= one.join < len(tree.steps):
            raise ControlError(f"there is no join {one.join}", hint="joins are counted from 0")
        table, spec = version.joins[one.join], tree.steps[one.join].spec
        apart = table.made.hot_units > 0
        reason = "" if apart else why_not(spec, table.made.routing)
        if reason:
            raise ControlError(f"key {one.name} cannot be split: {reason}", hint=INSTEAD)
        names = [stream.name for stream in spec.streams]
        if one.stream not in names:
            raise ControlError(
                f"there is no stream {one.stream!r}", hint=f"choose among {', '.join(names)}"
            )
        units = len(_possible(table))
        if one.units > units and not apart:
            raise ControlError(
                f"{one.units} units for key {one.name} are more than the {units} that there are",
                hint=f"give at most {units}, or scale first",
            )
    listed = {(join, one.key) for join, table in enumerate(version.joins) for one in table.hot}
    listed |= {(join, one.key) for join, table in enumerate(version.joins) for one in table.values}
    for join, key in wish.cool:
        if (join, key) not in listed:
            raise ControlError(
                f"key {key} of join {join} is not hot", hint="status() lists the keys that are"
            )


def is_due(version: Version, wish: Heat, tree: JoinTree) -> bool:
    """Whether all that a wish asks for can begin with the next version, or is so already. A key
    whose group moves, and one in the middle of its steps, has to wait."""
    on_its_way = (HotStep.COPY, HotStep.TAKE)
    for join, key in wish.cool:
        if any(one.key == key and one.step in on_its_way for one in version.joins[join].hot):
            return False
    for one in wish.keys:
        table, spec = version.joins[one.join], tree.steps[one.join].spec
        if table.made.hot_units:
            continue
        known = next((hot for hot in table.hot if hot.key == one.key), None)
        if known is None:
            if not _is_steady(table, spec, one.key):
                return False
        elif known.step is HotStep.DROP:
            return False
        elif known.step is not HotStep.HOT and one.units > len(known.units):
            # It is hot with the units that it has, and gets more of them after that.
            return False
    return True


def check_stream(version: Version, wish: Heat) -> None:
    """Refuse to split a key in one stream while it is split in the other."""
    for one in wish.keys:
        for hot in version.joins[one.join].hot:
            if hot.key == one.key and hot.stream != one.stream:
                raise ControlError(
                    f"key {one.name} is split in {hot.stream}, and not in {one.stream}",
                    hint="cool it, and ask again when status() does not list it any more",
                )


def _is_steady(table: Table, spec: JoinSpec, key: int) -> bool:
    """Whether the groups of a key stay where they are."""
    for placement, store in zip(table.stages[0], spec.stages[0].stores, strict=True):
        codes = np.array([key], dtype=np.int64)
        group = int(groups_of_keys(codes, store.group_by.groups)[0])
        if not is_steady(placement, group):
            return False
    return True


INSTEAD = (
    'hot keys are for equality joins of two streams with topology="hash"; an inequality or a band'
    ' has hot values with topology="stream-aware" and hot_keys="auto" or "watch"'
)


class _Steps:
    """The keys of one join."""

    def __init__(
        self,
        table: Table,
        spec: JoinSpec,
        news: News,
        number: int,
        at: float,
        *,
        settled: bool,
    ) -> None:
        self._table = table
        self._spec = spec
        self._news = news
        self._number = number
        self._at = at
        self._settled = settled

    def next(self, join: int, wish: Heat | None) -> tuple[HotKey, ...]:
        """The keys of the next version."""
        wanted = {one.key: one for one in wish.keys if one.join == join} if wish else {}
        cooled = {key for number, key in wish.cool if number == join} if wish else set()
        found = []
        for one in self._table.hot:
            changed = self._changed(one, wanted.get(one.key), cool=one.key in cooled)
            if changed is not None:
                found.append(changed)
        known = {one.key for one in self._table.hot}
        found += [new for w in wanted.values() if w.key not in known and (new := self._new(w))]
        return tuple(sorted(found, key=lambda one: one.key))

    def _changed(self, one: HotKey, wish: HotWish | None, *, cool: bool) -> HotKey | None:
        """A key's next step, or the same; None if it is like any other key from now on."""
        match one.step:
            case HotStep.COPY:
                return self._copied(one)
            case HotStep.TAKE:
                return self._to(one, HotStep.HOT, spread=one.units)
            case HotStep.HOT:
                return self._to(one, HotStep.COOLING) if cool else self._wider(one, wish)
            case HotStep.COOLING:
                if wish is not None:
                    return self._to(one, HotStep.HOT, spread=one.units, share=wish.share)
                return self._to(one, HotStep.DROP) if self._is_empty(one) else one
            case HotStep.DROP:
                return None

    def _to(
        self, one: HotKey, step: HotStep, spread: tuple[int, ...] = (), share: float | None = None
    ) -> HotKey:
        share = one.share if share is None else share
        changed = self._number
        return replace(one, step=step, changed=changed, spread=spread, files=(), share=share)

    def _copied(self, one: HotKey) -> HotKey:
        """Copies are made; what was there before is taken in, if there is any."""
        told = self._news.get((self._base(one.key, one.copied), one.key))
        if told is None or told.since != one.since or told.exported is None:
            return one
        if not told.exported:
            return self._to(one, HotStep.HOT, spread=one.units)
        changed = self._number
        return replace(one, step=HotStep.TAKE, changed=changed, files=told.exported)

    def _wider(self, one: HotKey, wish: HotWish | None) -> HotKey:
        """More units for a hot key, if that is wished for."""
        if wish is None:
            return one
        units = self._units(wish, one.units)
        if units == one.units:
            return one
        return replace(
            one,
            step=HotStep.COPY,
            units=units,
            since=self._number,
            changed=self._number,
            share=wish.share,
        )

    def _is_empty(self, one: HotKey) -> bool:
        """Whether nothing of the split stream is left but where its group is."""
        others = set(one.units) - {self._base(one.key, one.split)}
        told = [self._news.get((unit, one.key)) for unit in others]
        return self._settled and all(
            news is not None and news.since == one.since and not news.remains for news in told
        )

    def _new(self, wish: HotWish) -> HotKey | None:
        """The first step of a key; None if its group is about to move."""
        names = [stream.name for stream in self._spec.streams]
        if wish.stream not in names or why_not(self._spec, self._table.made.routing):
            return None
        if not _is_steady(self._table, self._spec, wish.key):
            return None
        units = self._units(wish, ())
        if len(units) < 2:
            return None
        return HotKey(
            key=wish.key,
            split=names.index(wish.stream),
            stream=wish.stream,
            units=units,
            step=HotStep.COPY,
            since=self._number,
            changed=self._number,
            at=self._at,
            share=wish.share,
            shown=wish.shown,
        )

    def _units(self, wish: HotWish, known: tuple[int, ...]) -> tuple[int, ...]:
        """The units that it has, those of its group, and the preferred ones."""
        possible = _possible(self._table)
        bases = [self._base(wish.key, stream) for stream in (0, 1)]
        ranked = dict.fromkeys((*bases, *known, *wish.prefer, *possible))
        usable = [unit for unit in ranked if unit in possible or unit in known]
        count = max(wish.units, len(set(bases) | set(known)))
        return tuple(sorted(usable[:count]))

    def _base(self, key: int, stream: int) -> int:
        return base_unit(self._table, self._spec, key, stream)


def _possible(table: Table) -> list[int]:
    """Units that may be places of hot keys: they hold groups, and go on to do so."""
    live = table.live
    since = live.since[0] if live is not None else ()
    held = {
        unit
        for placement in table.stages[0]
        for line in set(placement.planned or placement.assigned)
        for unit in placement.lines[line]
    }
    return sorted(unit for unit in held if unit < len(since) and since[unit] >= 0)
