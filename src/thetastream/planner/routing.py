"""The choice of the topology and its size, with what the alternatives would cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from thetastream.durations import SECOND
from thetastream.errors import OptionError
from thetastream.options import MAX_UNITS, JoinOptions
from thetastream.planner.costs import Cost, cost, squarest
from thetastream.planner.heat import hot_units, hot_values
from thetastream.planner.types import Family, Parallelism, decimal_size, family
from thetastream.spec import (
    Bound,
    Edge,
    Encoding,
    GroupBy,
    Grouping,
    KeySpec,
    Range,
    RangeKind,
    Routing,
    RoutingSpec,
    StreamSpec,
)

COMPARED = (Routing.HASH, Routing.CONTRAND, Routing.RANDOM, Routing.BAND, Routing.MATRIX)
"""Topologies whose costs a plan shows beside those of its own, where they fit."""

BUCKETS_PER_BAND = 8
"""Bucket width in band extents: a probe then touches 1.125 buckets on average."""


@dataclass(frozen=True)
class Choice:
    """A topology, why it was taken, and what each one that fits would cost."""

    routing: RoutingSpec
    group_by: tuple[GroupBy, GroupBy]
    reason: str
    units_reason: str
    costs: tuple[Cost, ...]


def choose(
    edge: Edge, streams: Sequence[StreamSpec], options: JoinOptions, parallelism: Parallelism
) -> Choice:
    """The topology that the options ask for, or else the one that suits the driving predicate."""
    band = next((item for item in edge.ranges if item.kind is RangeKind.BAND), None)
    if options.topology == "auto":
        if edge.equality is not None:
            chosen, reason = Routing.HASH, "an equality sends both sides of a key to one unit"
        elif band is not None:
            chosen, reason = Routing.BAND, "a band is met in few buckets of its key"
        else:
            chosen = Routing.RANDOM
            reason = "without an equality or a band every unit may hold a match"
    else:
        chosen = Routing(options.topology)
        reason = "asked for in the options"
        if not _fits(chosen, edge, band):
            raise _unfit(chosen, edge, band)
    units, units_reason = _units(chosen, options, parallelism)
    subgroups = _subgroups(options, units)
    width = cut = None
    if band is not None:
        width = bucket_width(band, streams[0].keys[band.left], options)
        cut = (_extent(band), float(width))
    costs = []
    for routing in Routing:
        if routing is not chosen and not (routing in COMPARED and _fits(routing, edge, band)):
            continue
        size = units if routing is chosen else _units(routing, options, parallelism)[0]
        groups = subgroups if routing is chosen else _halves(size)
        costs.append(cost(routing, size, groups, cut))
    spec = RoutingSpec(
        routing=chosen,
        units=units,
        subgroups=subgroups if chosen is Routing.CONTRAND else (),
        hot_units=hot_units(options, units, [stream.name for stream in streams]),
    )
    grouped = [_group_by(chosen, edge, band, width, side) for side in (0, 1)]
    if spec.hot_units:
        grouped = [_with_heat(by, edge, streams, side, options) for side, by in enumerate(grouped)]
    return Choice(spec, (grouped[0], grouped[1]), reason, units_reason, tuple(costs))


def _fits(routing: Routing, edge: Edge, band: Range | None) -> bool:
    """Whether a join can have the topology."""
    if routing in (Routing.HASH, Routing.CONTRAND):
        return edge.equality is not None
    if routing is Routing.STREAM_AWARE:
        driven = bool(edge.ranges) and edge.ranges[0].kind is not RangeKind.TIME
        return edge.equality is None and driven
    return routing is not Routing.BAND or band is not None


def _group_by(
    routing: Routing, edge: Edge, band: Range | None, width: int | float | None, side: int
) -> GroupBy:
    """What decides the group of a stored tuple."""
    if routing in (Routing.HASH, Routing.CONTRAND) and edge.equality is not None:
        return GroupBy(kind=Grouping.KEY, key=edge.equality.of(side))
    if routing is Routing.BAND and band is not None:
        return GroupBy(kind=Grouping.BUCKET, key=band.of(side), width=width)
    return GroupBy(kind=Grouping.CONTENT)


def _with_heat(
    by: GroupBy, edge: Edge, streams: Sequence[StreamSpec], side: int, options: JoinOptions
) -> GroupBy:
    """The same with the hot values of a side in groups of their own."""
    key = edge.ranges[0].of(side)
    return replace(by, hot=hot_values(options, key, streams[side].keys[key]))


def _unfit(chosen: Routing, edge: Edge, band: Range | None) -> OptionError:
    has = "a band" if band is not None else "an inequality or less"
    if chosen is Routing.BAND:
        has = "an equality" if edge.equality is not None else "an inequality or less"
        return OptionError(
            f"topology={chosen.value!r} does not fit: the predicate has no band, only {has}",
            detail="band buckets need a difference with both a lower and an upper bound",
            hint='add the other bound, or use topology="random" or "auto"',
        )
    if chosen is Routing.STREAM_AWARE:
        equal = edge.equality is not None
        return OptionError(
            f"topology={chosen.value!r} does not fit: the predicate has"
            f" {'an equality' if equal else 'no inequality and no band'}",
            detail="it keeps values apart that are frequent in the key of an inequality or a band",
            hint='use hot_keys="auto" or topology="contrand", which spread rows of a frequent key'
            if equal
            else 'use topology="random" or "auto"',
        )
    return OptionError(
        f"topology={chosen.value!r} does not fit: the predicate has no equality, only {has}",
        detail="it sends tuples to units by the key that both sides must share",
        hint='use topology="band" for a band, "random" for anything, or "auto"',
    )


def _units(
    routing: Routing, options: JoinOptions, parallelism: Parallelism
) -> tuple[tuple[int, int], str]:
    (m, n), reason = unit_counts(options, parallelism, 2)
    if not routing.shares_units:
        return (m, n), reason
    given = isinstance(options.units, tuple)
    if routing is Routing.BROADCAST:
        if given and min(m, n) > 1:
            raise OptionError(
                f"units={options.units!r} divides both streams, and a broadcast divides one",
                hint=f"units=({m}, 1) stores the second stream in each of {m} units, units=(1, {n})"
                f" the first one in each of {n}",
            )
        return (m, n) if given else (m, 1), reason
    if routing is not Routing.MATRIX:
        if m != n:
            raise OptionError(
                f"units={options.units!r}: topology={routing.value!r} has the same units for both"
                " streams",
                hint=f"give one number, for instance units={max(m, n)}",
            )
        return (m, n), reason
    if not given:
        return squarest(m), f"{reason}, as square as possible"
    if m * n > MAX_UNITS:
        raise OptionError(
            f"a matrix of {m} by {n} has more than {MAX_UNITS} units",
            hint="give fewer rows or columns",
        )
    return (m, n), reason


def describe_units(routing: RoutingSpec, names: Sequence[str]) -> str:
    """How many units there are, and of what."""
    m, n = routing.units
    if routing.routing is Routing.BROADCAST:
        return f"{max(m, n)}, each with all of {names[0 if n > 1 else 1]}"
    if routing.routing is Routing.MULTI_CHAINED:
        return f"{m}, each with all of {names[0]} and {names[1]}"
    found = f"{m} for {names[0]}, {n} for {names[1]}"
    if routing.hot_units:
        found += f"; {routing.hot_units} of each for hot values"
    return found


def unit_counts(
    options: JoinOptions, parallelism: Parallelism, streams: int
) -> tuple[tuple[int, ...], str]:
    """How many units store each of so many streams, and why."""
    asked = options.units
    if asked == "auto":
        count, reason = _automatic(parallelism)
        return (count,) * streams, reason
    units = asked if isinstance(asked, tuple) else (asked,) * streams
    if len(units) != streams:
        raise OptionError(
            f"units={asked!r} are for {len(units)} streams, and there are {streams}",
            hint="give one number, or one for each stream",
        )
    return units, "asked for in the options"


def _automatic(parallelism: Parallelism) -> tuple[int, str]:
    """How many units suit the session, and why."""
    tasks, partitions = parallelism
    # A unit beyond the partitions would share a task with another one.
    most = partitions if tasks is None else min(tasks, partitions)
    if most > MAX_UNITS:
        more = "the shuffle has partitions" if tasks is None else "tasks run at a time"
        return MAX_UNITS, f"the most there can be, fewer than {more} ({most})"
    if tasks is None:
        return most, f"one for each partition of the shuffle ({most}): the cores are not known"
    return max(1, most), f"as many as tasks run at a time ({most})"


def _halves(units: tuple[int, int]) -> tuple[int, int]:
    return max(1, units[0] // 2), max(1, units[1] // 2)


def _subgroups(options: JoinOptions, units: tuple[int, int]) -> tuple[int, int]:
    if options.subgroups == "auto":
        return _halves(units)
    for groups, size in zip(options.subgroups, units, strict=True):
        if groups > size:
            raise OptionError(
                f"subgroups={options.subgroups!r} are more than the units {units!r}",
                hint="a subgroup needs at least one unit",
            )
    return options.subgroups


def _extent(band: Range) -> float:
    low, high = _ends(band)
    return max(0.0, float(high.value) - float(low.value))


def _ends(band: Range) -> tuple[Bound, Bound]:
    if band.low is None or band.high is None:
        raise OptionError("a band has both a lower and an upper bound")
    return band.low, band.high


def bucket_width(band: Range, key: KeySpec, options: JoinOptions) -> int | float:
    """The width of a bucket of the band's key, in units of the key."""
    low, high = _ends(band)
    floating = key.encoding.floating
    if options.bucket_width == "auto":
        if floating:
            width = BUCKETS_PER_BAND * _extent(band)
            return width if 0 < width < math.inf else 1.0
        return max(1, BUCKETS_PER_BAND * (int(high.value) - int(low.value)))
    scaled = options.bucket_width * _key_units(key)
    return float(scaled) if floating else max(1, round(scaled))


def _key_units(key: KeySpec) -> int:
    """How many units of the key make one unit of the expression (a second for times)."""
    kind = family(key.type)
    if key.encoding is Encoding.DECIMAL:
        return int(10 ** decimal_size(key.type)[1])
    if kind in (Family.TIMESTAMP, Family.TIMESTAMP_NTZ, Family.DAY_TIME):
        return SECOND
    return 1
