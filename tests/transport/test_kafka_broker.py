"""A site and a topic of a real broker: each message once, whoever is killed."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.transport.kafka_broker import Broker, jars
from tests.transport.test_kafka import COLUMNS, rows_of
from tests.transport.test_kill import serving
from thetastream.transport.client import SiteClient
from thetastream.transport.log import Log

pytestmark = pytest.mark.chaos

TOPIC = "rides"
PARTITIONS = 3
LIMIT_SECONDS = 120.0


@pytest.fixture(scope="module")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    return jars(tmp_path_factory.mktemp("jars"))


@pytest.fixture
def broker(classpath: str, tmp_path: Path) -> Iterator[Broker]:
    made = Broker(classpath, tmp_path)
    made.start()
    yield made
    made.end()


class Writer:
    """Produces messages that say which they are; each is in the topic once."""

    def __init__(self, bootstrap: str) -> None:
        import confluent_kafka
        from confluent_kafka.admin import AdminClient, NewTopic

        about = {"bootstrap.servers": bootstrap, "log_level": 2}
        admin = AdminClient(about)
        made = admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)])
        made[TOPIC].result(LIMIT_SECONDS)
        # A message whose acknowledgement is lost is sent again, and the broker knows it.
        self._producer: Any = confluent_kafka.Producer({**about, "enable.idempotence": True})
        self.sent = dict.fromkeys(range(PARTITIONS), 0)

    def put(self, partition: int, count: int) -> None:
        for number in range(self.sent[partition], self.sent[partition] + count):
            value = json.dumps({"at": 1, "partition": partition, "number": number})
            self._producer.produce(TOPIC, value.encode(), partition=partition)
            self._producer.poll(0)
        self.sent[partition] += count

    def flush(self) -> None:
        assert self._producer.flush(LIMIT_SECONDS) == 0


@pytest.mark.parametrize("seed", range(2))
def test_each_message_once_with_a_real_broker(seed: int, broker: Broker, tmp_path: Path) -> None:
    """The site is killed, the broker is stopped and killed; both come again."""
    dice = random.Random(seed)
    writer = Writer(broker.bootstrap)
    file = tmp_path / "site.toml"
    file.write_text(
        f'dir = "site"\nlisten = "127.0.0.1:0"\n[streams.rides]\ntime = "at"\n'
        f'topic = "{TOPIC}"\nbootstrap = "{broker.bootstrap}"\nschema = "{COLUMNS}"\n'
    )

    def produce() -> None:
        for _ in range(dice.randrange(4, 9)):
            for partition in range(PARTITIONS):
                writer.put(partition, dice.randrange(400))
            time.sleep(dice.random() * 0.2)

    for how in (signal.SIGKILL, signal.SIGTERM):
        # The site dies while the broker lives.
        with serving(file) as process:
            produce()
            process.end(signal.SIGKILL)
        # The broker goes while the site lives, and with messages on their way.
        with serving(file) as process:
            produce()
            writer.flush()
            taken = taken_in(process.address, 1)
            broker.end(how)
            time.sleep(dice.random())
            broker.start()
            produce()
            writer.flush()
            assert taken_in(process.address, taken + 1) > taken, "it goes on by itself"
            process.end(signal.SIGKILL)
    with serving(file) as process:
        total = sum(writer.sent.values())
        assert taken_in(process.address, total) == total
        with SiteClient(process.address) as client:
            assert client.status()["problem"] == ""
        assert process.end(signal.SIGTERM) == 0
    assert rows_of(Log(tmp_path / "site" / "rides")) == {
        partition: list(range(count)) for partition, count in writer.sent.items()
    }


def taken_in(address: str, at_least: int) -> int:
    """Messages that the site has taken in, once there are so many."""
    end = time.monotonic() + LIMIT_SECONDS
    with SiteClient(address) as client:
        while (found := client.stream(TOPIC).next) < at_least:
            assert time.monotonic() < end, client.status()
            time.sleep(0.1)
    return found
