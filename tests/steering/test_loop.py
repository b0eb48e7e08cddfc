"""The loop that publishes, its lease, its directory and its files."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from tests.steering.histories import batches
from thetastream.errors import ControlError
from thetastream.options import JoinOptions
from thetastream.steering.directory import VERSIONS, Directory
from thetastream.steering.edits import Move, Scale
from thetastream.steering.files import (
    ArrowFiles,
    Files,
    LocalFiles,
    full_path,
    open_files,
    spark_path,
    without_secrets,
)
from thetastream.steering.lease import SECONDS, Lease
from thetastream.steering.loop import Loop
from thetastream.steering.policy import Moment, Verdict
from thetastream.testing import Batch, InProcessJoin
from thetastream.testing.steered import MemoryFiles, Steering

import numpy as np  # isort: skip

TIME = {"r": "t", "s": "t"}


def steering(units: int = 2) -> tuple[Steering, list[Batch]]:
    script = batches(np.random.default_rng(7), 2, 40, 10)
    schemas = [table.schema for table in script[0].tables]
    join = InProcessJoin(
        "r.k = s.k", schemas, within="12 seconds", time=TIME, options=JoinOptions(units=units)
    )
    return Steering(join, max_units=4), script


def test_requests_wait_for_each_other() -> None:
    live, script = steering()
    live.batch(script[0])
    first, second = live.ask(Scale(units=3)), live.ask(Scale(units=1))
    live.batch(script[1])
    answers = [live.directory.answered(one) for one in (first, second)]
    assert answers[0] is not None
    assert answers[0].state == "started"
    assert answers[1] is None
    left = iter(script[2:])
    live.settle(lambda: next(left), most=30)
    assert [live.directory.answered(one).state for one in (first, second)] == ["done", "done"]  # type: ignore[union-attr]
    assert live.version.joins[0].active(0) == (0,)


def test_a_request_that_is_refused_is_answered_and_the_next_one_is_met() -> None:
    live, script = steering()
    live.batch(script[0])
    wrong, same, right = (live.ask(Scale(units=units)) for units in (9, 2, 3))
    live.batch(script[1])
    refused = live.directory.answered(wrong)
    assert refused is not None
    assert refused.state == "refused"
    assert "from 1 to 4" in refused.hint
    assert live.directory.answered(same).state == "nothing"  # type: ignore[union-attr]
    assert live.directory.answered(right).state == "started"  # type: ignore[union-attr]


def test_a_request_that_is_no_request() -> None:
    live, script = steering()
    live.batch(script[0])
    live.files.write(
        "requests/0123456789abcdef.json", b'{"at": 1, "by": "x", "why": "", "edit": 3}'
    )
    live.files.write("requests/00000000deadbeef.json", b"{")
    live.files.write("requests/../../etc.json", b"{}")
    live.batch(script[1])
    assert live.directory.answered("0123456789abcdef").state == "refused"  # type: ignore[union-attr]
    assert live.version.version == 0


def test_nothing_is_published_before_a_batch_has_used_the_version() -> None:
    live, script = steering()
    live.ask(Scale(units=3))
    live.loop.idle()
    assert live.version.version == 0
    live.batch(script[0])
    assert live.version.version == 1
    live.loop.idle()
    assert live.version.version == 1


def test_without_reports_nothing_goes_on() -> None:
    live, script = steering()
    live.batch(script[0])
    live.ask(Scale(units=3))
    for step in script[1:5]:
        live.batch(step, lose=lambda _: True)
    assert live.version.version == 0
    live.batch(script[5])
    live.batch(script[6], lose=lambda report: report.unit == 0)
    assert live.version.version == 1


def test_only_one_process_publishes() -> None:
    live, script = steering()
    live.batch(script[0])
    other = Loop(live.directory, live.tree, clock=lambda: live.now)
    with pytest.raises(ControlError, match="is managed by process"):
        other.add([])
    live.ask(Scale(units=3))
    other.idle()
    assert "is managed by process" in other.problem
    assert live.version.version == 0
    live.now += 2 * SECONDS
    other.add([])
    live.batch(script[1])
    assert "is managed by process" in live.loop.problem
    assert live.version.version == 0


def test_a_lease_of_a_process_that_has_ended_is_free(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    dead = Lease(files, lambda: 100.0)
    dead._holder = dead._holder | {"process": 1 << 22}
    dead.hold()
    Lease(files, lambda: 101.0).hold()


def test_whoever_dies_between_two_files_is_followed() -> None:
    """A table that was written, but not put into use, is no table."""
    live, script = steering()
    live.batch(script[0])
    live.ask(Scale(units=3))
    live.batch(script[1])
    assert live.version.version == 1
    live.directory.fall_back(0)
    live.replace_loop()
    second = live.ask(Scale(units=4))
    live.batch(script[2])
    assert live.version.version == 1
    left = iter(script[3:])
    live.settle(lambda: next(left), most=30)
    assert live.version.joins[0].active(0) == (0, 1, 2, 3)
    assert live.directory.answered(second).state == "done"  # type: ignore[union-attr]


def test_a_version_that_is_being_written_is_not_read() -> None:
    live, script = steering()
    live.batch(script[0])
    live.ask(Scale(units=3))
    live.batch(script[1])
    assert {live.files.read(name) for name in VERSIONS} == {
        f"{number:019d}\n".encode() for number in (0, 1)
    }
    live.files.write(VERSIONS[1], b"")
    assert live.directory.number() == 0
    live.files.remove(VERSIONS[0])
    with pytest.raises(ControlError, match="no version in use"):
        live.directory.number()


def test_a_change_in_which_nothing_moves_comes_to_its_end() -> None:
    """A full history with one key, whose group stays where it is."""
    script = batches(np.random.default_rng(3), 2, 30, 6)
    schemas = [table.schema for table in script[0].tables]
    options = JoinOptions(units=2, full_history=True)
    live = Steering(InProcessJoin("r.k = s.k", schemas, options=options), max_units=4)
    one_key = [_with_key(step, 5) for step in script]
    for step in one_key[:3]:
        live.batch(step)
    (holder,) = (unit for (_, unit), state in live.running.runners[0].state.items() if state.parts)
    groups = live.version.joins[0].stages[0][0]
    mine = [g for g in range(5040) if groups.lines[groups.assigned[g]] == (holder,)]
    moved = mine[:10] if holder else mine[-10:]
    live.ask(Move(groups=tuple(moved), to=1 - holder))
    left = iter(one_key[3:])
    live.settle(lambda: next(left), most=12)
    assert [one.step.value for one in live.directory.history()][1:] == [
        *("announce", "switch", "take", "forget", "settled")
    ]


def _with_key(step: Batch, key: int) -> Batch:
    tables = []
    for table in step.tables:
        keys = pa.array([key] * table.num_rows, pa.int32())
        tables.append(table.set_column(1, table.schema.field(1), keys))
    return Batch(*tables, watermark=step.watermark)


def test_what_others_leave_in_the_folder_of_requests() -> None:
    live, script = steering()
    live.batch(script[0])
    odd = {
        "0" * 12: b'{"at": 1' + b"0" * 400 + b', "by": "x", "why": "", "edit": {}}',
        "0" * 11 + "1": b"[" * 100_000,
        "0" * 11 + "2": b"\xff\xfe",
    }
    for name, data in odd.items():
        live.files.write(f"requests/{name}.json", data)
    right = live.ask(Scale(units=3))
    live.batch(script[1])
    for name in odd:
        assert live.directory.answered(name).state == "refused"  # type: ignore[union-attr]
    assert live.directory.answered(right).state == "started"  # type: ignore[union-attr]


@pytest.mark.parametrize("units", [0, -1, 2.5, "3", 99])
def test_a_policy_that_asks_for_nonsense(units: Any) -> None:
    class Wild:
        name = "wild"
        every = 0.0

        def decide(self, moment: Moment, earlier: Any) -> Verdict:
            return Verdict(why="because", edit=Scale(units=units))

    live, script = steering()
    live.manage(Wild())
    for step in script[:3]:
        live.batch(step)
    assert live.version.version == 0
    assert live.directory.status()["batch"] >= 1


def test_a_lease_that_nobody_can_read_is_taken(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    files.write("lease.json", b"{")
    Lease(files, lambda: 1.0).hold()


class _Picky:
    """A file system that does not rename onto a file that is there, as HDFS does not."""

    def __init__(self) -> None:
        self._system = fs.LocalFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)

    def move(self, source: str, target: str) -> None:
        if Path(target).exists():
            raise FileExistsError(target)
        self._system.move(source, target)


def test_a_file_system_that_does_not_replace_files(tmp_path: Path) -> None:
    files = ArrowFiles(_Picky(), str(tmp_path / "c"), renames=True)
    for text in (b"one", b"two", b"three"):
        files.write("a/b.json", text)
        assert files.read("a/b.json") == text
    assert files.names("a") == ["b.json"]


def test_a_policy_that_fails_is_not_the_end() -> None:
    class Broken:
        name = "broken"
        every = 0.0

        def decide(self, moment: Moment, earlier: Any) -> Verdict:
            raise RuntimeError("no idea")

    live, script = steering()
    broken = Broken()
    live.manage(broken)
    live.batch(script[0])
    (verdict,) = live.loop.decisions(broken)
    assert "no idea" in verdict.why
    live.ask(Scale(units=3))
    live.batch(script[1])
    assert live.version.version == 1


def test_another_query_is_refused() -> None:
    live, script = steering()
    live.batch(script[0])
    live.directory.bind("another")
    live.ask(Scale(units=3))
    live.batch(script[1])
    assert "in use by another query" in live.loop.problem
    assert live.version.version == 0


def test_a_directory_of_a_join_that_never_ran_is_made_anew() -> None:
    live, script = steering()
    schemas = [table.schema for table in script[0].tables]
    other = InProcessJoin("r.n = s.n", schemas, within="12 seconds", time=TIME)
    known = live.directory.open(other.plan.tree, 4, 0.0)
    assert known.control != live.control
    live.directory.bind("a query")
    with pytest.raises(ControlError, match="belongs to another query"):
        live.directory.open(live.tree, 4, 0.0)


@pytest.mark.parametrize("kind", ["local", "renaming", "objects", "memory"])
def test_files_of_every_kind(kind: str, tmp_path: Path) -> None:
    files: Files = {
        "local": lambda: LocalFiles(tmp_path / "c"),
        "renaming": lambda: ArrowFiles(fs.LocalFileSystem(), f"{tmp_path}/c", renames=True),
        "objects": lambda: ArrowFiles(_objects(tmp_path), f"{tmp_path}/c/", renames=False),
        "memory": MemoryFiles,
    }[kind]()
    assert files.read("tables/1.json") is None
    assert files.names("tables") == []
    files.write("tables/1.json", b"one")
    assert files.create("tables/1.json", b"two") is False
    assert files.create("tables/0.json", b"nil") is True
    assert files.read("tables/1.json") == b"one"
    files.write("tables/1.json", memoryview(b"three"))
    assert files.read("tables/1.json") == b"three"
    assert files.names("tables") == ["0.json", "1.json"]
    files.remove("tables/0.json")
    files.remove("tables/0.json")
    assert files.names("tables") == ["1.json"]


def _objects(root: Path) -> fs.FileSystem:
    (root / "c" / "tables").mkdir(parents=True)
    return fs.LocalFileSystem()


def test_local_files_are_the_owners(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        LocalFiles(tmp_path / "c").write("tables/1.json", b"one")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "c" / "tables" / "1.json").stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "c" / "tables").iterdir()] == ["1.json"]


def test_names_of_paths() -> None:
    assert full_path("file:///a/b") == "/a/b"
    assert full_path("a") == str(Path("a").absolute())
    assert full_path("s3://bucket/a/") == "s3://bucket/a"
    assert spark_path("/a/b c") == "file:///a/b c"
    assert spark_path("s3://key:secret@bucket/a?region=x") == "s3a://bucket/a"
    with pytest.raises(ControlError, match="a character of"):
        spark_path("/a/b*")
    assert spark_path("s3://bucket/a") == "s3a://bucket/a"
    assert spark_path("hdfs://host/a") == "hdfs://host/a"
    assert without_secrets("s3://key:secret@bucket/a?x=secret") == "s3://bucket/a"
    assert without_secrets("/a/b") == "/a/b"
    with pytest.raises(ControlError, match="nosuch://") as caught:
        open_files("nosuch://user:secret@host/a")
    assert "secret" not in str(caught.value)


def test_exports_have_no_paths_in_their_names() -> None:
    directory = Directory("memory", MemoryFiles())
    for name in ("../version", "a/b", "x" * 64, ""):
        with pytest.raises(ControlError, match="not the name"):
            directory.exported(name)
