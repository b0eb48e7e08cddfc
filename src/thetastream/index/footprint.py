"""Bytes that a part keeps in memory, with everything that was worked out from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def footprint(item: Any) -> int:
    """Bytes of the batches and arrays that an object refers to, by any of its attributes.

    A view counts with all of the memory that it keeps alive. Keys that are views of a batch's
    columns do not count: the batch does.
    """
    kind = type(item)
    if kind is np.ndarray:
        while type(item.base) is np.ndarray:
            item = item.base
        return int(item.nbytes) if item.base is None else 0
    if kind is pa.RecordBatch:
        return int(item.get_total_buffer_size())
    if kind is dict:
        return sum(map(footprint, item.values()))
    if isinstance(item, tuple | list):
        return sum(map(footprint, item))
    fields = getattr(item, "__dict__", None)
    return 0 if fields is None else footprint(fields)
