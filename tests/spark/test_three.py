"""Three and more streams on Spark, from files to a sink, with a restart, against DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as ts
from tests.conftest import drain, oracle, results, write_batches

START = 1_700_000_000_000_000
MINUTE = 60_000_000
SCHEMA = "id bigint, k int, x bigint, name string, t timestamp"
TIMES = ", ".join(f"epoch_us({name}.t)" for name in "rst")
WINDOW = f"greatest({TIMES}) - least({TIMES}) <= 60000000"


def rows(rng: np.random.Generator, batch: int, count: int = 90) -> pa.Table:
    """Tuples of one minute, in no order, with NULLs."""
    return pa.table(
        {
            "id": pa.array(np.arange(count) + 1000 * batch),
            "k": pa.array(
                rng.integers(0, 12, count).astype(np.int32), mask=rng.random(count) < 0.1
            ),
            "x": pa.array(rng.integers(-60, 60, count)),
            "name": pa.array(rng.choice(["", "a", "zürich-nord", "zürich-süd"], count)),
            "t": pa.array(
                START + batch * MINUTE + rng.integers(0, MINUTE, count),
                pa.timestamp("us", tz="UTC"),
            ),
        }
    )


@pytest.fixture(scope="module")
def sides() -> dict[str, list[pa.Table]]:
    rng = np.random.default_rng(40)
    return {name: [rows(rng, batch) for batch in range(2)] for name in "rst"}


@pytest.fixture(scope="module")
def frames(
    spark: SparkSession, sides: dict[str, list[pa.Table]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, DataFrame]:
    made = {}
    for name, batches in sides.items():
        folder = write_batches(tmp_path_factory.mktemp(name), batches)
        made[name] = spark.read.schema(SCHEMA).parquet(str(folder)).cache()
        made[name].createOrReplaceTempView(f"three_{name}")
    return made


CYCLIC = "r.k = s.k AND s.x > t.x AND abs(t.x - r.x) <= 9"
CHAIN = "abs(r.x - s.x) <= 4 AND s.name = t.name AND s.k <> t.k"
CASES: list[tuple[str, dict[str, Any]]] = [
    (CYCLIC, {"units": 2}),
    (CHAIN, {"units": (1, 2, 3), "intermediate": "pairs", "chunk_rows": 1000, "cache_bytes": 0}),
    (CYCLIC, {"units": 2, "scheme": "tree"}),
]


@pytest.mark.usefixtures("no_empty_batches")
@pytest.mark.parametrize(("predicate", "options"), CASES)
def test_streams_equal_the_oracle_after_a_restart(
    predicate: str,
    options: dict[str, Any],
    sides: dict[str, list[pa.Table]],
    stream: Callable[..., DataFrame],
    tmp_path: Path,
) -> None:
    """The second run builds everything anew: only the checkpoint knows what was stored."""
    batches: list[ts.BatchMetrics] = []
    for upto in (1, 2):
        streams = {
            name: stream(write_batches(tmp_path / name, batches[:upto]), SCHEMA)
            for name, batches in sides.items()
        }
        joined = ts.streams(**streams).join(
            predicate, within="1 minute", delay="2 minutes", options=ts.JoinOptions(**options)
        )
        batches += ts.metrics(drain(joined, tmp_path))
    wanted = oracle(
        f"SELECT r.id, s.id, t.id FROM r, s, t WHERE {predicate} AND {WINDOW}",
        **{name: pa.concat_tables(batches) for name, batches in sides.items()},
    )
    assert len(wanted) > 100
    assert results(tmp_path, "r_id, s_id, t_id") == wanted
    assert sum(batch.late for batch in batches) == 0
    found = sum(batch.results for batch in batches)
    # What the chain has left over for Spark is checked after the units have counted.
    assert found >= len(wanted) if predicate == CHAIN else found == len(wanted)
    packs = any(unit.entries for batch in batches for unit in batch.units)
    assert packs is ("scheme" not in options)


@pytest.mark.usefixtures("no_empty_batches")
def test_a_late_tuple_is_late_in_both_stages(
    stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    """Of a tuple that the watermark has passed nothing comes out, wherever it would be used."""
    table = rows(np.random.default_rng(1), 0, 1)

    def one(number: int, seconds: int) -> pa.Table:
        moment = pa.array([START + seconds * 1_000_000], pa.timestamp("us", tz="UTC"))
        made = table.set_column(0, "id", pa.array([number]))
        return made.set_column(4, "t", moment)

    batches = {
        "r": [one(1, 0), one(2, 300), one(3, 301)],
        "s": [one(1, 0), one(2, 300), one(3, 302)],
        "t": [one(1, 0), one(2, 300), one(4, 1)],
    }
    streams = {
        name: stream(write_batches(tmp_path / name, tables), SCHEMA)
        for name, tables in batches.items()
    }
    joined = ts.streams(**streams).join(
        "abs(r.x - s.x) <= 1 AND abs(s.x - t.x) <= 1", within="10 seconds", delay="10 seconds"
    )
    query = drain(joined, tmp_path)
    assert results(tmp_path, "r_id, s_id, t_id") == [
        (1, 1, 1),
        *((r, s, 2) for r in (2, 3) for s in (2, 3)),
    ]
    assert sum(batch.late for batch in ts.metrics(query)) == 1


SPARK_TIMES = ", ".join(f"unix_micros({name}.t)" for name in "rst")
SPARK_WINDOW = f"greatest({SPARK_TIMES}) - least({SPARK_TIMES}) <= 60000000"
QUERIES = [
    "SELECT r.id, s.x + t.x AS both FROM r, s, t WHERE {p} {w}",
    "SELECT r.k, count(*) AS c, sum(t.x) AS total, max(s.name) AS name FROM r, s, t"
    " WHERE {p} {w} GROUP BY r.k HAVING count(*) > 2",
    "SELECT count(DISTINCT t.k) AS kinds, avg(r.x - s.x) AS mean FROM r, s, t WHERE {p} {w}",
]


@pytest.mark.parametrize(
    ("query", "predicate"), [*((query, CYCLIC) for query in QUERIES), (QUERIES[1], CHAIN)]
)
def test_queries_over_three_relations(
    query: str, predicate: str, spark: SparkSession, frames: dict[str, DataFrame]
) -> None:
    found = ts.streams(**frames).sql(
        query.format(p=predicate, w="WITHIN 1 minute"), time="t", options=ts.JoinOptions(units=2)
    )
    text = query.format(p=predicate, w=f"AND {SPARK_WINDOW}")
    for name in "rst":
        text = text.replace(f" {name},", f" three_{name} {name},")
    wanted = spark.sql(text.replace(" t WHERE", " three_t t WHERE"))
    assert found.columns == wanted.columns
    assert sorted(map(repr, found.collect())) == sorted(map(repr, wanted.collect()))


def test_four_relations_and_a_stream_with_itself(
    spark: SparkSession, frames: dict[str, DataFrame]
) -> None:
    condition = "a.k = b.k AND b.x = c.x AND c.k = d.k AND a.id < d.id"
    found = ts.streams(**frames).sql(
        f"SELECT a.id AS a, b.id AS b, c.id AS c, d.id AS d FROM r a, s b, t c, r d"
        f" WHERE {condition} WITHIN 20 seconds",
        time="t",
        options=ts.JoinOptions(units=2),
    )
    times = ", ".join(f"unix_micros({name}.t)" for name in "abcd")
    wanted = spark.sql(
        "SELECT a.id AS a, b.id AS b, c.id AS c, d.id AS d"
        " FROM three_r a, three_s b, three_t c, three_r d"
        f" WHERE {condition} AND greatest({times}) - least({times}) <= 20000000"
    )
    assert sorted(found.collect()) == sorted(wanted.collect())
    assert found.count() > 10


@pytest.mark.parametrize("scheme", ["auto", "tree"])
def test_time_windows_over_three_streams(
    scheme: Any, sides: dict[str, list[pa.Table]], stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    """Windows of the newest member's time are written once, when they are over."""
    streams = {
        name: stream(write_batches(tmp_path / name, batches), SCHEMA)
        for name, batches in sides.items()
    }
    counted = ts.streams(**streams).sql(
        f"SELECT unix_seconds(window.start) AS since, count(*) AS c FROM r, s, t WHERE {CHAIN}"
        " WITHIN 1 minute GROUP BY window(time, '30 seconds')",
        delay="1 second",
        options=ts.JoinOptions(units=2, scheme=scheme),
    )
    drain(counted, tmp_path)
    newest = "epoch_us(greatest(r.t, s.t, t.t)) // 30000000 * 30"
    wanted = oracle(
        f"SELECT {newest}, count(*) FROM r, s, t WHERE {CHAIN} AND {WINDOW} GROUP BY ALL",
        **{name: pa.concat_tables(batches) for name, batches in sides.items()},
    )
    found = results(tmp_path, "since, c")
    assert found
    assert found == wanted[: len(found)]


def test_batches_give_the_same(
    sides: dict[str, list[pa.Table]], frames: dict[str, DataFrame]
) -> None:
    for predicate in (CYCLIC, CHAIN):
        found = ts.streams(**frames).join(predicate, within="1 minute", time="t")
        wanted = oracle(
            f"SELECT r.id, s.id, t.id FROM r, s, t WHERE {predicate} AND {WINDOW}",
            **{name: pa.concat_tables(batches) for name, batches in sides.items()},
        )
        got = [tuple(row) for row in found.select("r_id", "s_id", "t_id").collect()]
        assert sorted(got, key=repr) == wanted
