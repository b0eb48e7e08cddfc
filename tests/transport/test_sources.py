"""Files of a folder are taken in exactly once, and what is wrong with one is said."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.transport.tuples import Clock, ids, rides
from thetastream.errors import SiteDataError, SiteRequestError
from thetastream.transport import sources
from thetastream.transport.log import FILE, REMEMBER, Log
from thetastream.transport.messages import Limits
from thetastream.transport.sources import FolderSource


class Scene:
    """A folder, and a log that is filled from it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = root / "files"
        self.files.mkdir()
        self.clock = Clock()
        self.starts = 0
        self.restart()

    def restart(self) -> None:
        """As after kill -9: the next process finds what is on the disk at this moment."""
        before, folder = (self.root / f"log-{self.starts + more}" for more in (0, 1))
        if self.starts:
            shutil.copytree(before, folder)
        self.starts += 1
        self.log = Log(folder, clock=self.clock.wall, monotonic=self.clock.steady)
        self.source = FolderSource(self.log, self.files, "at", Limits())

    def is_taken(self, name: str) -> bool:
        return self.source._is_taken(name)

    def put(self, name: str, *tables: pa.RecordBatch) -> None:
        with pq.ParquetWriter(self.files / name, tables[0].schema) as writer:
            for one in tables:
                writer.write_batch(one)

    def found(self) -> list[int]:
        if self.log.next == 0:
            return []
        return ids([piece.batch for piece in self.log.read(0, self.log.next)])


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_files_are_taken_in_by_the_order_of_their_names(scene: Scene) -> None:
    scene.put("b.parquet", rides(10, 10))
    scene.put("a.parquet", rides(0, 10))
    (scene.files / "notes.txt").write_text("no tuples")
    scene.put("_hidden.parquet", rides(0, 10))
    scene.put(".c.parquet", rides(0, 10))
    assert scene.source.poll(0) == 20
    assert scene.source.poll(0) == 0
    # A name that sorts before those that came earlier is not lost.
    scene.put("aa.parquet", rides(20, 5))
    assert scene.source.poll(0) == 5
    assert scene.found() == list(range(25))
    assert scene.source.refused == {}


def test_each_file_once_across_restarts(scene: Scene) -> None:
    for number in range(6):
        scene.put(f"{number}.parquet", rides(number * 10, 10))
        scene.source.poll(0)
        if number % 2:
            scene.log.seal()
        scene.restart()
    assert scene.source.poll(0) == 0
    assert scene.found() == list(range(60))


def test_a_crash_in_the_middle_of_a_file(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "CHUNK_ROWS", 10)
    scene.put("a.parquet", *(rides(first, 25) for first in range(0, 100, 25)))
    append = Log.append

    class Crash(BaseException):
        pass

    for crash_at in (0, 1, 2, 3):
        count = 0

        def crashing(
            log: Log, batch: pa.RecordBatch, crash_at: int = crash_at, **more: object
        ) -> tuple[int, int]:
            nonlocal count
            count += 1
            if count > crash_at:
                raise Crash
            return append(log, batch, **more)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(Log, "append", crashing)
            with pytest.raises(Crash):
                scene.source.poll(0)
        if crash_at == 2:
            scene.log.seal()
        scene.restart()
    assert 0 < scene.log.next < 100
    scene.source.poll(0)
    assert scene.found() == list(range(100))
    assert scene.is_taken("a.parquet")


def test_a_damaged_file_is_named_and_loses_nothing(scene: Scene) -> None:
    scene.put("a.parquet", rides(0, 10))
    scene.put("b.parquet", *(rides(first, 500) for first in range(10, 1510, 500)))
    whole = (scene.files / "b.parquet").read_bytes()
    spoiled = bytearray(whole)
    # In the last row group: nothing of the file may be taken in.
    place = len(whole) * 6 // 10
    spoiled[place : place + 200] = b"\xff" * 200
    (scene.files / "b.parquet").write_bytes(spoiled)
    (scene.files / "c.parquet").write_bytes(whole[:300])
    scene.put("d.parquet", rides(1510, 10))
    scene.source.poll(0)
    assert scene.found() == [*range(10), *range(1510, 1520)]
    assert set(scene.source.refused) == {"b.parquet", "c.parquet"}
    assert "not a whole Parquet file" in scene.source.refused["c.parquet"]
    # Whole now, as when a slow writer has finished.
    (scene.files / "b.parquet").write_bytes(whole)
    (scene.files / "c.parquet").unlink()
    assert scene.source.poll(0) == 1500
    assert scene.source.refused == {}


