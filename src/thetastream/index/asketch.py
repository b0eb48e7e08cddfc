"""ASketch, the predictor of hot keys: a filter with the most frequent keys before a sketch.

The filter has a new and an old count for each of its keys. A key that is in the filter is counted
there, exactly, and is hot. One that is not takes a free place, or is counted in a count-min sketch;
when its estimate exceeds the smallest new count, the two keys are exchanged. The newcomer's counts
are both set to the estimate. The other key gives back to the sketch what was counted in the filter,
which is the difference of its counts: the sketch has the rest already. So neither the filter's new
counts nor the sketch's estimates are ever below a key's true frequency.

`ASketch.see` takes one key at a time. `ASketch.add` takes the counts of a batch and leaves exactly
what `see` leaves, if that is given the keys of the batch in the order of `ASketch.order`, each as
often in a row as it was counted.

Heat is a share of the load, so it fades as rows come and not as time passes: after so many rows all
counts are halved. A key's frequency is then rounded down with each halving, and the counts are
still never below it.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from thetastream.errors import StateError
from thetastream.index.countmin import ROWS, CountMin
from thetastream.index.encoding import Bools, Int64s
from thetastream.spec import SketchOptions as SketchOptions

CHUNK = 512
"""Keys of a batch that are compared with the filter's smallest count in one step: an exchange
changes what those after it are compared with."""


class Frequent(NamedTuple):
    """A key of the filter."""

    key: int
    most: int
    """Its new count: it was not seen more often than this."""
    least: int
    """How often it was counted in the filter: it was not seen less often than this, or by two at
    most once counts were halved."""


class ASketch:
    """The frequencies of one stream's keys in one place."""

    def __init__(self, options: SketchOptions | None = None) -> None:
        self._options = SketchOptions() if options is None else options
        self._used = 0
        """Places of the filter that are taken; the others behind them are free."""
        self._keys: Int64s = np.zeros(self._options.filter_keys, dtype=np.int64)
        self._new: Int64s = np.zeros_like(self._keys)
        self._old: Int64s = np.zeros_like(self._keys)
        self.sketch = CountMin(self._options.width)
        self._rows = 0
        self._young = 0

    @property
    def options(self) -> SketchOptions:
        """Its sizes."""
        return self._options

    @property
    def rows(self) -> int:
        """Rows that were counted; halved as all counts are."""
        return self._rows

    # -- counting -------------------------------------------------------------------------------

    def see(self, key: int) -> bool:
        """Count one occurrence of a key, and say whether the key is hot.

        >>> sketch = ASketch(SketchOptions(filter_keys=1))
        >>> [sketch.see(key) for key in (7, 7, 8, 8, 8, 7)]
        [False, True, False, False, True, False]
        """
        self._count(1)
        found = np.flatnonzero(self._keys[: self._used] == key)
        if len(found):
            self._new[found[0]] += 1
            return True
        if self._used < len(self._keys):
            self._fill(_one(key), _one(1))
            return False
        place = self.sketch.places(_one(key))
        self.sketch.add_one(place, 1)
        estimate = int(self.sketch.estimates(place)[0])
        top = self._top()
        if estimate <= self._new[top]:
            return False
        leaving, given = self._exchange(top, key, estimate)
        self.sketch.add_one(self.sketch.places(_one(leaving)), given)
        return True

    def add(self, keys: Int64s, counts: Int64s) -> Bools:
        """Count the keys of a batch, each so often; which of them are hot, by position.

        A key is hot if its last occurrence is. The keys are distinct.
        """
        hot = np.zeros(len(keys), dtype=bool)
        order = self.order(keys, counts)
        self._count(int(counts.sum()))
        known = self._places(keys)
        inside = np.flatnonzero(known >= 0)
        self._new[known[inside]] += counts[inside]
        hot[inside] = True
        order = order[len(inside) :]
        free = order[: len(self._keys) - self._used]
        self._fill(keys[free], counts[free])
        hot[free] = counts[free] > 1
        order = order[len(free) :]
        if len(order):
            hot[order] = self._add_outside(keys[order], counts[order])
        return hot

    def pass_by(self, rows: int) -> None:
        """Take note of rows whose keys are too rare to be counted: they make shares smaller."""
        self._count(rows)

    def order(self, keys: Int64s, counts: Int64s) -> Int64s:
        """The order in which a batch's keys are counted: those in the filter, then the most
        frequent ones, which are the most likely to come into it; the smaller key where counts are
        equal."""
        if len(keys) != len(counts) or (len(counts) and int(counts.min()) < 1):
            raise ValueError("each key is counted at least once")
        ranked = np.sort(keys)
        if (ranked[1:] == ranked[:-1]).any():
            raise ValueError("a key is counted twice in one batch")
        found: Int64s = np.lexsort((keys, -counts, self._places(keys) < 0))
        return found

    def _add_outside(self, keys: Int64s, counts: Int64s) -> Bools:
        """Count keys that are not in the filter, which is full, in this order."""
        hot = np.zeros(len(keys), dtype=bool)
        places, homes = self.sketch.places(keys), self.sketch.places(self._keys)
        # As if there were no exchanges; what these change is set right in the cells.
        running = self.sketch.running(places, counts)
        for start in range(0, len(keys), CHUNK):
            some = slice(start, start + CHUNK)
            for turn in self._exchanges(
                keys[some], counts[some], places[:, some], running[:, some], homes
            ):
                hot[start + turn] = True
        self.sketch.add(places, counts)
        return hot

    def _exchanges(
        self, keys: Int64s, counts: Int64s, places: Int64s, running: Int64s, homes: Int64s
    ) -> Iterator[int]:
        """Let some keys, in this order, come into the filter; those that do, by position.

        `running` is what the keys of the batch up to each of them add to its cells; `homes` are the
        cells of the keys in the filter.
        """
        upto = running + np.take_along_axis(self.sketch.cells, places, axis=1)
        turn = 0
        while True:
            top = self._top()
            smallest = int(self._new[top])
            estimates = upto[:, turn:].min(axis=0)
            ahead = np.flatnonzero(estimates > smallest)
            if len(ahead) == 0:
                return
            turn += int(ahead[0])
            yield turn
            # The sketch counts the key until its estimate exceeds the smallest count, and the
            # filter counts the rest.
            before = int(estimates[ahead[0]]) - int(counts[turn])
            counted = max(1, smallest + 1 - before)
            rest = int(counts[turn]) - counted
            _, given = self._exchange(top, int(keys[turn]), before + counted)
            self._new[top] += rest
            mine, back = places[:, turn, None], homes[:, top, None].copy()
            homes[:, top] = mine[:, 0]
            self.sketch.add_one(mine, -rest)
            self.sketch.add_one(back, given)
            turn += 1
            later, cells = upto[:, turn:], places[:, turn:]
            if rest:
                later -= rest * (cells == mine)
            if given:
                later += given * (cells == back)

    def _count(self, rows: int) -> None:
        self._rows += rows
        self._young += rows

    def _places(self, keys: Int64s) -> Int64s:
        """Where in the filter each key is; -1 if it is not."""
        mine = self._keys[: self._used]
        if len(mine) == 0:
            return np.full(len(keys), -1, dtype=np.int64)
        order = np.argsort(mine)
        near = order[np.searchsorted(mine[order], keys).clip(max=len(mine) - 1)]
        return np.where(mine[near] == keys, near, -1)

    def _top(self) -> int:
        """The place of the smallest new count, the first one of several."""
        return int(np.argmin(self._new[: self._used]))

    def _fill(self, keys: Int64s, counts: Int64s) -> None:
        """Put keys in free places."""
        start, self._used = self._used, self._used + len(keys)
        self._keys[start : self._used] = keys
        self._new[start : self._used] = counts
        self._old[start : self._used] = 0

    def _exchange(self, place: int, key: int, estimate: int) -> tuple[int, int]:
        """Put a key in the place of another; that one, and what it gives back to the sketch."""
        leaving = int(self._keys[place]), int(self._new[place] - self._old[place])
        self._keys[place] = key
        self._new[place] = self._old[place] = estimate
        return leaving

    # -- asking ---------------------------------------------------------------------------------

    def estimate(self, key: int) -> int:
        """The frequency of a key; never too small."""
        found = np.flatnonzero(self._keys[: self._used] == key)
        if len(found):
            return int(self._new[found[0]])
        return int(self.sketch.estimates(self.sketch.places(_one(key)))[0])

    def frequent(self, share: float = 0.0) -> list[Frequent]:
        """The keys of the filter that may make up such a share of the rows, most frequent first.

        >>> sketch = ASketch()
        >>> hot = sketch.add(np.array([3, 5, 9]), np.array([60, 30, 10]))
        >>> sketch.frequent(share=0.2)
        [Frequent(key=3, most=60, least=60), Frequent(key=5, most=30, least=30)]
        """
        counts = zip(
            self._keys[: self._used].tolist(),
            self._new[: self._used].tolist(),
            self._old[: self._used].tolist(),
            strict=True,
        )
        found = [Frequent(key, new, new - old) for key, new, old in counts]
        least = share * self._rows
        return sorted(
            (one for one in found if one.most >= least), key=lambda one: (-one.most, one.key)
        )

    # -- fading ---------------------------------------------------------------------------------

    def age(self) -> bool:
        """Halve all counts if the half-life has passed; to be called at the end of a batch."""
        if self._options.half_life is None or self._young < self._options.half_life:
            return False
        self.fade()
        return True

    def fade(self) -> None:
        """Halve all counts. A key that was seen once is forgotten."""
        # A key's cells never have less than its old count, so that it has its new count again when
        # it leaves the filter, however halves are rounded. Outside a full filter no key is more
        # frequent than the smallest new count; so when a place becomes free all keys outside have
        # faded, and one that takes the place need not look into the sketch.
        kept = np.flatnonzero(self._new[: self._used] > 1)
        self._keys[: len(kept)] = self._keys[kept]
        self._new[: len(kept)] = self._new[kept] // 2
        self._old[: len(kept)] = self._old[kept] // 2
        self._used = len(kept)
        self.sketch.halve()
        self._rows //= 2
        self._young = 0

    # -- state ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that it knows, as JSON takes it: at most some twenty bytes for a key of the filter,
        and those of the sketch in base 64."""
        cells = self.sketch.cells
        wide = bool((cells > np.iinfo(np.uint32).max).any())
        data = zlib.compress(cells.astype("<i8" if wide else "<u4").tobytes(), 1)
        return {
            "filter": self._options.filter_keys,
            "width": self.sketch.width,
            "keys": self._keys[: self._used].tolist(),
            "new": self._new[: self._used].tolist(),
            "old": self._old[: self._used].tolist(),
            "rows": [self._rows, self._young],
            "wide": wide,
            "cells": base64.b64encode(data).decode("ascii"),
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any], options: SketchOptions | None = None) -> ASketch:
        """The sketch whose `state` it is; one of another size is refused."""
        found = cls(options)
        if _size(state) != (found._options.filter_keys, found._options.width):
            keys, width = _size(state)
            raise StateError(
                f"the checkpoint has a predictor of another size than {found._options.size}",
                detail=f"  it has a filter of {keys} keys and a sketch of {ROWS} × {width} cells",
                hint="give the sizes of the checkpoint, or let the predictor start anew: it has"
                " forgotten the hot keys then",
            )
        try:
            found._take(state)
        except (LookupError, TypeError, ValueError, OverflowError, zlib.error) as error:
            raise _damaged(f"{type(error).__name__}: {error}") from error
        return found

    @classmethod
    def restored_or_new(
        cls, state: Mapping[str, Any] | None, options: SketchOptions | None = None
    ) -> ASketch:
        """The sketch whose `state` it is; an empty one if there is none or its size is another."""
        found = cls(options)
        if state is None or _size(state) != (found._options.filter_keys, found._options.width):
            return found
        return cls.restored(state, options)

    def _take(self, state: Mapping[str, Any]) -> None:
        keys, new, old = (np.array(state[name], dtype=np.int64) for name in ("keys", "new", "old"))
        self._rows, self._young = (int(count) for count in state["rows"])
        kind = np.dtype("<i8" if state["wide"] else "<u4")
        size = self.sketch.cells.size * kind.itemsize
        try:
            packed = base64.b64decode(state["cells"], validate=True)
        except binascii.Error as error:
            raise ValueError("the cells are not in base 64") from error
        data = zlib.decompressobj().decompress(packed, size + 1)
        if len(data) != size:
            raise ValueError("there are more or fewer cells than the sketch has")
        self._used = len(keys)
        if not len(keys) == len(new) == len(old) <= len(self._keys):
            raise ValueError("keys of the filter lack their counts, or are too many")
        self._keys[: self._used], self._new[: self._used] = keys, new
        self._old[: self._used] = old
        self.sketch.cells = np.frombuffer(data, kind).astype(np.int64).reshape((ROWS, -1))
        self.validate()

    def validate(self) -> None:
        """Refuse what no sequence of batches leads to."""
        keys, new, old = (
            some[: self._used].tolist() for some in (self._keys, self._new, self._old)
        )
        if len(set(keys)) != len(keys):
            raise _damaged("a key is in the filter twice")
        if not all(0 <= before <= now and now for before, now in zip(old, new, strict=True)):
            raise _damaged("a key of the filter has an old count above the new one, or none")
        if int(self.sketch.cells.min()) < 0 or not 0 <= self._young <= self._rows:
            raise _damaged("something was counted fewer than no times")


def _one(number: int) -> Int64s:
    return np.array([number], dtype=np.int64)


def _size(state: Mapping[str, Any]) -> tuple[int, int]:
    """Keys of the filter and cells of a row of the sketch."""
    try:
        return int(state["filter"]), int(state["width"])
    except (LookupError, TypeError, ValueError) as error:
        raise _damaged(f"{type(error).__name__}: {error}") from error


def _damaged(why: str) -> StateError:
    return StateError(
        "the state of a predictor of hot keys is damaged",
        detail=f"  {why}",
        hint="start with a new checkpoint location",
    )
