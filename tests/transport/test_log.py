"""The durable log: dense numbers, whatever a crash leaves behind."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.transport.tuples import SCHEMA, ids, rides
from thetastream.errors import ForgottenError, SiteChangedError, SiteDataError, SiteError
from thetastream.errors import SiteRequestError as Refused
from thetastream.transport import excerpts, taken
from thetastream.transport import journal as journals
from thetastream.transport.filters import Filter
from thetastream.transport.log import Log, LogOptions

SECOND = 1_000_000


def everything(log: Log) -> list[int]:
    """The ids of all tuples that are kept; their numbers are checked on the way."""
    pieces = list(log.read(log.first, log.next))
    numbers = [number for piece in pieces for number in piece.batch.column(0).to_pylist()]
    assert numbers == list(range(log.first, log.next))
    at = log.first
    for piece in pieces:
        assert piece.start == at
        at = piece.stop
    assert at == log.next
    return ids([piece.batch for piece in pieces])


def filled(folder: Path, counts: list[int], options: LogOptions | None = None) -> Log:
    log = Log(folder, options)
    for count in counts:
        log.append(rides(log.next, count), at=0)
    return log


def test_numbers_are_dense_and_survive_a_restart(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", [3, 1, 5])
    assert (log.first, log.next) == (0, 9)
    # As after kill -9: nothing is closed.
    again = Log(tmp_path / "log")
    assert again.id == log.id
    assert again.schema == SCHEMA
    assert everything(again) == list(range(9))
    assert again.append(rides(9, 2), at=0) == (9, 2)


def test_a_log_of_many_files_reads_as_one(tmp_path: Path) -> None:
    log = filled(tmp_path, [50] * 40, LogOptions(seal_bytes=10_000, message_bytes=1_000))
    assert log.files() > 5
    assert everything(log) == list(range(2000))
    found = log.read(333, 777, columns=["at", "id"])
    batches = [piece.batch for piece in found]
    assert batches[0].schema.names == ["_number", "at", "id"]
    assert ids(batches) == list(range(333, 777))
    assert everything(Log(tmp_path)) == list(range(2000))


def test_tuples_by_number(tmp_path: Path) -> None:
    log = filled(tmp_path, [50] * 40, LogOptions(seal_bytes=10_000))
    wanted = np.array([0, 1, 49, 50, 51, 777, 1999])
    found = list(log.fetch(wanted, columns=["zone", "id"]))
    assert ids(found) == wanted.tolist()
    assert list(log.fetch(np.zeros(0, dtype=np.int64))) == []
    for wrong in ([3, 3], [3, 2], [-1, 2]):
        with pytest.raises(Refused, match="ascend"):
            log.fetch(np.array(wrong))
    with pytest.raises(SiteChangedError, match="tuple 2000 is not there"):
        log.fetch(np.array([1, 2000]))


def test_only_so_many_files_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excerpts, "MAX_OPEN", 2)
    log = filled(tmp_path, [50] * 40, LogOptions(seal_bytes=10_000))
    readings = [log.read(0, 2000) for _ in range(3)]
    batches: list[list[pa.RecordBatch]] = [[], [], []]
    for number in range(100):
        for reading, found in zip(readings, batches, strict=True):
            piece = next(reading, None)
            if piece is not None:
                found.append(piece.batch)
        assert sum(one._batches is not None for one in log._segments) <= 2, number
    assert [ids(found) for found in batches] == [list(range(2000))] * 3


def test_a_filter_leaves_no_gap_in_what_is_covered(tmp_path: Path) -> None:
    log = filled(tmp_path, [50] * 10, LogOptions(seal_bytes=10_000, message_bytes=500))
    where = Filter({"op": ">=", "left": {"column": "fare"}, "right": {"value": 200}}, SCHEMA)
    pieces = list(log.read(10, 490, columns=["id"], where=where))
    assert [piece.start for piece in pieces[1:]] == [piece.stop for piece in pieces[:-1]]
    assert (pieces[0].start, pieces[-1].stop) == (10, 490)
    expected = [number for number in range(400, 490) if number % 7 != 3]
    assert ids([piece.batch for piece in pieces]) == expected


# -- crashes --------------------------------------------------------------------------------------


def test_a_torn_end_is_cut_wherever_it_is_torn(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", [2, 3])
    before = log._journal.size
    log.append(rides(5, 2), at=0)
    path = log._journal.path
    whole = path.read_bytes()
    for length in range(before, len(whole)):
        path.write_bytes(whole[:length])
        found = Log(tmp_path / "log")
        assert found.next == 5, length
        assert path.stat().st_size == before
        if length % 50 == 0:
            assert everything(found) == list(range(5))
            assert found.append(rides(5, 1), at=0) == (5, 1)
        found.close()
    path.write_bytes(whole)
    assert everything(Log(tmp_path / "log")) == list(range(7))


def test_zeros_at_the_end_are_cut(tmp_path: Path) -> None:
    """A machine that loses power may leave the length of a file, but not its content."""
    log = filled(tmp_path, [2, 3])
    path, size = log._journal.path, log._journal.size
    log.append(rides(5, 2), at=0)
    data = path.read_bytes()
    path.write_bytes(data[: size + 40] + bytes(len(data) - size - 40))
    assert everything(Log(tmp_path)) == list(range(5))


def test_damage_before_the_end_is_refused(tmp_path: Path) -> None:
    log = filled(tmp_path, [2, 3])
    place = log._journal.size - 10
    log.append(rides(5, 2), at=0)
    path = log._journal.path
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(SiteDataError, match="acknowledged lie behind the damage"):
        Log(tmp_path)


def test_a_crash_at_any_step_of_sealing_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step of sealing that touches the disk is the last one that happens."""

    class Crash(BaseException):
        pass

    steps = ("write", "taken", "journal", "unlink")
    for step in steps:
        folder = tmp_path / step
        log = filled(folder, [4, 4])
        log.append_of_file(rides(8, 2), at=0, name="a", upto=2, size=9, complete=True)
        log.append(rides(10, 1), at=0, writer="w", sequence=4)
        copy = tmp_path / f"{step}-crashed"

        def crash(*_: object, folder: Path = folder, copy: Path = copy, **__: object) -> None:
            # What the disk holds at this moment is what the next process finds.
            shutil.copytree(folder, copy)
            raise Crash

        with monkeypatch.context() as patch:
            if step == "write":
                patch.setattr("thetastream.transport.segments.os.replace", crash)
            elif step == "taken":
                patch.setattr(taken, "append_durably", crash)
            elif step == "journal":
                patch.setattr(journals, "write_file", crash)
            else:
                patch.setattr(Path, "unlink", crash)
            with pytest.raises(Crash):
                log.seal()
        found = Log(copy)
        assert found.id == log.id
        assert everything(found) == list(range(11))
        assert found.is_taken("a")
        assert found.append(rides(10, 1), at=0, writer="w", sequence=4) == (10, 1)
        assert found.next == 11
        found.append(rides(11, 1), at=0)
        found.seal()
        assert everything(Log(copy)) == list(range(12))
        assert Log(copy).is_taken("a")


