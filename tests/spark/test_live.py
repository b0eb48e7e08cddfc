"""Joins whose routing tables change while they run on Spark."""

from __future__ import annotations

import gzip
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import thetastream as ts
from tests.conftest import oracle, results, write_batches

SCHEMA = "id bigint, k int, x bigint, t timestamp"
START = 1_700_000_000_000_000
MINUTE = 60_000_000
ROWS = 150
WITHIN = "abs(epoch_us(r.t) - epoch_us(s.t)) <= 60000000"


def rows(stream: int, batch: int) -> pa.Table:
    random = np.random.default_rng([stream, batch])
    times = START + batch * MINUTE + random.integers(0, MINUTE, ROWS)
    return pa.table(
        {
            "id": pa.array(np.arange(ROWS) + batch * ROWS),
            "k": pa.array(random.integers(0, 40, ROWS).astype(np.int32)),
            "x": pa.array(random.integers(0, 1_000, ROWS)),
            "t": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )


class Live:
    """A query that gets one file per stream at a time."""

    def __init__(
        self,
        spark: SparkSession,
        root: Path,
        names: str = "rs",
        made: Callable[[int, int], pa.Table] = rows,
    ) -> None:
        """`made`: the rows of a stream in a batch."""
        self.spark, self.root, self.names, self.made = spark, root, names, made
        self.given = 0
        self.query: StreamingQuery | None = None
        self.out = "out"
        for name in names:
            (root / name).mkdir()

    @property
    def path(self) -> str:
        return str(self.root / "the control")

    @property
    def control(self) -> ts.Control:
        return ts.control(self.path)

    def start(
        self, build: Callable[[ts.Streams, ts.JoinOptions], DataFrame], **options: Any
    ) -> None:
        frames = {
            name: self.spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.root / name))
            for name in self.names
        }
        chosen = ts.JoinOptions(**{"control": self.path, "max_units": 3, **options})
        self.query = (
            build(ts.streams(**frames), chosen)
            .writeStream.format("parquet")
            .option("path", str(self.root / self.out))
            .option("checkpointLocation", str(self.root / "checkpoint"))
            .trigger(processingTime="0 seconds")
            .start()
        )

    def feed(self, count: int = 1) -> None:
        """So many batches, each heard of before the next."""
        assert self.query is not None
        for _ in range(count):
            for stream, name in enumerate(self.names):
                write_batches(self.root / name, [self.made(stream, self.given)], first=self.given)
            self.given += 1
            self.query.processAllAvailable()
            until(lambda: self.told().get("batch", -1) >= self.last_batch() >= 0)

    def last_batch(self) -> int:
        """The last batch that had rows, as far as Spark has reported."""
        assert self.query is not None
        batches = [p["batchId"] for p in self.query.recentProgress if p["numInputRows"]]
        return max(batches, default=-1)

    def told(self) -> dict[str, Any]:
        path = Path(self.path) / "status.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def settle(self, most: int = 25) -> None:
        for _ in range(most):
            status = self.control.status()
            if status.step == "settled" and not status.waiting:
                return
            self.feed()
        raise AssertionError(self.control.status())

    def stop(self) -> None:
        assert self.query is not None
        self.query.stop()
        self.query = None

    def tables(self) -> dict[str, pa.Table]:
        return {
            name: pa.concat_tables([self.made(stream, batch) for batch in range(self.given)])
            for stream, name in enumerate(self.names)
        }


