"""The dispatcher: from a batch of one stream to the packs that travel to the units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from thetastream.errors import OptionError
from thetastream.index.bounds import interval
from thetastream.index.encoding import Int64s, encode, encode_integers, is_integral
from thetastream.index.part import Tuples
from thetastream.spec import Encoding, JoinSpec, Routing
from thetastream.topology.band import BandBuckets
from thetastream.topology.biclique import ContRand
from thetastream.topology.matrix import Matrix
from thetastream.topology.routes import RoutingKeys, Topology, UInt64s, mixed

_BASE = np.uint64(0x9E3779B97F4A7C15)
_INVERSE = np.uint64(pow(int(_BASE), -1, 1 << 64))


class Pack(NamedTuple):
    """Tuples of one stream for one unit, to be stored, probed with, or both."""

    unit: int
    stream: int
    role: int
    batch: pa.RecordBatch


def topology_of(spec: JoinSpec) -> Topology:
    """The topology that the spec names."""
    routing = spec.routing
    units = routing.units
    if routing.routing is Routing.HASH:
        return ContRand(units, units)
    if routing.routing is Routing.CONTRAND:
        return ContRand(units, routing.subgroups)
    if routing.routing is Routing.RANDOM:
        return ContRand(units, (1, 1))
    if routing.routing is Routing.MATRIX:
        return Matrix(*units)
    if routing.bucket_width is None or not spec.ranges:
        raise OptionError("band buckets need a width and a driving band")
    drive = spec.ranges[0]
    floating = (Encoding.FLOAT, Encoding.FLOAT_NAN_LOW)
    return BandBuckets(
        units,
        routing.bucket_width,
        (
            spec.streams[0].keys[drive.left].encoding in floating,
            spec.streams[1].keys[drive.right].encoding in floating,
        ),
    )


class Dispatcher:
    """Routes batches of one stream."""

    def __init__(self, spec: JoinSpec, stream: int) -> None:
        self._spec = spec
        self._stream = stream
        self._topology = topology_of(spec)

    @property
    def units(self) -> int:
        """Units in all."""
        return self._topology.units

    def dispatch(self, batch: pa.RecordBatch) -> Iterator[Pack]:
        """The packs of a batch."""
        if batch.num_rows == 0:
            return
        tuples = Tuples.encode(batch, self._spec.streams[self._stream])
        for unit, role, rows in self._topology.route(self._stream, self._keys(tuples)):
            whole = len(rows) == batch.num_rows
            yield Pack(unit, self._stream, role, batch if whole else batch.take(pa.array(rows)))

    def _keys(self, tuples: Tuples) -> RoutingKeys:
        spec, stream = self._spec, self._stream
        drive, reach = None, None
        if spec.routing.routing is Routing.BAND:
            rule = spec.ranges[0]
            own = rule.of(stream)
            drive = tuples.keys[own]
            reach = interval(rule, stream == 0, drive, spec.streams[stream].keys[own])
        return RoutingKeys(
            count=len(tuples),
            equality=None if spec.equality is None else tuples.keys[spec.equality.of(stream)],
            drive=drive,
            reach=reach,
            spread=content_hash(tuples) if self._topology.needs_spread else None,
        )


def content_hash(tuples: Tuples) -> UInt64s:
    """A hash of each row's keys and fixed-width columns, or of its texts if it has no such column.

    Position in the batch would spread rows as well, but a task that runs again may see them in
    another order and would then store a tuple twice or not at all. For the same reason the hash of
    a row depends on nothing else in its batch.
    """
    total = np.zeros(len(tuples), dtype=np.uint64)
    columns = [column for column in map(_fixed_width, tuples.batch.columns) if column is not None]
    if not columns:
        columns = [_text_hash(column) for column in tuples.batch.columns if _is_text(column.type)]
    for values in (*tuples.keys, *columns):
        total = mixed(total ^ values.view(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
    return mixed(total)


def _fixed_width(column: pa.Array) -> Int64s | None:
    """The values as integers, zero for NULL; None if they have no fixed width."""
    if pa.types.is_floating(column.type):
        return encode(column.fill_null(0.0), "float")
    if not is_integral(column.type):
        return None
    if column.null_count == 0:
        return encode_integers(column)
    valid = np.asarray(column.is_valid())
    values = np.zeros(len(column), dtype=np.int64)
    values[valid] = encode_integers(column.drop_null())
    return values


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _text_hash(column: pa.Array) -> Int64s:
    """A polynomial hash of each text's bytes: differences of one running sum, scaled back."""
    column = column.fill_null(b"" if pa.types.is_binary(column.type) else "")
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)
    offsets = offsets[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(data_buffer or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    places = offsets - offsets[0]
    powers = np.full(len(data), _BASE, dtype=np.uint64).cumprod()
    sums = np.zeros(len(data) + 1, dtype=np.uint64)
    np.cumsum((data.astype(np.uint64) + np.uint64(1)) * powers, out=sums[1:])
    scale = np.ones(len(data) + 1, dtype=np.uint64)
    np.cumprod(np.full(len(data), _INVERSE, dtype=np.uint64), out=scale[1:])
    found: UInt64s = (sums[places[1:]] - sums[places[:-1]]) * scale[places[:-1]]
    return found.view(np.int64)
