"""Names in a predicate: which stream and column each one means."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thetastream.errors import (
    AmbiguousColumnError,
    OptionError,
    UnknownColumnError,
    UnknownStreamError,
)
from thetastream.planner.expression import Column, Expr, columns, quote
from thetastream.spec import ColumnSpec, result_column


@dataclass(frozen=True)
class Part:
    """One identifier of a dotted name, with its place in the text."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Carried:
    """What travels with the tuples of a stream: some of its columns, and expressions over them."""

    columns: frozenset[int] | None = None
    """None for all of them."""
    values: tuple[ColumnSpec, ...] = ()


EVERYTHING = Carried()


class Names:
    """The streams and their columns, and how a predicate may call them."""

    def __init__(
        self, streams: Mapping[str, Sequence[ColumnSpec]], *, case_sensitive: bool
    ) -> None:
        self.streams = tuple(streams)
        folded = Counter(name.casefold() for name in streams)
        alike = [name for name in streams if folded[name.casefold()] > 1]
        if alike and not case_sensitive:
            raise OptionError(
                f"the streams {' and '.join(alike)} have names that differ in case only",
                hint="rename one of them: Spark does not tell such names apart",
            )
        self.columns = tuple(tuple(columns) for columns in streams.values())
        self.carried = tuple(tuple(range(len(columns))) for columns in self.columns)
        """The columns of each stream that results have, by their place in it."""
        self._fold: Callable[[str], str] = str if case_sensitive else str.casefold

    def resolve(self, parts: Sequence[Part], text: str) -> Column:
        """The column that a dotted name means; raises with a caret when there is none."""
        first = parts[0]
        stream = self.stream(first.name)
        own = self.owners(first.name)
        # A struct column may have a stream's name: then `name.field` means the field.
        if len(parts) > 1 and stream is not None:
            found = self._positions(stream, parts[1].name)
            if found or not own:
                return self._column(stream, parts, 1, text)
        if not own and len(parts) > 1:
            raise UnknownStreamError(
                f"there is no stream {first.name!r}",
                **at(text, first),
                hint=suggestion(first.name, self.streams, "the streams are"),
            )
        if not own:
            known = sorted({column.name for columns in self.columns for column in columns})
            raise UnknownColumnError(
                f"no stream has a column {first.name!r}",
                **at(text, first),
                hint=suggestion(first.name, known, "the columns are"),
            )
        if len(own) > 1:
            choices = " or ".join(f"{self.streams[owner]}.{first.name}" for owner in own)
            raise AmbiguousColumnError(
                f"several streams have a column {first.name!r}",
                **at(text, first),
                hint=f"write {choices}",
            )
        return self._column(own[0], parts, 0, text)

    def qualified(self, column: Column) -> str:
        """`stream.column`, for people."""
        spec = self.columns[column.stream][column.index]
        path = (self.streams[column.stream], spec.name, *column.fields)
        return ".".join(name if _plain(name) else quote(name) for name in path)

    def own(self, column: Column) -> str:
        """The name over the stream's own DataFrame, or over the product of several.

        Each DataFrame goes by its stream's name there. A name without that could be taken for a
        field of something else: of a lambda's variable, or of a table that has a column's name.
        """
        spec = self.columns[column.stream][column.index]
        path = (self.streams[column.stream], spec.name, *column.fields)
        return ".".join(quote(name) for name in path)

    def output(self, column: Column) -> str:
        """The name over the columns of a result."""
        head = result_column(column.stream, self.carried[column.stream].index(column.index))
        return ".".join((head, *(quote(name) for name in column.fields)))

    def carry(self, wanted: Sequence[Carried], read: Iterable[Expr]) -> None:
        """Results have the columns that were asked for, and those that some expressions read."""
        places = {(column.stream, column.index) for expr in read for column in columns(expr)}
        self.carried = tuple(
            tuple(
                index
                for index in range(len(self.columns[stream]))
                if mine.columns is None or index in mine.columns or (stream, index) in places
            )
            for stream, mine in enumerate(wanted)
        )

    def position(self, stream: int, name: str) -> int | None:
        """Where the stream has that column."""
        found = self._positions(stream, name)
        return found[0] if len(found) == 1 else None

    def stream(self, name: str) -> int | None:
        """The place of the stream of that name."""
        wanted = self._fold(name)
        found = [i for i, own in enumerate(self.streams) if self._fold(own) == wanted]
        return found[0] if found else None

    def owners(self, name: str) -> list[int]:
        """The streams that have a column of that name."""
        return [i for i in range(len(self.streams)) if self._positions(i, name)]

    def _positions(self, stream: int, name: str) -> list[int]:
        wanted = self._fold(name)
        columns = self.columns[stream]
        return [i for i, column in enumerate(columns) if self._fold(column.name) == wanted]

    def _column(self, stream: int, parts: Sequence[Part], place: int, text: str) -> Column:
        """The column of the stream that the part in that place names; its fields follow."""
        part = parts[place]
        found = self._positions(stream, part.name)
        if not found:
            known = [column.name for column in self.columns[stream]]
            raise UnknownColumnError(
                f"stream {self.streams[stream]!r} has no column {part.name!r}",
                **at(text, part),
                hint=suggestion(part.name, known, "its columns are"),
            )
        if len(found) > 1:
            raise AmbiguousColumnError(
                f"stream {self.streams[stream]!r} has {len(found)} columns {part.name!r}",
                **at(text, part),
                hint="rename one of them before the join",
            )
        return Column(
            stream=stream,
            index=found[0],
            fields=tuple(item.name for item in parts[place + 1 :]),
            start=parts[0].start,
            end=parts[-1].end,
        )


def at(text: str, place: Part | Expr) -> dict[str, Any]:
    """Where in the text an error is, as errors take it."""
    return {"text": text, "start": place.start, "end": place.end}


def suggestion(name: str, known: Sequence[str], otherwise: str) -> str:
    """What may have been meant by a name that is not known."""
    folded = {item.casefold(): item for item in known}
    close = difflib.get_close_matches(name.casefold(), list(folded), n=1)
    if close:
        return f"did you mean {folded[close[0]]!r}?"
    return f"{otherwise} {', '.join(known)}"


def _plain(name: str) -> bool:
    return name.isidentifier() and name.isascii()
