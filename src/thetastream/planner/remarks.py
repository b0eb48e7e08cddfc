"""What to know about a plan's costs, and what to look at when it runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from thetastream.planner.costs import Cost
from thetastream.spec import JoinSpec, Routing, RoutingSpec

_FEW_VALUES = {"boolean": 2, "tinyint": 256}
"""Types of keys that may have fewer values than a join has units."""
_SHOWN = "imbalance in ts.metrics(query) shows it"


def remarks(spec: JoinSpec, routing: RoutingSpec, costs: Sequence[Cost]) -> list[str]:
    """Whole sentences, each of them one line."""
    return [*_about_costs(routing, costs), *_about_balance(spec, routing)]


def _about_costs(routing: RoutingSpec, costs: Sequence[Cost]) -> Iterator[str]:
    """Why the chosen topology is right although a number beside it is lower."""
    chosen = next(item for item in costs if item.routing is routing.routing)
    if max(routing.units) == 1:
        yield "With one unit per stream all topologies do the same work."
        return
    yield "The driving predicate decides the topology; the table says what that costs."
    if routing.units[0] == routing.units[1] and not chosen.routing.copies:
        yield (
            "Both streams have the same units, and a row that is stored where it probes is sent"
            " there only once: up to one message less than the table says."
        )
    for other in costs:
        if sum(other.bandwidth) >= sum(chosen.bandwidth):
            continue
        fewer = (
            f"{other.routing.value} sends {sum(other.bandwidth):g} messages instead of"
            f" {sum(chosen.bandwidth):g}"
        )
        if sum(other.memory) > sum(chosen.memory):
            yield (
                f"{fewer}, but stores {sum(other.memory):g} copies instead of"
                f" {sum(chosen.memory):g}: a message is sent once, a copy is written, kept and"
                " searched as long as its row can match."
            )
        elif chosen.routing is Routing.CONTRAND and other.routing is Routing.HASH:
            yield f"{fewer}, but puts all rows of a frequent key on one unit."
        else:
            yield f"{fewer}; {chosen.routing.value} was asked for in the options."


def _about_balance(spec: JoinSpec, routing: RoutingSpec) -> Iterator[str]:
    """When units stay idle, as far as this is known before any row has arrived."""
    units, edge = max(routing.units), spec.edge(0, 1)
    if units == 1:
        return
    if routing.routing is Routing.HASH and edge.equality is not None:
        key = spec.streams[0].keys[edge.equality.left]
        values = _FEW_VALUES.get(key.type, math.inf) if edge.equality.exact else math.inf
        todo = 'topology="contrand" spreads the rows of a key over several units'
        if values < units:
            yield f"A {key.type} has {values} values: at most {values} of {units} units get rows."
        yield f"Few keys, or a frequent one, leave units idle: {_SHOWN}, and {todo}."
    if routing.hot_units:
        share = routing.hot_units / min(routing.units)
        yield (
            f"Hot values have {routing.hot_units} of {min(routing.units)} units, which are the"
            f" busiest ones if more than {share:.0%} of the rows have such a value; {_SHOWN}."
        )
    by = spec.stages[0].stores[0].group_by
    if by.key is not None and by.width is not None:
        key = spec.streams[0].keys[by.key]
        values = _FEW_VALUES.get(key.type, math.inf)
        # One more, because the first and the last bucket may be half empty.
        if values / by.width + 1 < units:
            most = math.ceil(values / by.width) + 1
            yield f"A {key.type} has at most {most} buckets, and there are {units} units."
        yield (
            f"Values in few buckets of {by.width:g} leave units idle: {_SHOWN}, and a"
            " smaller bucket_width gives more buckets."
        )
