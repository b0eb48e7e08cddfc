"""Messages of JSON as rows of a stream: the columns that a text declares, and the values for them.

Nothing is guessed. A value that its column cannot hold exactly as it was written makes the message
unreadable, and so does a message without the event time. Errors name the column and never the
value, which may be private.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

import pyarrow as pa

from thetastream.errors import OptionError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_LOCAL = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_DAY = timedelta(days=1)
_INT64 = 2**63
_COLUMN = re.compile(r"\s*(?:`([^`]+)`|([^\s,`():<>]+))\s+([a-zA-Z_]\w*)\s*(\([\d\s,]*\))?\s*(,|$)")
_MAX_DIGITS = 38


class Unreadable(ValueError):
    """A message that is not a row of the stream; says why, without the message's content."""


Convert = Callable[[Any], Any]


class JsonRows:
    """Turns messages into rows of a schema."""

    def __init__(self, columns: str, time: str) -> None:
        """The columns as in `at timestamp, zone int`; raises OptionError for what is wrong."""
        self._columns = _parse(columns)
        self._time = time
        self.schema = pa.schema([(name, kind) for name, kind, _ in self._columns])
        if time not in self.schema.names or not pa.types.is_timestamp(self.schema.field(time).type):
            raise OptionError(
                f"the schema has no timestamp {time!r}, which is the stream's time",
                hint=f'add "{time} timestamp" to the schema',
            )
        # A decimal must not pass through a binary fraction.
        exact = any(pa.types.is_decimal(kind) for kind in self.schema.types)
        self._decoder = json.JSONDecoder(
            parse_float=Decimal if exact else None, parse_constant=_no_constant
        )

    def row(self, message: bytes | None) -> list[Any]:
        """The values of a message, in the order of the columns; raises Unreadable."""
        if message is None:
            raise Unreadable("it has no value")
        try:
            found = self._decoder.decode(message.decode("utf-8"))
        except UnicodeDecodeError:
            raise Unreadable("it is not UTF-8") from None
        except (ValueError, RecursionError, InvalidOperation):
            raise Unreadable("it is not JSON") from None
        if not isinstance(found, dict):
            raise Unreadable("it is not one JSON object")
        values = []
        for name, _, convert in self._columns:
            value = found.get(name)
            if value is not None:
                try:
                    value = convert(value)
                except (ValueError, ArithmeticError, TypeError) as error:
                    why = str(error) if isinstance(error, Unreadable) else "out of range"
                    raise Unreadable(f"its {name!r} is {why}") from None
            elif name == self._time:
                raise Unreadable(f"it has no {name!r}, which is the stream's time")
            values.append(value)
        return values

    def batch(self, rows: list[list[Any]]) -> pa.RecordBatch:
        """Rows that `row` has made, as one batch."""
        if not rows:
            return pa.RecordBatch.from_pylist([], schema=self.schema)
        arrays = []
        for values, kind in zip(zip(*rows, strict=True), self.schema.types, strict=True):
            if pa.types.is_timestamp(kind):
                arrays.append(pa.array(values, pa.int64()).cast(kind))
            elif pa.types.is_date32(kind):
                arrays.append(pa.array(values, pa.int32()).cast(kind))
            else:
                arrays.append(pa.array(values, kind))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


# -- the columns ----------------------------------------------------------------------------------


def _parse(text: str) -> list[tuple[str, pa.DataType, Convert]]:
    columns: list[tuple[str, pa.DataType, Convert]] = []
    place = 0
    while place < len(text) or not columns:
        found = _COLUMN.match(text, place)
        if found is None:
            raise OptionError(
                f"the schema cannot be read at {text[place : place + 40].strip()!r}",
                hint='write columns and types, as in schema = "at timestamp, zone int"',
            )
        name = found[1] or found[2]
        if any(name == other for other, _, _ in columns):
            raise OptionError(f"two columns are called {name!r}", hint="rename one of them")
        columns.append((name, *_type(name, found[3].lower(), found[4])))
        place = found.end()
        if found[5] == "," and not text[place:].strip():
            raise OptionError("the schema ends with a comma", hint="take it away")
    return columns


def _type(column: str, name: str, arguments: str | None) -> tuple[pa.DataType, Convert]:
    if name in ("decimal", "numeric"):
        return _decimal(column, arguments)
    known = _TYPES.get(name)
    if known is None or arguments:
        raise OptionError(
            f"column {column!r} has the type {name}{arguments or ''}, which messages cannot have",
            hint=f"use one of {', '.join(_TYPES)}, decimal(10, 2)",
        )
    return known


