"""A control directory: the versions of a query's routing tables, and what is asked of them.

    control.json          what it belongs to
    joins.json            the joins whose tables it has
    version-0, version-1  the number of the version in use is the larger one of both
    tables/00000007.json  one version; never changed, checksummed
    requests/, answers/   changes that were asked for, and what became of them
    exports/              tuples on their way from one unit to another
    status.json           what the units reported last, for people
    lease.json            who may publish

Whoever may publish writes a table first and its number last, into the file that has the older one:
not every file system replaces a file in one step, and so the other one can be read all the time.
Spark reads both once for each batch and hands the number to all routers, so that a task that runs
again routes as it did before.
"""

from __future__ import annotations

import json
import re
import secrets
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import count
from typing import Any

from thetastream.errors import ControlError, ThetastreamError
from thetastream.spec import GROUPS, JoinTree
from thetastream.spec.codec import from_json, read, to_json
from thetastream.steering.edits import Edit, edit_from_json, edit_to_json
from thetastream.steering.files import Files, open_files, without_secrets
from thetastream.steering.version import Version, first_version

FORMAT = 1
VERSIONS = ("version-0", "version-1")
DIGITS = 19
"""Digits of the number in that file."""
KEPT_TABLES = 16
"""Versions that a process keeps in memory."""
KEPT_ANSWERS = 100
LARGEST = 64 * 1024**2
"""Bytes of a text in the directory, at most: more than any that was written here."""
_ORDER = count()
_EXPORT = re.compile(r"[0-9a-f]{64}")
_REQUEST = re.compile(r"[0-9a-f]{8,64}")


