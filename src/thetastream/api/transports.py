"""The choice of transports while queries run: a listener that hears what was measured."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from thetastream.api.listening import Listener
from thetastream.api.wires import wire_texts
from thetastream.transport.choosing import Chooser
from thetastream.transport.costmodel import Quantities
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
