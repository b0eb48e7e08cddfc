"""The figures of the semijoin: quick forms, and the two joins beside brute force."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from thetastream.papers import catalogue
from thetastream.papers.figure import Figure
from thetastream.papers.semijoin import PAPER, auto, panels
from thetastream.papers.semijoin.sites import (
    COMPARISON,
    OPERATION,
    Arrival,
    Join,
    Setting,
    Sites,
    Window,
    arrivals,
    run,
)
from thetastream.transport.costmodel import Transport

BY_NAME = {figure.name: figure for figure in PAPER.figures}
SMALL = Setting(distinct=40, window=30, rate=100.0)


def pairs_by_definition(setting: Setting, seconds: float) -> Counter[tuple[int, int]]:
    """Whatever comes is compared with the last tuples of the other stream."""
    seen: dict[bool, list[Arrival]] = {True: [], False: []}
    found: Counter[tuple[int, int]] = Counter()
    for one in arrivals(setting, seconds):
        for other in seen[not one.remote][-setting.window :]:
            if other.key == one.key:
                first, second = (one, other) if one.remote else (other, one)
                found[first.number, second.number] += 1
        seen[one.remote].append(one)
    return found


@pytest.mark.parametrize("figure", PAPER.figures, ids=BY_NAME)
def test_the_quick_form(figure: Figure) -> None:
    outcome = figure.run(True)
    assert outcome.series
    assert all(len(points) for points in outcome.series.values())
    differing = [one for one in outcome.findings if not one.holds]
    assert len(differing) == (1 if figure.name == "semijoin-2d" else 0)
    assert all("the paper does not say what a comparison costs" in one.why for one in differing)


def test_all_panels_are_run_by_the_number_of_the_figure() -> None:
    assert [one.name for one in catalogue.find("semijoin-2")] == [
        f"semijoin-2{letter}" for letter in "abcde"
    ]
    assert [one.name for one in catalogue.find("semijoin-2c")] == ["semijoin-2c"]
    assert [one.name for one in catalogue.find("bistream-6")] == ["bistream-6a", "bistream-6b"]


@pytest.mark.parametrize("join", ["SPJ", "SMJ"])
@pytest.mark.parametrize("distinct", [1, 3, 40, 5000])
def test_both_joins_find_every_pair_once(join: Join, distinct: int) -> None:
    setting = replace(SMALL, distinct=distinct)
    found: Counter[tuple[int, int]] = Counter()

    def keep(one: Arrival, other: Arrival) -> None:
        assert one.full, "a result needs the whole tuple"
        found[one.number, other.number] += 1

    sites = Sites(setting, keep)
    for arrival in arrivals(setting, 2.0):
        (sites.simple if join == "SPJ" else sites.semijoin)(arrival)
    assert found == pairs_by_definition(setting, 2.0)
    assert sites.spent.results == found.total()


@pytest.mark.parametrize("chosen", ["simple", "semijoin", "alternating"])
@pytest.mark.parametrize("distinct", [3, 40])
def test_transports_may_change_at_any_time(chosen: str, distinct: int) -> None:
    """Every pair once, of whole tuples, each of which is sent in full once."""
    setting = replace(SMALL, distinct=distinct)
    found: Counter[tuple[int, int]] = Counter()

    def keep(one: Arrival, other: Arrival) -> None:
        assert one.full
        found[one.number, other.number] += 1

    sites = auto.Adaptive(setting, keep)
    transports: tuple[Transport, Transport] = ("simple", "semijoin")
    whole: Counter[str] = Counter()
    sites.begin()
    for at, arrival in enumerate(arrivals(setting, 2.0)):
        if at % 7 == 0:
            counts = sites.counts(0.1)
            whole.update(full=counts.full.rows, fetched=counts.fetched.rows)
            whole.update(partial=counts.partial.rows, matched=counts.matched)
            sites.begin()
            if chosen in transports:
                sites.transport = transports[chosen == "semijoin"]
            else:
                sites.transport = transports[at // 7 % 2]
        sites.take(arrival)
    assert found == pairs_by_definition(setting, 2.0)
    assert whole["fetched"] <= whole["partial"]
    in_results = len({first for first, _ in found})
    assert in_results - 7 <= whole["fetched"] + whole["matched"] <= in_results


@pytest.mark.parametrize("size", [1, 7])
def test_nested_loops_cost_what_a_scan_looks_at(size: int) -> None:
    window, listed = Window(size, "nested loops"), list[Arrival]()
    for one in arrivals(replace(SMALL, distinct=9), 1.0):
        if not one.remote:
            continue
        scanned = 0
        newest = None
        for other in reversed(listed[-size:]):
            scanned += 1
            if other.key == one.key:
                newest = other
                break
        found, seconds = window.first(one.key)
        assert found is newest
        assert seconds == pytest.approx(scanned * COMPARISON)
        every, seconds = window.all(one.key)
        assert every == [other for other in reversed(listed[-size:]) if other.key == one.key]
        assert seconds == pytest.approx(len(listed[-size:]) * COMPARISON)
        assert window.insert(one) == OPERATION
        listed.append(one)


def test_times_are_those_of_equation_1_and_of_what_was_sent() -> None:
    setting = Setting()
    simple, semijoin = (run(setting, join, 2.0) for join in panels.JOINS)
    assert simple.shipped == 1000
    assert simple.transmission == pytest.approx(2 * 500 * (0.005 + 100 / 1000))
    sent = 1000 + 2 * semijoin.requests
    assert semijoin.bytes == 10 * (1000 + semijoin.requests) + 100 * semijoin.shipped
    assert semijoin.transmission == pytest.approx(sent * 0.005 + semijoin.bytes / 1000)
    assert simple.results == semijoin.results


def test_an_advantage_grows_but_for_chance() -> None:
    assert panels.grows([0, 1, 3])
    assert panels.grows([0, 3, 2.9, 4])
    assert not panels.grows([0, 3, 2, 4])
    assert not panels.grows([3, 2, 1])


def test_the_choice_is_not_far_from_the_better_one_where_it_is_hardest() -> None:
    """Near the point where both cost the same, and from a start that is wrong."""
    for match in (0.7, 0.75, 0.8):
        found = auto.beside(replace(Setting(), distinct=auto.ALIKE, partners=match), 4.0)
        assert found.ratio <= auto.WANTED
        assert found.changes <= 2
