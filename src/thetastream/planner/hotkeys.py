"""Whether the keys of a join can be split when they are hot, and what that means."""

from __future__ import annotations

from thetastream.errors import OptionError
from thetastream.options import JoinOptions
from thetastream.planner.report import Decision
from thetastream.spec import JoinTree
from thetastream.topology.hot import why_not


def hot_keys_of(tree: JoinTree, options: JoinOptions) -> Decision:
    """The decision about hot keys; refused if no join of the tree can have any."""
    if all(step.routing.hot_units for step in tree.steps):
        return _apart(options)
    reasons = {
        number: why_not(step.spec, step.routing.routing)
        for number, step in enumerate(tree.steps, 1)
    }
    fitting = [number for number, reason in reasons.items() if not reason]
    if not fitting:
        reason = next(iter(reasons.values()))
        hint = (
            'leave out hot_keys: topology="random" spreads any value evenly over the units. A join'
            ' of two streams may have topology="stream-aware", which stores the frequent values of'
            " an inequality or a band in units of their own"
        )
        if len(tree.steps[0].spec.streams) == 3:
            hint = 'leave out hot_keys, or use scheme="tree", whose two-way joins may have hot keys'
        raise OptionError(f"hot_keys is for equality joins of two streams: {reason}", hint=hint)
    who = _who(options)
    where = "" if len(fitting) == len(reasons) else f" in join {', '.join(map(str, fitting))}"
    return Decision(
        "hot keys",
        options.hot_keys,
        f"{who} splits a key that is too frequent for one unit{where}: its rows in the stream that"
        " has more of them are divided among several units, and the other stream's rows of that key"
        " are copied to each of these",
    )


def _apart(options: JoinOptions) -> Decision:
    return Decision(
        "hot keys",
        options.hot_keys,
        f"{_who(options)} lists the values that are frequent: new rows with such a value are stored"
        " in the units for hot values, and in the others again when it has cooled. A row visits all"
        " units, whatever is listed",
    )


def _who(options: JoinOptions) -> str:
    return "the join itself" if options.hot_keys == "auto" else "a policy, with ts.manage,"
