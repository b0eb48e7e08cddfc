"""The client of a site: checks what comes, asks again when a link fails, and counts bytes.

Whatever is asked can be asked again: a range goes on behind the last number that came, tuples by
number likewise, and a push that was sent before keeps its numbers. So a link that fails is tried
again, with growing pauses, until nothing has come through for `patience` seconds.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.arrow import stretches
from thetastream.errors import OptionError, SiteChangedError, SiteRequestError
from thetastream.transport.addresses import Address
from thetastream.transport.calls import Calls, SiteStream
from thetastream.transport.faults import FailedError, Patience
from thetastream.transport.messages import (
    NUMBER,
    Limits,
    chosen_schema,
    numbered_schema,
    with_numbers,
)
from thetastream.transport.requests import NumbersRequest, PushRequest, RangeRequest

__all__ = ["Pushed", "SiteClient", "SiteStream"]

PUSH_BYTES = 4 * 1024**2
"""Arrow bytes that are pushed, and acknowledged, at a time."""

Answer = TypeVar("Answer")


class Pushed(NamedTuple):
    """Numbers of pushed tuples, and the sequence that the next push of the writer has.

    >>> pushed = ts.Pushed(first=60, rows=40, sequence=2)
    >>> pushed.first + pushed.rows
    100
    """

    first: int
    rows: int
    sequence: int


class SiteClient:
    """Reads from a site, and pushes to it. For one thread at a time.

    >>> ts.SiteClient("grpc://10.0.0.7:8815")
    Traceback (most recent call last):
    ...
    thetastream.errors.OptionError: 10.0.0.7 is another machine: tuples and tokens go there ...
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        tls_roots: bytes | None = None,
        tls_cert: bytes | None = None,
        tls_key: bytes | None = None,
        patience: float = 60.0,
        stall: float = 10.0,
        limits: Limits | None = None,
    ) -> None:
        """`token`: the site's token for reading, or the one for pushing.

        `tls_roots`: certificates (PEM) to trust instead of the system's own. `tls_cert` and
        `tls_key`: the client's own certificate and its key, for a site that asks for one.

        `patience`: seconds after which a link that fails is given up. `stall`: seconds without a
        byte after which a connection counts as dead.
        """
        where = Address.parse(address)
        if (tls_cert is None) != (tls_key is None):
            raise OptionError("a certificate without its key, or the reverse", hint="give both")
        if tls_roots is not None or tls_cert is not None:
            where = replace(where, tls=True)
        if not where.is_loopback and not (where.tls and token):
            raise OptionError(
                f"{where.host} is another machine: tuples and tokens go there encrypted only",
                hint="give an address that begins with grpc+tls://, and a token",
            )
        self.address = where
        self.writer = secrets.token_hex(8)
        """The name under which this client pushes, unless another is given."""
        self._patience = patience
        self._sequence = 0
        self._ids: dict[str, str] = {}
        self._calls = Calls(
            where,
            token=token,
            tls_roots=tls_roots,
            tls_pair=None if tls_cert is None or tls_key is None else (tls_cert, tls_key),
            stall=stall,
            limits=limits or Limits(),
        )

    def close(self) -> None:
        """Close the connection."""
        self._calls.close()

    def __enter__(self) -> SiteClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def bytes_sent(self) -> int:
        """Bytes that went to the site on the wire, so far."""
        return self._calls.sent

    @property
    def bytes_received(self) -> int:
        """Bytes that came from the site on the wire, so far."""
        return self._calls.received

    # -- questions ------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """How the site is doing."""
        return self._until_answered(lambda: self._calls.action("status"))

    def health(self) -> str:
        """What is wrong with the site at the moment; empty if nothing is."""
        return str(self._until_answered(lambda: self._calls.action("health")).get("problem", ""))

    def stream(self, name: str, *, id: str | None = None) -> SiteStream:
        """A stream as it is now; raises SiteChangedError if it is not the one with the id."""
        found = self._until_answered(lambda: self._calls.info(name))
        expected = id or self._ids.setdefault(name, found.id)
        if found.id != expected:
            raise SiteChangedError(
                f"the stream {name!r} of {self.address} has been set up anew",
                hint="its tuples have other numbers now: what was read from it before must be"
                " read again",
            )
        return found

    # -- tuples ---------------------------------------------------------------------------------

    def read(
        self,
        stream: str,
        start: int,
        stop: int,
        *,
        columns: list[str] | None = None,
        where: object = None,
        compression: str | None = "lz4",
        id: str | None = None,
        schema: pa.Schema | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Chosen columns of the tuples from `start` up to `stop` that a filter keeps.

        Their numbers are the first column. Every number of the range has been looked at when this
        ends without an error. Who gives both the stream's `id` and its `schema` saves a question.
        """
        if start == stop:
            return
        schema, id = self._expected(stream, columns, id, schema)
        # Numbers without gaps need not travel, unless there is nothing else.
        numbered = where is not None or columns == []
        expected = schema if numbered else pa.schema(list(schema)[1:])
        patience = Patience(self._patience, self.address)
        at = start
        while at < stop:
            request = RangeRequest(
                stream, at, stop, id, columns, where, compression, numbered=numbered
            )
            try:
                for part, note in self._calls.get(request.to_bytes(), expected, "start", "stop"):
                    if note["start"] != at or not at < note["stop"] <= stop:
                        raise FailedError("the site leaves out tuples", damaged=True)
                    batch = part if numbered else _numbered(part, at, note["stop"])
                    _check_numbers(batch, at, note["stop"])
                    at = note["stop"]
                    patience.progressed()
                    if batch.num_rows:
                        yield batch
                if at < stop:
                    raise FailedError("the answer ends too early", damaged=True)
            except FailedError as error:
                self._pause(patience, error)

    def fetch(
        self,
        stream: str,
        numbers: npt.NDArray[np.int64],
        *,
        columns: list[str] | None = None,
        compression: str | None = "lz4",
        id: str | None = None,
        schema: pa.Schema | None = None,
    ) -> pa.Table:
        """The tuples with these numbers, each once, by ascending number.

        Who gives both the stream's `id` and its `schema` saves a question.
        """
        wanted = np.unique(np.asarray(numbers, dtype=np.int64))
        schema, id = self._expected(stream, columns, id, schema)
        patience = Patience(self._patience, self.address)
        found: list[pa.RecordBatch] = []
        while len(wanted):
            part = wanted[: self._calls.limits.numbers]
            request = NumbersRequest(stream, part, id, columns, compression)
            try:
                for batch, _ in self._calls.get(request.to_bytes(), schema, "rows"):
                    got = batch.column(0).to_numpy(zero_copy_only=False)
                    if not len(got) or not np.array_equal(got, wanted[: len(got)]):
                        raise FailedError("the site answers with other tuples", damaged=True)
                    found.append(batch)
                    wanted, part = wanted[len(got) :], part[len(got) :]
                    patience.progressed()
                if len(part):
                    raise FailedError("the answer ends too early", damaged=True)
            except FailedError as error:
                self._pause(patience, error)
        return pa.Table.from_batches(found, schema)

    def push(
        self,
        stream: str,
        data: pa.Table | pa.RecordBatch,
        *,
        writer: str | None = None,
        sequence: int | None = None,
    ) -> Pushed:
        """Store tuples at the site, each exactly once; durable when this returns.

        A program that may itself be restarted gives a writer's name of its own and a sequence
        that it remembers; pushing the same rows again with the same sequence stores nothing.
        """
        if (writer is None) != (sequence is None):
            raise OptionError("a writer without a sequence, or the reverse", hint="give both")
        place = self._sequence if sequence is None else sequence
        batches = [data] if isinstance(data, pa.RecordBatch) else data.to_batches()
        pieces = [
            batch.slice(start, stop - start)
            for batch in batches
            for start, stop in stretches(batch, PUSH_BYTES)
        ]
        if not pieces:
            raise OptionError("there is nothing to push", hint="give at least one row")
        name = writer or self.writer
        patience = Patience(self._patience, self.address)
        first: int | None = None
        done = 0
        while done < len(pieces):
            request = PushRequest(stream, name, place + done)
            try:
                for number, rows in self._calls.put(request, pieces[done:]):
                    if rows != pieces[done].num_rows:
                        raise FailedError("the site acknowledges other rows", damaged=True)
                    first = number if first is None else first
                    done += 1
                    patience.progressed()
            except FailedError as error:
                self._pause(patience, error)
        if sequence is None:
            self._sequence = place + len(pieces)
        assert first is not None, "every piece has been acknowledged"
        return Pushed(first, sum(piece.num_rows for piece in pieces), place + len(pieces))

    # -- again and again ------------------------------------------------------------------------

    def _expected(
        self, stream: str, columns: list[str] | None, id: str | None, schema: pa.Schema | None
    ) -> tuple[pa.Schema, str]:
        """The schema that answers must have, and the stream's id."""
        if id is not None and schema is not None:
            return numbered_schema(chosen_schema(schema, columns)), id
        info = self.stream(stream, id=id)
        if info.schema is None:
            raise SiteRequestError(f"the stream {stream!r} has no tuples yet", hint="wait")
        return numbered_schema(chosen_schema(info.schema, columns)), info.id

    def _until_answered(self, ask: Callable[[], Answer]) -> Answer:
        patience = Patience(self._patience, self.address)
        while True:
            try:
                return ask()
            except FailedError as error:
                self._pause(patience, error)

    def _pause(self, patience: Patience, error: FailedError) -> None:
        # A connection that has failed is not used again: it may be half open.
        self._calls.cut()
        patience.failed(error)


def _numbered(batch: pa.RecordBatch, start: int, stop: int) -> pa.RecordBatch:
    if batch.num_rows != stop - start:
        raise FailedError("the site leaves out tuples", damaged=True)
    return with_numbers(batch, start)


def _check_numbers(batch: pa.RecordBatch, start: int, stop: int) -> None:
    """The numbers ascend and lie in what the batch is said to cover."""
    numbers = batch.column(NUMBER).to_numpy(zero_copy_only=False)
    if len(numbers) and (
        batch.column(NUMBER).null_count
        or numbers[0] < start
        or numbers[-1] >= stop
        or bool(np.any(np.diff(numbers) <= 0))
    ):
        raise FailedError("the site numbers tuples wrongly", damaged=True)
