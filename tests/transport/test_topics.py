"""Messages of a topic are taken in exactly once, and what cannot be taken in stops by name."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest

from tests.transport.brokers import BROKER_DOWN, Broker, Fault, KafkaError, Message, message
from thetastream.errors import OptionError, SiteError, SiteRequestError
from thetastream.transport import catalogue, topics
from thetastream.transport.jsonrows import JsonRows
from thetastream.transport.kafka import installed
from thetastream.transport.log import TOPIC, Log, LogOptions
from thetastream.transport.messages import Limits
from thetastream.transport.topicconfig import Skip, TopicConfig
from thetastream.transport.topics import REFRESH, RETRY, TopicSource

COLUMNS = "at timestamp_us, partition int, number bigint"


class Scene:
    """A broker, and a log that is filled from its topic."""

    def __init__(self, root: Path, partitions: int = 1, seal_bytes: int = 2**25) -> None:
        self.root = root
        self.broker = Broker(partitions)
        self.seal_bytes = seal_bytes
        self.now = 0
        self.config: dict[str, Any] = {}
        self.starts = 0
        self.restart()

    def restart(self, **config: Any) -> None:
        """As after kill -9: the next process finds what is on the disk at this moment."""
        self.config |= config
        before, folder = (self.root / f"log-{self.starts + more}" for more in (0, 1))
        if self.starts:
            shutil.copytree(before, folder)
        self.starts += 1
        rows = JsonRows(self.config.pop("columns", COLUMNS), "at")
        chosen = TopicConfig(topic="rides", bootstrap="127.0.0.1:1", rows=rows, **self.config)
        self.log = Log(folder, LogOptions(seal_bytes=self.seal_bytes))
        # Processes end here, but not the machine: nothing has to wait for the disk.
        self.log._catalogue._db.execute("PRAGMA synchronous = OFF")
        self.source = TopicSource(self.log, chosen, Limits(), self.broker.kafka())

    def put(self, *partitions: int) -> None:
        for partition in partitions:
            self.broker.put(partition)

    def poll(self, after: int = 1) -> int:
        self.now += after
        return self.source.poll(self.now)

    def found(self) -> dict[int, list[int]]:
        """The numbers of each partition, in the order in which they were taken in."""
        result: dict[int, list[int]] = {}
        for piece in self.log.read(0, self.log.next):
            for row in piece.batch.to_pylist():
                result.setdefault(row["partition"], []).append(row["number"])
        return result


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_messages_are_taken_in_once_across_restarts(tmp_path: Path) -> None:
    scene = Scene(tmp_path, partitions=2)
    for number in range(6):
        scene.put(0, 0, 1)
        assert scene.poll() == 3
        assert scene.poll() == 0
        if number % 2:
            scene.log.seal()
        scene.restart()
    assert scene.poll() == 0
    assert scene.found() == {0: list(range(12)), 1: list(range(6))}
    assert scene.log.positions(TOPIC) == {"rides/0": 12, "rides/1": 6}
    assert scene.source.problem == ""
    assert scene.broker.settings["enable.auto.commit"] is False
    assert scene.broker.settings["auto.offset.reset"] == "error"


def test_earliest_begins_with_what_the_broker_has(scene: Scene) -> None:
    scene.put(*[0] * 10)
    scene.broker.partitions[0].expire(4)
    assert scene.poll() == 6
    assert scene.found() == {0: [4, 5, 6, 7, 8, 9]}


def test_latest_is_fixed_at_the_first_start(scene: Scene) -> None:
    scene.put(*[0] * 10)
    scene.restart(latest=True)
    assert scene.poll() == 0
    scene.restart()
    # These came while nothing ran, and behind the start.
    scene.put(0, 0)
    scene.restart()
    assert scene.poll() == 2
    assert scene.found() == {0: [10, 11]}


def test_a_start_that_was_not_finished_is_begun_again(tmp_path: Path) -> None:
    """The process ends when only the first partition has its place."""
    scene = Scene(tmp_path, partitions=2)
    scene.restart(latest=True)
    scene.put(0, 0, 1, 1, 1)

    def end(step: str) -> None:
        if step == "get_watermark_offsets" and scene.log.positions(TOPIC):
            raise Crash

    scene.broker.trouble = end
    with pytest.raises(Crash):
        scene.poll()
    scene.broker.trouble = lambda step: None
    assert scene.log.positions(TOPIC) == {"rides/0": 2}
    scene.restart()
    assert scene.poll() == 0
    scene.put(0, 1)
    assert scene.poll() == 2
    assert scene.found() == {0: [2], 1: [3]}


@pytest.mark.parametrize("latest", [False, True])
def test_a_partition_that_is_added_is_read_from_its_first_message(
    scene: Scene, latest: bool
) -> None:
    scene.restart(latest=latest)
    scene.poll()
    scene.put(0)
    scene.broker.partitions[1] = type(scene.broker.partitions[0])()
    scene.put(1, 1)
    scene.poll()
    assert scene.found() == {0: [0]}
    assert scene.poll(REFRESH) == 2
    assert scene.found() == {0: [0], 1: [0, 1]}


def test_a_message_that_is_no_row_stops_and_loses_nothing(scene: Scene) -> None:
    scene.put(0, 0)
    scene.broker.partitions[0].put(b'{"at": "secret"}')
    scene.put(0)
    assert scene.poll() == 2
    problem = scene.source.problem
    assert "message 2 of partition 0 of the topic rides" in problem
    assert 'skip = ["0:2"]' in problem
    assert "secret" not in problem
    scene.put(0)
    assert scene.poll(10 * REFRESH) == 0
    scene.restart()
    assert scene.poll() == 0
    assert scene.source.problem == problem
    scene.restart(skip=(Skip(0, 2, 2),))
    assert scene.poll() == 2
    assert scene.found() == {0: [0, 1, 3, 4]}
    assert scene.source.problem == ""


def test_readable_messages_in_a_skipped_range_are_taken_in(scene: Scene) -> None:
    scene.put(0)
    scene.broker.partitions[0].put(None)
    scene.put(0)
    scene.broker.partitions[0].put(b"[]")
    scene.restart(skip=(Skip(0, 2, 50), Skip(0, 0, 1)))
    assert scene.poll() == 2
    assert scene.found() == {0: [0, 2]}
    assert scene.log.positions(TOPIC) == {"rides/0": 4}
    # What was skipped is stored as skipped: the file need not say so for ever.
    scene.restart(skip=())
    assert scene.poll() == 0
    assert scene.source.problem == ""


@pytest.mark.parametrize("while_reading", [False, True])
def test_messages_that_the_broker_has_deleted_stop_the_stream(
    scene: Scene, while_reading: bool
) -> None:
    scene.put(*[0] * 5)
    assert scene.poll() == 5
    scene.put(*[0] * 20)
    scene.broker.partitions[0].expire(15)
    if not while_reading:
        scene.restart()
    for _ in range(3):
        assert scene.poll() == 0
    assert "the messages 5 to 14 of partition 0 of the topic rides" in scene.source.problem
    scene.restart(skip=(Skip(0, 5, 9),))
    assert scene.poll() == 0
    assert "5 to 14" in scene.source.problem
    scene.restart(skip=(Skip(0, 5, 9), Skip(0, 10, 1000)))
    assert scene.poll() == 10
    assert scene.found() == {0: [0, 1, 2, 3, 4, *range(15, 25)]}


def test_a_new_partition_that_has_lost_messages_stops_the_stream(scene: Scene) -> None:
    scene.poll()
    scene.broker.partitions[1] = type(scene.broker.partitions[0])()
    scene.put(1, 1, 1)
    scene.broker.partitions[1].expire(2)
    scene.restart()
    scene.poll()
    assert "the messages 0 to 1 of partition 1" in scene.source.problem


def test_marks_of_transactions_are_no_gap(scene: Scene) -> None:
    scene.put(0)
    scene.broker.partitions[0].mark()
    scene.put(0)
    scene.broker.partitions[0].mark()
    assert scene.poll() == 2
    assert scene.log.positions(TOPIC) == {"rides/0": 4}
    # The broker deletes everything, and the last mark with it.
    scene.broker.partitions[0].expire(4)
    scene.restart()
    scene.poll()
    assert scene.source.problem == ""
    scene.put(0)
    assert scene.poll() == 1


def test_a_topic_that_was_set_up_anew(tmp_path: Path) -> None:
    scene = Scene(tmp_path, partitions=2)
    scene.put(0, 0, 0, 1)
    scene.poll()
    scene.broker.partitions = Broker(2).partitions
    scene.restart()
    scene.poll()
    assert "up to 0, and 3 were taken in" in scene.source.problem
    scene.broker.partitions = Broker(1).partitions
    scene.restart()
    scene.poll()
    assert "no longer has partition 1" in scene.source.problem
    assert scene.poll(10 * REFRESH) == 0


def test_brokers_that_do_not_answer_are_asked_again(scene: Scene) -> None:
    calls = []

    def down(step: str) -> None:
        calls.append(step)
        raise KafkaError(Fault(BROKER_DOWN, "brokers are down"))

    scene.put(0)
    scene.broker.trouble = down
    scene.poll()
    assert scene.source.problem == "the topic rides cannot be read: brokers are down"
    asked = len(calls)
    scene.poll()
    assert len(calls) == asked
    assert "brokers are down" in scene.source.problem
    scene.broker.trouble = lambda step: None
    assert scene.poll(RETRY) == 1
    assert scene.source.problem == ""


def test_an_event_among_messages_loses_none(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.put(0, 0, 0)
    consumer: Any = scene.source._consumer
    real = consumer.consume

    def disturbed(num_messages: int, timeout: float) -> list[Message]:
        found = real(num_messages, timeout)
        return [found[0], Message(None, None, None, Fault(-1, "broken")), *found[1:]]

    monkeypatch.setattr(consumer, "consume", disturbed)
    assert scene.poll() == 1
    assert "broken" in scene.source.problem
    monkeypatch.setattr(consumer, "consume", real)
    assert scene.poll() == 2
    assert scene.found() == {0: [0, 1, 2]}


def test_a_full_disk_loses_nothing(scene: Scene) -> None:
    scene.put(0)
    scene.poll()
    scene.put(0, 0)
    database = scene.log._catalogue._db
    database.execute("PRAGMA max_page_count = 1").fetchall()
    scene.put(*[0] * 2_000)
    with pytest.raises(SiteError, match="full"):
        scene.poll()
    database.execute("PRAGMA max_page_count = 1000000").fetchall()
    scene.poll()
    assert scene.found() == {0: list(range(scene.broker.partitions[0].high))}


def test_a_message_beyond_the_limit_stops_the_stream(scene: Scene) -> None:
    scene.source._longest = 200
    scene.put(0)
    scene.broker.partitions[0].put(message(0, 1) + b" " * 200)
    assert scene.poll() == 1
    assert "longer than batch_bytes" in scene.source.problem


def test_other_columns_are_refused(scene: Scene) -> None:
    scene.poll()
    with pytest.raises(SiteRequestError, match="begun with other columns"):
        scene.restart(columns="at timestamp_us, number bigint")


def test_a_missing_connector_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(OptionError, match="confluent-kafka is not installed") as error:
        installed()
    assert "pip install confluent-kafka" in error.value.hint


def test_settings_that_are_refused_do_not_show_secrets(scene: Scene) -> None:
    def refusing(settings: dict[str, Any]) -> Any:
        raise KafkaError(Fault(-186, f"bad value {settings['sasl.password']}"))

    config = TopicConfig(
        topic="rides",
        bootstrap="127.0.0.1:1",
        rows=JsonRows(COLUMNS, "at"),
        settings={"sasl.password": "hunter22"},
    )
    kafka = scene.broker.kafka()._replace(consumer=refusing)
    with pytest.raises(OptionError, match="bad value …") as error:
        TopicSource(scene.log, config, Limits(), kafka)
    assert "hunter22" not in str(error.value)
    assert "hunter22" not in repr(config)


# -- crashes at any step, against a model ---------------------------------------------------------


class Crash(BaseException):
    """The process ends here."""


class Fate:
    """Ends the process, or the connection, at random steps."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.armed = False
        self.dead = False
        """Killed: nothing that would clean up happens."""
        self.crashes = 0

    def end(self) -> NoReturn:
        self.crashes += 1
        self.dead = self.random.random() < 0.7
        raise Crash

    def live_again(self) -> None:
        self.armed = self.dead = False

    def strike(self, chance: float = 0.04) -> None:
        if self.dead:
            raise Crash
        if self.armed and self.random.random() < chance:
            self.end()

    def step(self, _: str) -> None:
        self.strike()
        if self.armed and self.random.random() < 0.03:
            raise KafkaError(Fault(BROKER_DOWN, "down"))

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **more: Any) -> Any:
            self.strike()
            result = function(*args, **more)
            self.strike()
            return result

        return wrapped


