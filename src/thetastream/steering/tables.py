"""The table that a router or a unit goes by: one for ever, or versions in a control directory."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from thetastream.errors import ControlError
from thetastream.spec import JoinSpec, LiveSpec, Step
from thetastream.steering.directory import Directory, opened
from thetastream.steering.version import Version
from thetastream.topology.makers import make
from thetastream.topology.table import Table


class Tables(Protocol):
    """Where tables come from."""

    def at(self, version: int) -> Table:
        """The table of a version."""

    def newest(self) -> Table:
        """The table that is in use now: not the same one if a task runs again."""

    def gone(self) -> ControlError:
        """The error for a version that nobody knows."""


@lru_cache(maxsize=64)
def tables_of(step: Step, query: str = "") -> Tables:
    """Where the tables of a join come from; `query` is Spark's name of the running one."""
    if step.live is None:
        return Fixed(make(step.spec, step.routing))
    return Changing(step.live, step.spec, opened(step.live.path, step.live.token), query)


class Fixed:
    """One table for ever."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def at(self, version: int) -> Table:
        return self._table

    def newest(self) -> Table:
        return self._table

    def gone(self) -> ControlError:
        return ControlError("a table that does not change has no versions")


class Changing:
    """The versions in a control directory."""

    def __init__(self, live: LiveSpec, spec: JoinSpec, directory: Directory, query: str) -> None:
        self._live = live
        self._spec = spec
        self._directory = directory
        self._query = query
        self._checked_tables: dict[int, Table] = {}

    def at(self, version: int) -> Table:
        if version not in self._checked_tables:
            self._check_query()
            self._checked_tables = {version: self._found(version)}
        return self._checked_tables[version]

    def _found(self, version: int) -> Table:
        found = self._directory.version(version)
        if found.control != self._live.control:
            # Of a directory that was here before.
            self._directory.forget_tables()
            found = self._directory.version(version)
        return self._checked(found)

    def newest(self) -> Table:
        return self.at(self._directory.number())

    def gone(self) -> ControlError:
        return self._directory.gone()

    def _check_query(self) -> None:
        owner = self._directory.require().query if self._query else ""
        if owner and owner != self._query:
            raise ControlError(
                f"the control directory {self._directory.name} is in use by another query",
                detail=f"  it belongs to the query {owner}; this one is {self._query}",
                hint="give each query, and each new checkpoint, a control directory of its own",
            )

    def _checked(self, version: Version) -> Table:
        if version.control != self._live.control:
            raise ControlError(
                f"version {version.version} of the routing table belongs to another control"
                " directory",
                detail=f"  it is of {version.control}; this one is {self._live.control}",
                hint="put back the control directory as it was",
            )
        return version.table(self._live.join, self._spec, f"version {version.version}")
