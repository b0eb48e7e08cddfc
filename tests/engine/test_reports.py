"""What a unit reports of a batch: rows and times by stream, and the most frequent keys."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from thetastream.engine.arrivals import SHOWN
from thetastream.engine.protocol import Report
from thetastream.options import JoinOptions
from thetastream.testing.inprocess import Batch, InProcessJoin
from thetastream.testing.queries import InProcessQuery

START = datetime(2026, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", tz="UTC")
LONG = pa.int64()


def rows(*keys: object, kind: pa.DataType = LONG, seconds: int = 0) -> pa.Table:
    """A row for each key, one second after the other."""
    times = [START + timedelta(seconds=seconds + number) for number in range(len(keys))]
    return pa.table({"k": pa.array(keys, kind), "t": pa.array(times, TIME)})


def micros(seconds: int) -> int:
    return int(START.timestamp() + seconds) * 1_000_000


def join_of(predicate: str = "r.k = s.k", *, schema: pa.Schema, **options: Any) -> InProcessJoin:
    return InProcessJoin(
        predicate,
        (schema, schema),
        within="1 hour",
        time={"r": "t", "s": "t"},
        options=JoinOptions(**{"units": 2, **options}),
    )


def reports_of(join: InProcessJoin, left: pa.Table, right: pa.Table, **given: Any) -> list[Report]:
    """The reports of one more batch."""
    before = len(join.runner.reports)
    join.batch(Batch(left=left, right=right, **given))
    return join.runner.reports[before:]


def heavy_of(reports: list[Report]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for report in reports:
        for stream, key, count in report.heavy:
            found[stream, key] += count
    return found


@pytest.mark.parametrize(
    "topology", ["hash", "contrand", "random", "matrix", "split", "broadcast", "multi-chained"]
)
def test_frequent_keys_are_those_of_the_batch(topology: str) -> None:
    """Merging brings old rows into new runs; they are not counted again."""
    join = join_of(schema=rows().schema, topology=topology)
    for number in range(6):
        found = reports_of(
            join,
            rows(*[7] * 20, *range(100, 140), seconds=number),
            rows(*[8] * 9, *range(200, 240), seconds=number),
        )
        heavy = heavy_of(found)
        assert heavy["r", "7"] == 20
        assert heavy["s", "8"] == 9
        assert set(heavy) == {("r", "7"), ("s", "8")}


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (pa.int32(), -5, "-5"),
        (pa.bool_(), True, "True"),
        (pa.date32(), date(2026, 3, 1), "2026-03-01"),
        (TIME, START, "2026-01-01 00:00:00 UTC"),
        (pa.decimal128(10, 2), Decimal("12.50"), "12.50"),
        (pa.float64(), -0.25, "-0.25"),
        (pa.string(), "Köln", "Köln"),
        (pa.string(), "a\x1b[2J\nb", "a?[2J?b"),
        (pa.string(), "x" * 100, "x" * (SHOWN - 1) + "…"),
        (pa.binary(), b"\x00\xff", "00ff"),
    ],
)
def test_a_frequent_key_is_shown_by_its_value(kind: pa.DataType, value: object, shown: str) -> None:
    left, right = rows(*[value] * 5, kind=kind), rows(value, kind=kind)
    found = reports_of(join_of(schema=left.schema), left, right)
    assert heavy_of(found) == {("r", shown): 5}


def test_several_hashed_columns_are_shown_together() -> None:
    table = pa.table(
        {
            "city": pa.array(["Ulm", "Ulm", "Bonn"]),
            "day": pa.array([1, 1, 2]),
            "t": pa.array([START] * 3, TIME),
        }
    )
    join = join_of("lower(r.city) = lower(s.city) AND r.day = s.day", schema=table.schema)
    assert heavy_of(reports_of(join, table, table.slice(2))) == {("r", "Ulm, 1"): 2}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("SELECT a.k, count(*) FROM a, b WHERE a.k = b.k GROUP BY a.k", r"x$"),
        # The units compare the values, so that they are there.
        ("SELECT count(*) FROM a, b WHERE a.k = b.k", r"x$"),
        ("SELECT a.t, b.t AS u FROM a, b WHERE a.k = b.k AND a.n = b.n", r"x, 1$"),
        ("SELECT count(*) FROM a, b WHERE lower(a.k) = b.k", r"hash [0-9a-f]{16}$"),
    ],
)
def test_a_hash_is_called_one_where_nothing_carries_its_value(text: str, shown: str) -> None:
    table = rows("x", "x", "y", kind=pa.string()).append_column("n", pa.array([1, 1, 2]))
    query = InProcessQuery(text, {"a": table.schema, "b": table.schema})
    query.batch([table, table.slice(2)], None)
    (heavy,) = [item for report in query.runner.reports for item in report.heavy]
    assert heavy[0] == "a"
    assert heavy[2] == 2
    assert re.match(shown, heavy[1]), heavy


def test_streams_are_counted_apart() -> None:
    join = join_of(schema=rows().schema)
    found = reports_of(join, rows(1, 2, 3), rows(4, seconds=50))
    for name, expected in (("r", (3, 0, micros(2))), ("s", (1, 0, micros(50)))):
        mine = [row for report in found for row in report.streams if row[0] == name]
        assert sum(row[1] for row in mine) == expected[0]
        assert sum(row[2] for row in mine) == expected[1]
        assert max(row[3] for row in mine if row[3] is not None) == expected[2]


def test_late_rows_are_counted_by_stream() -> None:
    join = join_of(schema=rows().schema)
    found = reports_of(join, rows(1, 2), rows(1, 2, seconds=60), watermark=micros(30))
    late = Counter[str]()
    for report in found:
        late.update({row[0]: row[2] for row in report.streams})
    assert late == {"r": 2, "s": 0}


def test_a_stream_that_stands_still_keeps_its_newest_time() -> None:
    """Across a restart, and however many batches the others bring."""
    join = join_of(schema=rows().schema)
    reports_of(join, rows(1, 2, 3), rows(1, seconds=10))
    for number in range(1, 8):
        join.restart()
        found = reports_of(join, rows(), rows(5, seconds=100 * number), watermark=micros(-5))
        newest = [row[3] for report in found for row in report.streams if row[0] == "r"]
        assert max(time for time in newest if time is not None) == micros(2)
        assert sum(row[1] for report in found for row in report.streams if row[0] == "r") == 0


def test_without_a_window_there_are_no_times() -> None:
    schema = rows().schema
    join = InProcessJoin("r.k = s.k", (schema, schema))
    found = reports_of(join, rows(1), rows(1))
    assert {row[3] for report in found for row in report.streams} == {None}


@pytest.mark.parametrize(
    ("predicate", "scheme"),
    [
        ("r.k = s.k AND s.k = t.k AND r.k = t.k", "auto"),
        ("r.k = s.k AND s.k < t.k", "auto"),
        ("r.k = s.k AND s.k = t.k", "tree"),
    ],
)
def test_three_streams_are_counted_once_each(predicate: str, scheme: Any) -> None:
    join = InProcessJoin(
        predicate,
        [rows().schema] * 3,
        within="1 hour",
        time="t",
        options=JoinOptions(units=2, scheme=scheme),
    )
    join.batch(Batch(rows(1, 1, 2), rows(1, seconds=9), rows(*[3] * 5, seconds=20)))
    found = [report for runner in join.runners for report in runner.reports]
    counted, newest = Counter[str](), {}
    for report in found:
        json.dumps(asdict(report))
        for name, count, late, time, _ in report.streams:
            counted[name] += count
            assert late == 0
            if time is not None:
                newest[name] = max(time, newest.get(name, time))
    assert counted == {"r": 3, "s": 1, "t": 5}
    assert newest == {"r": micros(2), "s": micros(9), "t": micros(24)}
    assert heavy_of(found)["r", "1"] == 2
