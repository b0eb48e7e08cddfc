"""Batches are checked before anything uses them."""

from __future__ import annotations

import subprocess
import sys
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.transport.tuples import SCHEMA, rides
from thetastream.errors import SiteDataError, SiteRequestError
from thetastream.transport.messages import Limits, checked, checksum, decode

TYPES = [
    pa.int32(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.list_(pa.int16()),
    pa.list_(pa.list_(pa.string())),
    pa.struct([("x", pa.int8()), ("y", pa.list_(pa.bool_()))]),
    pa.map_(pa.string(), pa.int32()),
]

_HOSTILE = """
import sys, zlib
import numpy as np
from tests.transport.tuples import SCHEMA, rides
from thetastream.errors import SiteDataError, SiteRequestError
from thetastream.transport.messages import Limits, decode

# Whoever sends them also computes the checksum, so that only Arrow's own checks are left.
data = np.frombuffer(rides(0, 40).serialize(), dtype=np.uint8)
random = np.random.default_rng(int(sys.argv[1]))
kept = 0
for number in range(2000):
    changed = data.copy()
    # The first bytes say what the rest means.
    reach = 600 if number % 2 else len(changed)
    for place in random.integers(0, min(reach, len(changed)), random.integers(1, 9)):
        changed[place] = random.integers(0, 256)
    if number % 5 == 0:
        changed = changed[: random.integers(0, len(changed))]
    raw = changed.tobytes()
    try:
        batch = decode(raw, SCHEMA, crc=zlib.crc32(raw), limits=Limits())
    except (SiteDataError, SiteRequestError):
        continue
    # What passes is a batch like any other.
    assert batch.schema == SCHEMA
    batch.take(list(range(batch.num_rows))).serialize()
    str(batch.column('zone').to_pylist())
    kept += 1
print("done", kept)
"""


def test_two_thousand_changed_messages_are_refused() -> None:
    data = np.frombuffer(rides(0, 40).serialize(), dtype=np.uint8)
    crc = zlib.crc32(data.tobytes())
    random = np.random.default_rng(7)
    for number in range(2000):
        changed = data.copy()
        for place in random.integers(0, len(changed), random.integers(1, 9)):
            changed[place] ^= random.integers(1, 256)
        raw = changed.tobytes()
        if number % 5 == 0:
            raw = raw[: random.integers(0, len(raw))]
        if raw == data.tobytes():
            continue
        with pytest.raises(SiteDataError):
            decode(raw, SCHEMA, crc=crc, limits=Limits())


def test_hostile_messages_do_not_crash_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HOSTILE, "11"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("done")


@examples(60)
@given(st.data())
def test_a_checksum_is_the_same_on_both_ends(data: st.DataObject) -> None:
    """Also of a slice, of nested columns, and of a message that was compressed on its way."""
    kind = data.draw(st.sampled_from(TYPES))
    rows = data.draw(st.integers(0, 30))
    random = np.random.default_rng(data.draw(st.integers(0, 1000)))
    column = pa.array([_value(kind, random) for _ in range(rows)], kind)
    batch = pa.RecordBatch.from_arrays([column], ["c"])
    start = data.draw(st.integers(0, rows))
    sent = batch.slice(start, data.draw(st.integers(0, rows - start)))
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=data.draw(st.sampled_from([None, "lz4", "zstd"])))
    with pa.ipc.new_stream(sink, sent.schema, options=options) as writer:
        writer.write_batch(sent)
    (got,) = pa.ipc.open_stream(sink.getvalue())
    assert checksum(got) == checksum(sent)
    assert checked(got, sent.schema, crc=checksum(sent), limits=Limits()).equals(sent)


def _value(kind: pa.DataType, random: np.random.Generator) -> object:
    if random.random() < 0.2:
        return None
    if pa.types.is_boolean(kind):
        return bool(random.integers(0, 2))
    if pa.types.is_integer(kind):
        return int(random.integers(-100, 100))
    if pa.types.is_floating(kind):
        return float(random.normal())
    if pa.types.is_string(kind):
        return "é" * int(random.integers(0, 4))
    if pa.types.is_map(kind):
        return [(str(key), key) for key in range(random.integers(0, 3))]
    if pa.types.is_list(kind):
        return [_value(kind.value_type, random) for _ in range(random.integers(0, 4))]
    return {
        kind.field(place).name: _value(kind.field(place).type, random)
        for place in range(kind.num_fields)
    }


def test_limits_and_columns() -> None:
    batch = rides(0, 100)
    for limits, word in ((Limits(batch_rows=99), "100 rows"), (Limits(batch_bytes=99), "KB")):
        with pytest.raises(SiteRequestError, match=word):
            checked(batch, SCHEMA, crc=None, limits=limits)
    with pytest.raises(SiteRequestError, match="do not have the stream's columns"):
        checked(batch.select(["id", "fare"]), SCHEMA, crc=None, limits=Limits())
    with pytest.raises(SiteDataError, match="checksum"):
        checked(batch, SCHEMA, crc=checksum(batch) ^ 1, limits=Limits())


def test_offsets_that_point_outside_are_refused() -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.array([0, 50, 1], pa.int32()).buffers()[1], pa.py_buffer(b"x")]
    )
    batch = pa.RecordBatch.from_arrays([bad], ["s"])
    with pytest.raises(SiteDataError, match="damaged"):
        checked(batch, batch.schema, crc=None, limits=Limits())
