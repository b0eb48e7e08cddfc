"""Joins two generated streams live, checks the result and writes a report.

python -m thetastream.demo [--seconds 20] [--rows 300000] [--out demo-report.html] [--keep]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m thetastream.demo", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seconds", type=float, default=20.0, help="how long rows keep arriving")
    parser.add_argument("--rows", type=int, default=300_000, help="rows per stream")
    parser.add_argument(
        "--out", type=Path, default=Path("demo-report.html"), help="where the report goes"
    )
    parser.add_argument("--keep", action="store_true", help="keep the streams and the results")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Runs the demo; 0 when the result equals the batch join."""
    chosen = arguments(argv)
    try:
        import duckdb  # noqa: F401
        import matplotlib  # noqa: F401
        import rich  # noqa: F401
    except ImportError as missing:
        print(
            f"The demo needs {missing.name}: run pip install duckdb matplotlib psutil rich.",
            file=sys.stderr,
        )
        return 2

    import thetastream as ts
    from thetastream.cli.quiet import errors_into
    from thetastream.demo import check, job, report, view

    # Everything the demo writes, Spark's files included, is for its owner only.
    os.umask(0o077)
    begin = time.monotonic()
    with ExitStack() as stack:
        if chosen.keep:
            root = Path(tempfile.mkdtemp(prefix="thetastream-demo-"))
            print(f"streams, results and checkpoint: {root}")
        else:
            folder = tempfile.TemporaryDirectory(
                prefix="thetastream-demo-", ignore_cleanup_errors=True
            )
            root = Path(stack.enter_context(folder))
        folders = job.Folders(root)

        print("Starting Spark ...", flush=True)
        log = root / "spark.log"
        try:
            with errors_into(log):
                spark = ts.session(app="thetastream demo", cores=2)
        except Exception:
            print(log.read_text(errors="replace"), file=sys.stderr)
            raise
        stack.callback(spark.stop)

        print(f"joining on {job.PREDICATE}, within {job.WITHIN}\n", flush=True)
        with job.running(spark, folders, rows=chosen.rows, seconds=chosen.seconds) as running:
            view.best_view().follow(running)
        batches = [running.batches[number] for number in sorted(running.batches)]

        print("\nChecking against DuckDB ...", flush=True)
        # Spark's own reader knows which files were committed.
        results = spark.read.parquet(str(folders.results)).inputFiles()
        files = [name.removeprefix("file://") for name in results]
        comparison = check.compare(folders.orders, folders.rides, files)
        report.write(chosen.out, batches, comparison, running.plan)

    print(comparison)
    print(f"report: {chosen.out.resolve()}")
    print(f"{time.monotonic() - begin:.0f} s in all")
    return 0 if comparison.equal else 1


if __name__ == "__main__":
    sys.exit(main())
