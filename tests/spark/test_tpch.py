"""TPC-H Q5, Q7 and Band at scale factor 0.01, as streams, with every topology that fits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import thetastream as ts
from tests.conftest import drain, results, write_batches

BATCHES = 2
EQUALITY = ("hash", "contrand", "random", "matrix")
SUPPLIER = "s_suppkey bigint, n_name string, r_name string"
LINEITEM = (
    "l_orderkey bigint, l_suppkey bigint, l_quantity decimal(15,2), l_shipdate date,"
    " l_shipinstruct string, l_shipmode string"
)
QUERIES = {
    "q5": (
        "supplier.s_suppkey = lineitem.l_suppkey AND supplier.r_name = 'AMERICA'",
        EQUALITY,
        11_995,
    ),
    "q7": (
        "supplier.s_suppkey = lineitem.l_suppkey AND supplier.n_name IN ('PERU', 'ETHIOPIA')"
        " AND lineitem.l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'",
        EQUALITY,
        1_217,
    ),
    "band": (
        "abs(l1.l_orderkey - l2.l_orderkey) <= 1 AND l1.l_shipmode = 'TRUCK'"
        " AND l2.l_shipinstruct = 'NONE' AND l1.l_quantity > 48",
        ("band", "random", "matrix"),
        1_073,
    ),
}

FIRST = {"q5": "hash", "q7": "contrand", "band": "band"}
"""The topology of each query that runs with the suite."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    folder = tmp_path_factory.mktemp("tpch")
    program = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run(
        [program, "parquet", "-s", "0.01", "-o", str(folder), "-q"],
        check=True,
        capture_output=True,
        timeout=120,
    )
    with duckdb.connect() as database:
        for name in ("supplier", "nation", "region", "lineitem"):
            database.execute(
                f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{folder}/{name}.parquet')"
            )
        return {
            "supplier": database.sql(
                "SELECT s_suppkey, n_name, r_name FROM supplier"
                " JOIN nation ON s_nationkey = n_nationkey JOIN region ON n_regionkey = r_regionkey"
            ).to_arrow_table(),
            "lineitem": database.sql(
                "SELECT l_orderkey, l_suppkey, l_quantity, l_shipdate, l_shipinstruct, l_shipmode"
                " FROM lineitem"
            ).to_arrow_table(),
        }


def halves(table: pa.Table) -> list[pa.Table]:
    step = -(-table.num_rows // BATCHES)
    return [table.slice(start, step) for start in range(0, table.num_rows, step)]


@pytest.mark.parametrize(
    ("query", "topology"),
    [
        pytest.param(query, topology, marks=[] if topology == FIRST[query] else pytest.mark.chaos)
        for query, (_, fitting, _) in QUERIES.items()
        for topology in fitting
    ],
)
def test_count(
    query: str,
    topology: str,
    tables: dict[str, pa.Table],
    stream: Callable[..., DataFrame],
    tmp_path: Path,
) -> None:
    predicate, _, wanted = QUERIES[query]
    lineitem = stream(write_batches(tmp_path / "lineitem", halves(tables["lineitem"])), LINEITEM)
    if query == "band":
        frames = {"l1": lineitem, "l2": lineitem}
    else:
        supplier = write_batches(tmp_path / "supplier", halves(tables["supplier"]))
        frames = {"supplier": stream(supplier, SUPPLIER), "lineitem": lineitem}
    units = 4 if topology == "matrix" else (3, 2)
    options = ts.JoinOptions(topology=topology, units=units, full_history=True)  # type: ignore[arg-type]
    drain(ts.streams(**frames).join(predicate, options=options), tmp_path)
    assert len(results(tmp_path)) == wanted
