"""Where the tuples of a simulation come from: when they arrive, and what is in them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.errors import OptionError
from thetastream.workloads import SECOND, START, TIME_TYPE, Zipf

TIME = "t"
"""The column with the time at which a tuple arrives, which is also its event time."""


class Columns(Protocol):
    """Values of a column."""

    def draw(self, rng: np.random.Generator, rows: int) -> npt.NDArray[Any]:
        """So many of them."""


@dataclass(frozen=True)
class Uniform:
    """Whole numbers 0 .. domain-1, each as likely as any other."""

    domain: int

    def __post_init__(self) -> None:
        _whole("domain", self.domain)

    def draw(self, rng: np.random.Generator, rows: int) -> npt.NDArray[Any]:
        """So many of them."""
        return rng.integers(0, self.domain, rows, dtype=np.int64)


@dataclass(frozen=True)
class ZipfKeys:
    """Whole numbers 0 .. domain-1, number i in proportion to 1 / (i + 1) ** exponent."""

    domain: int
    exponent: float = 1.0

    def __post_init__(self) -> None:
        _whole("domain", self.domain)
        if not 0 <= self.exponent <= 10:
            raise OptionError(f"exponent={self.exponent!r} is not a number from 0 to 10")

    def draw(self, rng: np.random.Generator, rows: int) -> npt.NDArray[Any]:
        """So many of them."""
        return Zipf(self.domain, self.exponent).draw(rng, rows)


@dataclass(frozen=True)
class BModel:
    """Whole numbers 0 .. domain-1, of which one half has the share `bias`, and so on inside it."""

    domain: int
    bias: float = 0.7

    def __post_init__(self) -> None:
        _whole("domain", self.domain)
        if not 0.5 <= self.bias < 1:
            raise OptionError(f"bias={self.bias!r} is not a share from 0.5 to 1")

    def draw(self, rng: np.random.Generator, rows: int) -> npt.NDArray[Any]:
        """So many of them."""
        low = np.zeros(rows, dtype=np.int64)
        high = np.full(rows, self.domain, dtype=np.int64)
        for _ in range(max(1, math.ceil(math.log2(self.domain)))):
            middle = (low + high + 1) // 2
            left = (rng.random(rows) < self.bias) | (middle >= high)
            low, high = np.where(left, low, middle), np.where(left, middle, high)
        return low


@dataclass(frozen=True)
class Normal:
    """Real numbers around a mean."""

    mean: float = 0.0
    spread: float = 1.0

    def draw(self, rng: np.random.Generator, rows: int) -> npt.NDArray[Any]:
        """So many of them."""
        return rng.normal(self.mean, self.spread, rows)


@dataclass(frozen=True)
class Steps:
    """A rate that changes: from each second on it is another one.

    >>> Steps(((0, 100), (60, 300))).at(75)
    300
    """

    steps: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        starts = [start for start, _ in self.steps]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)):
            raise OptionError("steps begin at second 0, and each later than the one before")
        if any(not rate >= 0 for _, rate in self.steps):
            raise OptionError("a rate is not negative")

    def at(self, second: float) -> float:
        """The rate from that second on."""
        return self.steps[bisect_right([start for start, _ in self.steps], second) - 1][1]


Rate = float | Steps
"""Tuples per second."""


class Source(Protocol):
    """A stream."""

    @property
    def schema(self) -> pa.Schema:
        """Of its tuples; the last column is the time of arrival."""

    def between(self, start: float, end: float, rng: np.random.Generator) -> pa.Table:
        """The tuples that arrive from one second to another, in this order."""

    def most(self, seconds: float) -> float:
        """Tuples that arrive in so many seconds at most, about."""


def _rate_at(rate: Rate, second: float) -> float:
    return rate.at(second) if isinstance(rate, Steps) else rate


def _arrivals(
    rate: Rate, start: float, end: float, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """The times of a Poisson process, whose rate is that of the beginning."""
    count = int(rng.poisson(_rate_at(rate, start) * (end - start)))
    return np.sort(rng.uniform(start, end, count))


def _most(rate: Rate, seconds: float) -> float:
    highest = max(one for _, one in rate.steps) if isinstance(rate, Steps) else rate
    return highest * seconds


def _times(seconds: npt.NDArray[np.float64]) -> pa.Array:
    return pa.array(START + np.floor(seconds * SECOND).astype(np.int64), type=TIME_TYPE)


def check_rate(rate: object) -> None:
    """Refuse what is not a rate."""
    if isinstance(rate, Steps):
        return
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < math.inf:
        raise OptionError(f"rate={rate!r} is not a number of tuples per second")


@dataclass(frozen=True, kw_only=True)
class Generated:
    """Tuples that arrive by a Poisson process, with drawn columns and some bytes that nobody reads.

    >>> Generated(rate=100, columns={"k": Uniform(10)}).schema.names
    ['k', 't']
    """

    rate: Rate
    columns: Mapping[str, Columns]
    payload: int = 0
    """Bytes that each tuple carries beside its columns."""

    def __post_init__(self) -> None:
        check_rate(self.rate)
        if self.payload < 0:
            raise OptionError(f"payload={self.payload!r} is not a number of bytes")
        if TIME in self.columns or "payload" in self.columns:
            raise OptionError(f"the names {TIME} and payload are taken")

    @property
    def schema(self) -> pa.Schema:
        """Of its tuples."""
        return self._table(np.empty(0), np.random.default_rng(0)).schema

    def between(self, start: float, end: float, rng: np.random.Generator) -> pa.Table:
        """The tuples that arrive from one second to another."""
        return self._table(_arrivals(self.rate, start, end, rng), rng)

    def most(self, seconds: float) -> float:
        """Tuples that arrive in so many seconds at most, about."""
        return _most(self.rate, seconds)

    def _table(self, times: npt.NDArray[np.float64], rng: np.random.Generator) -> pa.Table:
        rows = len(times)
        columns: dict[str, Any] = {
            name: pa.array(values.draw(rng, rows)) for name, values in self.columns.items()
        }
        if self.payload:
            data = pa.py_buffer(rng.bytes(self.payload * rows))
            kind = pa.binary(self.payload)
            fixed = pa.Array.from_buffers(kind, rows, [None, data])
            columns["payload"] = fixed.cast(pa.binary())
        return pa.table({**columns, TIME: _times(times)})


class Replayed:
    """The rows of a table, which arrive by a Poisson process and begin again after the last one."""

    def __init__(self, table: pa.Table, rate: Rate, *, again: bool = True) -> None:
        """`again`: whether the first row follows the last one; else nothing more arrives."""
        check_rate(rate)
        if table.num_rows == 0:
            raise OptionError("a table without rows has nothing to replay")
        if TIME in table.column_names:
            raise OptionError(f"the name {TIME} is taken: it is the time of arrival")
        self._table = table.combine_chunks()
        self.rate = rate
        self._again = again
        self._next = 0

    @property
    def schema(self) -> pa.Schema:
        """Of its tuples."""
        return self._table.schema.append(pa.field(TIME, TIME_TYPE))

    def between(self, start: float, end: float, rng: np.random.Generator) -> pa.Table:
        """The tuples that arrive from one second to another."""
        if start <= 0:
            self._next = 0
        times = _arrivals(self.rate, start, end, rng)
        places = self._next + np.arange(len(times))
        if not self._again:
            places = places[places < self._table.num_rows]
        self._next += len(times)
        rows = self._table.take(pa.array(places % self._table.num_rows))
        return rows.append_column(TIME, _times(times[: len(places)]))

    def most(self, seconds: float) -> float:
        """Tuples that arrive in so many seconds at most, about."""
        found = _most(self.rate, seconds)
        return found if self._again else min(found, self._table.num_rows)


def _whole(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f"{name}={value!r} is not a whole number of at least 1")


def named_sources(sources: Mapping[str, Source]) -> Sequence[str]:
    """The names of the streams, checked."""
    if len(sources) < 2:
        raise OptionError("a join has two streams at least")
    return list(sources)
