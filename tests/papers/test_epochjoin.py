"""The figures of the Epoch join: quick forms, and the arithmetic behind them."""

from __future__ import annotations

import math

import pytest

from thetastream.papers.epochjoin import PAPER, communication, rates, setting
from thetastream.papers.figure import Figure

BY_NAME = {figure.name: figure for figure in PAPER.figures}


@pytest.mark.parametrize("figure", PAPER.figures, ids=BY_NAME)
def test_the_quick_form_agrees_with_the_paper(figure: Figure) -> None:
    outcome = figure.run(True)
    assert outcome.findings
    assert outcome.series
    assert all(len(points) for points in outcome.series.values())
    assert [one.claim for one in outcome.findings if not one.holds] == []


def test_all_figures_of_the_paper_are_there() -> None:
    numbers = [f"epoch-{number}" for number in range(5, 15)]
    assert list(BY_NAME) == [*numbers, "epoch-buffer", "epoch-rebalance"]
    assert all(figure.paper == PAPER.name for figure in PAPER.figures)


@pytest.mark.parametrize("scale", [setting.FULL, setting.QUICK])
def test_slaves_are_as_busy_as_at_full_scale(scale: setting.Scale) -> None:
    """Comparisons per second times their cost, for every scale."""
    rate, groups = 4000.0, 60

    def load(of: setting.Scale) -> float:
        arriving = rate / of.rate
        return arriving * (arriving * of.window / groups) * of.cpu.comparison

    one = setting.Scale(1.0, 1.0)
    assert load(scale) == pytest.approx(load(one))
    assert scale.cpu.row / scale.rate == pytest.approx(one.cpu.row)
    sent = rate / scale.rate / scale.network().bandwidth
    assert sent == pytest.approx(rate / one.network().bandwidth)


def test_theta_is_shared_by_the_streams() -> None:
    assert setting.Scale(1.0, 1.0).theta == 768 * 1024
    assert setting.FULL.theta * 64 == 768 * 1024


def test_the_rate_that_splits() -> None:
    """Two streams of 64 bytes in 600 s, in 60 partition-groups, fill 2θ."""
    rate = rates.split_rate(1)
    assert 2 * rate * 64 * 600 / 60 == pytest.approx(2 * 1.5 * 1024**2)
    assert rates.split_rate(4) == pytest.approx(4 * rate)


def test_the_buffer_is_the_sum_over_the_sub_groups() -> None:
    """Each sub-group's share has been collected for a different part of the epoch."""
    rate, epoch = 1500.0, 2.0
    for groups in (1, 2, 4, 8, 1000):
        waits = (epoch - epoch / groups * number for number in range(groups))
        total = sum(rate / groups * wait for wait in waits)
        assert communication.buffer(rate, epoch, groups) == pytest.approx(total)
    assert communication.buffer(rate, epoch, 1000) == pytest.approx(rate * epoch / 2, rel=0.002)


def test_growth_is_the_power_of_the_rate() -> None:
    assert rates.growth([(1, 3), (2, 12)]) == pytest.approx(2)
    assert rates.growth([(10, 3), (20, 99), (40, 12)]) == pytest.approx(1)


def test_overload_begins_where_the_delay_has_doubled() -> None:
    assert rates.overloaded([(1, 1.0), (2, 1.9), (3, 2.1), (4, 1.0)]) == 3
    assert math.isinf(rates.overloaded([(1, 1.0), (2, 1.9)]))


def test_a_straight_line_explains_itself() -> None:
    assert communication.explained([(1, 3), (2, 5), (3, 7)]) == pytest.approx(1)
    assert communication.explained([(1, 3), (2, 9), (3, 3)]) == pytest.approx(0, abs=1e-9)


def test_a_backlog_counts_as_often_as_the_run_is_shortened() -> None:
    """Four slaves without fine tuning at 4,000 tuples/s fall behind by the load beyond 1."""
    found = setting.run(4, 4000, "none", quick=True)
    load = setting.mean(found.cpu) / setting.WINDOW
    assert load > 1
    last = max(found.trace.turns, key=lambda turn: turn.closed)
    behind = (last.start - last.arrived) * found.scale.time
    # It also fell behind before, while the windows were filled: by at least nothing, and at most as
    # much as if they had been full for half of that time.
    assert (load - 1) * setting.WINDOW * 0.6 < behind < (load - 1) * setting.WINDOW * 1.5
    assert setting.mean(found.idle) == 0


def test_what_a_run_measures_is_of_ten_minutes() -> None:
    """Also where the epochs that count are longer than a window."""
    found = setting.run(4, setting.RATE, quick=True, epoch=4.0)
    assert found.counted == 12
    one = setting.run(4, setting.RATE, quick=True, epoch=1.0)
    assert one.counted == 10
    assert setting.mean(found.cpu) == pytest.approx(setting.mean(one.cpu), rel=0.3)
    for measured in (found, one):
        spent = zip(measured.cpu, measured.communication, measured.idle, strict=True)
        assert all(sum(parts) == pytest.approx(setting.WINDOW) for parts in spent)
