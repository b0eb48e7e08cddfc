"""Messages of a Kafka topic, each taken in exactly once, in the order of their partition.

How far each partition has been read is stored in the same step as the tuples, and a start goes on
from there; what Kafka itself remembers of consumers is not used. A message that is not a row of the
stream, and messages that the broker no longer has, stop the stream by name: the tuples before them
are stored, and nothing behind them is taken in until the site's file says what may be skipped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from thetastream.arrow import stretches
from thetastream.errors import SiteRequestError
from thetastream.transport.jsonrows import Unreadable
from thetastream.transport.kafka import (
    PARTITION_EOF,
    Consumer,
    Kafka,
    Message,
    connect,
    installed,
    told,
)
from thetastream.transport.log import TOPIC, Log
from thetastream.transport.messages import Limits, checked
from thetastream.transport.topicconfig import TopicConfig

CHUNK_BYTES = 8 * 1024**2
"""Bytes of messages, and of Arrow, that are stored at a time."""
CHUNK_ROWS = 20_000
POLL_ROWS = 200_000
"""Messages that one look takes in at most; the site has other streams, too."""
_CALL = 500
"""Messages that are asked for at a time: each can be of a megabyte."""
_WAIT = 0.05
"""Seconds to wait for messages."""
_TIMEOUT = 3.0
"""Seconds to wait for a broker's answer."""
REFRESH = 30_000_000
"""Microseconds between two looks at which partitions there are."""
RETRY = 5_000_000
"""Microseconds until a broker is asked again that did not answer."""


class _Stop(Exception):
    """Why nothing more can be taken in before the site's file is changed."""


class _Later(Exception):
    """Why nothing can be taken in at the moment."""


