"""What it costs to join a remote stream: whole tuples at once, or partial ones first.

SPJ, the simple join, ships full tuples. SMJ, the semijoin, ships partial tuples, and the full ones
of those that match when it is asked for them. A cost is the time that the link takes for the tuples
of one second, as in equations 1 and 2 of the paper. The paper sends every tuple in a message of its
own; here a message may bring many, so that messages, requests and tuples are counted apart, and
`of_the_paper` gives the counts with which the two costs are its equations.

All of it is arithmetic; `transport/estimate.py` measures what it works on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from thetastream.errors import OptionError

Transport = Literal["simple", "semijoin"]
"""How a remote stream comes: full tuples (SPJ), or partial tuples and then what matched (SMJ)."""

EARNED = 0.93
"""A semijoin has to cost less than this share of full tuples before it is begun.

It asks for its results in a second journey, whose cost is the least certain: where both cost about
the same, full tuples come at once. So what is chosen never costs more than 1 / 0.93, or 1.08 times,
what the better of the two does."""
KEPT = 0.98
"""A semijoin that costs more than this share is ended.

Costs that waver between the two shares change nothing."""
SAME = 0.005
"""Costs that differ by less than this share are said to be the same."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """What lies between a site and the join."""

    latency: float
    """Seconds that a message takes, however short it is."""
    bandwidth: float
    """Bytes per second."""
    overhead: float = 0.0
    """Bytes of a message beside its tuples."""

    def __post_init__(self) -> None:
        _check(self, at_least_zero=("latency", "overhead"))
        if not self.bandwidth > 0:
            raise OptionError(
                f"bandwidth={self.bandwidth!r} is not a positive number of bytes per second",
                hint="give math.inf for a link without a limit",
            )

    def seconds(self, messages: float, size: float) -> float:
        """The time of so many messages, one after the other, with so many bytes in all."""
        return messages * self.latency + (size + messages * self.overhead) / self.bandwidth


@dataclass(frozen=True, kw_only=True)
class Quantities:
    """What the cost of a remote stream depends on. Rates are per second."""

    link: Link
    rate: float
    """Tuples of the remote stream."""
    full: float
    """Bytes of a tuple."""
    partial: float
    """Bytes of what the predicate looks at, with the tuple's number and time."""
    messages: float
    """In which the tuples come, whether full or partial."""
    fetched: float
    """Full tuples that a semijoin asks for."""
    requests: float
    """In which it asks for them, one after the other: those that are under way at the same time
    count as one."""
    question: float = 0.0
    """Bytes of a request."""
    handling: float = 0.0
    """Seconds of CPU for a fetched tuple: to look it up and to put it beside its partner."""
    rest: float | None = None
    """Bytes of a tuple that is fetched, if what came before is left out of it."""

    def __post_init__(self) -> None:
        names = ("rate", "full", "partial", "messages", "fetched", "requests", "question")
        _check(self, at_least_zero=(*names, "handling"))
        if self.rest is not None:
            _check(self, at_least_zero=("rest",))

    @property
    def answer(self) -> float:
        """Bytes of a tuple that is fetched."""
        return self.full if self.rest is None else self.rest

    @property
    def match_rate(self) -> float:
        """The share of the tuples that a semijoin asks for."""
        return self.fetched / self.rate if self.rate else 0.0


def simple(of: Quantities) -> float:
    """Seconds of the simple join for the tuples of one second."""
    return of.link.seconds(of.messages, of.rate * of.full)


def semijoin(of: Quantities) -> float:
    """Seconds of the semijoin for the tuples of one second."""
    partial = of.link.seconds(of.messages, of.rate * of.partial)
    asking = of.link.seconds(of.requests, of.requests * of.question)
    answers = of.link.seconds(of.requests, of.fetched * of.answer)
    return partial + asking + answers + of.fetched * of.handling


def simple_bytes(of: Quantities) -> float:
    """Bytes that the simple join puts on the link for the tuples of one second."""
    return of.messages * of.link.overhead + of.rate * of.full


def semijoin_bytes(of: Quantities) -> float:
    """Bytes that the semijoin puts on the link for the tuples of one second, both ways."""
    messages = of.messages + 2 * of.requests
    size = of.rate * of.partial + of.requests * of.question + of.fetched * of.answer
    return messages * of.link.overhead + size


def found_in(window: float, distinct: float) -> float:
    """The probability that a key is among those of a window, if all keys are equally frequent."""
    if not distinct >= 1:
        raise OptionError(
            f"distinct={distinct!r} is not a number of keys", hint="there is at least one"
        )
    if window <= 0:
        return 0.0
    if distinct == 1:
        return 1.0
    return -math.expm1(window * math.log1p(-1 / distinct))


