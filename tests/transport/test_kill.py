"""A site as its own process, killed at any moment: what was acknowledged is there, once."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.transport.tuples import ids, rides
from thetastream.cli.main import main
from thetastream.errors import SiteError
from thetastream.transport.addresses import TOKEN_VARIABLE
from thetastream.transport.client import SiteClient
from thetastream.transport.log import Log

TOKEN = "a-token-of-32-characters-0123456"
PUSH_TOKEN = "another-token-of-32-characters-01"


class Process:
    """`thetastream site serve` in a process of its own."""

    def __init__(self, file: Path) -> None:
        self._running = subprocess.Popen(
            [sys.executable, "-m", "thetastream", "site", "serve", str(file)],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self.address = self._address()

    @property
    def pid(self) -> int:
        return self._running.pid

    def _address(self) -> str:
        assert self._running.stderr is not None
        for line in self._running.stderr:
            self.said.append(line)
            found = re.search(r"on (grpc\S+);", line)
            if found is not None:
                return found[1]
        raise AssertionError("".join(self.said))

    def end(self, number: int) -> int:
        self._running.send_signal(number)
        code = self._running.wait(30)
        assert self._running.stderr is not None
        self.said += self._running.stderr
        self._running.stderr.close()
        return code


@contextlib.contextmanager
def serving(file: Path) -> Iterator[Process]:
    process = Process(file)
    try:
        yield process
    finally:
        if process._running.poll() is None:
            process.end(signal.SIGKILL)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The file of a site with a stream that is pushed to and one that reads a folder."""
    (tmp_path / "in").mkdir()
    for name, token in (("token", TOKEN), ("push-token", PUSH_TOKEN)):
        (tmp_path / name).write_text(token)
        (tmp_path / name).chmod(0o600)
    file = tmp_path / "site.toml"
    file.write_text(
        'dir = "site"\nlisten = "127.0.0.1:0"\n'
        'read_token_file = "token"\npush_token_file = "push-token"\n'
        '[streams.rides]\ntime = "at"\npush = true\n'
        '[streams.files]\ntime = "at"\nfolder = "in"\n'
    )
    return file


@pytest.mark.parametrize(
    "rounds",
    [pytest.param(4, marks=pytest.mark.slow), pytest.param(100, marks=pytest.mark.chaos)],
)
def test_killed_again_and_again(config: Path, tmp_path: Path, rounds: int) -> None:
    """Two writers push, files appear, the site is killed; then everything is counted."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    acknowledged: dict[int, range] = {}
    attempted = 0
    files = 0
    for _ in range(rounds):
        with serving(config) as process:
            first = attempted
            attempted += 2_000_000
            parts = [
                threading.Thread(
                    target=_push,
                    args=(process.address, first + 1_000_000 * number, acknowledged),
                )
                for number in range(2)
            ]
            for part in parts:
                part.start()
            until = time.monotonic() + 0.3 + chance.random() * 0.7
            while time.monotonic() < until:
                path = tmp_path / "in" / f".{files:05d}.parquet"
                pq.write_table(pa.Table.from_batches([rides(files * 10, 10)]), path)
                path.rename(path.with_name(path.name[1:]))
                files += 1
                time.sleep(0.05)
            assert process.end(signal.SIGKILL) == -signal.SIGKILL
            for part in parts:
                part.join()
    assert len(acknowledged) > rounds
    with serving(config) as process, SiteClient(process.address, token=TOKEN) as client:
        info = client.stream("rides")
        found = ids(list(client.read("rides", 0, info.next)))
        assert len(found) == info.next
        for number, expected in acknowledged.items():
            assert found[number : number + len(expected)] == list(expected)
        # A push that was not acknowledged may be there, but no row is there twice.
        assert len(set(found)) == len(found)
        until = time.monotonic() + 20
        while client.stream("files").next < files * 10 and time.monotonic() < until:
            time.sleep(0.1)
        taken = ids(list(client.read("files", 0, client.stream("files").next)))
        assert sorted(taken) == list(range(files * 10))
        assert process.end(signal.SIGTERM) == 0
    assert Log(tmp_path / "site" / "rides").next == info.next


def _push(address: str, first: int, acknowledged: dict[int, range]) -> None:
    """Push until the site is gone; what it has acknowledged is noted."""
    with SiteClient(address, token=PUSH_TOKEN, patience=0.1, stall=5) as client:
        while True:
            try:
                pushed = client.push("rides", rides(first, 20))
            except SiteError:
                return
            acknowledged[pushed.first] = range(first, first + 20)
            first += 20


def test_commands(
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    token = str(tmp_path / "token")
    (tmp_path / "in" / "bad.parquet").write_bytes(b"no parquet")
    with serving(config) as process:
        with SiteClient(process.address, token=PUSH_TOKEN) as client:
            client.push("rides", rides(0, 1234))
            until = time.monotonic() + 10
            while not client.status()["streams"]["files"]["refused"]:
                assert time.monotonic() < until
                time.sleep(0.1)
        assert main(["site", "health", process.address, "--token-file", token]) == 0
        assert capsys.readouterr().out == "the site works\n"
        assert main(["site", "status", process.address, "--token-file", token]) == 0
        said = capsys.readouterr().out
        assert "rides: 1,234 tuples, numbers 0 to 1,234" in said
        assert "left out: bad.parquet: bad.parquet is not a whole Parquet file" in said
        assert main(["site", "status", process.address, "--json", "--token-file", token]) == 0
        assert '"next": 1234' in capsys.readouterr().out
        # Without the token, or with that of another.
        assert main(["site", "health", process.address]) == 2
        assert "refuses the token" in capsys.readouterr().err
        monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
        assert main(["site", "health", process.address]) == 0
        # The folder is in use.
        assert main(["site", "serve", str(config)]) == 4
        assert "another process serves the site" in capsys.readouterr().err
        if Path("/proc/self/cmdline").exists():
            line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            assert TOKEN.encode() not in line
        assert process.end(signal.SIGINT) == 0
        assert TOKEN not in "".join(process.said)
    assert main(["site", "health", process.address, "--timeout", "0.3"]) == 1
    assert "does not answer" in capsys.readouterr().err
    assert main(["site", "serve", str(tmp_path / "nowhere.toml")]) == 2
    capsys.readouterr()
    config.write_text(config.read_text().replace("127.0.0.1:0", "0.0.0.0:8815"))
    assert main(["site", "serve", str(config)]) == 2
    assert "can be reached from other machines" in capsys.readouterr().err
    for path in (tmp_path / "site").rglob("*"):
        assert os.stat(path).st_mode & 0o077 == 0, path
