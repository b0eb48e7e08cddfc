"""From result blobs to typed rows. Runs in `mapInArrow`."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from thetastream import arrow


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results in the blobs of a batch; rows that carry a report only have none."""
    for batch in batches:
        blobs = batch.column("blob")
        for position in range(len(blobs)):
            data = blobs[position].as_buffer()
            if data is not None:
                yield from arrow.read_batches(data)
