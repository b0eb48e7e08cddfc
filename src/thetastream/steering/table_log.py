"""The versions of a query's routing tables: a log in which every entry is created once.

    tables/CONTROL-00000007.json.gz        version 7; never changed
    batches/CONTROL-00000000000000000041   the version by which batch 41 is routed; never changed

A version is published by creating its file, which fails if there is one. So a publisher that was
paused, or a second one, cannot overwrite anything: it loses, and reads again. The first task of a
batch that needs a table fixes the newest version for that batch, in the same way, so that all of
its tasks, and tasks that run again, route alike. No clock and no lock is involved.
"""

from __future__ import annotations

import re
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace

from thetastream.errors import ControlError
from thetastream.spec import JoinTree
from thetastream.steering.files import Files
from thetastream.steering.version import DamagedControlError, Version

KEPT_VERSIONS = 256
"""Tables that stay in the directory: those in use, and the history that people look at."""
KEPT_BATCHES = 100
"""Batches, at least, whose versions stay: a checkpoint that is put back may run them again."""
KEPT_TABLES = 16
"""Versions that a process keeps in memory."""
LARGEST = 64 * 1024**2
"""Bytes of a table, at most: more than any that was written here."""
_GZIP = 31
"""zlib's window bits for the format of gzip."""


class OvertakenError(ControlError):
    """Another process has published a version with this number."""


