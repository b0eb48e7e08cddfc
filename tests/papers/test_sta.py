"""The figures of STA: quick forms, and what must hold exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest

from thetastream.papers.sta import (
    PAPER,
    checkpoints,
    completeness,
    indexes,
    partitioning,
    setting,
    speed,
)
from thetastream.papers.sta.data import tables, zipf_keys
from thetastream.papers.sta.setting import COSTS, SYSTEMS, Element, Measures, Setting
from thetastream.simulator import Replayed

BY_NAME = {figure.name: figure for figure in PAPER.figures}
SHOWN = (5, 6, 11, 14, 18, 22, 23, 31, 32, 33, 34, 35)
"""One of each kind; the others are of the same functions, with other data, and run by
`make chaos`."""
HOLD = {5: 3, 6: 2, 32: 2, 33: 1, 34: 2, 35: 2}
"""Claims that hold in the quick form, of the figures that do not depend on the cluster."""


def test_all_figures_of_the_paper_are_there() -> None:
    numbers = [*(5, 6), *range(11, 32), "checkpoints", *range(32, 36)]
    assert list(BY_NAME) == [f"sta-{number}" for number in numbers]
    assert all(figure.paper == PAPER.name for figure in PAPER.figures)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=() if number in SHOWN else pytest.mark.chaos)
        for number in (5, 6, *range(11, 36))
    ],
)
def test_the_quick_form(number: int) -> None:
    outcome = BY_NAME[f"sta-{number}"].run(True)
    assert outcome.findings
    assert any(len(points) for points in outcome.series.values())
    for points in outcome.series.values():
        assert all(math.isfinite(y) for _, y in points)
    for one in outcome.findings:
        assert one.holds or one.why
    if number in HOLD:
        assert sum(one.holds for one in outcome.findings) == HOLD[number]


@pytest.mark.parametrize("data", ["taxi", "zipf 2.0"])
def test_all_systems_find_the_same_results(data: setting.Data) -> None:
    """As many as there are by definition, in the batches that count."""
    given = {"data": data, "elements": 3, "window": 50.0, "quick": True}
    found = {
        name: setting.trace_of(Setting(system=name, **given))  # type: ignore[arg-type]
        for name in SYSTEMS
    }
    rate, epoch = 500 / setting.RATE, 0.5
    rows = []
    for number, table in enumerate(tables(data)):
        stream = Replayed(table, rate)
        ticks = [
            stream.between(
                tick * epoch, (tick + 1) * epoch, np.random.default_rng((5, tick, number))
            )
            for tick in range(4)
        ]
        values = np.concatenate([one["v"].to_numpy() for one in ticks])
        times = np.concatenate([one["t"].to_numpy().astype("int64") for one in ticks])
        rows.append((values, times))
    (r, at), (s, when) = rows
    near = np.abs(at[:, None] - when[None, :]) <= 1_000_000
    wanted = int((near & (r[:, None] > s[None, :])).sum())
    assert wanted > 10_000
    for name, trace in found.items():
        assert sum(turn.results for turn in trace.turns) == wanted, name


def measures(system: str, *elements: Element, tuples: int = 100, delay: float = 2.0) -> Measures:
    """Of a run that was not made."""
    given = Setting(system=system, data="taxi", delay=delay)
    return Measures(given, tuples, tuple(elements))


def test_insertion_and_lookup_are_those_of_the_busiest_element() -> None:
    one = Element(stored=60, updates=60, lookups=100, compared=500, results=40)
    other = Element(stored=40, updates=80, lookups=100, compared=700, results=10)
    found = measures("CI", one, other)
    inserting = [60 * COSTS.row + 60 * COSTS.update, 40 * COSTS.row + 80 * COSTS.update]
    assert found.insertion == pytest.approx(100 / max(inserting))
    looking = [
        100 * COSTS.row + 500 * COSTS.comparison + 25 * 40 * COSTS.result,
        100 * COSTS.row + 700 * COSTS.comparison + 25 * 10 * COSTS.result,
    ]
    assert found.lookups == pytest.approx(100 / max(looking))
    both = max(a + b for a, b in zip(inserting, looking, strict=True))
    assert found.throughput == pytest.approx(100 / both)
    assert found.visited == 2
    assert found.largest_share == pytest.approx(0.8)
    # The predictor counts for STA only, the whole window for nested loops only.
    assert measures("STA", one, other).insertion < found.insertion
    assert measures("BCHJ", one, other).lookups < found.lookups


def test_a_lookup_waits_for_the_slowest_element_it_visits() -> None:
    light, heavy = Element(lookups=100, results=10), Element(lookups=100, results=1000)
    every, alone = measures("CI", light, heavy), measures("MCI", light, heavy)
    slow = (100 * COSTS.row + 25 * 1000 * COSTS.result) / 100
    busy = slow * 2 * 500
    fixed = 2 * setting.HOP
    assert every.latency == pytest.approx(
        fixed + slow * (1 + busy / 2 / (1 - busy)) + 2 * setting.GATHERING
    )
    assert alone.latency < every.latency
    assert every.utilisation == pytest.approx(busy)
    fast = measures("CI", light, heavy, delay=0.05)
    assert fast.utilisation > 1
    assert math.isinf(fast.latency)


def test_with_check_points_one_cold_element_finds_all_that_is_cold() -> None:
    cold = Element(lookups=100, compared=300, results=20)
    hot = Element(lookups=100, compared=100, results=30)
    found = measures("STA", cold, cold, cold, hot, hot, hot, hot)
    one = checkpoints.known(found.elements[:3])
    assert (one.lookups, one.compared, one.results) == (100, 300, 60)
    service = (100 * COSTS.row + 300 * COSTS.comparison + 25 * 60 * COSTS.result) / 100
    expected = setting.waiting(service, service * 2 * 500 / 3)
    assert checkpoints.aware(found) == pytest.approx(
        2 * setting.HOP + expected + 5 * setting.GATHERING
    )
    assert math.isinf(setting.waiting(1.0, 1.0))
    outcome = checkpoints.FIGURE.run(True)
    assert len(outcome.findings) == 6
    assert all(one.holds or one.why for one in outcome.findings)


def test_ratios_where_something_falls_behind() -> None:
    infinite = float("inf")
    assert speed.ahead(infinite, 1.0, "latency") == 0
    assert speed.ahead(infinite, infinite, "latency") == 1
    assert speed.ahead(2.0, 3.0, "latency") == 1.5
    assert speed.ahead(2.0, 3.0, "throughput") == pytest.approx(2 / 3)
    assert speed.times(0.0) == "STA falls behind"


def test_hot_values_are_the_frequent_ones() -> None:
    values = tables("taxi")[0]["v"].to_numpy()
    known, counts = np.unique(values, return_counts=True)
    assert known[counts.argmax()] in setting.hot_values("taxi")
    assert len(setting.hot_values("taxi")) == 32
    assert setting.hot_share("zipf 2.0") > setting.hot_share("zipf 1.0") > 0.3


def test_the_top_keys_of_figures_5_and_6() -> None:
    keys = zipf_keys(1.5, 20_000)
    known, counts = np.unique(keys, return_counts=True)
    top = set(known[np.argsort(-counts)[:10]].tolist())
    assert top <= indexes.hot_keys(keys)


@pytest.mark.parametrize("kind", ["hash", "random"])
def test_each_tuple_is_stored_once(kind: partitioning.Partitioning) -> None:
    keys = zipf_keys(1.0, 4000)
    units = partitioning.stored_at(keys, kind, 7)
    assert set(units.tolist()) == set(range(7))
    places = {key: set(units[keys == key].tolist()) for key in set(keys.tolist())}
    alone = all(len(some) == 1 for some in places.values())
    assert alone == (kind == "hash")


@pytest.mark.parametrize("system", ["CI", "STA"])
def test_completeness_by_definition(system: completeness.System) -> None:
    """Tuple by tuple: what the visited element had, or all had at the last check point."""
    elements, checkpoint, window, lookups = 4, 0.2, 0.5, 30
    of = completeness.stored(system, 1.0, elements, window + 4 * checkpoint)
    rng = np.random.default_rng((11, elements))
    times = rng.uniform(window, window + 4 * checkpoint, lookups)
    keys = zipf_keys(1.0, lookups, 1)
    places = rng.integers(0, elements, lookups).tolist()
    if system == "CI":
        places = completeness.by_key(keys, elements).tolist()
    wanted = there = 0
    for at, key, place in zip(times.tolist(), keys.tolist(), places, strict=True):
        last = math.floor(at / checkpoint) * checkpoint
        for when, value, element, hot in zip(of.times, of.keys, of.elements, of.hot, strict=True):
            if at - window <= when <= at and value < key:
                wanted += 1
                there += bool(when <= last or element == place or hot)
    found = completeness.completeness(system, 1.0, elements, checkpoint, window, lookups)
    assert found == pytest.approx(there / wanted)
    assert 0.5 < found < 1


def test_equal_keys_share_an_element_of_the_chained_index() -> None:
    of = completeness.stored("CI", 1.5, 10, 4.0)
    assert len(set(zip(of.keys.tolist(), of.elements.tolist(), strict=True))) == len(set(of.keys))
    assert not of.hot.any()
    assert completeness.stored("STA", 1.5, 10, 4.0).hot.mean() > 0.5
