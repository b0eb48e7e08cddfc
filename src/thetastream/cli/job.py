"""Job files: a query with its streams, its sink and how to run it. Nothing here needs Spark.

A job is a TOML file, or a SQL file whose first comment is one:

    -- checkpoint = "checkpoints/fares"
    -- [streams.orders]
    -- format = "json"
    -- path = "data/orders"
    -- ...
    SELECT ... FROM orders, rides WHERE ... WITHIN 10 minutes
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thetastream.cli.variables import UnsetVariableError, Variables
from thetastream.errors import JobError, OptionError, WindowError, unknown_option
from thetastream.options import JoinOptions
from thetastream.planner import parse_duration
from thetastream.spec import SketchOptions
from thetastream.steering.hotkeys import HotKeys
from thetastream.steering.policy import Policy
from thetastream.steering.rebalance import Rebalance
from thetastream.steering.scaling import TwoPhaseScaling
from thetastream.transport.feed import MOST_ROWS

FILE_FORMATS = frozenset({"avro", "csv", "json", "orc", "parquet", "text", "xml"})
OUTPUT_MODES = ("append", "update", "complete")
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(B|[KMGT]i?B)\s*", re.IGNORECASE)


@dataclass(frozen=True)
class SiteSource:
    """A stream at a site, and how the site is reached."""

    address: str
    stream: str
    token_file: str | None = None
    tls_root: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    max_rows: int = MOST_ROWS


@dataclass(frozen=True)
class Source:
    """One stream: a format of Spark's and its options, or a site; and its event time."""

    name: str
    format: str
    path: str | None = None
    schema: str | None = None
    time: str | None = None
    """The event-time column, or "arrival"."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    site: SiteSource | None = None


@dataclass(frozen=True)
class Sink:
    """Where results go: a format of Spark's and its options."""

    format: str
    path: str | None = None
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


POLICIES: dict[str, type[TwoPhaseScaling | Rebalance | HotKeys]] = {
    "scaling": TwoPhaseScaling,
    "rebalance": Rebalance,
    "hot_keys": HotKeys,
}
"""The policies, by the names of their tables in [control]."""
_VALUES: dict[str, tuple[Any, str]] = {
    "int": (int, "a whole number"),
    "float": (int | float, "a number"),
    "str": (str, "text"),
    "bool": (bool, "true or false"),
}
"""What an argument of a policy may be, by its type, and in words."""


@dataclass(frozen=True)
class Job:
    """A query that can be started."""

    file: Path
    name: str
    query: str
    streams: Mapping[str, Source]
    sink: Sink
    checkpoint: str
    trigger: str = "continuous"
    """`available now`, `continuous`, or the time between two batches."""
    output_mode: str = "append"
    delay: str | None = None
    join: JoinOptions = field(default_factory=JoinOptions)
    policies: tuple[Policy, ...] = ()
    """What changes the join's routing while it runs."""
    cores: int | None = None
    memory: str = "4g"
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    variables: Variables = field(default_factory=Variables, repr=False, compare=False)
    """The variables of the environment that the file names."""


