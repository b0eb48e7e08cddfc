"""Joins as plain values, which travel to the workers and into the fingerprint of a checkpoint.

All keys are 64-bit integers whose order is the order of the values they stand for (see
`thetastream.index.encoding`), so every comparison is one of integers.
"""

from thetastream.spec.clock import Clock, clock_of
from thetastream.spec.codec import digest
from thetastream.spec.columns import (
    NEWEST,
    carried_column,
    derived_key,
    group_column,
    is_carried,
    measure_column,
    result_column,
)
from thetastream.spec.edges import (
    Arithmetic,
    Bound,
    Equality,
    Pairing,
    Range,
    RangeKind,
    Window,
)
from thetastream.spec.join import (
    JoinSpec,
    Retention,
    Routing,
    RoutingSpec,
    more_units,
    streams_fingerprint,
)
from thetastream.spec.streams import ColumnSpec, Encoding, KeySpec, StreamSpec
from thetastream.spec.view import Fold, Measure, Value, ViewSpec

__all__ = [
    "NEWEST",
    "Arithmetic",
    "Bound",
    "Clock",
    "ColumnSpec",
    "Encoding",
    "Equality",
    "Fold",
    "JoinSpec",
    "KeySpec",
    "Measure",
    "Pairing",
    "Range",
    "RangeKind",
    "Retention",
    "Routing",
    "RoutingSpec",
    "StreamSpec",
    "Value",
    "ViewSpec",
    "Window",
    "carried_column",
    "clock_of",
    "derived_key",
    "digest",
    "group_column",
    "is_carried",
    "measure_column",
    "more_units",
    "result_column",
    "streams_fingerprint",
]
