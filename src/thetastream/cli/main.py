"""The command `thetastream`.

Exit codes: 0 done, or stopped cleanly when asked to; 1 the query failed while it ran; 2 the job,
the query or the command line is wrong; 3 Spark or a package is missing or cannot start; 4 the
checkpoint belongs to another query; 130 stopped at once, by a second Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from thetastream.cli import completion
from thetastream.cli.job import Job, load
from thetastream.errors import SettingError, StateError, ThetastreamError
from thetastream.version import VERSION

DONE, FAILED, WRONG, NO_SPARK, OTHER_QUERY, AT_ONCE = 0, 1, 2, 3, 4, 130
WORKLOADS = ("city", "zipf", "bmodel", "fares", "power", "gps", "tpch")


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="thetastream",
        description="Joins of streams on any predicate, inside Spark Structured Streaming.",
    )
    top.add_argument("--version", action="version", version=f"thetastream {VERSION}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run a job until it ends or is stopped")
    run.add_argument("job", type=Path, metavar="JOB", help="a .toml or .sql file")
    run.add_argument("--json", action="store_true", help="one JSON object a batch")
    explain = commands.add_parser("explain", help="show how a job will be carried out, and why")
    explain.add_argument("job", type=Path, metavar="JOB")
    explain.add_argument("--html", action="store_true", help="as HTML")
    check = commands.add_parser("check", help="everything that can be known without running")
    check.add_argument("job", type=Path, metavar="JOB")
    generate = commands.add_parser("generate", help="write the papers' workloads as parquet files")
    generate.add_argument(
        "workload", choices=WORKLOADS, metavar="WORKLOAD", help=", ".join(WORKLOADS)
    )
    generate.add_argument("out", type=Path, metavar="FOLDER")
    generate.add_argument("--rows", type=int, default=10_000, help="rows a file, each stream")
    generate.add_argument("--files", type=int, default=10, help="files of each stream")
    generate.add_argument("--seed", type=int, default=7)
    generate.add_argument(
        "--every", type=float, metavar="SECONDS", help="write a file of each stream this often"
    )
    generate.add_argument("--scale", type=float, default=0.01, help="TPC-H's scale factor")
    for name, about in (
        ("demo", "join two live streams, check the result, write a report"),
        ("bench", "measure against Spark's own join; its options are those of --help"),
    ):
        commands.add_parser(name, help=about, add_help=False)
    complete = commands.add_parser("completion", help="a completion script for a shell")
    complete.add_argument("shell", choices=completion.SHELLS)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["demo"]:
        from thetastream.demo.__main__ import main as demo

        return demo(words[1:])
    if words[:1] == ["bench"]:
        return _bench(words[1:])
    top = parser()
    chosen = top.parse_args(words)
    try:
        if chosen.command == "completion":
            print(completion.script(top, chosen.shell), end="")
            return DONE
        if chosen.command == "generate":
            from thetastream.cli.generate import generate

            return generate(chosen)
        return _job_command(chosen)
    except StateError as error:
        print(f"error: {error}", file=sys.stderr)
        return OTHER_QUERY
    except SettingError as error:
        print(f"error: {error}", file=sys.stderr)
        return NO_SPARK
    except ThetastreamError as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        return AT_ONCE


def _bench(words: list[str]) -> int:
    try:
        from thetastream.bench.run import main as bench
    except ImportError as missing:
        print(
            f"error: the benchmarks need {missing.name}\n"
            "What to do: pip install 'thetastream[demo]'",
            file=sys.stderr,
        )
        return NO_SPARK
    return bench(words)


def _job_command(chosen: argparse.Namespace) -> int:
    job = load(chosen.job)
    from thetastream.cli import start

    start.check_paths(job)
    # What Spark writes for the job is its owner's only.
    os.umask(0o077)
    running = _running()
    spark = running or _session(job)
    try:
        prepared = start.Prepared(spark, job)
        if chosen.command == "explain":
            plan = prepared.plan
            print(plan._repr_html_() if chosen.html else plan.explain())
            return DONE
        prepared.check_sink()
        prepared.check_checkpoint()
        if chosen.command == "check":
            # Building the result meets everything that running it would meet first.
            prepared.result()
            print(f"{job.file}: the streams, the query, its mode and its checkpoint are fine")
            return DONE
        return _run(prepared, as_json=chosen.json)
    finally:
        if running is None:
            spark.stop()


def _running() -> Any:
    """A session that is already there, which is not ours to stop; mostly None."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _session(job: Job) -> Any:
    from thetastream.cli import start
    from thetastream.cli.quiet import errors_into

    with tempfile.TemporaryDirectory(prefix="thetastream-") as folder:
        log = Path(folder) / "spark.log"
        try:
            with errors_into(log):
                spark = start.session(job)
        except Exception as error:
            raise SettingError(
                f"Spark cannot be started: {start.first_line(error)}",
                detail=log.read_text(errors="replace")[-2000:],
                hint="install Java 17 or newer, and check [spark] in the job",
            ) from error
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _run(prepared: Any, *, as_json: bool) -> int:
    from thetastream.cli import progress, start

    stop = _Stop()
    with stop:
        query = prepared.start()
        view = progress.best_view(sys.stdout, as_json=as_json)
        try:
            progress.follow(query, view, stop.asked)
        finally:
            view.close()
    failure = query.exception()
    if failure is not None:
        text = str(failure)
        known = start.own_error(text)
        message = known[1] if known else start.first_line(failure)
        print(f"error: the query failed: {message}", file=sys.stderr)
        if not known and start.cause(text):
            print(f"  {start.cause(text)}", file=sys.stderr)
        print(
            "What to do: correct the cause and run the job again; it goes on where it stopped",
            file=sys.stderr,
        )
        state = known is not None and known[0] in ("FingerprintError", "ManifestVersionError")
        return OTHER_QUERY if state else FAILED
    if stop.asked():
        progress.announce(
            "stopped after a whole batch; run the job again to go on", as_json=as_json
        )
    else:
        progress.announce("done: everything that was available is joined", as_json=as_json)
    return DONE


class _Stop:
    """The first Ctrl-C asks to stop, the second stops at once."""

    def __init__(self) -> None:
        self._asked = False
        self._before: dict[signal.Signals, Any] = {}

    def asked(self) -> bool:
        """Whether someone wants the job to end."""
        return self._asked

    def __enter__(self) -> _Stop:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        print("\nstopping after this batch ...", file=sys.stderr, flush=True)
