"""The plan of a join, whatever the number of its streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from thetastream.errors import OptionError
from thetastream.options import JoinOptions
from thetastream.planner.expression import Expr
from thetastream.planner.keys import Scope
from thetastream.planner.names import Names
from thetastream.planner.parser import parse_predicate
from thetastream.planner.plan import EVERYTHING, Carried, Plan, plan_tree
from thetastream.planner.threeway import TriPlan, join_graph, plan_three
from thetastream.planner.tree import TreePlan, plan_steps
from thetastream.planner.types import Analyst
from thetastream.planner.window import Within
from thetastream.spec import ColumnSpec

AnyPlan = Plan | TriPlan | TreePlan


def plan_streams(
    *,
    streams: Mapping[str, Sequence[ColumnSpec]],
    predicate: str,
    within: Within = None,
    time: Mapping[str, str | None] | None = None,
    options: JoinOptions | None = None,
    analyst: Analyst,
    origin: str = "",
    fixed_zone: bool = False,
    delay: int = 0,
) -> AnyPlan:
    """The plan of a join of two or more streams; see `thetastream.planner.plan.plan_join`."""
    chosen = options or JoinOptions()
    names = Names(streams, case_sensitive=analyst.case_sensitive)
    return plan_any(
        parse_predicate(predicate, names, chosen.functions),
        Scope(predicate, names, analyst, fixed_zone),
        within=within,
        time=time or {},
        options=chosen,
        origin=origin,
        delay=delay,
    )


def plan_any(
    tree: Expr,
    scope: Scope,
    *,
    within: Within,
    time: Mapping[str, str | None],
    options: JoinOptions,
    origin: str,
    delay: int,
    carried: tuple[Carried, ...] | None = None,
    timed: bool = False,
) -> AnyPlan:
    """The plan of a join on a predicate that was read."""
    count = len(scope.names.streams)
    wanted = carried or (EVERYTHING,) * count
    if count == 2:
        if options.scheme != "auto":
            raise OptionError(
                f"scheme={options.scheme!r} is for three streams, and there are two",
                hint="leave it out; topology says how two streams meet",
            )
        return plan_tree(
            tree,
            scope,
            within=within,
            time=time,
            options=options,
            origin=origin,
            delay=delay,
            carried=wanted,
        )
    graph = join_graph(tree, scope, within=within, time=time, options=options, delay=delay)
    if count == 3 and options.scheme != "tree":
        return plan_three(graph, wanted, origin)
    if options.scheme not in ("auto", "tree"):
        raise OptionError(
            f"scheme={options.scheme!r} is for three streams, and there are {count}",
            hint='leave it "auto": more than three streams are joined in a tree',
        )
    why = "asked for in the options" if count == 3 else "there are more than three streams"
    return plan_steps(graph, wanted, origin, timed=timed, why=why)
