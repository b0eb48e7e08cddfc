"""The columns that go in and the columns that come out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, UserDefinedType

from thetastream.errors import OptionError, UnsupportedColumnError
from thetastream.planner.expression import quote
from thetastream.spec import ColumnSpec


class Output(NamedTuple):
    """A column of the result: which column of which stream, under what name."""

    stream: int
    number: int
    name: str


def column_specs(name: str, frame: DataFrame) -> list[ColumnSpec]:
    """A stream's columns; those that cannot travel are refused."""
    repeated = [column for column, times in Counter(frame.columns).items() if times > 1]
    if repeated:
        raise UnsupportedColumnError(
            f"stream {name!r} has more than one column {repeated[0]!r}",
            hint="rename or drop one of them first",
        )
    specs = []
    for field in frame.schema.fields:
        try:
            to_arrow_type(field.dataType, timezone="UTC")
        except (PySparkException, TypeError) as error:
            raise UnsupportedColumnError(
                f"column {field.name!r} of stream {name!r} is a"
                f" {field.dataType.simpleString()}, which Spark cannot send to its Python workers",
                hint="drop the column, or cast it to another type",
            ) from error
        specs.append(ColumnSpec(name=field.name, type=type_text(field.dataType)))
    return specs


def type_text(kind: DataType) -> str:
    """The type as Spark's SQL writes it: its short name, with the names of fields in quotes."""
    match kind:
        case StructType(fields=fields):
            inner = (f"{quote(field.name)}:{type_text(field.dataType)}" for field in fields)
            return f"struct<{','.join(inner)}>"
        case ArrayType(elementType=element):
            return f"array<{type_text(element)}>"
        case MapType(keyType=key, valueType=value):
            return f"map<{type_text(key)},{type_text(value)}>"
        case UserDefinedType():
            # Only the type that it is stored as has a name in SQL.
            return type_text(kind.sqlType())
        case _:
            return kind.simpleString()


def output_columns(frames: Mapping[str, DataFrame]) -> list[Output]:
    """All columns in order; a name that two streams have gets its stream's name in front."""
    times = Counter(column.lower() for frame in frames.values() for column in frame.columns)
    output = [
        Output(stream, number, column if times[column.lower()] == 1 else f"{name}_{column}")
        for stream, (name, frame) in enumerate(frames.items())
        for number, column in enumerate(frame.columns)
    ]
    taken = Counter(column.name.lower() for column in output)
    clash = [column.name for column in output if taken[column.name.lower()] > 1]
    if clash:
        raise OptionError(
            f"two columns of the result would be called {clash[0]!r}",
            hint="rename one of them in its stream first",
        )
    return output
