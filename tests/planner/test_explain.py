"""Costs, decisions and their text."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta

import pytest

from thetastream.errors import OptionError
from thetastream.options import MAX_UNITS
from thetastream.planner import Parallelism, Plan, format_duration, parse_duration
from thetastream.planner.costs import cost, squarest
from thetastream.spec import ColumnSpec, Routing

TIMES = {"r": "at", "s": "at"}
PACKED = {
    "r": [ColumnSpec(name="id", type="int")],
    "s": [ColumnSpec(name="pack", type="int")],
}


def test_costs_follow_the_equations() -> None:
    units, groups = (6, 4), (3, 2)
    assert cost(Routing.RANDOM, units, (1, 1), None).bandwidth == (5, 7)
    assert cost(Routing.CONTRAND, units, groups, None).bandwidth == (3, 3)
    assert cost(Routing.HASH, units, (1, 1), None).bandwidth == (2, 2)
    assert cost(Routing.MATRIX, units, (1, 1), None).bandwidth == (4, 6)
    assert cost(Routing.MATRIX, units, (1, 1), None).memory == (4, 6)
    assert cost(Routing.RANDOM, units, (1, 1), None).memory == (1, 1)
    assert cost(Routing.BAND, units, (1, 1), (10.0, 80.0)).bandwidth == (2.125, 2.125)
    assert cost(Routing.BAND, (1, 1), (1, 1), (10.0, 1.0)).bandwidth == (2, 2)


@pytest.mark.parametrize(("total", "shape"), [(1, (1, 1)), (7, (1, 7)), (12, (3, 4)), (16, (4, 4))])
def test_matrices_are_as_square_as_possible(total: int, shape: tuple[int, int]) -> None:
    assert squarest(total) == shape


@pytest.mark.parametrize(
    ("text", "fitting"),
    [
        ("r.id = s.id", {"hash", "contrand", "random", "matrix"}),
        ("abs(r.id - s.id) < 3", {"band", "random", "matrix"}),
        ("r.id < s.id", {"random", "matrix"}),
    ],
)
def test_costs_are_given_for_each_topology_that_fits(
    text: str, fitting: set[str], plan: Callable[..., Plan]
) -> None:
    found = plan(text)
    assert {item.routing.value for item in found.costs} == fitting
    topology = next(d for d in found.decisions if d.subject == "topology")
    assert {a.name for a in topology.alternatives} == fitting - {topology.choice}
    assert all(a.cost is not None for a in topology.alternatives)


@pytest.mark.parametrize(
    ("text", "drives"),
    [
        ("r.id < s.id AND abs(r.x - s.x) < 1 AND r.big = s.big", "equality on `r`.`big`"),
        ("r.id < s.id AND abs(r.x - s.x) < 1", "band on `r`.`x`"),
        ("r.id < s.id", "inequality on `r`.`id`"),
        ("true", "time on `r`.`at`"),
    ],
)
def test_the_driving_predicate(text: str, drives: str, plan: Callable[..., Plan]) -> None:
    found = plan(text, within="1 minute", time=TIMES)
    assert found.decisions[0].subject == "driving predicate"
    assert found.decisions[0].choice == drives


def test_nothing_drives_a_cross_join(plan: Callable[..., Plan]) -> None:
    found = plan("true")
    assert found.spec.edge(0, 1).ranges == ()
    assert found.decisions[0].choice == "none"
    assert found.spec.predicate == "TRUE"


@pytest.mark.parametrize(
    ("given", "period"),
    [
        ({"within": "10 minutes"}, 60_000_000),
        ({"within": ("0 s", "10 s")}, 1_000_000),
        ({"within": "1 us"}, 1),
        ({"within": "10 s", "delay": 600_000_000}, 60_000_000),
        ({"within": "10 minutes", "options": {"archive_period": "30 s"}}, 30_000_000),
        ({}, None),
    ],
)
def test_archive_period(
    given: dict[str, object], period: int | None, plan: Callable[..., Plan]
) -> None:
    assert plan("r.id = s.id", time=TIMES, **given).spec.archive_period == period


def test_a_window_open_on_one_side_still_has_an_archive_period(plan: Callable[..., Plan]) -> None:
    """The stream that the closed end bounds is still expired."""
    spec = plan("r.id = s.id AND r.at <= s.at + INTERVAL 1 MINUTE", time=TIMES).spec
    kept = [store.retention.keeps for store in spec.stages[0].stores]
    assert kept == [None, 60_000_000]
    assert spec.archive_period == 6_000_000


def test_text(plan: Callable[..., Plan]) -> None:
    text = plan(
        "r.zone = s.zone AND abs(r.x - s.x) <= 5 AND r.ok",
        within="10 minutes",
        time={"r": "at", "s": "at"},
        origin="job.py:12",
        streams={
            name: [
                ColumnSpec(name="zone", type="int"),
                ColumnSpec(name="x", type="int"),
                ColumnSpec(name="ok", type="boolean"),
                ColumnSpec(name="at", type="timestamp"),
            ]
            for name in ("r", "s")
        },
    ).explain()
    assert text.split("\n")[:10] == [
        "Join of r and s on r.zone = s.zone AND ABS(r.x - s.x) <= 5 AND r.ok",
        "  built at job.py:12",
        "",
        "Decisions",
        "  driving predicate  equality on `r`.`zone`                   "
        "an equality lets the fewest pairs through; int fits a 64-bit key",
        "  topology           hash                                     "
        "an equality sends both sides of a key to one unit",
        "  index              chained sorted runs, by the driving key  "
        "probes are binary searches; whole slices of time expire at once",
        "  units              4 for r, 4 for s                         "
        "as many as tasks run at a time (4)",
        "  window             r and s at most 10 minutes apart         "
        "within and the time ranges of the predicate",
        "  archive period     1 minute                                 a 10th of the window",
    ]
    costs = text.split("\n\n")[-3].split("\n")
    assert [line[:35].rstrip() for line in costs[1:]] == [
        "  topology  memory  bandwidth",
        "  hash      2       4          chos",
        "  contrand  2       6",
        "  random    2       10",
        "  band      2       4.25",
        "  matrix    4       4",
    ]


def test_printing_a_plan_explains_it(plan: Callable[..., Plan]) -> None:
    found = plan("r.id = s.id")
    assert str(found) == repr(found) == found.explain()
    assert str(found).startswith("Join of r and s on r.id = s.id\n")
    (topology,) = (d for d in found.decisions if d.subject == "topology")
    assert str(topology) == "topology: hash (an equality sends both sides of a key to one unit)"


def section(plan: Plan, title: str) -> list[str]:
    """The lines of one section of a plan's text."""
    (found,) = (part for part in str(plan).split("\n\n") if part.startswith(f"{title}\n"))
    return found.split("\n")[1:]


