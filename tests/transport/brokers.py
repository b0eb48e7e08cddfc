"""A Kafka topic in memory, and a consumer of it with the calls that a site makes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.transport.tuples import ORIGIN
from thetastream.transport.kafka import PARTITION_EOF, Kafka

OFFSET_RESET = -140
BROKER_DOWN = -195


class Fault:
    def __init__(self, code: int, text: str) -> None:
        self._code = code
        self._text = text

    def code(self) -> int:
        return self._code

    def str(self) -> str:
        return self._text


class KafkaError(Exception):
    """As confluent_kafka.KafkaException: its first argument has the text."""


class Message:
    def __init__(
        self, partition: int | None, offset: int | None, value: bytes | None, fault: Any = None
    ) -> None:
        self._found = (partition, offset, value, fault)

    def partition(self) -> int | None:
        return self._found[0]

    def offset(self) -> int | None:
        return self._found[1]

    def value(self) -> bytes | None:
        return self._found[2]

    def error(self) -> Any:
        return self._found[3]


class Partition:
    """Messages by offset; offsets without one are marks of transactions."""

    def __init__(self) -> None:
        self.messages: dict[int, bytes | None] = {}
        self.low = 0
        self.high = 0

    def put(self, value: bytes | None) -> int:
        self.messages[self.high] = value
        self.high += 1
        return self.high - 1

    def mark(self) -> None:
        self.high += 1

    def expire(self, low: int) -> None:
        self.low = low


class Broker:
    """One topic; `trouble` is called before each step of a consumer, and may raise."""

    def __init__(self, partitions: int = 1, topic: str = "rides") -> None:
        self.topic = topic
        self.partitions = {number: Partition() for number in range(partitions)}
        self.trouble: Callable[[str], None] = lambda step: None
        self.seed = 0
        self.settings: dict[str, Any] = {}

    def put(self, partition: int) -> int:
        """A message whose content says which it is."""
        offset = self.partitions[partition].high
        return self.partitions[partition].put(message(partition, offset))

    def kafka(self) -> Kafka:
        def consumer(settings: dict[str, Any]) -> Consumer:
            self.settings = settings
            return Consumer(self)

        return Kafka(consumer, lambda *place: place, KafkaError)


def message(partition: int, offset: int) -> bytes:
    return json.dumps(
        {"at": ORIGIN + offset, "partition": partition, "number": offset, "other": [1]}
    ).encode()


class Consumer:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._places: dict[int, int] = {}
        self._told_end: set[int] = set()
        self._random = random.Random(broker.seed)
        self.closed = False

    def list_topics(self, topic: str, timeout: float) -> Any:
        self._broker.trouble("list_topics")
        if topic != self._broker.topic:
            found = SimpleNamespace(partitions={}, error=Fault(3, "Unknown topic"))
        else:
            found = SimpleNamespace(partitions=dict(self._broker.partitions), error=None)
        return SimpleNamespace(topics={topic: found})

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        self._broker.trouble("get_watermark_offsets")
        partition = self._broker.partitions[place[1]]
        return partition.low, partition.high

    def assign(self, places: list[Any]) -> None:
        self._broker.trouble("assign")
        self._places = {partition: offset for _, partition, offset in places}
        self._told_end = set()

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        self._broker.trouble("consume")
        found: list[Message] = []
        while len(found) < num_messages and (ready := self._ready()):
            found.append(self._next(self._random.choice(ready)))
        # Fewer than there are, as when a fetch is under way. They are not lost.
        return found

    def _ready(self) -> list[int]:
        return sorted(
            number
            for number, place in self._places.items()
            if place != self._broker.partitions[number].high or number not in self._told_end
        )

    def _next(self, number: int) -> Message:
        partition = self._broker.partitions[number]
        place = self._places[number]
        if not partition.low <= place <= partition.high:
            del self._places[number]
            return Message(number, place, None, Fault(OFFSET_RESET, "offset out of range"))
        while place < partition.high and place not in partition.messages:
            place += 1
        if place == partition.high:
            self._places[number] = place
            self._told_end.add(number)
            return Message(number, place, None, Fault(PARTITION_EOF, "end"))
        self._places[number] = place + 1
        self._told_end.discard(number)
        return Message(number, place, partition.messages[place])

    def close(self) -> None:
        self.closed = True
