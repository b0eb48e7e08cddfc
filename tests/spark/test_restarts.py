"""Queries that go on from their checkpoint with something changed, where Spark takes part.

What needs no Spark is in tests/engine/test_restarts.py and tests/steering/test_restarts.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import thetastream as ts
from tests.conftest import drain, oracle, results, write_batches

SCHEMA = "id bigint, k int, x int, t timestamp"
START = 1_700_000_000_000_000
MINUTE = 60_000_000
ROWS = 40
PREDICATE = "r.k = s.k AND r.id <> s.id"
WITHIN = f"abs(epoch_us(r.t) - epoch_us(s.t)) <= {MINUTE}"
ORACLE = f"SELECT r.id, r.x, s.id, s.x FROM r, s WHERE {PREDICATE} AND {WITHIN}"
COLUMNS = "r_id, r_x, s_id, s_x"
PARTITIONS = "spark.sql.shuffle.partitions"

pytestmark = pytest.mark.usefixtures("no_empty_batches")


def rows(stream: int, batch: int) -> pa.Table:
    random = np.random.default_rng([stream, batch])
    times = START + batch * MINUTE + random.integers(0, MINUTE, ROWS)
    return pa.table(
        {
            "id": pa.array(np.arange(ROWS) + batch * ROWS),
            "k": pa.array(random.integers(0, 9, ROWS).astype(np.int32)),
            "x": pa.array(random.integers(0, 50, ROWS).astype(np.int32)),
            "t": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )


def retyped(table: pa.Table, kinds: Mapping[str, pa.DataType]) -> pa.Table:
    for name, kind in kinds.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table.column(name).cast(kind))
    return table


class Restarts:
    """A query over files that is run again and again, and gets one file per stream each time."""

    def __init__(self, spark: SparkSession, root: Path, names: str = "rs") -> None:
        self.spark, self.root, self.names = spark, root, names
        self.given = 0

    def feed(self, **kinds: pa.DataType) -> None:
        for stream, name in enumerate("rst"):
            table = retyped(rows(stream, self.given), kinds)
            write_batches(self.root / name, [table], first=self.given)
        self.given += 1

    def join(
        self,
        predicate: str = PREDICATE,
        *,
        names: str | None = None,
        schema: str = SCHEMA,
        delay: str = "1 minute",
        **options: Any,
    ) -> DataFrame:
        frames = {
            name: self.spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.root / name))
            for name in names or self.names
        }
        chosen = ts.JoinOptions(**{"units": 2, **options})
        return ts.streams(**frames).join(predicate, within="1 minute", delay=delay, options=chosen)

    def refusal(self, joined: DataFrame) -> str:
        """What stops the query."""
        with pytest.raises(StreamingQueryException) as refused:
            drain(joined, self.root)
        return str(refused.value)

    def lose_the_last_commit(self) -> None:
        """As if the driver had died before the end of the last batch."""
        last = str(self.given - 1)
        for log in (self.root / "checkpoint" / "commits", self.root / "out" / "_spark_metadata"):
            for path in (log / last, log / f".{last}.crc"):
                path.unlink(missing_ok=True)

    def tables(self) -> dict[str, pa.Table]:
        return {
            name: pa.concat_tables([rows(stream, batch) for batch in range(self.given)])
            for stream, name in enumerate(self.names)
        }


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = str(spark.conf.get(name))
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def test_what_may_change_gives_all_results_once(spark: SparkSession, tmp_path: Path) -> None:
    query = Restarts(spark, tmp_path)
    query.feed()
    drain(query.join(), tmp_path)
    query.feed()
    with setting(spark, PARTITIONS, "5"):
        more = {"delay": "5 minutes", "archive_period": "1 second", "chunk_rows": 3}
        drain(query.join(**more, cache_bytes=0), tmp_path)
    query.lose_the_last_commit()
    query.feed()
    with setting(spark, PARTITIONS, "1"):
        drain(query.join(delay="1 second"), tmp_path)
    query.lose_the_last_commit()
    query.feed()
    control = str(tmp_path / "control")
    last = drain(query.join(control=control), tmp_path)
    assert sum(batch.late for batch in ts.metrics(last)) == 0
    assert results(tmp_path, COLUMNS) == oracle(ORACLE, **query.tables())
    assert ts.control(control).status().batch == query.given - 1
    query.feed()
    assert "ControlError" in (message := query.refusal(query.join()))
    assert "is in a control directory, and none was given" in message


SWAPPED: dict[str, tuple[dict[str, Any], dict[str, pa.DataType], str]] = {
    "a dropped column": ({"schema": "id bigint, k int, t timestamp"}, {}, "columns"),
    "a wider column": (
        {"schema": SCHEMA.replace("x int", "x bigint")},
        {"x": pa.int64()},
        "columns",
    ),
    "a key as text": (
        {"schema": SCHEMA.replace("k int", "k string")},
        {"k": pa.string()},
        "keys",
    ),
}


def test_what_may_not_change_is_refused_and_nothing_is_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Restarts(spark, tmp_path)
    query.feed()
    drain(query.join(), tmp_path)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "before")

    def put_back() -> None:
        """A refused batch has been planned, with the files of the changed query."""
        shutil.rmtree(tmp_path / "checkpoint")
        shutil.copytree(tmp_path / "before", tmp_path / "checkpoint")
        query.given = 1

    for change, kinds, named in SWAPPED.values():
        query.feed(**kinds)
        text = query.refusal(query.join(**change))
        assert "FingerprintError: the checkpoint was written by another query" in text
        assert f"  {named}: was" in text
        put_back()
    query.feed()
    with setting(spark, "spark.sql.ansi.enabled", "false"):
        text = query.refusal(query.join())
    assert "session: was time zone UTC, ANSI mode on, is time zone UTC, ANSI mode off" in text
    drain(query.join(), tmp_path)
    assert results(tmp_path, COLUMNS) == oracle(ORACLE, **query.tables())


def test_what_spark_refuses_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    """Before any unit looks at its state, so in Spark's words; docs/deployment.md has them."""
    query = Restarts(spark, tmp_path, "rst")
    chain = f"{PREDICATE} AND s.x = t.x"
    query.feed()
    drain(query.join(chain), tmp_path)
    query.feed()
    for change in ({"scheme": "symmetric"}, {"predicate": f"{chain} AND r.x <= t.x"}):
        text = query.refusal(query.join(**{"predicate": chain, **change}))
        assert "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA" in text
    assert "3] sources in the checkpoint" in query.refusal(query.join(names="rs"))
    assert "Wrong basePath" in query.refusal(query.join(chain, names="srt"))
    drain(query.join(chain), tmp_path)
    times = ", ".join(f"epoch_us({name}.t)" for name in "rst")
    sql = (
        f"SELECT r.id, s.id, t.id FROM r, s, t WHERE {chain}"
        f" AND greatest({times}) - least({times}) <= {MINUTE}"
    )
    assert results(tmp_path, "r_id, s_id, t_id") == oracle(sql, **query.tables())
