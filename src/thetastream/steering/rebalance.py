"""Load balancing by suppliers and consumers, and the degree of declustering: the Epoch join's."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from thetastream.errors import OptionError
from thetastream.spec.stages import GROUPS
from thetastream.steering.edits import DRAINS, Move, Moves
from thetastream.steering.policy import Holding, Moment, Verdict

PARTITION_GROUPS = 60
LEAST_EPOCH = 0.5
"""The share of an epoch that reports have to cover: the steps of a change take the rest of it."""

Piece = Mapping[str, Sequence[int]]
"""The groups of a partition-group that one unit holds, for every stream."""


class Rebalance:
    """Moves partition-groups from busy units to idle ones, and adds and removes units.

    The groups of a join form `groups` partition-groups. After every reorganisation epoch of `every`
    seconds, units are classed by their occupancy, the CPU time that they used over the time that
    they had: above `supplier` a unit is a supplier, below `consumer` a consumer, between them it is
    neutral. Each supplier gives one partition-group, chosen at random, to a consumer of its own;
    the pairs are found in one scan over the units. The degree of declustering grows by a unit when
    there are more suppliers than `beta` times the consumers, and shrinks by one when there is no
    supplier: the least busy unit then gives all that it holds to the others.

    This differs from the paper. A unit without a group has no turn in a batch, so a new unit takes
    part in the scan at once, as the first consumer. A supplier keeps its last partition-group. A
    unit is removed only if no other one is expected to be busier than `headroom` times `supplier`
    with its groups: otherwise removing a unit makes a supplier, for which a unit is added again.
    `headroom=None` leaves this out, as the paper does; `patience` is how many epochs in a row must
    be without a supplier.

    With these thresholds units between 1 % and 50 % are all neutral, so that nothing evens out how
    busy they are, and a new unit with one partition-group seldom gets another one. With
    `balance=1.1` partition-groups move from units that are more than 1.1 times as busy as the mean
    to those below the mean, from the busiest to the least busy one. For the degree of declustering
    a unit below the mean that is no supplier then counts as a consumer.

    >>> policy = ts.Rebalance()
    >>> loads = [ts.Load(join=0, stage=0, unit=unit, busy=busy) for unit, busy in ((0, 16), (1, 0))]
    >>> halves = ((0, 2519, 0), (2520, 5039, 1))
    >>> orders = ts.Holding(stream="orders", join=0, stage=0, units=(0, 1), runs=halves)
    >>> moment = ts.Moment(
    ...     at=0.0, batch=1, interval=20.0, loads=tuple(loads), holdings=(orders,), max_units=2
    ... )
    >>> decision = policy.decide(moment, [])
    >>> print(decision.why)  # doctest: +NORMALIZE_WHITESPACE
    orders: supplier 0 (0.800), consumer 1 (0.000); there can be no more than 2 units;
    partition-group 12 of unit 0 to unit 1
    """

    name = "rebalance"

    def __init__(
        self,
        *,
        groups: int = PARTITION_GROUPS,
        supplier: float = 0.5,
        consumer: float = 0.01,
        beta: float = 0.5,
        every: float = 20.0,
        declustering: bool = True,
        least: int = 1,
        most: int | None = None,
        patience: int = 1,
        headroom: float | None = 0.9,
        balance: float | None = None,
        drain: str = "move",
        seed: int = 0,
    ) -> None:
        """`every`: seconds of a reorganisation epoch; `declustering`: whether the number of units
        changes, from `least` to `most`; `drain`: what becomes of stored tuples, which the paper
        moves; `seed`: of the choice among partition-groups."""
        if not 1 <= groups <= GROUPS:
            raise OptionError(
                f"there cannot be {groups} partition-groups", hint=f"give from 1 to {GROUPS}"
            )
        if not 0 <= consumer < supplier < 1:
            raise OptionError(
                f"consumer={consumer} and supplier={supplier} are not thresholds in this order",
                hint="give shares of time with 0 <= consumer < supplier < 1, such as 0.01 and 0.5",
            )
        if not 0 < beta < 1:
            raise OptionError(
                f"beta={beta} is not between 0 and 1",
                hint="give a number between 0 and 1, both excluded; a smaller one adds units"
                " sooner",
            )
        if not every >= 0:
            raise OptionError(f"every={every} is not a number of seconds", hint="give 20.0")
        if patience < 1 or least < 1 or (most is not None and most < least):
            raise OptionError(
                f"patience={patience}, least={least} and most={most} do not fit",
                hint="all are at least 1, and most is not below least",
            )
        if headroom is not None and not 0 < headroom <= 1:
            raise OptionError(
                f"headroom={headroom} is not a share of the supplier's threshold",
                hint="give a number above 0 and up to 1, or None",
            )
        if balance is not None and not balance > 1:
            raise OptionError(
                f"balance={balance} is not above 1",
                hint="1.1 lets a unit be a tenth busier than the mean; None leaves it out",
            )
        if drain not in DRAINS:
            raise OptionError(
                f"drain={drain!r} is not a way to drain", hint=f"choose one of {', '.join(DRAINS)}"
            )
        self._groups = groups
        self._supplier, self._consumer, self._beta = supplier, consumer, beta
        self._least, self._most = least, most
        self._patience, self._headroom = patience, headroom
        self._balance = balance
        self._drain = drain
        self._seed = seed
        self.every = every
        self.scales = declustering
        """Whether it decides how many units there are; no other policy beside it may then."""

    def decide(self, moment: Moment, earlier: Sequence[Verdict]) -> Verdict:
        """What to do at the end of a reorganisation epoch, in all stages of all joins."""
        stages: dict[tuple[int, int], list[Holding]] = {}
        for holding in moment.holdings:
            stages.setdefault((holding.join, holding.stage), []).append(holding)
        moves: list[Move] = []
        whys, leanings = [], []
        for place, holdings in stages.items():
            found = self._stage(holdings, moment, earlier)
            whys.append(found.why)
            leanings += [found.leaning] if found.leaning else []
            moves += found.moves(*(place if len(stages) > 1 else (None, None)))
        return Verdict(
            why="; ".join(whys),
            edit=Moves(moves=tuple(moves), drain=self._drain) if moves else None,
            leaning="; ".join(leanings),
        )

    def _stage(
        self, holdings: Sequence[Holding], moment: Moment, earlier: Sequence[Verdict]
    ) -> _Reorganisation:
        name = " and ".join(one.stream for one in holdings)
        other = next((one for one in holdings if not one.runs), None)
        if other is not None:
            return _Reorganisation(
                f"{name}: topology {other.topology!r} already spreads what comes with a key over"
                " several units; partition-groups are moved with 'hash' and 'band'"
            )
        units = sorted({unit for one in holdings for unit in one.units})
        usage = moment.usage(holdings[0].join, holdings[0].stage)
        missing = [unit for unit in units if unit not in usage]
        if missing:
            return _Reorganisation(f"{name}: waiting for a report of {_listed(missing)}")
        seconds = min(usage[unit].seconds for unit in units)
        if seconds < LEAST_EPOCH * self.every:
            return _Reorganisation(
                f"{name}: waiting, the reports cover {seconds:.1f} s of an epoch of"
                f" {self.every:g} s"
            )
        busy = {unit: usage[unit].occupancy for unit in units}
        return self._reorganised(name, busy, _pieces(holdings, self._groups), moment, earlier)

    def _reorganised(
        self,
        name: str,
        busy: Mapping[int, float],
        pieces: Mapping[int, Mapping[int, Piece]],
        moment: Moment,
        earlier: Sequence[Verdict],
    ) -> _Reorganisation:
        suppliers = [unit for unit, share in busy.items() if share > self._supplier]
        consumers = [unit for unit, share in busy.items() if self._takes(share, busy)]
        found = _Reorganisation(f"{name}: {_classes(busy, suppliers, consumers)}")
        if not suppliers and self.scales:
            self._shrink(name, found, busy, pieces, earlier)
            if found.given:
                return found
        grows = self.scales and len(suppliers) > self._beta * len(consumers)
        most = min(self._most or moment.max_units, moment.max_units)
        if grows and len(busy) >= most:
            found.say(f"there can be no more than {most} unit{'s' if most > 1 else ''}")
            grows = False
        givers, takers = self._sides(busy, suppliers, consumers, grows=grows)
        for unit in givers:
            if len(pieces[unit]) < 2:
                found.say(f"unit {unit} keeps its only partition-group")
        givers = [unit for unit in givers if len(pieces[unit]) > 1]
        if grows and givers:
            new = next(unit for unit in range(moment.max_units) if unit not in busy)
            found.say(f"unit {new} is added")
            takers = [new, *takers]
        for giver, taker in zip(givers, takers, strict=False):
            # The same choice whenever the decision is repeated.
            chance = random.Random(f"{self._seed} {moment.batch} {name} {giver}")
            number = chance.choice(sorted(pieces[giver]))
            found.give(pieces[giver][number], taker)
            found.say(f"partition-group {number} of unit {giver} to unit {taker}")
        if givers and not takers:
            found.say("nobody can take anything")
        return found

    def _takes(self, share: float, busy: Mapping[int, float]) -> bool:
        """Whether a unit that is so busy is a consumer."""
        if self._balance is None:
            return share < self._consumer
        mean = sum(busy.values()) / len(busy)
        return share < self._consumer or share < min(mean, self._supplier)

    def _sides(
        self,
        busy: Mapping[int, float],
        suppliers: Sequence[int],
        consumers: Sequence[int],
        *,
        grows: bool,
    ) -> tuple[list[int], list[int]]:
        """Who gives, and who takes."""
        if self._balance is None:
            return list(suppliers), list(consumers)
        ranked = sorted(busy, key=lambda unit: -busy[unit])
        mean = sum(busy.values()) / (len(busy) + grows)
        givers = [unit for unit in ranked if busy[unit] > self._balance * mean]
        takers = [unit for unit in reversed(ranked) if busy[unit] < mean]
        return givers or ranked[: int(grows)], takers

    def _shrink(
        self,
        name: str,
        found: _Reorganisation,
        busy: Mapping[int, float],
        pieces: Mapping[int, Mapping[int, Piece]],
        earlier: Sequence[Verdict],
    ) -> None:
        """Let the least busy unit give all that it has to the others."""
        if len(busy) <= self._least:
            return
        found.leaning = f"{name}: fewer units"
        times = 1
        for decision in reversed(earlier):
            if found.leaning not in decision.leaning.split("; "):
                break
            times += 1
        if times < self._patience:
            found.say(f"no supplier, {times} of {self._patience} times in a row")
            return
        # The first unit of a stage has its turn in any case, so that nothing is saved without it.
        gone = min((unit for unit in busy if unit), key=lambda unit: (busy[unit], -unit))
        rest = {unit: share for unit, share in busy.items() if unit != gone}
        # What is idle now may not stay so, and should not all go to one unit.
        each = max(busy[gone], self._consumer) / len(pieces[gone])
        given = []
        for _, piece in sorted(pieces[gone].items()):
            taker = min(rest, key=lambda unit: (rest[unit], unit))
            rest[taker] += each
            given.append((piece, taker))
        worst = max(rest.values())
        if self._headroom is not None and worst > self._headroom * self._supplier:
            found.say(f"without unit {gone} another one would come to {worst:.2f}")
            return
        found.say(f"no supplier: unit {gone} gives its {len(given)} partition-groups to the others")
        for piece, taker in given:
            found.give(piece, taker)


@dataclass
class _Reorganisation:
    """What becomes of one stage."""

    why: str
    leaning: str = ""
    given: list[tuple[Piece, int]] = field(default_factory=list)

    def say(self, more: str) -> None:
        self.why += f"; {more}"

    def give(self, piece: Piece, to: int) -> None:
        self.given.append((piece, to))

    def moves(self, join: int | None, stage: int | None) -> Iterator[Move]:
        """One for each unit that takes something; for each stream if these lie differently."""
        chosen: dict[tuple[int, str | None], list[int]] = {}
        for piece, to in self.given:
            everything = list(piece.values())
            alike = all(groups == everything[0] for groups in everything)
            named = [(None, everything[0])] if alike else piece.items()
            for stream, groups in named:
                if groups:
                    chosen.setdefault((to, stream), []).extend(groups)
        for (to, stream), groups in chosen.items():
            yield Move(groups=tuple(groups), to=to, stream=stream, join=join, stage=stage)


def _pieces(holdings: Sequence[Holding], count: int) -> dict[int, dict[int, Piece]]:
    """What each unit holds of each partition-group, for every stream."""
    found: dict[int, dict[int, dict[str, list[int]]]] = {}
    for holding in holdings:
        total = holding.runs[-1][1] + 1
        for first, last, unit in holding.runs:
            mine = found.setdefault(unit, {})
            for group in range(first, last + 1):
                number = group * count // total
                piece = mine.setdefault(number, {one.stream: [] for one in holdings})
                piece[holding.stream].append(group)
    return {unit: dict(mine) for unit, mine in found.items()}


def _classes(busy: Mapping[int, float], suppliers: Sequence[int], consumers: Sequence[int]) -> str:
    neutral = [unit for unit in busy if unit not in suppliers and unit not in consumers]
    classes = (("supplier", suppliers), ("neutral", neutral), ("consumer", consumers))
    return ", ".join(
        f"{name}{'s' if len(units) > 1 and name != 'neutral' else ''} "
        + ", ".join(f"{unit} ({busy[unit]:.3f})" for unit in units)
        for name, units in classes
        if units
    )


def _listed(units: Iterable[int]) -> str:
    return ", ".join(f"unit {unit}" for unit in units)
