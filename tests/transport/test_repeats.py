"""A push that comes again is stored once, and is recognised by its content."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from tests.examples import SHARE
from tests.transport.tuples import ids, rides
from thetastream.errors import SiteRequestError
from thetastream.transport.addresses import Address
from thetastream.transport.config import SiteConfig, StreamConfig
from thetastream.transport.digests import content_digest
from thetastream.transport.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    streams = {"rides": StreamConfig("rides", "at")}
    running = Site(SiteConfig(tmp_path / "site", Address("127.0.0.1", 0), streams))
    yield running
    running.close()


def push(site: Site, batch: pa.RecordBatch, writer: str, sequence: int) -> tuple[int, int]:
    return site.push("rides", batch, crc=None, writer=writer, sequence=sequence)


def test_many_writers_are_remembered(site: Site) -> None:
    """More than the 1,000 that were remembered once."""
    for number in range(1_020):
        assert push(site, rides(number, 1), f"writer {number}", 0) == (number, 1)
    assert push(site, rides(0, 1), "writer 0", 0) == (0, 1)
    assert site.logs["rides"].next == 1_020


def test_other_rows_under_a_used_sequence_are_refused(site: Site) -> None:
    push(site, rides(0, 3), "w", 0)
    with pytest.raises(SiteRequestError, match="came before with other rows"):
        push(site, rides(3, 3), "w", 0)
    push(site, rides(3, 3), "w", 1)
    log = site.logs["rides"]
    assert ids([piece.batch for piece in log.read(0, 6)]) == list(range(6))


def test_equal_rows_of_other_files_are_the_same_push(site: Site, tmp_path: Path) -> None:
    table = pa.Table.from_batches([rides(0, 100)])
    pq.write_table(table, tmp_path / "plain.parquet", use_dictionary=False, row_group_size=7)
    pq.write_table(table, tmp_path / "packed.parquet", compression="zstd")
    first, again = (
        pq.read_table(tmp_path / name).combine_chunks().to_batches()[0].slice(13, 50)
        for name in ("plain.parquet", "packed.parquet")
    )
    assert push(site, first, "w", 0) == (0, 50)
    assert push(site, again, "w", 0) == (0, 50)
    assert push(site, rides(13, 50), "w", 0) == (0, 50)
    assert site.logs["rides"].next == 50


# -- digests --------------------------------------------------------------------------------------

KINDS = [
    pa.int8(),
    pa.int64(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.large_binary(),
    pa.decimal128(20, 2),
    pa.date32(),
    pa.timestamp("us", tz="UTC"),
    pa.list_(pa.string()),
    pa.large_list(pa.int16()),
    pa.map_(pa.string(), pa.int32()),
    pa.struct([("a", pa.int32()), ("b", pa.list_(pa.bool_()))]),
]
NUMBERS = st.integers(0, 3)


def value(kind: pa.DataType, number: int | None) -> object:
    """One of few values of the type, so that values are often equal."""
    if number is None:
        return None
    if pa.types.is_struct(kind):
        return {"a": number, "b": [True] * number} if number else {"a": None, "b": None}
    if pa.types.is_map(kind):
        return [(str(place), place or None) for place in range(number)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [value(kind.value_type, place or None) for place in range(number)]
    if pa.types.is_string(kind):
        return "ä" * number
    if pa.types.is_large_binary(kind):
        return b"\0" * number
    return number if not pa.types.is_boolean(kind) else number > 1


def garbled(column: pa.Array) -> pa.Array:
    """The same values, in the middle of another array, with other values under the NULLs."""
    kind = column.type
    whole = pa.concat_arrays(
        [pa.array([value(kind, 3), value(kind, 2)], kind), column, pa.array([None], kind)]
    )
    if column.null_count:
        filled = [value(kind, 3) if one is None else one for one in column.to_pylist()]
        mask = pa.array([False, False, *(one is None for one in column.to_pylist()), True])
        parts = pa.array([value(kind, 3), value(kind, 2), *filled, value(kind, 1)], kind)
        if not pa.types.is_nested(kind):
            buffers = list(parts.buffers())
            buffers[0] = pa.compute.invert(mask).buffers()[1]
            whole = pa.Array.from_buffers(kind, len(parts), buffers)
    return whole.slice(2, len(column))


@settings(max_examples=5 * SHARE, deadline=None)
@given(
    st.lists(st.lists(st.none() | NUMBERS, min_size=0, max_size=5), min_size=2, max_size=2),
    st.sampled_from(KINDS),
)
def test_a_digest_is_that_of_the_values(rows: list[list[int | None]], kind: pa.DataType) -> None:
    columns = [pa.array([value(kind, number) for number in numbers], kind) for numbers in rows]
    plain = [content_digest(pa.record_batch({"c": column})) for column in columns]
    other = [content_digest(pa.record_batch({"c": garbled(column)})) for column in columns]
    assert plain == other
    assert (plain[0] == plain[1]) == columns[0].equals(columns[1])


def test_where_one_value_ends_and_the_next_begins_counts() -> None:
    texts = [["ab", "c"], ["a", "bc"], ["abc", ""], ["", "abc"], ["abc", None], [None, "abc"]]
    batches = [pa.record_batch({"t": pa.array(values)}) for values in texts]
    batches += [
        pa.record_batch(
            {"a": ["x"], "b": [None]}, pa.schema([("a", pa.string()), ("b", pa.string())])
        )
    ]
    assert len({content_digest(batch) for batch in batches}) == len(batches)
