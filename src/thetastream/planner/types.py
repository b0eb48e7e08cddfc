"""What the planner knows about Spark's types: which can drive a join, and how they are encoded.

Types are Spark's short names with the fields of structs in quotes, so that SQL can cast to them.
What takes an analyser (types of expressions, the type that two are compared in) is asked from an
`Analyst`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from thetastream.spec import ColumnSpec, Encoding


class AnalysisFailure(Exception):
    """The SQL engine does not accept an expression; the message says why."""


class Parallelism(NamedTuple):
    """How much runs at a time."""

    tasks: int | None
    """Tasks that the session's cores run at a time; None where nothing says how many."""
    partitions: int
    """Tasks of a shuffle."""


class Analyst(Protocol):
    """What only the SQL engine knows."""

    @property
    def ansi(self) -> bool:
        """Whether overflow raises (`spark.sql.ansi.enabled`)."""

    @property
    def case_sensitive(self) -> bool:
        """Whether names that differ in case only differ."""

    @property
    def parallelism(self) -> Parallelism:
        """What decides the number of units when the options leave it open."""

    @property
    def zone(self) -> str:
        """The session's time zone."""

    def type_over(self, streams: Sequence[str], sql: str) -> str:
        """The type of an expression over the streams' columns; raises AnalysisFailure.

        Columns are written with the stream's name in front.
        """

    def common_type(self, left: str, right: str) -> str | None:
        """The type that the two are compared in; None if they are not."""

    def with_stream(self, name: str, columns: Sequence[ColumnSpec]) -> Analyst:
        """An analyst that also knows a stream with those columns."""


class Family(enum.StrEnum):
    """Types that behave alike."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"
    TIME = "time"
    DAY_TIME = "day-time interval"
    YEAR_MONTH = "year-month interval"
    STRING = "string"
    COLLATED = "collated string"
    BINARY = "binary"
    NESTED = "nested"
    OTHER = "other"


EXACT = frozenset({Family.INTEGER, Family.DECIMAL})
NUMERIC = EXACT | {Family.FLOAT}
DATETIME = frozenset({Family.DATE, Family.TIMESTAMP, Family.TIMESTAMP_NTZ})
EXACT_DECIMAL_DIGITS = 18
"""Decimals up to here fit 64 bits as unscaled values."""

_NAMED = {
    "boolean": Family.BOOLEAN,
    "tinyint": Family.INTEGER,
    "smallint": Family.INTEGER,
    "int": Family.INTEGER,
    "bigint": Family.INTEGER,
    "float": Family.FLOAT,
    "double": Family.FLOAT,
    "date": Family.DATE,
    "timestamp": Family.TIMESTAMP,
    "timestamp_ntz": Family.TIMESTAMP_NTZ,
    "string": Family.STRING,
    "binary": Family.BINARY,
}
_SHAPED = (
    (r"decimal\(\d+,\s*-?\d+\)", Family.DECIMAL),
    (r"time\(\d+\)|time", Family.TIME),
    (r"(char|varchar)\(\d+\)", Family.STRING),
    (r"string collate utf8_binary", Family.STRING),
    (r"(string|char\(\d+\)|varchar\(\d+\)) collate .*", Family.COLLATED),
    (r"interval (day|hour|minute|second)( to (hour|minute|second))?", Family.DAY_TIME),
    (r"interval (year|month)( to month)?", Family.YEAR_MONTH),
    (r"(array|struct)<.*>", Family.NESTED),
)


@dataclass(frozen=True)
class KeyForm:
    """How values of a type become a key."""

    encoding: Encoding
    type: str
    lossless: bool
    """Whether distinct values have distinct keys; if not, comparisons need a re-check."""
    compared: str = ""
    """The type that Spark compares the values in, if that is not the key's."""

    def key_sql(self, sql: str, actual: str) -> str:
        """The key of an expression of type `actual`."""
        found = compared_as(self.compared or self.type, sql, actual)
        return f"CAST({found} AS {self.type})" if self.compared else found


def family(name: str) -> Family:
    """The family of a type."""
    lowered = name.strip().lower()
    if lowered in _NAMED:
        return _NAMED[lowered]
    for pattern, found in _SHAPED:
        if re.fullmatch(pattern, lowered, re.DOTALL):
            return found
    return Family.OTHER


def decimal_size(name: str) -> tuple[int, int]:
    """Precision and scale of a decimal type."""
    precision, scale = re.findall(r"-?\d+", name)
    return int(precision), int(scale)


_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}


def exact_size(name: str) -> tuple[int, int]:
    """Precision and scale that an exact number has as a decimal."""
    if name in _INTEGER_DIGITS:
        return _INTEGER_DIGITS[name], 0
    return decimal_size(name)


def key_form(name: str) -> KeyForm | None:
    """How the type is encoded in 64 bits; None if its order is not that of any encoding."""
    kind = family(name)
    if kind is Family.FLOAT:
        return KeyForm(Encoding.FLOAT, name, True)
    if kind is Family.DECIMAL:
        if decimal_size(name)[0] <= EXACT_DECIMAL_DIGITS:
            return KeyForm(Encoding.DECIMAL, name, True)
        return KeyForm(Encoding.FLOAT, "double", False, compared=name)
    if kind is Family.YEAR_MONTH:
        # Arrow does not have these; as integers they are months, or years if they have no months.
        return KeyForm(Encoding.INTEGER, "int", True, compared=name)
    if kind in (Family.STRING, Family.BINARY):
        return KeyForm(Encoding.PREFIX, name, False)
    if kind in (Family.COLLATED, Family.NESTED, Family.OTHER):
        return None
    return KeyForm(Encoding.INTEGER, name, True)


def compared_as(common: str, sql: str, actual: str) -> str:
    """An expression of type `actual` in the type that Spark compares it in, rounding included.

    A number that does not fit becomes NULL, and its row matches nothing: in Spark's comparison it
    is NULL too, or an error.
    """
    if actual == common:
        return sql
    return f"{'TRY_CAST' if may_overflow(actual, common) else 'CAST'}({sql} AS {common})"


def may_overflow(actual: str, common: str) -> bool:
    """Whether a number may have more digits than the type that it is compared in."""
    if family(common) is not Family.DECIMAL or family(actual) not in EXACT:
        return False
    digits = [precision - scale for precision, scale in map(exact_size, (actual, common))]
    return digits[0] > digits[1]


def comparable(left: str, right: str) -> bool:
    """Whether keys of the two types, brought to their common type, order as Spark orders them."""
    one, two = family(left), family(right)
    if {one, two} & {Family.NESTED, Family.COLLATED}:
        # Fields of other names or types are brought together one by one; of two collations the one
        # that was asked for wins.
        return left == right
    if {one, two} <= NUMERIC or {one, two} <= DATETIME:
        return True
    return one is two and one is not Family.OTHER


def hashable(name: str) -> bool:
    """Whether equal values of the type have equal hashes in Spark."""
    if family(name) is not Family.NESTED:
        return family(name) not in (Family.COLLATED, Family.OTHER)
    # Inside nested values neither -0.0 nor collations can be normalised by an expression.
    return not re.search(r"\b(float|double|collate|map|variant|interval)\b", name.lower())
