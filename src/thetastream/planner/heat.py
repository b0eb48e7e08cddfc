"""Hot values as they were named, and the units that are theirs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from thetastream.errors import OptionError
from thetastream.index.encoding import encode
from thetastream.options import HOT_UNITS, JoinOptions
from thetastream.planner.types import Family, decimal_size, family
from thetastream.spec import HotValues, KeySpec

_ARROW: Final = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
}


def hot_units(options: JoinOptions, units: Sequence[int], names: Sequence[str]) -> int:
    """How many units of each stream are there for its hot values."""
    if not options.values_apart:
        return 0
    few = min(units)
    name = names[list(units).index(few)]
    if few < 2:
        raise OptionError(
            f"hot values have units of their own, and {name} has one unit in all",
            hint="give at least 2 units for each stream, or leave out hot_values and hot_keys",
        )
    if options.hot_units == "auto":
        return min(HOT_UNITS, few - 1)
    if options.hot_units >= few:
        raise OptionError(
            f"hot_units={options.hot_units} leaves none of the {few} units of {name} for its other"
            " values",
            hint=f"give fewer than {few}, or more units",
        )
    return options.hot_units


def hot_values(options: JoinOptions, number: int, key: KeySpec) -> HotValues | None:
    """The named values of a stream's key, encoded as the key is; None if none can be hot."""
    if not options.values_apart:
        return None
    codes = {_code(value, key) for value in options.hot_values}
    return HotValues(key=number, codes=tuple(sorted(codes)))


def code_of(value: Any, key: KeySpec) -> int:
    """The code of a key's value, which may be given as text, as on a command line. The values of a
    hash are its codes."""
    try:
        if isinstance(value, str) and family(key.type) not in (Family.STRING, Family.BINARY):
            value = pa.array([value]).cast(_arrow_type(key.type))[0].as_py()
        return _encoded(value, key)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        hint = "give a value of the key that the predicate compares"
        if key.of:
            hint = (
                "the key is a hash of several columns, or of a text: give its code, a whole number;"
                " moments of a policy have the codes of frequent keys"
            )
        raise OptionError(f"{value!r} is no value of {key.sql}", hint=hint) from error


def _code(value: Any, key: KeySpec) -> int:
    try:
        return _encoded(value, key)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise OptionError(
            f"hot_values has {value!r}, which is no value of {key.sql}, of type {key.type}",
            hint="name values of the key that the inequality or the band compares; times are"
            " datetimes with a time zone, as far as their column has one",
        ) from error


def _encoded(value: Any, key: KeySpec) -> int:
    found = pa.array([_plain(value, family(key.type))], _arrow_type(key.type))
    return int(encode(found, key.encoding.value)[0])


def _arrow_type(name: str) -> pa.DataType:
    if family(name) is Family.DECIMAL:
        return pa.decimal128(*decimal_size(name))
    if name not in _ARROW:
        raise TypeError(f"nobody writes a value of type {name}")
    return _ARROW[name]


def _plain(value: Any, kind: Family) -> Any:
    """The value as Arrow reads it; an error where Arrow would make another value of it."""
    zoned = isinstance(value, datetime) and value.tzinfo is not None
    if kind in (Family.TIMESTAMP, Family.TIMESTAMP_NTZ) and zoned != (kind is Family.TIMESTAMP):
        raise TypeError("a time zone is missing, or there is none in the column")
    if kind is Family.INTEGER and not isinstance(value, int):
        raise TypeError("not a whole number")
    if value is None or isinstance(value, bool) != (kind is Family.BOOLEAN):
        raise TypeError("not a value of the type")
    if kind is Family.DECIMAL and isinstance(value, float):
        return Decimal(repr(value))
    if kind is Family.FLOAT and isinstance(value, Decimal):
        return float(value)
    return value
