"""A predicate, a window and options to a plan: the planner's entry point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from thetastream.errors import OptionError
from thetastream.options import JoinOptions
from thetastream.planner.expression import Expr
from thetastream.planner.graph import join_graph
from thetastream.planner.hotkeys import hot_keys_of
from thetastream.planner.keys import Scope
from thetastream.planner.names import EVERYTHING, Carried, Names
from thetastream.planner.parser import parse_predicate
from thetastream.planner.plan import Plan
from thetastream.planner.report import Decision
from thetastream.planner.request import Request, SiteFacts, named_times
from thetastream.planner.three import plan_three
from thetastream.planner.travels import Places, Travels
from thetastream.planner.tree import plan_steps
from thetastream.planner.two import plan_two
from thetastream.planner.types import Analyst
from thetastream.planner.window import Within
from thetastream.spec import ColumnSpec
from thetastream.steering.files import without_secrets


def plan_join(
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
    sites: Mapping[str, SiteFacts] | None = None,
) -> Plan:
    """The plan of a join of two or more streams.

    `time` names the event-time column of each stream that has one. `fixed_zone` says that the
    session's time zone never changes its offset (UTC, +02:00): then days have 24 hours, and time
    ranges in the predicate are exact. `delay` is how late a tuple may be, in microseconds.
    `sites` names the streams that are at sites, with what is known of them.
    """
    chosen = options or JoinOptions()
    names = Names(streams, case_sensitive=analyst.case_sensitive)
    return plan_any(
        parse_predicate(predicate, names, chosen.functions),
        Scope(predicate, names, analyst, fixed_zone),
        Request(
            within=within,
            time=named_times(time),
            options=chosen,
            delay=delay,
            sites=sites or {},
            origin=origin,
        ),
    )


def plan_any(
    tree: Expr,
    scope: Scope,
    request: Request,
    *,
    carried: tuple[Carried, ...] | None = None,
    first: Places = frozenset(),
    timed: bool = False,
    verify: bool = False,
) -> Plan:
    """The plan of a join on a predicate that was read.

    `first` are columns that must travel with the tuples of a site, although they may be carried as
    something else. `timed` says that the results need the time of their newest member; `verify`
    lets the units of two streams compare what was hashed, instead of Spark on each result.
    """
    wanted = carried or (EVERYTHING,) * len(scope.names.streams)
    travels = Travels(tree, scope, request, wanted, first)
    plan = _planned(tree, scope, request, travels.carried(), timed=timed, verify=verify)
    plan = travels.added(plan)
    if request.options.control is None:
        return plan
    found = [_live(request.options)]
    if request.options.hot_keys != "off":
        found.append(hot_keys_of(plan.tree, request.options))
    return replace(plan, decisions=(*plan.decisions, *found))


def _live(options: JoinOptions) -> Decision:
    most = "as many units as the shuffle has partitions"
    if options.max_units is not None:
        most = f"{options.max_units} units"
    return Decision(
        "routing tables",
        "live",
        f"at most {most}; kept in {without_secrets(options.control or '')}, and changed while the"
        " query runs by ts.control, ts.manage or thetastream control",
    )


def _planned(
    tree: Expr,
    scope: Scope,
    request: Request,
    wanted: tuple[Carried, ...],
    *,
    timed: bool,
    verify: bool,
) -> Plan:
    options = request.options
    count = len(scope.names.streams)
    if count < 2:
        raise OptionError(
            f"{count} stream was given; a join takes two or more",
            hint="name them: ts.streams(orders=orders_df, rides=rides_df)",
        )
    if count == 2:
        if options.scheme != "auto":
            raise OptionError(
                f"scheme={options.scheme!r} is for three streams, and there are two",
                hint="leave it out; topology says how two streams meet",
            )
        return plan_two(join_graph(tree, scope, request, verify=verify), wanted)
    graph = join_graph(tree, scope, request)
    if count == 3 and options.scheme != "tree":
        return plan_three(graph, wanted)
    if options.scheme not in ("auto", "tree"):
        raise OptionError(
            f"scheme={options.scheme!r} is for three streams, and there are {count}",
            hint='leave it "auto": more than three streams are joined in a tree',
        )
    why = "asked for in the options" if count == 3 else "there are more than three streams"
    return plan_steps(graph, wanted, timed=timed, why=why)
