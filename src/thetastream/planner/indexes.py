"""Which index the stored tuples are in, as asked for, and whether the predicate allows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from thetastream.errors import OptionError
from thetastream.options import JoinOptions
from thetastream.planner.report import Decision
from thetastream.sizes import format_size
from thetastream.spec import IndexKind, SketchOptions, SortOrder, Store, StreamSpec


class Indexed(NamedTuple):
    """The index of a stream's store."""

    kind: IndexKind
    theta: int | None = None
    """Bytes of a mini-group, where it has such."""
    sketch: SketchOptions | None = None
    """Its predictor of hot values, if it has one and another than the usual one is wanted."""


def index_of(options: JoinOptions, order: SortOrder, stream: StreamSpec) -> Indexed:
    """The index of a stream's store; refused if the predicate does not allow it."""
    kind = IndexKind.RUNS
    if options.index != "auto":
        kind = IndexKind(options.index)
    elif options.topology == "stream-aware":
        kind = IndexKind.STREAM_AWARE
    if kind is IndexKind.STREAM_AWARE:
        _check_values(order, stream)
        return Indexed(kind, sketch=options.sketch)
    if kind is not IndexKind.EXTENDIBLE:
        return Indexed(kind)
    if order.equality is None:
        raise OptionError(
            f'index="extendible" needs an equality, and nothing in the predicate makes a key of'
            f" {stream.name!r} equal to another stream's",
            hint='use index="nested-loops", which takes any predicate, or leave index "auto"',
        )
    return Indexed(kind, theta=options.mini_group)


def _check_values(order: SortOrder, stream: StreamSpec) -> None:
    """Refuse an index of hot values where nothing but an equality or the window is compared."""
    if order.equality is not None:
        raise OptionError(
            f'index="stream-aware" is for inequalities and bands, and rows of {stream.name!r} are'
            " found by an equality",
            detail="sorted runs find the rows of an equal key without looking at any others",
            hint='leave index "auto"; hot_keys="auto" or topology="contrand" spreads the rows of a'
            " frequent key",
        )
    if order.range is None or order.range == stream.time:
        raise OptionError(
            f'index="stream-aware" needs an inequality or a band, and nothing in the predicate'
            f" bounds a key of {stream.name!r}",
            hint='leave index "auto"',
        )


def describe_index(stores: Sequence[Store], reason: str) -> Decision:
    """The decision for an index; `reason` is why sorted runs are a good one."""
    store = stores[0]
    if store.index is IndexKind.RUNS:
        return Decision("index", "chained sorted runs, by the driving key", reason)
    asked = "asked for in the options"
    if store.index is IndexKind.PIM:
        return Decision(
            "index",
            "PIM-tree: a mutable component that is merged into an immutable one",
            f"{asked}; probes are binary searches in both, and rows expire when these are merged",
        )
    if store.index is IndexKind.STREAM_AWARE:
        return Decision(
            "index",
            "stream-aware: hot values apart, chained sorted runs for the others",
            "each unit finds its hot values by a sketch; a probe searches distinct hot values, not"
            " their rows",
        )
    if store.theta is None:
        return Decision(
            "index",
            "nested loops over the blocks of a partition-group",
            f"{asked}; a row looks at every stored row of its group",
        )
    low, high = format_size(store.theta), format_size(2 * store.theta)
    return Decision(
        "index",
        f"extendible hashing into mini-groups of {low} to {high} (theta {low})",
        f"{asked}; a row looks at every stored row of its mini-group",
    )
