"""One attempt at each thing that a client asks of a site; what comes is checked before it is used.

Whatever fails for a reason that may pass is a `FailedError`, and `transport/client.py` decides how
often it is tried again.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from thetastream.errors import SiteDataError, SiteRequestError
from thetastream.transport.addresses import Address
from thetastream.transport.faults import FailedError, translated
from thetastream.transport.messages import Limits, checked, stream_schema
from thetastream.transport.requests import PushRequest, in_pieces, parse_note, to_note
from thetastream.transport.wire import Wire

_OVERHEAD = 1024**2
"""Bytes of a message beyond its batch."""
_LARGEST_ANSWER = 16 * 1024**2
"""Bytes of a status."""


@dataclass(frozen=True)
class SiteStream:
    """A stream as a site has it.

    >>> stream = ts.SiteStream("rides", "5f3a", "at", first=0, next=60, schema=None)
    >>> stream.next - stream.first
    60
    """

    name: str
    id: str
    """Numbers mean something only together with it."""
    time: str
    first: int
    """The first number that is retained."""
    next: int
    """The number that the next tuple will get."""
    schema: pa.Schema | None


class Calls:
    """The connection to a site, made when it is needed and made anew when it has been cut."""

    def __init__(
        self,
        address: Address,
        *,
        token: str | None,
        tls_roots: bytes | None,
        tls_pair: tuple[bytes, bytes] | None,
        stall: float,
        limits: Limits,
    ) -> None:
        self.address = address
        self.limits = limits
        self._roots = tls_roots
        self._pair = tls_pair
        headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        self._options = flight.FlightCallOptions(headers=headers)
        self._wire = Wire(address.host, address.port, stall=stall)
        self._client: flight.FlightClient | None = None

    @property
    def sent(self) -> int:
        """Bytes that went to the site on the wire, so far."""
        return self._wire.sent

    @property
    def received(self) -> int:
        """Bytes that came from the site on the wire, so far."""
        return self._wire.received

    def cut(self) -> None:
        """Break the connection; the next call makes another."""
        client, self._client = self._client, None
        self._wire.cut()
        if client is not None:
            client.close()

    def close(self) -> None:
        """Break the connection for good."""
        self.cut()
        self._wire.close()

    def _connected(self) -> flight.FlightClient:
        if self._client is None:
            scheme = "grpc+tls" if self.address.tls else "grpc"
            more: dict[str, Any] = {}
            if self.address.tls:
                # The relay's own address is in no certificate.
                more["override_hostname"] = self.address.host
                if self._roots is not None:
                    more["tls_root_certs"] = self._roots
                if self._pair is not None:
                    more["cert_chain"], more["private_key"] = self._pair
            self._client = flight.FlightClient(
                f"{scheme}://127.0.0.1:{self._wire.port}",
                generic_options=[
                    # A connection that another client has broken must not be shared.
                    ("grpc.use_local_subchannel_pool", 1),
                    ("grpc.max_receive_message_length", self.limits.batch_bytes + _OVERHEAD),
                ],
                **more,
            )
        return self._client

    def get(
        self, ticket: bytes, schema: pa.Schema, *names: str
    ) -> Iterator[tuple[pa.RecordBatch, dict[str, int]]]:
        """Batches that are fit for use, with their notes."""
        with translated(self.address), self._wire.awaited():
            reader = self._connected().do_get(flight.Ticket(ticket), self._options)
        try:
            while True:
                with translated(self.address), self._wire.awaited():
                    try:
                        chunk = reader.read_chunk()
                    except StopIteration:
                        return
                if chunk.data is None or chunk.app_metadata is None:
                    raise FailedError("the site answers without a checksum", damaged=True)
                yield self._checked(chunk.data, chunk.app_metadata, schema, names)
        finally:
            # What is left of an answer that nobody wants must not come.
            reader.cancel()

    def _checked(
        self, batch: pa.RecordBatch, metadata: pa.Buffer, schema: pa.Schema, names: tuple[str, ...]
    ) -> tuple[pa.RecordBatch, dict[str, int]]:
        try:
            note = parse_note(metadata.to_pybytes(), "crc", *names)
            return checked(batch, schema, crc=note["crc"], limits=self.limits), note
        except (SiteDataError, SiteRequestError) as error:
            # A request is wrong when the site says so; here it is the answer.
            raise FailedError(error.what, damaged=True) from None

    def put(self, request: PushRequest, pieces: list[pa.RecordBatch]) -> Iterator[tuple[int, int]]:
        """Push the pieces; the first number and the rows of each, once it is durable."""
        descriptor = flight.FlightDescriptor.for_command(request.to_bytes())
        schema = stream_schema(pieces[0].schema)
        with translated(self.address), self._wire.awaited():
            writer, answers = self._connected().do_put(descriptor, schema, self._options)
        ended = False
        try:
            for piece in pieces:
                data = pa.RecordBatch.from_arrays(piece.columns, schema=schema).serialize()
                note = to_note(bytes=data.size, crc=zlib.crc32(data))
                with translated(self.address), self._wire.awaited():
                    try:
                        for message in in_pieces(note, data):
                            writer.write_metadata(message)
                    except (flight.FlightError, pa.ArrowException, OSError):
                        # The reason is known only when the call is closed.
                        ended = True
                        writer.close()
                        raise
                    answer = answers.read()
                    if answer is None:
                        ended = True
                        writer.close()
                        raise FailedError("the site did not acknowledge a push")
                try:
                    found = parse_note(answer.to_pybytes(), "first", "rows")
                except SiteRequestError as error:
                    raise FailedError(error.what, damaged=True) from None
                yield found["first"], found["rows"]
        finally:
            if not ended:
                with translated(self.address), self._wire.awaited():
                    writer.close()

    def action(self, name: str) -> dict[str, Any]:
        """The answer to a question about the site."""
        with translated(self.address), self._wire.awaited():
            results = self._connected().do_action(flight.Action(name, b""), self._options)
            data = b"".join(result.body.to_pybytes() for result in results)
        try:
            if len(data) > _LARGEST_ANSWER:
                raise ValueError
            found = json.loads(data)
            if not isinstance(found, dict):
                raise TypeError
        except (ValueError, TypeError, RecursionError):
            raise FailedError("the answer is not the one of a site", damaged=True) from None
        return found

    def info(self, name: str) -> SiteStream:
        """A stream as it is now."""
        streams = self.action("status").get("streams")
        if not isinstance(streams, dict):
            raise FailedError("the answer is not the one of a site", damaged=True)
        if name not in streams:
            raise SiteRequestError(
                f"the site {self.address} has no stream {name!r}",
                hint=f"its streams are {', '.join(map(str, streams))}"[:500],
            )
        found = streams[name]
        try:
            encoded = found["schema"]
            schema = None
            if encoded is not None:
                raw = pa.py_buffer(base64.b64decode(encoded, validate=True))
                schema = stream_schema(pa.ipc.read_schema(raw))
            first, following = found["first"], found["next"]
            if not 0 <= int(first) <= int(following):
                raise ValueError
            return SiteStream(
                name, str(found["id"]), str(found["time"]), int(first), int(following), schema
            )
        except (KeyError, TypeError, ValueError, OSError, pa.ArrowException, SiteRequestError):
            raise FailedError("the answer is not the one of a site", damaged=True) from None
