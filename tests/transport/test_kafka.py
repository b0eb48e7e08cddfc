"""A site and a topic over real sockets: librdkafka's own mock cluster is the broker."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.transport.test_kill import serving
from thetastream.errors import OptionError
from thetastream.transport.client import SiteClient
from thetastream.transport.jsonrows import JsonRows
from thetastream.transport.log import TOPIC, Log
from thetastream.transport.messages import Limits
from thetastream.transport.topicconfig import Skip, TopicConfig
from thetastream.transport.topics import REFRESH, TopicSource

confluent_kafka = pytest.importorskip(
    "confluent_kafka", reason="the package confluent-kafka is not installed"
)
COLUMNS = "at timestamp_us, partition int, number bigint"
PATIENCE = 30.0
"""Seconds for what a site should do in one or two."""


class Cluster:
    """A broker that lives as long as its producer."""

    def __init__(self) -> None:
        self._producer = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 2})
        (broker,) = self._producer.list_topics(timeout=10).brokers.values()
        self.bootstrap = f"{broker.host}:{broker.port}"
        self.sent: dict[int, int] = {}

    def put(self, partition: int, count: int = 1) -> None:
        for _ in range(count):
            number = self.sent.get(partition, 0)
            self.sent[partition] = number + 1
            self.raw(partition, json.dumps({"at": 1, "partition": partition, "number": number}))

    def raw(self, partition: int, value: str) -> None:
        self._producer.produce("rides", value.encode(), partition=partition)

    def flush(self) -> None:
        assert self._producer.flush(10) == 0


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.put(0)
    made.flush()
    return made


def source(log: Log, cluster: Cluster, **more: Any) -> TopicSource:
    config = TopicConfig(
        topic="rides", bootstrap=cluster.bootstrap, rows=JsonRows(COLUMNS, "at"), **more
    )
    return TopicSource(log, config, Limits())


def poll_until(one: TopicSource, rows: int, log: Log) -> None:
    end = time.monotonic() + PATIENCE
    while log.next < rows and not one.problem and time.monotonic() < end:
        one.poll(time.time_ns() // 1000)


def test_each_message_once_with_the_real_consumer(cluster: Cluster, tmp_path: Path) -> None:
    cluster.put(1, 2_000)
    cluster.raw(1, "no JSON")
    cluster.put(2, 3)
    cluster.flush()
    log = Log(tmp_path)
    first = source(log, cluster)
    poll_until(first, 2_004, log)
    while not first.problem:
        first.poll(time.time_ns() // 1000)
    first.close()
    log.close()
    assert "message 2000 of partition 1 of the topic rides" in first.problem
    cluster.put(1, 500)
    cluster.flush()
    log = Log(tmp_path)
    second = source(log, cluster, skip=(Skip(1, 2000, 2000),))
    poll_until(second, 2_504, log)
    second.poll(time.time_ns() // 1000 + REFRESH)
    second.close()
    assert second.problem == ""
    assert rows_of(log) == {0: [0], 1: list(range(2_500)), 2: [0, 1, 2]}


def test_offsets_that_the_broker_does_not_have(cluster: Cluster, tmp_path: Path) -> None:
    log = Log(tmp_path)
    empty = JsonRows(COLUMNS, "at").batch([])
    log.append(empty, source=f"{TOPIC}rides/0", position=50)
    one = source(log, cluster)
    one.poll(0)
    one.close()
    assert "up to 1, and 50 were taken in" in one.problem


def test_settings_that_the_package_refuses(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="are refused") as error:
        source(Log(tmp_path), cluster, settings={"security.protocol": "hunter22"})
    assert "hunter22" not in str(error.value)


def test_a_site_that_is_killed_neither_loses_nor_doubles(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(
        f'dir = "site"\nlisten = "127.0.0.1:0"\n[streams.rides]\ntime = "at"\ntopic = "rides"\n'
        f'bootstrap = "{cluster.bootstrap}"\nschema = "{COLUMNS}"\n'
    )
    dice = random.Random(7)
    for _ in range(3):
        with serving(file) as process:
            for _ in range(dice.randrange(4, 9)):
                for partition in range(4):
                    cluster.put(partition, dice.randrange(300))
                cluster.flush()
                time.sleep(dice.random() * 0.2)
            process.end(signal.SIGKILL)
    with serving(file) as process:
        total = sum(cluster.sent.values())
        with SiteClient(process.address) as client:
            end = time.monotonic() + PATIENCE
            while client.stream("rides").next < total and time.monotonic() < end:
                time.sleep(0.1)
            status = client.status()
        assert status["problem"] == ""
        assert status["streams"]["rides"]["source"] == "topic"
        assert process.end(signal.SIGTERM) == 0
        assert "Traceback" not in "".join(process.said)
    assert rows_of(Log(tmp_path / "site" / "rides")) == {
        partition: list(range(count)) for partition, count in cluster.sent.items()
    }


def rows_of(log: Log) -> dict[int, list[int]]:
    """The numbers of each partition, in the order in which they were taken in."""
    found: dict[int, list[int]] = {}
    for piece in log.read(0, log.next):
        columns = (piece.batch.column(name).to_pylist() for name in ("partition", "number"))
        for partition, number in zip(*columns, strict=True):
            found.setdefault(partition, []).append(number)
    return found
