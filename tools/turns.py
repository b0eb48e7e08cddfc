"""Two versions of the package in lockstep: the same benchmark, trigger by trigger in turns.

    python tools/turns.py CASE ROWS TRIGGERS OLD NEW

OLD and NEW are checkouts (folders with `src`); `CHECKOUT,live` uses a control directory, and
`CHECKOUT,hot` looks for hot keys as well. Both run at the same time in processes of their own, and
only one of them works at any moment, so that a machine whose speed drifts is as fast for one as for
the other. Run one after the other, the same code has been seen to differ by half. Prints the
seconds of each trigger, and for those after the warm-up the medians of Spark's phases and of the
CPU time by what it was for, and the ratios of the medians and of the sums. Where the seconds of
two runs disagree, the CPU time says more.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

WARM_UP = 8
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC -Xms3g -Xmn2g"
"""Java without its second compiler and without collecting in the background: both decide for each
process anew how much they do, and have made a difference of 1.06 look like 1.4."""
REST = 4
"""Seconds that a version gets at most to come to rest after a trigger."""


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
            env={
                **os.environ,
                "PYTHONPATH": str(Path(checkout) / "src"),
                "PYSPARK_SUBMIT_ARGS": f"--driver-java-options '{JAVA}' pyspark-shell",
            },
        )
        self._all = psutil.Process(self._process.pid)
        self.phases: list[dict[str, float]] = []
        self._answer()

    def trigger(self, number: int) -> None:
        """Take in the files of one trigger."""
        assert self._process.stdin is not None
        before = cpu_seconds(self._all)
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        phases = self._answer()
        for kind, seconds in cpu_seconds(self._all).items():
            phases[f"CPU of {kind}"] = seconds - before.get(kind, 0.0)
        self.phases.append(phases)
        self._rest()

    def _rest(self) -> None:
        """Wait until nothing of it computes: Java compiles in the background."""
        until, before = time.monotonic() + REST, self._computed()
        while time.monotonic() < until:
            time.sleep(0.2)
            now = self._computed()
            if now - before < 0.02:
                return
            before = now

    def _computed(self) -> float:
        return sum(cpu_seconds(self._all).values())

    @property
    def seconds(self) -> list[float]:
        """What each trigger took."""
        return [phases["triggerExecution"] for phases in self.phases]

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


def cpu_seconds(first: psutil.Process) -> dict[str, float]:
    """What a process and those below it have computed so far, by what it was for."""
    found: dict[str, float] = {}
    for process in (first, *first.children(recursive=True)):
        # Processes come and go while they are looked at.
        with suppress(psutil.Error):
            command, times = process.cmdline(), process.cpu_times()
            seconds = times.user + times.system
            if command and command[0].endswith("java"):
                kind = "Spark"
            elif "pyspark.daemon" in command:
                kind = "workers"
                # Those of workers that have ended are in their daemon's.
                seconds += times.children_user + times.children_system
            else:
                kind = "the driver's Python"
            found[kind] = found.get(kind, 0.0) + seconds
    return found


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
    # Spark looks for new files all the time, in the turns of the other version as well.
    spark.conf.set("spark.sql.streaming.pollingDelay", "1s")
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
        phases: dict[str, float] = {}
        for progress in new:
            for phase, milliseconds in progress["durationMs"].items():
                phases[phase] = phases.get(phase, 0.0) + milliseconds / 1000
        print("turn", json.dumps(phases), flush=True)
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
    skip = min(WARM_UP, int(triggers) // 2)
    for name, version in zip(("old", "new"), both, strict=True):
        print(name, " ".join(f"{seconds:.2f}" for seconds in version.seconds))
    for phase in both[0].phases[-1]:
        medians = [statistics.median(p.get(phase, 0) for p in v.phases[skip:]) for v in both]
        print(f"{phase}: {medians[0]:.3f} -> {medians[1]:.3f} s")
    before, after = (version.seconds[skip:] for version in both)
    ratio = statistics.median(after) / statistics.median(before)
    print(f"{case}: new / old  medians {ratio:.3f}  sums {sum(after) / sum(before):.3f}")


if __name__ == "__main__":
    if sys.argv[1] == "--play":
        play(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
