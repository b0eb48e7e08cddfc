"""The Arrow Flight server of a site.

| call | what it does |
|---|---|
| DoGet with a `RangeRequest` | chosen columns of a range of numbers |
| DoGet with a `NumbersRequest` | tuples by number |
| DoPut with a `PushRequest` | takes tuples in; each batch is acknowledged when it is durable |
| DoAction `status`, `health` | JSON |

Beside each batch that is read travels a note: its CRC-32, and of a range which numbers it covers. A
batch that is pushed comes in pieces; the first begins with a note of its CRC-32 and its length.

The server is gRPC's own and not the one of pyarrow, which has no limits: it takes messages of any
length, and decompresses them before anything here sees them. Here a call is let in before its first
message is read, no message is longer than a piece, and what the pieces become is reserved before
they come.
"""

from __future__ import annotations

import json
import logging
import mmap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import monotonic
from typing import Any

import grpc
import pyarrow as pa

from thetastream.errors import OptionError, SiteError, SiteRequestError
from thetastream.sizes import format_size
from thetastream.transport import flightdata
from thetastream.transport.addresses import Address
from thetastream.transport.admission import (
    QUESTIONS,
    Budget,
    Gate,
    Right,
    UnknownTokenError,
    Visit,
    WrongTokenError,
)
from thetastream.transport.excerpts import Piece
from thetastream.transport.filters import Filter
from thetastream.transport.log import Log
from thetastream.transport.messages import (
    PIECE_BYTES,
    Limits,
    checksum,
    chosen_schema,
    numbered_schema,
    read_batch,
    read_schema,
    stream_schema,
    without_numbers,
)
from thetastream.transport.requests import (
    ERRORS,
    NumbersRequest,
    RangeRequest,
    parse_note,
    parse_push,
    parse_ticket,
    split_note,
    to_note,
)
from thetastream.transport.site import Site

ACTIONS = {"status": "how the site is doing", "health": "whether it works"}

PUSH_COPIES = 3
"""Bytes of memory for a byte that is pushed: as it came, as it is stored, and some of both."""
READ_COPIES = 4
"""Bytes of memory for a byte that is read: as a batch, as a message, compressed, on its way."""
READ_BYTES = 12 * 1024**2
"""Bytes that a log holds while it reads: batches of the size in which clients push them."""
JSON_COPIES = 32
"""Bytes of memory for a byte of JSON: `[],` is a list of 56 bytes and its place in another."""
_OVERHEAD = 64 * 1024
"""Bytes of a message beyond its content."""
_REFUSING = 4
"""Threads for calls that are refused while all others are taken."""
_WAITING = 32
"""Calls that may wait for a thread."""
_STREAMS = 64
"""Calls on one connection."""
_LOOKAHEAD = 1024**2
"""Bytes that a call may send ahead of what is read of it."""
_LONGEST_TEXT = 600
"""Characters of a text of an error: a client of gRPC takes 8 kB of headers."""
_IO_ERROR = "5"
_HANDSHAKE_SECONDS = 10
_PING_SECONDS = 20

_LOG = logging.getLogger(__name__)

Answer = Callable[[Visit, Iterator[bytes]], Iterator[bytes]]


