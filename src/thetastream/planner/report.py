"""A plan as people read it: aligned text, or HTML in a notebook."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

from thetastream.planner.conjuncts import Conjunct
from thetastream.planner.costs import Cost, messages
from thetastream.planner.remarks import remarks
from thetastream.planner.tables import html_table, text_notes, text_table
from thetastream.planner.terms import TOPOLOGIES, terms_in
from thetastream.spec import JoinSpec, JoinTree, RoutingSpec, Step, StreamSpec


@dataclass(frozen=True)
class Alternative:
    """What was not chosen, and its estimated cost in tuple copies if there is one.

    >>> plan = ts.streams(orders=orders, rides=rides).explain("orders.x > rides.x")
    >>> [other.name for other in plan.decisions[1].alternatives]
    ['matrix']
    """

    name: str
    cost: float | None
    note: str = ""


@dataclass(frozen=True)
class Decision:
    """One choice of the planner; printed as a line.

    >>> plan = ts.streams(orders=orders, rides=rides).explain("abs(orders.x - rides.x) <= 5")
    >>> print(plan.decisions[0])
    driving predicate: band on `orders`.`x` (a band lets fewer pairs through than an inequality)
    """

    subject: str
    choice: str
    reason: str
    alternatives: tuple[Alternative, ...] = ()

    def __str__(self) -> str:
        return f"{self.subject}: {self.choice} ({self.reason})"


class Explained(ABC):
    """A plan that explains itself: printed as text, shown as tables by a notebook."""

    @abstractmethod
    def explain(self) -> str:
        """The plan as text."""

    @abstractmethod
    def _repr_html_(self) -> str:
        """The plan as a notebook shows it."""

    def __str__(self) -> str:
        return self.explain()

    __repr__ = __str__


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What there is to say of a plan."""

    streams: Sequence[StreamSpec]
    predicate: str
    origin: str
    decisions: Sequence[Decision]
    conjuncts: Sequence[Conjunct]
    recheck_sql: str | None
    costs: Sequence[tuple[str, ...]] = ()
    """A table of copies and messages, with its head."""
    costs_of: str = ""
    """What the table is about."""
    picture: Sequence[str] = ()
    """The join graph, if there is more than one edge."""
    notes: Sequence[str] = ()
    """What to know about the costs, and what to look at when it runs."""

    @property
    def title(self) -> str:
        """What is joined."""
        *others, last = (stream.name for stream in self.streams)
        return f"Join of {', '.join(others)} and {last}"

    @property
    def terms(self) -> Sequence[tuple[str, str]]:
        """The terms in it that need an explanation, each with its meaning."""
        texts = [text for d in self.decisions for text in (d.subject, d.choice, d.reason)]
        texts += [f"{item.kind.value}\n{item.handling}" for item in self.conjuncts]
        texts += [meaning for _, *_, meaning in self.costs]
        texts += [key.encoding.value for stream in self.streams for key in stream.keys]
        return terms_in([*texts, "conjuncts"])

    def text(self, *, terms: bool = True) -> str:
        """The plan as aligned text, with an explanation of its terms."""
        lines = [f"{self.title} on {self.predicate}", *_built(self.origin)]
        if self.picture:
            lines += ["", "Join graph", *self.picture]
        lines += ["", "Decisions", *_decisions(self.decisions), "", "Conjuncts"]
        lines += text_table(map(_conjunct, self.conjuncts)) or ["  none"]
        lines += ["", "Streams"]
        for stream in self.streams:
            keys, condition = _keys(stream) or "none", stream.filter_sql or "none"
            lines += text_table([(stream.name, "keys", keys), ("", "filter", condition)])
        if self.recheck_sql:
            lines += ["", "Re-checked by Spark", f"  {self.recheck_sql}"]
        lines += ["", f"Estimated cost (copies stored and messages sent, {self.costs_of})"]
        lines += text_table(self.costs)
        if self.notes:
            lines += ["", "Notes", *text_notes(self.notes)]
        return "\n".join(lines + (_terms(self.terms) if terms else []))

    def html(self, *, terms: bool = True) -> str:
        """The plan as HTML that needs nothing else."""
        streams = ((stream.name, _keys(stream), stream.filter_sql or "") for stream in self.streams)
        head, *rows = self.costs
        parts = [
            "<div>",
            _html_title(self.title, self.predicate),
            f"<pre>{html.escape(chr(10).join(self.picture))}</pre>" if self.picture else "",
            _html_decisions(self.decisions),
            html_table(("conjunct", "class", "how it is handled"), map(_conjunct, self.conjuncts)),
            html_table(("stream", "keys", "filter"), streams),
            f"<p>Re-checked by Spark: <code>{html.escape(self.recheck_sql)}</code></p>"
            if self.recheck_sql
            else "",
            html_table(head, rows),
            *(f"<p>{html.escape(note)}</p>" for note in self.notes),
            html_table(("term", "meaning"), self.terms) if terms else "",
            "</div>",
        ]
        return "".join(parts)


