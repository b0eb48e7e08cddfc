"""Messages of Arrow Flight as they travel: those fields of its protobuf that a site needs."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from thetastream.errors import SiteRequestError

SERVICE = "/arrow.flight.protocol.FlightService/"
_PACKAGE = "thetastream.flight"
"""Not Flight's own package: another library in the process may have that one."""
_FIELDS = {
    "Descriptor": {"cmd": 2},
    "Data": {"descriptor": 1, "data_header": 2, "app_metadata": 3, "data_body": 1000},
    # A ticket, a result, the acknowledgement of a push, an action, and the description of one.
    "Values": {"first": 1, "second": 2},
}
"""The messages and the numbers of their fields, all of them bytes but for the descriptor."""


class FlightData(NamedTuple):
    """One message of a push."""

    command: bytes
    """The request that the first message brings."""
    header: bytes
    body: bytes
    metadata: bytes


def read_data(message: bytes) -> FlightData:
    """Return a message of a push; raises SiteRequestError for bytes that are none."""
    data = _parsed("Data", message)
    return FlightData(data.descriptor.cmd, data.data_header, data.data_body, data.app_metadata)


def read_ticket(message: bytes) -> bytes:
    """Return the ticket of a DoGet."""
    return bytes(_parsed("Values", message).first)


def read_action(message: bytes) -> str:
    """Return the name of an action."""
    return bytes(_parsed("Values", message).first).decode("utf-8", "replace")


def write_schema(schema: pa.Schema) -> bytes:
    """Return the first message of an answer."""
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, schema).close()
    message = pa.ipc.read_message(sink.getvalue())
    return _serialized("Data", data_header=message.metadata.to_pybytes())


def write_batch(batch: pa.RecordBatch, note: bytes, options: pa.ipc.IpcWriteOptions) -> bytes:
    """Return the message of an answer with a batch and its note."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages.read_next_message()
    message = messages.read_next_message()
    return _serialized(
        "Data",
        data_header=message.metadata.to_pybytes(),
        app_metadata=note,
        data_body=message.body.to_pybytes(),
    )


def write_bytes(first: bytes, second: bytes = b"") -> bytes:
    """Return the answer to a push or an action, or the description of one."""
    return _serialized("Values", first=first, second=second)


def _message_types() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, numbers in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number in numbers.items():
            kind = descriptor_pb2.FieldDescriptorProto
            added = message.field.add(name=field, number=number, label=kind.LABEL_OPTIONAL)
            added.type = kind.TYPE_BYTES
            if field == "descriptor":
                added.type, added.type_name = kind.TYPE_MESSAGE, f".{_PACKAGE}.Descriptor"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _FIELDS
    }


_TYPES = _message_types()


def _parsed(name: str, message: bytes) -> Any:
    try:
        return _TYPES[name].FromString(message)
    except DecodeError:
        raise SiteRequestError(
            "the site does not understand the request: it is no message of Flight's",
            hint="use the client of the same release",
        ) from None


def _serialized(name: str, **fields: bytes) -> bytes:
    return bytes(_TYPES[name](**fields).SerializeToString())
