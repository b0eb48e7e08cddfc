"""The predictor of hot keys and values in a unit: an ASketch for each stream that it stores.

What it says is advice: nothing that is joined depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thetastream.engine.arrivals import shown, stretches
from thetastream.engine.protocol import FrequentRow, Predicted
from thetastream.index.asketch import ASketch
from thetastream.index.part import Tuples
from thetastream.spec import SketchOptions, Store, StreamSpec

RAREST = 1 << 13
"""A key with less than this part of a batch is not counted, or a sketch of many keys would take
longer than joining them. Only its rows are."""
TOLD = 16
"""Frequent keys of a stream that a report names, at most."""
LEAST_SHARE = 1 / 128
"""The share of a unit's rows that such a key has at least: a hot key has far more."""


class Predictor:
    """The sketches of one unit during one batch."""

    def __init__(
        self,
        streams: Sequence[StreamSpec],
        stores: Sequence[Store],
        states: Sequence[Any],
        options: SketchOptions,
    ) -> None:
        """`states`: what `state` gave after the batch before, if there was one. Sketches of another
        size begin anew."""
        self._streams = [streams[store.stream] for store in stores]
        self._keys = [store.heated for store in stores]
        known = [*states, *[None] * (len(stores) - len(states))]
        self._sketches = [ASketch.restored_or_new(one, options) for one in known[: len(stores)]]
        self._rows = [0] * len(stores)
        self._shown: list[dict[int, str]] = [{} for _ in stores]

    def count(self, place: int, tuples: Tuples) -> None:
        """Count the keys of a store's new tuples, which are sorted by them."""
        key = self._keys[place]
        if key is None or len(tuples) == 0:
            return
        sketch, values = self._sketches[place], tuples.keys[key]
        starts, counts = stretches(tuples, key)
        kept = np.flatnonzero(counts * RAREST >= len(values))
        codes, counts = values[starts[kept]], counts[kept]
        sketch.pass_by(len(values) - int(counts.sum()))
        sketch.add(codes, counts)
        self._rows[place] += len(values)
        for number in np.argsort(-counts, kind="stable")[:TOLD].tolist():
            code, row = int(codes[number]), int(starts[kept[number]])
            self._shown[place][code] = shown(self._streams[place], key, tuples, row)

    def predicted(self) -> list[Predicted]:
        """The frequent keys of each stream."""
        found = []
        for place, sketch in enumerate(self._sketches):
            texts = self._shown[place]
            keys = [
                FrequentRow(one.key, one.most, texts.get(one.key, ""))
                for one in sketch.frequent(LEAST_SHARE)[:TOLD]
            ]
            name = self._streams[place].name
            found.append(Predicted(name, self._rows[place], sketch.rows, keys))
        return found

    def state(self) -> list[Any]:
        """The sketches as JSON takes them, as they are when the next batch begins."""
        for sketch in self._sketches:
            sketch.age()
        return [sketch.state() for sketch in self._sketches]
