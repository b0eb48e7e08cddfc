"""Suppliers, consumers and the degree of declustering, on reports that a reader can check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.steering.histories import batches
from tests.steering.test_steps import all_heard, first, planned
from thetastream.errors import OptionError
from thetastream.index.hashing import dealt, scaled
from thetastream.options import JoinOptions
from thetastream.spec import JoinTree
from thetastream.steering.edits import Edit, Move, Moves, Scale, edit_from_json, edit_to_json
from thetastream.steering.policy import Holding, Load, Moment, Usage, Verdict, holdings_of
from thetastream.steering.rebalance import Rebalance
from thetastream.steering.scaling import TwoPhaseScaling
from thetastream.steering.steps import advance
from thetastream.steering.targets import start
from thetastream.steering.version import Note, Version
from thetastream.testing import Batch, InProcessJoin, expected_rows, multiset
from thetastream.testing.inprocess import rows_in
from thetastream.testing.steered import Steering

GROUPS = 5040
EPOCH = 20.0
TIME = {"r": "t", "s": "t"}


def even(units: int) -> tuple[tuple[int, int, int], ...]:
    """The groups in equal runs."""
    size = GROUPS // max(units, 1)
    return tuple((unit * size, (unit + 1) * size - 1, unit) for unit in range(units))


def moment(occupancy: dict[int, float], *, max_units: int = 8, **more: Any) -> Moment:
    """Units that hold both streams and were busy for that share of an epoch."""
    usages = tuple(
        Usage(join=0, stage=0, unit=unit, batches=10, seconds=EPOCH, busy=share * EPOCH)
        for unit, share in occupancy.items()
    )
    units = tuple(occupancy)
    holdings = tuple(
        Holding(stream=name, join=0, stage=0, units=units, runs=even(len(units))) for name in "rs"
    )
    given: dict[str, Any] = {"usages": usages, "holdings": holdings, "max_units": max_units}
    return Moment(**{"at": 0.0, "batch": 1, "interval": 2.0, "loads": (), **given, **more})


def pairs(verdict: Verdict, units: int) -> list[tuple[int, int]]:
    """Who gives a partition-group to whom, if the groups were in equal runs before."""
    if verdict.edit is None:
        return []
    assert isinstance(verdict.edit, Moves)
    assert verdict.edit.drain == "move"
    found = []
    for move in verdict.edit.moves:
        givers = {group * units // GROUPS for group in move.groups}
        assert len(givers) == 1
        assert move.stream is None
        # One partition-group: 84 groups that follow each other.
        assert len(move.groups) == 84
        assert move.groups == tuple(range(move.groups[0], move.groups[0] + 84))
        assert move.groups[0] % 84 == 0
        found.append((givers.pop(), move.to))
    return found


@pytest.mark.parametrize(
    ("occupancy", "moved"),
    [
        # Above 0.5 supplier, below 0.01 consumer.
        ([0.8, 0.2, 0.0, 0.3], [(0, 2)]),
        ([0.8, 0.2, 0.005, 0.0], [(0, 2)]),
        # Two suppliers, two consumers: each has one of its own, in the order of the units.
        ([0.0, 0.9, 0.6, 0.0], [(1, 0), (2, 3)]),
        # Fewer consumers than suppliers.
        ([0.9, 0.6, 0.7, 0.0], [(0, 3)]),
        # The thresholds themselves are neutral.
        ([0.5, 0.01, 0.2, 0.3], []),
        # Nobody takes, nobody gives.
        ([0.9, 0.9, 0.2, 0.3], []),
        ([0.5, 0.0, 0.0, 0.3], []),
    ],
)
def test_one_group_of_each_supplier_to_one_consumer(
    occupancy: list[float], moved: list[tuple[int, int]]
) -> None:
    verdict = Rebalance(declustering=False).decide(moment(dict(enumerate(occupancy))), [])
    assert pairs(verdict, len(occupancy)) == moved


@pytest.mark.parametrize(
    ("occupancy", "beta", "moved"),
    [
        # 1 > 0.5 · 1: unit 3 is added, and takes part as the first consumer.
        ([0.8, 0.2, 0.0], 0.5, [(0, 3)]),
        # 1 > 0.5 · 2 is not true.
        ([0.8, 0.0, 0.0], 0.5, [(0, 1)]),
        # 1 > 0.4 · 2.
        ([0.8, 0.0, 0.0], 0.4, [(0, 3)]),
        # 2 > 0.9 · 1: the other consumer takes from the second supplier.
        ([0.8, 0.9, 0.0], 0.9, [(0, 3), (1, 2)]),
        # 1 > 0.5 · 0, and 3 > 0.5 · 0.
        ([0.8, 0.2, 0.2], 0.5, [(0, 3)]),
        ([0.8, 0.8, 0.8], 0.5, [(0, 3)]),
    ],
)
def test_more_suppliers_than_beta_times_the_consumers(
    occupancy: list[float], beta: float, moved: list[tuple[int, int]]
) -> None:
    verdict = Rebalance(beta=beta).decide(moment(dict(enumerate(occupancy))), [])
    assert pairs(verdict, 3) == moved
    assert ("unit 3 is added" in verdict.why) == ((0, 3) in moved)


def test_never_more_units_than_there_may_be() -> None:
    now = moment({0: 0.8, 1: 0.2, 2: 0.0}, max_units=3)
    verdict = Rebalance().decide(now, [])
    assert pairs(verdict, 3) == [(0, 2)]
    assert "there can be no more than 3 units" in verdict.why
    assert pairs(Rebalance(most=3).decide(replace(now, max_units=8), []), 3) == [(0, 2)]
    alone = Rebalance().decide(moment({0: 0.9, 1: 0.9}, max_units=2), [])
    assert alone.edit is None
    assert "nobody can take anything" in alone.why


def test_without_a_supplier_the_least_busy_unit_gives_all_it_has() -> None:
    """Units 0 and 1 are as busy, so they take turns; unit 3 is busier and gets nothing."""
    verdict = Rebalance().decide(moment({0: 0.1, 1: 0.1, 2: 0.05, 3: 0.3}), [])
    assert isinstance(verdict.edit, Moves)
    gone = set(range(2520, 3780))
    taken = {move.to: set(move.groups) for move in verdict.edit.moves}
    assert set.union(*taken.values()) == gone
    assert {unit: len(groups) for unit, groups in taken.items()} == {0: 8 * 84, 1: 7 * 84}
    assert "unit 2 gives its 15 partition-groups to the others" in verdict.why


@pytest.mark.parametrize(
    ("occupancy", "options", "says"),
    [
        # 0.4 + 0.4 is above 0.9 · 0.5: one unit would be a supplier, and one be added again.
        ({0: 0.4, 1: 0.4}, {}, "without unit 1 another one would come to 0.80"),
        ({0: 0.2, 1: 0.2}, {"least": 2}, ""),
        ({0: 0.2, 1: 0.2}, {"declustering": False}, ""),
        ({0: 0.2, 1: 0.2}, {"patience": 2}, "no supplier, 1 of 2 times in a row"),
        ({0: 0.0}, {}, ""),
    ],
)
def test_when_a_unit_stays(occupancy: dict[int, float], options: dict[str, Any], says: str) -> None:
    verdict = Rebalance(**options).decide(moment(occupancy), [])
    assert verdict.edit is None
    assert says in verdict.why


def test_without_headroom_the_rule_is_the_papers() -> None:
    plain, now = Rebalance(headroom=None), moment({0: 0.4, 1: 0.4})
    verdict = plain.decide(now, [])
    assert isinstance(verdict.edit, Moves)
    assert verdict.edit.moves == (Move(groups=tuple(range(2520, 5040)), to=0),)


def test_patience_counts_epochs_without_a_supplier() -> None:
    policy, low = Rebalance(patience=3), moment({0: 0.1, 1: 0.1})
    high = moment({0: 0.6, 1: 0.0}, max_units=2)
    earlier: list[Verdict] = []
    found = []
    for now in (low, low, high, low, low, low):
        verdict = policy.decide(now, earlier)
        earlier.append(verdict)
        found.append(verdict.edit is not None)
    assert found == [False, False, True, False, False, True]


def test_the_first_unit_is_not_the_one_to_go() -> None:
    verdict = Rebalance().decide(moment({0: 0.0, 1: 0.2}), [])
    assert "unit 1 gives" in verdict.why


def test_a_supplier_keeps_its_only_partition_group() -> None:
    runs = ((0, 83, 0), (84, 5039, 1))
    now = moment({0: 0.9, 1: 0.0})
    now = replace(now, holdings=tuple(replace(one, runs=runs) for one in now.holdings))
    verdict = Rebalance().decide(now, [])
    assert verdict.edit is None
    assert "unit 0 keeps its only partition-group" in verdict.why


def test_what_a_unit_holds_of_a_partition_group_moves_for_each_stream() -> None:
    """Unit 0 holds groups 0 to 99 of r and 0 to 49 of s: a piece of the second partition-group."""
    now = moment({0: 0.9, 1: 0.0})
    r, s = now.holdings
    now = replace(
        now,
        holdings=(
            replace(r, runs=((0, 99, 0), (100, 5039, 1))),
            replace(s, runs=((0, 49, 0), (50, 5039, 1))),
        ),
    )
    seen = set()
    for batch in range(20):
        edit = Rebalance(declustering=False).decide(replace(now, batch=batch), []).edit
        assert isinstance(edit, Moves)
        seen.add(tuple((move.stream, move.groups[0], move.groups[-1]) for move in edit.moves))
    assert seen == {(("r", 0, 83), ("s", 0, 49)), (("r", 84, 99),)}


def test_the_choice_is_random_and_repeats_itself() -> None:
    now = moment({0: 0.8, 1: 0.0})
    policy = Rebalance(declustering=False)
    assert policy.decide(now, []) == policy.decide(now, [])
    chosen = {
        edit.moves[0].groups[0] // 84
        for batch in range(200)
        if isinstance(edit := policy.decide(replace(now, batch=batch), []).edit, Moves)
    }
    assert chosen == set(range(30))
    other = Rebalance(declustering=False, seed=1)
    assert any(
        other.decide(replace(now, batch=batch), []) != policy.decide(replace(now, batch=batch), [])
        for batch in range(5)
    )


@pytest.mark.parametrize(
    ("occupancy", "moved"),
    [
        # The mean is 0.2: above 0.22 a unit gives, below 0.2 one takes; the busiest first.
        ([0.24, 0.36, 0.15, 0.05], [(1, 3), (0, 2)]),
        ([0.21, 0.19, 0.2, 0.2], []),
        # All are suppliers by the threshold, and still only what is uneven moves.
        ([0.9, 0.6, 0.7, 0.6], [(0, 3)]),
    ],
)
def test_balance_compares_with_the_mean(
    occupancy: list[float], moved: list[tuple[int, int]]
) -> None:
    policy = Rebalance(balance=1.1, declustering=False)
    assert pairs(policy.decide(moment(dict(enumerate(occupancy))), []), 4) == moved


def test_balance_gives_a_new_unit_its_first_group() -> None:
    occupancy = dict.fromkeys(range(12), 0.9)
    verdict = Rebalance(balance=1.2).decide(moment(occupancy, max_units=16), [])
    assert pairs(verdict, 12) == [(0, 12)]


def test_reports_that_are_missing_decide_nothing() -> None:
    whole = moment({0: 0.9, 1: 0.0, 2: 0.0})
    some = replace(whole, usages=whole.usages[:2])
    verdict = Rebalance().decide(some, [])
    assert (verdict.edit, verdict.why) == (None, "r and s: waiting for a report of unit 2")
    short = replace(whole, usages=tuple(replace(one, seconds=9.0) for one in whole.usages))
    verdict = Rebalance().decide(short, [])
    assert verdict.edit is None
    assert verdict.why == "r and s: waiting, the reports cover 9.0 s of an epoch of 20 s"


@pytest.mark.parametrize("name", ["contrand", "random", "random, full history"])
def test_topologies_that_spread_what_comes_with_a_key(name: str) -> None:
    tree = planned(name, 2)
    holdings = holdings_of(first(tree), tree)
    units = {unit for one in holdings for unit in one.units}
    now = replace(moment({unit: 0.9 - unit for unit in units}), holdings=holdings)
    verdict = Rebalance().decide(now, [])
    assert verdict.edit is None
    assert f"topology {name.split(',')[0]!r}" in verdict.why


def test_the_joins_of_a_tree_are_balanced_by_themselves() -> None:
    tree = planned("tree", 2)
    holdings = holdings_of(first(tree), tree)
    occupancy = {(0, 0): 0.3, (0, 1): 0.3, (1, 0): 0.0, (1, 1): 0.8}
    usages = tuple(
        Usage(join=join, stage=0, unit=unit, batches=1, seconds=EPOCH, busy=share * EPOCH)
        for (join, unit), share in occupancy.items()
    )
    now = moment({}, holdings=holdings, usages=usages, max_units=2)
    edit = Rebalance(headroom=0.5).decide(now, []).edit
    assert isinstance(edit, Moves)
    assert [(move.join, move.stage, move.to, move.stream) for move in edit.moves] == [
        (1, 0, 0, None)
    ]
    assert start(first(tree), edit, tree, Note(), 0.0) is not None


def test_the_edit_goes_through_json() -> None:
    edit = Rebalance().decide(moment({0: 0.9, 1: 0.6, 2: 0.0}), []).edit
    assert edit is not None
    assert edit_from_json(edit_to_json(edit)) == edit
    assert str(edit).endswith("to unit 2, drain=move")


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"consumer": 0.6}, "0 <= consumer < supplier < 1"),
        ({"consumer": 0.5}, "0 <= consumer < supplier < 1"),
        ({"consumer": -0.1}, "0 <= consumer < supplier < 1"),
        ({"supplier": 1.0}, "0 <= consumer < supplier < 1"),
        ({"supplier": float("nan")}, "0 <= consumer < supplier < 1"),
        ({"beta": 0.0}, "between 0 and 1"),
        ({"beta": 1.0}, "between 0 and 1"),
        ({"beta": -1}, "between 0 and 1"),
        ({"groups": 0}, "from 1 to 5040"),
        ({"groups": 5041}, "from 1 to 5040"),
        ({"every": -1.0}, "20.0"),
        ({"patience": 0}, "at least 1"),
        ({"least": 0}, "at least 1"),
        ({"least": 3, "most": 2}, "not below least"),
        ({"headroom": 0}, "above 0"),
        ({"headroom": 1.5}, "up to 1"),
        ({"balance": 1.0}, "1.1"),
        ({"drain": "never"}, "auto, expire, move"),
    ],
)
def test_bad_input_is_refused_with_what_is_possible(wrong: dict[str, Any], hint: str) -> None:
    with pytest.raises(OptionError) as caught:
        Rebalance(**wrong)
    assert hint in caught.value.hint


# -- a cluster that is nothing but numbers ----------------------------------------------------


def b_model(levels: int, bias: float, random: np.random.Generator) -> Any:
    """The shares of 2^levels keys: each half of a range has `bias` of it or the rest."""
    shares = np.ones(1)
    for _ in range(levels):
        left = np.where(random.random(len(shares)) < 0.5, bias, 1 - bias) * shares
        shares = np.column_stack([left, shares - left]).ravel()
    return shares


def carried_out(version: Version, edit: Edit, tree: JoinTree) -> Version:
    following = start(version, edit, tree, Note(change=version.note.change + 1), 0.0)
    while following is not None:
        version = following
        following = advance(version, all_heard(version), tree, 0.0)
    return version


def epochs(policy: Rebalance, shares: Any, used: float, units: int, count: int) -> list[float]:
    """The busiest unit over the mean, before each of so many epochs and after the last one."""
    tree = planned("hash", units)
    version = first(tree, max_units=2 * units)
    found = []
    for batch in range(count + 1):
        held = version.joins[0].stages[0][0].holders
        busy = np.bincount(held.firsts(np.arange(GROUPS)), weights=shares) * used
        usages = tuple(
            Usage(join=0, stage=0, unit=unit, batches=1, seconds=EPOCH, busy=busy[unit] * EPOCH)
            for unit in held.everywhere
        )
        mine = [one.occupancy for one in usages]
        found.append(max(mine) / (sum(mine) / len(mine)))
        now = moment({}, holdings=holdings_of(version, tree), usages=usages, batch=batch)
        edit = policy.decide(now, []).edit
        if edit is not None:
            version = carried_out(version, edit, tree)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_balance_evens_out_the_b_model(seed: int) -> None:
    """Rows of 2^12 keys with a bias of 0.7, on eight units that are all neutral."""
    random = np.random.default_rng(seed)
    keys = random.permutation(1 << 12).astype(np.int64)
    groups = scaled(dealt(keys), GROUPS)
    shares = np.bincount(groups, weights=b_model(12, 0.7, random), minlength=GROUPS)
    policy = Rebalance(balance=1.1, declustering=False)
    found = epochs(policy, shares, used=1.0, units=8, count=10)
    assert found[-1] <= 1.25
    assert found[-1] <= found[0]
    # The thresholds alone leave neutral units as they are.
    plain = epochs(Rebalance(declustering=False), shares, used=1.0, units=8, count=1)
    assert plain[1] == plain[0]


def test_the_degree_settles_for_a_load_that_stays() -> None:
    """A load of 1.2 units, evenly spread: three units share it, and it stays at that."""
    tree = planned("hash", 1)
    version = first(tree, max_units=8)
    policy = Rebalance(balance=1.1)
    seen = []
    for batch in range(40):
        held = version.joins[0].stages[0][0].holders
        counts = np.bincount(held.firsts(np.arange(GROUPS)))
        usages = tuple(
            Usage(
                join=0, stage=0, unit=unit, batches=1, seconds=10.0, busy=12 * counts[unit] / GROUPS
            )
            for unit in held.everywhere
        )
        now = moment({}, holdings=holdings_of(version, tree), usages=usages, batch=batch)
        edit = policy.decide(replace(now, max_units=8), []).edit
        if edit is not None:
            version = carried_out(version, edit, tree)
        seen.append(len(version.joins[0].active(0)))
    assert seen[:3] == [2, 3, 3]
    assert set(seen[3:]) == {3}


# -- with the loop and real units -------------------------------------------------------------


def skewed(step: Batch, random: np.random.Generator) -> Batch:
    """Keys of which many are in the first groups."""
    tables = []
    for table in step.tables:
        keys = random.integers(0, 400, table.num_rows)
        hot = scaled(dealt(keys.astype(np.int64)), GROUPS) < GROUPS // 2
        keys = np.where(hot | (random.random(len(keys)) < 0.2), keys, 0)
        keys = np.where(keys == 0, random.choice(HOT, len(keys)), keys)
        column = pa.array(keys, pa.int32())
        tables.append(table.set_column(1, table.schema.field(1), column))
    return Batch(*tables, watermark=step.watermark)


HOT = np.flatnonzero(scaled(dealt(np.arange(400, dtype=np.int64)), GROUPS) < GROUPS // 2)


@pytest.mark.parametrize("seed", range(2))
def test_a_skewed_load_is_evened_out_and_no_row_is_lost(seed: int) -> None:
    random = np.random.default_rng(seed)
    script = [skewed(step, random) for step in batches(random, 2, 70, 120)]
    join = InProcessJoin(
        "r.k = s.k",
        [table.schema for table in script[0].tables],
        within="12 seconds",
        time=TIME,
        options=JoinOptions(units=2),
    )
    # A row costs 10 ms; a batch comes every 10 seconds.
    live = Steering(join, max_units=2, cpu=lambda report: 0.01 * report.rows_in)
    policy = Rebalance(balance=1.1, declustering=False, every=20.0)
    live.manage(policy)
    found: list[Any] = []
    for number, step in enumerate(script):
        if number in (17, 40):
            live.running.restart()
        if number == 30:
            live.replace_loop()
            live.manage(policy)
        losing = number % 9 == 4
        table = live.batch(
            step, crash=number % 11 == 5, lose=lambda report, on=losing: on and report.unit == 1
        )
        found.extend(rows_in(table))
        assert not live.loop.problem
    expected = expected_rows("r.k = s.k", script, within="12 seconds", time=TIME)
    assert multiset(found) == multiset(expected)
    samples = [dict(map(_busy, one["units"])) for one in live.directory.status()["samples"]]
    assert _imbalance(samples[:5]) > 1.5
    assert _imbalance(samples[-10:]) < 1.25
    changes = {one.note.change: one.note for one in live.loop.tables.history() if one.note.change}
    assert len(changes) >= 3
    assert {note.by for note in changes.values()} == {"rebalance"}
    assert {note.what["kind"] for note in changes.values()} == {"moves"}


def _busy(sample: list[float]) -> tuple[int, float]:
    return int(sample[2]), sample[3]


def _imbalance(samples: list[dict[int, float]]) -> float:
    total = [sum(one.get(unit, 0.0) for one in samples) for unit in (0, 1)]
    return max(total) / (sum(total) / len(total))


class Listening:
    """A policy that takes notes and changes nothing."""

    name = "listening"
    every = 30.0

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.earlier: list[int] = []

    def decide(self, moment: Moment, earlier: Any) -> Verdict:
        self.moments.append(moment)
        self.earlier.append(len(earlier))
        return Verdict(why="listening")


def little(units: int = 2) -> tuple[Steering, list[Batch]]:
    script = batches(np.random.default_rng(7), 2, 40, 10)
    schemas = [table.schema for table in script[0].tables]
    join = InProcessJoin(
        "r.k = s.k", schemas, within="12 seconds", time=TIME, options=JoinOptions(units=units)
    )
    return Steering(join, max_units=4, cpu=lambda report: 1.0 + report.unit), script


def test_a_policy_hears_of_all_batches_since_it_was_asked() -> None:
    live, script = little()
    policy = Listening()
    live.manage(policy)
    for number, step in enumerate(script[:8]):
        live.batch(step, lose=lambda report, on=number == 2: on and report.unit == 1)
    # The first batch took its second; then it is asked every third batch, of 10 s each.
    usages = [{one.unit: (one.batches, one.busy) for one in now.usages} for now in policy.moments]
    assert usages == [
        {0: (1, 1.0), 1: (1, 2.0)},
        {0: (3, 3.0), 1: (2, 4.0)},
        {0: (3, 3.0), 1: (3, 6.0)},
    ]
    last = {one.unit: one.occupancy for one in policy.moments[-1].usages}
    assert last == {0: 0.1, 1: 0.2}


def test_what_was_before_a_change_does_not_count_after_it() -> None:
    live, script = little()
    policy = Listening()
    left = iter(script)
    live.batch(next(left))
    live.manage(policy)
    live.ask(Move(groups=(0,), to=1, drain="move"))
    for _ in range(2):
        live.batch(next(left))
    asked = len(policy.moments)
    live.settle(lambda: next(left))
    live.batch(next(left))
    assert len(policy.moments) == asked + 1
    assert [one.batches for one in policy.moments[-1].usages] == [1, 1]
    # Groups that somebody else has moved are no reason to count anew; other units are.
    assert policy.earlier[-1] == asked
    live.ask(Scale(units=3))
    live.batch(next(left))
    live.settle(lambda: next(left))
    live.batch(next(left))
    assert policy.earlier[-1] == 0


def test_two_policies_that_scale_are_refused() -> None:
    live, _ = little()
    scaling = TwoPhaseScaling(measure="cpu")
    with pytest.raises(OptionError, match="'two-phase scaling' and 'rebalance' both") as caught:
        live.manage(scaling, Rebalance())
    assert "declustering=False" in caught.value.hint
    live.manage(scaling)
    with pytest.raises(OptionError, match="both decide how many units"):
        live.manage(Rebalance())
    live.manage(Rebalance(declustering=False))


def test_beside_two_phase_scaling_and_changes_by_hand() -> None:
    """Moves between the same units do not keep 2PS from its three equal decisions in a row."""
    script = batches(np.random.default_rng(3), 2, 60, 30)
    schemas = [table.schema for table in script[0].tables]
    join = InProcessJoin(
        "r.k = s.k", schemas, within="12 seconds", time=TIME, options=JoinOptions(units=2)
    )
    live = Steering(join, max_units=4, cpu=lambda report: 9.9 if report.unit == 0 else 8.0)
    live.manage(
        Rebalance(balance=1.05, declustering=False),
        TwoPhaseScaling(measure="cpu", patience=3, every=10.0, most=3),
    )
    found: list[Any] = []
    for number, step in enumerate(script):
        if number == 30:
            live.ask(Scale(units=4, drain="move"))
        found.extend(rows_in(live.batch(step)))
    notes = {one.note.change: one.note for one in live.loop.tables.history() if one.note.change}
    assert {note.by for note in notes.values()} == {"rebalance", "two-phase scaling", "hand"}
    expected = expected_rows("r.k = s.k", script, within="12 seconds", time=TIME)
    assert multiset(found) == multiset(expected)


def test_a_three_way_join_is_refused_by_name() -> None:
    script = batches(np.random.default_rng(3), 3, 6, 10)
    schemas = [table.schema for table in script[0].tables]
    time = dict.fromkeys("rst", "t")
    join = InProcessJoin(
        "r.k = s.k AND s.k = t.k",
        schemas,
        within="12 seconds",
        time=time,
        options=JoinOptions(units=2),
    )
    live = Steering(join, max_units=2, cpu=lambda report: 8.0 if report.unit else 0.0)
    policy = Rebalance()
    live.manage(policy)
    for step in script:
        live.batch(step)
    assert live.version.version == 0
    said = [one.why for one in live.loop.decisions(policy)]
    assert any("cannot be carried over" in why and 'drain="expire"' in why for why in said)


def test_a_moment_without_usages_has_those_of_its_batch() -> None:
    load = Load(join=0, stage=0, unit=1, busy=3.0)
    now = moment({}, usages=(), loads=(load,), interval=4.0)
    assert now.usage(0, 0)[1].occupancy == 0.75
