"""What is known of a stream before it is joined: the sizes of its columns, and the link."""

from __future__ import annotations

from time import monotonic

import pyarrow as pa

from thetastream.arrow import row_bytes
from thetastream.transport.access import Access, Counted
from thetastream.transport.choosing import ASSUMED_LINK
from thetastream.transport.client import SiteStream
from thetastream.transport.costmodel import Link

SAMPLED = 100
"""Tuples that are looked at: the newest."""
ASSUMED_TEXT = 32.0
"""Bytes of a text or a list of which there is no sample."""


def sample(access: Access, stream: SiteStream, schema: pa.Schema) -> tuple[dict[str, float], Link]:
    """The mean bytes of each column's values, and how fast the link is."""
    with access.connect() as client:
        client.health()
        began = monotonic()
        client.health()
        latency = monotonic() - began
        start = max(stream.first, stream.next - SAMPLED)
        began, counted = monotonic(), Counted(client)
        asked = {"id": stream.id, "schema": schema}
        batches = list(client.read(stream.name, start, stream.next, **asked))
        seconds = monotonic() - began
        received = counted.received
    rows = sum(batch.num_rows for batch in batches)
    sizes = {}
    for field in schema:
        if not rows:
            sizes[field.name] = field.type.bit_width / 8 if _fixed(field.type) else ASSUMED_TEXT
            continue
        total = sum(int(row_bytes(batch.select([field.name])).sum()) for batch in batches)
        sizes[field.name] = total / rows
    bandwidth = ASSUMED_LINK.bandwidth
    if seconds > 2 * latency:
        # Otherwise the time says nothing of the bytes.
        bandwidth = received / (seconds - latency)
    return sizes, Link(latency=latency, bandwidth=max(1.0, bandwidth))


def _fixed(kind: pa.DataType) -> bool:
    try:
        return bool(kind.bit_width)
    except ValueError:
        return False