def _decimal(column: str, arguments: str | None) -> tuple[pa.DataType, Convert]:
    numbers = [int(one) for one in re.findall(r"\d+", arguments or "(10, 0)")]
    digits, scale = (*numbers, 0) if len(numbers) == 1 else (*numbers, 0, 0)[:2]
    if not 0 < digits <= _MAX_DIGITS or scale > digits or len(numbers) > 2:
        raise OptionError(
            f"column {column!r} has the type decimal{arguments}",
            hint=f"write decimal(10, 2): at most {_MAX_DIGITS} digits, and how many are behind the"
            " point",
        )

    def convert(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
            raise Unreadable("not a number")
        number = Decimal(value)
        if not number.is_finite():
            raise Unreadable("not a number")
        sign, shown, exponent = number.as_tuple()
        assert isinstance(exponent, int)
        # By its digits: arithmetic would round what is longer than the context's precision.
        text = "".join(map(str, shown)).lstrip("0")
        kept = text.rstrip("0")
        exponent += len(text) - len(kept)
        if not kept:
            return Decimal(0)
        if -exponent > scale or len(kept) + exponent > digits - scale:
            raise Unreadable(f"not a decimal({digits}, {scale})")
        whole = kept + "0" * (scale + exponent)
        return Decimal((sign, tuple(map(int, whole)), -scale))

    return pa.decimal128(digits, scale), convert


# -- the values -----------------------------------------------------------------------------------


def _no_constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


def _whole(bits: int) -> Convert:
    bound = 2 ** (bits - 1)

    def convert(value: Any) -> int:
        if type(value) is not int:
            raise Unreadable("not a whole number")
        if not -bound <= value < bound:
            raise Unreadable(f"not a whole number of {bits} bits")
        return value

    return convert


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise Unreadable("not a number")
    number = float(value)
    if not math.isfinite(number):
        raise Unreadable("out of range")
    return number


def _float(value: Any) -> float:
    number = _double(value)
    struct.pack("<f", number)  # Raises OverflowError for what a float cannot hold.
    return number


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Unreadable("not true or false")
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise Unreadable("not a text")
    try:
        value.isascii() or value.encode()
    except UnicodeEncodeError:
        raise Unreadable("not a text of whole characters") from None
    return value


def _binary(value: Any) -> bytes:
    if not isinstance(value, str):
        raise Unreadable("not a text in base64")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Unreadable("not a text in base64") from None


def _date(value: Any) -> int:
    try:
        return (date.fromisoformat(value) - _EPOCH.date()) // _DAY
    except (ValueError, TypeError):
        raise Unreadable("not a date as in 2026-01-31") from None


def _moment(value: Any) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except (ValueError, TypeError):
        raise Unreadable("not a time as in 2026-01-31T12:00:00Z") from None


def _timestamp(value: Any) -> int:
    moment = _moment(value)
    if moment.tzinfo is None:
        raise Unreadable("a time without its zone, as Z or +01:00")
    return (moment - _EPOCH) // _MICROSECOND


def _timestamp_ntz(value: Any) -> int:
    moment = _moment(value)
    if moment.tzinfo is not None:
        raise Unreadable("a time with a zone, and the column has none")
    return (moment - _EPOCH_LOCAL) // _MICROSECOND


def _since_1970(microseconds: int) -> Convert:
    def convert(value: Any) -> int:
        if type(value) is not int:
            raise Unreadable("not a whole number")
        if not -_INT64 <= value * microseconds < _INT64:
            raise Unreadable("out of range")
        return value * microseconds

    return convert


_INSTANT = pa.timestamp("us", tz="UTC")
_TYPES: dict[str, tuple[pa.DataType, Convert]] = {
    "boolean": (pa.bool_(), _boolean),
    "tinyint": (pa.int8(), _whole(8)),
    "smallint": (pa.int16(), _whole(16)),
    "int": (pa.int32(), _whole(32)),
    "bigint": (pa.int64(), _whole(64)),
    "float": (pa.float32(), _float),
    "double": (pa.float64(), _double),
    "string": (pa.string(), _string),
    "binary": (pa.binary(), _binary),
    "date": (pa.date32(), _date),
    "timestamp": (_INSTANT, _timestamp),
    "timestamp_ntz": (pa.timestamp("us"), _timestamp_ntz),
    "timestamp_s": (_INSTANT, _since_1970(1_000_000)),
    "timestamp_ms": (_INSTANT, _since_1970(1_000)),
    "timestamp_us": (_INSTANT, _since_1970(1)),
}
"""The names of Spark's SQL; those with a unit are numbers of such units since 1970."""
