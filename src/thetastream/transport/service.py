"""The Arrow Flight server of a site.

| call | what it does |
|---|---|
| DoGet with a `RangeRequest` | chosen columns of a range of numbers |
| DoGet with a `NumbersRequest` | tuples by number |
| DoPut with a `PushRequest` | takes tuples in; each batch is acknowledged when it is durable |
| DoAction `status`, `health` | JSON |

Beside each batch travels a note: its CRC-32, and of a range which numbers it covers.
"""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from thetastream.errors import SiteDataError, SiteError, SiteRequestError
from thetastream.transport.addresses import Address
from thetastream.transport.excerpts import Piece
from thetastream.transport.filters import Filter
from thetastream.transport.log import Log
from thetastream.transport.messages import (
    checksum,
    chosen_schema,
    numbered_schema,
    without_numbers,
)
from thetastream.transport.requests import (
    ERRORS,
    NumbersRequest,
    RangeRequest,
    parse_note,
    parse_push,
    parse_ticket,
    to_note,
)
from thetastream.transport.site import Site

ACTIONS = {"status": "how the site is doing", "health": "whether it works"}


class SiteService(flight.FlightServerBase):  # type: ignore[misc]
    """Serves a site; it listens as soon as it is made."""

    def __init__(self, site: Site) -> None:
        config = site.config
        self._site = site
        self._limits = config.limits
        certificates = []
        if config.tls_cert is not None:
            certificates = [(config.tls_cert, config.tls_key)]
        super().__init__(
            str(config.address),
            tls_certificates=certificates,
            middleware={"gate": _Gate(config.token, config.limits.requests)},
        )

    @property
    def address(self) -> Address:
        """Where it listens: the system chooses the port if the file says 0."""
        return replace(self._site.config.address, port=self.port)

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.GeneratorStream:
        """Answer a request for tuples."""
        with _naming_errors():
            limits = self._limits
            request = parse_ticket(
                ticket.ticket, limit=limits.request_bytes, numbers=limits.numbers
            )
            log = self._site.log(request.stream, request.id)
            if log.schema is None:
                raise SiteRequestError(
                    f"the stream {request.stream!r} has no tuples yet", hint="wait for the first"
                )
            schema = chosen_schema(log.schema, request.columns)
            if isinstance(request, RangeRequest):
                batches = _range(log, request)
            else:
                batches = _numbers(log, request)
            options = pa.ipc.IpcWriteOptions(compression=request.compression)
            if not isinstance(request, RangeRequest) or request.numbered:
                schema = numbered_schema(schema)
            return flight.GeneratorStream(schema, _named(batches), options=options)

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Take tuples in; a batch is acknowledged by its first number and its rows."""
        with _naming_errors(again=True):
            request = parse_push(descriptor.command or b"", limit=self._limits.request_bytes)
            self._site.log(request.stream)
            sequence = request.sequence
            while (chunk := _next_chunk(reader)) is not None:
                if chunk.data is None:
                    continue
                crc = None
                if chunk.app_metadata is not None:
                    crc = parse_note(chunk.app_metadata.to_pybytes(), "crc")["crc"]
                first, rows = self._site.push(
                    request.stream, chunk.data, crc=crc, writer=request.writer, sequence=sequence
                )
                sequence += 1
                writer.write(pa.py_buffer(to_note(first=first, rows=rows)))

    def do_action(
        self, context: flight.ServerCallContext, action: flight.Action
    ) -> Iterator[bytes]:
        """Answer a question about the site."""
        with _naming_errors():
            if action.type not in ACTIONS:
                raise SiteRequestError(
                    f"there is no action {str(action.type)[:40]!r}",
                    hint=f"the actions are {', '.join(ACTIONS)}",
                )
            if action.type == "health":
                found: dict[str, Any] = {"problem": self._site.problem()}
            else:
                found = self._site.status()
            return iter([json.dumps(found).encode()])

    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        """The questions that are answered."""
        return list(ACTIONS.items())


def _next_chunk(reader: flight.MetadataRecordBatchReader) -> Any:
    """The next batch of a push; None after the last."""
    try:
        return reader.read_chunk()
    except StopIteration:
        return None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowMemoryError) as error:
        raise SiteDataError(
            "bytes are not a batch of Arrow's",
            detail=f"  {type(error).__name__}",
            hint="send them again",
        ) from None


def _range(log: Log, request: RangeRequest) -> Iterator[tuple[pa.RecordBatch, pa.Buffer]]:
    assert log.schema is not None
    where = None if request.where is None else Filter(request.where, log.schema)
    # Here and not in the generator: what is wrong is said before the answer begins.
    pieces = log.read(request.start, request.stop, columns=request.columns, where=where)
    return _with_notes(pieces, numbered=request.numbered)


def _with_notes(
    pieces: Iterator[Piece], *, numbered: bool
) -> Iterator[tuple[pa.RecordBatch, pa.Buffer]]:
    for piece in pieces:
        batch = piece.batch if numbered else without_numbers(piece.batch)
        note = to_note(start=piece.start, stop=piece.stop, crc=checksum(batch))
        yield batch, pa.py_buffer(note)


def _numbers(log: Log, request: NumbersRequest) -> Iterator[tuple[pa.RecordBatch, pa.Buffer]]:
    batches = log.fetch(request.numbers, columns=request.columns)
    return (
        (batch, pa.py_buffer(to_note(rows=batch.num_rows, crc=checksum(batch))))
        for batch in batches
        if batch.num_rows
    )


def _named(batches: Iterator[Any]) -> Iterator[Any]:
    with _naming_errors():
        yield from batches


class _naming_errors:
    """Sends an error of the site's by its name, so that the client can raise the same one."""

    def __init__(self, *, again: bool = False) -> None:
        """`again`: damaged bytes came from the client, which may send them again."""
        self._again = again

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SiteError):
            name = next(name for name, kind in ERRORS.items() if isinstance(error, kind))
            again = name == "site" or (name == "data" and self._again)
            about = {
                "kind": name,
                "what": error.what,
                "detail": error.detail,
                "hint": error.hint,
                "again": again,
            }
            raise flight.FlightServerError(
                error.what, extra_info=json.dumps(about).encode()
            ) from None
        if isinstance(error, OSError) and not isinstance(error, flight.FlightError):
            raise flight.FlightUnavailableError(f"{error.strerror}") from None


class _Gate(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets in who has the token, and so many at a time."""

    def __init__(self, token: str | None, most: int) -> None:
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._most = most
        self._inside = 0
        self._lock = threading.Lock()

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str]]) -> _Visit:
        """Called before anything of a request is read."""
        if self._expected is not None:
            given = next(
                (values for name, values in headers.items() if name.lower() == "authorization"),
                [],
            )
            text = str(given[0]).encode() if len(given) == 1 else b""
            if not hmac.compare_digest(text, self._expected):
                raise flight.FlightUnauthenticatedError("the token is missing or wrong")
        with self._lock:
            if self._inside >= self._most:
                raise flight.FlightUnavailableError("the site answers too many requests already")
            self._inside += 1
        return _Visit(self._leave)

    def _leave(self) -> None:
        with self._lock:
            self._inside -= 1


class _Visit(flight.ServerMiddleware):  # type: ignore[misc]
    """One request that was let in."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave

    def call_completed(self, exception: BaseException | None) -> None:
        """Called when the answer has been sent, or could not be."""
        self._leave()