def load(file: Path) -> Job:
    """The job in a file; raises JobError with what is wrong and what to do."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise JobError(f"there is no file {file}", hint="give the path of a job file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"{file} cannot be read: {error}", hint="give a text file") from None
    if file.suffix.lower() == ".sql":
        header, query = _split(text)
    else:
        header, query = text, None
    try:
        raw = tomllib.loads(header)
    except tomllib.TOMLDecodeError as error:
        raise JobError(
            f"{file} is not valid TOML: {error}",
            hint='write name = "value" lines; in a .sql file each begins with --',
        ) from None
    return _Reader(file, raw, query).job()


def _split(text: str) -> tuple[str, str]:
    """The TOML in the first comment lines of a SQL file, and the query."""
    lines = text.splitlines()
    count = 0
    while count < len(lines) and (not lines[count].strip() or lines[count].lstrip()[:2] == "--"):
        count += 1
    header = [line.lstrip().removeprefix("--").removeprefix(" ") for line in lines[:count]]
    return "\n".join(header), "\n".join(lines[count:]).strip()


class _Reader:
    """Reads a job's values, and refuses names that it does not know."""

    def __init__(self, file: Path, raw: dict[str, Any], query: str | None) -> None:
        self.file = file
        self.folder = file.resolve().parent
        self.raw = raw
        self.query = query
        self.variables = Variables()

    def job(self) -> Job:
        raw = self.raw
        known = {item.name for item in dataclasses.fields(Job)} - {
            "file",
            "join",
            "policies",
            "variables",
        }
        known |= {"control", "options"}
        if self.query is not None:
            known -= {"query"}
        self._no_others(raw, known - {"cores", "memory"}, "the job")
        query = self.query
        if query is None:
            # Not expanded: it is shown in plans and errors, where no secret belongs.
            query = raw.get("query", "")
            if not isinstance(query, str):
                raise self._error("query is not a string", 'write query = "SELECT ..."')
        if not query:
            raise self._error("the job has no query", 'add query = "SELECT ..."')
        streams = self._table(raw, "streams", "the job")
        if not streams:
            raise self._error("the job has no streams", "add a table [streams.orders]")
        spark = dict(self._table(raw, "spark", "the job"))
        cores, memory = spark.pop("cores", None), spark.pop("memory", "4g")
        if cores is not None and (isinstance(cores, bool) or not isinstance(cores, int)):
            raise self._error(f"cores = {cores!r} is not a number", "write cores = 4")
        live, policies = self._control(raw)
        return Job(
            file=self.file,
            name=self._text(raw, "name", "the job", self.file.stem),
            query=query,
            streams={name: self._source(name, value) for name, value in streams.items()},
            sink=self._sink(self._table(raw, "sink", "the job")),
            checkpoint=self._path(self._text(raw, "checkpoint", "the job")),
            trigger=self._trigger(self._text(raw, "trigger", "the job", "continuous")),
            output_mode=self._mode(self._text(raw, "output_mode", "the job", "append")),
            delay=self._delay(raw.get("delay")),
            join=self._join(self._table(raw, "options", "the job"), live),
            policies=policies,
            cores=cores,
            memory=str(memory),
            spark=self._settings(spark, "[spark]"),
            variables=self.variables,
        )

    def _source(self, name: str, raw: Any) -> Source:
        where = f"[streams.{name}]"
        if not isinstance(raw, dict):
            raise self._error(f"{where} is not a table", f'write {where} and format = "json"')
        if "site" in raw:
            return self._site(name, raw, where)
        self._no_others(raw, {"format", "path", "schema", "time", "options"}, where)
        kind = self._text(raw, "format", where)
        path = raw.get("path")
        if kind in FILE_FORMATS and path is None:
            raise self._error(f"{where} has no path", 'add path = "folder"')
        return Source(
            name=name,
            format=kind,
            path=None if path is None else self._path(self._text(raw, "path", where)),
            schema=self._text(raw, "schema", where, None),
            time=self._text(raw, "time", where, None),
            options=self._settings(self._table(raw, "options", where), f"{where} options"),
        )

    def _site(self, name: str, raw: dict[str, Any], where: str) -> Source:
        paths = ("token_file", "tls_root", "tls_cert", "tls_key")
        self._no_others(raw, {"site", "stream", "time", "max_rows", *paths}, where)
        most = raw.get("max_rows", MOST_ROWS)
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise self._error(
                f"max_rows = {most!r} of {where} is not a number of rows", "write max_rows = 100000"
            )
        files = {key: self._path(self._text(raw, key, where)) for key in paths if key in raw}
        found = SiteSource(
            address=self._text(raw, "site", where),
            stream=self._text(raw, "stream", where, name),
            max_rows=most,
            **files,
        )
        time = self._text(raw, "time", where, None)
        return Source(name=name, format="site", time=time, site=found)

    def _sink(self, raw: dict[str, Any]) -> Sink:
        if not raw:
            raise self._error("the job has no sink", 'add [sink] with format = "parquet"')
        self._no_others(raw, {"format", "path", "partition_by", "options"}, "[sink]")
        parts = raw.get("partition_by", [])
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise self._error("partition_by is not a list of names", 'write ["day"]')
        kind = self._text(raw, "format", "[sink]")
        path = self._text(raw, "path", "[sink]", None)
        if kind in FILE_FORMATS and path is None:
            raise self._error("[sink] has no path", 'add path = "folder"')
        return Sink(
            format=kind,
            path=None if path is None else self._path(path),
            partition_by=tuple(parts),
            options=self._settings(self._table(raw, "options", "[sink]"), "[sink] options"),
        )

    def _control(self, raw: dict[str, Any]) -> tuple[dict[str, Any], tuple[Policy, ...]]:
        """The options of a join whose routing is live, and what changes it."""
        if "control" not in raw:
            return {}, ()
        where = "[control]"
        table = self._table(raw, "control", "the job")
        self._no_others(table, {"path", "max_units", *POLICIES}, where)
        live = {"control": self._path(self._text(table, "path", where))}
        if "max_units" in table:
            live["max_units"] = table["max_units"]
        if "hot_keys" in table:
            # The units report frequent keys, and the policy of the job decides.
            live["hot_keys"] = "watch"
        found = tuple(
            self._policy(kind, self._table(table, name, where), f"[control.{name}]")
            for name, kind in POLICIES.items()
            if name in table
        )
        if sum(policy.scales for policy in found) > 1:
            raise self._error(
                "[control.scaling] and [control.rebalance] both decide how many units there are",
                "add declustering = false to [control.rebalance], or leave out one of them",
            )
        return live, found

    def _policy(
        self, kind: type[TwoPhaseScaling | Rebalance | HotKeys], raw: dict[str, Any], where: str
    ) -> TwoPhaseScaling | Rebalance | HotKeys:
        taken = inspect.signature(kind).parameters
        self._no_others(raw, set(taken), where)
        values = dict(raw)
        if isinstance(values.get("capacity"), str):
            values["capacity"] = self._size(self._expanded(values["capacity"]), where)
        if isinstance(values.get("every"), str):
            try:
                values["every"] = parse_duration(values["every"], "every") / 1_000_000
            except WindowError as error:
                raise self._error(f"{where}: {error.what}", error.hint) from None
        for name, value in values.items():
            right, said = _VALUES[str(taken[name].annotation).removesuffix(" | None")]
            default = 1 if taken[name].default is None else taken[name].default
            is_right = isinstance(value, right) and (right is bool or not isinstance(value, bool))
            if not is_right:
                raise self._error(
                    f"{name} = {value!r} of {where} is not {said}",
                    f"write {name} = {json.dumps(default)}",
                )
        try:
            return kind(**values)
        except OptionError as error:
            raise self._error(f"{where}: {error.what}", error.hint) from None

    def _size(self, text: str, where: str) -> float:
        """Bytes, from a text such as "512 MB" or "2 GiB"."""
        found = _SIZE.fullmatch(text)
        if found is None:
            raise self._error(
                f"capacity = {self.variables.written(text)!r} of {where} is not a size",
                'write a number of bytes, or a text such as "512 MB" or "2 GiB"',
            )
        unit = found[2].upper()
        power = "BKMGT".index(unit[0])
        return float(found[1]) * (1024.0 if "I" in unit else 1000.0) ** power

    def _join(self, raw: dict[str, Any], live: dict[str, Any]) -> JoinOptions:
        known = {item.name for item in dataclasses.fields(JoinOptions)}
        for name in ("control", "max_units"):
            if name in raw:
                raise self._error(
                    f"[options] has no option {name!r}",
                    'write a table [control] with path = "..." and max_units = ...',
                )
        self._no_others(raw, known - {"control", "max_units"}, "[options]")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()
        }
        try:
            if isinstance(values.get("sketch"), dict):
                values["sketch"] = SketchOptions(**values["sketch"])
            if "hot_keys" in live and values.pop("hot_keys", "watch") != "watch":
                raise OptionError(
                    "hot keys have a policy of their own in [control.hot_keys]",
                    hint="leave hot_keys out of [options], or leave out [control.hot_keys]",
                )
            return JoinOptions(**values, **live)
        except OptionError as error:
            raise self._error(f"[options]: {error.what}", error.hint) from None
        except TypeError as error:
            raise self._error(f"[options]: {error}", "give a value of the right type") from None

    def _trigger(self, text: str) -> str:
        folded = text.strip().casefold().replace("_", " ").replace("-", " ")
        if folded in ("available now", "availablenow", "once"):
            return "available now"
        if folded == "continuous":
            return folded
        try:
            parse_duration(text, "trigger")
        except WindowError:
            raise self._error(
                f"trigger = {self.variables.written(text)!r} is not a trigger",
                'write "available now", "continuous" or a length such as "10 seconds"',
            ) from None
        return text

    def _mode(self, text: str) -> str:
        if text not in OUTPUT_MODES:
            raise self._error(
                f"output_mode = {self.variables.written(text)!r} is not an output mode",
                f"choose one of {', '.join(OUTPUT_MODES)}",
            )
        return text

    def _delay(self, value: Any) -> str | None:
        if value is None:
            return None
        try:
            parse_duration(value, "delay")
        except WindowError as error:
            raise self._error(error.what, error.hint) from None
        return str(value)

    # -- values ---------------------------------------------------------------------------------

    def _error(self, what: str, hint: str) -> JobError:
        return JobError(f"{self.file}: {self.variables.hide(what)}", hint=self.variables.hide(hint))

    def _no_others(self, raw: dict[str, Any], known: Iterable[str], where: str) -> None:
        if wrong := unknown_option(raw, known, where):
            raise self._error(*wrong)

    def _text(self, raw: dict[str, Any], name: str, where: str, *default: Any) -> Any:
        if name not in raw:
            if default:
                return default[0]
            raise self._error(f"{where} has no {name}", f'add {name} = "..."')
        if not isinstance(raw[name], str):
            raise self._error(f"{name} of {where} is not a string", f'write {name} = "..."')
        return self._expanded(raw[name])

    def _table(self, raw: dict[str, Any], name: str, where: str) -> dict[str, Any]:
        value = raw.get(name, {})
        if not isinstance(value, dict):
            raise self._error(f"{name} of {where} is not a table", f"write [{name}]")
        return value

    def _settings(self, raw: dict[str, Any], where: str) -> dict[str, str]:
        """Options for Spark, which takes strings only."""
        found = {}
        for name, value in _flat(raw):
            if isinstance(value, bool):
                found[name] = str(value).lower()
            elif isinstance(value, str | int | float):
                found[name] = self._expanded(str(value))
            else:
                raise self._error(
                    f"{name} of {where} is not a single value", "write a string or a number"
                )
        return found

    def _expanded(self, text: str) -> str:
        """`${NAME}` replaced from the environment: secrets need not be in the file."""
        try:
            return self.variables.expand(text)
        except UnsetVariableError as error:
            raise self._error(
                f"the environment has no variable {error.name}", f"set it: export {error.name}=..."
            ) from None

    def _path(self, text: str) -> str:
        """Paths are relative to the job's own folder."""
        return text if "://" in text or text.startswith("file:") else str(self.folder / text)


def _flat(raw: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """`spark.sql.x = 1` in TOML is a table in a table; Spark's names are dotted."""
    found: list[tuple[str, Any]] = []
    for name, value in raw.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", value))
    return found


def local_path(text: str) -> Path | None:
    """The path on this machine; None for another file system."""
    if text.startswith("file:"):
        return Path("/" + text.removeprefix("file:").lstrip("/"))
    return None if "://" in text else Path(text)
