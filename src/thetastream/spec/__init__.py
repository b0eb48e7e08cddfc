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
    Edge,
    Equality,
    Range,
    RangeKind,
    SortOrder,
    Window,
    rank,
)
from thetastream.spec.join import JoinSpec, Reach, is_windowed, longest, needed, window_in
from thetastream.spec.routing import LiveSpec, Routing, RoutingSpec
from thetastream.spec.sketch import SKETCH_ROWS, SketchOptions
from thetastream.spec.stages import (
    BLOCK_BYTES,
    GROUPS,
    HOT_GROUPS,
    GroupBy,
    Grouping,
    HotValues,
    IndexKind,
    Meeting,
    Retention,
    Stage,
    Store,
    Then,
)
from thetastream.spec.streams import ColumnSpec, Encoding, KeySpec, StreamSpec
from thetastream.spec.travel import Travel
from thetastream.spec.tree import JoinTree, Step
from thetastream.spec.view import Fold, Measure, Value, ViewSpec

__all__ = [
    "BLOCK_BYTES",
    "GROUPS",
    "HOT_GROUPS",
    "NEWEST",
    "SKETCH_ROWS",
    "Arithmetic",
    "Bound",
    "Clock",
    "ColumnSpec",
    "Edge",
    "Encoding",
    "Equality",
    "Fold",
    "GroupBy",
    "Grouping",
    "HotValues",
    "IndexKind",
    "JoinSpec",
    "JoinTree",
    "KeySpec",
    "LiveSpec",
    "Measure",
    "Meeting",
    "Range",
    "RangeKind",
    "Reach",
    "Retention",
    "Routing",
    "RoutingSpec",
    "SketchOptions",
    "SortOrder",
    "Stage",
    "Step",
    "Store",
    "StreamSpec",
    "Then",
    "Travel",
    "Value",
    "ViewSpec",
    "Window",
    "carried_column",
    "clock_of",
    "derived_key",
    "digest",
    "group_column",
    "is_carried",
    "is_windowed",
    "longest",
    "measure_column",
    "needed",
    "rank",
    "result_column",
    "window_in",
]
