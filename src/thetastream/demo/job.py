"""The demo's job: two generated streams, a theta join through the public interface, a sink."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import thetastream as ts
from thetastream.workloads import City, write_batch

BATCHES = 15
"""One file of each stream per batch, each with one minute of event time."""

REACH = 5
"""Metres between an order and a ride that may serve it."""
WITHIN_MINUTES = 10

PREDICATE = (
    f"orders.zone = rides.zone AND orders.fare > rides.fare AND abs(orders.x - rides.x) <= {REACH}"
)
WITHIN = f"{WITHIN_MINUTES} minutes"
DELAY = "5 seconds"
TIME = {"orders": "placed_at", "rides": "seen_at"}

ORDERS = "order_id BIGINT, zone INT, fare DOUBLE, x DOUBLE, placed_at TIMESTAMP"
RIDES = "ride_id BIGINT, zone INT, fare DOUBLE, x DOUBLE, seen_at TIMESTAMP"


@dataclass(frozen=True)
class Folders:
    """Where the streams arrive and the results go."""

    root: Path

    @property
    def orders(self) -> Path:
        return self.root / "orders"

    @property
    def rides(self) -> Path:
        return self.root / "rides"

    @property
    def results(self) -> Path:
        return self.root / "results"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"


class Producer(threading.Thread):
    """Writes the batches of both streams, evenly over the given seconds."""

    def __init__(self, folders: Folders, *, rows: int, seconds: float) -> None:
        super().__init__(name="producer", daemon=True)
        self.city = City()
        self.folders = folders
        self.rows_per_batch = max(1, rows // BATCHES)
        self.pause = seconds / BATCHES
        self.written = 0
        self.failure: BaseException | None = None
        self._stop_asked = threading.Event()

    def run(self) -> None:
        try:
            begin = time.monotonic()
            for batch in range(BATCHES):
                if self._stop_asked.wait(max(0.0, begin + batch * self.pause - time.monotonic())):
                    return
                rows = self.rows_per_batch
                write_batch(self.city.orders(batch, rows), self.folders.orders, batch)
                write_batch(self.city.rides(batch, rows), self.folders.rides, batch)
                self.written = batch + 1
        except BaseException as failure:
            # Raised again by the main thread, which would otherwise wait for rows for ever.
            self.failure = failure

    def stop(self) -> None:
        """Makes the thread end before its next batch."""
        self._stop_asked.set()


@dataclass
class Job:
    """A started join, with the batches that it has reported so far."""

    query: StreamingQuery
    producer: Producer
    plan: str
    batches: dict[int, ts.BatchMetrics] = field(default_factory=dict)
    _drained: threading.Event = field(default_factory=threading.Event)
    _failure: BaseException | None = None

    def poll(self) -> bool:
        """Takes over new reports; true as long as there is something left to join."""
        if self.producer.failure is not None:
            raise self.producer.failure
        if self._failure is not None:
            raise self._failure
        done = self._drained.is_set()
        # Only recent batches are reported each time: collect them while they are there. A batch
        # without rows only moves the watermark.
        self.batches.update(
            (report.batch, report) for report in ts.metrics(self.query) if report.rows_in
        )
        return not done

    def drain(self) -> None:
        """Waits until every written row is joined; runs in a thread of its own."""
        try:
            self.producer.join()
            self.query.processAllAvailable()
        except BaseException as failure:
            self._failure = failure
        finally:
            self._drained.set()


@contextmanager
def running(spark: SparkSession, folders: Folders, *, rows: int, seconds: float) -> Iterator[Job]:
    """The join, started; stopped on the way out."""
    for folder in (folders.orders, folders.rides):
        folder.mkdir(mode=0o700)
    reader = spark.readStream.option("maxFilesPerTrigger", 1)
    streams = ts.streams(
        orders=reader.schema(ORDERS).parquet(str(folders.orders)),
        rides=reader.schema(RIDES).parquet(str(folders.rides)),
    )
    plan = streams.explain(PREDICATE, within=WITHIN, delay=DELAY, time=TIME)
    joined = streams.join(PREDICATE, within=WITHIN, delay=DELAY, time=TIME)
    query = (
        joined.writeStream.format("parquet")
        .option("path", str(folders.results))
        .option("checkpointLocation", str(folders.checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )
    producer = Producer(folders, rows=rows, seconds=seconds)
    job = Job(query, producer, plan.explain())
    try:
        producer.start()
        threading.Thread(target=job.drain, name="drain", daemon=True).start()
        yield job
    finally:
        producer.stop()
        query.stop()
