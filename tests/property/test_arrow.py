"""Batches are cut by the bytes of their rows, wherever the large rows are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from thetastream import arrow

texts = st.none() | st.text(max_size=40) | st.integers(0, 400).map(lambda length: "x" * length)
lists = st.none() | st.lists(texts, max_size=4)
rows = st.lists(st.tuples(st.none() | st.integers(0, 99), texts, lists), max_size=30)
SCHEMA = pa.schema(
    [
        ("a", pa.int32()),
        ("b", pa.string()),
        ("c", pa.list_(pa.large_string())),
        ("d", pa.struct([("e", pa.binary()), ("f", pa.int64())])),
        ("g", pa.map_(pa.string(), pa.int16())),
        ("h", pa.bool_()),
    ]
)


def batch_of(drawn: list[tuple[Any, Any, Any]]) -> pa.RecordBatch:
    columns = [
        [a for a, _, _ in drawn],
        [b for _, b, _ in drawn],
        [c for _, _, c in drawn],
        [None if a is None else {"e": b and b.encode(), "f": a} for a, b, _ in drawn],
        [None if c is None else [(text or "", 1) for text in c] for _, _, c in drawn],
        [a is None for a, _, _ in drawn],
    ]
    arrays = [pa.array(c, kind) for c, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def text_bytes(value: str | None) -> int:
    return len((value or "").encode())


@examples(100)
@given(drawn=rows, data=st.data())
def test_a_rows_bytes_are_those_of_its_values(drawn: list[Any], data: Any) -> None:
    whole = batch_of(drawn)
    start = data.draw(st.integers(0, len(drawn)))
    batch = whole.slice(start)
    found = arrow.row_bytes(batch).tolist()
    assert len(found) == len(drawn) - start
    for (a, b, c), size in zip(drawn[start:], found, strict=True):
        inner = sum(map(text_bytes, c or []))
        known = text_bytes(b) * (1 if a is None else 2) + 2 * inner
        # What has a fixed width counts by its average, with the bits that mark NULLs.
        assert known + 12 <= size <= known + 12 + 6 + 2 * len(c or []) + 8
    assert arrow.widest(batch) == max(found, default=0)


@examples(200)
@given(drawn=rows, limit=st.integers(1, 2000), data=st.data())
def test_stretches_are_as_long_as_they_may_be(drawn: list[Any], limit: int, data: Any) -> None:
    batch = batch_of(drawn).slice(data.draw(st.integers(0, len(drawn))))
    cuts = list(arrow.stretches(batch, limit))
    assert [row for start, stop in cuts for row in range(start, stop)] == [*range(batch.num_rows)]
    sizes = arrow.row_bytes(batch)
    if len(cuts) > 1:
        for start, stop in cuts:
            assert start < stop
            assert stop == start + 1 or sizes[start:stop].sum() <= limit
            assert stop == batch.num_rows or sizes[start : stop + 1].sum() > limit
    elif cuts:
        assert batch.nbytes <= limit or batch.num_rows == 1 or sizes.sum() <= limit


def test_rows_of_numbers_alone_are_all_alike() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, 2, 3], "b": [1.0, 2.0, 3.0]})
    assert arrow.row_bytes(batch).tolist() == [16, 16, 16]
    assert arrow.widest(batch) == 16
    assert list(arrow.stretches(batch, 32)) == [(0, 2), (2, 3)]
    assert list(arrow.stretches(batch.slice(0, 0), 32)) == []
    assert arrow.widest(batch.slice(0, 0)) == 0