class SiteService:
    """Serves a site; it listens as soon as it is made."""

    def __init__(self, site: Site) -> None:
        """Raises OptionError for an address that cannot be listened on."""
        config = site.config
        limits = config.limits
        self._site = site
        self._limits = limits
        self._budget = Budget(limits.memory_bytes)
        threads = limits.requests + QUESTIONS + _REFUSING
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="site")
        self._server = grpc.server(
            self._threads,
            handlers=[_Calls(self)],
            options=_options(limits),
            maximum_concurrent_rpcs=threads + _WAITING,
        )
        place = str(config.address).partition("://")[2]
        try:
            if config.tls_cert is None:
                self.port = int(self._server.add_insecure_port(place))
            else:
                credentials = grpc.ssl_server_credentials(
                    [(config.tls_key, config.tls_cert)],
                    root_certificates=config.tls_client_ca,
                    require_client_auth=config.tls_client_ca is not None,
                )
                self.port = int(self._server.add_secure_port(place, credentials))
        except RuntimeError:
            self._threads.shutdown()
            raise OptionError(
                f"{config.address} cannot be listened on",
                hint="another program may use the port; give another one as listen, and check"
                " tls_cert and tls_key",
            ) from None
        tokens = {Right.READ: config.read_token, Right.PUSH: config.push_token}
        self._gate = Gate(tokens, limits)
        self._server.start()

    @property
    def address(self) -> Address:
        """Where it listens: the system chooses the port if the file says 0."""
        return replace(self._site.config.address, port=self.port)

    def shutdown(self, grace: float = 0.0) -> None:
        """Stop listening; calls have `grace` seconds to end."""
        self._server.stop(grace or None).wait()
        self._threads.shutdown()
        self._gate.close()

    @property
    def calls(self) -> int:
        """Requests that are being answered, without questions about the site."""
        return self._gate.requests

    # -- calls ----------------------------------------------------------------------------------

    def handler(self, method: str) -> grpc.RpcMethodHandler | None:
        """What answers a call; None for what a site does not do.

        All calls count as streams, also those with one message: gRPC would read the message of
        any other before the call is let in.
        """
        answers: dict[str, tuple[Right | None, Answer]] = {
            "DoGet": (Right.READ, self._get),
            "DoPut": (Right.PUSH, self._put),
            "DoAction": (None, self._act),
            "ListActions": (None, self._list_actions),
        }
        chosen = answers.get(method.removeprefix(flightdata.SERVICE))
        if chosen is None:
            return None
        right, answer = chosen

        def behaviour(messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
            naming = _naming_errors(context, again=right is Right.PUSH)
            with naming, self._gate.visit(context, right) as visit:
                for message in answer(visit, messages):
                    with visit.awaiting():
                        yield message

        return grpc.stream_stream_rpc_method_handler(behaviour)

    def _get(self, visit: Visit, messages: Iterator[bytes]) -> Iterator[bytes]:
        """Answer a request for tuples."""
        limits = self._limits
        ticket = flightdata.read_ticket(_next(visit, messages) or b"")
        with self._budget.reserved(READ_BYTES + JSON_COPIES * len(ticket)):
            request = parse_ticket(ticket, limit=limits.request_bytes, numbers=limits.numbers)
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
            yield flightdata.write_schema(schema)
            for batch, numbers in batches:
                with self._budget.reserved(READ_COPIES * batch.nbytes):
                    note = to_note(**numbers, crc=checksum(batch))
                    yield flightdata.write_batch(batch, note, options)

    def _put(self, visit: Visit, messages: Iterator[bytes]) -> Iterator[bytes]:
        """Take tuples in; a batch is acknowledged by its first number and its rows."""
        beginning = flightdata.read_data(_next(visit, messages) or b"")
        with self._budget.reserved(JSON_COPIES * len(beginning.command)):
            request = parse_push(beginning.command, limit=self._limits.request_bytes)
        self._site.log(request.stream)
        schema = stream_schema(read_schema(beginning.header))
        sequence = request.sequence
        while (message := _next(visit, messages)) is not None:
            text, piece = split_note(flightdata.read_data(message).metadata)
            note = parse_note(text, "bytes", "crc")
            size = note["bytes"]
            if size > self._limits.batch_bytes + self._limits.request_bytes:
                raise SiteRequestError(
                    f"a batch of {format_size(size)}",
                    hint=f"send at most {format_size(self._limits.batch_bytes)} at a time",
                )
            with self._budget.reserved(PUSH_COPIES * size, Right.PUSH):
                data = pa.py_buffer(_joined(visit, piece, messages, size))
                batch = read_batch(data, schema, crc=note["crc"])
                first, rows = self._site.push(
                    request.stream,
                    batch,
                    crc=note["crc"],
                    writer=request.writer,
                    sequence=sequence,
                    data=data,
                )
                del data, batch
            sequence += 1
            yield flightdata.write_bytes(to_note(first=first, rows=rows))

    def _act(self, visit: Visit, messages: Iterator[bytes]) -> Iterator[bytes]:
        """Answer a question about the site."""
        name = flightdata.read_action(_next(visit, messages) or b"")
        if name not in ACTIONS:
            raise SiteRequestError(
                f"there is no action {name[:40]!r}", hint=f"the actions are {', '.join(ACTIONS)}"
            )
        answer: dict[str, Any] = {"problem": self._site.problem()}
        if name == "status":
            answer = self._site.status()
        yield flightdata.write_bytes(json.dumps(answer).encode())

    def _list_actions(self, visit: Visit, messages: Iterator[bytes]) -> Iterator[bytes]:
        for name, about in ACTIONS.items():
            yield flightdata.write_bytes(name.encode(), about.encode())


class _Calls(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds what answers a call."""

    def __init__(self, service: SiteService) -> None:
        self._service = service

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Called for each call."""
        return self._service.handler(details.method)


def _options(limits: Limits) -> list[tuple[str, int]]:
    longest = max(limits.request_bytes, PIECE_BYTES) + _OVERHEAD
    return [
        ("grpc.max_receive_message_length", longest),
        # What gRPC has compressed would be decompressed first. So it is not a message at all.
        ("grpc.per_message_decompression", 0),
        # Left alone, it lets each call send ever more ahead, whether or not anybody reads it.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", _LOOKAHEAD),
        ("grpc.max_concurrent_streams", _STREAMS),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.server_handshake_timeout_ms", 1000 * min(_HANDSHAKE_SECONDS, limits.idle_seconds)),
        ("grpc.max_connection_idle_ms", 1000 * limits.idle_seconds),
        ("grpc.keepalive_time_ms", 1000 * limits.idle_seconds),
        ("grpc.keepalive_timeout_ms", 1000 * _PING_SECONDS),
        ("grpc.keepalive_permit_without_calls", 1),
        # Two sites on one port would each get some of the calls.
        ("grpc.so_reuseport", 0),
    ]


def _next(visit: Visit, messages: Iterator[bytes], since: float | None = None) -> bytes | None:
    """The next message of a call; None after the last."""
    try:
        with visit.awaiting(since):
            return next(messages, None)
    except grpc.RpcError as error:
        # gRPC keeps it, and with it every frame below: a batch that was to be filled, for example.
        error.__traceback__ = None
    raise _GoneError


def _joined(
    visit: Visit, piece: bytes, messages: Iterator[bytes], size: int
) -> bytearray | mmap.mmap:
    """The pieces of a batch.

    Large ones are put together in pages of their own, which the system gives only as they are
    filled and gets back at once: the heap would keep those of each thread for its next batch.
    Small ones are not: the log keeps each batch until it is sealed, and a process may have some
    65,000 maps.
    """
    data = bytearray(size) if size < PIECE_BYTES else mmap.mmap(-1, size)
    # All pieces together: whoever sends them one by one would keep the memory for as long.
    began = monotonic()
    filled = 0
    while 0 < len(piece) <= size - filled:
        data[filled : filled + len(piece)] = piece
        filled += len(piece)
        if filled == size:
            return data
        message = _next(visit, messages, began)
        piece = flightdata.read_data(message or b"").metadata
    raise SiteRequestError(
        "the site does not understand the request: the pieces of a batch are not as long as"
        " announced",
        hint="use the client of the same release",
    )


Numbers = dict[str, int]
"""What the note beside a batch says of it, apart from its checksum."""


def _range(log: Log, request: RangeRequest) -> Iterator[tuple[pa.RecordBatch, Numbers]]:
    assert log.schema is not None
    where = None if request.where is None else Filter(request.where, log.schema)
    # Here and not in the generator: what is wrong is said before the answer begins.
    pieces = log.read(request.start, request.stop, columns=request.columns, where=where)
    return _covering(pieces, numbered=request.numbered)


def _covering(
    pieces: Iterator[Piece], *, numbered: bool
) -> Iterator[tuple[pa.RecordBatch, Numbers]]:
    for piece in pieces:
        batch = piece.batch if numbered else without_numbers(piece.batch)
        yield batch, {"start": piece.start, "stop": piece.stop}


def _numbers(log: Log, request: NumbersRequest) -> Iterator[tuple[pa.RecordBatch, Numbers]]:
    batches = log.fetch(request.numbers, columns=request.columns)
    return ((batch, {"rows": batch.num_rows}) for batch in batches if batch.num_rows)


class _naming_errors:
    """Sends an error of the site's by its name, so that the client can raise the same one."""

    def __init__(self, context: Any, *, again: bool) -> None:
        """`again`: damaged bytes came from the client, which may send them again."""
        self._context = context
        self._again = again

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Never raises: what gRPC keeps of an error would keep the memory of the request."""
        code = grpc.StatusCode
        if isinstance(error, UnknownTokenError):
            self._answer(code.UNAUTHENTICATED, "the token is missing or wrong")
        elif isinstance(error, SiteError):
            denied = isinstance(error, WrongTokenError)
            self._name(error, code.PERMISSION_DENIED if denied else code.UNKNOWN)
        elif isinstance(error, OSError):
            self._answer(code.UNAVAILABLE, f"{error.strerror}")
        elif isinstance(error, Exception) and not isinstance(error, _GoneError):
            # Its text may hold anything, and is for whoever runs the site.
            _LOG.error("a request failed", exc_info=error)
            self._answer(code.INTERNAL, "an error inside the site, which is in its log")
        # Anything else is the end of an answer that nobody waits for.
        return isinstance(error, Exception)

    def _name(self, error: SiteError, code: grpc.StatusCode) -> None:
        name = next(name for name, kind in ERRORS.items() if isinstance(error, kind))
        about = {
            "kind": name,
            "what": error.what[:_LONGEST_TEXT],
            "detail": error.detail[:_LONGEST_TEXT],
            "hint": error.hint[:_LONGEST_TEXT],
            "again": name == "site" or (name == "data" and self._again),
        }
        self._context.set_trailing_metadata(
            (
                # Without a status of Arrow's own, its client does not read the details.
                ("x-arrow-status", _IO_ERROR),
                ("x-arrow-status-message-bin", _utf8(error.what[:_LONGEST_TEXT])),
                ("grpc-status-details-bin", _utf8(json.dumps(about, ensure_ascii=False))),
            )
        )
        self._answer(code, name)

    def _answer(self, code: grpc.StatusCode, text: str) -> None:
        self._context.set_code(code)
        self._context.set_details(text)


class _GoneError(Exception):
    """The other end has gone, or was idle for too long: there is nobody to answer."""


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")
