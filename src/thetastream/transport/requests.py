"""What a client may ask of a site: JSON, every field of it checked before it is used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.errors import (
    ForgottenError,
    SiteChangedError,
    SiteDataError,
    SiteError,
    SiteRequestError,
)
from thetastream.transport.messages import PIECE_BYTES

ERRORS: dict[str, type[SiteError]] = {
    "request": SiteRequestError,
    "forgotten": ForgottenError,
    "changed": SiteChangedError,
    "data": SiteDataError,
    "site": SiteError,
}
"""Errors by their names on the wire; the most general one comes last."""
COMPRESSIONS = (None, "lz4", "zstd")
_LARGEST = 2**63 - 1
_LONGEST = 500
"""Characters of a name."""


@dataclass(frozen=True)
class RangeRequest:
    """Chosen columns of the tuples from `start` up to `stop` that a filter keeps."""

    stream: str
    start: int
    stop: int
    id: str | None = None
    """The id that the stream must have, if the client knows it."""
    columns: list[str] | None = None
    where: object = None
    compression: str | None = None
    numbered: bool = True
    """Whether numbers travel as a column; without a filter the note beside a batch says them."""

    def to_bytes(self) -> bytes:
        """The request as it travels."""
        return _to_bytes({"ask": "range", **self.__dict__})


@dataclass(frozen=True)
class NumbersRequest:
    """Chosen columns of the tuples with these numbers, which ascend."""

    stream: str
    numbers: npt.NDArray[np.int64]
    id: str | None = None
    columns: list[str] | None = None
    compression: str | None = None

    def to_bytes(self) -> bytes:
        """The request as it travels: the gaps between numbers have fewer digits than they do."""
        gaps = np.diff(self.numbers, prepend=0).tolist()
        return _to_bytes({"ask": "numbers", **self.__dict__, "numbers": gaps})


@dataclass(frozen=True)
class PushRequest:
    """Where pushed tuples go, who sends them, and the place of the first batch among the pushes."""

    stream: str
    writer: str = ""
    sequence: int = 0

    def to_bytes(self) -> bytes:
        """The request as it travels."""
        return _to_bytes({"ask": "push", **self.__dict__})


def parse_ticket(data: bytes, *, limit: int, numbers: int) -> RangeRequest | NumbersRequest:
    """What a ticket asks for; raises SiteRequestError for anything else."""
    found = _Fields(data, limit)
    ask = found.text("ask")
    stream, expected = found.text("stream"), found.optional_text("id")
    columns, compression = found.names("columns"), found.optional_text("compression")
    if compression not in COMPRESSIONS:
        raise _wrong("there is no such compression")
    if ask == "range":
        request: RangeRequest | NumbersRequest = RangeRequest(
            stream,
            found.number("start"),
            found.number("stop"),
            expected,
            columns,
            found.take("where"),
            compression,
            found.flag("numbered", True),
        )
    elif ask == "numbers":
        wanted = found.gaps("numbers", numbers)
        request = NumbersRequest(stream, wanted, expected, columns, compression)
    else:
        raise _wrong("it asks neither for a range nor for numbers")
    found.end()
    if isinstance(request, RangeRequest) and not request.numbered and request.where is not None:
        raise _wrong("numbers cannot be left out where a filter leaves out tuples")
    return request


def parse_push(data: bytes, *, limit: int) -> PushRequest:
    """What a push says of itself; raises SiteRequestError for anything else."""
    found = _Fields(data, limit)
    if found.text("ask") != "push":
        raise _wrong("it is no push")
    request = PushRequest(
        found.text("stream"), found.optional_text("writer") or "", found.number("sequence")
    )
    found.end()
    return request


def parse_note(data: bytes | None, *names: str) -> dict[str, int]:
    """The numbers beside a batch; raises SiteRequestError if they are not as they should be."""
    found = _Fields(data or b"{}", _LONGEST)
    numbers = {name: found.number(name) for name in names}
    found.end()
    return numbers


def in_pieces(note: bytes, data: pa.Buffer) -> Iterator[pa.Buffer]:
    """The messages of a batch that is pushed; the first begins with its note."""
    yield pa.py_buffer(b"".join((note, b"\n", memoryview(data)[:PIECE_BYTES])))
    for at in range(PIECE_BYTES, data.size, PIECE_BYTES):
        yield data.slice(at, min(PIECE_BYTES, data.size - at))


def split_note(message: bytes) -> tuple[bytes, bytes]:
    """A note, and the piece of a batch that a line feed separates from it."""
    end = message.find(b"\n", 0, _LONGEST)
    if end < 0:
        raise _wrong("a batch is not announced")
    return message[:end], message[end + 1 :]


def to_note(**numbers: int) -> bytes:
    """Numbers as they travel beside a batch."""
    return _to_bytes(numbers)


class _Fields:
    """The fields of an object, each taken once."""

    def __init__(self, data: bytes, limit: int) -> None:
        if len(data) > limit:
            raise _wrong(f"it has more than {limit:,} bytes")
        try:
            found = json.loads(data, parse_constant=_refuse)
        except (ValueError, RecursionError):
            raise _wrong("it is not JSON") from None
        if not isinstance(found, dict):
            raise _wrong("it is not an object")
        self._found: dict[str, Any] = found

    def take(self, name: str) -> Any:
        return self._found.pop(name, None)

    def text(self, name: str) -> str:
        value = self.take(name)
        if not isinstance(value, str) or not 0 < len(value) <= _LONGEST:
            raise _wrong(f"{name} is not a text")
        return value

    def optional_text(self, name: str) -> str | None:
        return self.text(name) if self._found.get(name) else self.take(name) or None

    def number(self, name: str) -> int:
        value = self.take(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
            raise _wrong(f"{name} is not a number from 0 on")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._found.pop(name, default)
        if not isinstance(value, bool):
            raise _wrong(f"{name} is neither true nor false")
        return value

    def names(self, name: str) -> list[str] | None:
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise _wrong(f"{name} is not a list of names")
        return value

    def gaps(self, name: str, most: int) -> npt.NDArray[np.int64]:
        value = self.take(name)
        if not isinstance(value, list) or len(value) > most:
            raise _wrong(f"{name} is not a list of at most {most:,} numbers")
        if not all(type(one) is int and 0 <= one <= _LARGEST for one in value):
            raise _wrong(f"{name} has something else than numbers from 0 on")
        if sum(value) > _LARGEST:
            raise _wrong(f"{name} are too large")
        return np.cumsum(np.array(value, dtype=np.int64), dtype=np.int64)

    def end(self) -> None:
        if self._found:
            raise _wrong(f"it has an unknown field {str(next(iter(self._found)))[:40]!r}")


def _to_bytes(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _refuse(text: str) -> None:
    raise ValueError(text)


def _wrong(what: str) -> SiteRequestError:
    return SiteRequestError(
        f"the site does not understand the request: {what}",
        hint="use the client of the same release",
    )