@pytest.mark.parametrize("error", [SiteDataError("log.db is damaged"), SiteRequestError("no")])
def test_trouble_of_the_log_is_not_the_files(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    scene.put("a.parquet", rides(0, 10))
    with monkeypatch.context() as patch:
        patch.setattr(scene.log, "append", fail)
        with pytest.raises(type(error)):
            scene.source.poll(0)
    assert scene.source.refused == {}
    assert scene.source.poll(0) == 10


def test_a_refused_file_that_vanishes_is_not_remembered(scene: Scene) -> None:
    (scene.files / "a.parquet").write_bytes(b"no tuples")
    scene.source.poll(0)
    assert set(scene.source._seen) == {"a.parquet"}
    (scene.files / "a.parquet").unlink()
    scene.source.poll(0)
    assert scene.source._seen == {}


def test_files_that_do_not_fit(scene: Scene) -> None:
    pq.write_table(pa.table({"id": [1]}), scene.files / "0.parquet")
    scene.source.poll(0)
    assert "no timestamp 'at'" in scene.source.refused["0.parquet"]
    scene.put("1.parquet", rides(0, 5))
    pq.write_table(pa.table({"id": [1]}), scene.files / "2.parquet")
    # The same columns in another order are the same columns.
    turned = rides(5, 5).select(["at", "zone", "fare", "id"])
    scene.put("3.parquet", turned)
    scene.source.poll(0)
    assert scene.found() == list(range(10))
    assert "does not have the stream's columns" in scene.source.refused["2.parquet"]


def test_an_empty_file_and_a_folder_that_is_missing(scene: Scene) -> None:
    scene.put("a.parquet", rides(0, 0))
    scene.put("b.parquet", rides(0, 5))
    scene.source.poll(0)
    assert scene.is_taken("a.parquet")
    scene.restart()
    assert scene.source.poll(0) == 0
    assert scene.found() == list(range(5))
    scene.files.rename(scene.root / "elsewhere")
    assert scene.source.poll(0) == 0
    assert "cannot be read" in scene.source.problem


def test_a_file_that_changes_after_it_was_begun(scene: Scene) -> None:
    scene.log.append(rides(0, 5), source=f"{FILE}a.parquet", position=5, note="10 1")
    scene.put("a.parquet", rides(0, 10))
    scene.source.poll(0)
    assert "has changed after 5 of its rows" in scene.source.refused["a.parquet"]
    assert scene.log.next == 5


def pass_time(scene: Scene, days: int) -> None:
    """Days in which a file comes each day and is removed again."""
    for _ in range(days):
        scene.clock.wait(REMEMBER // 7)
        name = f"{scene.log.next:06d}.parquet"
        scene.put(name, rides(scene.log.next, 1))
        scene.source.poll(0)
        scene.log.maintain()
        (scene.files / name).unlink()


def test_names_are_remembered_while_the_file_is_there(scene: Scene) -> None:
    scene.put("stays.parquet", rides(0, 1))
    scene.put("goes.parquet", rides(1, 1))
    scene.source.poll(0)
    (scene.files / "goes.parquet").unlink()
    pass_time(scene, 30)
    names = set(scene.log.positions(FILE))
    assert "stays.parquet" in names
    assert "goes.parquet" not in names
    # Names of a week, and what the last look has not removed yet.
    assert len(names) < 12
    scene.restart()
    assert scene.source.poll(0) == 0
    assert sorted(scene.found()) == list(range(scene.log.next))


def test_a_folder_that_was_not_mounted_is_not_taken_in_twice(scene: Scene) -> None:
    for number in range(3):
        scene.put(f"{number}.parquet", rides(number, 1))
    scene.source.poll(0)
    hidden = scene.root / "hidden"
    scene.files.rename(hidden)
    for mounted in (False, True):
        # First there is no folder, then an empty one.
        if mounted:
            scene.files.mkdir()
        for _ in range(10):
            scene.clock.wait(REMEMBER)
            assert scene.source.poll(0) == 0
            scene.log.maintain()
    scene.files.rmdir()
    hidden.rename(scene.files)
    scene.restart()
    scene.put("3.parquet", rides(3, 1))
    for _ in range(3):
        scene.source.poll(0)
        scene.clock.wait(REMEMBER)
        scene.log.maintain()
    assert scene.found() == [0, 1, 2, 3]
