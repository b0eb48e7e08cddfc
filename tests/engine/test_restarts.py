"""A query that goes on from its state with something changed: right, or refused by name.

Every pair of settings of a join is tried, so that no change is left to a table in the documents.
Right means: the results of both runs are those of the batch join, each once.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from thetastream.errors import FingerprintError
from thetastream.options import JoinOptions
from thetastream.testing import (
    Batch,
    InProcessJoin,
    expected_rows,
    multiset,
    rows_of,
)
from thetastream.testing.cases import SCHEMA, SECOND, START

ROWS = 60
Settings = Mapping[str, Any]


def stream_rows(count: int) -> list[pa.Table]:
    return [rows_of(seed, ROWS, first=1000 * seed) for seed in range(1, count + 1)]


def join_of(
    predicate: str,
    streams: int = 2,
    *,
    within: Any = None,
    schema: pa.Schema = SCHEMA,
    names: tuple[str, ...] | None = None,
    **options: Any,
) -> InProcessJoin:
    given = {"units": 2, "full_history": True, **options}
    return InProcessJoin(
        predicate,
        [schema] * streams,
        names=names,
        within=within,
        time=None if within is None else "t",
        options=JoinOptions(**given),
    )


def halves(streams: int, *, windowed: bool) -> tuple[Batch, Batch]:
    """Two batches; in a join with a window, some rows are late in the second, and some that the
    first has stored expire."""
    tables = stream_rows(streams)
    cut = ROWS // 2
    mark = START + 32 * SECOND if windowed else None
    first = Batch(*(table.slice(0, cut) for table in tables))
    return first, Batch(*(table.slice(cut) for table in tables), watermark=mark)


def right_or_refused(
    predicate: str, settings: Sequence[Settings], *, streams: int = 2, within: Any = None
) -> set[tuple[int, int]]:
    """Goes on from each setting with each, and returns the changes that were not refused."""
    script = halves(streams, windowed=within is not None)
    time = None if within is None else "t"
    wanted = multiset(expected_rows(predicate, script, within=within, time=time))
    joins = [join_of(predicate, streams, within=within, **one) for one in settings]
    stopped = []
    for join in joins:
        rows = join.batch(script[0])
        stopped.append((rows, join.stored()))
    allowed = set()
    for (a, (rows, state)), (b, join) in product(enumerate(stopped), enumerate(joins)):
        change = f"{settings[a]} -> {settings[b]}"
        join.restart(copy.deepcopy(state))
        try:
            found = multiset(rows + join.batch(script[1]))
        except FingerprintError as refusal:
            assert a != b, change
            assert_clear(refusal)
            continue
        assert not wanted - found, f"{change}: lost {sum((wanted - found).values())}"
        assert not found - wanted, f"{change}: {sum((found - wanted).values())} too many"
        allowed.add((a, b))
    return allowed


def assert_clear(refusal: FingerprintError) -> None:
    assert refusal.what.startswith("the checkpoint was written by another query: ")
    assert ": was " in refusal.detail
    assert refusal.hint


def contrand(units: Any, subgroups: tuple[int, int]) -> Settings:
    return {"topology": "contrand", "units": units, "subgroups": subgroups}


TOPOLOGIES: tuple[Settings, ...] = (
    {"topology": "hash"},
    {"topology": "hash", "units": 3},
    contrand(4, (2, 2)),
    contrand(4, (1, 2)),
    contrand((6, 4), (3, 2)),
    {"topology": "random"},
    {"topology": "random", "units": (3, 2)},
    {"topology": "random", "units": 1},
    {"topology": "split"},
    {"topology": "matrix", "units": (2, 2)},
    {"topology": "matrix", "units": (2, 3)},
    {"topology": "broadcast", "units": (2, 1)},
    {"topology": "broadcast", "units": (1, 2)},
    {"topology": "broadcast", "units": (3, 1)},
    {"topology": "multi-chained"},
    {"topology": "band"},
)


def test_any_topology_and_size_after_any_other() -> None:
    allowed = right_or_refused("r.k = s.k AND r.n - s.n BETWEEN -3 AND 4", TOPOLOGIES)
    changes = [(TOPOLOGIES[a], TOPOLOGIES[b]) for a, b in sorted(allowed) if a != b]
    assert changes == [
        (contrand(4, (2, 2)), contrand(4, (1, 2))),
        ({"topology": "random"}, {"topology": "random", "units": (3, 2)}),
        ({"topology": "random", "units": 1}, {"topology": "random"}),
        ({"topology": "random", "units": 1}, {"topology": "random", "units": (3, 2)}),
    ]


def test_any_index_after_any_other() -> None:
    indexes = [{"index": name} for name in ("runs", "extendible", "nested-loops", "pim")]
    sizes = [{"index": "extendible", "theta": size} for size in ("4 KB", "1 MB")]
    settings = [*indexes, *sizes]
    allowed = right_or_refused("r.k = s.k AND r.n < s.n", settings)
    kinds = {(settings[a]["index"], settings[b]["index"]) for a, b in allowed}
    assert kinds == {(one["index"], one["index"]) for one in indexes}
    # The size of a mini-group is no part of what is stored.
    assert {(1, 4), (4, 5), (5, 1)} <= allowed


def test_any_index_of_an_inequality_after_any_other() -> None:
    settings: list[Settings] = [
        {"topology": "random"},
        {"topology": "random", "index": "pim"},
        {"topology": "random", "index": "stream-aware"},
        {"topology": "stream-aware", "units": 3},
        {"topology": "stream-aware", "units": 4},
        {"topology": "stream-aware", "units": 4, "hot_values": (1,), "hot_units": 1},
        {"topology": "stream-aware", "units": 4, "hot_values": (2, 3), "hot_units": 2},
    ]
    allowed = right_or_refused("r.n < s.n", settings)
    assert {(3, 4), (5, 6), (6, 5)} <= allowed
    assert not {(0, 1), (1, 0), (0, 2), (2, 3), (4, 3), (1, 3)} & allowed


def test_what_says_how_the_work_is_done_may_change() -> None:
    """A tenth of the archive period makes other sub-indexes, and all are searched."""
    settings: list[Settings] = [
        {},
        {"archive_period": "1 second"},
        {"archive_period": "1 hour"},
        {"chunk_rows": 1, "cache_bytes": 0},
    ]
    for index in ("runs", "extendible", "pim"):
        some = [{**one, "index": index} for one in settings]
        allowed = right_or_refused("r.k = s.k", some, within="20 seconds")
        assert len(allowed) == len(settings) ** 2


THREE: tuple[Settings, ...] = (
    {"scheme": "symmetric"},
    {"scheme": "symmetric", "intermediate": "pairs"},
    {"scheme": "symmetric", "units": 3},
    {"scheme": "semi-symmetric"},
    {"scheme": "semi-symmetric", "units": 3},
    {"scheme": "semi-symmetric", "units": 1},
)


@pytest.mark.parametrize("predicate", ["r.k = s.k AND s.n = t.n", "r.k < s.k AND s.n < t.n"])
def test_any_scheme_of_three_streams_after_any_other(predicate: str) -> None:
    allowed = right_or_refused(predicate, THREE, streams=3, within="4 seconds")
    for a, b in allowed:
        assert THREE[a]["scheme"] == THREE[b]["scheme"]
        assert THREE[a].get("intermediate") == THREE[b].get("intermediate")
    more = {(0, 2), (5, 3), (5, 4), (3, 4)}
    assert allowed & more == (more if "<" in predicate else set())


# -- another query --------------------------------------------------------------------------------


def without(name: str) -> pa.Schema:
    return SCHEMA.remove(SCHEMA.get_field_index(name))


def retyped(name: str, kind: pa.DataType) -> pa.Schema:
    return SCHEMA.set(SCHEMA.get_field_index(name), pa.field(name, kind))


PREDICATE = "r.k = s.k AND r.n <= s.n"
OTHERS: list[Any] = [
    pytest.param({"schema": without("b")}, "columns", id="a dropped column"),
    pytest.param({"schema": SCHEMA.append(pa.field("y", pa.int32()))}, "columns", id="one more"),
    pytest.param({"schema": retyped("f", pa.float64())}, "columns", id="a wider column"),
    pytest.param({"schema": retyped("k", pa.int64())}, "columns, keys", id="a wider key"),
    pytest.param({"schema": retyped("k", pa.string())}, "columns, keys", id="a key as text"),
    pytest.param(
        {"schema": pa.schema([*list(SCHEMA)[1:], SCHEMA.field(0)])}, "columns", id="other order"
    ),
    pytest.param({"names": ("s", "r")}, "streams", id="reordered streams"),
    pytest.param({"within": "21 seconds"}, "window", id="a longer window"),
    pytest.param({"within": "19 seconds"}, "window", id="a shorter window"),
    pytest.param({"within": ("20 seconds", "0 seconds")}, "window", id="one side of the window"),
    pytest.param({"predicate": "r.k = s.k"}, "predicate", id="less of the predicate"),
    pytest.param({"predicate": PREDICATE + " AND r.b"}, "filters", id="a filter"),
    pytest.param({"predicate": "r.n <= s.n"}, "predicate", id="without the key"),
    pytest.param({"predicate": "s.k = r.k AND s.n >= r.n"}, "predicate", id="turned around"),
]


@pytest.mark.parametrize(("change", "named"), OTHERS)
def test_another_query_is_refused_before_it_gives_a_row(change: Settings, named: str) -> None:
    same: dict[str, Any] = {"predicate": PREDICATE, "within": "20 seconds"}
    old, new = join_of(**same), join_of(**{**same, **change})
    script = halves(2, windowed=True)
    rows = old.batch(script[0])
    new.restart(old.stored())
    schema = change.get("schema", SCHEMA)
    names = change.get("names", ("r", "s"))
    tables = dict(zip("rs", script[1].tables, strict=True))
    second = Batch(*(fitting(tables[name], schema) for name in names))
    with pytest.raises(FingerprintError) as refused:
        new.batch(second)
    assert_clear(refused.value)
    for part in named.split(", "):
        assert f"  {part}: was" in f"  {refused.value.detail.strip()}"
    # Nothing has happened to the state: the query goes on as it was.
    old.restart(new.stored())
    rows += old.batch(script[1])
    expected = expected_rows(PREDICATE, script, within="20 seconds", time="t")
    assert multiset(rows) == multiset(expected)


def fitting(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
