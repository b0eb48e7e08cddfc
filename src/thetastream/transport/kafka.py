"""The part of confluent-kafka that a site uses, which is an optional package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from thetastream.errors import OptionError
from thetastream.transport.topicconfig import TopicConfig

PARTITION_EOF = -191
"""The code of the event that a partition has been read to its end."""
_LEAST_SECRET = 4
"""Shorter values are not blotted out: they would take ordinary words with them."""


class Fault(Protocol):
    """What is wrong with a message that is none."""

    def code(self) -> int:
        """A number of librdkafka's."""

    def str(self) -> str:
        """A text for people."""


class Message(Protocol):
    """A message, or an event in its place."""

    def error(self) -> Fault | None:
        """Why it is none."""

    def partition(self) -> int | None:
        """Where it comes from."""

    def offset(self) -> int | None:
        """Its place in the partition."""

    def value(self) -> bytes | None:
        """Its content."""


class Consumer(Protocol):
    """As confluent_kafka.Consumer. Partitions are assigned by hand, and nothing is committed."""

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Its partitions."""

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int] | None:
        """The first offset that the broker has, and the next that it will give."""

    def assign(self, partitions: list[Any]) -> None:
        """Read these, each from its offset."""

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        """What has come."""

    def close(self) -> None:
        """End it."""


class Kafka(NamedTuple):
    """How consumers are made: by the package, or by a test."""

    consumer: Callable[[dict[str, Any]], Consumer]
    place: Callable[[str, int, int], Any]
    """A topic, a partition and an offset, as `assign` takes them."""
    error: type[Exception]


def installed() -> Kafka:
    """The installed package; raises OptionError if there is none."""
    try:
        import confluent_kafka
    except ImportError:
        raise OptionError(
            "a stream comes from a Kafka topic, and the package confluent-kafka is not installed",
            hint="pip install confluent-kafka, or let a consumer push: push = true",
        ) from None
    return Kafka(
        confluent_kafka.Consumer, confluent_kafka.TopicPartition, confluent_kafka.KafkaException
    )


def connect(kafka: Kafka, config: TopicConfig) -> Consumer:
    """A consumer for the topic; raises OptionError if a setting is wrong."""
    try:
        return kafka.consumer(
            {
                **config.settings,
                "bootstrap.servers": config.bootstrap,
                "group.id": config.group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                # Messages of aborted transactions never happened.
                "isolation.level": "read_committed",
                # Offsets that are gone must be an error and never a silent jump.
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                # What goes wrong is in the site's status; librdkafka would write to stderr.
                "log_level": 2,
            }
        )
    except kafka.error as error:
        raise OptionError(
            f"the settings of the topic {config.topic} are refused: {told(error, config.settings)}",
            hint="correct the stream's settings_file",
        ) from None


def told(error: Exception, settings: Mapping[str, str]) -> str:
    """The text of an error in one line, without the values of settings."""
    inner = error.args[0] if error.args else error
    text = inner.str() if hasattr(inner, "str") else str(inner)
    for value in sorted(settings.values(), key=len, reverse=True):
        if len(value) >= _LEAST_SECRET:
            text = text.replace(value, "…")
    return str(text).splitlines()[0][:200] if text else type(error).__name__
