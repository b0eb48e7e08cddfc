"""Random filters on columns of all types; a process of its own, since a wrong one may end it.

    python -m tests.transport.filter_fuzz SEED COUNT

Each filter is refused by name, or keeps the rows that Python's own comparison keeps.
"""

from __future__ import annotations

import json
import math
import operator
import sys
from collections import Counter
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from thetastream.errors import SiteRequestError
from thetastream.transport.filters import MAX_DEPTH, Filter

EPOCH = date(1970, 1, 1)
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
OPS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
INTEGERS = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
)
DECIMALS = [pa.decimal128(*digits) for digits in ((1, 0), (8, 2), (38, 38), (38, 0), (5, -2))]
TIMES = [pa.timestamp(unit, tz) for unit in PER_SECOND for tz in (None, "UTC")]


def columns() -> dict[str, pa.Array]:
    """A column of each type that a stream can have, with extremes and NULL."""
    arrays: list[pa.Array] = [pa.array([True, False, None, True])]
    for kind in INTEGERS:
        low = -(2 ** (kind.bit_width - 1)) if str(kind).startswith("int") else 0
        arrays.append(pa.array([low, 0, None, low + 2**kind.bit_width - 1], kind))
    for kind in (pa.float32(), pa.float64()):
        arrays.append(pa.array([math.nan, -0.0, None, math.inf], kind))
    for kind in DECIMALS:
        unit = Decimal((0, (1,), -kind.scale))
        arrays.append(pa.array([-unit, unit * 0, None, 9 * unit], kind))
    for kind in (pa.string(), pa.large_string()):
        arrays.append(pa.array(["", "a\0b", None, "é𝄞"], kind))
    arrays.append(pa.array([EPOCH, date.min, None, date.max]))
    for kind in TIMES:
        arrays.append(pa.array([-1, 0, None, 2**62], pa.int64()).cast(kind))
    # These are never compared.
    for kind in (pa.binary(), pa.large_binary()):
        arrays.append(pa.array([b"", b"\xff", None, b"0"], kind))
    arrays.append(pa.array([[1], [], None, [None]], pa.list_(pa.int64())))
    arrays.append(pa.array([[("k", 1)], [], None, []], pa.map_(pa.string(), pa.int64())))
    arrays.append(pa.array([{"x": 1}, {"x": None}, None, {"x": 2}]))
    return {f"c{place}": array for place, array in enumerate(arrays)}


def value(random: Random) -> Any:
    """Anything that JSON can bring, and often what is nearly a value of some type."""
    digits = "".join(random.choices("0123456789", k=random.choice([1, 3, 8, 38, 39, 90])))
    exponent = random.choice([0, 1, -1, 2, -38, 38, 39, -76, 400, 10**9, -(10**9) + 1, 10**30])
    number = random.choice([1, 7, 2**7, 2**15, 2**31, 2**53, 2**62, 2**63, 2**64, 10**38, 10**400])
    return random.choice(
        [
            f"{digits}e{exponent}",
            f"-{digits[:5]}.{digits}",
            f"0e{exponent}",
            random.choice(["NaN", "sNaN", "NaN123", "nan", "Infinity", "-Infinity", "inf", "-0"]),
            random.choice([number, -number, number - 1, number + 1, -number - 1]),
            random.choice([0, 0.0, -0.0, 0.5, 0.1, 1e308, 5e-324, 1e999, -1e999, 2.0**24 + 1]),
            random.choice(["0001-01-01", "9999-12-31", "10000-01-01", "0000-00-00", "1970-01-01"]),
            random.choice(["2026-W01-1", "20260101", "1970-1-1", "1970-01-01T00:00:00", "٣"]),
            random.choice(["", "\0", "a\0b", "\ud800", "é𝄞", "x" * 20_000, " 1", "1_0", "0x10"]),
            random.choice([None, True, False, [], [1], {}, {"value": 1}, [[]] * 3]),
        ]
    )


def meaning(given: Any, kind: pa.DataType) -> Any:
    """The value as Python compares it with what `plain` makes of a column."""
    if pa.types.is_decimal(kind):
        return Decimal(given)
    if pa.types.is_floating(kind):
        return (1, 0.0) if given == "NaN" else (0, float(given))
    if pa.types.is_date(kind):
        return (date.fromisoformat(given) - EPOCH).days
    if pa.types.is_timestamp(kind):
        return Decimal(given) * PER_SECOND[kind.unit] / PER_SECOND["us"]
    return given


def plain(array: pa.Array) -> list[Any]:
    """The values of a column; NaN is larger than all others."""
    if pa.types.is_floating(array.type):
        return [
            None if one is None else (1, 0.0) if math.isnan(one) else (0, one)
            for one in array.to_pylist()
        ]
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.int64()).to_pylist()
    if pa.types.is_date(array.type):
        return array.cast(pa.int32()).to_pylist()
    return array.to_pylist()


def check(random: Random, batch: pa.RecordBatch, outcome: Counter[str]) -> None:
    """One comparison, under some NOTs and beside itself in lists."""
    name, op, given = random.choice(batch.schema.names), random.choice(list(OPS)), value(random)
    node: Any = {"op": op, "left": {"column": name}, "right": {"value": given}}
    turned = 0
    for _ in range(random.choice([0, 0, 0, 1, 2, MAX_DEPTH - 2, MAX_DEPTH, 200])):
        step = random.choice(["not", "and", "or"])
        turned += step == "not"
        wide = random.choice([1, 2, 3, 1000]) if step != "not" and random.random() < 0.2 else 1
        node = {"op": step, "of": [node] * wide}
    try:
        mask = Filter(node, batch.schema)(batch)
    except SiteRequestError as error:
        # As it travels.
        json.dumps({"what": error.what, "hint": error.hint}).encode()
        outcome["refused"] += 1
        return
    kind = batch.schema.field(name).type
    right = meaning(given, kind)
    expected = [
        one is not None and OPS[op](one, right) != bool(turned % 2)
        for one in plain(batch.column(name))
    ]
    assert mask.to_pylist() == expected, (str(kind), op, given, mask, expected)
    outcome[str(kind)] += 1


def main(seed: int, count: int) -> None:
    """Print how many filters of each type worked, and how many were refused."""
    random = Random(seed)
    batch = pa.record_batch(columns())
    outcome: Counter[str] = Counter()
    for _ in range(count):
        check(random, batch, outcome)
    print(json.dumps(outcome))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
