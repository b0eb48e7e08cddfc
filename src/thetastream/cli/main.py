"""The command `thetastream`.

Exit codes: 0 done, or stopped cleanly on request; 1 the query failed while running; 2 the job,
the query or the command line is wrong; 3 Spark or a package is missing or cannot start; 4 the
checkpoint or the control directory belongs to another query, or cannot be used; 130 stopped at
once, by a second Ctrl-C.
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

from thetastream.cli import completion, control, site
from thetastream.cli.job import Job, load
from thetastream.errors import JobError, SettingError, StateError, ThetastreamError
from thetastream.version import VERSION

DONE, FAILED, WRONG, NO_SPARK, OTHER_QUERY, AT_ONCE = 0, 1, 2, 3, 4, 130
_JOBS = """\
A job names its streams, a query, a sink and a checkpoint:

  checkpoint = "checkpoint"
  trigger = "available now"
  delay = "5 seconds"
  query = "SELECT a.id, b.id AS other FROM a, b WHERE abs(a.x - b.x) <= 5 WITHIN 10 minutes"
  [streams.a]
  format = "parquet"
  path = "a"
  [streams.b]
  format = "parquet"
  path = "b"
  [sink]
  format = "parquet"
  path = "out"

exit codes: 0 done, or stopped on request; 1 the query failed while running; 2 the job is wrong;
3 Spark, Java or a package is missing; 4 the checkpoint or the control directory belongs to another
query; 130 stopped by a second Ctrl-C
"""
_STATE_ERRORS = ("ControlError", "FingerprintError", "ManifestVersionError")
"""Failures of a query whose cause is its checkpoint or its control directory."""
WORKLOADS = ("city", "zipf", "bmodel", "fares", "power", "gps", "tpch")


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="thetastream",
        description="Join streams on any predicate, inside Spark Structured Streaming.",
    )
    top.add_argument("--version", action="version", version=f"thetastream {VERSION}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    jobs = {
        "run": "run a job until it ends or is stopped",
        "explain": "show how a job will run, and why",
        "check": "find mistakes in a job before it runs",
    }
    of_job = {
        name: commands.add_parser(
            name,
            help=about,
            description=f"{about[0].upper()}{about[1:]}.",
            epilog=_JOBS,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for name, about in jobs.items()
    }
    for command in of_job.values():
        command.add_argument("job", type=Path, metavar="JOB", help="a .toml or .sql file")
    of_job["run"].add_argument(
        "--json", action="store_true", help="print one JSON object per batch"
    )
    of_job["explain"].add_argument("--html", action="store_true", help="print HTML instead of text")
    about = "write the papers' workloads as parquet files, one folder per stream"
    generate = commands.add_parser(
        "generate",
        help=about,
        description=f"{about[0].upper()}{about[1:]}. Files of the same name are replaced.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    generate.add_argument(
        "workload", choices=WORKLOADS, metavar="WORKLOAD", help=", ".join(WORKLOADS)
    )
    generate.add_argument("out", type=Path, metavar="FOLDER", help="created if it does not exist")
    generate.add_argument("--rows", type=int, default=10_000, help="rows per file")
    generate.add_argument("--files", type=int, default=10, help="files per stream")
    generate.add_argument("--seed", type=int, default=7, help="the same seed gives the same rows")
    generate.add_argument(
        "--every", type=float, metavar="SECONDS", help="seconds between two files of a stream"
    )
    generate.add_argument("--scale", type=float, default=0.01, help="scale factor of TPC-H")
    control.add_parser(commands)
    site.add_parser(commands)
    simulate = commands.add_parser("simulate", help="run a scenario on a simulated cluster")
    simulate.add_argument("scenario", type=Path, metavar="FILE", help="TOML; see docs/simulator.md")
    simulate.add_argument("--json", action="store_true", help="print JSON instead of text")
    simulate.add_argument("--plot", type=Path, metavar="FILE", help="write a picture, as SVG")
    again = commands.add_parser("reproduce", help="run figures of the papers again")
    again.add_argument("names", nargs="*", metavar="NAME", help="bistream-6a, for example")
    again.add_argument("--list", action="store_true", help="name all figures")
    again.add_argument("--all", action="store_true", help="run all of them (an hour)")
    again.add_argument("--quick", action="store_true", help="seconds on less data, for a look")
    again.add_argument("--json", action="store_true", help="print JSON instead of text")
    again.add_argument(
        "--out", type=Path, metavar="FOLDER", help="write JSON, plots and pages into this folder"
    )
    for name, about in (
        ("demo", "join two live streams, check the result, write a report"),
        ("bench", "compare with Spark's own join (thetastream bench --help)"),
    ):
        commands.add_parser(name, help=about, add_help=False)
    complete = commands.add_parser("completion", help="print a completion script for a shell")
    complete.add_argument("shell", choices=completion.SHELLS)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] in (["demo"], ["bench"]):
        return _with_extras(words[0], words[1:])
    top = parser()
    chosen = top.parse_args(words)
    try:
        if chosen.command == "completion":
            print(completion.script(top, chosen.shell), end="")
            return DONE
        if chosen.command == "control":
            return control.run(chosen)
        if chosen.command == "site":
            return site.run(chosen)
        if chosen.command in ("simulate", "reproduce"):
            return _simulated(chosen)
        if chosen.command == "generate":
            from thetastream.cli.generate import generate

            return generate(chosen)
        return _job_command(chosen)
    except ThetastreamError as error:
        job = getattr(chosen, "job", None)
        named = job is None or isinstance(error, JobError | SettingError)
        print(f"error: {error}" if named else f"error: {job}: {error}", file=sys.stderr)
        if isinstance(error, StateError):
            return OTHER_QUERY
        return NO_SPARK if isinstance(error, SettingError) else WRONG
    except KeyboardInterrupt:
        return AT_ONCE


def _simulated(chosen: argparse.Namespace) -> int:
    """The commands that need no Spark but DuckDB and matplotlib."""
    try:
        if chosen.command == "simulate":
            from thetastream.cli.simulate import simulate as carry_out
        else:
            from thetastream.cli.reproduce import reproduce as carry_out
    except ImportError as missing:
        print(_lacking(chosen.command, missing), file=sys.stderr)
        return NO_SPARK
    return carry_out(chosen)


def _lacking(command: str, missing: ImportError) -> str:
    return (
        f"error: thetastream {command} needs {missing.name}\n"
        "What to do: pip install duckdb matplotlib psutil rich"
    )


def _with_extras(command: str, words: list[str]) -> int:
    """The commands that need more packages than joins do."""
    try:
        from thetastream.bench.run import main as bench
        from thetastream.demo.__main__ import main as demo
    except ImportError as missing:
        print(_lacking(command, missing), file=sys.stderr)
        return NO_SPARK
    return demo(words) if command == "demo" else bench(words)


def _job_command(chosen: argparse.Namespace) -> int:
    job = load(chosen.job)
    try:
        return _started(job, chosen)
    except ThetastreamError as error:
        raise job.variables.hidden(error) from None
    except Exception as error:
        # What Spark and Java say may quote any option.
        if job.variables.hide(str(error)) == str(error):
            raise
        raise JobError(f"{job.file}: {job.variables.hide(str(error))}") from None


def _started(job: Job, chosen: argparse.Namespace) -> int:
    from pyspark.sql import SparkSession

    from thetastream.cli import progress, start

    start.check_paths(job)
    # What Spark writes for the job is its owner's only.
    os.umask(0o077)
    # A session that already exists is not ours to stop.
    running = SparkSession.getActiveSession()
    spark = running or _session(job)
    try:
        with progress.plain_warnings(job.variables.hide):
            return _carry_out(start.Prepared(spark, job), chosen)
    finally:
        if running is None:
            spark.stop()


def _carry_out(prepared: Any, chosen: argparse.Namespace) -> int:
    if chosen.command == "explain":
        plan = prepared.plan
        text = plan._repr_html_() if chosen.html else plan.explain()
        print(prepared.job.variables.hide(text))
        return DONE
    prepared.check_sink()
    prepared.check_checkpoint()
    if chosen.command == "check":
        # Building the result meets everything that running it would meet first.
        prepared.check_control()
        prepared.result(live=False)
        file = prepared.job.file
        print(f"{file}: the streams, the query, its mode and its checkpoint are fine")
        return DONE
    return _run(prepared, as_json=chosen.json)


def _session(job: Job) -> Any:
    from thetastream.cli import start
    from thetastream.cli.quiet import errors_into

    with tempfile.TemporaryDirectory(prefix="thetastream-") as folder:
        log = Path(folder) / "spark.log"
        try:
            with errors_into(log):
                spark = start.session(job)
        except ThetastreamError:
            raise
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
        manager = prepared.manage(query)
        view = progress.best_view(sys.stdout, as_json=as_json)
        try:
            totals = progress.follow(query, view, stop.asked)
        finally:
            view.close()
            if manager is not None:
                manager.stop()
    failure = query.exception()
    if failure is not None:
        text = prepared.job.variables.hide(str(failure))
        known = start.own_error(text)
        message = known[1] if known else start.first_line(text)
        print(f"error: the query failed: {message}", file=sys.stderr)
        if not known and start.cause(text):
            print(f"  {start.cause(text)}", file=sys.stderr)
        print(
            "What to do: fix the cause and run the job again; it continues where it stopped",
            file=sys.stderr,
        )
        state = known is not None and known[0] in _STATE_ERRORS
        return OTHER_QUERY if state else FAILED
    if stop.asked():
        progress.announce(
            "stopped after a complete batch; run the job again to continue", as_json=as_json
        )
    else:
        progress.announce("done: everything that was available has been joined", as_json=as_json)
    if totals.late:
        progress.announce(
            f"{totals.late:,} of {totals.rows:,} rows came after the watermark and were dropped\n"
            f"What to do: raise delay ({prepared.job.delay}), or check the order in which the"
            " source delivers its rows; Spark reads files in the order of their modification times",
            as_json=as_json,
        )
    remark = progress.still_open(
        totals, windowed=prepared.plan.tree.windowed, grouped=prepared.writes_windows
    )
    if remark is not None:
        progress.announce(remark, as_json=as_json)
    return DONE


class _Stop:
    """The first Ctrl-C asks the job to stop, the second stops it at once."""

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
