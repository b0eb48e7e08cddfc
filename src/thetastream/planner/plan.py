"""A plan: the joins that carry a predicate out, and why they are as they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from thetastream.planner.conjuncts import Conjunct
from thetastream.planner.costs import Cost
from thetastream.planner.report import (
    Decision,
    Explained,
    Explanation,
    explain_steps,
    explain_steps_html,
    explanation,
)
from thetastream.spec import JoinSpec, JoinTree, Travel


@dataclass(frozen=True, repr=False)
class Plan(Explained):
    """How streams will be joined, and why; printed as text.

    `tree` is what the workers carry out: one join, or for more than three streams several in a row,
    which `steps` explain one by one. It may change from one release to the next.

    >>> plan = ts.streams(orders=orders, rides=rides).explain("orders.x = rides.x")
    >>> print(plan)  # doctest: +ELLIPSIS
    Join of orders and rides on orders.x = rides.x
    ...
    >>> four = ts.streams(orders=orders, a=rides, b=rides, c=rides)
    >>> plan = four.explain("orders.x = a.x AND a.x = b.x AND b.x = c.x", within="1 minute")
    >>> [step.decisions[1].choice for step in plan.steps]
    ['hash', 'hash', 'hash']
    """

    tree: JoinTree
    decisions: tuple[Decision, ...]
    conjuncts: tuple[Conjunct, ...]
    costs: tuple[Cost, ...] = ()
    """What the topologies of two streams cost that fit the predicate."""
    steps: tuple[Plan, ...] = ()
    """The joins of a tree."""
    travels: tuple[Travel, ...] = ()
    """What travels of the streams that are at sites."""

    @property
    def spec(self) -> JoinSpec:
        """The join whose results are those of the plan."""
        return self.tree.last

    @property
    def explanation(self) -> Explanation:
        """What there is to say of its last join."""
        return explanation(self.tree.steps[-1], self.conjuncts, self.decisions, self.costs)

    def explain(self) -> str:
        """The plan as text."""
        if not self.steps:
            return self.explanation.text()
        return explain_steps(self.tree, self.decisions, [step.explanation for step in self.steps])

    def _repr_html_(self) -> str:
        if not self.steps:
            return self.explanation.html()
        found = [step.explanation for step in self.steps]
        return explain_steps_html(self.tree, self.decisions, found)


def with_last(plan: Plan, **changes: Any) -> Plan:
    """The plan with some of its last join's spec changed."""
    *before, last = plan.tree.steps
    changed = replace(last, spec=replace(last.spec, **changes))
    return replace(plan, tree=replace(plan.tree, steps=(*before, changed)))
