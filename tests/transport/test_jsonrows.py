"""JSON becomes exactly the values that it says, or nothing."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from thetastream.transport.jsonrows import JsonRows, Unreadable

COLUMNS = (
    "at timestamp, a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h string,"
    " i binary, j date, k timestamp_ntz, l decimal(20, 3), `m n` timestamp_ms"
)
_WHOLE = {"b": 8, "c": 16, "d": 32, "e": 64}
_ZONES = [UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-8))]
_TIMES = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29))


def _optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


ROWS = st.fixed_dictionaries(
    {
        "at": st.builds(lambda at, zone: at.replace(tzinfo=zone), _TIMES, st.sampled_from(_ZONES)),
        "a": _optional(st.booleans()),
        **{
            name: _optional(st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
            for name, bits in _WHOLE.items()
        },
        "f": _optional(st.floats(width=32, allow_nan=False, allow_infinity=False)),
        "g": _optional(st.floats(allow_nan=False, allow_infinity=False)),
        "h": _optional(st.text(st.characters(exclude_categories=["Cs"]))),
        "i": _optional(st.binary(max_size=20)),
        "j": _optional(st.dates()),
        "k": _optional(_TIMES),
        "l": _optional(st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: Decimal(n).scaleb(-3))),
        "m n": _optional(st.integers(-(2**40), 2**40)),
    }
)


def written(row: dict[str, Any]) -> bytes:
    """A row as some other program would write it."""
    out = dict(row)
    for name in ("at", "j", "k"):
        out[name] = None if out[name] is None else out[name].isoformat()
    out["i"] = None if out["i"] is None else base64.b64encode(out["i"]).decode()
    number, out["l"] = out["l"], "@"
    text = json.dumps({name: value for name, value in out.items() if value is not None})
    return text.replace('"@"', "null" if number is None else str(number)).encode()


@examples(60)
@given(st.lists(ROWS, min_size=1, max_size=5))
def test_values_are_what_was_written(rows: list[dict[str, Any]]) -> None:
    reader = JsonRows(COLUMNS, "at")
    batch = reader.batch([reader.row(written(row)) for row in rows])
    batch.validate(full=True)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    for row, found in zip(rows, batch.to_pylist(), strict=True):
        stamp = row["m n"]
        expected = row | {"m n": None if stamp is None else epoch + timedelta(milliseconds=stamp)}
        assert found == expected


def test_the_same_as_duckdb_reads(tmp_path: Path) -> None:
    columns = "at timestamp, zone int, fare double, note string, day date, sum decimal(10, 2)"
    reader = JsonRows(columns, "at")
    messages = [
        json.dumps(
            {
                "at": f"2026-01-{1 + n % 28:02}T{n % 24:02}:00:00.{n:06}+0{n % 3}:00",
                "zone": None if n % 5 == 0 else n - 50,
                "fare": n / 7,
                "note": f'ü "{n}" \\ \n',
                "day": f"2025-{1 + n % 12:02}-28",
                "sum": n * 1.25,
                "more": {"deep": [n]},
            }
        ).encode()
        for n in range(100)
    ]
    (tmp_path / "messages.json").write_bytes(b"\n".join(messages))
    names = ", ".join(f'"{name}"' for name in reader.schema.names)
    kinds = (
        "{'at': 'TIMESTAMPTZ', 'zone': 'INTEGER', 'fare': 'DOUBLE', 'note': 'VARCHAR',"
        " 'day': 'DATE', 'sum': 'DECIMAL(10, 2)'}"
    )
    with duckdb.connect() as base:
        base.execute("SET TimeZone = 'UTC'")
        expected = base.sql(
            f"SELECT {names} FROM read_json('{tmp_path / 'messages.json'}', columns = {kinds},"
            " format = 'newline_delimited')"
        ).to_arrow_table()
    batch = reader.batch([reader.row(message) for message in messages])
    assert batch.to_pylist() == expected.cast(batch.schema).to_pylist()


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("boolean", "1", "not true or false"),
        ("tinyint", "128", "whole number of 8 bits"),
        ("int", "5.0", "not a whole number"),
        ("int", "true", "not a whole number"),
        ("int", '"5"', "not a whole number"),
        ("bigint", "9223372036854775808", "64 bits"),
        ("float", "1e39", "out of range"),
        ("double", "1e999", "out of range"),
        ("double", "1" + "0" * 400, "out of range"),
        ("double", '"1.5"', "not a number"),
        ("double", "true", "not a number"),
        ("string", "5", "not a text"),
        ("string", '"\\ud800"', "whole characters"),
        ("binary", '"a"', "base64"),
        ("binary", "[]", "base64"),
        ("date", '"2026-02-30"', "not a date"),
        ("date", "5", "not a date"),
        ("timestamp", '"2026-01-01T00:00:00"', "without its zone"),
        ("timestamp", '"noon"', "not a time"),
        ("timestamp", "17", "not a time"),
        ("timestamp_ntz", '"2026-01-01T00:00:00Z"', "with a zone"),
        ("timestamp_s", "9223372036854775807", "out of range"),
        ("timestamp_ms", "1.5", "not a whole number"),
        ("decimal(5, 2)", "1.234", "not a decimal"),
        ("decimal(5, 2)", "1000", "not a decimal"),
        ("decimal(5, 2)", '"x"', "out of range"),
        ("decimal(5, 2)", '"NaN"', "not a number"),
        ("decimal(5, 2)", "true", "not a number"),
        ("decimal(5, 2)", "1e999999999", "not a decimal"),
    ],
)
def test_values_that_do_not_fit(kind: str, value: str, why: str) -> None:
    reader = JsonRows(f"at timestamp_us, x {kind}", "at")
    with pytest.raises(Unreadable, match=why) as error:
        reader.row(f'{{"at": 1, "x": {value}}}'.encode())
    assert "its 'x' is" in str(error.value)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (None, "no value"),
        (b"", "not JSON"),
        (b"\xff", "not UTF-8"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"at": NaN}', "not JSON"),
        (b'{"at": 1} {"at": 2}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"at": ' + b"1" * 5_000 + b"}", "not JSON"),
        (b"[]", "not one JSON object"),
        (b"{}", "no 'at'"),
        (b'{"at": null}', "no 'at'"),
    ],
)
def test_messages_that_are_no_rows(message: bytes | None, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        JsonRows("at timestamp_us", "at").row(message)


def test_decimals_are_exact() -> None:
    reader = JsonRows("at timestamp_us, x decimal(38, 2), y decimal(3), z double", "at")
    long = "123456789012345678901234567890123456.78"
    row = reader.row(f'{{"at": 1, "x": {long}, "y": "7.000", "z": 0.1}}'.encode())
    zero = reader.row(b'{"at": 1, "x": 0e50, "y": -1.5e1, "z": 1}')
    found = reader.batch([row, zero]).to_pylist()
    assert [one["x"] for one in found] == [Decimal(long), Decimal(0)]
    assert [one["y"] for one in found] == [Decimal(7), Decimal(-15)]
    assert math.isclose(found[0]["z"], 0.1, rel_tol=0)
    assert reader.batch([]).num_rows == 0


def test_names_and_case() -> None:
    reader = JsonRows(" At TIMESTAMP_NTZ ,`two words` Date", "At")
    assert reader.schema == pa.schema([("At", pa.timestamp("us")), ("two words", pa.date32())])
    row = reader.row(b'{"At": "2026-01-01T00:00:00.000001", "two words": "2026-01-31"}')
    (found,) = reader.batch([row]).to_pylist()
    assert found["two words"] == date(2026, 1, 31)
    assert found["At"] == datetime(2026, 1, 1, 0, 0, 0, 1)
