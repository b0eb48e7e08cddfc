"""Control directories: their files, whom they belong to, versions, and what is damaged in them."""

from __future__ import annotations

import errno
import gzip
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from obstore.store import MemoryStore
from pyarrow import fs

from tests.steering.histories import GROUPS, batches
from thetastream.api.control import Control
from thetastream.errors import ControlError
from thetastream.options import JoinOptions
from thetastream.steering.directory import Answer, Directory
from thetastream.steering.edits import Scale
from thetastream.steering.files import (
    Files,
    HadoopFiles,
    LocalFiles,
    NamedFiles,
    ObjectFiles,
    full_path,
    open_files,
    without_secrets,
)
from thetastream.steering.table_log import KEPT_BATCHES, KEPT_VERSIONS, OvertakenError, TableLog
from thetastream.steering.version import Version
from thetastream.testing import Batch, InProcessJoin
from thetastream.testing.steered import MemoryFiles, Steering

SCRIPT = batches(np.random.default_rng(7), 2, 40, 10)


def join(predicate: str = "r.k = s.k", groups: int | None = None) -> InProcessJoin:
    return InProcessJoin(
        predicate,
        [table.schema for table in SCRIPT[0].tables],
        within="12 seconds",
        time={"r": "t", "s": "t"},
        options=JoinOptions(units=2),
        groups=groups,
    )


def steering(files: Files | None = None) -> tuple[Steering, list[Batch]]:
    return Steering(join(groups=GROUPS), max_units=4, files=files), list(SCRIPT)


def following(version: Version, **changes: Any) -> Version:
    changed = replace(version, version=version.version + 1, previous=version.digest, **changes)
    return changed.lived()


# -- file systems -------------------------------------------------------------------------------


class _NoReplace:
    """A file system that does not rename onto a file that is there, as HDFS does not."""

    def __init__(self) -> None:
        self._system = fs.LocalFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)

    def move(self, source: str, target: str) -> None:
        if Path(target).exists():
            raise FileExistsError(target)
        self._system.move(source, target)


