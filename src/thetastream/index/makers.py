"""Which class holds the stored tuples of a stream: one line for each kind of index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from thetastream.index.blocks import BlockLists
from thetastream.index.extendible import Extendible
from thetastream.index.pim import PimTree
from thetastream.index.protocol import TupleIndex
from thetastream.index.runs import TupleRuns
from thetastream.index.streamaware import StreamAware
from thetastream.spec import IndexKind, Store, StreamSpec

Maker = Callable[[StreamSpec, Store], TupleIndex]

MAKERS: Final[dict[IndexKind, Maker]] = {
    IndexKind.RUNS: TupleRuns,
    IndexKind.EXTENDIBLE: Extendible,
    IndexKind.NESTED_LOOPS: BlockLists,
    IndexKind.PIM: PimTree,
    IndexKind.STREAM_AWARE: StreamAware,
}


def make_index(stream: StreamSpec, store: Store) -> TupleIndex:
    """A new, empty index for a store."""
    return MAKERS[store.index](stream, store)
