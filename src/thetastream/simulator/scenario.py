"""Scenarios: a simulation in a TOML file.

seconds = 60
after = 20
predicate = "r.k = s.k"
within = "10 seconds"
[streams.r]
rate = 500
k = { values = "zipf", domain = 1000, exponent = 1.0 }
[streams.s]
rate = [[0, 500], [30, 1500]]
k = { values = "uniform", domain = 1000 }
[join]
topology = "hash"
units = 4
[cluster]
epoch = 2.0
"""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thetastream.errors import JobError, OptionError, ThetastreamError, unknown_option
from thetastream.options import JoinOptions
from thetastream.simulator.cluster import Cluster, Counted, Measured, Memory, Network
from thetastream.simulator.simulation import Simulation
from thetastream.simulator.sources import (
    BModel,
    Columns,
    Generated,
    Normal,
    Steps,
    Uniform,
    ZipfKeys,
)
from thetastream.steering.policy import Policy
from thetastream.steering.rebalance import Rebalance
from thetastream.steering.scaling import TwoPhaseScaling

VALUES: Mapping[str, type] = {
    "uniform": Uniform,
    "zipf": ZipfKeys,
    "b-model": BModel,
    "normal": Normal,
}
POLICIES: Mapping[str, type] = {"two-phase-scaling": TwoPhaseScaling, "rebalance": Rebalance}
CPUS: Mapping[str, type] = {"counted": Counted, "measured": Measured}


@dataclass(frozen=True)
class Scenario:
    """A simulation, and for how long it is to run."""

    simulation: Simulation
    seconds: float
    after: float
    """Seconds that are left out of the measures."""


def load(file: Path) -> Scenario:
    """The scenario in a file; raises JobError with what is wrong and what to do."""
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise JobError(f"there is no file {file}", hint="give the path of a scenario") from None
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"{file} cannot be read: {error}", hint="give a text file") from None
    except tomllib.TOMLDecodeError as error:
        raise JobError(
            f"{file} is not valid TOML: {error}", hint='write name = "value" lines'
        ) from None
    try:
        return read(raw)
    except ThetastreamError as error:
        raise JobError(f"{file}: {error.what}", hint=error.hint or "") from None


_KNOWN = ("seconds", "after", "seed", "predicate", "query", "within", "max_units", "separate",
          "streams", "join", "cluster", "policies")  # fmt: skip


def read(raw: Mapping[str, Any]) -> Scenario:
    """The scenario that a file has."""
    _no_others(raw, _KNOWN, "the scenario")
    streams = raw.get("streams", {})
    if not isinstance(streams, dict) or not streams:
        raise OptionError("the scenario has no streams", hint="add a table [streams.r]")
    seconds, after = raw.get("seconds", 60), raw.get("after", 0)
    for name, value in (("seconds", seconds), ("after", after)):
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise OptionError(f"{name}={value!r} is not a number of seconds")
    if after >= seconds:
        raise OptionError(
            f"after={after!r} leaves nothing of {seconds!r} seconds", hint="take a smaller one"
        )
    join = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in raw.get("join", {}).items()
    }
    simulation = Simulation(
        {name: _source(name, of) for name, of in streams.items()},
        raw.get("predicate"),
        query=raw.get("query"),
        within=_within(raw.get("within")),
        options=_make(JoinOptions, join, "[join]"),
        cluster=_cluster(raw.get("cluster", {})),
        policies=[_policy(one) for one in raw.get("policies", [])],
        max_units=raw.get("max_units"),
        separate=bool(raw.get("separate", False)),
        seed=int(raw.get("seed", 0)),
    )
    return Scenario(simulation, float(seconds), float(after))


def _within(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _source(name: str, raw: Any) -> Generated:
    where = f"[streams.{name}]"
    if not isinstance(raw, dict) or "rate" not in raw:
        raise OptionError(f"{where} has no rate", hint="add rate = 1000, in tuples per second")
    rate = raw["rate"]
    if isinstance(rate, list):
        try:
            rate = Steps(tuple((start, of) for start, of in rate))
        except (TypeError, ValueError):
            raise OptionError(
                f"the rate of {where} is not a list of pairs", hint="write [[0, 500], [60, 1500]]"
            ) from None
    columns = {
        column: _values(f"{where} {column}", of)
        for column, of in raw.items()
        if column not in ("rate", "payload")
    }
    return Generated(rate=rate, columns=columns, payload=raw.get("payload", 0))


def _values(where: str, raw: Any) -> Columns:
    if not isinstance(raw, dict) or raw.get("values") not in VALUES:
        raise OptionError(
            f"{where} does not say what its values are",
            hint=f'write {{ values = "uniform", domain = 1000 }}; there are {", ".join(VALUES)}',
        )
    given = {name: value for name, value in raw.items() if name != "values"}
    found: Columns = _make(VALUES[raw["values"]], given, where)
    return found


def _cluster(raw: Any) -> Cluster:
    if not isinstance(raw, dict):
        raise OptionError("[cluster] is not a table")
    given = dict(raw)
    cpu = dict(given.pop("cpu", {}))
    kind = cpu.pop("kind", "counted")
    if kind not in CPUS:
        raise OptionError(f"unknown kind of cpu {kind!r}", hint=f"choose one of {', '.join(CPUS)}")
    parts = {
        "cpu": _make(CPUS[kind], cpu, "[cluster.cpu]"),
        "network": _make(Network, given.pop("network", {}), "[cluster.network]"),
        "memory": _make(Memory, given.pop("memory", {}), "[cluster.memory]"),
    }
    _no_others(given, [one.name for one in dataclasses.fields(Cluster)], "[cluster]")
    found: Cluster = _make(Cluster, given | parts, "[cluster]")
    return found


def _policy(raw: Any) -> Policy:
    if not isinstance(raw, dict) or raw.get("name") not in POLICIES:
        raise OptionError(
            "a policy has no name that is known", hint=f"there are {', '.join(POLICIES)}"
        )
    given = {name: value for name, value in raw.items() if name != "name"}
    found: Policy = _make(POLICIES[raw["name"]], given, f"policy {raw['name']}")
    return found


def _make(kind: Callable[..., Any], given: Any, where: str) -> Any:
    """An object of the kind from a table, whose names are those of its parameters."""
    if not isinstance(given, dict):
        raise OptionError(f"{where} is not a table")
    _no_others(given, list(inspect.signature(kind).parameters), where)
    try:
        return kind(**given)
    except TypeError as error:
        raise OptionError(f"{where}: {str(error).removeprefix(f'{kind.__name__}.')}") from None


def _no_others(raw: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    if wrong := unknown_option(raw, known, where):
        what, hint = wrong
        raise OptionError(what, hint=hint)
