"""Joins of streams on any predicate, inside Spark Structured Streaming."""

from thetastream.api.metrics import BatchMetrics, UnitLoad, metrics
from thetastream.api.session import session
from thetastream.api.streams import ARRIVAL, Streams, sql, streams
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
