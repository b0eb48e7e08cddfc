"""A site on a disk that is full, in a process of its own: `python -m tests.transport.limited`.

    limited FOLDER full STEP     files cannot grow beyond a size; later they can
    limited FOLDER kill STEP     the write that would make a file larger ends the process

Each size is tried, in steps of so many bytes. Prints how many sizes hindered anything.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from tests.transport.tuples import ids, rides
from thetastream.errors import SiteError
from thetastream.transport.addresses import Address
from thetastream.transport.config import SiteConfig, StreamConfig
from thetastream.transport.site import Site

ROUNDS = 5
ROWS = 60
STREAMS = ("a", "b")


def config_in(folder: Path) -> SiteConfig:
    streams = {name: StreamConfig(name, "at") for name in STREAMS}
    return SiteConfig(folder / "site", Address("127.0.0.1", 0), streams)


def push_all(site: Site, done: dict[str, int]) -> Iterator[str]:
    """Push what is not acknowledged yet; yields a stream's name with each acknowledgement.

    A stream whose push fails has to wait, and the others go on.
    """
    stopped = set()
    for sequence in range(ROUNDS):
        for name in STREAMS:
            if done[name] != sequence or name in stopped:
                continue
            try:
                first, rows = site.push(
                    name, rides(sequence * ROWS, ROWS), crc=None, writer="w", sequence=sequence
                )
            except SiteError:
                stopped.add(name)
                continue
            assert (first, rows) == (sequence * ROWS, ROWS), (name, first)
            done[name] += 1
            yield name
        if sequence == ROUNDS // 2:
            with suppress(OSError, SiteError):
                site.logs["a"].seal()


def stored(site: Site, name: str) -> list[int]:
    log = site.logs[name]
    return ids([piece.batch for piece in log.read(0, log.next)])


def limit(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def full(folder: Path, size: int) -> bool:
    """Whether anything failed because files could not be larger than this."""
    config = config_in(folder)
    done = dict.fromkeys(STREAMS, 0)
    limit(size)
    with suppress(OSError, SiteError):
        Site(config).close()
    limit(resource.RLIM_INFINITY)
    site = Site(config)
    limit(size)
    list(push_all(site, done))
    failed = min(done.values()) < ROUNDS
    for name, count in done.items():
        assert stored(site, name) == list(range(count * ROWS)), (size, name)
    limit(resource.RLIM_INFINITY)
    # There is room again.
    list(push_all(site, done))
    assert set(done.values()) == {ROUNDS}, (size, done)
    shutil.copytree(folder, folder.with_name("killed"))
    site.close()
    for place in (folder, folder.with_name("killed")):
        with closing(Site(config_in(place))) as again:
            for name in STREAMS:
                assert stored(again, name) == list(range(ROUNDS * ROWS)), (size, name)
    return failed


def kill(folder: Path, size: int) -> bool:
    """Whether the process ended because a file would have become larger than this."""
    config = config_in(folder)
    Site(config).close()
    end, start = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        limit(size)
        site = Site(config)
        for name in push_all(site, dict.fromkeys(STREAMS, 0)):
            os.write(start, name.encode())
        os._exit(0)
    os.close(start)
    with os.fdopen(end) as answers:
        acknowledged = answers.read()
    _, status = os.waitpid(child, 0)
    with closing(Site(config)) as site:
        for name in STREAMS:
            count = acknowledged.count(name) * ROWS
            rows = stored(site, name)
            # One push may have been stored that was not acknowledged.
            assert rows in (list(range(count)), list(range(count + ROWS))), (size, name)
        done = {name: acknowledged.count(name) for name in STREAMS}
        list(push_all(site, done))
        for name in STREAMS:
            assert stored(site, name) == list(range(ROUNDS * ROWS)), (size, name)
    assert status in (0, int(signal.SIGXFSZ)), status
    return status != 0


def main(folder: Path, mode: str, step: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    hindered = 0
    size = step
    while True:
        place = folder / "place" / "now"
        place.mkdir(parents=True)
        was_hindered = (full if mode == "full" else kill)(place, size)
        shutil.rmtree(folder / "place")
        if not was_hindered:
            break
        hindered += 1
        size += step
    print(hindered)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
