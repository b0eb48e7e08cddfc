"""A join with a stream at a site, over a thin link: what travels, and how fast it goes.

    python -m thetastream.bench.sites [--out docs/benchmarks] [--runs 3] [--scale 1.0]

Rows of 1,500 bytes with a key of 12 are at a site, which is a process of its own; the keys that
match come from files. A link of 2 MB/s lies between them. The transports take turns within each
run, and ratios are taken within a run. Bytes are counted on the link, all of them and both ways.
The results are compared with DuckDB. At the end rows are pushed to a site without the link, and
files are put before it: durable rows per second.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from thetastream.bench.data import SEED
from thetastream.bench.measures import Spread, spread
from thetastream.bench.run import environment, write_json
from thetastream.transport.client import SiteClient
from thetastream.transport.wire import Relay
from thetastream.workloads import SECOND, START, TIME_TYPE, write_batches

BANDWIDTH: Final = 2e6
PAYLOAD: Final = 1_480
"""Bytes beside the key and the time; at random, so that they cannot be compressed."""
TRANSPORTS: Final = ("simple", "semijoin", "auto")
SCHEMA: Final = "q BIGINT, k STRING, t TIMESTAMP"
INGESTED: Final = 2_000_000
PUSHED: Final = 50_000
"""Rows of a push, and of a file."""


@dataclass(frozen=True)
class Case:
    """A match rate, and how many rows it is tried with."""

    name: str
    matching: int
    """One row in so many has a partner."""
    rows: int
    """Per trigger."""
    triggers: int

    def scaled(self, by: float) -> Case:
        """The same with fewer rows per trigger."""
        return Case(
            self.name, self.matching, max(self.matching, int(self.rows * by)), self.triggers
        )


CASES: Final = (Case("1 %", 100, 40_000, 4), Case("100 %", 1, 4_000, 10))
WARM_UP: Final = Case("warm-up", 10, 500, 3)
"""Not counted: the JVM compiles what it runs often."""


def remote_rows(case: Case, trigger: int) -> pa.Table:
    """The rows of the site for one trigger, ten seconds of them."""
    random = np.random.default_rng([SEED, case.matching, trigger])
    first = trigger * case.rows
    times = START + 10 * SECOND * trigger + np.sort(random.integers(0, 10 * SECOND, case.rows))
    return pa.table(
        {
            "k": [f"{number:012d}" for number in range(first, first + case.rows)],
            "at": pa.array(times, TIME_TYPE),
            "payload": pa.array([random.bytes(PAYLOAD) for _ in range(case.rows)], pa.binary()),
        }
    )


def local_rows(case: Case, trigger: int) -> pa.Table:
    """The partners of some of them, from the same ten seconds."""
    keys = np.arange(trigger * case.rows, (trigger + 1) * case.rows, case.matching)
    times = START + 10 * SECOND * trigger + np.arange(len(keys)) * 10 * SECOND // len(keys)
    return pa.table(
        {
            "q": keys,
            "k": [f"{number:012d}" for number in keys],
            "t": pa.array(times, TIME_TYPE),
        }
    )


class ThinLink(Relay):
    """So many bytes per second in each direction, for all connections together."""

    def __init__(self, port: int, bandwidth: float) -> None:
        self._bandwidth = bandwidth
        self._guard = threading.Lock()
        self._free = {True: 0.0, False: 0.0}
        self.passed = {True: 0, False: 0}
        """Bytes towards the site, and from it."""
        super().__init__("127.0.0.1", port)

    def passing(self, data: bytes, *, up: bool) -> bytes:
        """Waits until the link has taken the data."""
        with self._guard:
            self._free[up] = max(time.monotonic(), self._free[up]) + len(data) / self._bandwidth
            self.passed[up] += len(data)
            wait = self._free[up] - time.monotonic()
        time.sleep(max(0.0, wait))
        return data


@contextmanager
def served(folder: Path, streams: dict[str, str]) -> Iterator[str]:
    """The address of a site that is a process of its own; it gets the lines of each stream."""
    folder.mkdir(parents=True)
    file = folder / "site.toml"
    lines = [f'[streams.{name}]\ntime = "at"\n{line}\n' for name, line in streams.items()]
    file.write_text('dir = "tuples"\nlisten = "127.0.0.1:0"\n' + "".join(lines))
    process = subprocess.Popen(
        [sys.executable, "-m", "thetastream", "site", "serve", str(file)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if " on grpc" in line:
                yield line.split(" on ", 1)[1].split(";")[0]
                break
        else:
            raise RuntimeError("the site did not start")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        if process.stderr is not None:
            process.stderr.close()


def transported(
    case: Case, transport: Any, address: str, local: Path, root: Path
) -> dict[str, Any]:
    """One query over all rows: its triggers, and the results that it has written."""
    import duckdb

    import thetastream as ts

    spark = ts.session(app="bench", cores=2, memory="4g")
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
    link = ThinLink(int(address.rsplit(":", 1)[1]), BANDWIDTH)
    try:
        remote = ts.site(f"grpc://127.0.0.1:{link.port}").stream("rows", max_rows=case.rows)
        near = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(local))
        joined = ts.streams(p=remote, q=near).join(
            "p.k = q.k",
            within="20 seconds",
            delay="1 second",
            options=ts.JoinOptions(transport=transport),
        )
        query = (
            joined.select("q", "payload")
            .writeStream.format("parquet")
            .option("path", str(root / "out"))
            .option("checkpointLocation", str(root / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    finally:
        link.close()
    with duckdb.connect() as database:
        found = database.execute(
            f"SELECT {CHECK} FROM read_parquet('{root}/out/*.parquet')"
        ).fetchone()
    loads = [(batch, load) for batch in ts.metrics(query) for load in batch.sites if load.read_rows]
    return {
        "case": case.name,
        "transport": transport,
        "bytes": sum(link.passed.values()),
        "triggers": [
            {
                "rows": load.read_rows,
                "seconds": batch.seconds,
                "transport": "semijoin" if load.partial_rows else "simple",
                "fetched": load.fetched_rows,
            }
            for batch, load in loads
        ],
        "results": list(found or ()),
    }


CHECK: Final = "count(*), count(DISTINCT q), sum(hash(q, payload) % 1000000007)::VARCHAR"
"""Says whether two sets of results are the same."""


def expected(case: Case) -> list[Any]:
    """What DuckDB makes of the same rows."""
    import duckdb

    with duckdb.connect() as database:
        for name, rows in (("p", remote_rows), ("q", local_rows)):
            whole = pa.concat_tables([rows(case, trigger) for trigger in range(case.triggers)])
            database.register(name, whole)
        sql = (
            "SELECT q.q, p.payload FROM p, q WHERE p.k = q.k"
            f" AND abs(epoch_us(p.at) - epoch_us(q.t)) <= {20 * SECOND}"
        )
        return list(database.execute(f"SELECT {CHECK} FROM ({sql})").fetchone() or ())


def rate(one: dict[str, Any]) -> float:
    """Rows per second of trigger time, without the first trigger."""
    counted = one["triggers"][1:] or one["triggers"]
    return float(sum(each["rows"] for each in counted) / sum(each["seconds"] for each in counted))


def compared(case: Case, runs: int, scratch: Path) -> list[dict[str, Any]]:
    """All transports on the same rows, in turns."""
    local, done = scratch / "local", []
    write_batches((local_rows(case, trigger) for trigger in range(case.triggers)), local)
    right = expected(case)
    with served(scratch / "site", {"rows": "push = true"}) as address:
        with SiteClient(address) as client:
            for trigger in range(case.triggers):
                client.push("rows", remote_rows(case, trigger))
        for run in range(runs):
            turn = run % len(TRANSPORTS)
            for transport in TRANSPORTS[turn:] + TRANSPORTS[:turn]:
                root = scratch / "query"
                one = transported(case, transport, address, local, root)
                one |= {"run": run, "right": one["results"] == right}
                shutil.rmtree(root)
                done.append(one)
                print(
                    f"  {case.name:7} run {run}  {transport:9} {rate(one):>9,.0f} rows/s,"
                    f" {one['bytes']:>12,} bytes{'' if one['right'] else '  WRONG RESULT'}",
                    flush=True,
                )
    return done


def ingest(rows: int, scratch: Path) -> dict[str, float]:
    """Rows per second that a site makes durable: pushed by one program, and from files."""
    tables = []
    for first in range(0, rows, PUSHED):
        numbers = np.arange(first, min(rows, first + PUSHED))
        tables.append(
            pa.table(
                {
                    "id": numbers,
                    "zone": numbers % 263,
                    "fare": numbers * 0.25,
                    "at": pa.array(START + numbers * 1000, TIME_TYPE),
                }
            )
        )
    streams = {"pushed": "push = true", "files": f'folder = "{scratch / "files"}"'}
    (scratch / "files").mkdir(parents=True)
    found = {}
    with served(scratch / "site", streams) as address, SiteClient(address) as client:
        began = time.monotonic()
        for table in tables:
            client.push("pushed", table)
        found["pushed"] = rows / (time.monotonic() - began)
        written = write_batches(iter(tables), scratch / "written")
        began = time.monotonic()
        for path in written:
            path.rename(scratch / "files" / path.name)
        while client.stream("files").next < rows:
            time.sleep(0.02)
        found["files"] = rows / (time.monotonic() - began)
    return found


@dataclass(frozen=True)
class Figure:
    """What is wanted, and what came out."""

    what: str
    wanted: str
    measured: str
    reached: bool


def figures(document: dict[str, Any]) -> list[Figure]:
    """Ratios within a run, and what they should be."""
    runs: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for one in document["runs"]:
        runs.setdefault((one["case"], one["run"]), {})[one["transport"]] = one

    def ratio(case: str, of: Callable[[dict[str, Any]], float]) -> Spread:
        mine = [
            of(found["semijoin"]) / of(found["simple"])
            for (name, _), found in runs.items()
            if name == case
        ]
        return spread(mine) or Spread(0.0, 0.0, 0.0)

    def size(one: dict[str, Any]) -> float:
        return float(one["bytes"])

    few, all_match = (case.name for case in CASES)
    less, faster, more = ratio(few, size), ratio(few, rate), ratio(all_match, size)
    beside = [
        max(rate(found[one]) for one in ("simple", "semijoin")) / rate(found["auto"])
        for found in runs.values()
    ]
    slowest = spread([max(beside)]) or Spread(0.0, 0.0, 0.0)
    ends = [
        one["triggers"][-1]["transport"]
        for one in document["runs"]
        if (one["case"], one["transport"]) == (all_match, "auto")
    ]
    wrong = sum(not one["right"] for one in document["runs"])
    durable = min(document["ingest"].values())
    both = ", ".join(f"{name} {value:,.0f}" for name, value in document["ingest"].items())

    def shown(value: Spread) -> str:
        return value.text(lambda number: f"{number:.3g}")

    return [
        Figure(f"match rate {few}: bytes, semijoin against simple", "≤ 0.05", shown(less),
               less.middle <= 0.05),
        Figure(f"match rate {few}, link of 2 MB/s: throughput, semijoin against simple", "≥ 8",
               shown(faster), faster.middle >= 8),
        Figure(f"match rate {all_match}: bytes, semijoin against simple", "≤ 1.1", shown(more),
               more.middle <= 1.1),
        Figure(f"match rate {all_match}: what `auto` ends with", "simple",
               ", ".join(sorted(set(ends))), set(ends) == {"simple"}),
        Figure("time with `auto` against the better of the two, at most", "≤ 1.1", shown(slowest),
               slowest.high <= 1.1),
        Figure("a site's ingest, durable, rows per second", "≥ 200,000", both, durable >= 200_000),
        Figure("queries with wrong, lost or doubled results", "0", str(wrong), wrong == 0),
    ]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run all of it and write JSON; 1 if a figure was missed."""
    from thetastream.bench import report

    parser = argparse.ArgumentParser(
        prog="python -m thetastream.bench.sites",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks"), help="where results go")
    parser.add_argument("--runs", type=int, default=3, help="runs of each transport")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows")
    chosen = parser.parse_args(argv)
    os.umask(0o077)
    runs: list[dict[str, Any]] = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="thetastream-sites-"))
        compared(WARM_UP, 1, Path(folder) / "warm-up")
        for number, case in enumerate(CASES):
            runs += compared(case.scaled(chosen.scale), chosen.runs, Path(folder) / str(number))
        durable = ingest(int(INGESTED * chosen.scale), Path(folder) / "ingest")
    document = {
        "bandwidth": BANDWIDTH,
        "scale": chosen.scale,
        "environment": environment(),
        "runs": runs,
        "ingest": durable,
    }
    found = figures(document)
    document["figures"] = [vars(one) for one in found]
    write_json(chosen.out / "sites.json", document)
    report.write(chosen.out)
    for one in found:
        print(
            f"{'yes' if one.reached else 'NO '}  {one.what}: {one.measured} (wanted {one.wanted})"
        )
    return 0 if all(one.reached for one in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