def of_the_paper(
    *,
    link: Link,
    rates: tuple[float, float],
    windows: tuple[float, float],
    distinct: float,
    full: float,
    partial: float,
) -> Quantities:
    """The paper's counts, from its λ₁ and λ₂, |W₁| and |W₂| (the remote stream first) and d_V.

    A new remote tuple is asked for if it finds a partner. A new local tuple whose key no remote
    tuple has been asked for fetches all that have it. The paper lets it fetch a key's mean number
    of tuples, |W₁| / d_V, also where it is known that there is one: too few for rare keys, and
    where keys are frequent, more tuples than there are. `expected` counts each tuple once.
    """
    remote, local = rates
    p1, p2 = found_in(windows[0], distinct), found_in(windows[1], distinct)
    later = local * (1 - p2) * p1
    return Quantities(
        link=link,
        rate=remote,
        full=full,
        partial=partial,
        messages=remote,
        requests=remote * p2 + later,
        fetched=remote * p2 + later * windows[0] / distinct,
        question=partial,
    )


def expected(
    *,
    link: Link,
    rates: tuple[float, float],
    windows: tuple[float, float],
    distinct: float,
    full: float,
    partial: float,
    batch: float,
    number: float = 8.0,
) -> Quantities:
    """What to expect before anything has been measured, with batches of so many seconds.

    A tuple is asked for once if it ever has a partner: among those of the other stream in their
    window when it comes, or among those that come while it is in its own. The tuples of a batch
    that are asked for go into one request, with a `number` of so many bytes for each.
    """
    if not batch > 0:
        raise OptionError(f"batch={batch!r} is not a positive number of seconds")
    remote, local = rates
    stays = windows[0] / remote if remote else 0.0
    fetched = remote * found_in(windows[1] + local * stays, distinct)
    # A batch in which nothing matched needs no request.
    requests = min(1.0, fetched * batch) / batch
    return Quantities(
        link=link,
        rate=remote,
        full=full,
        partial=partial,
        messages=1 / batch,
        requests=requests,
        fetched=fetched,
        question=number * fetched / requests if requests else 0.0,
    )


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which transport, and why."""

    transport: Transport
    simple: float
    """Seconds for the tuples of one second, with full tuples."""
    semijoin: float
    """Seconds for the tuples of one second, with partial tuples first."""
    reason: str

    @property
    def better(self) -> float:
        """The smaller of the two costs."""
        return min(self.simple, self.semijoin)

    @property
    def cost(self) -> float:
        """The cost of what was chosen."""
        return self.simple if self.transport == "simple" else self.semijoin


def choose(of: Quantities, *, now: Transport | None = None) -> Choice:
    """The semijoin where it earns its second journey, and full tuples otherwise.

    `now`: what a running query has. A semijoin is begun below `EARNED` of the cost of full tuples,
    and ended above `KEPT`, so that costs that waver do not make a query go to and fro. Where there
    are no tuples to choose by, everything stays as it is.
    """
    full, partial = simple(of), semijoin(of)
    taken: Transport = now or "simple"
    if of.rate:
        share = KEPT if now == "semijoin" else EARNED
        taken = "semijoin" if partial < share * full else "simple"
    return Choice(
        transport=taken,
        simple=full,
        semijoin=partial,
        reason=_reason(of, full, partial, taken, now),
    )


def _reason(
    of: Quantities, full: float, partial: float, taken: Transport, now: Transport | None
) -> str:
    if not of.rate:
        return "there are no tuples to choose by"
    facts = (
        f"{of.match_rate:.1%} of the tuples match, {of.partial:,.0f} of {of.full:,.0f} bytes are"
        f" looked at, and the link takes {_rate(of.link.bandwidth)} and {of.link.latency * 1e3:.3g}"
        " ms per message"
    )
    if taken == "semijoin":
        why = f"partial tuples first is {_gain(partial, full)}"
    elif abs(full - partial) <= SAME * full:
        why = "both cost the same, and full tuples need no second journey"
    elif full < partial:
        why = f"full tuples at once is {_gain(full, partial)}"
    else:
        gain = _gain(partial, full)
        why = f"partial tuples first would be {gain}, which is not worth their second journey"
    changed = ", so the query changes" if now is not None and now != taken else ""
    return f"{facts}: {why}{changed}"


def _gain(less: float, more: float) -> str:
    return (
        f"{1 - less / more:.0%} cheaper" if more < 2 * less else f"{more / less:.1f} times cheaper"
    )


def _rate(bandwidth: float) -> str:
    if math.isinf(bandwidth):
        return "any number of bytes per second"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bandwidth >= size:
            return f"{bandwidth / size:.3g} {unit}/s"
    return f"{bandwidth:.3g} bytes/s"


def _check(of: object, *, at_least_zero: tuple[str, ...]) -> None:
    for name in at_least_zero:
        value = getattr(of, name)
        if not 0 <= value < math.inf:
            raise OptionError(f"{name}={value!r} is not a number, or negative")
