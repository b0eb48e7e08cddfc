"""Late rows on Spark: event times before 1970, and windows between some of the streams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import thetastream as ts
from tests.conftest import Rows, write_batches

SECOND = 1_000_000
SCHEMA = "id bigint, k int, t timestamp"
Batches = list[list[tuple[int, int | None]]]


def table(*rows: tuple[int, int | None]) -> pa.Table:
    """Rows that match each other: a number and a time in seconds."""
    times = [None if second is None else second * SECOND for _, second in rows]
    return pa.table(
        {
            "id": pa.array([number for number, _ in rows], pa.int64()),
            "k": pa.array([1] * len(rows), pa.int32()),
            "t": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )


@pytest.fixture
def run(stream: Callable[..., DataFrame], tmp_path: Path) -> Callable[..., tuple[Rows, int]]:
    """Runs a query over batches of streams: all rows that it put out, and how many were late."""

    def play(
        made: Callable[[ts.Streams], DataFrame], mode: str = "append", **batches: Batches
    ) -> tuple[Rows, int]:
        frames = {
            name: stream(write_batches(tmp_path / name, [table(*one) for one in mine]), SCHEMA)
            for name, mine in batches.items()
        }
        found: Rows = []
        query = (
            made(ts.streams(**frames))
            .writeStream.foreachBatch(
                lambda frame, _: found.extend(tuple(row) for row in frame.collect())
            )
            .outputMode(mode)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(180)
        return sorted(found), sum(batch.late for batch in ts.metrics(query))

    return play


OLD: dict[str, Batches] = {
    "r": [[(1, -10), (2, 5)], [(3, -9)], [(4, 100)], [(5, -3), (6, 101)]],
    "s": [[(11, -11), (12, 6)], [(13, 0)], [(14, 100)], [(15, 101)]],
}
"""The watermark is 1970 in the first three batches, and 80 s after it in the fourth."""
JOINED = [(1, 11), (2, 12), (2, 13), (3, 11), (4, 14), (4, 15), (6, 14), (6, 15)]
SINCE_1970 = [pair for pair in JOINED if pair[0] not in (1, 3)]
SETTINGS: dict[str, Any] = {"delay": "20 seconds", "time": "t"}


def test_a_join_takes_times_before_1970(run: Callable[..., tuple[Rows, int]]) -> None:
    """Until the watermark is after 1970 nothing is late."""
    found = run(
        lambda two: two.join("r.k = s.k", within="5 seconds", **SETTINGS).select("r_id", "s_id"),
        **OLD,
    )
    assert found == (JOINED, 1)


@pytest.mark.parametrize("aggregation", ["auto", "enumerate"])
def test_distinct_leaves_times_before_1970_out(
    run: Callable[..., tuple[Rows, int]], aggregation: Any
) -> None:
    """Spark refuses results that are older than its first watermark: their rows are late."""
    text = "SELECT DISTINCT r.id AS a, s.id AS b FROM r, s WHERE r.k = s.k WITHIN 5 seconds"
    options = ts.JoinOptions(aggregation=aggregation)
    found = run(lambda two: two.sql(text, options=options, **SETTINGS), **OLD)
    assert found == (SINCE_1970, 4)


@pytest.mark.parametrize(
    ("mode", "aggregation", "wanted"),
    [
        # The last window is not over when the stream ends.
        ("append", "auto", [(5, 2)]),
        ("append", "enumerate", [(5, 2)]),
        ("update", "auto", [(5, 1), (5, 2), (100, 1), (100, 4)]),
    ],
)
def test_time_windows_leave_times_before_1970_out(
    run: Callable[..., tuple[Rows, int]], mode: str, aggregation: Any, wanted: Rows
) -> None:
    text = (
        "SELECT unix_seconds(window.start) AS since, count(*) AS c FROM r, s WHERE r.k = s.k"
        " WITHIN 5 seconds GROUP BY window(time, '5 seconds')"
    )
    options = ts.JoinOptions(aggregation=aggregation)
    found, late = run(lambda two: two.sql(text, options=options, **SETTINGS), mode, **OLD)
    assert late == 4
    assert found == wanted


@pytest.mark.parametrize("scheme", ["auto", "tree"])
def test_distinct_of_three_streams_leaves_them_out_in_every_join(
    run: Callable[..., tuple[Rows, int]], scheme: Any
) -> None:
    text = (
        "SELECT DISTINCT r.id AS a, s.id AS b, t.id AS c FROM r, s, t"
        " WHERE r.k = s.k AND s.k = t.k WITHIN 5 seconds"
    )
    options = ts.JoinOptions(units=2, scheme=scheme)
    third: Batches = [[(21, -10), (22, 5)], [(23, -1)], [(24, 100)], []]
    found = run(lambda all_: all_.sql(text, options=options, **SETTINGS), **OLD, t=third)
    wanted = [(2, 12, 22), (2, 13, 22), *((a, b, 24) for a, b in SINCE_1970[2:])]
    assert found == (wanted, 6)


PARTLY = (
    "r.k = s.k AND s.k = t.k AND t.t BETWEEN r.t - INTERVAL 5 SECONDS AND r.t + INTERVAL 5 SECONDS"
)


@pytest.mark.parametrize("scheme", ["auto", "tree"])
def test_every_stream_is_late_where_some_have_a_window(
    run: Callable[..., tuple[Rows, int]], scheme: Any
) -> None:
    """The window is between `r` and `t`; rows of `s` are late, too, and need a time."""
    batches: dict[str, Batches] = {
        "r": [[(1, 100), (9, None)], [(2, 79), (3, 80)]],
        "s": [[(11, 100), (19, None)], [(12, 79), (13, 80)]],
        "t": [[(21, 100), (29, None)], [(22, 79), (23, 80)]],
    }
    options = ts.JoinOptions(units=2, scheme=scheme, full_history=True)
    found = run(
        lambda three: three.join(PARTLY, options=options, **SETTINGS).select(
            "r_id", "s_id", "t_id"
        ),
        **batches,
    )
    assert found == ([(r, s, r + 20) for r in (1, 3) for s in (11, 13)], 3)
