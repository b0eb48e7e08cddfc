"""BiStream's figures run in their quick form; what needs no scale holds there, too."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from thetastream.papers import record
from thetastream.papers.bistream import PAPER, data, network, scaling, settings, speed
from thetastream.papers.figure import Figure, Outcome
from thetastream.simulator import Trace, Turn

HOLD: dict[str, tuple[str, ...]] = {
    "bistream-6a": ("Q7: JB16 takes", "Band: JM16"),
    "bistream-6b": ("after one window", "the longer the window"),
    "bistream-7": ("JB16-CR8 is the fastest", "JM16 is the first"),
    "bistream-8": ("Q5 at 10 GB: content-sensitive", "Q5 at 80 GB: JM16 is far behind"),
    "bistream-9": ("Q5: mean latencies",),
    "bistream-10": ("biclique, four times", "matrix, four times", "16 units"),
    "bistream-11": ("JB8 with random", "content-sensitive", "equations 5 and 6"),
    "bistream-12": ("units are added", "no tuple is moved"),
    "bistream-13": ("Q5: nearly the same",),
    "bistream-14": ("Q5: views",),
    "bistream-15": ("biclique, four times", "matrix, four times", "16 units"),
    "bistream-16": ("biclique, four times", "matrix, four times", "16 units"),
    "bistream-17": ("a biclique's largest volume",),
    "bistream-18": ("JB8 with random", "content-sensitive", "equations 5 and 6"),
    "bistream-19": ("JB8 with random", "content-sensitive", "equations 5 and 6"),
    "bistream-table-4": ("twice the units",),
    "bistream-equations": ("equation 1", "equation 2", "equations 3 and 4", "a new unit"),
}
"""The claims, by their beginnings, that hold in the quick form of each figure."""


def test_every_figure_has_expectations() -> None:
    assert {figure.name for figure in PAPER.figures} == set(HOLD)


@pytest.mark.parametrize("figure", PAPER.figures, ids=lambda figure: figure.name)
def test_quick_form(figure: Figure) -> None:
    outcome: Outcome = figure.run(True)
    assert outcome.findings
    assert outcome.series
    assert all(points for points in outcome.series.values())
    for beginning in HOLD[figure.name]:
        meant = [one for one in outcome.findings if one.claim.startswith(beginning)]
        assert meant, beginning
        assert all(one.holds for one in meant), [one.found for one in meant]
    kept = record.record(figure, outcome, seconds=1.0, quick=True)
    json.dumps(kept, allow_nan=False)
    assert figure.setting in record.text(figure, outcome)


@pytest.mark.parametrize("query", data.QUERIES)
def test_both_streams_have_the_same_bytes_per_second(query: str) -> None:
    both = data.streams(query, 1000)
    left, right = both.rates(500.0)
    assert left + right == pytest.approx(500.0)
    assert left * data.tuple_bytes(both.r) == pytest.approx(right * data.tuple_bytes(both.s))


@pytest.mark.parametrize(("query", "share"), [("Q5", 0.2), ("Q7", 0.08)])
def test_a_line_meets_its_supplier_as_often_as_in_the_benchmark(query: str, share: float) -> None:
    both = data.streams(query, 20_000)
    suppliers = both.r["s_suppkey"].to_numpy()
    assert len(set(suppliers)) == len(suppliers)
    met = np.isin(both.s["l_suppkey"].to_numpy(), suppliers)
    assert met.mean() == pytest.approx(share, rel=0.1)


def test_a_line_meets_as_many_lines_as_in_the_benchmark() -> None:
    both = data.streams("Band", 20_000)
    few = np.sort(both.r["l_orderkey"].to_numpy())
    many = both.s["l_orderkey"].to_numpy()
    met = np.searchsorted(few, many + 1, "right") - np.searchsorted(few, many - 1, "left")
    # 10,485 results of 150,000 lines without an instruction at scale factor 0.1.
    assert met.mean() == pytest.approx(0.07, rel=0.25)


def test_order_keys_are_the_first_8_of_32() -> None:
    keys = data.order_keys(np.random.default_rng(1), 5000)
    assert set((keys - 1) % 32) == set(range(8))


@pytest.mark.parametrize(("m", "n", "d", "e"), [(4, 4, 1, 1), (4, 4, 4, 4), (6, 2, 3, 1)])
def test_equation_5_is_the_sum_over_the_units(m: int, n: int, d: int, e: int) -> None:
    r, s = 120.0, 80.0
    to_r = m * (r / d / (m / d) + s / d)
    to_s = n * (s / e / (n / e) + r / e)
    assert network.biclique_bandwidth((r, s), (m, n), (d, e)) == pytest.approx(to_r + to_s)


def test_random_routing_costs_both_streams_once_more_than_a_matrix() -> None:
    random = network.biclique_bandwidth((120.0, 80.0), (4, 4), (1, 1))
    assert random - network.matrix_bandwidth((120.0, 80.0), (4, 4)) == pytest.approx(200.0)


@pytest.mark.parametrize("units", [4, 8, 12])
@pytest.mark.parametrize("load", [0.2, 0.5, 0.83, 1.4])
def test_equation_7(units: int, load: float) -> None:
    change = (load / scaling.TARGET - 1) * units
    assert scaling.wanted(load, units) == units + math.ceil(change - 1e-9)


def test_settings_have_the_units_of_their_names() -> None:
    assert settings.Setting("JM16").side == 4
    assert settings.Setting("JB16").side == 8
    chosen = settings.Setting("JB16-CR4").options("Q5")
    assert (chosen.units, chosen.subgroups) == ((8, 8), (4, 4))
    assert settings.Setting("JB16-CR4").options("Band").topology == "band"


def test_crossing_is_between_the_points_around_it() -> None:
    assert settings.crossing([10.0, 20.0], [1.0, 3.0], 2.0) == pytest.approx(15.0)
    assert settings.crossing([10.0], [4.0], 2.0) == pytest.approx(5.0)
    assert settings.crossing([10.0], [1.0], 2.0) == math.inf


def test_another_disk_changes_the_waits_only() -> None:
    turn = Turn(join=0, stage=0, unit=0, tick=0, closed=1.0, cpu=3.0, disk=2.0)
    assert speed.with_disk(0.0)(turn) == pytest.approx(1.0)
    assert speed.with_disk(settings.DISK)(turn) == pytest.approx(3.0)
    assert speed.with_disk(2 * settings.DISK)(turn) == pytest.approx(5.0)


def test_average_is_that_of_the_busiest_unit() -> None:
    turns = [
        Turn(join=0, stage=0, unit=unit, tick=tick, closed=tick + 1.0, cpu=1.0 + unit)
        for tick in range(3)
        for unit in range(2)
    ]
    trace = Trace(epoch=1.0, seconds=3.0, turns=turns, arrived=[(1.0, 8), (2.0, 8), (3.0, 100)])
    assert speed.average(trace, 2, lambda turn: turn.cpu) == pytest.approx(16 / 4)
