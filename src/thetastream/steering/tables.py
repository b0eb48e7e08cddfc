"""The tables that routers and units go by: a fixed one, or versions in a control directory."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from thetastream.spec import JoinSpec, LiveSpec, Step
from thetastream.steering.directory import Directory, opened
from thetastream.topology.makers import make
from thetastream.topology.table import Table


class Tables(Protocol):
    """A source of tables."""

    def at(self, version: int) -> Table:
        """Return the table of a version."""

    def of_batch(self, batch: int | None) -> Table:
        """Return the table by which a batch is routed, the same one for all tasks and attempts.

        None is for what is no batch of a stream, and gets the newest table.
        """


@lru_cache(maxsize=64)
def tables_of(step: Step, query: str = "") -> Tables:
    """Return the tables of a join; `query` is Spark's id of the running one, given by routers."""
    if step.live is None:
        return FixedTable(make(step.spec, step.routing))
    return LiveTables(step.live, step.spec, opened(step.live.path, step.live.token), query)


class FixedTable:
    """One table for all batches."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def at(self, version: int) -> Table:
        return self._table

    def of_batch(self, batch: int | None) -> Table:
        return self._table


class LiveTables:
    """The versions in a control directory."""

    def __init__(self, live: LiveSpec, spec: JoinSpec, directory: Directory, query: str) -> None:
        self._live = live
        self._spec = spec
        self._directory = directory
        self._log = directory.tables(live.control)
        self._query = query
        self._unclaimed = bool(query)
        self._last: tuple[int, Table] | None = None

    def at(self, version: int) -> Table:
        if self._last is None or self._last[0] != version:
            entry = self._log.version(version)
            self._last = version, entry.table(self._live.join, self._spec, f"version {version}")
        return self._last[1]

    def of_batch(self, batch: int | None) -> Table:
        if self._unclaimed:
            # In this order: a directory that is gone is not begun anew.
            self._log.newest()
            self._directory.claim_for(self._query, self._live.control)
            self._unclaimed = False
        return self.at(self._log.newest() if batch is None else self._log.of_batch(batch))
