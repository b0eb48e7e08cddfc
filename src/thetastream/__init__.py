"""Joins of streams on any predicate, inside Spark Structured Streaming."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from thetastream.errors import (
    AmbiguousColumnError,
    ControlError,
    ControlTimeoutError,
    CorruptRunError,
    FingerprintError,
    ForgottenError,
    JobError,
    ManifestVersionError,
    NotBooleanError,
    OptionError,
    ParseError,
    PredicateError,
    RefusedExpressionError,
    RequestError,
    SettingError,
    SiteChangedError,
    SiteDataError,
    SiteError,
    SiteRequestError,
    SiteUnreachableError,
    StateError,
    SumOverflowError,
    ThetastreamError,
    ThetastreamWarning,
    TriggerSizeError,
    TypeMismatchError,
    UnknownColumnError,
    UnknownStreamError,
    UnsupportedColumnError,
    WindowError,
)
from thetastream.options import JoinOptions
from thetastream.version import VERSION as __version__

if TYPE_CHECKING:
    from thetastream.api.batches import BatchMetrics, Metrics
    from thetastream.api.control import (
        Change,
        Control,
        History,
        Sample,
        Status,
        StreamPlaces,
        UnitDraining,
        control,
    )
    from thetastream.api.live import Manager, manage
    from thetastream.api.loads import HeavyKey, StreamLoad, UnitLoad
    from thetastream.api.metrics import metrics
    from thetastream.api.session import configure, session
    from thetastream.api.sites import RemoteStream, Site, site
    from thetastream.api.streams import ARRIVAL, Streams, sql, streams
    from thetastream.api.wires import SiteLoad
    from thetastream.planner import (
        Alternative,
        Conjunct,
        ConjunctClass,
        Cost,
        Decision,
        Plan,
    )
    from thetastream.spec import Routing, SketchOptions, Travel
    from thetastream.steering.edits import Heat, HotWish, Move, Moves, Scale
    from thetastream.steering.hotkeys import HotKeys
    from thetastream.steering.policy import (
        FrequentKey,
        Holding,
        Load,
        Moment,
        Policy,
        SplitKey,
        Usage,
        Verdict,
    )
    from thetastream.steering.rebalance import Rebalance
    from thetastream.steering.scaling import TwoPhaseScaling
    from thetastream.transport.client import Pushed, SiteClient, SiteStream

_LATER = {
    "api.batches": ("BatchMetrics", "Metrics"),
    "api.live": ("Manager", "manage"),
    "api.loads": ("HeavyKey", "StreamLoad", "UnitLoad"),
    "api.metrics": ("metrics",),
    "api.session": ("configure", "session"),
    "api.sites": ("RemoteStream", "Site", "site"),
    "api.streams": ("ARRIVAL", "Streams", "sql", "streams"),
    "api.wires": ("SiteLoad",),
    "planner": (
        *("Alternative", "Conjunct", "ConjunctClass", "Cost"),
        *("Decision", "Plan"),
    ),
    "spec": ("Routing", "SketchOptions", "Travel"),
    "steering.edits": ("Heat", "HotWish", "Move", "Moves", "Scale"),
    "steering.hotkeys": ("HotKeys",),
    "api.control": (
        *("Change", "Control", "History", "Sample", "Status", "StreamPlaces"),
        *("UnitDraining", "control"),
    ),
    "steering.policy": (
        *("FrequentKey", "Holding", "Load", "Moment", "Policy", "SplitKey", "Usage", "Verdict"),
    ),
    "steering.rebalance": ("Rebalance",),
    "steering.scaling": ("TwoPhaseScaling",),
    "transport.client": ("Pushed", "SiteClient", "SiteStream"),
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
    "Change",
    "Conjunct",
    "ConjunctClass",
    "Control",
    "ControlError",
    "ControlTimeoutError",
    "CorruptRunError",
    "Cost",
    "Decision",
    "FingerprintError",
    "ForgottenError",
    "FrequentKey",
    "Heat",
    "HeavyKey",
    "History",
    "Holding",
    "HotKeys",
    "HotWish",
    "JobError",
    "JoinOptions",
    "Load",
    "Manager",
    "ManifestVersionError",
    "Metrics",
    "Moment",
    "Move",
    "Moves",
    "NotBooleanError",
    "OptionError",
    "ParseError",
    "Plan",
    "Policy",
    "PredicateError",
    "Pushed",
    "Rebalance",
    "RefusedExpressionError",
    "RemoteStream",
    "RequestError",
    "Routing",
    "Sample",
    "Scale",
    "SettingError",
    "Site",
    "SiteChangedError",
    "SiteClient",
    "SiteDataError",
    "SiteError",
    "SiteLoad",
    "SiteRequestError",
    "SiteStream",
    "SiteUnreachableError",
    "SketchOptions",
    "SplitKey",
    "StateError",
    "Status",
    "StreamLoad",
    "StreamPlaces",
    "Streams",
    "SumOverflowError",
    "ThetastreamError",
    "ThetastreamWarning",
    "Travel",
    "TriggerSizeError",
    "TwoPhaseScaling",
    "TypeMismatchError",
    "UnitDraining",
    "UnitLoad",
    "UnknownColumnError",
    "UnknownStreamError",
    "UnsupportedColumnError",
    "Usage",
    "Verdict",
    "WindowError",
    "__version__",
    "configure",
    "control",
    "manage",
    "metrics",
    "session",
    "site",
    "sql",
    "streams",
]
