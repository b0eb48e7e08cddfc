"""A unit's view in place of its results: made of each batch, sent now or every few batches."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from thetastream import arrow
from thetastream.engine.consumers import Consumer
from thetastream.engine.consumers.listing import Listing, take_limit
from thetastream.engine.consumers.totals import Totals
from thetastream.engine.consumers.view import View
from thetastream.engine.indexes import put_part
from thetastream.engine.manifest import Manifest
from thetastream.engine.protocol import DropPart, Instruction, Report, StateReader
from thetastream.index.part import Part, PartMeta, Tuples
from thetastream.index.probe import Found
from thetastream.spec import JoinSpec, Meeting, ViewSpec


class KeptView:
    """A view that was not sent yet: a part like any other."""

    pairs = 0
    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def nbytes(self) -> int:
        """Arrow bytes."""
        return int(self.rows.nbytes)

    def to_bytes(self, *, compress: bool = False) -> pa.Buffer:
        """The view as it is stored."""
        return arrow.to_bytes(self.rows, compress=compress)


class _Views:
    what = "a view"

    def decode(self, data: pa.Buffer | bytes) -> KeptView:
        return KeptView(arrow.from_bytes(data))


class Viewing(Consumer):
    """Aggregates of the pairs leave the unit in place of them."""

    def __init__(
        self,
        spec: JoinSpec,
        view: ViewSpec,
        number: int,
        manifest: Manifest,
        reader: StateReader,
        report: Report,
        chunk_rows: int,
    ) -> None:
        self._totals = Totals(spec, view)
        self._view = View(spec, view, self._totals)
        self._every = view.every
        self._number = number
        self._manifest = manifest
        self._reader = reader
        self._report = report
        self._chunk_rows = chunk_rows
        self._out = Listing(spec, report, chunk_rows)

    def take(
        self, meeting: Meeting, tuples: Tuples, part: Part, found: Found
    ) -> Iterator[Instruction]:
        """The pairs are folded into the view."""
        limit = take_limit(self._chunk_rows, tuples, part)
        self._report.results += self._view.add(meeting.new, tuples, part, found, limit)
        spilled = self._totals.spilled()
        if spilled is not None:
            yield from self._out.put(spilled)

    def finish(self) -> Iterator[Instruction]:
        """The view leaves, or is kept until enough batches are in it."""
        manifest, old = self._manifest, self._manifest.pending
        due = manifest.sequence % self._every == 0
        if due or self._totals:
            if old is not None:
                kept = self._reader.part(old, _Views())
                if not isinstance(kept, KeptView):
                    raise TypeError("only views are kept as such")
                self._totals.take_back(kept.rows)
                manifest.pending = None
                yield DropPart(old)
            rows = self._totals.rows()
            if rows is not None and due:
                yield from self._out.put(rows)
            elif rows is not None:
                # The indexes' parts have the numbers of their indexes here.
                name = f"{manifest.sequence}-{self._number}-ff"
                empty = PartMeta(id=name, rows=rows.num_rows, bytes=0, low=(), high=())
                put = put_part(empty, KeptView(rows))
                manifest.pending = put.meta
                yield put
        yield from self._out.finish()
