"""The caches of a worker: bounded, nobody else's, and free of what is no longer used."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from thetastream.errors import SettingError
from thetastream.index.footprint import footprint
from thetastream.index.part import Part
from thetastream.runtime import cache, cachefiles
from thetastream.runtime.cache import Caches, PartCache
from thetastream.runtime.cachefiles import cache_root
from thetastream.spec import SortOrder

PART = 1000
OVERHEAD = 64
FILE = PART + OVERHEAD


class Blob:
    """A part of nothing but bytes."""

    pairs = 0
    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.bytes = np.frombuffer(data, dtype=np.uint8).copy()

    def __len__(self) -> int:
        return 1

    @property
    def nbytes(self) -> int:
        return len(self.data)

    def to_bytes(self, *, compress: bool = False) -> pa.Buffer:
        return pa.py_buffer(self.data)


class BlobDecoder:
    """Reads parts of nothing but bytes."""

    what = "blobs"

    def decode(self, data: pa.Buffer | bytes) -> Blob:
        return Blob(bytes(data))


DECODER = BlobDecoder()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def caches() -> Iterator[Caches]:
    made = Caches()
    yield made
    made.clear()


def blob(number: int) -> Blob:
    return Blob(bytes([number % 256]) * PART)


def names(token: str) -> set[str]:
    folder = cache_root() / token
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def size(token: str) -> int:
    return sum(path.stat().st_size for path in (cache_root() / token).iterdir())


def age(token: str, name: str, seconds: float) -> None:
    """As if the file had not been used for so long."""
    then = time.time() - seconds
    os.utime(cache_root() / token / name, (then, then))


def fresh(caches: Caches, token: str, limit: int) -> PartCache:
    """The cache as a worker process that has just been started sees it."""
    caches.clear()
    return caches.of(token, limit)


def test_the_least_recently_used_files_make_room(caches: Caches) -> None:
    limit = 8 * FILE
    kept = caches.of("aa", limit)
    for number in range(8):
        kept.put(f"{number}", blob(number))
        age("aa", f"{number}", 100 - number)
    assert names("aa") == set("01234567")
    kept = fresh(caches, "aa", limit)
    found = kept.get("0", DECODER)
    assert isinstance(found, Blob)
    assert found.data == blob(0).data
    kept.put("8", blob(8))
    assert {"0", "8", "7"} <= names("aa"), "what was used last is still there"
    assert not {"1", "2"} & names("aa")
    assert size("aa") <= limit


def test_the_limit_holds_whatever_is_put(caches: Caches) -> None:
    limit = 10 * FILE
    kept = caches.of("aa", limit)
    for number in range(100):
        kept.put(f"{number:x}", blob(number))
        assert size("aa") <= limit
        assert f"{number:x}" in names("aa")
    kept.put("ffff", Blob(b"x" * (limit + 1)))
    assert "ffff" not in names("aa")
    found = kept.get("ffff", DECODER)
    assert isinstance(found, Blob)
    assert len(found.data) == limit + 1


def test_several_workers_share_the_limit() -> None:
    limit = 32 * FILE
    workers = [Caches() for _ in range(3)]
    for number in range(300):
        workers[number % 3].of("aa", limit).put(f"{number:x}", blob(number))
        # Each worker may have written what the others have not seen yet.
        assert size("aa") <= limit + 3 * (limit // cachefiles.LOOK_SHARE + FILE)
    for worker in workers:
        worker.clear()


def test_looking_is_rare(caches: Caches, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    scandir = os.scandir

    def counted(path: str) -> object:
        nonlocal looks
        looks += 1
        return scandir(path)

    kept = caches.of("aa", 1 << 30)
    monkeypatch.setattr(os, "scandir", counted)
    for number in range(1000):
        kept.put(f"{number:x}", blob(number))
    assert looks <= 4


def test_files_of_failed_attempts_go_when_nobody_uses_them(caches: Caches) -> None:
    kept = caches.of("aa", 1 << 30)
    kept.put("1", blob(1))
    kept.put("2", blob(2))
    (cache_root() / "aa" / ".unfinished").write_bytes(b"half of it")
    for name in ("1", ".unfinished"):
        age("aa", name, cachefiles.UNUSED_SECONDS + 10)
    kept = fresh(caches, "aa", 1 << 30)
    kept.put("3", blob(3))
    assert names("aa") == {"2", "3"}


def test_a_part_in_memory_counts_as_used(caches: Caches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "TOUCH_SECONDS", -1)
    kept = caches.of("aa", 1 << 30)
    kept.put("1", blob(1))
    age("aa", "1", 10_000)
    assert kept.get("1", DECODER) is not None
    fresh(caches, "aa", 1 << 30).put("2", blob(2))
    assert names("aa") == {"1", "2"}


def test_joins_that_nobody_serves_make_room_and_those_that_are_served_do_not() -> None:
    limit = 8 * FILE
    served, gone, mine = Caches(), Caches(), Caches()
    for number in range(8):
        served.of("aa", limit).put(f"{number}", blob(number))
        gone.of("bb", limit).put(f"{number}", blob(number))
        age("aa", f"{number}", 100)
        age("bb", f"{number}", 50)
    gone.clear()
    mine.of("cc", limit).put("1", blob(1))
    assert names("aa") == set("01234567")
    assert len(names("bb")) <= 6
    assert names("cc") == {"1"}
    served.clear()
    mine.clear()


def test_a_folder_of_long_ago_is_removed_unless_it_is_served(caches: Caches) -> None:
    other = Caches()
    long_ago = time.time() - 2 * cachefiles.UNUSED_SECONDS
    for token in ("aa", "bb"):
        other.of(token, 1 << 30).put("1", blob(1))
        os.utime(cache_root() / token, (long_ago, long_ago))
    caches.of("cc", 1 << 30).put("1", blob(1))
    assert {path.name for path in cache_root().iterdir()} == {"aa", "bb", "cc"}
    other.clear()
    fresh(caches, "cc", 1 << 30).put("2", blob(2))
    assert {path.name for path in cache_root().iterdir()} == {"cc"}


def test_a_worker_that_was_killed_serves_nothing(tmp_path: Path, caches: Caches) -> None:
    """Its lock goes with it, whatever it was doing."""
    program = (
        "import os, signal, tempfile, pyarrow as pa\n"
        "from thetastream.runtime.cachefiles import CacheFiles\n"
        f"tempfile.tempdir = {str(tmp_path)!r}\n"
        "CacheFiles('aa', 1 << 30).write('1', pa.py_buffer(b'x' * 1000))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=False)
    assert names("aa") == {"1"}
    caches.of("bb", FILE + 10).put("1", blob(1))
    assert names("aa") == set()
    assert names("bb") == {"1"}


def test_a_worker_forgets_joins_that_it_no_longer_serves(caches: Caches) -> None:
    for number in range(cache.SERVED_JOINS + 3):
        caches.of(f"{number:x}", 0).put("1", blob(number))
    assert len(caches._joins) == cache.SERVED_JOINS
    assert len(caches._opened._entries) == cache.SERVED_JOINS
    assert caches._opened.bytes == cache.SERVED_JOINS * PART
    assert caches.of("0", 0).get("1", DECODER) is None
    assert caches.of(f"{cache.SERVED_JOINS + 2:x}", 0).get("1", DECODER) is not None


def test_a_worker_forgets_a_join_that_has_been_idle(
    caches: Caches, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = caches.of("aa", 0)
    idle.put("1", blob(1))
    idle.served -= cache.IDLE_SECONDS + 1
    caches.of("bb", 0)
    assert list(caches._joins) == ["bb"]
    assert caches._opened.bytes == 0
    idle.put("1", blob(1))
    assert idle.get("1", DECODER) is not None, "it works on where somebody still holds it"


def test_a_worker_bounds_the_bytes_of_all_joins_together() -> None:
    caches = Caches(limit=10 * PART)
    for number in range(50):
        caches.of(f"{number % 2:x}", 0).put(f"{number:x}", blob(number))
        assert caches._opened.bytes <= 10 * PART
    assert caches.of("1", 0).get(f"{49:x}", DECODER) is not None
    assert len(caches._opened._entries) == 10


def sorted_part(seed: int, rows: int = 500) -> Part:
    """A part that can be searched by an equality key and a range."""
    rng = np.random.default_rng(seed)
    keys = np.sort(rng.integers(0, 50, rows)), rng.integers(0, 1000, rows)
    columns = {"c0": pa.array(keys[0]), "c1": pa.array([f"text {seed}"] * rows)}
    return Part(pa.RecordBatch.from_pydict(columns), keys, SortOrder(0, 1))


def test_a_worker_bounds_the_bytes_of_wide_parts() -> None:
    """Few rows, much memory: sixty parts of 12 KB in a cache for ten."""
    size = 12_000
    caches = Caches(limit=10 * size)
    kept = caches.of("aa", 0)
    for number in range(60):
        column = pa.array([b"x" * (size - 100)])
        part = Part(pa.RecordBatch.from_arrays([column], ["c0"]), (), SortOrder(None, None))
        kept.put(f"{number:x}", part)
    held = [entry.part for entry in caches._opened._entries.values()]
    assert len(held) <= 10
    assert sum(part.nbytes for part in held) <= 10 * size
    assert kept.get(f"{59:x}", DECODER) is not None, "what was used last stays"


def test_what_is_worked_out_from_a_part_counts_as_well() -> None:
    alone = footprint(sorted_part(0))
    caches = Caches(limit=25 * alone)
    kept = caches.of("aa", 0)
    for number in range(20):
        kept.put(f"{number:x}", sorted_part(number))
    assert caches._opened.bytes == pytest.approx(20 * alone, rel=0.1)
    for number in reversed(range(10, 20)):
        part = kept.get(f"{number:x}", DECODER)
        assert isinstance(part, Part)
        # What probes leave behind: search positions, and the same tuples in another order.
        assert len(part.positions) == len(part)
        assert len(part.ordered(SortOrder(None, 1))) == len(part)
    kept.get("ff", DECODER)
    held = [entry.part for entry in caches._opened._entries.values()]
    assert caches._opened.bytes == sum(map(footprint, held))
    assert caches._opened.bytes <= 25 * alone
    assert 10 <= len(held) < 20, "the first ones made room for what the others have grown by"


def test_a_slice_does_not_keep_its_run_in_memory() -> None:
    caches = Caches(limit=1 << 20)
    kept = caches.of("aa", 0)
    before = pa.total_allocated_bytes()
    run = sorted_part(1, rows=200_000)
    expected = run.batch.slice(1000, 1000).to_pylist()
    for number in range(200):
        piece = run.slice(number * 1000, number * 1000 + 1000)
        kept.put(f"{number:x}", Part(piece.batch, piece.keys, run.order))
    whole = footprint(run)
    del run, piece
    held = [entry.part for entry in caches._opened._entries.values()]
    assert len(held) > 1
    assert pa.total_allocated_bytes() - before < whole / 2
    assert sum(map(footprint, held)) == caches._opened.bytes <= 1 << 20
    piece = sorted_part(1, rows=200_000).slice(1000, 2000)
    copied = Part(piece.batch, piece.keys, SortOrder(0, 1)).detached()
    assert copied.batch.to_pylist() == expected
    assert [key.tolist() for key in copied.keys] == [key.tolist() for key in piece.keys]


def test_a_part_that_is_put_again_counts_once(caches: Caches) -> None:
    kept = caches.of("aa", 1 << 20)
    for _ in range(3):
        kept.put("1", blob(1))
    assert caches._opened.bytes == PART
    kept.drop("1")
    assert caches._opened.bytes == 0
    assert names("aa") == set()


def test_a_folder_that_was_removed_is_made_again(caches: Caches) -> None:
    kept = caches.of("aa", 1 << 30)
    kept.put("1", blob(1))
    for path in cache_root().glob("*/*"):
        path.unlink()
    (cache_root() / "aa").rmdir()
    kept.put("2", blob(2))
    assert names("aa") == {"2"}


def test_everything_is_the_owners_alone(caches: Caches) -> None:
    kept = caches.of("aa", 1 << 30)
    kept.put("1", blob(1))
    for path in (cache_root(), *cache_root().rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


@pytest.mark.parametrize("kind", ["link", "file", "open"])
def test_a_planted_root_is_refused(kind: str, folder: Path, caches: Caches) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / "mine").mkdir()
    root = folder / f"thetastream-{os.getuid()}"
    if kind == "link":
        root.symlink_to(elsewhere)
    elif kind == "file":
        root.write_text("")
    else:
        root.mkdir()
        root.chmod(0o755)
    long_ago = time.time() - 2 * cachefiles.UNUSED_SECONDS
    os.utime(elsewhere / "mine", (long_ago, long_ago))
    kept = caches.of("aa", 1 << 30)
    with pytest.raises(SettingError, match="is not a folder of this user alone"):
        kept.put("1", blob(1))
    with pytest.raises(SettingError):
        kept.get("2", DECODER)
    assert [path.name for path in elsewhere.iterdir()] == ["mine"]


def test_a_link_among_the_files_is_not_followed(caches: Caches, folder: Path) -> None:
    kept = caches.of("aa", 1 << 30)
    kept.put("1", blob(1))
    copy = folder / "copy"
    copy.write_bytes((cache_root() / "aa" / "1").read_bytes())
    (cache_root() / "aa" / "1").unlink()
    (cache_root() / "aa" / "1").symlink_to(copy)
    kept = fresh(caches, "aa", 1 << 30)
    assert kept.get("1", DECODER) is None
    kept.put("1", blob(1))
    assert not (cache_root() / "aa" / "1").is_symlink()


def test_a_name_that_is_no_part_id_is_refused(caches: Caches) -> None:
    kept = caches.of("aa", 1 << 30)
    with pytest.raises(ValueError, match="not a part id"):
        kept.put("../1", blob(1))
    with pytest.raises(ValueError, match="not a part id"):
        kept.get("/etc/passwd", DECODER)


def test_a_full_disk_costs_nothing_but_time(
    caches: Caches, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = caches.of("aa", 1 << 30)
    kept.put("1", blob(1))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    kept.put("2", blob(2))
    assert names("aa") == {"1"}, "nothing unfinished is left"
    assert kept.get("2", DECODER) is not None
