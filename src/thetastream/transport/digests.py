"""A digest of the content of a batch, by which a push that is repeated is recognised.

It depends on the values and on which of them are NULL, and not on how Arrow holds them: slices,
bitmaps that may be absent, and whatever lies under a NULL. Numbers are compared by their bits, so
that 0.0 and -0.0 differ, and so do NaNs of different bits.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa

from thetastream import arrow

DIGEST_BYTES = 16


def content_digest(batch: pa.RecordBatch) -> bytes:
    """The digest of the rows of a batch, in their order."""
    total = hashlib.sha256()
    for column in batch.columns:
        _add(total, column)
    return total.digest()[:DIGEST_BYTES]


def _add(total: Any, column: pa.Array) -> None:
    nulls = int(column.null_count)
    total.update(b"%d %d " % (len(column), nulls))
    if nulls:
        total.update(np.packbits(column.is_valid().to_numpy(zero_copy_only=False)))
        # Only the values that are there, in new buffers.
        column = column.drop_null()
    kind = column.type
    if pa.types.is_boolean(kind):
        total.update(np.packbits(column.to_numpy(zero_copy_only=False)))
    elif pa.types.is_struct(kind):
        for values in column.flatten():
            _add(total, values)
    elif arrow.is_text(kind) or arrow.is_list(kind):
        places = arrow.offsets(column)
        begin, end = int(places[0]), int(places[-1])
        total.update(np.diff(places))
        if arrow.is_list(kind):
            _add(total, column.values.slice(begin, end - begin))
        elif end > begin:
            total.update(column.buffers()[2].slice(begin, end - begin))
    elif len(column):
        width = kind.bit_width // 8
        total.update(column.buffers()[1].slice(column.offset * width, len(column) * width))
