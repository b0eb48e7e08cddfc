"""Metrics of a query: what its progress and its units' reports come to."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import thetastream as ts
from tests.conftest import drain, write_batches
from thetastream.runtime.dataflow import INNER, OBSERVATION

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def row(
    name: str, rows: int, newest: float | None, *, late: int = 0, delay: int | None = 5000
) -> list[Any]:
    """What a unit says of a stream."""
    micros = None if newest is None else int(at(newest).timestamp() * 1_000_000)
    return [name, rows, late, micros, delay]


def report(unit: int, *streams: list[Any], heavy: tuple[Any, ...] = (), **fields: Any) -> str:
    counts = dict.fromkeys(
        ("stage", "probes", "results", "out_bytes", "stored_rows", "stored_bytes", "runs", "busy"),
        0,
    )
    given = {
        "rows_in": sum(item[1] for item in streams),
        "late": sum(item[2] for item in streams),
        "streams": streams,
        "heavy": heavy,
    }
    return json.dumps({"unit": unit, "stage": 0, **counts, **given, **fields})


def progress(
    batch: int, *reports: str, rows: int = 0, watermark: float | None = None, **given: Any
) -> SimpleNamespace:
    times = {} if watermark is None else {"watermark": at(watermark).isoformat()}
    if "newest" in given:
        times["max"] = at(given.pop("newest")).isoformat()
    observed = {f"{OBSERVATION}_token": [list(reports)]} if reports else {}
    return SimpleNamespace(
        batchId=batch,
        numInputRows=rows,
        durationMs={"triggerExecution": 500},
        eventTime=times,
        observedMetrics=given.pop("observed", observed),
    )


def metrics(*batches: SimpleNamespace) -> ts.Metrics:
    query: Any = SimpleNamespace(recentProgress=list(batches))
    return ts.metrics(query)


def test_each_stream_has_its_rows_newest_time_and_watermark() -> None:
    (batch,) = metrics(
        progress(
            0,
            report(0, row("orders", 3, 10), row("rides", 1, 4, late=1)),
            report(1, row("orders", 2, 12), row("rides", 0, None)),
            watermark=-1,
        )
    )
    assert batch.streams == (
        ts.StreamLoad(stream="orders", rows_in=5, late=0, newest=at(12), watermark=at(7)),
        ts.StreamLoad(stream="rides", rows_in=1, late=1, newest=at(4), watermark=at(-1)),
    )
    assert batch.newest == at(12)
    assert batch.lag == 13
    assert batch.late == 1


def test_the_lag_is_to_the_newest_time_ever_and_never_negative() -> None:
    """A batch may bring old rows only; the one before said how far the streams are."""
    found = metrics(
        progress(0, report(0, row("a", 1, 100), row("b", 1, 90)), newest=100),
        progress(1, report(0, row("a", 1, 50), row("b", 0, None)), newest=50, watermark=85),
        progress(2, watermark=85),
        progress(3, report(0, row("a", 1, 10), row("b", 0, None)), newest=10, watermark=200),
    )
    assert [batch.lag for batch in found] == [None, 15, 15, 0]
    assert [batch.newest for batch in found] == [at(100)] * 4
    assert found[2].streams[1] == ts.StreamLoad(
        stream="b", rows_in=0, late=0, newest=at(90), watermark=at(85)
    )


def test_the_lag_of_a_join_without_times_is_unknown() -> None:
    found = metrics(progress(0, report(0, row("a", 3, None, delay=None)), rows=3))
    assert found[0].lag is None
    assert found[0].newest is None
    assert found[0].streams[0].watermark is None
    assert "- " in str(found)


def test_times_that_python_does_not_have_are_left_out() -> None:
    far = [["a", 1, 0, 1 << 62, 5000]]
    assert metrics(progress(0, report(0, *far)))[0].streams[0].newest is None


def test_a_batch_without_reports_goes_on_from_the_one_before() -> None:
    found = metrics(
        progress(0, report(0, row("a", 3, 5), stored_rows=3, stored_bytes=60), rows=3),
        progress(1),
    )
    assert (found[1].stored_rows, found[1].stored_bytes, found[1].units) == (3, 60, ())
    assert found[1].imbalance is None


def test_frequent_keys_of_all_units_are_put_together() -> None:
    (batch,) = metrics(
        progress(
            0,
            report(0, row("a", 9, 1), heavy=(("a", "AAPL", 5), ("a", "MSFT", 4))),
            report(1, row("a", 9, 1), heavy=(("a", "MSFT", 6), ("b", "AAPL", 3))),
        )
    )
    assert [(item.stream, item.key, item.rows) for item in batch.heavy] == [
        ("a", "MSFT", 10),
        ("a", "AAPL", 5),
        ("b", "AAPL", 3),
    ]
    assert batch.units[1].heavy[0] == ts.HeavyKey(stream="a", key="MSFT", rows=6)


def loads(*rows: int) -> list[str]:
    return [report(unit, row("a", count, 1), row("b", 0, 1)) for unit, count in enumerate(rows)]


@pytest.mark.parametrize(
    ("rows", "imbalance", "noted"),
    [
        ((1000, 1000), 1.0, False),
        ((2000, 0), 2.0, True),
        ((1025, 2742), 2742 * 2 / 3767, True),
        ((8, 0), 2.0, False),
        ((0, 0), None, False),
    ],
)
def test_imbalance(rows: tuple[int, ...], imbalance: float | None, noted: bool) -> None:
    found = metrics(progress(0, *loads(*rows)))
    assert found[0].imbalance == (None if imbalance is None else pytest.approx(imbalance))
    assert any("times its share" in note for note in found.notes) is noted


def test_measures_of_the_units() -> None:
    found = metrics(
        progress(
            0,
            report(0, row("a", 30, 1), results=5, updates=60, compared=900),
            report(1, row("a", 10, 1), results=0, updates=10),
            report(2, row("a", 20, 1), results=1, updates=20),
        ),
        progress(1),
    )
    assert (found[0].excess, found[0].gathered_from) == (10, 2)
    assert found[0].updates_per_row == 1.5
    assert found[0].units[0].compared == 900
    assert (found[1].excess, found[1].gathered_from, found[1].updates_per_row) == (None, 0, None)
    for text in (str(found), found._repr_html_()):
        assert "rows of the busiest unit above the mean" in text
        assert "2 of 3" in text
        assert "1.50" in text
        assert "batch 0" in text
    assert "busiest" not in str(found[1:])


def test_results_of_inner_joins_are_not_gathered() -> None:
    observed = {
        f"{OBSERVATION}_0a": [[report(0, row("c", 4, 1), results=7), report(1)]],
        f"{INNER}_000_0c": [[report(n, row("a", 2, 1), results=9) for n in range(5)]],
    }
    found = metrics(progress(0, observed=observed))
    assert found[0].gathered_from == 1
    assert "1 of 2" in str(found)


def test_what_to_do_about_an_imbalance_depends_on_the_join() -> None:
    band = metrics(progress(0, *loads(4000, 0)))
    assert "bucket_width" in band.notes[-1]
    assert band.notes[-1].startswith("Unit 0 got 4,000 of 4,000 rows, 2.0 times its share of 2")
    keyed = metrics(
        progress(0, report(0, row("a", 4000, 1), heavy=(("a", "AAPL", 900),)), report(1))
    )
    assert "such as 'AAPL' of a" in keyed.notes[-1]
    assert 'topology="contrand"' in keyed.notes[-1]
    three = [row(name, 2000, 1) for name in "abc"]
    assert 'topology="random"' in metrics(progress(0, report(0, *three), report(1))).notes[-1]


def test_joins_of_a_tree_and_stages_are_told_apart() -> None:
    """Their units have the same numbers, and what comes of one join goes into the next."""
    observed = {
        f"{OBSERVATION}_0a": [[report(0, row("c", 50, 1), results=7), report(1, results=1)]],
        f"{INNER}_001_0b": [[report(0, row("b", 30, 1), results=100)]],
        f"{INNER}_000_0c": [[report(0, row("a", 20, 1), results=1000), report(0, stage=1)]],
    }
    (batch,) = metrics(progress(0, observed=observed))
    assert batch.results == 8
    assert [(unit.join, unit.unit) for unit in batch.units] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 0),
        (3, 1),
    ]
    assert [stream.stream for stream in batch.streams] == ["a", "b", "c"]
    assert batch.imbalance == 2


def test_a_stream_that_stands_still_is_named() -> None:
    def step(number: int, rides: int) -> SimpleNamespace:
        newest = 10 if rides else None
        loads = row("orders", 50, 100 * number + 20), row("rides", rides, newest)
        return progress(number, report(0, *loads), rows=50 + rides)

    assert metrics(step(0, 10), step(1, 3)).notes == []
    (note,) = metrics(step(0, 10), step(1, 0), step(2, 0), progress(3)).notes
    assert note == (
        "rides brought no rows in the last 2 batches that had rows: its newest time, 2026-01-01"
        " 00:00:10, holds the watermark back, and the state of the other streams grows."
    )
    (never,) = metrics(step(0, 0)).notes
    assert never.startswith("rides brought no rows")
    assert "no result can leave" in never


def test_late_rows_are_noted() -> None:
    (note,) = metrics(progress(0, report(0, row("a", 9, 1, late=2), row("b", 1, 1)))).notes
    assert note.startswith("2 rows came after the watermark and were dropped: raise delay")


def test_metrics_are_a_list_that_prints_as_a_table() -> None:
    found = metrics(
        *(
            progress(
                number,
                report(0, row("orders", 1500, 10), heavy=(("orders", "<b>", 7),), stored_rows=3000),
                rows=1500,
                watermark=2,
            )
            for number in range(25)
        )
    )
    assert isinstance(found, list)
    assert [batch.batch for batch in found] == list(range(25))
    assert str(found) == repr(found)
    lines = str(found).splitlines()
    assert lines[0].split()[:3] == ["batch", "rows", "in"]
    assert lines[1].split()[:5] == ["5", "1,500", "0.50", "3,000", "0"]
    assert "2026-01-01 00:00:02" in lines[1]
    assert "(5 earlier batches are not shown)" in str(found)
    assert "Streams in batch 24" in lines
    assert str(found[24]) == str(found[24:])
    assert isinstance(found[:2], ts.Metrics)
    html = found._repr_html_()
    assert html.startswith("<div><table>")
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert str(ts.Metrics()) == "no batches yet"


@pytest.mark.spark
def test_a_query_says_which_stream_is_idle(
    tmp_path: Path, stream: Callable[..., DataFrame]
) -> None:
    """Delays are those of the watermarks, the caller's own included."""

    def rows(*keys: str, second: int) -> pa.Table:
        times = pa.array([at(second)] * len(keys), pa.timestamp("us", tz="UTC"))
        return pa.table({"k": pa.array(keys), "t": times})

    left = [rows("x", "x", "y", second=second) for second in (0, 60, 120)]
    write_batches(tmp_path / "a", left)
    write_batches(tmp_path / "b", [rows("x", second=1)])
    schema = "k string, t timestamp"
    streams = ts.streams(
        a=stream(tmp_path / "a", schema),
        b=stream(tmp_path / "b", schema).withWatermark("t", "30 seconds"),
    )
    joined = streams.join("a.k = b.k", within="1 hour", delay="10 seconds")
    found = [batch for batch in ts.metrics(drain(joined, tmp_path)) if batch.units]
    last = [batch for batch in found if batch.rows_in][-1]
    a, b = last.streams
    assert (a.stream, a.rows_in, a.newest, a.watermark) == ("a", 3, at(120), at(110))
    assert (b.stream, b.rows_in, b.newest, b.watermark) == ("b", 0, at(1), at(-29))
    assert last.heavy == (ts.HeavyKey(stream="a", key="x", rows=2),)
    assert last.watermark == at(-29)
    assert last.lag == 149
    assert any(note.startswith("b brought no rows") for note in ts.Metrics(found).notes)
