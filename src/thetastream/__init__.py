"""Joins of streams on any predicate, inside Spark Structured Streaming."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from thetastream.errors import (
    AmbiguousColumnError,
    CorruptRunError,
    FingerprintError,
    JobError,
    ManifestVersionError,
    NotBooleanError,
    OptionError,
    ParseError,
    PredicateError,
    RefusedExpressionError,
    SettingError,
    StateError,
    SumOverflowError,
    ThetastreamError,
    TypeMismatchError,
    UnknownColumnError,
    UnknownStreamError,
    UnsupportedColumnError,
    WindowError,
)
from thetastream.options import JoinOptions
from thetastream.version import VERSION as __version__

if TYPE_CHECKING:
    from thetastream.api.metrics import BatchMetrics, UnitLoad, metrics
    from thetastream.api.session import session
    from thetastream.api.streams import ARRIVAL, Streams, sql, streams

_LATER = {
    "BatchMetrics": "metrics",
    "UnitLoad": "metrics",
    "metrics": "metrics",
    "session": "session",
    "ARRIVAL": "streams",
    "Streams": "streams",
    "sql": "streams",
    "streams": "streams",
}
"""Names of the api that are imported when someone asks for them. Spark's workers never do, and
start in half the time without the planner and the SQL parser."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"thetastream.api.{_LATER[name]}"), name)
    globals()[name] = value
    return value


__all__ = [
    "ARRIVAL",
    "AmbiguousColumnError",
    "BatchMetrics",
    "CorruptRunError",
    "FingerprintError",
    "JobError",
    "JoinOptions",
    "ManifestVersionError",
    "NotBooleanError",
    "OptionError",
    "ParseError",
    "PredicateError",
    "RefusedExpressionError",
    "SettingError",
    "StateError",
    "Streams",
    "SumOverflowError",
    "ThetastreamError",
    "TypeMismatchError",
    "UnitLoad",
    "UnknownColumnError",
    "UnknownStreamError",
    "UnsupportedColumnError",
    "WindowError",
    "__version__",
    "metrics",
    "session",
    "sql",
    "streams",
]
