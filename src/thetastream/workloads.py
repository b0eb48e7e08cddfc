"""Streams to join: made with numpy from a seed, paced in event time, written as parquet files.

Every function is deterministic in its generator, so a benchmark, a demo and the check of either see
the same rows. Event times are microseconds since 1970 in UTC.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

SECOND = 1_000_000
"""Microseconds."""

START = 1_767_225_600 * SECOND
"""2026-01-01 00:00 UTC: a fixed start, so that the same seed gives the same files."""

TIME_TYPE = pa.timestamp("us", tz="UTC")
"""What Spark reads as TIMESTAMP."""


def uniform_keys(rng: np.random.Generator, rows: int, domain: int) -> Integers:
    """Keys 0 .. domain-1, each as likely as any other."""
    return rng.integers(0, domain, rows, dtype=np.int64)


@dataclass(frozen=True)
class Zipf:
    """Keys 0 .. domain-1 where key i is drawn in proportion to 1 / (i + 1) ** exponent.

    Drawn through the inverse of the cumulative distribution: numpy's own sampler has no bound on
    the domain and no exponent of one, which is the one that benchmarks ask for.
    """

    domain: int
    exponent: float = 1.0

    def shares(self) -> Floats:
        """The probability of each key, most frequent first."""
        weights = np.arange(1, self.domain + 1, dtype=np.float64) ** -self.exponent
        shares: Floats = weights / weights.sum()
        return shares

    def draw(self, rng: np.random.Generator, rows: int) -> Integers:
        """`rows` keys."""
        cumulative = np.cumsum(self.shares())
        # Rounding may leave the last sum a little below one; no draw may fall behind it.
        cumulative[-1] = 1.0
        return np.searchsorted(cumulative, rng.random(rows), side="right").astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How event time passes: slice after slice, one slice per batch, partly out of order."""

    span: int
    """Microseconds of event time in a batch."""
    start: int = START
    jitter: int = 0
    """The most microseconds that a row lags behind its place in the batch."""
    jittered: float = 0.0
    """The share of rows that lag."""

    def times(self, rng: np.random.Generator, batch: int, rows: int) -> Integers:
        """The event times of one batch, rising but for the rows that lag.

        No row is older than the newest row of any earlier batch by `jitter` or more: with a delay
        of at least `jitter`, none is late.
        """
        times = np.sort(rng.integers(0, self.span, rows, dtype=np.int64))
        times += self.start + batch * self.span
        if self.jitter and self.jittered:
            lag = rng.integers(0, self.jitter, rows, dtype=np.int64)
            times -= np.where(rng.random(rows) < self.jittered, lag, 0)
        return times


@dataclass(frozen=True, kw_only=True)
class City:
    """Orders and rides in one city: skewed zones, fares in cents, a place along one street."""

    seed: int = 7
    zones: int = 200
    street: float = 20_000.0
    """Metres."""
    pace: Pace = Pace(span=60 * SECOND, jitter=4 * SECOND, jittered=0.3)

    def orders(self, batch: int, rows: int) -> pa.Table:
        """One batch of orders."""
        return self._batch("order_id", "placed_at", batch, rows, side=0, mean_fare=18.0)

    def rides(self, batch: int, rows: int) -> pa.Table:
        """One batch of rides on offer."""
        return self._batch("ride_id", "seen_at", batch, rows, side=1, mean_fare=20.0)

    def _batch(
        self, id_name: str, time_name: str, batch: int, rows: int, *, side: int, mean_fare: float
    ) -> pa.Table:
        # A generator per batch and side: any batch can be made again without those before it.
        rng = np.random.default_rng((self.seed, batch, side))
        return pa.table(
            {
                id_name: pa.array(np.arange(batch * rows, (batch + 1) * rows, dtype=np.int64)),
                "zone": pa.array(Zipf(self.zones).draw(rng, rows).astype(np.int32)),
                "fare": pa.array(np.round(rng.gamma(4.0, mean_fare / 4.0, rows), 2)),
                "x": pa.array(np.round(rng.uniform(0.0, self.street, rows), 2)),
                time_name: pa.array(self.pace.times(rng, batch, rows), type=TIME_TYPE),
            }
        )


def write_batch(table: pa.Table, folder: Path, batch: int, row_group: int | None = None) -> Path:
    """The table as a file of the folder, which a reader sees whole or not at all.

    Tasks of Spark share a file by its row groups, which have so many rows.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = folder / f"batch-{batch:06d}.parquet"
    # Spark's file source skips names that begin with a dot.
    hidden = folder / f".{file.name}"
    pq.write_table(table, hidden, row_group_size=row_group)
    hidden.chmod(0o600)
    hidden.rename(file)
    return file


def write_batches(
    tables: Iterator[pa.Table], folder: Path, row_group: int | None = None
) -> list[Path]:
    """All tables as files that Spark's file source reads in this order."""
    files = [write_batch(table, folder, batch, row_group) for batch, table in enumerate(tables)]
    in_order(files)
    return files


def in_order(files: Sequence[Path]) -> None:
    """Sets the modification times of files so that they follow the files' order."""
    # The source orders files by their time of change, in milliseconds: too coarse for quick writes.
    for batch, file in enumerate(files):
        at = START // SECOND + batch
        os.utime(file, (at, at))


