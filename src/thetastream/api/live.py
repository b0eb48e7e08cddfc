"""Joins whose routing changes while they run: the listener that hears them, and the manager."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from thetastream.api.caller import warn
from thetastream.api.listening import Listener
from thetastream.api.metrics import report_texts
from thetastream.api.session import parallelism
from thetastream.api.wires import site_loads
from thetastream.errors import OptionError
from thetastream.options import JoinOptions
from thetastream.spec import JoinTree, LiveSpec, SketchOptions
from thetastream.steering.directory import ControlledJoin, Directory, opened
from thetastream.steering.files import full_path
from thetastream.steering.hotkeys import HotKeys
from thetastream.steering.loop import Loop, Progress, reports_of
from thetastream.steering.policy import Policy, Verdict

_LOOPS: dict[str, Loop] = {}
"""The loops of this process, by the ids of their tables."""
_LISTENERS: WeakKeyDictionary[SparkSession, _Listener] = WeakKeyDictionary()
"""What hears of the batches of a session."""
_LOCK = threading.Lock()


def go_live(spark: SparkSession, tree: JoinTree, path: str, options: JoinOptions) -> JoinTree:
    """The joins, going by the tables of a control directory, which is made if it is new."""
    max_units = options.max_units
    for step in tree.steps:
        if step.routing.routing.copies:
            raise OptionError(
                f"topology={step.routing.routing.value!r} keeps copies of tuples, and cannot be"
                " changed while a query runs",
                detail="a tuple must meet exactly one copy of each partner, and with tables of two"
                " versions it would meet another number of them",
                hint='choose another topology, for instance "random", or leave out control',
            )
        if step.routing.hot_units and options.hot_keys == "off":
            raise OptionError(
                "hot_values have units of their own, which a changed table would not keep apart",
                hint='add hot_keys="auto", and the values follow what is frequent; or leave out'
                " hot_values, and every unit finds its hot values by itself; or leave out control",
            )
    path = full_path(path)
    partitions = parallelism(spark)[1]
    used = max(max(step.routing.units) for step in tree.steps)
    most = max(partitions, used) if max_units is None else max_units
    if used > most:
        raise OptionError(
            f"max_units={most} is fewer than the {used} units that the join starts with",
            hint=f"give at least {used}, or fewer units",
        )
    directory = opened(path)
    join = directory.open(tree, most, time.time())
    loop = _loop(directory, join)
    refused = loop.recover()
    if refused is not None:
        warn(f"{refused.what}; the version before it is used", hint=refused.hint)
    _check_made(loop, tree, options)
    loop.use_own(HotKeys() if options.hot_keys == "auto" else None)
    if max_units is not None:
        directory.allow(join, max_units)
    if most > partitions:
        warn(
            f"{most} units share {partitions} tasks: a join with more units than the shuffle has"
            " partitions spreads its rows, but not its work",
            hint=f'before the query starts for the first time, spark.conf.set("spark.sql.shuffle'
            f'.partitions", "{most}")',
        )
    _listen(spark, loop)
    # Workers that have read tables for an earlier query read them again.
    token = uuid.uuid4().hex
    sketch = None if options.hot_keys == "off" else options.sketch or SketchOptions()
    live = LiveSpec(path=path, control=join.control, join=0, token=token, sketch=sketch)
    steps = tuple(
        replace(step, live=replace(live, join=number)) for number, step in enumerate(tree.steps)
    )
    return replace(tree, steps=steps)


def _check_made(loop: Loop, tree: JoinTree, options: JoinOptions) -> None:
    """Refuse to follow hot values with tables that have no units for them, and to choose the
    subgroups of tables that have others."""
    tables = loop.tables.current().joins
    for table, step in zip(tables, tree.steps, strict=True):
        if step.routing.hot_units and not table.made.hot_units:
            raise OptionError(
                f"the routing tables in {loop.directory.name} have no units for hot values",
                detail="  the query was started without hot_keys, and such units are there from"
                " the beginning or never",
                hint="leave out hot_keys, or start with a new checkpoint location and a new control"
                " directory",
            )
        subgroups = table.made.subgroups
        if options.subgroups not in ("auto", subgroups):
            raise OptionError(
                f"the routing tables in {loop.directory.name} have the subgroups {subgroups},"
                f" and not {options.subgroups}",
                hint=f"give subgroups={subgroups}, or leave it out; for others, start with a new"
                " checkpoint location and a new control directory",
            )


def _loop(directory: Directory, join: ControlledJoin) -> Loop:
    """Return this process's loop for a join and its control directory."""
    with _LOCK:
        return _LOOPS.setdefault(join.control, Loop(directory, join))


