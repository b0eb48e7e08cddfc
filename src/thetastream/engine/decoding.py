"""From stored bytes to parts; bytes that are not what was written are refused."""

from __future__ import annotations

import zlib

import pyarrow as pa

from thetastream.errors import CorruptRunError
from thetastream.index.part import PartMeta
from thetastream.index.protocol import Decoder, Stored


def decode_part(data: bytes | pa.Buffer, meta: PartMeta, decoder: Decoder) -> Stored:
    """The part in stored bytes."""
    found = zlib.crc32(data)
    if found != meta.checksum:
        raise CorruptRunError(
            f"stored part {meta.id} of {decoder.what} is damaged",
            detail=f"  its checksum is {found:08x}; it was written with {meta.checksum:08x}",
            hint="restore the checkpoint from a copy, or start with a new one",
        )
    return decoder.decode(data)


def missing_part(meta: PartMeta) -> CorruptRunError:
    """The error for a part that the manifest lists and the store does not have."""
    return CorruptRunError(
        f"stored part {meta.id} is missing",
        hint="restore the checkpoint from a copy, or start with a new one",
    )
