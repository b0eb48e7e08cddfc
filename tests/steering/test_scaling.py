"""Two-phase scaling on tables of reports that a reader can check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from thetastream.errors import OptionError
from thetastream.steering.edits import Scale
from thetastream.steering.policy import Holding, Load, Moment, Verdict
from thetastream.steering.scaling import TwoPhaseScaling

CAPACITY = 1_000_000_000
GB = 1_000_000_000


def moment(bytes_each: list[float], *, at: float = 0.0, busy: float = 0.0, **more: Any) -> Moment:
    """Units that hold both streams, with so many gigabytes each."""
    units = tuple(range(len(bytes_each)))
    loads = tuple(
        Load(join=0, stage=0, unit=unit, stored_bytes=int(size * GB), busy=busy)
        for unit, size in enumerate(bytes_each)
    )
    holdings = tuple(Holding(stream=name, join=0, stage=0, units=units) for name in "rs")
    given: dict[str, Any] = {"interval": 10.0, "loads": loads, "holdings": holdings}
    return Moment(**{"at": at, "batch": 1, "max_units": 64, **given, **more})


def play(policy: TwoPhaseScaling, loads: list[list[float]]) -> list[tuple[str, Any]]:
    """What a policy makes of one moment after the other, with what it said before."""
    earlier: list[Verdict] = []
    found = []
    for number, each in enumerate(loads):
        verdict = policy.decide(moment(each, at=60.0 * number), earlier)
        earlier = [] if verdict.edit is not None else [*earlier, verdict]
        found.append((verdict.leaning.split()[-1] if verdict.leaning else "", verdict.edit))
    return found


def policy(**changes: Any) -> TwoPhaseScaling:
    return TwoPhaseScaling(**{"capacity": CAPACITY, "every": 0.0, **changes})


@pytest.mark.parametrize(
    ("units", "load", "wanted"),
    [
        # τ = 0.9: Δ = (0.9 / 0.6 − 1) 8 = 4
        (8, 0.9, 12),
        # τ = 0.25: Δ = (0.25 / 0.6 − 1) 12 = −7
        (12, 0.25, 5),
        # τ = 0.3 and τ = 0.8 are neither above nor below.
        (8, 0.3, None),
        (8, 0.8, None),
        (8, 0.6, None),
        # Never below one, never above what there may be.
        (1, 0.01, None),
        (60, 0.9, 64),
    ],
)
def test_how_many_units(units: int, load: float, wanted: int | None) -> None:
    found = play(policy(), [[load] * units] * 3)
    edit = None if wanted is None else Scale(units=wanted)
    assert found[2][1] == edit
    assert [one[1] for one in found[:2]] == [None, None]


def test_three_equal_decisions_in_a_row() -> None:
    high, low, fine = [0.9] * 8, [0.2] * 8, [0.6] * 8
    edits = [edit for _, edit in play(policy(), [high, high, fine, high, low, high, high, high])]
    assert edits == [None] * 7 + [Scale(units=12)]


def test_figure_12() -> None:
    """The load grows and stays, dips and rises for a short time, and falls: 8, 12 and 6 units.

    A minute for each check. The rates are those of the benchmark; with a window of five minutes the
    load follows them slowly.
    """
    rates = [1.0] * 10 + [1.6] * 12 + [1.6, 1.2, 1.2, 1.6, 1.6, 2.1, 2.1, 1.6, 1.6, 1.6]
    rates += [1.6] + [0.65] * 17
    units, earlier, seen = 8, [], []
    scaling = policy()
    for minute in range(5, len(rates)):
        stored = sum(rates[minute - 5 : minute + 1]) / 6 * 8 * 0.6
        verdict = scaling.decide(moment([stored / units] * units), earlier)
        earlier = [*earlier, verdict]
        if verdict.edit is not None:
            assert isinstance(verdict.edit, Scale)
            assert isinstance(verdict.edit.units, int)
            units, earlier = verdict.edit.units, []
        seen.append(units)
    by_minute = dict(enumerate(seen, start=5))
    assert by_minute[9] == 8
    assert by_minute[21] == 13
    assert {by_minute[minute] for minute in range(21, 33)} == {13}
    assert by_minute[len(rates) - 1] == 6


def test_the_share_of_time_instead_of_memory() -> None:
    scaling = policy(capacity=None, measure="cpu", patience=1)
    # Two units are busy for 9 of 10 seconds each: 1.8 / 0.6 = 3.
    verdict = scaling.decide(moment([0.0, 0.0], busy=9.0), [])
    assert verdict.edit == Scale(units=3)
    assert "0.90 is above 0.80" in verdict.why


def test_subgroups_are_scaled_by_themselves() -> None:
    holding = Holding(stream="r", join=0, stage=0, units=(0, 1, 2), subgroups=((0, 1), (2,)))
    other = Holding(stream="s", join=0, stage=0, units=(0, 1, 2), subgroups=((0, 1, 2),))
    sizes = {0: 0.9, 1: 0.9, 2: 0.6}
    loads = tuple(
        Load(join=0, stage=0, unit=u, bytes_of={"r": int(size * GB), "s": int(0.6 * GB)})
        for u, size in sizes.items()
    )
    now = moment([], loads=loads, holdings=(holding, other))
    verdict = policy(patience=1).decide(now, [])
    assert verdict.edit == Scale(units={"r": 3}, subgroup=0)
    assert verdict.why.startswith("r, subgroup 0: load 0.90")


def test_reports_that_are_missing_decide_nothing() -> None:
    whole = moment([0.9] * 3)
    assert policy(patience=1).decide(replace(whole, loads=whole.loads[:2]), []).edit is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"capacity": None},
        {"capacity": 0},
        {"measure": "heat"},
        {"high": 0.5},
        {"low": 0.7},
        {"patience": 0},
        {"least": 0},
        {"least": 4, "most": 3},
    ],
)
def test_thresholds_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        policy(**wrong)
