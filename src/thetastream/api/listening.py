"""How we hear of the batches of a session."""

from __future__ import annotations

import json
from typing import Any

from pyspark import SparkContext
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryProgressEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)


class Listener(StreamingQueryListener):
    """Hears a batch as one text. PySpark's own way asks the JVM for each number apart, and a state
    store has hundreds: that takes longer than a small batch."""

    @property
    def _jlistener(self) -> Any:
        if not hasattr(self, "_jlistenerobj"):
            jvm: Any = SparkContext._jvm
            self._jlistenerobj = jvm.PythonStreamingQueryListenerWrapper(_Ears(self))
        return self._jlistenerobj

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is known of a query before its first batch."""

    def onQueryIdle(self, event: Any) -> None:
        """There was nothing to do for a while."""

    def onQueryTerminated(self, event: Any) -> None:
        """A query has ended."""


class _Ears(JStreamingQueryListener):
    """What the JVM calls."""

    def onQueryStarted(self, jevent: Any) -> None:
        """Nothing is done with it."""

    def onQueryProgress(self, jevent: Any) -> None:
        """A batch is committed."""
        progress = StreamingQueryProgress.fromJson(json.loads(jevent.progress().json()))
        self.pylistener.onQueryProgress(QueryProgressEvent(progress))