def b_model(rng: np.random.Generator, total: int, levels: int, bias: float = 0.7) -> Integers:
    """Bursty counts: `total` is halved unevenly, `levels` times over, either half the larger."""
    counts = np.array([total], dtype=np.int64)
    for _ in range(levels):
        larger = np.where(rng.random(len(counts)) < 0.5, bias, 1.0 - bias)
        left = np.round(counts * larger).astype(np.int64)
        counts = np.stack([left, counts - left], axis=1).ravel()
    return counts


Stream: TypeAlias = Callable[[int, int], pa.Table]
"""From a batch's number and its rows to the batch."""

_MINUTE = Pace(span=60 * SECOND, jitter=2 * SECOND, jittered=0.2)
_BURSTS = 8
"""Levels of the b-model: a batch has 256 bursts."""


def _rng(seed: int, batch: int, side: int) -> np.random.Generator:
    # A generator per batch and side: any batch can be made again without those before it.
    return np.random.default_rng((seed, batch, side))


def _table(batch: int, rows: int, times: Integers, **columns: npt.NDArray[Any]) -> pa.Table:
    ids = np.arange(batch * rows, batch * rows + len(times), dtype=np.int64)
    stamped = pa.array(times, type=TIME_TYPE)
    return pa.table({"id": ids, **{k: pa.array(v) for k, v in columns.items()}, "t": stamped})


def zipf_streams(seed: int) -> dict[str, Stream]:
    """r with Zipf keys, s with uniform ones; both with a value."""
    keys = Zipf(10_000)

    def stream(side: int) -> Stream:
        def make(batch: int, rows: int) -> pa.Table:
            rng = _rng(seed, batch, side)
            k = uniform_keys(rng, rows, keys.domain) if side else keys.draw(rng, rows)
            v = uniform_keys(rng, rows, 1_000_000)
            return _table(batch, rows, _MINUTE.times(rng, batch, rows), k=k, v=v)

        return make

    return {"r": stream(0), "s": stream(1)}


def b_model_streams(seed: int) -> dict[str, Stream]:
    """Uniform keys that arrive in bursts, as network traffic does."""

    def stream(side: int) -> Stream:
        def make(batch: int, rows: int) -> pa.Table:
            rng = _rng(seed, batch, side)
            counts = b_model(rng, rows, _BURSTS)
            length = _MINUTE.span // len(counts)
            bursts = np.repeat(np.arange(len(counts)), counts)
            times = START + batch * _MINUTE.span + bursts * length
            times = np.sort(times + rng.integers(0, length, len(bursts)))
            return _table(batch, rows, times, k=uniform_keys(rng, rows, 10_000))

        return make

    return {"r": stream(0), "s": stream(1)}


def fare_streams(seed: int) -> dict[str, Stream]:
    """Taxi trips: most fares between 5 and 20, a few much higher, some exact favourites."""

    def make(batch: int, rows: int) -> pa.Table:
        rng = _rng(seed, batch, 0)
        distance = np.round(rng.lognormal(0.75, 0.8, rows), 2)
        fare = np.round((2.5 + 2.5 * distance + rng.gamma(2.0, 1.0, rows)) * 2) / 2
        fixed = rng.random(rows)
        fare = np.where(fixed < 0.02, 52.0, np.where(fixed < 0.1, 6.5, fare))
        taxi = Zipf(13_000, 0.3).draw(rng, rows)
        times = _MINUTE.times(rng, batch, rows)
        return _table(batch, rows, times, taxi=taxi, distance=distance, fare=fare)

    return {"trips": make}


def power_streams(seed: int) -> dict[str, Stream]:
    """Voltage and current at the input (r) and the output (s) of a generator."""

    def stream(side: int) -> Stream:
        number = side + 1

        def make(batch: int, rows: int) -> pa.Table:
            rng = _rng(seed, batch, side)
            times = _MINUTE.times(rng, batch, rows)
            phase = 2 * np.pi * 50 * (times % SECOND) / SECOND
            voltage = np.round(325 * np.sin(phase) + rng.normal(0, 3, rows) - 2 * side, 3)
            current = np.round(14 * np.sin(phase - 0.3) + rng.normal(0, 0.5, rows), 3)
            columns = {f"v{number}": voltage, f"i{number}": current}
            return _table(batch, rows, times, **columns)

        return make

    return {"r": stream(0), "s": stream(1)}


def gps_streams(seed: int) -> dict[str, Stream]:
    """Three fleets that move at random over a square of ten kilometres."""
    vehicles, side_length = 500, 10_000.0

    def stream(side: int) -> Stream:
        def make(batch: int, rows: int) -> pa.Table:
            rng = _rng(seed, batch, side)
            vehicle = uniform_keys(rng, rows, vehicles)
            homes = np.random.default_rng((seed, side)).random((vehicles, 2)) * side_length
            drift = rng.normal(0.0, 30.0 * np.sqrt(batch + 1), (rows, 2))
            x, y = np.mod(homes[vehicle] + drift, side_length).round(2).T
            return _table(batch, rows, _MINUTE.times(rng, batch, rows), vehicle=vehicle, x=x, y=y)

        return make

    return {"r": stream(0), "s": stream(1), "t": stream(2)}


def city_streams(seed: int) -> dict[str, Stream]:
    """The orders and rides of the demo."""
    city = City(seed=seed)
    return {"orders": city.orders, "rides": city.rides}


WORKLOADS: dict[str, Callable[[int], dict[str, Stream]]] = {
    "city": city_streams,
    "zipf": zipf_streams,
    "bmodel": b_model_streams,
    "fares": fare_streams,
    "power": power_streams,
    "gps": gps_streams,
}
"""The workloads that are made here, by name; each from a seed."""
