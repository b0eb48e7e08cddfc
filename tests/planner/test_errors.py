"""Every complaint about a predicate, a window or an option: its kind, its caret, its way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from thetastream.errors import (
    AmbiguousColumnError,
    NotBooleanError,
    OptionError,
    ParseError,
    PredicateError,
    RefusedExpressionError,
    TypeMismatchError,
    UnknownColumnError,
    UnknownStreamError,
    WindowError,
)
from thetastream.planner import Plan
from thetastream.spec import ColumnSpec

TIMES = {"r": "at", "s": "at"}


@pytest.mark.parametrize(
    ("text", "kind", "marked", "says"),
    [
        ("r.id = s.idd", UnknownColumnError, "idd", "did you mean 'id'?"),
        ("r.id = s.zzz", UnknownColumnError, "zzz", "its columns are id, x"),
        ("sollo = 1", UnknownColumnError, "sollo", "did you mean 'solo'?"),
        ("r.id = q.id", UnknownStreamError, "q", "the streams are r, s"),
        ("r.id = x", AmbiguousColumnError, "x", "write r.x or s.x"),
        ("r.id = s.id AND s.`odd nam` = 1", UnknownColumnError, "`odd nam`", "'odd name'"),
        ("r.id", NotBooleanError, "r.id", "is of type int"),
        ("r.id = s.id AND r.id + s.id", NotBooleanError, "r.id + s.id", "is not a condition"),
        ("'yes'", NotBooleanError, "'yes'", "is not a condition"),
        ("r.id = s.id OR 5", NotBooleanError, "5", "is not a condition"),
        ("CAST(r.id AS STRING)", NotBooleanError, "r.id", "string"),
        ("r.x > 1 AND r.day = s.id", TypeMismatchError, "r.day = s.id", "not accept"),
        ("r.flag < s.id", TypeMismatchError, "r.flag < s.id", "not accept"),
        ("r.id = s.id AND", ParseError, "AND", "not in Spark SQL"),
        ("(r.id = s.id", ParseError, "id", "not in Spark SQL"),
        ("r.name = 'abc", ParseError, "'", "does not end"),
        ("  ", ParseError, " ", "empty"),
        ("r.id = s.id = true", RefusedExpressionError, "r.id = s.id", "two ways"),
        ("r.id | s.id & 1 = 1", RefusedExpressionError, "r.id | s.id & 1", "two ways"),
        ("r.a.b.c = 1", UnknownColumnError, "a", "has no column 'a'"),
    ],
)
def test_predicate_errors_point_at_the_place(
    text: str, kind: type[PredicateError], marked: str, says: str, plan: Callable[..., Plan]
) -> None:
    with pytest.raises(kind) as caught:
        plan(text)
    error = caught.value
    assert type(error) is kind
    assert says in str(error)
    assert text[error.start : error.end] == marked


def test_the_caret_stands_under_the_name(plan: Callable[..., Plan]) -> None:
    with pytest.raises(UnknownColumnError) as caught:
        plan("r.id = s.id\n  AND r.id = s.prise")
    assert str(caught.value) == (
        "stream 's' has no column 'prise'\n"
        "    AND r.id = s.prise\n"
        "                 ^^^^^\n"
        "What to do: did you mean 'price'?"
    )


def test_names_ignore_case_unless_told(plan: Callable[..., Plan]) -> None:
    assert plan("R.ID = S.Id").spec.predicate == "r.id = s.id"
    with pytest.raises(UnknownStreamError):
        plan("R.id = s.id", case_sensitive=True)
    with pytest.raises(UnknownColumnError):
        plan("r.ID = s.id", case_sensitive=True)


def test_a_column_that_a_stream_has_twice(plan: Callable[..., Plan]) -> None:
    twice = [ColumnSpec(name="a", type="int"), ColumnSpec(name="A", type="int")]
    with pytest.raises(AmbiguousColumnError, match="has 2 columns"):
        plan("r.a = s.b", streams={"r": twice, "s": [ColumnSpec(name="b", type="int")]})


def test_a_struct_column_may_have_a_streams_name(plan: Callable[..., Plan]) -> None:
    streams = {
        "r": [ColumnSpec(name="s", type="struct<lat:double,lon:double>")],
        "s": [ColumnSpec(name="b", type="double")],
    }
    assert plan("s.lat = s.b", streams=streams).spec.predicate == "r.s.lat = s.b"


def test_one_stream_is_no_join(plan: Callable[..., Plan]) -> None:
    columns = [ColumnSpec(name="a", type="int")]
    with pytest.raises(OptionError, match="a join takes two"):
        plan("true", streams={"only": columns})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"within": "10 minutes"}, "needs the event time of stream 'r'"),
        ({"within": "10 minutes", "time": {"r": "at"}}, "needs the event time of stream 's'"),
        ({"within": "10 minutes", "time": {"r": "at", "s": "local"}}, "different types"),
        ({"time": {"r": "id", "s": "at"}}, "is of type int"),
        ({"time": {"r": "nope", "s": "at"}}, "no time column 'nope'"),
        ({"time": {"q": "at"}}, "time names a stream 'q'"),
        ({"within": 10, "time": TIMES}, "has no unit of time"),
        ({"within": 2.5, "time": TIMES}, "has no unit of time"),
        ({"within": "ten minutes", "time": TIMES}, "not a length of time"),
        ({"within": "10", "time": TIMES}, "not a length of time"),
        ({"within": "", "time": TIMES}, "not a length of time"),
        ({"within": "10 parsecs", "time": TIMES}, "'parsecs' is not a unit"),
        ({"within": "1 month", "time": TIMES}, "no fixed length"),
        ({"within": "-5 minutes", "time": TIMES}, "negative"),
        ({"within": ("1 s",), "time": TIMES}, "has 1 parts"),
        ({"within": "0.5 us", "time": TIMES}, "whole number of microseconds"),
    ],
)
def test_window_errors(given: dict[str, Any], says: str, plan: Callable[..., Plan]) -> None:
    with pytest.raises(WindowError) as caught:
        plan("r.id = s.id", **given)
    assert says in str(caught.value)
    assert "What to do:" in str(caught.value)


def test_mixed_time_types_do_not_matter_without_a_window(plan: Callable[..., Plan]) -> None:
    found = plan("r.id = s.id AND r.at <= s.local", time={"r": "at", "s": "local"}).spec
    assert not found.windowed
    assert [key.sql for key in found.streams[1].keys] == [
        "`s`.`id`",
        "CAST(`s`.`local` AS timestamp)",
    ]


def test_a_window_that_nothing_can_be_in(plan: Callable[..., Plan]) -> None:
    text = "s.at >= r.at + INTERVAL 20 MINUTES"
    with pytest.raises(WindowError, match="no two tuples can satisfy"):
        plan(text, within="10 minutes", time=TIMES)


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("r.id < s.id", {"topology": "hash"}, "has no equality"),
        ("r.id < s.id", {"topology": "contrand"}, "has no equality"),
        ("abs(r.id - s.id) < 3", {"topology": "hash"}, "only a band"),
        ("r.id = s.id", {"topology": "band"}, "has no band, only an equality"),
        ("r.id < s.id", {"topology": "band"}, "has no band"),
        (
            "r.id = s.id",
            {"topology": "contrand", "units": 2, "subgroups": (3, 1)},
            "more than the units",
        ),
    ],
)
def test_topologies_that_do_not_fit(
    text: str, options: dict[str, Any], says: str, plan: Callable[..., Plan]
) -> None:
    with pytest.raises(OptionError) as caught:
        plan(text, options=options)
    assert says in str(caught.value)
    assert "What to do:" in str(caught.value)
