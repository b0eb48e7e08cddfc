"""The durable log: dense numbers, each tuple once, and when it forgets."""

from __future__ import annotations

import shutil
import stat
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.transport.tuples import SCHEMA, Clock, ids, rides
from thetastream.errors import ForgottenError, SiteChangedError, SiteDataError, SiteError
from thetastream.errors import SiteRequestError as Refused
from thetastream.transport.catalogue import Mark
from thetastream.transport.filters import Filter
from thetastream.transport.log import FILE, REMEMBER, TOPIC, WRITER, Log, LogOptions

SECOND = 1_000_000
HOUR = 3_600 * SECOND


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
        log.append(rides(log.next, count))
    return log


def killed(folder: Path, **more: Any) -> Log:
    """The log as a process finds it that follows one which was killed at this moment."""
    copy = folder.with_name(f"{folder.name}-killed")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    return Log(copy, **more)


def test_numbers_are_dense_and_survive_a_restart(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", [3, 1, 5])
    assert (log.first, log.next) == (0, 9)
    for again in (killed(tmp_path / "log"), log.close() or Log(tmp_path / "log")):
        assert again.id == log.id
        assert again.schema == SCHEMA
        assert everything(again) == list(range(9))
        assert again.append(rides(9, 2)) == (9, 2)
        again.close()


def test_a_log_of_many_files_reads_as_one(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", [50] * 40, LogOptions(seal_bytes=10_000, message_bytes=1_000))
    assert log.files() > 5
    assert everything(log) == list(range(2000))
    batches = [piece.batch for piece in log.read(333, 777, columns=["at", "id"])]
    assert batches[0].schema.names == ["_number", "at", "id"]
    assert ids(batches) == list(range(333, 777))
    assert everything(killed(tmp_path / "log")) == list(range(2000))


def test_small_entries_are_sealed_for_their_number(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", [1] * 25, LogOptions(seal_entries=10))
    assert (log.files(), len(log._entries)) == (2, 5)
    assert everything(log) == list(range(25))
    again = killed(tmp_path / "log", options=LogOptions(seal_entries=5))
    again.maintain()
    assert (again.files(), len(again._entries)) == (3, 0)
    assert everything(again) == list(range(25))


@pytest.mark.parametrize("rows", [1_000, 30_000], ids=["small", "large"])
def test_a_reader_holds_a_few_megabytes_at_a_time(tmp_path: Path, rows: int) -> None:
    """Also of wide rows, of which 65,536 are a whole file."""
    log = Log(tmp_path)
    for first in range(0, 30_000, rows):
        wide = pa.array(["x" * 512] * rows)
        log.append(rides(first, rows).set_column(2, "zone", wide))
    for sealed in (False, True):
        if sealed:
            log.seal()
        excerpt = log._excerpt(0, log.next)
        assert excerpt is not None
        batches = list(excerpt._batches(0, log.next))
        assert max(batch.nbytes for _, batch in batches) < 5 * 1024**2
        assert [first for first, _ in batches[1:]] == [
            first + batch.num_rows for first, batch in batches[:-1]
        ]
        assert ids([batch for _, batch in batches]) == list(range(30_000))


def test_tuples_by_number(tmp_path: Path) -> None:
    log = filled(tmp_path, [50] * 40, LogOptions(seal_bytes=10_000))
    log.append(rides(2000, 10))
    wanted = np.array([0, 1, 49, 50, 51, 777, 1999, 2005])
    assert ids(list(log.fetch(wanted, columns=["zone", "id"]))) == wanted.tolist()
    assert list(log.fetch(np.zeros(0, dtype=np.int64))) == []
    for wrong in ([3, 3], [3, 2], [-1, 2]):
        with pytest.raises(Refused, match="ascend"):
            log.fetch(np.array(wrong))
    with pytest.raises(SiteChangedError, match="tuple 2010 is not there"):
        log.fetch(np.array([1, 2010]))


def test_files_that_hold_none_of_the_numbers_are_not_opened(tmp_path: Path) -> None:
    log = filled(tmp_path, [50] * 40, LogOptions(seal_bytes=10_000))
    for path in sorted(tmp_path.glob("*.arrow"))[1:-1]:
        path.unlink()
    assert ids(list(log.fetch(np.array([3, 1999])))) == [3, 1999]
    with pytest.raises(SiteDataError, match="is damaged"):
        list(log.fetch(np.array([3, 777, 1999])))


def test_a_filter_leaves_no_gap_in_what_is_covered(tmp_path: Path) -> None:
    log = filled(tmp_path, [50] * 10, LogOptions(seal_bytes=10_000, message_bytes=500))
    where = Filter({"op": ">=", "left": {"column": "fare"}, "right": {"value": 200}}, SCHEMA)
    pieces = list(log.read(10, 490, columns=["id"], where=where))
    assert [piece.start for piece in pieces[1:]] == [piece.stop for piece in pieces[:-1]]
    assert (pieces[0].start, pieces[-1].stop) == (10, 490)
    expected = [number for number in range(400, 490) if number % 7 != 3]
    assert ids([piece.batch for piece in pieces]) == expected


def test_readers_while_tuples_come_and_go(tmp_path: Path) -> None:
    """Each reader gets exactly its range, or an error by name, whatever happens meanwhile."""
    clock = Clock()
    options = LogOptions(retain_bytes=60_000, seal_bytes=8_000, message_bytes=2_000)
    log = Log(tmp_path, options, clock=clock.wall, monotonic=clock.steady)
    ending = threading.Event()
    failures: list[object] = []
    complete = forgotten = 0

    def read() -> None:
        nonlocal complete, forgotten
        while not ending.is_set():
            start, stop = log.first, log.next
            try:
                if ids([piece.batch for piece in log.read(start, stop)]) != [*range(start, stop)]:
                    failures.append((start, stop))
                complete += 1
            except ForgottenError:
                forgotten += 1
            except BaseException as error:
                failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    while log.next < 6_000 or not complete:
        log.append(rides(log.next, 20))
        log.maintain()
    ending.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert log.first > 0
    assert not {path.name for path in tmp_path.glob("*.arrow")} - {
        segment.path.name for segment in log._segments
    }


# -- crashes and lost files -----------------------------------------------------------------------


def test_a_crash_at_any_step_of_sealing_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step of sealing that touches the disk is the last one that happens."""

    class Crash(BaseException):
        pass

    for step in ("fsync", "replace", "sync_folder", "put", "write"):
        folder = tmp_path / step
        log = filled(folder, [4, 4])
        log.append(rides(8, 2), source=f"{FILE}a", position=2, note="2 9")
        log.append(rides(10, 1), source=f"{WRITER}w", position=4)
        copy = tmp_path / f"{step}-crashed"

        def crash(*_: object, folder: Path = folder, copy: Path = copy, **__: object) -> None:
            # What the disk holds at this moment is what the next process finds.
            shutil.copytree(folder, copy)
            raise Crash

        target = {
            "fsync": "thetastream.transport.segments.os.fsync",
            "replace": "thetastream.transport.segments.os.replace",
            "sync_folder": "thetastream.transport.segments.sync_folder",
            "put": "thetastream.transport.log.put",
            "write": "thetastream.transport.catalogue.Mark.write",
        }[step]
        with monkeypatch.context() as patch:
            patch.setattr(target, crash)
            with pytest.raises(Crash):
                log.seal()
        again = Log(copy)
        assert again.id == log.id
        assert everything(again) == list(range(11))
        assert len(list(copy.glob("*.arrow"))) == again.files()
        assert not [path for path in copy.iterdir() if path.name.startswith(".")]
        assert again.append(rides(10, 1), source=f"{WRITER}w", position=4) == (10, 1)
        again.append(rides(11, 1))
        again.seal()
        last = killed(copy)
        assert everything(last) == list(range(12))
        assert last.source(f"{FILE}a") == log.source(f"{FILE}a")


def test_an_append_after_a_seal_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path / "log", [4], LogOptions(seal_bytes=2000))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("thetastream.transport.segments.os.fsync", full)
        while not log.problem:
            log.append(rides(log.next, 4))
    assert "No space" in log.problem
    log.append(rides(log.next, 4))
    assert everything(killed(tmp_path / "log")) == list(range(log.next))
    assert log.files() == 0
    log.maintain()
    assert (log.files(), log.problem) == (1, "")
    assert everything(log) == list(range(log.next))


def test_an_entry_is_acknowledged_whatever_sealing_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path / "log", [4], LogOptions(seal_entries=2))
    for error in (MemoryError(), ValueError("two\nlines"), pa.ArrowInvalid("no")):

        def fail(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr("thetastream.transport.log.Segment.write", fail)
            assert log.append(rides(log.next, 4))[1] == 4
        assert log.problem.startswith(f"entries cannot be sealed: {type(error).__name__}")
        assert "\n" not in log.problem
        log.maintain()
        assert log.problem == ""
        log.append(rides(log.next, 4))
    assert everything(killed(tmp_path / "log")) == list(range(28))


@pytest.mark.parametrize("lost", ["*.arrow", "*.db", "acknowledged"])
def test_lost_files_are_named(tmp_path: Path, lost: str) -> None:
    filled(tmp_path, [50] * 20, LogOptions(seal_bytes=10_000)).close()
    sorted(tmp_path.glob(lost))[0].unlink()
    with pytest.raises(SiteDataError, match=r"is not complete|is damaged"):
        Log(tmp_path)


def test_a_folder_of_another_release_is_not_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "journal-00000000000000000000").write_bytes(b"TSJOURN1")
    with pytest.raises(SiteDataError, match="acknowledged is missing"):
        Log(tmp_path)


def test_a_log_that_was_being_created_is_created_again(tmp_path: Path) -> None:
    """The process ends at each moment of creating the log."""
    log = Log(tmp_path / "log")
    (mark,) = (tmp_path / "log").glob("acknowledged")
    text = mark.read_bytes()
    log.close()
    database = tmp_path / "log" / "log.db"
    whole = database.read_bytes()
    for length in (None, 0, 100, len(whole) // 2, len(whole)):
        mark.write_bytes(Mark._text(log.id, 0, 0))
        database.unlink(missing_ok=True)
        if length is not None:
            database.write_bytes(whole[:length])
        again = Log(tmp_path / "log")
        assert mark.read_bytes() == text
        assert again.append(rides(0, 3)) == (0, 3)
        again.close()


def test_only_one_process_uses_a_log(tmp_path: Path) -> None:
    log = Log(tmp_path)
    with pytest.raises(SiteError, match="database is locked"):
        Log(tmp_path)
    log.append(rides(0, 1))


# -- retention ------------------------------------------------------------------------------------


def aging(folder: Path, clock: Clock, **options: Any) -> Log:
    return Log(folder, LogOptions(**options), clock=clock.wall, monotonic=clock.steady)


def test_whole_files_are_forgotten_and_numbers_go_on(tmp_path: Path) -> None:
    clock = Clock()
    log = aging(tmp_path / "log", clock, retain=10 * SECOND, seal_after=SECOND)
    for _ in range(5):
        log.append(rides(log.next, 10))
        clock.wait(SECOND)
        log.maintain()
    assert log.files() == 5
    reading = log.read(0, 50)
    next(reading)
    # Time alone makes nothing old: the newest tuple does.
    clock.wait(7 * SECOND + 1)
    log.maintain()
    assert log.first == 0
    log.append(rides(50, 1))
    log.maintain()
    assert (log.first, log.next, log.files()) == (20, 51, 3)
    with pytest.raises(ForgottenError, match="tuple 19 has been forgotten: 20 is the first"):
        log.read(19, 40)
    with pytest.raises(ForgottenError, match="have been forgotten"):
        list(reading)
    with pytest.raises(ForgottenError):
        log.fetch(np.array([5, 45]))
    assert everything(log) == list(range(20, 51))
    again = killed(tmp_path / "log")
    assert (again.first, again.next) == (20, 51)
    assert again.append(rides(51, 1))[0] == 51


def test_a_clock_that_jumps_ahead_costs_nobody_a_tuple_at_once(tmp_path: Path) -> None:
    clock = Clock()
    log = aging(tmp_path / "log", clock, retain=2 * HOUR, seal_after=HOUR // 10)
    for _ in range(20):
        log.append(rides(log.next, 10))
        clock.wait(HOUR // 10)
        log.maintain()
    before = log.first
    clock.jump(1000 * HOUR)
    for restarted in (False, True):
        if restarted:
            log.close()
            log = aging(tmp_path / "log", clock, retain=2 * HOUR, seal_after=HOUR // 10)
        log.append(rides(log.next, 10))
        log.maintain()
        assert log.first == before
    # Then at twice the speed: in half an hour what was an hour older.
    clock.wait(HOUR // 2)
    log.maintain()
    assert 90 <= log.first <= 110
    # The clock is set back; tuples are not taken in before those that are there.
    clock.jump(-2000 * HOUR)
    log.append(rides(log.next, 10))
    assert everything(log) == list(range(log.first, log.next))
    times = [entry.at for entry in log._entries]
    assert times == sorted(times)


def test_a_log_larger_than_its_size_forgets_the_oldest_files(tmp_path: Path) -> None:
    clock = Clock()
    log = aging(tmp_path, clock, retain_bytes=40_000, seal_bytes=8_000)
    for _ in range(100):
        log.append(rides(log.next, 20))
        log.maintain()
    files = sum(path.stat().st_size for path in tmp_path.glob("*.arrow"))
    assert 20_000 < files <= 40_000
    assert log.first > 0
    assert everything(log) == list(range(log.first, 2000))


def test_a_crash_while_forgetting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(tmp_path / "log", [50] * 20, LogOptions(seal_bytes=10_000, retain_bytes=1))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            log.maintain()
    again = killed(tmp_path / "log")
    assert (again.first, again.next) == (log.first, log.next)
    assert len(list((tmp_path / "log-killed").glob("*.arrow"))) == again.files()
    assert everything(again) == list(range(log.first, log.next))


def test_a_disk_without_room_takes_nothing_in(tmp_path: Path) -> None:
    log = filled(tmp_path, [4])
    log.append(rides(4, 2), source=f"{WRITER}w", position=1)
    log.close()
    log = Log(tmp_path, LogOptions(free_bytes=2**62, retain_bytes=1))
    with pytest.raises(SiteError, match="free, and") as error:
        log.append(rides(6, 1))
    assert "free_bytes" in error.value.hint
    # What is stored is acknowledged again, read, and forgotten.
    assert log.append(rides(4, 2), source=f"{WRITER}w", position=1) == (4, 2)
    assert everything(log) == list(range(6))
    log.seal()
    log.maintain()
    assert log.first == 6


# -- sources --------------------------------------------------------------------------------------


def test_a_batch_that_comes_again_is_not_stored_again(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    a, b = f"{WRITER}a", f"{WRITER}b"
    assert log.append(rides(0, 3), source=a, position=0) == (0, 3)
    assert log.append(rides(0, 3), source=a, position=0) == (0, 3)
    assert log.append(rides(3, 2), source=b, position=0) == (3, 2)
    assert log.append(rides(5, 2), source=a, position=1) == (5, 2)
    for restarted in (False, True):
        if restarted:
            log.seal()
            log = killed(tmp_path / "log")
        assert log.append(rides(5, 2), source=a, position=1) == (5, 2)
        with pytest.raises(Refused, match="writer a: 0 comes after 1"):
            log.append(rides(0, 3), source=a, position=0)
        for other in (rides(0, 3), rides(6, 2)):
            with pytest.raises(Refused, match="writer a: 1 came before with other rows"):
                log.append(other, source=a, position=1)
    assert everything(log) == list(range(7))


def test_writers_are_remembered_for_a_week(tmp_path: Path) -> None:
    clock = Clock()
    log = aging(tmp_path / "log", clock)
    log.append(rides(0, 1), source=f"{WRITER}a", position=7)
    clock.wait(REMEMBER - HOUR)
    log.append(rides(1, 1), source=f"{WRITER}b", position=1)
    log.maintain()
    assert log.append(rides(0, 1), source=f"{WRITER}a", position=7) == (0, 1)
    clock.wait(3 * HOUR)
    log.append(rides(2, 1), source=f"{WRITER}b", position=2)
    log.maintain()
    assert log.source(f"{WRITER}a") is None
    assert log.source(f"{WRITER}b") is not None
    assert log.positions(WRITER) == {"b": 2}
    again = killed(tmp_path / "log")
    assert again.positions(WRITER) == {"b": 2}


def test_only_so_many_writers_are_remembered(tmp_path: Path) -> None:
    clock = Clock()
    log = aging(tmp_path, clock, writers=3)
    for number in range(3):
        log.append(rides(number, 1), source=f"{WRITER}{number}", position=1)
    with pytest.raises(Refused, match="3 writers have pushed") as error:
        log.append(rides(3, 1), source=f"{WRITER}new", position=1)
    assert "SiteClient" in error.value.hint
    # Those that are remembered go on, and a week later there is room.
    assert log.append(rides(2, 1), source=f"{WRITER}2", position=1) == (2, 1)
    clock.wait(REMEMBER + 2 * HOUR)
    log.append(rides(3, 1), source=f"{WRITER}2", position=2)
    log.maintain()
    assert log.append(rides(4, 1), source=f"{WRITER}new", position=1) == (4, 1)
    assert everything(log) == list(range(5))


def test_positions_are_stored_with_their_rows(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    log.append(rides(0, 0), source=f"{TOPIC}t/0", position=5)
    log.append(rides(0, 0), source=f"{TOPIC}t/1", position=0)
    log.append(rides(0, 3), source=f"{TOPIC}t/0", position=8)
    log.append(rides(3, 0), source=f"{TOPIC}t/0", position=9)
    for restarted in (False, True):
        if restarted:
            log.seal()
            log = killed(tmp_path / "log")
        assert log.positions(TOPIC) == {"t/0": 9, "t/1": 0}
        assert everything(log) == [0, 1, 2]
        with pytest.raises(Refused, match="8 comes after 9"):
            log.append(rides(4, 1), source=f"{TOPIC}t/0", position=8)


def test_names_that_are_no_text(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    names = ["\ud800", "a\0b", "ä" * 500, "file\udcff"]
    for number, name in enumerate(names):
        log.append(rides(number, 1), source=f"{FILE}{name}", position=1)
    assert set(killed(tmp_path / "log").positions(FILE)) == set(names)


def test_files_are_the_owners_only(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", [50] * 20, LogOptions(seal_bytes=10_000))
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o700
    names = {path.suffix for path in (tmp_path / "log").iterdir()}
    assert names == {"", ".arrow", ".db", ".db-wal"}
    for path in (tmp_path / "log").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    log.close()


def test_columns_that_no_stream_can_have(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for batch, word in (
        (pa.record_batch({"_number": [1]}), "_number"),
        (pa.record_batch({"a": pa.array(["x"]).dictionary_encode()}), "dictionary"),
        (pa.RecordBatch.from_arrays([pa.array([1]), pa.array([1])], ["a", "a"]), "two columns"),
        (pa.record_batch({"a": pa.nulls(1)}), "null"),
    ):
        with pytest.raises(Refused, match=word):
            log.append(batch)
    assert (log.next, log.schema) == (0, None)


@examples(60)
@given(data=st.data())
def test_tuples_by_number_from_any_places(data: st.DataObject, tmp_path_factory: Any) -> None:
    """Numbers may lie in entries and files that are not neighbours."""
    counts = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=12))
    options = LogOptions(seal_bytes=data.draw(st.sampled_from([500, 2_000, 10**9])))
    log = filled(tmp_path_factory.mktemp("log") / "log", counts, options)
    wanted = sorted(data.draw(st.sets(st.integers(0, log.next - 1), min_size=1)))
    batches = list(log.fetch(np.array(wanted, dtype=np.int64)))
    assert [number for batch in batches for number in batch.column(0).to_pylist()] == wanted
    assert ids(batches) == wanted
    log.close()
