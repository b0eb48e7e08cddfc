"""Headers of Arrow's messages, read before Arrow reads them.

Arrow's reader decompresses what a header asks it to, and makes a value of each reference to one:
some kilobytes can become gigabytes. So a message from outside gets to Arrow only if its header asks
for nothing of the kind. Headers are flatbuffers: tables of offsets, which may lead anywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from thetastream.errors import SiteDataError, SiteRequestError

PREFIX = 8
"""Bytes in front of a header: a mark, and its length."""
_MARK = 0xFFFFFFFF
_SCHEMA, _BATCH = 1, 3
"""The kinds of messages that a push consists of."""
_TIMESTAMP = 10
MAX_FIELDS = 10_000
"""Columns of a schema with everything nested in them."""
_MAX_NESTED = 16
_MAX_NAME = 1_024
"""Bytes in the name of a column or of a time zone."""


def check_schema(header: memoryview) -> None:
    """Refuse the header of anything but a plain schema of bounded size."""
    schema = _message(header, _SCHEMA)
    left = MAX_FIELDS
    pending = [(field, _MAX_NESTED) for field in _fields(schema, 1)]
    _no_metadata(schema, 2)
    while pending:
        field, depth = pending.pop()
        left -= 1
        if left < len(pending) or depth == 0:
            raise SiteRequestError(
                "a schema with too many columns, or columns that are nested too deeply",
                hint=f"send at most {MAX_FIELDS:,} columns, with those nested in others",
            )
        field.check_text(0)
        if field.place(4) is not None:
            raise SiteRequestError(
                "a column with a dictionary", hint="cast it to the type of its values"
            )
        _no_metadata(field, 6)
        if field.number(2, "<B") == _TIMESTAMP and (kind := field.table(3)) is not None:
            kind.check_text(1)
        pending += [(child, depth - 1) for child in _fields(field, 5)]


def check_batch(message: memoryview) -> None:
    """Refuse a message that is not one plain batch, whose buffers lie side by side in it."""
    mark, size = _unpacked("<Ii", message, 0)
    if mark != _MARK or not 0 < size <= len(message) - PREFIX:
        raise _damaged("it is no message of Arrow's")
    batch = _message(message[PREFIX : PREFIX + size], _BATCH, len(message) - PREFIX - size)
    if batch.place(3) is not None:
        raise SiteRequestError(
            "a batch that Arrow has compressed", hint="send it without compression"
        )
    at, count = batch.vector(2, 16)
    buffers = np.frombuffer(batch.data, "<i8", 2 * count, at).reshape(count, 2)
    body = len(message) - PREFIX - size
    starts, lengths = buffers[:, 0], buffers[:, 1]
    # Before anything is added, so that nothing overflows.
    if ((buffers < 0) | (buffers > body)).any():
        raise _damaged("a buffer lies outside of it")
    ends = starts + lengths
    if (ends > body).any() or (starts[1:] < ends[:-1]).any():
        raise _damaged("its buffers overlap")


class _Table:
    """A table of a flatbuffer; every place is checked before it is read."""

    def __init__(self, data: memoryview, at: int) -> None:
        self.data = data
        self._at = at
        self._index = at - self.read("<i", at)
        self._slots = self.read("<H", self._index) // 2 - 2

    def read(self, form: str, at: int) -> int:
        (value,) = _unpacked(form, self.data, at)
        return int(value)

    def place(self, slot: int) -> int | None:
        """The place of a member; None if the table lacks it."""
        if slot >= self._slots:
            return None
        offset = self.read("<H", self._index + 4 + 2 * slot)
        return self._at + offset if offset else None

    def number(self, slot: int, form: str) -> int:
        at = self.place(slot)
        return 0 if at is None else self.read(form, at)

    def table(self, slot: int) -> _Table | None:
        at = self.place(slot)
        return None if at is None else _Table(self.data, at + self.read("<I", at))

    def vector(self, slot: int, width: int) -> tuple[int, int]:
        """The place of a list's first element, and how many it has."""
        at = self.place(slot)
        if at is None:
            return 0, 0
        at += self.read("<I", at)
        count = self.read("<I", at)
        if at + 4 + count * width > len(self.data):
            raise _damaged("a list reaches beyond it")
        return at + 4, count

    def check_text(self, slot: int) -> None:
        _, size = self.vector(slot, 1)
        if size > _MAX_NAME:
            raise SiteRequestError(
                f"a name of {size:,} bytes", hint=f"give names of at most {_MAX_NAME:,} bytes"
            )


def _message(header: memoryview, kind: int, body: int = 0) -> _Table:
    message = _Table(header, _unpacked("<I", header, 0)[0])
    content = message.table(2)
    if message.number(1, "<B") != kind or content is None or message.number(3, "<q") != body:
        raise _damaged("it is another kind of message, or not all of it")
    _no_metadata(message, 4)
    return content


def _fields(table: _Table, slot: int) -> Iterator[_Table]:
    at, count = table.vector(slot, 4)
    if count > MAX_FIELDS:
        raise SiteRequestError(
            f"a schema of {count:,} columns", hint=f"send at most {MAX_FIELDS:,} columns"
        )
    for place in range(at, at + 4 * count, 4):
        yield _Table(table.data, place + table.read("<I", place))


def _no_metadata(table: _Table, slot: int) -> None:
    if table.vector(slot, 4)[1]:
        raise SiteRequestError(
            "a schema or batch with metadata of its own",
            hint="use the client of the same release, which leaves it out",
        )


def _unpacked(form: str, data: memoryview, at: int) -> tuple[int, ...]:
    # A place before the first byte would be counted from the end.
    if at < 0 or at + struct.calcsize(form) > len(data):
        raise _damaged("an offset leads out of it")
    return struct.unpack_from(form, data, at)


def _damaged(why: str) -> SiteDataError:
    return SiteDataError(
        "bytes are not a batch of Arrow's", detail=f"  {why}", hint="send them again"
    )
