"""Names in backticks that are words of SQL, or of the clauses of stream queries."""

from __future__ import annotations

import pytest

from thetastream.options import JoinOptions
from thetastream.planner import Plan, Query, parse_query, plan_join, plan_query
from thetastream.planner.functions import words
from thetastream.spec import ColumnSpec
from thetastream.testing.duck import DuckAnalyst

WORDS = words(
    """
    select from where join within window online group having on order limit by as and or not in
    is null true false case when then else end between like rlike ilike interval cast try_cast
    distinct union except intersect cross inner left right full outer natural using lateral
    values with preceding following range rows div exists all any some time timestamp date array
    struct map current_date current_timestamp current_user extract position substring trim if
    escape over partition filter within_group for table create drop insert set reset use
    describe explain show cache comment
    """
)
ODD = ["group by", "ORDER BY", "(", ")", ",", ";", "*", ".", "1", "a b", "--", "/*", "é", "'", '"']
NAMES = [*sorted(WORDS), *ODD, "SELECT"]


def _streams(stream: str, column: str) -> dict[str, list[ColumnSpec]]:
    columns = [ColumnSpec(name=column, type="int"), ColumnSpec(name="at", type="timestamp")]
    more = [] if column == "k" else [ColumnSpec(name="k", type="int")]
    return {stream: columns, "s": [*columns, *more]}


def _read(text: str, streams: dict[str, list[ColumnSpec]]) -> Query:
    query = parse_query(text, streams, case_sensitive=False)
    schemas = {one.alias: streams[one.stream] for one in query.relations}
    plan_query(
        query,
        time=dict.fromkeys(schemas, "at"),
        options=JoinOptions(),
        analyst=DuckAnalyst.of(schemas),
    )
    return query


def test_as_a_column_of_a_predicate() -> None:
    for name in NAMES:
        streams = _streams("r", name)
        found = plan_join(
            streams=streams,
            predicate=f"r.`{name}` = s.`{name}` AND k + r.`{name}` > 1 AND abs(s.`{name}`) IN (4)",
            analyst=DuckAnalyst.of(streams),
        )
        assert isinstance(found, Plan)
        assert found.spec.streams[0].keys[0].column == name


def test_as_a_stream_of_a_predicate() -> None:
    for name in NAMES:
        streams = _streams(name, "k")
        found = plan_join(
            streams=streams,
            predicate=f"`{name}`.k = s.k AND `{name}`.k * 2 + s.k IN (4)",
            analyst=DuckAnalyst.of(streams),
        )
        assert found.spec.streams[0].keys[0].column == "k"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT `{}`, k FROM r JOIN s ON r.`{}` = s.k WITHIN 1 minute",
        "SELECT k, `{}` FROM r, s WHERE `{}` = k WITHIN 1 minute",
        "SELECT ONLINE k + `{}` FROM r, s WHERE `{}` > k",
        "SELECT `{}`, count(*) FROM r, s WHERE k > `{}` WITHIN 1 minute GROUP BY `{}`",
        "SELECT max(`{}`) AS m FROM r, s WHERE k > 1 AND `{}` = k HAVING max(`{}`) > 1",
        "SELECT k FROM r, s WHERE abs(`{}`) BETWEEN k AND `{}` WITHIN 1 minute",
        "SELECT r.*, k FROM r JOIN s ON `{}`",
    ],
)
def test_as_a_column_of_a_query(text: str) -> None:
    for name in NAMES:
        streams = _streams("r", name)
        streams["s"] = [
            ColumnSpec(name="k", type="int"),
            ColumnSpec(name="time_", type="timestamp"),
        ]
        if text.endswith("ON `{}`"):
            streams["r"][0] = ColumnSpec(name=name, type="boolean")
        query = parse_query(text.replace("{}", name), streams, case_sensitive=False)
        assert (query.within is not None) == ("WITHIN" in text)
        assert query.predicate


@pytest.mark.parametrize(
    "text",
    [
        "SELECT `{}`.k, s.at FROM `{}` JOIN s ON `{}`.k = s.k WITHIN 1 minute",
        "SELECT `{}`.* FROM `{}`, s WHERE s.k = `{}`.k WITHIN 1 minute",
        "SELECT s.k FROM s, `{}` WITHIN 1 minute",
        "SELECT s.k FROM s JOIN `{}` WITHIN 1 minute GROUP BY s.k",
    ],
)
def test_as_a_stream_of_a_query(text: str) -> None:
    for name in NAMES:
        query = _read(text.replace("{}", name), _streams(name, "k"))
        assert name in [one.stream for one in query.relations]
        assert query.within == "1 minute"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT `{}`.k, b.at FROM s AS `{}`, s b WHERE `{}`.k = b.k WITHIN 1 minute",
        "SELECT `{}`.k FROM s `{}` JOIN s b WITHIN 1 minute",
        "SELECT b.k FROM s b, s `{}` WITHIN 1 minute",
    ],
)
def test_as_the_alias_of_a_stream(text: str) -> None:
    for name in NAMES:
        query = _read(text.replace("{}", name), _streams("r", "k"))
        assert name in [one.alias for one in query.relations]
        assert query.within == "1 minute"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT r.k AS `{}` FROM r, s WHERE r.k = s.k WITHIN 1 minute",
        "SELECT r.k `{}`, s.at FROM r, s WITHIN 1 minute",
        "SELECT count(*) AS `{}` FROM r, s WITHIN 1 minute HAVING `{}` > 1",
        "SELECT r.k + 1 AS `{}` FROM r, s WITHIN 1 minute GROUP BY `{}`",
    ],
)
def test_as_the_alias_of_a_column(text: str) -> None:
    for name in NAMES:
        streams = _streams("r", "k")
        query = _read(text.replace("{}", name), streams)
        assert query.items[0].name == name
        assert query.within == "1 minute"
