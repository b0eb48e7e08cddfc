"""Spares a worker process the collection of garbage that it does not have.

PySpark collects garbage after every task, in each worker. With pandas, Arrow and this library
loaded, that takes a worker 60 ms and more, while the next stage's tasks wait for a core or for it.
"""

from __future__ import annotations

import functools
import gc

from pyspark import TaskContext


@functools.cache
def freeze_loaded_modules() -> None:
    """Called at the end of a task: what the first one has loaded is no longer looked at.

    Modules, classes and code stay for the life of the process; what later tasks make is collected
    as before. Only a worker does this, not a program that runs a processor by itself.
    """
    if TaskContext.get() is None:
        return
    gc.collect()
    gc.freeze()
