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
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import pyarrow as pa

from thetastream.arrow import converted
from thetastream.errors import ForgottenError, SiteChangedError
from thetastream.transport.access import Access, Counted, borrowed
from thetastream.transport.client import SiteClient, SiteStream
from thetastream.transport.messages import NUMBER

WIRE = "_wire"
"""The column of a part's last row, which is a report and no tuple; NULL in all others."""
LEAST_ROWS = 10_000
"""Tuples that are worth a task of their own."""
MOST_ROWS = 1_000_000
"""Tuples of a batch, unless another number is given: what gathered while a query or a site stood
still must not come all at once."""
POLL = 0.25
"""Seconds after which a stream without new tuples is asked again: Spark asks 100 times a second."""

WHOLE, PARTIAL = "whole", "partial"
"""What the file of a choice says."""

Offset = Mapping[str, Any]


class Part(NamedTuple):
    """A range of numbers for one task, and bytes that were spent on finding it."""

    start: int
    stop: int
    whole: bool = False
    """Whether the rest of the columns comes as well."""
    sent: int = 0
    received: int = 0


@dataclass(frozen=True, kw_only=True)
class Feed:
    """What is read of a site's stream."""

    access: Access
    stream: str
    id: str
    schema: pa.Schema
    """All columns of the stream, as the site has them."""
    columns: tuple[str, ...]
    """Those that travel."""
    rest: tuple[str, ...] = ()
    """Those that travel in some batches only."""
    whole: bool = False
    """Whether they do, as long as nobody has chosen otherwise."""
    choice: str | None = None
    """A file beside the process that plans batches, with what was chosen last."""
    token: str = ""
    """By which reports are told apart."""
    numbered: bool = False
    """Whether the numbers of tuples are a column beside them."""
    where: object = None
    """A filter that the site evaluates."""
    tasks: int = 1
    """Into how many parts a large range is cut."""
    most_rows: int | None = MOST_ROWS
    """Tuples of a batch, unless Spark asks for all at once; None for all there are."""

    def parts(self, start: Offset, end: Offset, spent: tuple[int, int] = (0, 0)) -> list[Part]:
        """The range between two offsets, cut; the same offsets give the same parts."""
        for offset in (start, end):
            if offset["id"] != self.id:
                raise SiteChangedError(
                    f"the stream {self.stream!r} of {self.access.address} has been set up anew",
                    hint="its tuples have other numbers now: start the query with a new checkpoint",
                )
        first, last = int(start["number"]), int(end["number"])
        rows = last - first
        if rows <= 0:
            return []
        count = max(1, min(self.tasks, rows // LEAST_ROWS))
        places = [first + rows * number // count for number in range(count + 1)]
        whole = bool(self.rest) and bool(end.get("whole"))
        found = [Part(one, two, whole) for one, two in pairwise(places)]
        found[0] = found[0]._replace(sent=spent[0], received=spent[1])
        return found

    def read(self, part: Part, target: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The tuples of a part with the columns of `target`, then a row that is a report."""
        rows, seconds = 0, 0.0
        columns = [*self.columns, *(self.rest if part.whole else ())]
        with self.naming(), borrowed(self.access) as client:
            counted = Counted(client)
            batches = client.read(
                self.stream,
                part.start,
                part.stop,
                columns=columns,
                where=self.where,
                id=self.id,
                schema=self.schema,
            )
            while True:
                # Only what the link takes: not what is done with a batch before the next.
                began = monotonic()
                batch = next(batches, None)
                seconds += monotonic() - began
                if batch is None:
                    break
                rows += batch.num_rows
                empty = pa.nulls(batch.num_rows, pa.string())
                yield converted(
                    self._marked(batch, whole=part.whole).append_column(WIRE, empty), target
                )
            report = wire_report(
                self,
                "read",
                rows=rows,
                sent=part.sent + counted.sent,
                received=part.received + counted.received,
                whole=part.whole or not self.numbered,
                seconds=round(seconds, 6),
            )
        yield report_row(report, target)

    def _marked(self, batch: pa.RecordBatch, *, whole: bool) -> pa.RecordBatch:
        """The batch with numbers that say whether its tuples lack something."""
        if not self.numbered:
            return batch.drop_columns([NUMBER])
        if not whole:
            return batch
        numbers = pa.array(-1 - batch.column(0).to_numpy(zero_copy_only=False))
        return batch.set_column(0, batch.schema.field(0), numbers)

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Says whose tuples are gone, where a site only says which."""
        try:
            yield
        except ForgottenError as error:
            raise ForgottenError(
                f"the site {self.access.address} no longer has tuples of {self.stream!r} that the"
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
        return self._offset(self._known().first)

    def latest(self, start: Offset, most_rows: int | None) -> dict[str, Any]:
        """The end of the next batch, which begins at `start`."""
        begin = int(start["number"])
        if self._next == begin and monotonic() - self._asked < POLL:
            return dict(start)
        if self._next <= begin:
            info = self._known()
            if begin < info.first:
                raise ForgottenError(
                    f"the site {self.feed.access.address} no longer has the tuples of"
                    f" {self.feed.stream!r} from number {begin} on",
                    detail=f"  its first one is {info.first}",
                    hint="keep them longer (retain in the site's file), and start the query with a"
                    " new checkpoint",
                )
            if info.next < begin:
                raise SiteChangedError(
                    f"the site {self.feed.access.address} has lost tuples of {self.feed.stream!r}"
                    " that were read before",
                    detail=f"  the next number is {info.next}, and {begin} tuples are known",
                    hint="restore the site's folder, or start the query with a new checkpoint",
                )
        end = self._next if most_rows is None else min(self._next, begin + most_rows)
        if end <= begin:
            # As it was: another choice alone is no reason for a batch.
            return dict(start)
        found = self._offset(end)
        if self.feed.rest:
            # Part of the offset, so that a batch that runs again reads the same columns.
            found["whole"] = self._whole()
        return found

    def end(self) -> dict[str, Any]:
        """Behind the last tuple that the site has now."""
        return self._offset(self._known().next)

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

    def _whole(self) -> bool:
        if self.feed.choice is None:
            return self.feed.whole
        try:
            return Path(self.feed.choice).read_text() == WHOLE
        except OSError:
            # The planning process may be on another machine than the one that chooses.
            return self.feed.whole

    def _known(self) -> SiteStream:
        if self._client is None:
            self._client = self.feed.access.connect()
            self._counted = Counted(self._client)
        found = self._client.stream(self.feed.stream, id=self.feed.id)
        self._asked, self._next = monotonic(), found.next
        return found

    def _offset(self, number: int) -> dict[str, Any]:
        return {"id": self.feed.id, "number": number}


def wire_report(feed: Feed, what: str, **numbers: float) -> str:
    """What went over the wire, as it travels to whoever shows it."""
    about = {"site": feed.access.address, "stream": feed.stream, "what": what, "token": feed.token}
    return json.dumps(about | numbers)


def report_row(report: str, target: pa.Schema) -> pa.RecordBatch:
    """A batch of one row that has nothing but a report."""
    arrays = [
        pa.array([report], pa.string()) if one.name == WIRE else pa.nulls(1, one.type)
        for one in target
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=target)