def notes(plan: Plan) -> str:
    """The notes of a plan's text, without its line breaks."""
    return " ".join(line.strip() for line in section(plan, "Notes"))


@pytest.mark.parametrize(
    ("text", "given", "explained", "left_out"),
    [
        (
            "r.id = s.id",
            {"within": "1 minute", "time": TIMES},
            {"driving predicate", "unit", "sorted run", "archive period", "probe", "conjunct"},
            {"pack", "cyclic", "residual", "prefix", "kernel"},
        ),
        ("r.name < s.name OR r.flag", {}, {"residual"}, {"prefix"}),
        ("r.name < s.name", {}, {"prefix"}, {"residual"}),
        # Names of columns and streams are not terms.
        ("r.id < s.`pack`", {"streams": PACKED}, {"unit"}, {"pack"}),
    ],
)
def test_terms_that_a_plan_uses_are_explained(
    text: str,
    given: dict[str, object],
    explained: set[str],
    left_out: set[str],
    plan: Callable[..., Plan],
) -> None:
    terms = {line.strip().split("  ")[0] for line in section(plan(text, **given), "Terms")}
    assert explained <= terms
    assert not left_out & terms


@pytest.mark.parametrize(
    ("text", "given", "said"),
    [
        ("r.id = s.id", {"parallelism": 2}, "matrix sends 3 messages instead of 4, but stores 3"),
        ("r.id < s.id", {"parallelism": 4}, "matrix sends 4 messages instead of 10, but stores 4"),
        ("r.id < s.id", {"parallelism": 1}, "With one unit per stream all topologies do"),
        (
            "r.id = s.id",
            {"options": {"topology": "contrand"}},
            "hash sends 4 messages instead of 6, but puts all rows of a frequent key",
        ),
        (
            "r.id = s.id",
            {"options": {"topology": "random"}},
            "hash sends 4 messages instead of 10; random was asked for",
        ),
    ],
)
def test_a_lower_cost_beside_the_chosen_one_is_explained(
    text: str, given: dict[str, object], said: str, plan: Callable[..., Plan]
) -> None:
    assert said in notes(plan(text, **given))


