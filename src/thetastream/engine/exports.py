"""Tuples on their way from one unit to another, in files of the control directory.

A file's name has the version of the table under which it was written, so that files of an earlier
change can be removed whenever somebody gets round to it, and the digest of its content.
"""

from __future__ import annotations

import hashlib

import pyarrow as pa

from thetastream import arrow
from thetastream.engine.protocol import Export, StateReader
from thetastream.errors import CorruptRunError
from thetastream.index.part import Part
from thetastream.index.protocol import TupleIndex


def export(batch: pa.RecordBatch, version: int) -> Export:
    """Return the file for some tuples."""
    data = arrow.to_bytes(batch, compress=True)
    return Export(f"{version:08d}-{hashlib.sha256(data).hexdigest()}", data)


def read_export(name: str, index: TupleIndex, reader: StateReader) -> Part:
    """Return the tuples of a file, for the index that takes them in."""
    data = reader.exported(name)
    if hashlib.sha256(data).hexdigest() != name.rpartition("-")[2]:
        raise CorruptRunError(
            f"exported tuples of {index.what} are damaged",
            detail=f"  file {name}",
            hint="put back the control directory and the checkpoint of the same time",
        )
    return index.decode(data)
