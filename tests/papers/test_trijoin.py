"""TriJoin's figures in their quick form, and the arithmetic behind them."""

from dataclasses import replace

import pytest

from thetastream.papers.figure import Figure
from thetastream.papers.trijoin import PAPER
from thetastream.papers.trijoin.compare import lower
from thetastream.papers.trijoin.figures import waiting
from thetastream.papers.trijoin.packing import dense, entries, partners_for, saved
from thetastream.papers.trijoin.runs import (
    Setting,
    Wait,
    mean_delay,
    ready,
    run,
    simulation,
)
from thetastream.papers.trijoin.streams import Join, near, spots, tables

SMALL = Setting(join="cyclic", system="BiStream+Tree", instances=12, window=0.2, seconds=0.4)


@pytest.mark.parametrize("figure", PAPER.figures, ids=lambda figure: figure.name)
def test_a_figure_has_findings_and_lines(figure: Figure) -> None:
    outcome = figure.run(True)
    assert outcome.findings
    assert len(outcome.series) >= 2
    assert all(line for line in outcome.series.values())
    orders = [one for one in outcome.findings if "sooner" in one.claim or "longer" in one.claim]
    assert all(one.holds for one in orders)


def test_figures_are_those_of_the_paper() -> None:
    numbers = ["2", *map(str, range(10, 22))]
    assert [figure.name for figure in PAPER.figures] == [f"trijoin-{number}" for number in numbers]


@pytest.mark.parametrize("join", ["cyclic", "chain"])
def test_both_systems_have_the_same_results(join: Join) -> None:
    tree = replace(SMALL, join=join)
    trijoin = replace(tree, system="TriJoin")
    assert run(tree).results() == run(trijoin).results() > 100


@pytest.mark.parametrize(
    ("finished", "in_step", "apart", "arrival"),
    [(1.01, 1.1, 1.05, 1.01), (1.06, 1.1, 1.15, 1.06), (1.0, 1.0, 1.05, 1.0)],
)
def test_when_a_second_join_begins(
    finished: float, in_step: float, apart: float, arrival: float
) -> None:
    waits = (Wait.IN_STEP, Wait.APART, Wait.ARRIVAL)
    found = [ready(finished, 1.0, 0.1, wait) for wait in waits]
    assert found == pytest.approx([in_step, apart, arrival])


def test_another_rule_gives_what_a_run_by_it_gives() -> None:
    trace = simulation(SMALL, replace(SMALL.cluster, signalled=False)).run(SMALL.seconds)
    assert mean_delay(SMALL, Wait.ARRIVAL) == pytest.approx(trace.delay(SMALL.window + 1e-9))
    assert mean_delay(SMALL) == pytest.approx(run(SMALL).delay(SMALL.window + 1e-9))


def test_the_tree_waits_one_period_more_if_signals_are_in_step() -> None:
    gap = mean_delay(SMALL, Wait.IN_STEP) - mean_delay(SMALL, Wait.APART)
    assert gap == pytest.approx(SMALL.period / 2)
    _, waited, _ = waiting(SMALL, Wait.IN_STEP)
    assert waited == pytest.approx(SMALL.period)


def test_packs_that_wait_make_a_chain_slower_and_nothing_else() -> None:
    cyclic = replace(SMALL, system="TriJoin")
    assert mean_delay(cyclic, Wait.PACKS) == mean_delay(cyclic)
    chain = replace(cyclic, join="chain")
    assert 0 < mean_delay(chain, Wait.PACKS) - mean_delay(chain) < chain.period


@pytest.mark.parametrize("join", ["cyclic", "chain"])
def test_pairs_are_as_many_as_packs_hold(join: Join) -> None:
    packed, plain = (run(dense(join, 1.0, quick=True, packed=packed)) for packed in (True, False))
    assert entries(plain) == packed.by_tick(lambda turn: turn.pairs)
    assert all(entries(packed)[tick] <= pairs for tick, pairs in entries(plain).items())


def test_what_packs_save() -> None:
    assert saved(1e-6) == pytest.approx(0.0, abs=1e-3)
    assert saved(1.0) == pytest.approx(36.79, abs=0.01)
    assert saved(3.324) == pytest.approx(71.0, abs=0.01)
    assert partners_for(71.0, {1.0: 35.0, 3.0: 70.0, 4.0: 72.0}) == pytest.approx(3.5)


def test_by_how_much() -> None:
    assert lower([0.5], [1.5]) == pytest.approx(66.67, abs=0.01)
    # Of three results, one waits a period longer.
    assert lower([(0.5 + 0.5 + 1.5) / 3], [1.5]) == pytest.approx(44.44, abs=0.01)


def test_tuples_have_as_many_partners_as_asked_for() -> None:
    rows = tables("gps", spots(4000, 4.0))
    r, s = (table.column("i").to_numpy()[:4000] for table in rows[:2])
    partners = sum(int((abs(s - one) < 6).sum()) for one in r[:500]) / 500
    assert partners == pytest.approx(4.0, rel=0.1)
    assert near() == pytest.approx(0.456, abs=0.01)


def test_instances_are_divided_into_groups() -> None:
    assert replace(SMALL, instances=180).units == 45
    assert replace(SMALL, instances=180, system="TriJoin").units == 60
    with pytest.raises(ValueError, match="4 groups"):
        _ = replace(SMALL, instances=90).units
