"""A control directory: the routing tables of a query, and the requests to change them.

    control.json         the directory's own id and format
    joins/CONTROL.json   a join that was built with the directory
    query.json           the query and the join that it belongs to, from the first batch on
    tables/, batches/    versions of the tables, and which batch used which (`table_log`)
    exports/             tuples on their way from one unit to another
    requests/, answers/  changes that were requested, and their outcomes
    status.json          the units' last reports, for people
    damaged/             files that could not be read and were put aside

What routing depends on is created once and never changed, so that no process can take anything back
that another one relies on. A program may build several joins with one directory; the first batch
that runs claims it for its query, and every other one is refused.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import count
from typing import Any

from thetastream.errors import ControlError, ThetastreamError
from thetastream.spec import JoinTree
from thetastream.spec.codec import digest, read
from thetastream.steering.edits import Edit, edit_from_json, edit_to_json
from thetastream.steering.files import Files, open_files, without_secrets
from thetastream.steering.table_log import LARGEST, TableLog
from thetastream.steering.version import first_version

FORMAT = 2
KEPT_ANSWERS = 100
_ASIDE = "damaged"
_ORDER = count()
_EXPORT = re.compile(r"(\d{8,18})-[0-9a-f]{64}", re.ASCII)
_CONTROL = re.compile(r"[0-9a-f]{16}")
_REQUEST = re.compile(r"[0-9a-f]{8,64}")


@dataclass(frozen=True, kw_only=True)
class ControlledJoin:
    """A join that was built with a control directory."""

    control: str
    """The id of its tables: no other directory, and no other join, has it."""
    fingerprint: dict[str, str]
    max_units: int
    at: float
    """When it was built, in seconds since 1970."""
    tree: JoinTree


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The query that a control directory belongs to."""

    query: str
    """Spark's id of the query."""
    control: str


