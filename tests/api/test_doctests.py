"""The examples in the docstrings of public names, run as they stand there.

They call the package `ts`. `orders` and `rides` are streams, `spark` is their session, and `query`
is a join of them that has read all there is. Its routing is live: `control_path` is its control
directory. `folder` is for files. `address` is that of a site with a stream `rides`.
"""

from __future__ import annotations

import doctest
import sys
from collections.abc import Iterator
from time import monotonic, sleep
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import thetastream as ts
from tests.conftest import drain
from tests.transport.conftest import Running
from thetastream.transport.addresses import Address
from thetastream.transport.config import SiteConfig, StreamConfig

ORDERS = "order_id bigint, x int, fare double, placed_at timestamp"
RIDES = "ride_id bigint, x int, fare double, seen_at timestamp"
NAMES = [name for name in ts.__all__ if name != "__version__"]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A site with one ride."""
    streams = {"rides": StreamConfig("rides", "seen_at")}
    folder = tmp_path_factory.mktemp("site")
    running = Running(SiteConfig(folder / "site", Address("127.0.0.1", 0, False), streams))
    kinds = {"ride_id": "int64", "x": "int32", "fare": "double"}
    schema = pa.schema([*kinds.items(), ("seen_at", pa.timestamp("us", tz="UTC"))])
    with ts.SiteClient(running.address) as client:
        client.push("rides", pa.table([[10], [7], [1.0], [0]], schema=schema))
    yield running.address
    running.stop()


@pytest.fixture(scope="module")
def scene(
    spark: SparkSession, address: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the examples may use."""
    folder = tmp_path_factory.mktemp("doctests")
    orders = [(1, 7, 3.0), (2, 7, 4.0), (3, 7, 5.0), (4, 9, 6.0)]
    rides = [(10, 7, 1.0), (11, 8, 2.0)]
    for name, rows, schema in (("orders", orders, ORDERS), ("rides", rides, RIDES)):
        key, x, fare, time = (column.split()[0] for column in schema.split(", "))
        timed = f"timestamp_seconds(1767225600 + row_number() OVER (ORDER BY {key}) - 1) AS {time}"
        frame = spark.createDataFrame(rows, f"{key} bigint, {x} int, {fare} double")
        frame.selectExpr("*", timed).coalesce(1).write.parquet(str(folder / name))
    read = spark.readStream
    streams = {
        "orders": read.schema(ORDERS).parquet(str(folder / "orders")),
        "rides": read.schema(RIDES).parquet(str(folder / "rides")),
    }
    control_path = str(folder / "control")
    joined = ts.streams(**streams).join(
        "orders.x = rides.x",
        within="1 hour",
        delay="1 minute",
        options=ts.JoinOptions(control=control_path, units=2, max_units=2),
    )
    query = drain(joined, folder)
    # Spark tells of a batch a moment after it is done.
    end = monotonic() + 30
    while ts.control(control_path).status().batch is None:
        assert monotonic() < end, "the query was not heard of"
        sleep(0.02)
    known = {"spark": spark, "query": query, "control_path": control_path, "folder": folder}
    return {"ts": ts, "address": address, **known, **streams}


def examples(name: str) -> list[doctest.DocTest]:
    """The examples of a public name and of its methods."""
    found: Any = getattr(ts, name)
    module = sys.modules.get(getattr(found, "__module__", ""))
    return [test for test in doctest.DocTestFinder().find(found, name, module) if test.examples]


def is_error(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, Exception | Warning)


@pytest.mark.parametrize("name", NAMES)
def test_public_names_have_an_example(name: str) -> None:
    """All but the particular errors, which have no use of their own, and constants."""
    found = getattr(ts, name)
    if is_error(found) or not (isinstance(found, type) or callable(found)):
        return
    assert examples(name), f"the docstring of {name} has no example"


@pytest.mark.spark
def test_examples_do_what_they_show(scene: dict[str, Any]) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    report: list[str] = []
    for name in NAMES:
        for test in examples(name):
            test.globs = dict(scene)
            runner.run(test, out=report.append)
    assert not report, "\n".join(report)
