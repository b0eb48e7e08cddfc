"""Two versions of the package in lockstep: the same benchmark, trigger by trigger in turns.

    python tools/turns.py CASE ROWS TRIGGERS OLD NEW

OLD and NEW are checkouts (folders with `src`); `CHECKOUT,live` uses a control directory, and
`CHECKOUT,hot` looks for hot keys as well. Both run at the same time in processes of their own, and
only one of them works at any moment, so that a machine whose speed drifts is as fast for one as for
the other. Run one after the other, the same code has been seen to differ by half. Prints the
seconds of each trigger, and the ratio of the medians and of the sums after the warm-up.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WARM_UP = 6


class Version:
    """One of the two, in a process that waits to be told."""

    def __init__(self, checkout: str, case: str, rows: str, triggers: str, folder: Path) -> None:
        folder.mkdir()
        checkout, _, how = checkout.partition(",")
        self._errors = (folder / "log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--play", case, rows, triggers, str(folder), how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(checkout) / "src")},
        )
        self.seconds: list[float] = []
        self._answer()

    def trigger(self, number: int) -> None:
        """Take in the files of one trigger."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        self.seconds.append(float(self._answer()))

    def stop(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("turn "):
                return json.loads(line.removeprefix("turn "))
        self._errors.flush()
        sys.exit(Path(self._errors.name).read_text()[-3000:])


def play(case_name: str, rows: str, triggers: str, folder: str, how: str) -> None:
    """Run a case of this process's own version, one trigger for each line that is read."""
    from dataclasses import replace

    from thetastream.bench import cases, data, worker

    named = {case.name: case for case in cases.CASES}
    case = replace(named[case_name], rows=int(rows), triggers=int(triggers))
    work = Path(folder)
    source = data.prepare(case, work)
    spark = worker.session(cases.OURS, case.driver_memory)
    for name, value in worker.settings(cases.OURS).items():
        spark.conf.set(name, value)
    reader = spark.readStream.option("maxFilesPerTrigger", 1)
    frames = {}
    for name, schema in zip(case.names, case.schemas, strict=True):
        (work / "in" / name).mkdir(parents=True)
        frames[name] = reader.schema(schema).parquet(str(work / "in" / name))
    options = {"control": str(work / "control")} if how else {}
    if how == "hot":
        options["hot_keys"] = "auto"
    joined, _ = worker.ours(case, frames, options, cases.OURS)
    query = (
        joined.writeStream.format("noop")
        .outputMode("update" if case.aggregates else "append")
        .option("checkpointLocation", str(work / "checkpoint"))
        .start()
    )
    print("turn 0", flush=True)
    seen = -1
    for line in sys.stdin:
        for name in case.names:
            file = sorted((source / name).glob("*.parquet"))[int(line)]
            # Under another name until it is whole: Spark leaves out names that begin with a dot.
            waiting = work / "in" / name / f".{file.name}"
            os.link(file, waiting)
            waiting.rename(work / "in" / name / file.name)
        query.processAllAvailable()
        new: list[Any] = []
        while not new:
            # Spark reports on a batch a moment after it is done.
            time.sleep(0.05)
            new = [p for p in query.recentProgress if p["batchId"] > seen and p["numInputRows"]]
        seen = max(p["batchId"] for p in query.recentProgress)
        print("turn", sum(p["durationMs"]["triggerExecution"] for p in new) / 1000, flush=True)
    query.stop()
    spark.stop()


def main(case: str, rows: str, triggers: str, old: str, new: str) -> None:
    """Both versions in turns."""
    with tempfile.TemporaryDirectory(prefix="turns-") as scratch:
        both = [
            Version(checkout, case, rows, triggers, Path(scratch) / name)
            for name, checkout in (("old", old), ("new", new))
        ]
        for number in range(int(triggers)):
            for version in both if number % 2 == 0 else reversed(both):
                version.trigger(number)
        for version in both:
            version.stop()
    skip = min(WARM_UP, int(triggers) // 3)
    for name, version in zip(("old", "new"), both, strict=True):
        print(name, " ".join(f"{seconds:.2f}" for seconds in version.seconds))
    before, after = (version.seconds[skip:] for version in both)
    medians = statistics.median(after) / statistics.median(before)
    print(f"{case}: new / old  medians {medians:.3f}  sums {sum(after) / sum(before):.3f}")


if __name__ == "__main__":
    if sys.argv[1] == "--play":
        play(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
