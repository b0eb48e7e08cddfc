"""A join that is scaled while it runs: BiStream's figure 12, and what a change costs.

    python -m thetastream.bench.elastic [--out docs/benchmarks] [--rows 20000]

A batch stands for a minute of the paper's experiment: 50 of them, a window of five, a check of the
load with each, three equal decisions in a row. Rates follow the paper's story: the load grows and
stays high, dips and rises for a short time, and falls. The results are counted against DuckDB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from thetastream.bench.charts import panels, svg
from thetastream.bench.data import SEED
from thetastream.workloads import SECOND, START, TIME_TYPE, write_batch

MINUTE = 60 * SECOND
MINUTES = 50
WINDOW = 5
UNITS, MOST_UNITS = 8, 16
HIGH, LOW, TARGET, PATIENCE = 0.8, 0.3, 0.6, 3
QUIET = range(22, 32)
"""The minutes with the short dip and rise, in which nothing may change."""
KEYS = 50_000
SCHEMA = "id BIGINT, k BIGINT, t TIMESTAMP"
CHANGE_UNITS = (2, 4)
BEFORE, AFTER = 10, 10


def rate(minute: int) -> float:
    """The rate in a minute, relative to the first."""
    if minute < 10:
        return 1.0
    if minute < 33:
        return {23: 1.2, 24: 1.2, 27: 2.1, 28: 2.1}.get(minute, 1.6)
    return 0.65


def stream(rows: int, minute: int, side: int) -> pa.Table:
    """The rows of one minute."""
    random = np.random.default_rng([SEED, minute, side])
    times = START + minute * MINUTE + np.sort(random.integers(0, MINUTE, rows))
    return pa.table(
        {
            "id": pa.array(np.arange(rows) + minute * 10_000_000),
            "k": pa.array(random.integers(0, KEYS, rows)),
            "t": pa.array(times, TIME_TYPE),
        }
    )


class Query:
    """An equality join that takes one minute at a time."""

    def __init__(self, root: Path, partitions: int, **options: Any) -> None:
        import thetastream as ts

        self.root = root
        self._given = 0
        self.spark = ts.session(app="bench", cores=2, memory="6g")
        self.spark.sparkContext.setLogLevel("ERROR")
        self.spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        self.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        for name in "rs":
            (root / name).mkdir(parents=True)
        frames = {name: reader.parquet(str(root / name)) for name in "rs"}
        self.control_path = str(root / "control")
        joined = ts.streams(**frames).join(
            "r.k = s.k",
            within=f"{WINDOW} minutes",
            delay="1 second",
            options=ts.JoinOptions(control=self.control_path, **options),
        )
        self.query = (
            joined.writeStream.format("noop")
            .option("checkpointLocation", str(root / "checkpoint"))
            .start()
        )
        self.control = ts.control(self.control_path)

    def minute(self, number: int, rows: int) -> Any:
        """The measures of a batch with so many rows of each stream."""
        import time

        import thetastream as ts

        self._given += 2 * rows
        for side, name in enumerate("rs"):
            write_batch(stream(rows, number, side), self.root / name, number)
        self.query.processAllAvailable()
        while True:
            # Spark reports on a batch a moment after it is done, and the loop is told then.
            status = self.control.status()
            done = [one for one in ts.metrics(self.query) if one.rows_in]
            taken = sum(one.rows_in for one in done)
            if taken >= self._given and status.batch is not None and status.batch >= done[-1].batch:
                return done[-1]
            time.sleep(0.02)

    def stop(self) -> None:
        self.query.stop()


def figure_12(root: Path, rows: int) -> dict[str, Any]:
    """The join under two-phase scaling, minute by minute."""
    import thetastream as ts

    query = Query(root, MOST_UNITS, topology="random", units=UNITS, max_units=MOST_UNITS)
    probe = [query.minute(number, round(rows * rate(number))) for number in range(WINDOW + 2)]
    # With the first rate the load is what it should be.
    capacity = probe[-1].stored_bytes / UNITS / TARGET
    policy = ts.TwoPhaseScaling(
        capacity=capacity, high=HIGH, low=LOW, target=TARGET, patience=PATIENCE, every=0.0
    )
    minutes: list[dict[str, Any]] = []
    with ts.manage(query.query, query.control_path, [policy]) as manager:
        for number in range(len(probe), MINUTES):
            count = round(rows * rate(number))
            done = query.minute(number, count)
            units = len(query.control.status().streams[0].units)
            minutes.append(
                {
                    "minute": number,
                    "rows": 2 * count,
                    "seconds": done.seconds,
                    "stored_bytes": done.stored_bytes,
                    "load": done.stored_bytes / capacity / units,
                    "units": units,
                    "step": query.control.status().step,
                }
            )
            print(f"  minute {number}: load {minutes[-1]['load']:.2f}, {units} units", flush=True)
        decisions = [one.why for one in manager.decisions]
    history = query.control.history()
    # Of all batches: Spark may take the files of one minute in two of them.
    everything = ts.metrics(query.query)
    query.stop()
    return {
        "rows": rows,
        "capacity": capacity,
        "minutes": minutes,
        "decisions": decisions,
        "changes": [{"what": one.what, "why": one.why, "by": one.by} for one in history],
        "results": sum(one.results for one in everything),
        "late": sum(one.late for one in everything),
        "expected": expected(rows),
    }


def expected(rows: int) -> int:
    """How many results DuckDB finds."""
    import duckdb

    tables = {
        name: pa.concat_tables(
            [stream(round(rows * rate(minute)), minute, side) for minute in range(MINUTES)]
        )
        for side, name in enumerate("rs")
    }
    with duckdb.connect() as database:
        for name, table in tables.items():
            database.register(name, table)
        found = database.execute(
            "SELECT count(*) FROM r, s WHERE r.k = s.k"
            f" AND abs(epoch_us(r.t) - epoch_us(s.t)) <= {WINDOW * MINUTE}"
        ).fetchone()
    return int(found[0]) if found else 0


def change_cost(root: Path, rows: int) -> dict[str, Any]:
    """The time of triggers before, during and after units are added, at the same load."""
    least, most = CHANGE_UNITS
    query = Query(root, most, units=least, max_units=most)
    warm = WINDOW + 3
    seconds: list[tuple[str, float]] = []
    number = 0
    for _ in range(warm + BEFORE):
        done = query.minute(number, rows)
        if number >= warm:
            seconds.append(("before", done.seconds))
        number += 1
    query.control.scale(most, wait=None)
    while True:
        done = query.minute(number, rows)
        seconds.append(("during", done.seconds))
        number += 1
        status = query.control.status()
        if status.step == "settled" and not status.waiting:
            break
    for _ in range(AFTER):
        seconds.append(("after", query.minute(number, rows).seconds))
        number += 1
    query.stop()
    medians = {
        phase: statistics.median(length for name, length in seconds if name == phase)
        for phase in ("before", "during", "after")
    }
    return {
        "rows": 2 * rows,
        "seconds": seconds,
        "medians": medians,
        "during": medians["during"] / medians["before"],
        "after": medians["after"] / medians["before"],
    }


def picture(minutes: Sequence[dict[str, Any]]) -> Figure:
    """Rate, load and units over time."""
    xs = [one["minute"] for one in minutes]
    return panels(
        "Two-phase scaling while the rate changes",
        xs,
        [
            ("rows per minute", [one["rows"] for one in minutes], ()),
            ("load of a unit", [one["load"] for one in minutes], (LOW, HIGH)),
            ("units", [one["units"] for one in minutes], ()),
        ],
        x_label="minute",
        shaded=(QUIET.start, QUIET.stop - 1),
    )


def verdict(found: dict[str, Any]) -> dict[str, Any]:
    """What the figure claims, and whether it was so."""
    minutes = found["minutes"]
    units = {one["minute"]: one["units"] for one in minutes}
    quiet = {units[minute] for minute in QUIET}
    return {
        "units are added as the load grows": max(units.values()) > UNITS,
        "units are removed as it falls": units[MINUTES - 1] < max(units.values()),
        "nothing changes in the short dip and rise": len(quiet) == 1,
        "no result is lost or doubled": found["results"] == found["expected"],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run both, write JSON and the chart; 1 if something was not as claimed."""
    parser = argparse.ArgumentParser(
        prog="python -m thetastream.bench.elastic",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks"), help="where results go")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of a stream per minute")
    chosen = parser.parse_args(argv)
    os.umask(0o077)
    with tempfile.TemporaryDirectory(prefix="thetastream-elastic-") as scratch:
        found = figure_12(Path(scratch) / "figure", chosen.rows)
        cost = change_cost(Path(scratch) / "cost", 5 * chosen.rows)
    claims = verdict(found)
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("elastic.json", json.dumps({"figure": found, "claims": claims, "cost": cost}, indent=1)),
        ("elastic.svg", svg(picture(found["minutes"]))),
    ):
        path = chosen.out / name
        path.write_text(text + "\n")
        path.chmod(0o644)
    for claim, held in claims.items():
        print(f"{'yes' if held else 'NO '}  {claim}")
    print(
        f"time of a trigger against the median of the {BEFORE} before a change from"
        f" {CHANGE_UNITS[0]} to {CHANGE_UNITS[1]} units: {cost['during']:.2f} during,"
        f" {cost['after']:.2f} after"
    )
    return 0 if all(claims.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
