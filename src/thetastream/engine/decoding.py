"""From stored bytes to parts; bytes that are not what was written are refused."""

from __future__ import annotations

import hashlib

import pyarrow as pa

from thetastream.errors import CorruptRunError
from thetastream.index.part import PartMeta
from thetastream.index.protocol import Decoder, Stored

_DIGEST_BYTES = 16
"""Enough that no two contents ever share a digest: a cache would take the one for the other."""


def digest(data: bytes | pa.Buffer) -> str:
    """The digest of stored bytes that their part's id ends in.

    BLAKE2b, because it needs no special instructions to be fast: about 1 ms per MiB.
    """
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


def decode_part(data: bytes | pa.Buffer, meta: PartMeta, decoder: Decoder) -> Stored:
    """The part in stored bytes."""
    actual = digest(data)
    if actual != meta.digest:
        raise CorruptRunError(
            f"stored part {meta.id} of {decoder.what} is damaged",
            detail=f"  its checksum is {actual}; it was written with {meta.digest}",
            hint="restore the checkpoint from a copy, or start with a new one",
        )
    return decoder.decode(data)


def missing_part(meta: PartMeta) -> CorruptRunError:
    """The error for a part that the manifest lists and the store does not have."""
    return CorruptRunError(
        f"stored part {meta.id} is missing",
        hint="restore the checkpoint from a copy, or start with a new one",
    )
