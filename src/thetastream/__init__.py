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
    ThetastreamWarning,
    TypeMismatchError,
    UnknownColumnError,
    UnknownStreamError,
    UnsupportedColumnError,
    WindowError,
)
from thetastream.options import JoinOptions
from thetastream.version import VERSION as __version__

if TYPE_CHECKING:
    from thetastream.api.metrics import (
        BatchMetrics,
        HeavyKey,
        Metrics,
        StreamLoad,
        UnitLoad,
        metrics,
    )
    from thetastream.api.session import configure, session
    from thetastream.api.streams import ARRIVAL, Streams, sql, streams
    from thetastream.planner import (
        Alternative,
        Conjunct,
        ConjunctClass,
        Cost,
        Decision,
        Plan,
    )
    from thetastream.spec import Routing

_LATER = {
    "api.metrics": ("BatchMetrics", "HeavyKey", "Metrics", "StreamLoad", "UnitLoad", "metrics"),
    "api.session": ("configure", "session"),
    "api.streams": ("ARRIVAL", "Streams", "sql", "streams"),
    "planner": (
        *("Alternative", "Conjunct", "ConjunctClass", "Cost"),
        *("Decision", "Plan"),
    ),
    "spec": ("Routing",),
}
"""Names, by module, that are imported on first use. Spark's workers never use them, and start in
half the time without the planner and the SQL parser."""
_MODULES = {name: module for module, names in _LATER.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"thetastream.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


__all__ = [
    "ARRIVAL",
    "Alternative",
    "AmbiguousColumnError",
    "BatchMetrics",
    "Conjunct",
    "ConjunctClass",
    "CorruptRunError",
    "Cost",
    "Decision",
    "FingerprintError",
    "HeavyKey",
    "JobError",
    "JoinOptions",
    "ManifestVersionError",
    "Metrics",
    "NotBooleanError",
    "OptionError",
    "ParseError",
    "Plan",
    "PredicateError",
    "RefusedExpressionError",
    "Routing",
    "SettingError",
    "StateError",
    "StreamLoad",
    "Streams",
    "SumOverflowError",
    "ThetastreamError",
    "ThetastreamWarning",
    "TypeMismatchError",
    "UnitLoad",
    "UnknownColumnError",
    "UnknownStreamError",
    "UnsupportedColumnError",
    "WindowError",
    "__version__",
    "configure",
    "metrics",
    "session",
    "sql",
    "streams",
]