@dataclass(frozen=True, kw_only=True)
class Belongs:
    """What a control directory belongs to."""

    format: int
    control: str
    """Its own name, which no other one has."""
    fingerprint: dict[str, str]
    """The query's, so that no other one uses it."""
    streams: tuple[str, ...]
    max_units: int
    groups: int
    query: str = ""
    """Spark's name of the query, once it has run."""


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
    """What became of a request."""

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
        self._known: OrderedDict[int, Version] = OrderedDict()

    # -- what it belongs to -----------------------------------------------------------------------

    def belongs(self) -> Belongs | None:
        """What it belongs to; None if it is not one yet."""
        raw = self._json("control.json")
        if raw is None:
            return None
        if raw.get("format") != FORMAT:
            raise self._unreadable(f"it has format {raw.get('format')}; this release has {FORMAT}")
        try:
            return read(Belongs, raw)
        except (TypeError, ValueError, LookupError) as error:
            raise self._unreadable(f"{type(error).__name__}: {error}") from error

    def require(self) -> Belongs:
        """What it belongs to; refused if it is none."""
        found = self.belongs()
        if found is None:
            raise ControlError(
                f"{self.name} is not a control directory",
                detail="  it has no control.json",
                hint="give the path of JoinOptions(control=...); if the directory was deleted, put"
                " it back, or start with a new checkpoint location",
            )
        return found

    def open(self, tree: JoinTree, max_units: int, at: float) -> Belongs:
        """Begin to use it for a query: make it, or check that it is that query's."""
        fingerprint = steered_fingerprint(tree)
        known = self.belongs()
        if known is None and self.files.names("tables"):
            raise self._unreadable("it has tables, and no control.json")
        if known is None:
            control = secrets.token_hex(8)
            first = first_version(control, tree, max_units, at)
            self.files.write("joins.json", to_json(tree).encode())
            self.files.write(_table_name(0), first.to_text().encode())
            self._set_version(0)
            known = Belongs(
                format=FORMAT,
                control=control,
                fingerprint=fingerprint,
                streams=tuple(
                    stream.name
                    for step in tree.steps
                    for stream in step.spec.streams
                    if not stream.is_join_result
                ),
                max_units=max_units,
                groups=GROUPS,
            )
            self.files.write("control.json", _text(known))
            return known
        changed = [
            name
            for name in dict.fromkeys((*fingerprint, *known.fingerprint))
            if fingerprint.get(name) != known.fingerprint.get(name)
        ]
        if changed and not known.query and self.number() == 0:
            # Made for a join that never ran: a program that is still being written.
            for name in self.files.names("tables"):
                self.files.remove(f"tables/{name}")
            self.files.remove("control.json")
            self.forget_tables()
            return self.open(tree, max_units, at)
        if changed:
            raise ControlError(
                f"the control directory {self.name} belongs to another query:"
                f" {', '.join(changed)} differs",
                detail="\n".join(
                    f"  {name}: was {known.fingerprint.get(name, 'not known')}, is"
                    f" {fingerprint.get(name, 'not known')}"
                    for name in changed
                ),
                hint="give each query a directory of its own",
            )
        return known

    def tree(self) -> JoinTree:
        """The joins whose tables it has."""
        self.require()
        data = self.files.read("joins.json")
        try:
            return from_json(JoinTree, _decoded(data or b""))
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise self._unreadable(f"joins.json: {type(error).__name__}") from error

    def allow(self, max_units: int) -> None:
        """So many units from now on; not fewer than there are."""
        known = self.require()
        if known.max_units == max_units:
            return
        active = 1 + max(
            max(table.active(stage))
            for table in self.current().joins
            for stage in range(len(table.stages))
        )
        if active > max_units:
            raise ControlError(
                f"max_units={max_units} is fewer than the {active} units that are in use",
                hint=f"give at least {active}, or scale in first",
            )
        self.files.write(
            "control.json", _text(Belongs(**{**known.__dict__, "max_units": max_units}))
        )

    def bind(self, query: str) -> None:
        """It is this query's from now on."""
        known = self.require()
        if known.query != query:
            self.files.write("control.json", _text(Belongs(**{**known.__dict__, "query": query})))

    # -- versions ---------------------------------------------------------------------------------

    def number(self) -> int:
        """The number of the version in use."""
        found = []
        for name in VERSIONS:
            # One of them may be about to be written.
            with suppress(ValueError):
                found.append(int(self.files.read(name) or b""))
        if not found:
            raise self.gone()
        return max(found)

    def gone(self) -> ControlError:
        """The error for a directory that says nothing of the version in use."""
        return ControlError(
            f"the control directory {self.name} has no version in use",
            hint="put the directory back as it was; without it, start with a new checkpoint"
            " location and a new control directory",
        )

    def current(self) -> Version:
        """The version in use."""
        return self.version(self.number())

    def version(self, number: int) -> Version:
        """A version, as it was written."""
        if number not in self._known:
            self._known[number] = self._read(number)
            while len(self._known) > KEPT_TABLES:
                self._known.popitem(last=False)
        return self._known[number]

    def fall_back(self, number: int) -> None:
        """Use an earlier version than the one in use."""
        for name in VERSIONS:
            self.files.remove(name)
        self._set_version(number)

    def forget_tables(self) -> None:
        """Read tables again: the directory may be another one than before."""
        self._known.clear()

    def _read(self, version: int) -> Version:
        name = _table_name(version)
        data = self.files.read(name)
        if data is None:
            raise ControlError(
                f"the control directory {self.name} has no {name}", hint="put the file back"
            )
        found = Version.from_text(_decoded(data), f"{self.name}/{name}")
        if found.version != version:
            raise ControlError(
                f"a routing table is refused: {self.name}/{name}",
                detail=f"  it is version {found.version}",
                hint="put back the file as it was written",
            )
        return found

    def publish(self, version: Version) -> None:
        """Let a version be the one in use."""
        current = self.current()
        if (version.version, version.previous) != (current.version + 1, current.digest):
            raise ControlError(
                f"version {version.version} does not follow the one in use, {current.version}",
                hint="somebody else has published; read the directory again",
            )
        # Perhaps in the place of one whose writer ended before it was in use.
        self.files.write(_table_name(version.version), version.to_text().encode())
        self._set_version(version.version)

    def history(self) -> Iterator[Version]:
        """All versions up to the one in use, oldest first; those that cannot be read are left
        out."""
        last = self.number()
        for name in self.files.names("tables"):
            data = self.files.read(f"tables/{name}")
            try:
                found = Version.from_text(_decoded(data or b""), name)
            except ControlError:
                continue
            if found.version <= last:
                yield found

    # -- requests ---------------------------------------------------------------------------------

    def ask(self, edit: Edit, *, by: str, why: str, at: float) -> str:
        """Write a request; its name."""
        self.require()
        # In the order in which they were made, also within a millisecond.
        name = f"{int(at * 1000):013x}{next(_ORDER) % 0x10000:04x}{secrets.token_hex(4)}"
        raw = {"id": name, "at": at, "by": by, "why": why, "edit": edit_to_json(edit)}
        self.files.write(f"requests/{name}.json", json.dumps(raw).encode())
        return name

    def requests(self) -> Iterator[Request | Answer]:
        """What was asked for and not answered, oldest first; a request that makes no sense comes
        as its refusal."""
        for name in self.files.names("requests"):
            request = name.removesuffix(".json")
            if not _REQUEST.fullmatch(request):
                continue
            try:
                raw = self._json(f"requests/{name}") or {}
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

    def answer(self, answer: Answer) -> None:
        """Say what became of a request."""
        self.files.write(f"answers/{answer.request}.json", _text(answer))
        self.files.remove(f"requests/{answer.request}.json")

    def answered(self, request: str) -> Answer | None:
        """What became of a request; None if nothing is known yet."""
        raw = self._json(f"answers/{request}.json")
        return None if raw is None else read(Answer, raw)

    # -- the rest ---------------------------------------------------------------------------------

    def export(self, name: str, data: memoryview) -> None:
        """Keep tuples for another unit."""
        _check_export(name)
        self.files.write(f"exports/{name}", data)

    def exported(self, name: str) -> bytes:
        """Tuples that a unit has exported."""
        _check_export(name)
        data = self.files.read(f"exports/{name}")
        if data is None:
            raise ControlError(
                f"exported tuples are missing: {self.name}/exports/{name}",
                hint="put back the control directory and the checkpoint of the same time",
            )
        return data

    def clear_exports(self) -> None:
        """Nobody needs what was exported any more."""
        for name in self.files.names("exports"):
            self.files.remove(f"exports/{name}")

    def clear_answers(self) -> None:
        """Only the last answers may still be waited for."""
        for name in self.files.names("answers")[:-KEPT_ANSWERS]:
            self.files.remove(f"answers/{name}")

    def status(self) -> dict[str, Any]:
        """What was written last of the units' reports."""
        return self._json("status.json") or {}

    def set_status(self, status: dict[str, Any]) -> None:
        """Write what the units reported, for people."""
        self.files.write("status.json", json.dumps(status).encode())

    def _set_version(self, number: int) -> None:
        # Spark remembers which files there are, and how long they are.
        name = VERSIONS[number % len(VERSIONS)]
        for missing in VERSIONS:
            if missing != name and self.files.read(missing) is None:
                self.files.write(missing, f"{number:0{DIGITS}d}\n".encode())
        self.files.write(name, f"{number:0{DIGITS}d}\n".encode())

    def _json(self, name: str) -> dict[str, Any] | None:
        data = self.files.read(name)
        if data is None:
            return None
        try:
            raw = json.loads(_decoded(data))
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


def steered_fingerprint(tree: JoinTree) -> dict[str, str]:
    """The query's fingerprint with its topologies, which units that go by tables of a directory do
    not compare: they would use those of the directory in silence."""
    topologies = ", ".join(step.routing.routing.value for step in tree.steps)
    return tree.fingerprint() | {"topology": topologies}


@lru_cache(maxsize=16)
def opened(path: str, token: str = "") -> Directory:
    """The directory of that path: one for this process and query, so that tables are read once."""
    return Directory(path)


def _check_export(name: str) -> None:
    """Names come from tables: none of them leads out of the folder."""
    if not _EXPORT.fullmatch(name):
        raise ControlError(f"{name[:80]!r} is not the name of exported tuples")


def _table_name(version: int) -> str:
    return f"tables/{version:08d}.json"


def _text(value: Any) -> bytes:
    return (json.dumps(asdict(value), indent=1) + "\n").encode()


def _decoded(data: bytes) -> str:
    if len(data) > LARGEST:
        raise ControlError("a file of the control directory is too large to be one")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ControlError("a file of the control directory is not text") from error