def _listen(spark: SparkSession, loop: Loop) -> None:
    """Hear of the batches of a session's queries, with one listener however many there are."""
    with _LOCK:
        known = _LISTENERS.get(spark)
        if known is not None:
            known.loops[loop.control] = loop
            return
        listener = _LISTENERS[spark] = _Listener()
        listener.loops[loop.control] = loop
    spark.streams.addListener(listener)


class _Listener(Listener):
    """Tells the loops of a session of committed batches."""

    def __init__(self) -> None:
        self.loops: dict[str, Loop] = {}
        """By the ids of their tables."""
        self._of: dict[str, set[str]] = {}
        """The control directories of each query."""

    def onQueryProgress(self, event: Any) -> None:
        """A batch is committed."""
        progress = event.progress
        query = str(progress.id)
        observed = progress.observedMetrics or {}
        reports = reports_of(report_texts(observed))
        mine = self._of.setdefault(query, set())
        mine.update(reports.keys() & self.loops.keys())
        for control in mine:
            self.loops[control].committed(
                Progress(
                    query=query,
                    batch=progress.batchId,
                    at=time.time(),
                    rows_in=progress.numInputRows - site_loads(observed)[1],
                    seconds=(progress.durationMs or {}).get("triggerExecution", 0) / 1000,
                    reports=reports.get(control, ()),
                )
            )

    def onQueryIdle(self, event: Any) -> None:
        """There was nothing to do for a while."""
        for control in self._of.get(str(event.id), ()):
            self.loops[control].idle()

    def onQueryTerminated(self, event: Any) -> None:
        """Somebody else may go on with the tables."""
        for control in self._of.pop(str(event.id), ()):
            self.loops[control].stop()


class Manager:
    """Policies that decide about the routing of a query; `manage` makes one.

    >>> manager = ts.manage(query, control_path, [ts.TwoPhaseScaling(measure="cpu")])
    >>> isinstance(manager, ts.Manager)
    True
    >>> manager.stop()
    """

    def __init__(self, loop: Loop, policies: Sequence[Policy]) -> None:
        self._loop = loop
        self._policies = list(policies)
        self._decided: list[Verdict] = []

    @property
    def decisions(self) -> list[Verdict]:
        """What the policies have decided, oldest first."""
        found = [one for policy in self._policies for one in self._loop.decisions(policy)]
        return [*self._decided, *sorted(found, key=lambda one: one.at)]

    def stop(self) -> None:
        """Ask the policies no more; changes by hand go on."""
        self._decided = self.decisions
        self._loop.remove(self._policies)

    def __enter__(self) -> Manager:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def manage(query: StreamingQuery, path: str, policies: Iterable[Policy]) -> Manager:
    """Let policies change a running query's routing tables, until the manager is stopped.

    >>> with ts.manage(query, control_path, [ts.TwoPhaseScaling(capacity=2**30)]) as manager:
    ...     manager.decisions
    []
    """
    path, chosen = full_path(path), list(policies)
    for policy in chosen:
        if not callable(getattr(policy, "decide", None)) or not hasattr(policy, "every"):
            raise OptionError(
                f"{policy!r} is not a policy", hint="a policy has name, every and decide(...)"
            )
    directory = opened(path)
    loop = _loop(directory, directory.require())
    spark = getattr(query, "_session", None) or SparkSession.getActiveSession()
    loop.add(chosen)
    if spark is not None:
        _listen(spark, loop)
    return Manager(loop, chosen)