def until(met: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture
def live(spark: SparkSession, tmp_path: Path) -> Iterator[Live]:
    # Batches without rows change nothing here, and take as long as others.
    given = {"shuffle.partitions": "3", "streaming.noDataMicroBatches.enabled": "false"}
    before = {name: spark.conf.get(f"spark.sql.{name}") for name in given}
    for name, value in given.items():
        spark.conf.set(f"spark.sql.{name}", value)
    yield Live(spark, tmp_path)
    for name, old in before.items():
        spark.conf.set(f"spark.sql.{name}", old or "")


def equality(streams: ts.Streams, options: ts.JoinOptions) -> DataFrame:
    return streams.join("r.k = s.k", within="1 minute", delay="1 minute", options=options)


def inequality(streams: ts.Streams, options: ts.JoinOptions) -> DataFrame:
    return streams.join("r.id < s.id", within="1 minute", delay="1 minute", options=options)


EQUALITY = f"SELECT r.id, s.id FROM r, s WHERE r.k = s.k AND {WITHIN}"


def units_of(live: Live) -> dict[str, int]:
    return {one.stream: len(one.units) for one in live.control.status().streams}


def test_scale_out_move_and_scale_in(live: Live) -> None:
    live.start(equality, units=2)
    live.feed(2)
    assert live.control.scale(3, wait=None) == 0
    live.settle()
    assert units_of(live) == {"r": 3, "s": 3}
    live.control.move(range(100), to=2, stream="r", drain="move", wait=None)
    live.feed(1)
    live.control.scale({"r": 1, "s": 2}, drain="move", wait=None)
    live.settle()
    assert units_of(live) == {"r": 1, "s": 2}
    live.feed(2)
    assert live.query is not None
    last = [batch for batch in ts.metrics(live.query) if batch.units][-1]
    assert {unit.unit for unit in last.units} == {0, 1}
    live.stop()
    changes = live.control.history()
    assert [change.change for change in changes] == [0, 1, 2, 3]
    assert changes[1].by == "hand"
    assert changes[1].drained is not None
    assert changes[3].units == {"r": 1, "s": 2}
    assert results(live.root, "r_id, s_id") == oracle(EQUALITY, **live.tables())


def test_a_full_history_moves_with_its_units(live: Live) -> None:
    def build(streams: ts.Streams, options: ts.JoinOptions) -> DataFrame:
        return streams.join("r.k = s.k AND r.x < s.x", options=options)

    live.start(build, units=2, full_history=True)
    live.feed(2)
    live.control.scale(3, wait=None)
    live.settle()
    live.control.scale(1, wait=None)
    live.settle()
    live.feed()
    assert live.query is not None
    last = [batch for batch in ts.metrics(live.query) if batch.units][-1]
    assert [unit.unit for unit in last.units] == [0]
    assert last.stored_rows == 2 * ROWS * live.given
    live.stop()
    assert not list((Path(live.path) / "exports").glob("*"))
    expected = oracle("SELECT r.id, s.id FROM r, s WHERE r.k = s.k AND r.x < s.x", **live.tables())
    assert results(live.root, "r_id, s_id") == expected


@pytest.mark.chaos  # Histories of three streams run in process.
def test_three_streams_and_a_restart_in_the_middle(spark: SparkSession, live: Live) -> None:
    def build(streams: ts.Streams, options: ts.JoinOptions) -> DataFrame:
        return streams.join(
            "abs(r.x - s.x) <= 3 AND s.k = t.k",
            within="1 minute",
            delay="1 minute",
            options=options,
        )

    (live.root / "t").mkdir()
    live.names = "rst"
    live.start(build, units=1)
    live.feed(2)
    live.control.scale(3, wait=None)
    live.feed(2)
    assert live.control.status().step != "settled"
    live.stop()
    live.start(build, units=1)
    live.settle()
    live.feed()
    live.stop()
    close = " AND ".join(
        f"abs(epoch_us({a}.t) - epoch_us({b}.t)) <= 60000000" for a, b in ("rs", "st", "rt")
    )
    sql = (
        f"SELECT r.id, s.id, t.id FROM r, s, t WHERE abs(r.x - s.x) <= 3 AND s.k = t.k AND {close}"
    )
    assert results(live.root, "r_id, s_id, t_id") == oracle(sql, **live.tables())


def test_aggregates_in_place(live: Live) -> None:
    def build(streams: ts.Streams, options: ts.JoinOptions) -> DataFrame:
        return streams.sql(
            "SELECT window.start AS since, count(*) AS c, sum(s.x) AS x FROM r, s"
            " WHERE r.k = s.k WITHIN 1 minute GROUP BY window(time, '1 minute')",
            delay="1 minute",
            options=options,
        )

    live.start(build, units=3)
    live.feed(2)
    live.control.scale(1, drain="move", wait=None)
    live.settle()
    live.feed(3)
    live.stop()
    sql = f"""
        SELECT epoch_us(since), count(*), CAST(sum(x) AS BIGINT) FROM (
            SELECT time_bucket(INTERVAL '1 minute', greatest(r.t, s.t)) AS since, s.x AS x
            FROM r, s WHERE r.k = s.k AND {WITHIN}
        ) GROUP BY since"""
    found = results(live.root, "epoch_us(since), c, CAST(x AS BIGINT)")
    expected = oracle(sql, **live.tables())
    assert len(found) >= live.given - 5
    # Windows that the watermark has not passed are still open.
    assert set(found) <= set(expected)


# -- what is refused --------------------------------------------------------------------------


def failure(live: Live) -> str:
    """What the query says when it stops by itself."""
    assert live.query is not None
    for stream, name in enumerate(live.names):
        write_batches(live.root / name, [rows(stream, live.given)], first=live.given)
    query = live.query
    until(lambda: not query.isActive, 60)
    text = str(query.exception())
    live.query = None
    return text


def copied(live: Live, source: str, target: str) -> None:
    shutil.rmtree(live.root / target, ignore_errors=True)
    shutil.copytree(live.root / source, live.root / target)


def test_what_does_not_belong_together_is_refused(live: Live) -> None:
    control = Path(live.path).name
    live.start(equality, units=2)
    live.feed(1)
    live.stop()
    copied(live, control, "old control")
    live.start(equality, units=2)
    live.control.scale(3, drain="move", wait=None)
    live.settle()
    live.feed()
    live.stop()
    copied(live, control, "new control")
    copied(live, "checkpoint", "new checkpoint")

    with pytest.raises(ts.ControlError, match="belongs to another query"):
        live.start(
            lambda streams, options: streams.join(
                "r.k = s.x", within="1 minute", delay="1 minute", options=options
            ),
            units=2,
        )
    with pytest.raises(ts.ControlError, match="fewer than the 3 units"):
        live.start(equality, max_units=2, units=2)

    # Of what units refuse (tests/steering/test_put_back.py), one case on Spark.
    copied(live, "old control", control)
    live.start(equality, units=2)
    assert "the control directory is older than the checkpoint" in failure(live)

    # Both of the same time go on, and with room for more units.
    copied(live, "new control", control)
    copied(live, "new checkpoint", "checkpoint")
    with pytest.warns(ts.ThetastreamWarning, match="7 units share 3 tasks"):
        live.start(equality, max_units=7, units=1)
    assert live.control.status().max_units == 7
    live.given += 1
    live.feed()
    assert results(live.root, "r_id, s_id") == oracle(EQUALITY, **live.tables())
    shutil.rmtree(live.root / control)
    assert "has no routing table" in failure(live)


def test_a_damaged_table_is_not_used(live: Live) -> None:
    live.start(equality, units=2)
    live.feed(1)
    live.control.scale(3, wait=None)
    live.feed(1)
    assert live.control.status().version == 1
    (path,) = (Path(live.path) / "tables").glob("*-00000001.json.gz")
    text = gzip.decompress(path.read_bytes()).replace(b'"max_units": 3', b'"max_units": 9')
    path.write_bytes(gzip.compress(text))
    said = failure(live)
    assert "a routing table is refused" in said
    assert path.name in said
    # The query goes on with the last good one, which follows under another number.
    with pytest.warns(ts.ThetastreamWarning, match="the version before it is used"):
        live.start(equality, units=2)
    live.given += 1
    live.feed(1)
    assert live.control.status().version == 2
    live.stop()
    assert results(live.root, "r_id, s_id") == oracle(EQUALITY, **live.tables())


def test_what_cannot_be_live(live: Live) -> None:
    for topology in ("matrix", "broadcast", "multi-chained"):
        with pytest.raises(ts.OptionError, match=f"topology='{topology}' keeps copies"):
            live.start(equality, topology=topology, units=2)
    with pytest.raises(ts.OptionError, match="leave out hot_values"):
        live.start(inequality, topology="stream-aware", units=3, hot_values=(1,))
    with pytest.raises(ts.OptionError, match="fewer than the 6 units"):
        live.start(equality, units=6)
    with pytest.raises(ts.OptionError, match="max_units is for joins"):
        live.start(equality, control=None)


def test_a_policy_scales_by_itself(live: Live) -> None:
    class Three:
        name = "three units"
        every = 0.0

        def decide(self, moment: ts.Moment, earlier: list[ts.Verdict]) -> ts.Verdict:
            if moment.units < 3:
                return ts.Verdict(
                    why="there are fewer than three", edit=ts.Scale(units=3, drain="move")
                )
            return ts.Verdict(why="all is well")

    live.start(equality, units=1)
    live.feed(1)
    assert live.query is not None
    with ts.manage(live.query, live.path, [Three()]) as manager:
        live.feed(1)
        live.settle()
        assert "there are fewer than three" in [one.why for one in manager.decisions]
    assert units_of(live) == {"r": 3, "s": 3}
    assert live.control.history()[1].by == "three units"
    live.feed()
    live.stop()
    assert results(live.root, "r_id, s_id") == oracle(EQUALITY, **live.tables())
