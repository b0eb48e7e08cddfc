"""What is read of a text before the parser sees it."""

from __future__ import annotations

import pytest

from thetastream.planner import is_query


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "select*from r",
        "\n\t Select r.id",
        "-- one\n-- two\r\nSELECT 1",
        "-- one\rSELECT 1",
        "/* one *//**/ /* two\nlines */SELECT 1",
        "/* a /* nested */ comment */ SELECT 1",
        "/*/ SELECT 0 */ SELECT 1",
        "/**/" * 20_000 + "SELECT 1",
        "SELECT",
    ],
)
def test_a_query_begins_with_select(text: str) -> None:
    assert is_query(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "r.id = s.id",
        "selected = 1",
        "select_1 = 1",
        "`select` = 1",
        "-- SELECT 1",
        "/* SELECT 1",
        "/* SELECT 1 */ r.id = s.id",
        "/* a /* nested */ SELECT 1 */ r.id = 1",
        "/**/" * 20_000 + "r.id = s.id",
        "/*" * 20_000 + "SELECT 1",
        "- SELECT",
    ],
)
def test_a_predicate_does_not(text: str) -> None:
    assert not is_query(text)