@pytest.mark.parametrize(
    ("text", "said", "warns"),
    [
        ("r.flag = s.flag", "A boolean has 2 values: at most 2 of 4 units get rows.", True),
        ("r.id = s.id", "values: at most", False),
        ("abs(r.tiny - s.tiny) <= 10", "A tinyint has at most 3 buckets", True),
        ("abs(r.id - s.id) <= 10", "A int has", False),
        ("r.flag = s.flag AND r.id = s.id", "A boolean has", False),
        ("r.id = s.id", "Few keys, or a frequent one, leave units idle", True),
        ("abs(r.id - s.id) <= 10", "few buckets of 160 leave units idle", True),
        ("r.id < s.id", "leave units idle", False),
    ],
)
def test_units_that_may_stay_idle_are_announced(
    text: str, said: str, warns: bool, plan: Callable[..., Plan]
) -> None:
    assert (said in notes(plan(text, parallelism=4))) is warns


def test_html_escapes_what_comes_from_outside(plan: Callable[..., Plan]) -> None:
    html = plan("r.name = '<script>alert(1)</script>' AND r.id < s.id")._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "r.id &lt; s.id" in html
    assert html.startswith("<div>")
    assert html.endswith("</div>")


@pytest.mark.parametrize(
    ("value", "micros"),
    [
        ("10 minutes", 600_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("1h30min", 5_400_000_000),
        ("500 ms", 500_000),
        ("500ms", 500_000),
        ("1.5 seconds", 1_500_000),
        ("2 days, 3 hours", 183_600_000_000),
        ("1 week", 604_800_000_000),
        ("7 us", 7),
        ("interval 5 seconds", 5_000_000),
        ("0 s", 0),
        (timedelta(minutes=1, microseconds=1), 60_000_001),
    ],
)
def test_durations(value: object, micros: int) -> None:
    assert parse_duration(value, "within") == micros


def test_durations_are_written_back() -> None:
    for text in ("1 day 2 hours", "10 minutes", "1 millisecond 5 microseconds", "0 seconds"):
        assert format_duration(parse_duration(text, "within")) == text


def test_auto_units_have_a_limit(plan: Callable[..., Plan]) -> None:
    """Unit numbers are small integers: more partitions than that make no more units."""
    for predicate in ("r.id = s.id", "abs(r.id - s.id) < 5", "r.id < s.id"):
        found = plan(predicate, parallelism=Parallelism(40_000, 40_000))
        assert found.tree.steps[0].routing.units == (MAX_UNITS, MAX_UNITS)
        assert units_reason(found) == (
            "the most there can be, fewer than tasks run at a time (40000)"
        )


@pytest.mark.parametrize(
    ("tasks", "partitions", "units", "reason"),
    [
        (2, 200, 2, "as many as tasks run at a time (2)"),
        (8, 4, 4, "as many as tasks run at a time (4)"),
        (None, 200, 200, "one for each partition of the shuffle (200): the cores are not known"),
        (None, 2000, 1024, "the most there can be, fewer than the shuffle has partitions (2000)"),
    ],
)
def test_auto_units_follow_the_cores(
    tasks: int | None, partitions: int, units: int, reason: str, plan: Callable[..., Plan]
) -> None:
    found = plan("r.id = s.id", parallelism=Parallelism(tasks, partitions))
    assert found.tree.steps[0].routing.units == (units, units)
    assert units_reason(found) == reason


def units_reason(plan: Plan) -> str:
    return next(item.reason for item in plan.decisions if item.subject == "units")


def test_a_matrix_has_a_limit(plan: Callable[..., Plan]) -> None:
    with pytest.raises(OptionError, match="matrix of 1024 by 2"):
        plan("r.id = s.id", options={"topology": "matrix", "units": (1024, 2)})
    assert plan("r.id = s.id", options={"topology": "matrix", "units": (32, 32)})


@pytest.mark.parametrize("count", [2, 4])
def test_live_routing_is_explained(count: int, plan: Callable[..., Plan]) -> None:
    names = "abcd"[:count]
    streams = {name: [ColumnSpec(name="k", type="int")] for name in names}
    text = " AND ".join(f"{a}.k = {b}.k" for a, b in itertools.pairwise(names))
    given = {"units": 2, "full_history": True}
    options = {**given, "control": "s3://user:secret@bucket/rides", "max_units": 8}
    found = plan(text, streams=streams, options=options)
    assert found.decisions[-1].choice == "live"
    assert str(found).count("routing tables") == 1
    assert "at most 8 units; kept in s3://bucket/rides" in str(found)
    assert "a live one can change while the query runs" in str(found)
    assert "secret" not in str(found) + found._repr_html_()
    shuffled = plan(text, streams=streams, options={**given, "control": "rides"})
    assert "as many units as the shuffle has partitions" in str(shuffled)
    assert "routing tables" not in str(plan(text, streams=streams, options=given))