@pytest.mark.parametrize("kind", ["disk", "hdfs", "objects", "memory"])
def test_files_of_every_kind(kind: str, tmp_path: Path) -> None:
    files: Files = {
        "disk": lambda: LocalFiles(tmp_path / "c"),
        "hdfs": lambda: HadoopFiles(_NoReplace(), f"{tmp_path}/c/"),
        "objects": lambda: ObjectFiles(MemoryStore()),
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
    files.rename("tables/1.json", "damaged/1.json")
    assert files.read("damaged/1.json") == b"three"
    assert files.names("tables") == []


def test_local_files_are_the_owners(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        LocalFiles(tmp_path / "c").write("tables/1.json", b"one")
        LocalFiles(tmp_path / "c").create("tables/2.json", b"two")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o700
    for name in ("1.json", "2.json"):
        assert stat.S_IMODE((tmp_path / "c" / "tables" / name).stat().st_mode) == 0o600
    assert sorted(path.name for path in (tmp_path / "c" / "tables").iterdir()) == [
        "1.json",
        "2.json",
    ]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_disk_without_links_is_refused_by_name(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: object, target: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(ControlError, match="cannot create a file only if there is none") as no:
        Directory(str(tmp_path)).open(join().plan.tree, 4, 0.0)
    assert str(tmp_path) in str(no.value)


def test_file_systems_that_cannot_create_exclusively_are_refused() -> None:
    with pytest.raises(ControlError, match="nosuch://host/a cannot hold") as no:
        open_files("nosuch://user:secret@host/a?key=secret")
    assert "only if there is none" in str(no.value)
    assert "secret" not in str(no.value)


def test_a_uri_has_no_secrets_and_no_settings() -> None:
    for path in ("s3://key:secret@bucket/a", "s3://bucket/a?secret_access_key=secret"):
        with pytest.raises(ControlError, match="s3://bucket/a cannot hold") as no:
            open_files(path)
        assert "belong into the environment" in str(no.value)
        assert "key=" not in str(no.value)


def test_names_of_paths() -> None:
    assert full_path("file:///a/b") == "/a/b"
    assert full_path("a") == str(Path("a").absolute())
    assert full_path("s3://bucket/a/") == "s3://bucket/a"
    assert without_secrets("s3://key:secret@bucket/a?x=secret") == "s3://bucket/a"
    assert without_secrets("/a/b") == "/a/b"


def test_exports_have_no_paths_in_their_names() -> None:
    directory = Directory("memory", MemoryFiles())
    for name in ("../version", "a/b", "x" * 64, "", "00000001-" + "x" * 64, "a" * 64):
        with pytest.raises(ControlError, match="not the name"):
            directory.exported(name)


def test_exports_of_a_later_change_outlive_the_end_of_an_earlier_one() -> None:
    directory = Directory("memory", MemoryFiles())
    names = [f"{version:08d}-{'a' * 64}" for version in (3, 7)]
    for name in names:
        directory.export(name, memoryview(b"tuples"))
    directory.clear_exports(5)
    assert directory.files.names("exports") == names[1:]


# -- whom it belongs to -------------------------------------------------------------------------


def test_a_join_that_is_built_beside_a_query_in_its_first_batch_does_no_harm() -> None:
    """Nothing says yet that the query runs, and it goes on all the same."""
    live, script = steering()
    other = live.directory.open(join("r.n = s.n").plan.tree, 4, 0.0)
    assert other.control != live.control
    live.batch(script[0])
    assert not live.loop.problem
    live.ask(Scale(units=3))
    for step in script[1:4]:
        live.batch(step)
    assert live.version.version > 1
    with pytest.raises(ControlError, match="belongs to another query"):
        live.directory.open(join("r.n = s.n").plan.tree, 4, 0.0)
    assert live.directory.require().control == live.control


def test_of_several_joins_the_first_batch_claims_the_directory() -> None:
    files = MemoryFiles()
    first, script = steering(files)
    second = Steering(join("r.n = s.n", GROUPS), max_units=4, files=files)
    second.batch(script[0])
    first.batch(script[0])
    assert "in use by another query" in first.loop.problem
    assert not second.loop.problem
    with pytest.raises(ControlError, match="in use by another query"):
        second.directory.claim_for("another", second.control)


def test_the_same_join_is_entered_once() -> None:
    files = MemoryFiles()
    first, _ = steering(files)
    second, _ = steering(files)
    assert first.control == second.control
    assert len(files.names("joins")) == 1


def test_whoever_ended_in_the_middle_of_making_a_directory_is_followed() -> None:
    live, _ = steering()
    made = dict(live.files.files)  # type: ignore[attr-defined]
    order = [name for name in made if not name.startswith("tables")]
    for count in range(len(order) + 1):
        files = MemoryFiles()
        files.files = {name: made[name] for name in order[:count]}
        again, script = steering(files)
        again.batch(script[0])
        assert not again.loop.problem


# -- versions -----------------------------------------------------------------------------------


def log() -> tuple[TableLog, Steering]:
    live, _ = steering()
    return live.directory.tables(live.control), live


def test_only_one_of_two_publishers_wins() -> None:
    first, live = log()
    second = Directory("memory", live.files).tables(live.control)
    start = first.current()
    first.publish(following(start, at=1.0))
    with pytest.raises(OvertakenError, match="another process has published version 1"):
        second.publish(following(start, at=2.0))
    assert second.current().at == 1.0


def test_all_tasks_of_a_batch_go_by_one_version() -> None:
    tables, live = log()
    assert tables.of_batch(4) == 0
    tables.publish(following(tables.current()))
    other = Directory("memory", live.files).tables(live.control)
    assert [other.of_batch(4), other.of_batch(5), tables.of_batch(4)] == [0, 1, 0]
    for batch in range(6, 6 + 2 * KEPT_BATCHES):
        other.of_batch(batch)
    assert KEPT_BATCHES <= len(live.files.names("batches")) <= 2 * KEPT_BATCHES


def test_a_batch_whose_version_is_damaged_goes_by_the_one_in_its_place() -> None:
    tables, live = log()
    tables.publish(following(tables.current()))
    assert tables.of_batch(1) == 1
    (name,) = (one for one in live.files.names("tables") if "00000001" in one)
    live.files.write(f"tables/{name}", b"\x1f\x8b")
    fresh = Directory("memory", live.files).tables(live.control)
    with pytest.raises(ControlError, match="is refused"):
        fresh.of_batch(1)
    assert name in str(fresh.recover(live.tree, 9.0))
    assert fresh.recover(live.tree, 9.0) is None
    assert fresh.of_batch(1) == 2
    assert fresh.current().joins[0].stages == tables.version(0).joins[0].stages


def test_a_damaged_version_that_no_unit_has_seen_is_left_out() -> None:
    live, script = steering()
    live.batch(script[0])
    live.ask(Scale(units=3))
    live.batch(script[1])
    assert live.version.version == 1
    (name,) = (one for one in live.files.names("tables") if "00000001" in one)
    live.files.write(f"tables/{name}", gzip.compress(b"{}"))
    live.replace_loop()
    assert live.loop.recover() is not None
    left = iter(script[2:])
    live.batch(next(left))
    assert not live.loop.problem
    live.ask(Scale(units=4))
    live.settle(lambda: next(left))
    assert live.version.joins[0].active(0) == (0, 1, 2, 3)


def test_a_damaged_version_that_units_have_seen_is_refused() -> None:
    live, script = steering()
    live.batch(script[0])
    live.ask(Scale(units=3))
    live.batch(script[1])
    live.batch(script[2], lose=lambda _: True)
    (name,) = (one for one in live.files.names("tables") if "00000001" in one)
    live.files.write(f"tables/{name}", b"")
    live.replace_loop()
    assert live.loop.recover() is not None
    with pytest.raises(ControlError, match="does not follow from what unit"):
        live.batch(script[3])


def test_the_folder_of_tables_is_bounded() -> None:
    live, _ = steering()
    tables, version = live.loop.tables, live.version
    for _ in range(KEPT_VERSIONS + 40):
        version = following(version)
        tables.publish(version)
    assert len(live.files.names("tables")) == KEPT_VERSIONS
    assert tables.current().digest == version.digest
    assert [one.version for one in tables.history()][-1] == version.version


def test_a_table_whose_groups_are_scattered_is_small() -> None:
    live = Steering(join(), max_units=4)
    random, version = np.random.default_rng(1), live.version
    stage = [
        replace(one, assigned=lines, visited=lines)
        for one in version.joins[0].stages[0]
        for lines in [tuple(random.integers(0, len(one.lines), len(one.assigned)).tolist())]
    ]
    version = following(version, joins=(replace(version.joins[0], stages=(tuple(stage),)),))
    live.loop.tables.publish(version)
    written = live.files.read(f"tables/{live.files.names('tables')[-1]}")
    assert len(written or b"") < 12_000
    assert Directory("memory", live.files).tables(live.control).current().digest == version.digest


def test_a_publisher_that_was_paused_for_very_long_revives_nothing() -> None:
    """Its number is free again, since old tables go."""
    tables, live = log()
    late = Directory("memory", live.files).tables(live.control)
    stale = following(late.current(), at=5.0)

    class Slow(MemoryFiles):
        def create(self, name: str, data: bytes | memoryview) -> bool:
            # In the middle of it, others go on.
            for _ in range(KEPT_VERSIONS + 5):
                tables.publish(following(tables.current()))
            return bool(live.files.create(name, data))

        def __getattr__(self, name: str) -> Any:
            return getattr(live.files, name)

    slow = Slow()
    slow.files = live.files.files  # type: ignore[attr-defined]
    with pytest.raises(OvertakenError):
        TableLog(slow, live.control, "memory").publish(stale)
    assert tables.newest() == KEPT_VERSIONS + 5
    assert len(live.files.names("tables")) == KEPT_VERSIONS


class Flaky(MemoryFiles):
    """Files of which an operation fails, or loses its answer, as often as it is told."""

    def __init__(self, files: MemoryFiles) -> None:
        super().__init__()
        self.files = files.files
        self.unreadable = 0
        self.lost_answers = 0
        self.hidden: tuple[str, ...] = ()
        """Parts of names that a listing leaves out."""

    def read(self, name: str) -> bytes | None:
        if self.unreadable and name.startswith("tables"):
            self.unreadable -= 1
            raise OSError(errno.EIO, "a cable")
        return super().read(name)

    def create(self, name: str, data: bytes | memoryview) -> bool:
        made = super().create(name, data)
        if self.lost_answers and name.startswith("tables"):
            self.lost_answers -= 1
            return False
        return made

    def names(self, folder: str) -> list[str]:
        names = super().names(folder)
        return [name for name in names if not any(part in name for part in self.hidden)]


def flaky() -> tuple[Flaky, TableLog, Steering]:
    tables, live = log()
    tables.publish(following(tables.current()))
    assert isinstance(live.files, MemoryFiles)
    files = Flaky(live.files)
    named = cast("Files", NamedFiles(files, "memory"))
    return files, TableLog(named, live.control, "memory"), live


def test_a_disk_that_fails_for_a_moment_is_no_damage() -> None:
    """A task that runs again must not route by another version, nor a start publish one."""
    files, tables, live = flaky()
    files.write(f"batches/{live.control}-{7:020d}", b"0")
    files.unreadable = 1
    with pytest.raises(ControlError, match="cannot be used"):
        tables.of_batch(7)
    assert tables.of_batch(7) == 0
    fresh = TableLog(cast("Files", NamedFiles(files, "memory")), live.control, "memory")
    files.unreadable = 1
    with pytest.raises(ControlError, match="cannot be used"):
        fresh.recover(live.tree, 1.0)
    assert fresh.recover(live.tree, 1.0) is None
    assert fresh.newest() == 1


def test_a_table_of_a_later_release_is_not_replaced() -> None:
    tables, live = log()
    text = following(tables.current()).to_text().replace('"format": 1', '"format": 99')
    live.files.write(f"tables/{live.control}-00000001.json.gz", gzip.compress(text.encode()))
    with pytest.raises(ControlError, match="has format 99"):
        tables.recover(live.tree, 1.0)
    assert tables.newest() == 1


def test_a_version_whose_answer_was_lost_is_published() -> None:
    files, tables, _ = flaky()
    files.lost_answers = 1
    tables.publish(following(tables.current(), at=5.0))
    assert tables.current().at == 5.0


def test_a_listing_that_is_out_of_date_leads_no_batch_backwards() -> None:
    files, tables, live = flaky()
    assert tables.of_batch(10) == 1
    other = TableLog(files, live.control, "memory")
    files.hidden = ("00000001",)
    assert other.newest() == 0
    assert other.of_batch(11) == 1
    del files.files[f"batches/{live.control}-{11:020d}"]
    del files.files[f"batches/{live.control}-{10:020d}"]
    assert other.of_batch(11) == 1


def test_a_request_is_not_refused_because_another_process_was_faster() -> None:
    live, script = steering()
    live.batch(script[0])
    request = live.ask(Scale(units=3))
    publish = live.loop.tables.publish

    def overtaken(version: Version) -> None:
        live.loop.tables.publish = publish  # type: ignore[method-assign]
        raise OvertakenError("another process was faster")

    live.loop.tables.publish = overtaken  # type: ignore[method-assign]
    live.batch(script[1])
    assert live.directory.answered(request) is None
    left = iter(script[2:])
    live.settle(lambda: next(left))
    answer = live.directory.answered(request)
    assert answer is not None
    assert answer.state == "done"


def test_tuples_that_are_exported_twice_are_there_all_the_time() -> None:
    class Once(MemoryFiles):
        def remove(self, name: str) -> None:
            raise AssertionError("somebody may be reading it")

        write = remove  # type: ignore[assignment]

    directory = Directory("memory", Once())
    for _ in range(2):
        directory.export("00000001-" + "a" * 64, memoryview(b"tuples"))


def test_an_object_store_that_fails_says_nothing_of_its_address() -> None:
    from obstore.exceptions import BaseError

    class Store:
        def get(self, name: str) -> Any:
            raise BaseError("GET https://account.example/box?sig=secret")

    files = cast("Files", NamedFiles(ObjectFiles(Store()), "s3://box/rides"))
    with pytest.raises(ControlError, match="s3://box/rides cannot be used") as no:
        files.read("control.json")
    assert "secret" not in str(no.value)


def test_a_container_of_azure_is_no_password() -> None:
    path = "abfss://box@account.dfs.core.windows.net/rides"
    assert without_secrets(path) == path
    assert without_secrets("abfss://box:secret@account.net/a") == "abfss://account.net/a"
    open_files(path)


# -- what is damaged ----------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> tuple[Steering, list[Batch], Path]:
    root = tmp_path / "control"
    live, script = steering(LocalFiles(root))
    live.batch(script[0])
    assert not live.loop.problem
    return live, script, root


def goes_on(live: Steering, script: list[Batch], root: Path) -> None:
    """A request is met, and the status names what was put aside."""
    request = live.ask(Scale(units=3))
    left = iter(script)
    live.settle(lambda: next(left))
    assert not live.loop.problem
    answer = live.directory.answered(request)
    assert answer is not None
    assert answer.state == "done"
    assert "damaged files were put aside: damaged/" in Control(str(root)).status().problem


@pytest.mark.parametrize("damage", ["text", "list", "bytes", "folder"])
def test_a_damaged_status_is_put_aside(
    damage: str, disk: tuple[Steering, list[Batch], Path]
) -> None:
    live, script, root = disk
    path = root / "status.json"
    path.unlink()
    match damage:
        case "folder":
            path.mkdir()
        case "list":
            path.write_text("[1]")
        case "bytes":
            path.write_bytes(b"\xff\xfe\x00")
        case _:
            path.write_text('{"samples": [')
    assert "status.json" in Control(str(root)).status().problem
    live.replace_loop()
    goes_on(live, script[1:], root)


def test_a_folder_named_like_a_request_is_put_aside(
    disk: tuple[Steering, list[Batch], Path],
) -> None:
    live, script, root = disk
    (root / "requests" / "0123456789abcdef.json").mkdir(parents=True)
    goes_on(live, script[1:], root)


def test_a_file_in_the_place_of_the_requests_is_put_aside(
    disk: tuple[Steering, list[Batch], Path],
) -> None:
    live, script, root = disk
    (root / "requests").write_text("nothing to ask")
    live.batch(script[1])
    goes_on(live, script[2:], root)


@pytest.mark.parametrize("name", ["control.json", "query.json", "join"])
def test_what_routing_depends_on_is_refused_when_it_is_damaged(
    name: str, disk: tuple[Steering, list[Batch], Path]
) -> None:
    live, _, root = disk
    path = next((root / "joins").iterdir()) if name == "join" else root / name
    for text in ("", "[]", '{"format": 99}', "\x00"):
        path.write_text(text)
        with pytest.raises(ControlError, match="cannot be read") as no:
            Directory(str(root)).open(live.tree, 4, 0.0)
        assert path.name in str(no.value) or "format 99" in str(no.value)


def test_a_refusal_does_not_replace_an_answer() -> None:
    """Its author was paused while another process has met the request."""
    live, script = steering()
    live.batch(script[0])
    request = live.ask(Scale(units=3))
    left = iter(script[1:])
    live.settle(lambda: next(left))
    live.directory.answer(Answer(request=request, state="refused", what="too late"))
    answer = live.directory.answered(request)
    assert answer is not None
    assert answer.state == "done"


def test_tables_are_read_within_bounds() -> None:
    tables, live = log()
    (name,) = live.files.names("tables")
    live.files.write(f"tables/{name}", gzip.compress(b" " * (65 * 1024**2)))
    with pytest.raises(ControlError, match="not a complete file of gzip"):
        tables.current()