def test_a_seal_whose_last_step_fails_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal that follows has its name already, and the folder cannot be made durable."""
    log = filled(tmp_path, [4, 4])
    create = journals.Journal.create

    def failing(folder: Path, head: journals.Head) -> journals.Journal:
        create(folder, head).close()
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(journals.Journal, "create", failing)
        with pytest.raises(OSError, match="Input/output"):
            log.seal()
    log.append(rides(8, 2), at=0)
    assert everything(Log(tmp_path)) == list(range(10))


def test_positions_are_stored_with_their_rows(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.append_with_positions(rides(0, 0), at=0, positions={"t/0": 5, "t/1": 0})
    log.append_with_positions(rides(0, 3), at=0, positions={"t/0": 8})
    assert Log(tmp_path).positions() == {"t/0": 8, "t/1": 0}
    log = Log(tmp_path)
    log.seal()
    log.append_with_positions(rides(3, 1), at=0, positions={"t/1": 2})
    found = Log(tmp_path)
    assert found.positions() == {"t/0": 8, "t/1": 2}
    assert everything(found) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="t/0 goes back to 7"):
        found.append_with_positions(rides(4, 1), at=0, positions={"t/0": 7})


def test_an_append_after_a_seal_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path, [4], LogOptions(seal_bytes=2000))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journals, "write_file", full)
        while not log.problem:
            log.append(rides(log.next, 4), at=0)
    assert "No space" in log.problem
    assert everything(Log(tmp_path)) == list(range(log.next))
    log.append(rides(log.next, 4), at=0)
    assert log.files() == 1
    assert everything(log) == list(range(log.next))


def test_a_full_disk_stores_nothing_and_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path, [4])
    write = os.pwrite

    def torn(file: int, data: memoryview, at: int) -> int:
        if len(data) > 20:
            return write(file, data[:20], at)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("thetastream.transport.journal.os.pwrite", torn)
        with pytest.raises(SiteError, match="No space left"):
            log.append(rides(4, 4), at=0)
    assert everything(log) == list(range(4))
    log.append(rides(4, 1), at=0)
    assert everything(Log(tmp_path)) == list(range(5))


def test_a_disk_that_cannot_sync_takes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path, [4])

    def fail(file: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("thetastream.transport.journal.os.fdatasync", fail)
        with pytest.raises(SiteError, match="Input/output"):
            log.append(rides(4, 4), at=0)
    with pytest.raises(SiteError, match="start the site again"):
        log.append(rides(4, 4), at=0)
    assert everything(log) == list(range(4))


@pytest.mark.parametrize("lost", ["segment", "journal", "floor"])
def test_lost_files_are_named(tmp_path: Path, lost: str) -> None:
    log = filled(tmp_path, [50] * 20, LogOptions(seal_bytes=10_000, retain=SECOND))
    if lost == "segment":
        sorted(tmp_path.glob("*.arrow"))[1].unlink()
    elif lost == "journal":
        log._journal.path.unlink()
    else:
        (tmp_path / "floor").write_text("{")
    with pytest.raises(SiteDataError, match="is not complete"):
        Log(tmp_path)


def test_a_damaged_file_is_named_when_it_is_read(tmp_path: Path) -> None:
    filled(tmp_path, [50] * 20, LogOptions(seal_bytes=10_000))
    path = sorted(tmp_path.glob("*.arrow"))[1]
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    log = Log(tmp_path)
    assert ids([piece.batch for piece in log.read(0, 10)]) == list(range(10))
    with pytest.raises(SiteDataError, match=path.name):
        everything(log)


# -- retention ------------------------------------------------------------------------------------


def test_whole_files_are_forgotten_and_numbers_go_on(tmp_path: Path) -> None:
    options = LogOptions(retain=10 * SECOND, seal_after=SECOND)
    log = Log(tmp_path, options)
    for second in range(5):
        log.append(rides(log.next, 10), at=second * SECOND)
        log.maintain((second + 1) * SECOND)
    assert log.files() == 5
    reading = log.read(0, 50)
    next(reading)
    log.maintain(12 * SECOND + 1)
    assert (log.first, log.next, log.files()) == (30, 50, 2)
    with pytest.raises(ForgottenError, match="tuple 29 has been forgotten: 30 is the first"):
        log.read(29, 40)
    with pytest.raises(ForgottenError, match="have been forgotten"):
        list(reading)
    with pytest.raises(ForgottenError):
        log.fetch(np.array([5, 45]))
    assert everything(log) == list(range(30, 50))
    log.maintain(100 * SECOND)
    assert (log.first, log.next, log.files()) == (50, 50, 0)
    again = Log(tmp_path, options)
    assert (again.first, again.next) == (50, 50)
    assert again.append(rides(50, 1), at=0)[0] == 50


def test_a_crash_while_forgetting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = LogOptions(retain=SECOND, seal_after=SECOND)
    log = filled(tmp_path, [10], options)
    log.maintain(SECOND)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            log.maintain(10 * SECOND)
    assert list(tmp_path.glob("*.arrow"))
    found = Log(tmp_path, options)
    assert (found.first, found.next) == (10, 10)
    assert not list(tmp_path.glob("*.arrow"))


# -- writers and files ----------------------------------------------------------------------------


def test_a_push_that_is_sent_again_is_not_stored_again(tmp_path: Path) -> None:
    log = Log(tmp_path)
    assert log.append(rides(0, 3), at=0, writer="a", sequence=0) == (0, 3)
    assert log.append(rides(0, 3), at=0, writer="a", sequence=0) == (0, 3)
    assert log.append(rides(3, 2), at=0, writer="b", sequence=0) == (3, 2)
    assert log.append(rides(5, 2), at=0, writer="a", sequence=1) == (5, 2)
    for restarted in (False, True):
        if restarted:
            log.seal()
            log = Log(tmp_path)
        assert log.append(rides(5, 2), at=0, writer="a", sequence=1) == (5, 2)
        with pytest.raises(Refused, match="after 1"):
            log.append(rides(0, 3), at=0, writer="a", sequence=0)
        with pytest.raises(Refused, match="had 2 rows before"):
            log.append(rides(0, 3), at=0, writer="a", sequence=1)
    assert everything(log) == list(range(7))


def test_which_rows_of_a_file_are_taken_in(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for restarted in (False, True):
        if restarted:
            log.seal()
            log = Log(tmp_path)
        first = log.next
        name = f"{first}.parquet"
        log.append_of_file(rides(0, 3), at=0, name=name, upto=3, size=70, complete=False)
        log.seal()
        log = Log(tmp_path)
        assert log.partly_taken(name) == (3, 70)
        with pytest.raises(ValueError, match="twice or not in order"):
            log.append_of_file(rides(0, 3), at=0, name=name, upto=3, size=70, complete=False)
        log.append_of_file(rides(3, 2), at=0, name=name, upto=5, size=70, complete=True)
        assert log.is_taken(name)
        assert log.partly_taken(name) == (0, 0)
    assert Log(tmp_path).is_taken("0.parquet")


def test_files_are_the_owners_only(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", [50] * 20, LogOptions(seal_bytes=10_000, retain=SECOND))
    log.append_of_file(rides(0, 1), at=0, name="a", upto=1, size=1, complete=True)
    log.seal()
    log.maintain(0)
    log._forget(log._segments[:1])
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o700
    found = {path.name.partition("-")[0] for path in (tmp_path / "log").iterdir()}
    assert {"floor", "taken", "journal"} <= found
    for path in (tmp_path / "log").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_columns_that_no_stream_can_have(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for batch, word in (
        (pa.record_batch({"_number": [1]}), "_number"),
        (pa.record_batch({"a": pa.array(["x"]).dictionary_encode()}), "dictionary"),
        (pa.RecordBatch.from_arrays([pa.array([1]), pa.array([1])], ["a", "a"]), "two columns"),
        (pa.record_batch({"a": pa.nulls(1)}), "null"),
    ):
        with pytest.raises(Refused, match=word):
            log.append(batch, at=0)
    assert (log.next, log.schema) == (0, None)
