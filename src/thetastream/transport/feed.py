"""A site's stream as something to read on and on: offsets are numbers, and so can be read again.

An offset is JSON. It has the number of the next tuple, and the id of the stream that numbered it: a
site that was set up anew gives the same numbers to other tuples.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from time import monotonic
from typing import Any, NamedTuple

import pyarrow as pa

from thetastream.arrow import converted
from thetastream.errors import ForgottenError, SiteChangedError
from thetastream.transport.client import SiteClient
from thetastream.transport.link import Counted, Link, borrowed
from thetastream.transport.messages import NUMBER

WIRE = "_wire"
"""The column of a part's last row, which is a report and no tuple; NULL in all others."""
LEAST_ROWS = 10_000
"""Tuples that are worth a task of their own."""
POLL = 0.25
"""Seconds after which a stream without new tuples is asked again: Spark asks 100 times a second."""

Offset = Mapping[str, Any]


class Part(NamedTuple):
    """A range of numbers for one task, and bytes that were spent on finding it."""

    start: int
    stop: int
    sent: int = 0
    received: int = 0


@dataclass(frozen=True, kw_only=True)
class Feed:
    """What is read of a site's stream."""

    link: Link
    stream: str
    id: str
    schema: pa.Schema
    """All columns of the stream, as the site has them."""
    columns: tuple[str, ...]
    """Those that travel."""
    numbered: bool = False
    """Whether the numbers of tuples are a column beside them."""
    where: object = None
    """A filter that the site evaluates."""
    tasks: int = 1
    """Into how many parts a large range is cut."""

    def __post_init__(self) -> None:
        # The name is what people read in plans and progress; nothing else of the link is shown.
        object.__setattr__(self, "columns", tuple(self.columns))

    def parts(self, start: Offset, end: Offset, spent: tuple[int, int] = (0, 0)) -> list[Part]:
        """The range between two offsets, cut; the same offsets give the same parts."""
        for offset in (start, end):
            if offset["id"] != self.id:
                raise SiteChangedError(
                    f"the stream {self.stream!r} of {self.link.address} has been set up anew",
                    hint="its tuples have other numbers now: start the query with a new checkpoint",
                )
        first, last = int(start["number"]), int(end["number"])
        rows = last - first
        if rows <= 0:
            return []
        count = max(1, min(self.tasks, rows // LEAST_ROWS))
        places = [first + rows * number // count for number in range(count + 1)]
        found = [Part(one, two) for one, two in pairwise(places)]
        found[0] = found[0]._replace(sent=spent[0], received=spent[1])
        return found

    def read(self, part: Part, target: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The tuples of a part with the columns of `target`, then a row that is a report."""
        rows = 0
        with self.naming(), borrowed(self.link) as client:
            counted = Counted(client)
            for batch in client.read(
                self.stream,
                part.start,
                part.stop,
                columns=list(self.columns),
                where=self.where,
                id=self.id,
                schema=self.schema,
            ):
                rows += batch.num_rows
                if not self.numbered:
                    batch = batch.drop_columns([NUMBER])
                empty = pa.nulls(batch.num_rows, pa.string())
                yield converted(batch.append_column(WIRE, empty), target)
            report = wire_report(
                self,
                "read",
                rows=rows,
                sent=part.sent + counted.sent,
                received=part.received + counted.received,
            )
        yield report_row(report, target)

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Says whose tuples are gone, where a site only says which."""
        try:
            yield
        except ForgottenError as error:
            raise ForgottenError(
                f"the site {self.link.address} no longer has tuples of {self.stream!r} that the"
                " query needs",
                detail=f"  {error.what}",
                hint=error.hint,
            ) from None


class Follower:
    """Knows how far a stream has come; for the one process that plans batches."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self._client: SiteClient | None = None
        self._counted: Counted | None = None
        self._asked = 0.0
        self._next = 0

    def initial(self) -> dict[str, Any]:
        """The first tuple that the site still has."""
        return self._offset(self._known(fresh=True).first)

    def latest(self, start: Offset, most_rows: int | None) -> dict[str, Any]:
        """The end of the next batch, which begins at `start`."""
        begin = int(start["number"])
        if self._next <= begin and monotonic() - self._asked < POLL:
            return dict(start)
        if self._next <= begin:
            info = self._known(fresh=True)
            if begin < info.first:
                raise ForgottenError(
                    f"the site {self.feed.link.address} no longer has the tuples of"
                    f" {self.feed.stream!r} from number {begin} on",
                    detail=f"  its first one is {info.first}",
                    hint="keep them longer (retain in the site's file), and start the query with a"
                    " new checkpoint",
                )
        end = max(begin, self._next)
        return self._offset(end if most_rows is None else min(end, begin + most_rows))

    def end(self) -> dict[str, Any]:
        """Behind the last tuple that the site has now."""
        return self._offset(self._known(fresh=True).next)

    def parts(self, start: Offset, end: Offset) -> list[Part]:
        """The parts of a batch; the first bears what was spent on finding out how far it goes."""
        spent = (0, 0)
        if self._client is not None and self._counted is not None:
            spent = self._counted.sent, self._counted.received
            self._counted = Counted(self._client)
        return self.feed.parts(start, end, spent)

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _known(self, *, fresh: bool) -> Any:
        if self._client is None:
            self._client = self.feed.link.connect()
            self._counted = Counted(self._client)
        found = self._client.stream(self.feed.stream, id=self.feed.id)
        self._asked, self._next = monotonic(), found.next
        return found

    def _offset(self, number: int) -> dict[str, Any]:
        return {"id": self.feed.id, "number": number}


def wire_report(feed: Feed, what: str, **numbers: int) -> str:
    """What went over the wire, as it travels to whoever shows it."""
    return json.dumps({"site": feed.link.address, "stream": feed.stream, "what": what, **numbers})


def report_row(report: str, target: pa.Schema) -> pa.RecordBatch:
    """A batch of one row that has nothing but a report."""
    arrays = [
        pa.array([report], pa.string()) if one.name == WIRE else pa.nulls(1, one.type)
        for one in target
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=target)
