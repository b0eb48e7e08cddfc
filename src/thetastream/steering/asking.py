"""Policies that are asked about a running query: what each was told, and what it has decided."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from thetastream.errors import OptionError
from thetastream.steering.edits import edit_from_json, edit_to_json
from thetastream.steering.policy import Moment, Policy, Usage, Verdict
from thetastream.steering.steps import Place

LOGGED = 200
"""Decisions of a policy that are kept."""


@dataclass
class Asked:
    """A policy, and what it has decided."""

    policy: Policy
    own: bool = False
    """Whether it belongs to the join itself."""
    log: deque[Verdict] = field(default_factory=lambda: deque(maxlen=LOGGED))
    since_change: list[Verdict] = field(default_factory=list)
    last: float = float("-inf")
    heard: dict[Place, Usage] = field(default_factory=dict)
    """The units since it was last asked, or since the tables changed."""
    served: float = float("-inf")
    """When it last got a change."""

    def hear(self, moment: Moment) -> None:
        """Add a batch to what the units have done."""
        for load in moment.loads:
            place = (load.join, load.stage, load.unit)
            known = self.heard.get(place, Usage(**_named(place), batches=0, seconds=0, busy=0))
            self.heard[place] = replace(
                known,
                batches=known.batches + 1,
                seconds=known.seconds + moment.interval,
                busy=known.busy + load.busy,
            )


def _named(place: Place) -> dict[str, int]:
    return dict(zip(("join", "stage", "unit"), place, strict=True))


def ask(
    policies: Iterable[Asked], moment: Moment, *, heating: bool
) -> tuple[Asked, Verdict] | None:
    """What the policies that are due decide, either those of hot keys or the others; of those that
    want a change, the one gets it that has been without one for longest, so that none keeps the
    others from theirs."""
    found: list[tuple[Asked, Verdict]] = []
    for one in policies:
        if heats(one.policy) is not heating:
            continue
        one.hear(moment)
        if moment.at - one.last < one.policy.every:
            continue
        one.last = moment.at
        now = replace(moment, usages=tuple(one.heard.values()))
        one.heard = {}
        try:
            decision = one.policy.decide(now, list(one.since_change))
            if decision.edit is not None:
                edit_from_json(edit_to_json(decision.edit))
        except Exception as error:  # a policy is the user's own code
            decision = Verdict(why=f"the policy failed: {type(error).__name__}: {error}")
        decision = replace(decision, at=moment.at)
        one.log.append(decision)
        one.since_change = [*one.since_change, decision][-LOGGED:]
        if decision.edit is not None:
            found.append((one, decision))
    return min(found, key=lambda wish: wish[0].served, default=None)


def heats(policy: Policy) -> bool:
    """Whether a policy decides about hot keys, and about nothing else."""
    return bool(getattr(policy, "heats", False))


def check_together(policies: Sequence[Policy]) -> None:
    """Refuse policies of different kinds that would undo what the other does."""
    if sum(map(heats, policies)) > 1:
        raise OptionError(
            "two policies decide which keys are hot",
            hint='let one of them do that: hot_keys="auto" has one of its own, with'
            ' JoinOptions(hot_keys="watch") there is only yours',
        )
    found = (policy.name for policy in policies if getattr(policy, "scales", False))
    scaling = list(dict.fromkeys(found))
    if len(scaling) > 1:
        raise OptionError(
            f"the policies {' and '.join(map(repr, scaling))} both decide how many units there are",
            hint="let one of them do that: ts.Rebalance(declustering=False) only moves groups, and"
            " works beside the others; a policy of before ends with its manager's stop()",
        )
