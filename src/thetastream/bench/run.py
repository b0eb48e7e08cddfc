"""Runs the benchmarks and writes JSON, charts and a summary.

    thetastream bench [--only equality band] [--runs 3] [--rows 1000000] [--out benchmarks]

Contestants take turns within each run, and each run begins with another one, so that a noisy
moment hits all of them. Ratios are taken within a run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from thetastream.bench import cases, data, measures, report
from thetastream.bench.cases import Case
from thetastream.bench.memory import Watch

LIMIT = 600.0
"""Seconds that a contestant has in each run."""
GRACE = 120.0
"""Seconds beyond the limit in which a contestant starts and hands in its report."""


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="thetastream bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="CASE", help="run only these cases"
    )
    parser.add_argument("--contestants", nargs="+", default=[], help="run only these contestants")
    parser.add_argument("--runs", type=int, default=3, help="runs of each case")
    parser.add_argument("--rows", type=int, help="rows per trigger, both streams together")
    parser.add_argument("--triggers", type=int, help="triggers of each case")
    parser.add_argument("--results", type=float, help="results per input row")
    parser.add_argument(
        "--limit",
        nargs="+",
        type=limit,
        default=[],
        metavar="[CONTESTANT=]SECONDS",
        help=f"time limit for each contestant, or for one; {LIMIT:g} by default",
    )
    parser.add_argument("--topology", default="auto", help="the topology of the library's own join")
    parser.add_argument("--out", type=Path, default=Path("benchmarks"), help="where results go")
    parser.add_argument("--data", type=Path, help="keep the generated streams here, and reuse them")
    parser.add_argument("--list", action="store_true", help="list the cases and exit")
    return parser.parse_args(argv)


def limit(text: str) -> tuple[str, float]:
    """`75` for all contestants, `spark-rocksdb4=75` for one."""
    name, _, seconds = text.rpartition("=")
    return name, float(seconds)


def limit_of(contestant: str, limits: list[tuple[str, float]]) -> float:
    """The seconds that a contestant has."""
    known = dict(limits)
    return known.get(contestant, known.get("", LIMIT))


def main(argv: list[str] | None = None) -> int:
    """Runs the cases; 1 when two contestants disagree."""
    chosen = arguments(argv)
    if chosen.list:
        for case in cases.CASES:
            print(f"{case.name:14} {case.title}: {', '.join(case.contestants)}")
        return 0
    os.umask(0o077)
    wrong: list[str] = []
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="thetastream-bench-")
        scratch = Path(stack.enter_context(temporary))
        root = chosen.data or scratch / "data"
        root.mkdir(parents=True, exist_ok=True)
        for case in cases.chosen(chosen.only):
            case = case.scaled(chosen.rows, chosen.triggers, chosen.results)
            document = measure(case, chosen, root, scratch)
            problems = measures.disagreements(document)
            document["disagreements"] = problems
            wrong += [f"{case.name}: {problem}" for problem in problems]
            write_json(chosen.out / f"{case.name}.json", document)
            report.write(chosen.out)
            if chosen.data is None:
                # The next case has other rows; ten datasets of this size would fill a disk.
                shutil.rmtree(root / case.dataset, ignore_errors=True)
    for problem in wrong:
        print(f"WRONG RESULT  {problem}", file=sys.stderr)
    print(f"summary: {chosen.out / 'README.md'}")
    return 1 if wrong else 0


def measure(case: Case, chosen: argparse.Namespace, root: Path, scratch: Path) -> dict[str, Any]:
    """All runs of one case."""
    print(f"{case.name}: {case.title}", flush=True)
    tasks = entries(case, chosen.contestants)
    runs: list[dict[str, Any]] = []
    for run in range(chosen.runs):
        turn = run % len(tasks)
        for contestant, variant in tasks[turn:] + tasks[:turn]:
            folder = data.prepare(variant, root)
            seconds = limit_of(contestant, chosen.limit)
            done = start(variant, contestant, folder, scratch, seconds, chosen.topology)
            done |= {"contestant": contestant, "run": run, "rows_per_trigger": variant.rows}
            done["limit"] = seconds
            done["capped"] = variant.rows != case.rows
            runs.append(done)
            print(f"  run {run}  {contestant:15} {measures.one_line(case.skip, done)}", flush=True)
    return {
        "case": dataclasses.asdict(case),
        "environment": environment(),
        "topology": chosen.topology,
        "runs": runs,
    }


def entries(case: Case, only: list[str]) -> list[tuple[str, Case]]:
    """Contestants with the data they get; DuckDB joins every dataset that occurs, as the check."""
    found: list[tuple[str, Case]] = []
    for contestant in case.contestants:
        if only and contestant not in only:
            continue
        variant = case
        if case.cap is not None and case.cap[0] == contestant and case.cap[1] < case.rows:
            variant = dataclasses.replace(case, rows=case.cap[1])
        found.append((contestant, variant))
        if variant is not case and (not only or cases.DUCKDB in only):
            found.append((cases.DUCKDB, variant))
    return found


def start(
    case: Case, contestant: str, folder: Path, scratch: Path, seconds: float, topology: str
) -> dict[str, Any]:
    """One contestant, once, in a fresh process."""
    work = Path(tempfile.mkdtemp(dir=scratch, prefix="run-"))
    out = work / "report.json"
    task = {
        "case": dataclasses.asdict(case),
        "contestant": contestant,
        "data": str(folder),
        "out": str(out),
        "checkpoint": str(work / "checkpoint"),
        "limit": seconds,
        "options": {"topology": topology} if topology != "auto" else {},
    }
    confs = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(work / "spark"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
    }
    submit = " ".join(f"--conf {name}={value}" for name, value in confs.items())
    environ = os.environ | {
        "PYSPARK_SUBMIT_ARGS": f"{submit} pyspark-shell",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TZ": "UTC",
        "TMPDIR": str(work),
    }
    log = work / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "thetastream.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environ,
            # A group of its own, so that the JVM and the Python workers can be ended with it.
            start_new_session=True,
        )
        watch = Watch(process.pid) if case.watch_memory else None
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(task).encode())
            process.stdin.close()
            if watch:
                watch.start()
            wait_for(process, out, seconds + GRACE)
        finally:
            samples = watch.stop() if watch else []
            end_group(process)
    if out.exists():
        done: dict[str, Any] = json.loads(out.read_text())
    else:
        done = {"finished": False, "triggers": [], "log": log.read_text()[-4000:]}
        if process.returncode not in (0, -signal.SIGKILL):
            done["failed"] = True
    if samples:
        done["memory"] = samples
    shutil.rmtree(work, ignore_errors=True)
    return done


def wait_for(process: subprocess.Popen[bytes], out: Path, seconds: float) -> None:
    """Until the process ends, has handed in its report, or the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            process.wait(timeout=0.5)
            return
        except subprocess.TimeoutExpired:
            if out.exists():
                # A moment for a clean end; a query in the middle of a trigger is not waited for.
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=10)
                return


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends what is left of the process's own group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def environment() -> dict[str, Any]:
    """What a reader needs to judge the numbers."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    packages = ("pyspark", "pyarrow", "pandas", "numpy", "duckdb")
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 1024**3),
        "python": platform.python_version(),
    } | {name: version(name) for name in packages}


def write_json(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    # Meant to be published with the project, unlike everything else that is written here.
    path.chmod(0o644)
