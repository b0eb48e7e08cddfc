"""`thetastream generate`: workloads as parquet files, at once or as a stream into a folder."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

from thetastream.errors import JobError, SettingError
from thetastream.workloads import WORKLOADS, in_order, write_batch


def generate(chosen: argparse.Namespace) -> int:
    """Writes one folder per stream of the workload."""
    if chosen.rows < 1 or chosen.files < 1:
        raise JobError(
            "--rows and --files must be at least 1", hint="leave them out for the defaults"
        )
    if chosen.every is not None and chosen.every < 0:
        raise JobError("--every is negative", hint="give the seconds between two files")
    try:
        return _tpch(chosen.out, chosen.scale) if chosen.workload == "tpch" else _files(chosen)
    except OSError as error:
        raise JobError(
            f"{chosen.out} cannot be written: {error.strerror or error}",
            hint="choose another folder, or free some space",
        ) from None


def _files(chosen: argparse.Namespace) -> int:
    streams = WORKLOADS[chosen.workload](chosen.seed)
    begin = time.monotonic()
    written: dict[str, list[Path]] = {name: [] for name in streams}
    columns: dict[str, str] = {}
    for batch in range(chosen.files):
        if chosen.every is not None:
            time.sleep(max(0.0, begin + batch * chosen.every - time.monotonic()))
        for name, make in streams.items():
            table = make(batch, chosen.rows)
            columns[name] = ", ".join(f"{field.name} {field.type}" for field in table.schema)
            written[name].append(write_batch(table, chosen.out / name, batch))
    if chosen.every is None:
        for files in written.values():
            in_order(files)
    for name in streams:
        print(f"{chosen.out / name}: {chosen.files} files of {columns[name]}")
    return 0


def _tpch(out: Path, scale: float) -> int:
    beside = Path(sys.executable).with_name("tpchgen-cli")
    generator = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if generator is None:
        raise SettingError("the TPC-H generator is not installed", hint="pip install tpchgen-cli")
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = [generator, "parquet", "-s", f"{scale:g}", "-o", str(out), "--overwrite", "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise JobError(
            f"tpchgen-cli failed: {done.stderr.strip().splitlines()[-1:] or done.returncode}",
            hint="check --scale and the free disk space",
        )
    print(f"{out}: TPC-H at scale factor {scale:g}")
    return 0