def live(root: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """A topic that grows while the site crashes; how many crashes and tuples."""
    scene = Scene(root, partitions=2, seal_bytes=6_000)
    broker, fate = scene.broker, Fate(seed)
    broker.trouble, broker.seed = fate.step, seed
    dice = random.Random(seed + 1)
    skip = []
    model: dict[int, list[int]] = {0: [], 1: []}
    with monkeypatch.context() as patch:
        patch.setattr(topics, "CHUNK_BYTES", 300)
        patch.setattr(topics, "_CALL", 7)
        patch.setattr(topics, "CHUNK_ROWS", 20)
        patch.setattr(os, "pwrite", fate.around(os.pwrite))
        patch.setattr(os, "fsync", fate.around(lambda _: None))
        patch.setattr(os, "fdatasync", fate.around(lambda _: None))
        patch.setattr(os, "replace", fate.around(os.replace))
        patch.setattr(Path, "unlink", fate.around(Path.unlink))
        patch.setattr(catalogue, "put", fate.around(catalogue.put))
        patch.setattr(Log, "append", fate.around(Log.append))
        for turn in range(60):
            if turn == 25:
                broker.partitions[2] = type(broker.partitions[0])()
                model[2] = []
            for _ in range(dice.randrange(25)):
                partition = dice.choice(list(broker.partitions))
                kind = dice.random()
                if kind < 0.05:
                    broker.partitions[partition].mark()
                elif kind < 0.1:
                    offset = broker.partitions[partition].put(b"no JSON")
                    skip.append(Skip(partition, offset, offset))
                else:
                    model[partition].append(broker.put(partition))
            fate.armed = True
            try:
                if dice.random() < 0.2:
                    scene.restart(skip=tuple(skip))
                scene.poll(RETRY)
            except Crash:
                fate.live_again()
                scene.restart(skip=tuple(skip))
            fate.live_again()
            # Nothing doubled or out of order at any time.
            for partition, numbers in scene.found().items():
                assert numbers == model[partition][: len(numbers)], (seed, turn, partition)
        scene.restart(skip=tuple(skip))
        scene.poll(RETRY)
        scene.poll(REFRESH)
        scene.poll(REFRESH)
        assert scene.source.problem == "", (seed, scene.source.problem)
        assert scene.found() == model, seed
        ends = {f"rides/{number}": one.high for number, one in broker.partitions.items()}
        assert scene.log.positions(TOPIC) == ends, seed
    return fate.crashes, scene.log.next


def test_crashes_at_any_step_neither_lose_nor_double(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashes = 0
    for seed in range(6):
        ended, rows = live(tmp_path / str(seed), seed, monkeypatch)
        crashes += ended
        assert rows > 300
    assert crashes > 30


@pytest.mark.chaos
def test_crashes_at_any_step_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(1_000, 1_300):
        live(tmp_path / str(seed), seed, monkeypatch)


def test_batches_have_the_columns_of_the_schema(scene: Scene) -> None:
    scene.put(0)
    scene.poll()
    (piece,) = scene.log.read(0, 1)
    assert piece.batch.schema.field("at").type == pa.timestamp("us", tz="UTC")