class TopicSource:
    """The messages of one topic, for one log."""

    kind = "topic"

    def __init__(
        self, log: Log, config: TopicConfig, limits: Limits, kafka: Kafka | None = None
    ) -> None:
        """Raises OptionError if the connector is missing or refuses the settings."""
        self.refused: dict[str, str] = {}
        self.problem = ""
        """Why messages are not taken in."""
        self._log = log
        self._config = config
        self._longest = limits.batch_bytes
        # Batches are cut here, and a message is measured by itself.
        self._limits = replace(
            limits, batch_rows=2 * CHUNK_ROWS, batch_bytes=limits.batch_bytes + 2 * CHUNK_BYTES
        )
        self._rows = config.rows
        self._check_columns()
        self._kafka = kafka or installed()
        self._consumer: Consumer = connect(self._kafka, config)
        self._assigned: frozenset[int] = frozenset()
        self._due = 0
        """When the partitions are looked at again."""
        self._stopped = False

    def close(self) -> None:
        """Leave the brokers."""
        self._consumer.close()

    def poll(self, now: int) -> int:
        """Take in what has come; how many tuples."""
        if self._stopped:
            return 0
        before = self._log.next
        try:
            self._look(now)
            self._take()
        except _Stop as reason:
            self._stopped = True
            self.problem = str(reason)
            self._release()
        except _Later as reason:
            self.problem = str(reason)
            self._forget_place(now)
        except self._kafka.error as error:
            why = told(error, self._config.settings)
            self.problem = f"the topic {self._config.topic} cannot be read: {why}"
            self._forget_place(now)
        except BaseException:
            # What was received and not stored is read again.
            self._forget_place(now)
            raise
        return self._log.next - before

    # -- where to read --------------------------------------------------------------------------

    def _look(self, now: int) -> None:
        """Assign the partitions that there are, each from where the log has come to."""
        if now < self._due:
            if not self._assigned:
                raise _Later(self.problem)
            return
        partitions = self._partitions()
        if partitions != self._assigned:
            known = self._positions()
            if gone := sorted(known.keys() - partitions):
                raise _Stop(
                    f"the topic {self._config.topic} no longer has partition {gone[0]}, which was"
                    " read before: it has been set up anew; give it to a stream of another name"
                )
            if fresh := sorted(partitions - known.keys()):
                self._begin(fresh)
            for partition in sorted(partitions):
                self._check_place(partition)
            self._assign(partitions)
        self._due = now + REFRESH
        self.problem = ""

    def _partitions(self) -> frozenset[int]:
        topic = self._config.topic
        found = self._consumer.list_topics(topic, timeout=_TIMEOUT).topics.get(topic)
        if found is None or found.error is not None or not found.partitions:
            error = None if found is None else found.error
            why = "there is no such topic" if error is None else error.str()
            raise _Later(f"the topic {topic} cannot be read: {why}")
        return frozenset(found.partitions)

    def _begin(self, fresh: list[int]) -> None:
        """Fix where partitions begin, before anything is read: a restart must not choose anew.

        A partition that was added later is read from its first message, whatever the start was.
        """
        begun = f"begun {self._config.topic}"
        first_time = self._log.source(begun) is None
        choice = 1 if self._config.latest else 0
        for partition in fresh:
            self._move(partition, self._ends(partition)[choice] if first_time else 0)
        if first_time:
            # Only now: a start that was not finished is begun again.
            self._log.append(self._rows.batch([]), source=begun, position=0)

    def _check_place(self, partition: int) -> None:
        """Stop if the broker no longer has what comes next."""
        low, high = self._ends(partition)
        place = self._positions()[partition]
        topic = self._config.topic
        if place < low:
            if not self._may_skip(partition, place, low - 1):
                raise _Stop(
                    f"the broker no longer has the messages {place} to {low - 1} of partition"
                    f" {partition} of the topic {topic}, which were not taken in; to go on without"
                    f' them, add skip = ["{partition}:{place}-{low - 1}"] and start the site again'
                )
            self._move(partition, low)
        elif place > high:
            raise _Later(
                f"the broker has the messages of partition {partition} of the topic {topic} up to"
                f" {high}, and {place} were taken in; if the topic has been set up anew, give it to"
                " a stream of another name"
            )

    def _ends(self, partition: int) -> tuple[int, int]:
        place = self._kafka.place(self._config.topic, partition, 0)
        found = self._consumer.get_watermark_offsets(place, timeout=_TIMEOUT)
        if found is None:
            raise _Later(f"the brokers of the topic {self._config.topic} do not answer")
        return found

    def _assign(self, partitions: frozenset[int]) -> None:
        places = self._positions()
        topic = self._config.topic
        self._consumer.assign(
            [self._kafka.place(topic, one, places[one]) for one in sorted(partitions)]
        )
        self._assigned = partitions

    def _release(self) -> None:
        self._assigned = frozenset()
        try:
            self._consumer.assign([])
        except self._kafka.error:
            # It is assigned anew before anything is read.
            return

    def _forget_place(self, now: int) -> None:
        if self._assigned:
            # The next look assigns at once; only if that fails is there a pause.
            self._due = 0
            self._release()
        elif now >= self._due:
            self._due = now + RETRY

    # -- what comes -----------------------------------------------------------------------------

    def _take(self) -> None:
        taken = 0
        while taken < POLL_ROWS:
            messages = self._receive()
            if not messages:
                return
            taken += len(messages)
            self._keep(messages)

    def _receive(self) -> list[Message]:
        messages: list[Message] = []
        size = 0
        while len(messages) < CHUNK_ROWS and size < CHUNK_BYTES:
            found = self._consumer.consume(num_messages=_CALL, timeout=_WAIT)
            messages += found
            size += sum(len(one.value() or b"") for one in found if one.error() is None)
            if len(found) < _CALL:
                break
        return messages

    def _keep(self, messages: list[Message]) -> None:
        """Store the rows of messages, up to the first that stops the stream."""
        places = self._positions()
        before = dict(places)
        rows: dict[int, list[list[Any]]] = {}
        ends: dict[int, list[int]] = {}
        """For each row of a partition what follows it there."""
        reason: Exception | None = None
        for message in messages:
            try:
                partition, offset, row = self._read(message, places)
            except (_Stop, _Later) as error:
                reason = error
                break
            if row is not None:
                rows.setdefault(partition, []).append(row)
                ends.setdefault(partition, []).append(offset)
            places[partition] = max(offset, places[partition])
        for partition, place in places.items():
            if partition in rows:
                self._store(partition, self._rows.batch(rows[partition]), ends[partition])
            if place > max(before[partition], *ends.get(partition, [0])):
                # Behind the last row there is only what is left out.
                self._move(partition, place)
        if reason is not None:
            raise reason

    def _read(self, message: Message, places: dict[int, int]) -> tuple[int, int, list[Any] | None]:
        """The partition, what follows there, and the row; None for what is left out."""
        fault = message.error()
        partition, offset = message.partition(), message.offset()
        if fault is not None and fault.code() != PARTITION_EOF:
            # Offsets that are gone are among these: the next look says which.
            raise _Later(f"the topic {self._config.topic} cannot be read: {fault.str()}")
        if partition is None or offset is None or partition not in places:
            raise _Later(f"the topic {self._config.topic} gives messages without their place")
        if fault is not None:
            # The end may lie behind marks of transactions, which are no messages.
            return partition, max(offset, 0), None
        if offset < places[partition]:
            return partition, places[partition], None
        try:
            return partition, offset + 1, self._row(message.value())
        except Unreadable as error:
            if self._may_skip(partition, offset, offset):
                return partition, offset + 1, None
            raise _Stop(
                f"message {offset} of partition {partition} of the topic {self._config.topic} is"
                f" not a row of the stream: {error}; to go on without it, add"
                f' skip = ["{partition}:{offset}"] and start the site again'
            ) from None

    def _row(self, value: bytes | None) -> list[Any]:
        if value is not None and len(value) > self._longest:
            raise Unreadable("it is longer than batch_bytes of [limits]")
        return self._rows.row(value)

    def _may_skip(self, partition: int, first: int, last: int) -> bool:
        """Whether the site's file allows that all of these are left out."""
        ranges = sorted(one for one in self._config.skip if one.partition == partition)
        for skip in ranges:
            if skip.first <= first <= skip.last:
                first = skip.last + 1
        return first > last

    # -- the log --------------------------------------------------------------------------------

    def _store(self, partition: int, batch: pa.RecordBatch, ends: list[int]) -> None:
        for start, stop in stretches(batch, CHUNK_BYTES):
            self._append(partition, batch.slice(start, stop - start), ends[stop - 1])

    def _move(self, partition: int, place: int) -> None:
        self._append(partition, self._rows.batch([]), place)

    def _append(self, partition: int, batch: pa.RecordBatch, place: int) -> None:
        usable = checked(batch, self._rows.schema, crc=None, limits=self._limits)
        name = f"{TOPIC}{self._config.topic}/{partition}"
        self._log.append(usable, source=name, position=place)

    def _positions(self) -> dict[int, int]:
        """The offset that each partition goes on with."""
        prefix = f"{self._config.topic}/"
        return {
            int(name.removeprefix(prefix)): place
            for name, place in self._log.positions(TOPIC).items()
            if name.startswith(prefix)
        }

    def _check_columns(self) -> None:
        schema = self._log.schema
        if schema is not None and schema != self._rows.schema:
            raise SiteRequestError(
                f"the stream of the topic {self._config.topic} was begun with other columns",
                detail=f"  {', '.join(f'{one.name} {one.type}' for one in schema)[:400]}",
                hint="put the former schema back, or give the topic to a stream of another name",
            )
