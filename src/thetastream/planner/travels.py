"""What of a site's stream goes over the wire, and when.

A partial tuple is what the join looks at: the tuple's number, its time, and the columns of the
predicate. With the simple transport the rest travels with it; with the semijoin it is fetched for
those tuples that are in a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from thetastream.errors import UnknownColumnError
from thetastream.planner.conjuncts import split
from thetastream.planner.expression import Expr, columns, streams_of
from thetastream.planner.keys import Scope
from thetastream.planner.names import Carried
from thetastream.planner.plan import Plan
from thetastream.planner.report import Alternative, Decision
from thetastream.planner.request import Request
from thetastream.planner.sitefilters import Filter, show_filter, site_filter
from thetastream.spec import Travel, result_column
from thetastream.transport.choosing import assumed
from thetastream.transport.costmodel import Choice, choose
from thetastream.transport.messages import NUMBER

Places = frozenset[tuple[int, int]]
"""Columns, as stream and place in it."""


@dataclass(frozen=True)
class _Remote:
    """A stream at a site, while its join is planned."""

    stream: int
    first: frozenset[int]
    """Columns that travel at once."""
    later: frozenset[int]
    """Columns that are fetched for results."""
    where: Filter | None
    choice: Choice | None
    """What the cost model says, if both transports are possible and it is asked."""


class Travels:
    """What travels of the streams that are at sites."""

    def __init__(
        self,
        tree: Expr,
        scope: Scope,
        request: Request,
        wanted: Sequence[Carried],
        first: Places,
    ) -> None:
        """`first`: columns that must travel at once, although the predicate does not read them."""
        self.scope = scope
        self.names = scope.names
        self.request = request
        self.wanted = tuple(wanted)
        self.remotes = [
            self._remote(self.names.streams.index(name), tree, first)
            for name in request.sites
            if name in self.names.streams
        ]

    def carried(self) -> tuple[Carried, ...]:
        """What the join carries: instead of columns that are fetched, the tuple's number."""
        found = list(self.wanted)
        for remote in self.remotes:
            number = self._number(remote.stream)
            mine = self._wanted(remote.stream)
            if remote.choice is None:
                mine -= remote.later
            if remote.later and number is not None:
                mine |= {number}
            found[remote.stream] = Carried(mine, self.wanted[remote.stream].values)
        return tuple(found)

    def added(self, plan: Plan) -> Plan:
        """The plan of the join with what travels for it; afterwards results have all columns."""
        if not self.remotes:
            return plan
        travels = tuple(self._travel(remote) for remote in self.remotes)
        decisions = [self._decision(remote) for remote in self.remotes]
        return replace(plan, travels=travels, decisions=(*plan.decisions, *decisions))

    # -- columns --------------------------------------------------------------------------------

    def _remote(self, stream: int, tree: Expr, first: Places) -> _Remote:
        name = self.names.streams[stream]
        facts = self.request.sites[name]
        specs = self.names.columns[stream]
        number = self._number(stream)
        read = set()
        for column in columns(tree):
            if column.stream == stream:
                if column.index == number:
                    raise self._hidden(name, column.start, column.end)
                read.add(column.index)
        if number is not None and (
            (stream, number) in first or number in (self.wanted[stream].columns or ())
        ):
            raise self._hidden(name, 0, len(self.scope.text))
        time = self.names.position(stream, self.request.time.get(name, ""))
        read |= set() if time is None else {time}
        read |= {index for one, index in first if one == stream}
        wanted = self._wanted(stream)
        # What is made beside the site, a time of arrival, does not come from it.
        here = {index for index, spec in enumerate(specs) if spec.name not in facts.sizes}
        later = frozenset[int]()
        if self.request.options.transport != "simple":
            later = wanted - read - here
        at_once = frozenset((wanted | read) - later - here)
        choice = None
        if later and self.request.options.transport == "auto":
            sizes = [
                sum(facts.sizes[specs[index].name] for index in some) for some in (at_once, later)
            ]
            choice = choose(assumed(facts.link, *sizes))
        mine = [item for item in split(tree) if streams_of(item) == {stream}]
        return _Remote(
            stream=stream,
            first=at_once,
            later=later,
            where=site_filter(mine, specs),
            choice=choice,
        )

    def _hidden(self, name: str, start: int, end: int) -> UnknownColumnError:
        return UnknownColumnError(
            f"stream {name!r} has no column {NUMBER!r}",
            text=self.scope.text,
            start=start,
            end=end,
            hint="the number that a site gives a tuple is not part of the tuple",
        )

    def _wanted(self, stream: int) -> frozenset[int]:
        """The columns of the stream that results have."""
        mine = self.wanted[stream].columns
        every = frozenset(range(len(self.names.columns[stream])))
        return (every if mine is None else mine) - {self._number(stream) or -1}

    def _number(self, stream: int) -> int | None:
        return self.names.position(stream, NUMBER)

    # -- the result -----------------------------------------------------------------------------

    def _travel(self, remote: _Remote) -> Travel:
        stream = remote.stream
        specs = self.names.columns[stream]
        carried = self.names.carried[stream]
        number = self._number(stream)
        later = tuple(sorted(remote.later))
        places = {specs[index].name: place for place, index in enumerate(carried)}
        held = {name: result_column(stream, at) for name, at in places.items() if name != NUMBER}
        place, mixed = None, remote.choice is not None
        if later and number is not None:
            place = result_column(stream, carried.index(number))
        if later and not mixed:
            # From here on expressions over results may read what is fetched, too.
            extended = list(self.names.carried)
            extended[stream] = carried + later
            self.names.carried = tuple(extended)
        return Travel(
            stream=stream,
            name=self.names.streams[stream],
            columns=tuple(specs[index].name for index in sorted(remote.first)),
            number=place,
            held=tuple(held.items()),
            fetched=tuple(
                (name, held.get(name) or result_column(stream, len(carried) + offset))
                for offset, name in enumerate(specs[index].name for index in later)
            ),
            rest=tuple(specs[index].name for index in later) if mixed else (),
            whole=remote.choice is not None and remote.choice.transport == "simple",
            where=remote.where,
        )

    def _decision(self, remote: _Remote) -> Decision:
        specs = self.names.columns[remote.stream]
        first = _listed([specs[index].name for index in sorted(remote.first)])
        later = _listed([specs[index].name for index in sorted(remote.later)])
        asked = "asked for in the options"
        choice, reason = "simple", f"{asked}: whole tuples travel ({first})"
        others: tuple[Alternative, ...] = ()
        partial = f"{first} and the number travel; {later} is fetched for results"
        if remote.choice is not None:
            found = remote.choice
            choice = f"{found.transport} at first"
            what = partial if found.transport == "semijoin" else f"{first}, {later} travel"
            costs = f"simple costs {_seconds(found.simple)}, semijoin {_seconds(found.semijoin)}"
            reason = (
                f"{what}; {found.reason}; for a second's tuples, as assumed before anything is"
                f" measured, {costs}; measured again with each batch"
            )
            other = "simple" if found.transport == "semijoin" else "semijoin"
            cost = found.simple if other == "simple" else found.semijoin
            others = (Alternative(other, cost, "seconds for the tuples of one second"),)
        elif remote.later:
            choice, reason = "semijoin", f"{asked}: {partial}"
        elif self.request.options.transport != "simple":
            reason = f"the join looks at all that is asked for: {first} travel, nothing is fetched"
        if remote.where is not None:
            reason += f"; the site keeps tuples with {show_filter(remote.where)}"
        return Decision(f"transport of {self.names.streams[remote.stream]}", choice, reason, others)


def _seconds(cost: float) -> str:
    return f"{cost:.3g} s"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"
