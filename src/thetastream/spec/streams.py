"""The inputs of a join: what each carries, which of its rows can match, which keys it has."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from thetastream.errors import OptionError
from thetastream.spec.columns import carried_column, derived_key


class Encoding(enum.StrEnum):
    """How a key column becomes order-preserving 64-bit integers."""

    INTEGER = "integer"
    """Booleans, integers, dates, timestamps, intervals: the value itself."""
    FLOAT = "float"
    """Floats: NaN equals itself and is larger than all, -0.0 equals 0.0."""
    FLOAT_NAN_LOW = "float_nan_low"
    """As FLOAT with NaN below everything: the subtracted side of a one-sided difference."""
    DECIMAL = "decimal"
    """Decimals of at most 18 digits: the unscaled value."""
    PREFIX = "prefix"
    """Strings and binaries: the first eight bytes. Lossy, so the comparison is re-checked."""

    @property
    def floating(self) -> bool:
        """Whether keys are encoded floats."""
        return self in (Encoding.FLOAT, Encoding.FLOAT_NAN_LOW)


@dataclass(frozen=True, kw_only=True)
class ColumnSpec:
    """A column of a stream that results carry."""

    name: str
    type: str
    sql: str | None = None
    """The expression over the stream's own columns that it holds; None for one of these."""


@dataclass(frozen=True, kw_only=True)
class KeySpec:
    """One side of a comparison: an expression over one stream, and how it is encoded."""

    sql: str
    type: str
    encoding: Encoding
    column: str | None = None
    """The stream's own column when the expression is nothing but that: then nothing is derived."""
    of: tuple[str, ...] = ()
    """The stream's own columns that a hash is made of, for reports."""


@dataclass(frozen=True, kw_only=True)
class StreamSpec:
    """One input: what it carries, which rows of it can match, which keys it has."""

    name: str
    columns: tuple[ColumnSpec, ...]
    keys: tuple[KeySpec, ...]
    filter_sql: str | None = None
    """One-sided conjuncts, evaluated before anything travels."""
    time: int | None = None
    """The key that is the event time in microseconds; None in a full-history join."""
    is_join_result: bool = False
    """Whether its tuples are results of another join: then none of them is late."""
    latest: int | None = None
    """The key that is the time of their newest member, where that is not the event time."""
    delay: int | None = None
    """How many milliseconds its own watermark trails its newest tuple, for reports."""

    def __post_init__(self) -> None:
        for what, place in (("time", self.time), ("latest time", self.latest)):
            if place is not None and not 0 <= place < len(self.keys):
                raise OptionError(f"the {what} of stream {self.name!r} is not one of its keys")
        for number in range(len(self.keys)):
            self.key_column(number)

    @property
    def newest(self) -> int | None:
        """The key that is the newest time in a tuple."""
        return self.time if self.latest is None else self.latest

    def key_column(self, number: int) -> str:
        """The name of the column that holds a key: a carried one, or a derived one."""
        key = self.keys[number]
        if key.column is None:
            return derived_key(number)
        for place, column in enumerate(self.columns):
            if column.sql is None and column.name == key.column:
                return carried_column(place)
        raise OptionError(f"the key {key.column!r} of stream {self.name!r} is not carried")
