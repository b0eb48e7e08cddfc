"""The hash of a row is the row's own, whatever it travels with, and tells rows apart."""

from __future__ import annotations

import datetime
import decimal
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from thetastream.index.part import Tuples
from thetastream.topology import content
from thetastream.topology.content import content_hash

INSTANTS = st.integers(-(2**40), 2**40)
WORDS = st.text(max_size=30)
DECIMALS = st.decimals(-(10**20), 10**20, allow_nan=False, places=3)
MOMENTS = INSTANTS.map(lambda n: datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=n / 64))
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.date32(): st.dates(),
    pa.timestamp("us"): MOMENTS,
    pa.decimal128(38, 3): DECIMALS,
    pa.string(): WORDS,
    pa.large_string(): WORDS,
    pa.binary(): st.binary(max_size=30),
    pa.large_binary(): st.binary(max_size=300),
    pa.null(): st.none(),
    pa.struct([("a", pa.int32()), ("b", pa.string())]): st.fixed_dictionaries(
        {"a": st.none() | st.integers(0, 9), "b": st.none() | WORDS}
    ),
    pa.list_(pa.string()): st.lists(st.none() | WORDS, max_size=4),
    pa.large_list(pa.int16()): st.lists(st.integers(0, 99), max_size=4),
    pa.map_(pa.string(), pa.int32()): st.dictionaries(WORDS, st.integers(0, 9), max_size=3).map(
        lambda entries: list(entries.items())
    ),
}


def tuples_of(columns: list[pa.Array]) -> Tuples:
    names = [f"c_{number}" for number in range(len(columns))]
    return Tuples(pa.RecordBatch.from_arrays(columns, names), [])


def hashes(*columns: pa.Array) -> list[int]:
    found: list[int] = content_hash(tuples_of(list(columns))).tolist()
    return found


@pytest.mark.parametrize("kind", KINDS, ids=str)
@examples(40)
@given(data=st.data())
def test_the_same_row_has_the_same_hash_in_any_batch(kind: pa.DataType, data: Any) -> None:
    values = data.draw(st.lists(st.none() | KINDS[kind], min_size=1, max_size=12))
    flags = data.draw(
        st.lists(st.none() | st.booleans(), min_size=len(values), max_size=len(values))
    )
    column, flag = pa.array(values, kind), pa.array(flags, pa.bool_())
    found = hashes(flag, column)
    alone = [hashes(flag.slice(row, 1), column.slice(row, 1))[0] for row in range(len(values))]
    assert alone == found
    copies = [
        hashes(pa.array([f], pa.bool_()), pa.array([v], kind))[0]
        for f, v in zip(flags, values, strict=True)
    ]
    assert copies == found
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    assert hashes(flag[start:stop], column[start:stop]) == found[start:stop]
    order = data.draw(st.permutations(range(len(values))))
    moved = pa.array(order)
    assert hashes(flag.take(moved), column.take(moved)) == [found[row] for row in order]


def test_rows_that_are_hashed_in_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    words = pa.array([f"{number}" * (number % 7) for number in range(100)])
    whole = hashes(words)
    monkeypatch.setattr(content, "_BLOCK_ROWS", 7)
    assert hashes(words) == whole


FILLED = [
    pa.array([True, True]),
    pa.array([7, 9], pa.int32()),
    pa.array([7.0, 9.0]),
    pa.array([7, 9], pa.timestamp("us")),
    pa.array([decimal.Decimal(7), decimal.Decimal(9)], pa.decimal128(38, 2)),
    pa.array(["seven", "nine"]),
    pa.array([b"seven", b"nine" * 100], pa.large_binary()),
]


@pytest.mark.parametrize("filled", FILLED, ids=lambda column: str(column.type))
def test_what_lies_under_a_null_does_not_matter(filled: pa.Array) -> None:
    bitmap = pa.array([1, None], pa.int8()).buffers()[0]
    holed = pa.Array.from_buffers(filled.type, 2, [bitmap, *filled.buffers()[1:]])
    assert holed.null_count == 1
    assert hashes(holed) == hashes(pa.array([filled[0], None], filled.type))


def test_what_lies_under_a_null_list_does_not_matter() -> None:
    offsets = pa.array([0, 2, 3], pa.int32())
    holed = pa.ListArray.from_arrays(offsets, pa.array([1, 2, 3]), mask=pa.array([False, True]))
    assert hashes(holed) == hashes(pa.array([[1, 2], None], holed.type))


ROWS = 4000
COUNTED = np.arange(ROWS)
UNIQUE = {
    "short texts": pa.array([f"{n:04d}" for n in COUNTED]),
    "texts": pa.array([f"https://example.com/items/{n}/index.html" for n in COUNTED]),
    "long texts": pa.array([f"{'x' * 200}{n}{'y' * 200}" for n in COUNTED]),
    "binaries": pa.array([int(n).to_bytes(3, "big") for n in COUNTED], pa.binary()),
    "large texts": pa.array([f"{n}" for n in COUNTED], pa.large_string()),
    "texts of zeros": pa.array(["\0" * n for n in COUNTED]),
    "decimals": pa.array(
        [decimal.Decimal(int(n)).scaleb(-2) for n in COUNTED], pa.decimal128(12, 2)
    ),
    "large decimals": pa.array(
        [decimal.Decimal(int(n) << 64) for n in COUNTED], pa.decimal128(38, 0)
    ),
    "lists": pa.array([[f"{n}", None] for n in COUNTED]),
    "structs": pa.array([{"a": None, "b": f"{n}"} for n in COUNTED]),
    "maps": pa.array([[("key", int(n))] for n in COUNTED], pa.map_(pa.string(), pa.int64())),
}


@pytest.mark.parametrize("units", [2, 7, 8, 64])
@pytest.mark.parametrize("name", UNIQUE)
def test_rows_spread_by_any_column_that_tells_them_apart(name: str, units: int) -> None:
    flags = pa.array(random.Random(1).choices([True, False, None], k=ROWS), pa.bool_())
    loads = np.bincount(content_hash(tuples_of([flags, UNIQUE[name]])) % units, minlength=units)
    assert loads.min() > 0.5 * ROWS / units
    assert loads.max() < 1.6 * ROWS / units


def test_texts_of_the_same_letters_differ() -> None:
    words = ["ab", "ba", "aab", "aba", "baa", "abcdefgh", "abcdefghi", "iabcdefgh", "", "a" * 300]
    assert len(set(hashes(pa.array(words)))) == len(words)


def test_no_rows_have_no_hashes() -> None:
    for kind in KINDS:
        assert hashes(pa.array([], kind)) == []