@dataclass(frozen=True, kw_only=True)
class Request:
    """A change that somebody asked for."""

    id: str
    at: float
    by: str
    why: str
    edit: Edit


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The outcome of a request."""

    request: str
    state: str
    """`refused`, `started`, `done`, or `nothing` if everything was so already."""
    what: str = ""
    hint: str = ""
    change: int = 0


class Directory:
    """One control directory."""

    def __init__(self, path: str, files: Files | None = None) -> None:
        self.path = path
        self.name = without_secrets(path)
        """The path as it is shown to people."""
        self.files = open_files(path) if files is None else files

    # -- the join and the query that it belongs to ------------------------------------------------

    def belongs(self) -> ControlledJoin | None:
        """Return the join that claimed the directory, else the one built last, else None."""
        if self._identity() is None:
            return None
        claim = self.claim()
        if claim is not None:
            return self.join(claim.control)
        names = self.files.names("joins")
        joins = [self.join(name.removesuffix(".json")) for name in names if name.endswith(".json")]
        return max(joins, key=lambda join: join.at, default=None)

    def require(self) -> ControlledJoin:
        """Return the same; refused if there is none."""
        join = self.belongs()
        if join is None:
            raise ControlError(
                f"{self.name} is not a control directory",
                detail="  it has no control.json",
                hint="give the path of JoinOptions(control=...); if the directory was deleted, put"
                " it back, or start with a new checkpoint location",
            )
        return join

    def join(self, control: str) -> ControlledJoin:
        """Return the join whose tables have this id."""
        raw = self._json(f"joins/{control}.json") if _CONTROL.fullmatch(control) else None
        if raw is None:
            raise self._unreadable(f"joins/{control}.json is missing")
        try:
            return read(ControlledJoin, raw)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise self._unreadable(f"joins/{control}.json: {type(error).__name__}") from error

    def open(self, tree: JoinTree, max_units: int, at: float) -> ControlledJoin:
        """Return the join as the directory has it; a new one is entered, another's is refused."""
        identity = self._make_identity()
        self.check(tree)
        claim = self.claim()
        if claim is not None:
            return self.join(claim.control)
        join = ControlledJoin(
            control=digest([identity, asdict(tree)]),
            fingerprint=live_fingerprint(tree),
            max_units=max_units,
            at=at,
            tree=tree,
        )
        self.files.create(f"joins/{join.control}.json", _text(join))
        join = self.join(join.control)
        first = first_version(join.control, tree, join.max_units, join.at)
        self.tables(join.control).begin(first)
        return join

    def check(self, tree: JoinTree) -> None:
        """Refuse the join if the directory belongs to another one."""
        claim = self.claim()
        if claim is None:
            return
        fingerprint, known = live_fingerprint(tree), self.join(claim.control).fingerprint
        changed = [
            name
            for name in dict.fromkeys((*fingerprint, *known))
            if fingerprint.get(name) != known.get(name)
        ]
        if changed:
            raise ControlError(
                f"the control directory {self.name} belongs to another query:"
                f" {', '.join(changed)} differs",
                detail="\n".join(
                    f"  {name}: was {known.get(name, 'not known')}, is"
                    f" {fingerprint.get(name, 'not known')}"
                    for name in changed
                ),
                hint="give each query a directory of its own",
            )

    def claim(self) -> Claim | None:
        """Return the query that the directory belongs to; None before its first batch."""
        raw = self._json("query.json")
        try:
            return None if raw is None else read(Claim, raw)
        except (TypeError, ValueError, LookupError) as error:
            raise self._unreadable(f"query.json: {type(error).__name__}") from error

    def claim_for(self, query: str, control: str) -> None:
        """Let the directory belong to a query and its join; refused if it is another one's."""
        wanted = Claim(query=query, control=control)
        owner = self.claim()
        if owner is None:
            self.files.create("query.json", _text(wanted))
            owner = self.claim()
        if owner != wanted:
            claimed = "nobody" if owner is None else owner.query
            raise ControlError(
                f"the control directory {self.name} is in use by another query",
                detail=f"  it belongs to the query {claimed}; this one is {query}",
                hint="give each query, and each new checkpoint, a control directory of its own",
            )

    def max_units(self, join: ControlledJoin) -> int:
        """Return the largest number of units that changes may lead to."""
        raw = self._json("max_units.json") or {}
        limit = raw.get(join.control)
        return limit if isinstance(limit, int) else join.max_units

    def allow(self, join: ControlledJoin, max_units: int) -> None:
        """Set that number, which is not below the units in use."""
        if self.max_units(join) == max_units:
            return
        active = 1 + max(
            max(table.active(stage))
            for table in self.tables(join.control).current().joins
            for stage in range(len(table.stages))
        )
        if active > max_units:
            raise ControlError(
                f"max_units={max_units} is fewer than the {active} units that are in use",
                hint=f"give at least {active}, or scale in first",
            )
        self.files.write("max_units.json", json.dumps({join.control: max_units}).encode())

    def tables(self, control: str) -> TableLog:
        """Return the versions of a join's tables."""
        return TableLog(self.files, control, self.name)

    def _identity(self) -> str | None:
        raw = self._json("control.json")
        if raw is None:
            if self.files.names("tables"):
                raise self._unreadable("it has tables, and no control.json")
            return None
        if raw.get("format") != FORMAT:
            raise self._unreadable(f"it has format {raw.get('format')}; this release has {FORMAT}")
        return str(raw.get("id"))

    def _make_identity(self) -> str:
        if (identity := self._identity()) is not None:
            return identity
        directory = {"format": FORMAT, "id": secrets.token_hex(8)}
        self.files.create("control.json", json.dumps(directory).encode())
        return self._make_identity()

    # -- requests ---------------------------------------------------------------------------------

    def ask(self, edit: Edit, *, by: str, why: str, at: float) -> str:
        """Write a request; return its id."""
        self.require()
        # In the order in which they were made, also within a millisecond.
        name = f"{int(at * 1000):013x}{next(_ORDER) % 0x10000:04x}{secrets.token_hex(4)}"
        raw = {"id": name, "at": at, "by": by, "why": why, "edit": edit_to_json(edit)}
        self.files.write(f"requests/{name}.json", json.dumps(raw).encode())
        return name

    def requests(self) -> Iterator[Request | Answer]:
        """Yield the requests that are not answered, oldest first.

        One that makes no sense comes as its refusal; what is no file at all is put aside.
        """
        for name in self._request_names():
            request = name.removesuffix(".json")
            if not _REQUEST.fullmatch(request):
                continue
            if self._is_answered(request):
                # Whoever answered it ended before the request was removed.
                self.files.remove(f"requests/{name}")
                continue
            try:
                data = self.files.read(f"requests/{name}")
            except (IsADirectoryError, NotADirectoryError):
                self.put_aside(f"requests/{name}")
                continue
            try:
                raw = json.loads(data or b"{}")
                yield Request(
                    id=request,
                    at=float(raw["at"]),
                    by=str(raw["by"])[:100],
                    why=str(raw["why"])[:1000],
                    edit=edit_from_json(raw["edit"]),
                )
            except ThetastreamError as error:
                yield Answer(request=request, state="refused", what=error.what, hint=error.hint)
            except Exception as error:  # whatever somebody has put there
                what = f"no request: {type(error).__name__}"
                yield Answer(request=request, state="refused", what=what)

    def _is_answered(self, request: str) -> bool:
        try:
            return self.files.read(f"answers/{request}.json") is not None
        except (IsADirectoryError, NotADirectoryError):
            self.put_aside(f"answers/{request}.json")
            return False

    def _request_names(self) -> list[str]:
        try:
            return self.files.names("requests")
        except NotADirectoryError:
            self.put_aside("requests")
            return []

    def answer(self, answer: Answer) -> None:
        """Record the outcome of a request.

        A refusal never replaces another process's answer: its author may have been paused while the
        request was carried out.
        """
        if not _REQUEST.fullmatch(answer.request):
            # Of a table that somebody has changed: no path leads out of the folder.
            raise self._unreadable(f"{answer.request[:80]!r} is not the name of a request")
        name = f"answers/{answer.request}.json"
        if answer.state in ("refused", "nothing"):
            self.files.create(name, _text(answer))
        else:
            self.files.write(name, _text(answer))
        self.files.remove(f"requests/{answer.request}.json")

    def answered(self, request: str) -> Answer | None:
        """Return the outcome of a request; None if there is none yet."""
        raw = self._json(f"answers/{request}.json")
        return None if raw is None else read(Answer, raw)

    def clear_answers(self) -> None:
        """Keep only the last answers, for which somebody may still wait."""
        for name in self.files.names("answers")[:-KEPT_ANSWERS]:
            self.files.remove(f"answers/{name}")

    # -- tuples on their way ----------------------------------------------------------------------

    def export(self, name: str, data: memoryview) -> None:
        """Keep tuples for another unit."""
        _check_export(name)
        # Its name says what is in it: whoever comes second has nothing to add.
        self.files.create(f"exports/{name}", data)

    def exported(self, name: str) -> bytes:
        """Return tuples that a unit has exported."""
        _check_export(name)
        data = self.files.read(f"exports/{name}")
        if data is None:
            raise ControlError(
                f"exported tuples are missing: {self.name}/exports/{name}",
                hint="put back the control directory and the checkpoint of the same time",
            )
        return data

    def clear_exports(self, version: int) -> None:
        """Remove what was exported up to a version, after which nobody needs it.

        Later exports stay, so that a process that was paused here does no harm.
        """
        for name in self.files.names("exports"):
            match = _EXPORT.fullmatch(name)
            if match is not None and int(match[1]) <= version:
                self.files.remove(f"exports/{name}")

    # -- for people -------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return the units' reports as they were written last; ControlError if they are damaged."""
        return self._json("status.json") or {}

    def set_status(self, status: dict[str, Any]) -> None:
        """Write the units' reports."""
        try:
            self.files.write("status.json", json.dumps(status).encode())
        except (IsADirectoryError, NotADirectoryError):
            self.put_aside("status.json")
            self.files.write("status.json", json.dumps(status).encode())

    def put_aside(self, name: str) -> None:
        """Move a damaged file away, so that another one can take its place."""
        self.files.rename(name, f"{_ASIDE}/{name.replace('/', '-')}.{secrets.token_hex(4)}")

    def aside(self) -> list[str]:
        """Return the names of the damaged files that were put aside."""
        return [f"{_ASIDE}/{name}" for name in self.files.names(_ASIDE)]

    def _json(self, name: str) -> dict[str, Any] | None:
        try:
            data = self.files.read(name)
        except (IsADirectoryError, NotADirectoryError) as error:
            raise self._unreadable(f"{name}: {error.strerror}") from error
        if data is None:
            return None
        if len(data) > LARGEST:
            raise self._unreadable(f"{name} is too large to be one of its files")
        try:
            raw = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise self._unreadable(f"{name}: {error}") from error
        if not isinstance(raw, dict):
            raise self._unreadable(f"{name} is not an object")
        return raw

    def _unreadable(self, why: str) -> ControlError:
        return ControlError(
            f"the control directory {self.name} cannot be read",
            detail=f"  {why}",
            hint="put it back as it was",
        )


def live_fingerprint(tree: JoinTree) -> dict[str, str]:
    """Return the query's fingerprint with its topologies.

    Units that go by the tables of a directory do not compare those: a restart with another topology
    would go on with the old one in silence.
    """
    topologies = ", ".join(step.routing.routing.value for step in tree.steps)
    return tree.fingerprint() | {"topology": topologies}


@lru_cache(maxsize=16)
def opened(path: str, token: str = "") -> Directory:
    """Return the directory of that path, one for this process and query."""
    return Directory(path)


def _check_export(name: str) -> None:
    """Refuse a name that leads out of the folder: names come from tables."""
    if not _EXPORT.fullmatch(name):
        raise ControlError(f"{name[:80]!r} is not the name of exported tuples")


def _text(value: Any) -> bytes:
    return (json.dumps(asdict(value), indent=1) + "\n").encode()
