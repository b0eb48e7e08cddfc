"""What Spark pickles and sends to its workers: small closures that import the library there.

They are made inside functions so that they travel by value. A worker that lacks the library can
then still run them, and say what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

Batches = Iterator[Any]
States = tuple[Any, Any]
"""A unit's manifest and its parts in Spark's state."""


def router(
    step: str, stream: int, version: str, *, streaming: bool = False
) -> Callable[[Batches], Batches]:
    """The function for `mapInArrow` before the shuffle; `step` is the join and its size."""
    check = _checker(version)

    def route_packs(batches: Batches) -> Batches:
        check()
        from thetastream.runtime.router import route
        from thetastream.runtime.task import micro_batch
        from thetastream.runtime.worker_gc import freeze_loaded_modules
        from thetastream.spec.tree import read_step
        from thetastream.steering.tables import tables_of

        join = read_step(step)
        query, number = "", None
        if join.live is not None and streaming:
            query, number = micro_batch()
        yield from route(join.spec, tables_of(join, query), stream, batches, number)
        freeze_loaded_modules()

    return route_packs


def fetcher(
    errands: Any, schema: StructType, version: str, *, token: str, cache_bytes: int
) -> Callable[[Batches], Batches]:
    """The function for `mapInArrow` that completes results with what sites have.

    What was fetched is shared by the workers of a host, in folders that `token` names.
    """
    check = _checker(version)

    def fetch_rest(batches: Batches) -> Batches:
        check()
        from pyspark.sql.pandas.types import to_arrow_schema

        from thetastream.runtime.cachefiles import CacheFiles
        from thetastream.runtime.worker_gc import freeze_loaded_modules
        from thetastream.transport.fetching import Shelves, complete

        def shelf(name: str, most_bytes: int) -> Any:
            return CacheFiles(f"{token}-{name}", most_bytes)

        target = to_arrow_schema(schema, timezone="UTC")
        shelves = Shelves(shelf, cache_bytes // len(errands)) if cache_bytes else None
        yield from complete(errands, batches, target, shelves)
        freeze_loaded_modules()

    return fetch_rest


def _checker(version: str) -> Callable[[], None]:
    """Says what is missing on a worker."""

    def check() -> None:
        from importlib import import_module

        try:
            import_module("thetastream.runtime.router")
            from thetastream.version import VERSION
        except ImportError as error:
            raise RuntimeError(
                f"a package is missing on the Spark workers: {error}\n"
                "What to do: install thetastream with its dependencies in the Python that"
                " PYSPARK_PYTHON names on every worker, or ship it with spark.archives"
            ) from error
        if version != VERSION:
            raise RuntimeError(
                f"the Spark workers have thetastream {VERSION}, the driver has"
                f" {version}\nWhat to do: install the same version on both"
            )

    return check


def processor(step: str, config: Mapping[str, Any]) -> StatefulProcessor:
    """The processor for `transformWithStateInPandas`; `config` has the fields of JoinerConfig."""

    def joiner(state: States) -> Any:
        from thetastream.runtime.joiner import Joiner, JoinerConfig
        from thetastream.spec.tree import read_step

        return Joiner(state, read_step(step), JoinerConfig(**config))

    return _processor(joiner)


def _processor(joiner: Callable[[States], Any]) -> StatefulProcessor:
    text = StructType([StructField("text", StringType())])
    data = StructType([StructField("data", BinaryType())])

    class JoinUnit(StatefulProcessor):
        """Hands each unit and batch to the joiner."""

        def init(self, handle: Any) -> None:
            # Spark starts a Python of its own for this when a query begins: nothing is imported.
            manifest = handle.getValueState("manifest", text)
            self._state = manifest, handle.getMapState("runs", text, data)
            self._joiner: Any = None

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            if self._joiner is None:
                self._joiner = joiner(self._state)
            return self._joiner.process(key, rows, timerValues)

        def close(self) -> None:
            """Nothing is held between batches but caches."""
            if self._joiner is not None:
                from thetastream.runtime.worker_gc import freeze_loaded_modules

                freeze_loaded_modules()

    return JoinUnit()


def unpacker() -> Callable[[Batches], Batches]:
    """The function for `mapInArrow` after the join."""

    def unpack_results(batches: Batches) -> Batches:
        from thetastream.runtime.results import unpack
        from thetastream.runtime.worker_gc import freeze_loaded_modules

        yield from unpack(batches)
        freeze_loaded_modules()

    return unpack_results
