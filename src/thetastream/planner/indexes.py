"""Which index the stored tuples are in, as asked for, and whether the predicate allows it."""

from __future__ import annotations

from collections.abc import Sequence

from thetastream.errors import OptionError
from thetastream.options import JoinOptions
from thetastream.planner.report import Decision
from thetastream.sizes import format_size
from thetastream.spec import IndexKind, SortOrder, Store


def index_of(options: JoinOptions, order: SortOrder, stream: str) -> tuple[IndexKind, int | None]:
    """The kind of index of a stream's store, and the bytes of a mini-group where it has such."""
    if options.index == "auto":
        return IndexKind.RUNS, None
    kind = IndexKind(options.index)
    if kind is not IndexKind.EXTENDIBLE:
        return kind, None
    if order.equality is None:
        raise OptionError(
            f'index="extendible" needs an equality, and nothing in the predicate makes a key of'
            f" {stream!r} equal to another stream's",
            hint='use index="nested-loops", which takes any predicate, or leave index "auto"',
        )
    return kind, options.mini_group


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