class TableLog:
    """The versions for one control id; `where` names the directory in messages."""

    def __init__(self, files: Files, control: str, where: str) -> None:
        self.control = control
        self.where = where
        self._files = files
        self._read_tables: OrderedDict[int, Version] = OrderedDict()
        self._name = re.compile(rf"{re.escape(control)}-(\d{{8,18}})\.json\.gz", re.ASCII)

    # -- reading ----------------------------------------------------------------------------------

    def newest(self) -> int:
        """Return the number of the newest version."""
        numbers = self._numbers()
        if not numbers:
            raise ControlError(
                f"the control directory {self.where} has no routing table",
                hint="put the directory back as it was; without it, start with a new checkpoint"
                " location and a new control directory",
            )
        return numbers[-1]

    def current(self) -> Version:
        """Return the newest version."""
        return self.version(self.newest())

    def version(self, number: int) -> Version:
        """Return a version, as it was written."""
        if number not in self._read_tables:
            self._read_tables[number] = self._read(number)
            while len(self._read_tables) > KEPT_TABLES:
                self._read_tables.popitem(last=False)
        return self._read_tables[number]

    def history(self) -> Iterator[Version]:
        """Yield the versions that are kept and can be read, oldest first."""
        for number in self._numbers():
            try:
                yield self._read(number)
            except ControlError:
                continue

    def of_batch(self, batch: int) -> int:
        """Return the number of the version by which a batch is routed; the first call fixes it."""
        pinned = self._pinned(batch)
        if pinned is None:
            number = self._newest_after(self._pinned(batch - 1) or 0)
            self._files.create(self._batch_name(batch), f"{number}\n".encode())
            if batch % KEPT_BATCHES == 0:
                self._prune_batches(batch)
            pinned = self._pinned(batch)
        if pinned is None:
            raise self._refused(self._batch_name(batch), "it has vanished")
        return self._sound(pinned)

    def _pinned(self, batch: int) -> int | None:
        name = self._batch_name(batch)
        data = self._files.read(name)
        try:
            return None if data is None else int(data)
        except ValueError:
            raise self._refused(name, "it is not the number of a version") from None

    def _newest_after(self, number: int) -> int:
        """Return the newest version, and never an older one than the given one.

        Some file systems list a folder as it was a while ago: what they leave out is asked for.
        """
        newest = max(self.newest(), number)
        while self._files.read(self._table_name(newest + 1)) is not None:
            newest += 1
        return newest

    def _sound(self, number: int) -> int:
        """Return the number, or that of the version in the place of a damaged one."""
        try:
            self.version(number)
        except DamagedControlError:
            if number >= self.newest():
                raise
            return self._sound(number + 1)
        return number

    # -- publishing -------------------------------------------------------------------------------

    def begin(self, first: Version) -> None:
        """Publish the first version, unless there is one."""
        self._files.create(self._table_name(0), _packed(first))

    def publish(self, version: Version) -> None:
        """Publish a version; raises OvertakenError if another process was faster."""
        name, data = self._table_name(version.version), _packed(version)
        if version.version != self.newest() + 1:
            raise self._overtaken(version.version)
        # If only the answer was lost, the file is ours all the same.
        if not self._files.create(name, data) and self._files.read(name) != data:
            raise self._overtaken(version.version)
        newest = max(version.version, self.newest())
        self._prune(newest)
        if version.version <= newest - KEPT_VERSIONS:
            # After a very long pause its number was free again: the file is pruned with the rest.
            raise self._overtaken(version.version)

    def recover(self, tree: JoinTree, at: float) -> ControlError | None:
        """Publish the last version that is sound once more if a damaged one follows it.

        Returns why that one is refused; None if nothing was wrong. Units that have routed by the
        damaged version refuse the new one, so that nothing is lost.
        """
        newest = self.newest()
        try:
            self.checked(newest, tree)
        except DamagedControlError as error:
            if newest == 0:
                raise
            sound = self.checked(newest - 1, tree)
            again = replace(sound, version=newest + 1, previous=sound.digest, at=at)
            self.publish(again.lived())
            return error
        return None

    def checked(self, number: int, tree: JoinTree) -> Version:
        """Return a version that fits the joins."""
        version = self.version(number)
        if version.control != self.control:
            raise ControlError(
                f"version {number} of the routing table belongs to another control directory",
                detail=f"  it is of {version.control}; this one is {self.control}",
                hint="put back the control directory as it was",
            )
        version.validate(tree, f"version {number}")
        return version

    # -- files ------------------------------------------------------------------------------------

    def _numbers(self) -> list[int]:
        matches = map(self._name.fullmatch, self._files.names("tables"))
        return sorted(int(match[1]) for match in matches if match is not None)

    def _read(self, number: int) -> Version:
        name = self._table_name(number)
        data = self._files.read(name)
        if data is None:
            raise ControlError(
                f"the control directory {self.where} has no {name}", hint="put the file back"
            )
        version = Version.from_text(self._unpacked(name, data), f"{self.where}/{name}")
        if version.version != number:
            raise self._refused(name, f"it is version {version.version}")
        return version

    def _unpacked(self, name: str, data: bytes) -> str:
        try:
            unpacking = zlib.decompressobj(wbits=_GZIP)
            text = unpacking.decompress(data, LARGEST)
            if not unpacking.eof or unpacking.unused_data:
                raise ValueError("it is not a complete file of gzip")
            return text.decode()
        except (zlib.error, ValueError) as error:
            raise self._refused(name, str(error)) from error

    def _prune(self, newest: int) -> None:
        for number in self._numbers():
            if number <= newest - KEPT_VERSIONS:
                self._files.remove(self._table_name(number))

    def _prune_batches(self, batch: int) -> None:
        prefix, oldest = f"{self.control}-", self._batch_name(batch - KEPT_BATCHES)
        for name in self._files.names("batches"):
            if name.startswith(prefix) and f"batches/{name}" < oldest:
                self._files.remove(f"batches/{name}")

    def _table_name(self, number: int) -> str:
        return f"tables/{self.control}-{number:08d}.json.gz"

    def _batch_name(self, batch: int) -> str:
        return f"batches/{self.control}-{batch:020d}"

    def _overtaken(self, number: int) -> OvertakenError:
        return OvertakenError(
            f"another process has published version {number} of the routing table",
            hint="only the process that runs the query publishes; a second one reads again",
        )

    def _refused(self, name: str, why: str) -> DamagedControlError:
        return DamagedControlError(
            f"a file of the control directory is refused: {self.where}/{name}",
            detail=f"  {why}",
            hint="put back the file as it was written",
        )


def _packed(version: Version) -> bytes:
    packing = zlib.compressobj(wbits=_GZIP)
    return packing.compress(version.to_text().encode()) + packing.flush()
