"""The names of files that a log has wholly taken in, a line each with its checksum."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from thetastream.transport.disk import append_durably


class TakenFiles:
    """Names that are known; those that are new are durable when they have been stored.

    Until then the journal knows them, and its entries name them again when it is read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names = _read(path)
        self._new: list[str] = []

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        """One more."""
        self._names.add(name)
        self._new.append(name)

    def store(self) -> None:
        """Make the new ones durable, before the journal that names them goes."""
        if not self._new:
            return
        texts = [json.dumps(name).encode() for name in self._new]
        # An empty line first: the end of the file may be torn.
        data = b"\n" + b"".join(b"%08x %b\n" % (zlib.crc32(text), text) for text in texts)
        append_durably(self._path, data)
        self._new = []


def _read(path: Path) -> set[str]:
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return set()
    # A torn line is of a file that the journal still knows.
    return {json.loads(line[9:]) for line in lines if line[:9] == b"%08x " % zlib.crc32(line[9:])}
