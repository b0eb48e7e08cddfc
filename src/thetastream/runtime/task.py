"""The Spark task in which a worker is."""

from __future__ import annotations

from pyspark import TaskContext

from thetastream.errors import ControlError

QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"


def micro_batch() -> tuple[str, int]:
    """Return the id of the task's query and the number of its micro-batch."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY)
    batch = None if context is None else context.getLocalProperty(BATCH)
    if query is None or batch is None:
        raise ControlError(
            "Spark does not say which query and which micro-batch a task belongs to",
            detail=f"  a task has no local property {QUERY if query is None else BATCH}",
            hint="a join with a control directory needs it; leave out JoinOptions(control=...), or"
            " use PySpark 4.2 or newer",
        )
    return query, int(batch)