def explanation(
    step: Step,
    conjuncts: Sequence[Conjunct],
    decisions: Sequence[Decision],
    costs: Sequence[Cost],
) -> Explanation:
    """The plan of one join; `costs` are those of the topologies that two streams can have."""
    spec, routing = step.spec, step.routing
    made = Explanation(
        streams=spec.streams,
        predicate=spec.predicate,
        origin=spec.origin,
        decisions=decisions,
        conjuncts=conjuncts,
        recheck_sql=spec.recheck_sql,
    )
    if len(spec.streams) == 2:
        return replace(
            made,
            costs=_cost_rows(routing, costs),
            costs_of="one row of each stream",
            notes=remarks(spec, routing, costs),
        )
    rows = _message_rows(spec, routing)
    return replace(made, costs=rows, costs_of="one row of the stream", picture=drawing(spec))


def explain_steps(
    tree: JoinTree, decisions: Sequence[Decision], steps: Sequence[Explanation]
) -> str:
    """The plan of a tree of joins as text: why in this order, then each join."""
    lines = [f"Join of {len(tree.order)} streams on {tree.predicate}", *_built(tree.origin)]
    lines += ["", "Decisions", *_decisions(decisions)]
    for number, step in enumerate(steps, 1):
        text = step.text(terms=False)
        lines += ["", f"Join {number}", *(f"  {line}".rstrip() for line in text.splitlines())]
    return "\n".join(lines + _terms(_all_terms(decisions, steps)))


def explain_steps_html(
    tree: JoinTree, decisions: Sequence[Decision], steps: Sequence[Explanation]
) -> str:
    """The plan of a tree of joins as HTML."""
    title = _html_title(f"Join of {len(tree.order)} streams", tree.predicate)
    joins = [step.html(terms=False) for step in steps]
    terms = html_table(("term", "meaning"), _all_terms(decisions, steps))
    return "".join(["<div>", title, _html_decisions(decisions), *joins, terms, "</div>"])


def _all_terms(
    decisions: Sequence[Decision], steps: Sequence[Explanation]
) -> Sequence[tuple[str, str]]:
    """The terms of a tree and of its joins, each once."""
    own = terms_in(text for d in decisions for text in (d.subject, d.choice))
    return list(dict.fromkeys([*own, *(term for step in steps for term in step.terms)]))


def drawing(spec: JoinSpec) -> list[str]:
    """The join graph in a few lines."""
    names = [stream.name for stream in spec.streams]
    first, middle, last = spec.order
    one, two = spec.edge(first, middle), spec.edge(middle, last)
    line = f"  {names[first]} --{one.kind}-- {names[middle]} --{two.kind}-- {names[last]}"
    ends = spec.edge(first, last)
    if not ends.joined:
        return [line]
    start, stop = 2, len(line) - len(names[last])
    closing = f"--{ends.kind}--".center(stop - start - 2, "-")
    return [line, " " * start + "|" + " " * (stop - start - 1) + "|", " " * start + "+" + closing
            + "-+"]  # fmt: skip


def _message_rows(spec: JoinSpec, routing: RoutingSpec) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("stream", "memory", "bandwidth", "")]
    for number, stream in enumerate(spec.streams):
        rows.append((stream.name, "1", f"{messages(spec, routing, number):g}", ""))
    return rows


def _cost_rows(routing: RoutingSpec, costs: Sequence[Cost]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("topology", "memory", "bandwidth", "", "")]
    for item in costs:
        chosen = "chosen" if item.routing is routing.routing else ""
        memory, bandwidth = f"{sum(item.memory):g}", f"{sum(item.bandwidth):g}"
        meaning = TOPOLOGIES[item.routing]
        rows.append((item.routing.value, memory, bandwidth, chosen, meaning))
    return rows


def _built(origin: str) -> list[str]:
    return [f"  built at {origin}"] if origin else []


def _decisions(decisions: Sequence[Decision]) -> list[str]:
    return text_table((d.subject, d.choice, d.reason) for d in decisions)


def _terms(terms: Sequence[tuple[str, str]]) -> list[str]:
    return ["", "Terms", *text_table(terms)]


def _conjunct(conjunct: Conjunct) -> tuple[str, ...]:
    return conjunct.text, conjunct.kind.value, conjunct.handling


def _keys(stream: StreamSpec) -> str:
    return ", ".join(f"{key.sql} ({key.encoding.value})" for key in stream.keys)


def _html_title(title: str, predicate: str) -> str:
    return f"<p><b>{html.escape(title)}</b> on <code>{html.escape(predicate)}</code></p>"


def _html_decisions(decisions: Sequence[Decision]) -> str:
    rows = ((d.subject, d.choice, d.reason) for d in decisions)
    return html_table(("decision", "choice", "reason"), rows)
