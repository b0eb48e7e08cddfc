"""What the cost model works on, measured batch by batch.

An estimate is a frozen value: `after` gives the next one from what a batch counted. Old batches
fade: what was measured `half_life` batches ago counts half. What has never been measured is as it
was assumed at first, for instance the size of partial tuples while only full ones travel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace

from thetastream.errors import OptionError
from thetastream.transport.costmodel import Link, Quantities

HALF_LIFE = 8.0
"""Batches after which a measurement counts half: some noise is smoothed, a change is seen soon."""
DOUBT = 0.01
"""How firmly what is known of the link is held, in shares of what was measured.

It decides only what the transfers leave open: if all of them have the same size, latency and
bandwidth cannot be told apart, and keep the ratio that they had."""
ASSUMED_BATCHES = 1.0
"""Batches that the assumed match rate counts for at first; half as many with each that comes."""


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """What went over the link for one purpose in a batch."""

    rows: int = 0
    bytes: int = 0
    """Both ways, as counted on the wire."""
    messages: int = 0
    """One after the other; those that are under way at the same time count as one."""
    seconds: float = 0.0
    """From the first request to the last byte."""

    def __post_init__(self) -> None:
        _not_negative(self)


@dataclass(frozen=True, kw_only=True)
class BatchCounts:
    """What a batch counted of one remote stream."""

    seconds: float
    """For which it brought tuples."""
    full: Transfer = field(default_factory=Transfer)
    """Full tuples that came at once."""
    partial: Transfer = field(default_factory=Transfer)
    """Partial tuples."""
    fetched: Transfer = field(default_factory=Transfer)
    """Full tuples that were asked for, each once; its messages are the requests."""
    asked: int = 0
    """Bytes of these requests. They are among the fetched bytes."""
    hits: int = 0
    """Tuples of results that were there already, because they had been fetched before."""
    matched: int = 0
    """Tuples that came full and are in a result for the first time: a semijoin would have asked
    for them."""
    handling: float = 0.0
    """Seconds of CPU for looking up fetched tuples and putting them beside their partners."""

    def __post_init__(self) -> None:
        _not_negative(self, but=("full", "partial", "fetched"))


@dataclass(frozen=True)
class _Line:
    """Faded sums for a regression of a transfer's seconds over its messages and its bytes.

    Errors are relative to the seconds of the transfer: so short ones tell the latency, and long
    ones the bandwidth.
    """

    count: float = 0.0
    messages: float = 0.0
    """Per second of each transfer, as the others."""
    bytes: float = 0.0
    mm: float = 0.0
    mb: float = 0.0
    bb: float = 0.0

    def faded(self, by: float) -> _Line:
        return _Line(*(by * getattr(self, one.name) for one in fields(self)))

    def with_one(self, messages: float, size: float, seconds: float) -> _Line:
        m, b = messages / seconds, size / seconds
        return _Line(
            self.count + 1,
            self.messages + m,
            self.bytes + b,
            self.mm + m * m,
            self.mb + m * b,
            self.bb + b * b,
        )

    def fitted(self, latency: float, per_byte: float) -> tuple[float, float]:
        """Latency and seconds per byte that fit best, near those known where that is open."""
        if not (self.messages and self.bytes):
            return latency, per_byte
        # As shares: 1 is the latency if all of the time were latency, and so for the bytes.
        most_latency, most_per_byte = self.count / self.messages, self.count / self.bytes
        x, y = latency / most_latency, per_byte / most_per_byte
        # Of what was known only the ratio is kept.
        x, y = (x / (x + y), y / (x + y)) if x + y > 0 else (0.5, 0.5)
        weight = DOUBT * self.count
        mm = self.mm * most_latency**2 + weight
        bb = self.bb * most_per_byte**2 + weight
        mb = self.mb * most_latency * most_per_byte
        p, q = self.count + weight * x, self.count + weight * y
        determinant = mm * bb - mb * mb
        x, y = (p * bb - q * mb) / determinant, (q * mm - p * mb) / determinant
        if x < 0:
            x, y = 0.0, q / bb
        elif y < 0:
            x, y = p / mm, 0.0
        return x * most_latency, y * most_per_byte


@dataclass(frozen=True)
class _Sums:
    """Faded sums of what was counted."""

    batches: float = 0.0
    seconds: float = 0.0
    rows: float = 0.0
    messages: float = 0.0
    full_rows: float = 0.0
    full_bytes: float = 0.0
    rest_rows: float = 0.0
    rest_bytes: float = 0.0
    partial_rows: float = 0.0
    partial_bytes: float = 0.0
    asking: float = 0.0
    requests: float = 0.0
    fetched: float = 0.0
    asked: float = 0.0
    matched: float = 0.0
    hits: float = 0.0
    handling: float = 0.0

    def faded(self, by: float) -> _Sums:
        return _Sums(*(by * getattr(self, one.name) for one in fields(self)))

    def plus(self, other: _Sums) -> _Sums:
        return _Sums(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True)
class Estimate:
    """The quantities of the cost model, as far as they are known by now."""

    assumed: Quantities
    """What is taken for what has not been measured."""
    half_life: float = HALF_LIFE
    batches: int = 0
    """That were measured."""
    known: Link | None = None
    """The link as far as it has been measured."""
    sums: _Sums = field(default=_Sums(), repr=False)
    line: _Line = field(default=_Line(), repr=False)

    def __post_init__(self) -> None:
        if not self.half_life > 0:
            raise OptionError(f"half_life={self.half_life!r} is not a positive number of batches")

    def heard(self, transfer: Transfer) -> Estimate:
        """The estimate when something else was sent over the link, as a question before the start.

        It takes two messages of different sizes to tell latency from bandwidth.
        """
        if not (transfer.seconds > 0 and transfer.messages):
            return self
        line = self.line.with_one(transfer.messages, transfer.bytes, transfer.seconds)
        return replace(self, line=line, known=self._link(line))

    def after(self, counts: BatchCounts) -> Estimate:
        """The estimate when one more batch is done."""
        fade = self._fade
        overhead = self.assumed.link.overhead
        full, partial, fetched = counts.full, counts.partial, counts.fetched
        answers = fetched.bytes - counts.asked - 2 * overhead * fetched.messages
        # What is fetched is no full tuple where it leaves out what came before.
        apart = self.assumed.rest is not None
        new = _Sums(
            batches=1.0,
            seconds=counts.seconds,
            rows=full.rows + partial.rows,
            messages=full.messages + partial.messages,
            full_rows=full.rows + (0 if apart else fetched.rows),
            full_bytes=max(0.0, full.bytes - overhead * full.messages)
            + (0.0 if apart else max(0.0, answers)),
            rest_rows=fetched.rows if apart else 0.0,
            rest_bytes=max(0.0, answers) if apart else 0.0,
            partial_rows=partial.rows,
            partial_bytes=max(0.0, partial.bytes - overhead * partial.messages),
            asking=1.0 if fetched.messages else 0.0,
            requests=fetched.messages,
            fetched=fetched.rows,
            asked=counts.asked,
            matched=counts.matched + fetched.rows,
            hits=counts.hits,
            handling=counts.handling,
        )
        line = self.line.faded(fade)
        for one, messages in (
            (full, full.messages),
            (partial, partial.messages),
            # A request and its answer.
            (fetched, 2 * fetched.messages),
        ):
            if one.seconds > 0 and messages:
                line = line.with_one(messages, one.bytes, one.seconds)
        return replace(
            self,
            batches=self.batches + 1,
            sums=self.sums.faded(fade).plus(new),
            line=line,
            known=self._link(line),
        )

    @property
    def _fade(self) -> float:
        return float(0.5 ** (1 / self.half_life))

    @property
    def link(self) -> Link:
        """Latency and bandwidth."""
        return self.known or self.assumed.link

    def _link(self, line: _Line) -> Link:
        # What the transfers leave open is as it was before, not as it was at the very first.
        before = self.link
        latency, per_byte = line.fitted(before.latency, 1 / before.bandwidth)
        bandwidth = 1 / per_byte if per_byte > 0 else math.inf
        return replace(before, latency=latency, bandwidth=bandwidth)

    @property
    def match_rate(self) -> float:
        """The share of the tuples that are in a result, and are to be fetched once."""
        sums, assumed = self.sums, self.assumed.match_rate
        if not sums.rows:
            return assumed
        # It is soon forgotten: where nothing matches, a trace of it would mean a request per batch.
        first = ASSUMED_BATCHES * 0.5**self.batches * sums.rows / sums.batches
        return min(1.0, (sums.matched + first * assumed) / (sums.rows + first))

    @property
    def hit_rate(self) -> float:
        """The share of the tuples that results needed and that had been fetched before."""
        needed = self.sums.hits + self.sums.fetched
        return self.sums.hits / needed if needed else 0.0

    @property
    def quantities(self) -> Quantities:
        """What the cost model works on."""
        if not self.batches:
            return replace(self.assumed, link=self.link)
        sums, assumed = self.sums, self.assumed
        rate = _over(sums.rows, sums.seconds, assumed.rate)
        messages = _over(sums.messages, sums.seconds, assumed.messages)
        fetched = rate * self.match_rate
        requests = self._requests(fetched, messages)
        known = _over(assumed.question * assumed.requests, assumed.fetched, 0.0)
        number = _over(sums.asked, sums.fetched, known)
        full, partial, rest = self._sizes()
        return Quantities(
            link=self.link,
            rate=rate,
            full=full,
            partial=partial,
            rest=rest,
            messages=messages,
            fetched=fetched,
            requests=requests,
            question=number * fetched / requests if requests else 0.0,
            handling=_over(sums.handling, sums.fetched, assumed.handling),
        )

    def _sizes(self) -> tuple[float, float, float | None]:
        """Bytes of a full tuple, of a partial one, and of the rest if that is fetched alone.

        Each as it was measured, or else as it follows from the others: a sample says how large
        columns are before they are compressed.
        """
        sums, assumed = self.sums, self.assumed
        full = _over(sums.full_bytes, sums.full_rows, assumed.full)
        partial = _over(sums.partial_bytes, sums.partial_rows, assumed.partial)
        if assumed.rest is None:
            return full, partial, None
        # A full tuple does not bring its number.
        number = max(0.0, assumed.partial + assumed.rest - assumed.full)
        rest = _over(sums.rest_bytes, sums.rest_rows, assumed.rest)
        if not sums.full_rows:
            return rest + max(0.0, partial - number), partial, rest
        scale = _over(full, assumed.full, 1.0)
        if not sums.partial_rows:
            partial = number + scale * max(0.0, assumed.partial - number)
        if not sums.rest_rows:
            rest = max(0.0, full - max(0.0, partial - number))
        return full, partial, rest

    def _requests(self, fetched: float, messages: float) -> float:
        """Requests per second for so many fetched tuples.

        A batch that asks at all asks as often as others did: not more often when more match.
        """
        sums, assumed = self.sums, self.assumed
        batches = _over(sums.batches, sums.seconds, assumed.messages)
        if not batches:
            return 0.0
        first = _over(messages * assumed.requests, batches * assumed.messages, 1.0)
        each = _over(sums.requests, sums.asking, max(1.0, first))
        return min(fetched, batches * each)


def _over(part: float, whole: float, otherwise: float) -> float:
    return part / whole if whole > 0 else otherwise


def _not_negative(of: Transfer | BatchCounts, but: tuple[str, ...] = ()) -> None:
    for one in fields(of):
        value = 0 if one.name in but else getattr(of, one.name)
        if not 0 <= value < math.inf:
            raise OptionError(f"{one.name}={value!r} is not a number, or negative")
