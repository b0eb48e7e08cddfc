"""The fuzzers' command line: `python -m tests.fuzz [fuzzer ...] --seconds 600`."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import thetastream as ts
from tests.fuzz.cases import keep
from tests.fuzz.histories import HistoryFuzzer
from tests.fuzz.predicates import PredicateFuzzer
from tests.fuzz.protocol import Budget, Fuzzer, Summary
from tests.fuzz.queries import QueryFuzzer

FUZZERS: dict[str, Callable[[SparkSession], Fuzzer]] = {
    "predicates": PredicateFuzzer,
    "queries": QueryFuzzer,
    "histories": HistoryFuzzer,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the fuzzers that are asked for; 1 if one of them found something."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("fuzzers", nargs="*", metavar="fuzzer", help=", ".join(FUZZERS))
    parser.add_argument("--seconds", type=float, help="how long in all (default: 60)")
    parser.add_argument("--count", type=int, help="how many tries of each fuzzer")
    parser.add_argument("--seed", type=int, help="the first seed (default: a new one)")
    parser.add_argument("--keep", type=Path, help="a folder for failures as JSON files")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.fuzzers if name not in FUZZERS]
    if unknown:
        parser.error(f"there is no fuzzer {unknown[0]!r}; there are {', '.join(FUZZERS)}")
    names = given.fuzzers or list(FUZZERS)
    seconds = given.seconds
    if seconds is None and given.count is None:
        seconds = 60.0
    seed = secrets.randbelow(10**9) if given.seed is None else given.seed
    console = Console(stderr=True)
    spark = session()
    failed = False
    for name in names:
        budget = Budget(None if seconds is None else seconds / len(names), given.count)
        summary = _shown(FUZZERS[name](spark), seed, budget, console)
        print(summary.text())
        failed = failed or bool(summary.failures)
        if given.keep is not None:
            for failure in summary.failures:
                print(f"kept as {keep(failure.case, given.keep)}")
    spark.stop()
    return 1 if failed else 0


def session() -> SparkSession:
    """A small session of its own."""
    folder = tempfile.mkdtemp(prefix="fuzz-")
    spark = ts.session(
        app="fuzz",
        cores=2,
        memory="2g",
        config={
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.local.dir": f"{folder}/local",
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _shown(fuzzer: Fuzzer, seed: int, budget: Budget, console: Console) -> Summary:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[tries]} tries, {task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bar:
        total = budget.count if budget.seconds is None else budget.seconds
        task = bar.add_task(fuzzer.name, total=total, tries=0, note="starting")
        tries = 0

        def progress(done: int, note: str) -> None:
            nonlocal tries
            tries += done
            reached = tries if budget.seconds is None else bar.tasks[task].elapsed or 0
            bar.update(task, completed=reached, tries=tries, note=note)

        return fuzzer.run(seed, budget, progress)


if __name__ == "__main__":
    sys.exit(main())
