"""The streams, the units and the frequent keys of a batch, as `ts.metrics` has them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class HeavyKey:
    """A frequent value of the equality's key, and how many rows of the batch have it. In a
    stream-aware join, of the key of the inequality or the band.

    >>> ts.metrics(query)[0].heavy
    (HeavyKey(stream='orders', key='7', rows=3),)
    """

    stream: str
    key: str
    """The value, or those of the columns that were hashed; "hash ..." where results carry none."""
    rows: int


@dataclass(frozen=True, kw_only=True)
class StreamLoad:
    """One stream in one batch.

    >>> [(stream.stream, stream.rows_in) for stream in ts.metrics(query)[0].streams]
    [('orders', 4), ('rides', 2)]
    """

    stream: str
    rows_in: int
    """Rows that reached the join: those that a condition on the stream alone lets through, and
    whose keys and time are not NULL."""
    late: int
    """Those of them that were older than the watermark, and dropped."""
    newest: datetime | None
    """The newest event time so far; None before there is one, and without a window."""
    watermark: datetime | None
    """That time minus the stream's delay. The query uses the lowest of its streams."""


@dataclass(frozen=True, kw_only=True)
class UnitLoad:
    """One unit in one batch.

    >>> sum(unit.stored_rows for unit in ts.metrics(query)[0].units)
    6
    """

    unit: int
    rows_in: int
    """Tuples that the unit is home to."""
    probes: int
    """Tuples that looked for partners here."""
    results: int
    out_bytes: int
    """Bytes of results, or of the view, that left the unit."""
    late: int
    stored_rows: int
    stored_bytes: int
    runs: int
    busy: float
    """Seconds of CPU time for the unit's own work."""
    entries: int = 0
    """Stored intermediate results of a three-way join: hub packs, or pairs if not packed."""
    pairs: int = 0
    """Pairs in them."""
    heavy: tuple[HeavyKey, ...] = ()
    """The most frequent equality keys among the unit's rows of this batch."""
    version: int = 0
    """The oldest version of a live routing table by which its rows were routed."""
    draining: int = 0
    """Stored rows that would now be stored in another unit."""
    join: int = 0
    """The number of its join in a tree, or of its stage in a chain of three streams."""
    compared: int = 0
    """Pairs of a probing and a stored tuple that the indexes looked at, and steps of searches."""
    updates: int = 0
    """Tuples that were written into indexes, once more with each merge."""
