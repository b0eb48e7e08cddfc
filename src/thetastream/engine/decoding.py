"""From stored bytes to parts and views; bytes that are not what was written are refused."""

from __future__ import annotations

import zlib

import pyarrow as pa

from thetastream import arrow
from thetastream.errors import CorruptRunError
from thetastream.index.layout import Layout, Stored
from thetastream.index.part import PartMeta


def decode_part(data: bytes | pa.Buffer, meta: PartMeta, layout: Layout) -> Stored:
    """The part in stored bytes; bytes that are not what was written are refused."""
    _check(data, meta, f"stored part {meta.id} of {layout.what}")
    return layout.decode(data)


def decode_view(data: bytes | pa.Buffer, meta: PartMeta) -> pa.RecordBatch:
    """The view in stored bytes, refused like a part if they were changed."""
    _check(data, meta, f"stored view {meta.id}")
    return arrow.from_bytes(data)


def _check(data: bytes | pa.Buffer, meta: PartMeta, what: str) -> None:
    found = zlib.crc32(data)
    if found != meta.checksum:
        raise CorruptRunError(
            f"{what} is damaged",
            detail=f"  its checksum is {found:08x}; it was written with {meta.checksum:08x}",
            hint="restore the checkpoint from a copy, or start with a new one",
        )


def missing_part(meta: PartMeta) -> CorruptRunError:
    """The error for a part that the manifest lists and the store does not have."""
    return CorruptRunError(
        f"stored part {meta.id} is missing",
        hint="restore the checkpoint from a copy, or start with a new one",
    )
