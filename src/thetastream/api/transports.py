"""The choice of transports while queries run: heard by a listener, and told in notes."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from thetastream.api.listening import Listener
from thetastream.api.wires import SiteLoad, added, wire_texts
from thetastream.transport.choosing import Chooser
from thetastream.transport.costmodel import Choice, Quantities
from thetastream.transport.estimate import Estimate

_LISTENERS: WeakKeyDictionary[SparkSession, _Listener] = WeakKeyDictionary()
_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []
"""Where choices are written; removed when this process ends."""


def chosen_while_running(spark: SparkSession, known: Quantities, *, whole: bool) -> tuple[str, str]:
    """The file in which the choice for a stream will be, and the token of its reports."""
    token = uuid.uuid4().hex
    if not _FOLDERS:
        _FOLDERS.append(tempfile.TemporaryDirectory(prefix="thetastream-"))
    path = Path(_FOLDERS[0].name) / token
    chooser = Chooser(Estimate(known), "simple" if whole else "semijoin", path)
    if spark not in _LISTENERS:
        _LISTENERS[spark] = _Listener()
        spark.streams.addListener(_LISTENERS[spark])
    _LISTENERS[spark].choosers[token] = chooser
    return str(path), token


def transport_notes(batches: Sequence[Sequence[SiteLoad]]) -> Iterator[str]:
    """What became of the choices that were made while a query ran, and the last one's reason."""
    for load in added(load for loads in batches for load in loads):
        mine = [
            one
            for loads in batches
            for one in loads
            if (one.site, one.stream) == (load.site, load.stream) and one.read_rows
        ]
        partial = sum(one.partial_rows > 0 for one in mine)
        if 0 < partial < len(mine):
            yield (
                f"{load.stream} came as partial tuples in {partial} batches and as whole ones in"
                f" {len(mine) - partial}: the cheaper transport changed as the query ran."
            )
        choice = _last_choice(load.feed)
        if choice is not None:
            kind = "whole" if choice.transport == "simple" else "partial"
            yield (
                f"For {load.stream}, {kind} tuples were chosen last: for a second's tuples, as"
                f" measured, simple costs {choice.simple:.3g} s and semijoin"
                f" {choice.semijoin:.3g} s; {choice.reason}."
            )


def _last_choice(feed: str) -> Choice | None:
    """What was chosen last for a stream of a query in this process, if it was chosen at all."""
    for listener in _LISTENERS.values():
        chooser = listener.choosers.get(feed)
        if chooser is not None:
            return chooser.last
    return None


class _Listener(Listener):
    """Tells the choosers of a session what its batches measured."""

    def __init__(self) -> None:
        self.choosers: dict[str, Chooser] = {}

    def onQueryProgress(self, event: Any) -> None:
        """A batch is done."""
        progress = event.progress
        found: dict[str, list[Mapping[str, Any]]] = {}
        for text in wire_texts(progress.observedMetrics or {}):
            report = json.loads(text)
            found.setdefault(report["token"], []).append(report)
        seconds = (progress.durationMs or {}).get("triggerExecution", 0) / 1000
        for token, reports in found.items():
            if token in self.choosers:
                self.choosers[token].heard(seconds, reports)
