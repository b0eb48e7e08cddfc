"""A full disk at any write: nothing acknowledged is lost, and later pushes work again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.transport.tuples import ids, rides
from thetastream.errors import SiteError
from thetastream.transport.log import WRITER, Log


def run(folder: Path, mode: str, step: int) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "tests.transport.limited", str(folder), mode, str(step)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("mode", ["full", "kill"])
def test_files_that_cannot_grow(tmp_path: Path, mode: str) -> None:
    assert run(tmp_path, mode, 25_001) > 5


@pytest.mark.chaos
@pytest.mark.parametrize("mode", ["full", "kill"])
def test_files_that_cannot_grow_to_any_size(tmp_path: Path, mode: str) -> None:
    assert run(tmp_path, mode, 251) > 400


def append_until_full(log: Log) -> int:
    """Append until the disk is full; how many batches are stored."""
    for sequence in range(10_000):
        try:
            log.append(rides(sequence * 50, 50), source=f"{WRITER}w", position=sequence)
        except SiteError:
            return sequence
    raise AssertionError("the disk is not full")


def test_a_database_that_cannot_grow(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log._catalogue._db.execute("PRAGMA max_page_count = 20").fetchall()
    count = append_until_full(log)
    assert ids([piece.batch for piece in log.read(0, log.next)]) == list(range(count * 50))
    # Sealing makes room.
    log.seal()
    assert (
        log.append(rides(count * 50, 50), source=f"{WRITER}w", position=count)[0] == log.next - 50
    )
    log.close()
    assert Log(tmp_path).next == (count + 1) * 50


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a tmpfs")
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this container cannot mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_000_000))
    log, other = Log(small_disk / "log"), Log(small_disk / "other")
    other.append(rides(0, 50))
    count = append_until_full(log)
    with suppress(SiteError, OSError):
        while other.next < 1_000_000:
            other.append(rides(other.next, 50))
            other.seal()
    for full in (log, other):
        assert ids([piece.batch for piece in full.read(0, full.next)]) == list(range(full.next))
    assert log.next == count * 50
    ballast.unlink()
    log.append(rides(log.next, 50), source=f"{WRITER}w", position=count)
    other.append(rides(other.next, 50))
    for full in (log, other):
        full.close()
    again = Log(small_disk / "log")
    assert ids([piece.batch for piece in again.read(0, again.next)]) == list(range(log.next))
    again.close()
