"""Damage anywhere on a site's disk: exactly what was acknowledged, or an error by name."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.examples import SHARE
from tests.transport.tuples import ids, rides
from thetastream.errors import SiteChangedError, SiteDataError
from thetastream.transport.addresses import Address
from thetastream.transport.config import SiteConfig, StreamConfig
from thetastream.transport.site import Site

PUSHES = 12
ROWS = 40
TOTAL = PUSHES * ROWS


def opened(folder: Path) -> Site:
    streams = {"rides": StreamConfig("rides", "at")}
    return Site(SiteConfig(folder, Address("127.0.0.1", 0), streams))


def push(site: Site, sequence: int) -> tuple[int, int]:
    batch = rides(sequence * ROWS, ROWS)
    return site.push("rides", batch, crc=None, writer="w", sequence=sequence)


def stored(site: Site) -> list[int]:
    log = site.logs["rides"]
    return ids([piece.batch for piece in log.read(log.first, log.next)])


@pytest.fixture(scope="module", params=["killed", "closed", "between"])
def acknowledged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a site that has acknowledged pushes, two files of them sealed.

    Its process was killed, or it was closed, or it was closed, served again and then killed.
    """
    folder = tmp_path_factory.mktemp("site")
    site = opened(folder / "live")
    for sequence in range(PUSHES):
        push(site, sequence)
        if sequence in (3, 6):
            site.logs["rides"].seal()
        if sequence == 9 and request.param == "between":
            site.close()
            site = opened(folder / "live")
    if request.param == "closed":
        site.close()
    shutil.copytree(folder / "live", folder / "site")
    if request.param != "closed":
        site.close()
    return folder / "site"


def flip(data: bytearray, place: int) -> None:
    data[place] ^= 1 << place % 8


def blank(data: bytearray, place: int) -> None:
    data[place : place + 512] = bytes(len(data[place : place + 512]))


def cut(data: bytearray, place: int) -> None:
    del data[place:]


def damages(folder: Path, count: int, seed: int) -> Iterator[tuple[Path, str, int, bytearray]]:
    """A file, and what it holds after some damage."""
    dice = random.Random(seed)
    paths = sorted(path for path in (folder / "rides").iterdir() if path.stat().st_size)
    kinds: list[Callable[[bytearray, int], None]] = [flip, flip, blank, cut]
    for number in range(count):
        path, kind = paths[number % len(paths)], dice.choice(kinds)
        whole = path.read_bytes()
        data = bytearray(whole)
        # Most often where the structure is: at the beginning of a page or of a file.
        place = dice.randrange(len(data))
        if dice.random() < 0.3:
            place = min(place // 4096 * 4096 + dice.randrange(120), len(data) - 1)
        kind(data, place)
        if data != whole:
            yield path.relative_to(folder), kind.__name__, place, data


def content(folder: Path) -> dict[str, bytes]:
    """The bytes of all files of the stream that have any."""
    paths = (folder / "rides").iterdir()
    return {path.name: path.read_bytes() for path in paths if path.stat().st_size}


def judge(original: Path, work: Path, path: Path, data: bytearray, case: object) -> bool:
    """Whether the damage is refused; if it is not, everything is there."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(original, work)
    (work / path).write_bytes(data)
    before = content(work)
    try:
        site = opened(work)
    except SiteDataError:
        # What is refused is left as it is.
        assert content(work) == before, case
        return True
    with closing(site):
        try:
            assert stored(site) == list(range(TOTAL)), case
        except SiteDataError:
            return True
        # Also what is known of writers.
        assert push(site, PUSHES - 1) == (TOTAL - ROWS, ROWS), case
        assert push(site, PUSHES) == (TOTAL, ROWS), case
    return False


def check(original: Path, work: Path, count: int, seed: int) -> int:
    """How many damages are refused."""
    return sum(
        judge(original, work, path, data, (path.name, kind, place))
        for path, kind, place, data in damages(original, count, seed)
    )


def test_damage_is_named_or_harmless(acknowledged: Path, tmp_path: Path) -> None:
    assert check(acknowledged, tmp_path / "work", 3 * SHARE, seed=1) > SHARE


def test_damage_to_the_head_of_the_database(acknowledged: Path, tmp_path: Path) -> None:
    """SQLite itself would take some of these for a database that can only be read."""
    (path,) = (acknowledged / "rides").glob("*.db")
    whole = path.read_bytes()
    for place in range(min(100, len(whole))):
        data = bytearray(whole)
        data[place] ^= 0xFF
        judge(acknowledged, tmp_path / "work", path.relative_to(acknowledged), data, place)


@pytest.mark.chaos
def test_damage_anywhere(acknowledged: Path, tmp_path: Path) -> None:
    for seed in range(100, 110):
        check(acknowledged, tmp_path / "work", 1_000, seed)


def test_a_stream_whose_folder_is_moved_away_begins_another_epoch(
    acknowledged: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    shutil.copytree(acknowledged, work)
    with closing(opened(work)) as site:
        id = site.logs["rides"].id
    (work / "rides").rename(tmp_path / "damaged")
    with closing(opened(work)) as site:
        assert site.logs["rides"].next == 0
        with pytest.raises(SiteChangedError, match="set up anew"):
            site.log("rides", id)
