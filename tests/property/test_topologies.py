"""Each pair that can match meets in exactly one unit, whichever of the two is the stored one."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.specs import CONTENT, two_streams
from thetastream.index.part import Tuples
from thetastream.spec import (
    Arithmetic,
    Bound,
    ColumnSpec,
    Edge,
    Encoding,
    Equality,
    GroupBy,
    Grouping,
    HotValues,
    JoinSpec,
    KeySpec,
    Range,
    RangeKind,
    Routing,
    RoutingSpec,
    StreamSpec,
)
from thetastream.topology.dispatch import HOME, STORE, Dispatcher, visit
from thetastream.topology.makers import make

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
Row = tuple[Any, ...]

keys = st.integers(-5, 5) | st.sampled_from(
    [INT64_MIN, INT64_MIN + 1, INT64_MAX, INT64_MAX - 1, 2**62, 2**62 + 3, -(2**62) - 7, 2**53 + 1]
)
floats = st.floats(-10, 10) | st.sampled_from(
    [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1e300, -1e300, 5e-324]
)
units = st.tuples(st.integers(1, 7), st.integers(1, 7))


class Routed(NamedTuple):
    """A join and how it is routed."""

    spec: JoinSpec
    routing: RoutingSpec

    def dispatcher(self, stream: int) -> Dispatcher:
        return Dispatcher(self.spec, make(*self), self.spec.stages[0], stream)


def spec_of(
    routing: RoutingSpec,
    *,
    equality: bool = False,
    rule: Range | None = None,
    width: int | float = 2,
    kind: str = "bigint",
    encoding: Encoding = Encoding.INTEGER,
    hot: HotValues | None = None,
) -> Routed:
    """Streams of an id, a key and a column that may be NULL."""
    streams = tuple(
        StreamSpec(
            name=name,
            columns=(
                ColumnSpec(name="id", type="bigint"),
                ColumnSpec(name="k", type=kind),
                ColumnSpec(name="v", type="int"),
                ColumnSpec(name="w", type="string"),
            ),
            keys=(KeySpec(sql="k", type=kind, encoding=encoding, column="k"),),
        )
        for name in ("r", "s")
    )
    edge = Edge(
        streams=(0, 1),
        equality=Equality(left=0, right=0) if equality else None,
        ranges=() if rule is None else (rule,),
    )
    by = CONTENT if hot is None else dataclasses.replace(CONTENT, hot=hot)
    if routing.routing in (Routing.HASH, Routing.CONTRAND):
        by = GroupBy(kind=Grouping.KEY, key=0)
    if routing.routing is Routing.BAND:
        by = GroupBy(kind=Grouping.BUCKET, key=0, width=width)
    return Routed(two_streams(streams, edge, (by, by)), routing)


def batch_of(rows: Sequence[Row], kind: pa.DataType) -> pa.RecordBatch:
    types = (pa.int64(), kind, pa.int32(), pa.string())
    columns = [pa.array([row[n] for row in rows], t) for n, t in enumerate(types)]
    return pa.RecordBatch.from_arrays(columns, [f"c_{n}" for n in range(len(types))])


def placed(
    routed: Routed, stream: int, batches: Sequence[Sequence[Row]], kind: pa.DataType
) -> dict[int, Counter[tuple[int, int]]]:
    """For each row's id: how often it comes to each unit, in which role."""
    dispatcher, units = routed.dispatcher(stream), make(*routed).units(0)
    found: dict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
    for rows in batches:
        for pack in dispatcher.dispatch(batch_of(rows, kind)):
            assert pack.stream == stream
            assert 0 <= pack.unit < units
            assert pack.batch.num_rows > 0
            for name in pack.batch.column(0).to_pylist():
                found[name][pack.unit, pack.role] += 1
    return found


def visiting(stream: int) -> int:
    """The role in which a stream visits the other one's tuples."""
    return visit(1 - stream)


def role_units(places: Counter[tuple[int, int]], role: int) -> list[int]:
    return [unit for (unit, found), n in places.items() for _ in range(n) if found & role]


def check(
    spec: Routed,
    left: Sequence[Sequence[Row]],
    right: Sequence[Sequence[Row]],
    can_match: Any,
    kind: pa.DataType,
) -> None:
    sides = (placed(spec, 0, left, kind), placed(spec, 1, right, kind))
    rows = [[row for batch in side for row in batch] for side in (left, right)]
    for stream, (side, mine) in enumerate(zip(sides, rows, strict=True)):
        for row in mine:
            homes = role_units(side[row[0]], HOME)
            assert len(homes) == 1, "a row has one home"
            stores = role_units(side[row[0]], STORE)
            assert len(stores) == len(set(stores)) >= 1
            assert set(homes) <= set(stores)
            probes = role_units(side[row[0]], visiting(stream))
            assert len(probes) == len(set(probes))
    for one in rows[0]:
        for two in rows[1]:
            if not can_match(one[1], two[1]):
                continue
            first, second = sides[0][one[0]], sides[1][two[0]]
            for stream, stored, probing in ((1, first, second), (0, second, first)):
                visited = role_units(probing, visiting(stream))
                meet = set(role_units(stored, STORE)) & set(visited)
                assert len(meet) == 1, (one, two, meet)


@st.composite
def sides(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> list[list[list[Row]]]:
    """Both streams' rows, cut into batches anyhow."""
    made = []
    start = 0
    for _ in range(2):
        drawn = draw(st.lists(values, min_size=1, max_size=9))
        extras = draw(
            st.lists(
                st.tuples(st.none() | st.integers(0, 3), st.none() | st.sampled_from("ab")),
                min_size=len(drawn),
                max_size=len(drawn),
            )
        )
        rows = [
            (start + i, k, *extra) for i, (k, extra) in enumerate(zip(drawn, extras, strict=True))
        ]
        start += 1000
        cut = draw(st.integers(0, len(rows)))
        made.append([part for part in (rows[:cut], rows[cut:]) if part])
    return made


def equal(one: Any, two: Any) -> bool:
    return bool(one == two)


def any_pair(one: Any, two: Any) -> bool:
    return True


@examples(50)
@given(data=sides(keys), size=units)
def test_hash(data: list[list[list[Row]]], size: tuple[int, int]) -> None:
    routing = RoutingSpec(routing=Routing.HASH, units=size)
    check(spec_of(routing, equality=True), data[0], data[1], equal, pa.int64())


@examples(60)
@given(data=sides(keys), size=units, pick=st.data())
def test_contrand(data: list[list[list[Row]]], size: tuple[int, int], pick: Any) -> None:
    groups = (pick.draw(st.integers(1, size[0])), pick.draw(st.integers(1, size[1])))
    routing = RoutingSpec(routing=Routing.CONTRAND, units=size, subgroups=groups)
    check(spec_of(routing, equality=True), data[0], data[1], equal, pa.int64())


@examples(100)
@given(
    data=sides(keys),
    size=units,
    routing=st.sampled_from(
        [Routing.RANDOM, Routing.MATRIX, Routing.SPLIT, Routing.BROADCAST, Routing.MULTI_CHAINED]
    ),
)
def test_topologies_for_anything(
    data: list[list[list[Row]]], size: tuple[int, int], routing: Routing
) -> None:
    if routing is Routing.BROADCAST:
        size = (1, size[1]) if size[0] % 2 else (size[0], 1)
    elif routing in (Routing.SPLIT, Routing.MULTI_CHAINED):
        size = size[:1] * 2
    spec = spec_of(RoutingSpec(routing=routing, units=size))
    check(spec, data[0], data[1], any_pair, pa.int64())


@examples(60)
@given(
    data=sides(keys),
    size=st.tuples(st.integers(3, 7), st.integers(3, 7)),
    hot_units=st.integers(0, 2),
    hot=st.sets(keys, min_size=1, max_size=5),
)
def test_hot_values_apart(
    data: list[list[list[Row]]], size: tuple[int, int], hot_units: int, hot: set[int]
) -> None:
    routed = spec_of(
        RoutingSpec(routing=Routing.STREAM_AWARE, units=size, hot_units=hot_units),
        hot=HotValues(key=0, codes=tuple(sorted(hot))),
    )
    check(routed, data[0], data[1], any_pair, pa.int64())
    for stream, batches in enumerate(data):
        found = placed(routed, stream, batches, pa.int64())
        for name, key, *_ in (row for batch in batches for row in batch):
            (unit,) = role_units(found[name], STORE)
            if hot_units:
                assert (unit >= size[stream] - hot_units) == (key in hot)


def band(low: float, high: float, arithmetic: Arithmetic) -> Range:
    return Range(
        left=0,
        right=0,
        low=Bound(value=low),
        high=Bound(value=high),
        kind=RangeKind.BAND,
        arithmetic=arithmetic,
    )


FAR = [[[(0, 2**62 + 10, None, None)]], [[(1000 + i, 2**62 + i, None, None) for i in range(21)]]]


@examples(50)
@given(
    data=sides(keys),
    size=units | st.just((16, 16)),
    low=st.integers(-40, 5),
    extent=st.integers(0, 40) | st.sampled_from([2**62, 2**63, 2**64]),
    width=st.integers(1, 20) | st.sampled_from([2**40, 2**63 - 1, 2**63, 2**67]),
)
@example(data=FAR, size=(16, 16), low=-10, extent=20, width=1)
def test_band_buckets_of_integers(
    data: list[list[list[Row]]], size: tuple[int, int], low: int, extent: int, width: int
) -> None:
    routing = RoutingSpec(routing=Routing.BAND, units=size)
    spec = spec_of(routing, rule=band(low, low + extent, Arithmetic.INTEGER), width=width)
    check(spec, data[0], data[1], lambda a, b: low <= a - b <= low + extent, pa.int64())


@examples(60)
@given(
    words=st.lists(st.none() | st.text(max_size=6), min_size=1, max_size=12),
    kind=st.sampled_from([pa.string(), pa.binary()]),
    data=st.data(),
)
def test_rows_of_texts_go_by_their_content(
    words: list[str | None], kind: pa.DataType, data: Any
) -> None:
    column = pa.array(words, pa.string()).cast(kind)
    spec = text_spec(Routing.RANDOM)
    homes = text_homes(spec, column)
    for word, home in zip(words, homes, strict=True):
        assert text_homes(spec, pa.array([word], pa.string()).cast(kind)) == [home]
    start = data.draw(st.integers(0, len(words) - 1))
    assert text_homes(spec, column.slice(start)) == homes[start:]


@examples(60)
@given(
    data=sides(floats),
    size=units | st.just((16, 16)),
    extent=st.floats(0, 30),
    width=st.floats(1e-3, 50) | st.sampled_from([1e-300, 1e300]),
    single=st.booleans(),
)
def test_band_buckets_of_floats(
    data: list[list[list[Row]]],
    size: tuple[int, int],
    extent: float,
    width: float,
    single: bool,
) -> None:
    routing = RoutingSpec(routing=Routing.BAND, units=size)
    real = np.float32 if single else np.float64
    spec = spec_of(
        routing,
        rule=band(-extent, extent, Arithmetic.FLOAT),
        width=width,
        kind="float" if single else "double",
        encoding=Encoding.FLOAT,
    )

    def can_match(one: float, two: float) -> bool:
        with np.errstate(all="ignore"):
            return bool(abs(real(one) - real(two)) <= extent)

    with np.errstate(over="ignore"):
        rows = [
            [[(i, float(real(k)), *rest) for i, k, *rest in batch] for batch in side]
            for side in data
        ]
    check(spec, rows[0], rows[1], can_match, pa.float32() if single else pa.float64())


def routings() -> list[RoutingSpec]:
    return [
        RoutingSpec(routing=Routing.HASH, units=(3, 4)),
        RoutingSpec(routing=Routing.CONTRAND, units=(5, 4), subgroups=(2, 2)),
        RoutingSpec(routing=Routing.RANDOM, units=(5, 3)),
        RoutingSpec(routing=Routing.BAND, units=(5, 3)),
        RoutingSpec(routing=Routing.MATRIX, units=(3, 4)),
        RoutingSpec(routing=Routing.SPLIT, units=(4, 4)),
        RoutingSpec(routing=Routing.BROADCAST, units=(1, 4)),
        RoutingSpec(routing=Routing.BROADCAST, units=(5, 1)),
        RoutingSpec(routing=Routing.MULTI_CHAINED, units=(3, 3)),
        RoutingSpec(routing=Routing.STREAM_AWARE, units=(4, 5)),
    ]


@pytest.mark.parametrize("routing", routings(), ids=lambda r: r.routing.value)
@examples(20)
@given(data=sides(keys), random=st.randoms(use_true_random=False))
def test_a_row_goes_where_it_went_before_whatever_it_travels_with(
    routing: RoutingSpec, data: list[list[list[Row]]], random: Any
) -> None:
    """A task that runs again may meet its rows in another order and in other batches."""
    spec = spec_of(
        routing,
        equality=routing.routing in (Routing.HASH, Routing.CONTRAND),
        rule=band(-1, 1, Arithmetic.INTEGER) if routing.routing is Routing.BAND else None,
    )
    for stream, batches in enumerate(data):
        rows = [row for batch in batches for row in batch]
        shuffled = random.sample(rows, len(rows))
        before = placed(spec, stream, batches, pa.int64())
        assert placed(spec, stream, [shuffled], pa.int64()) == before
        assert placed(spec, stream, [[row] for row in rows], pa.int64()) == before


@pytest.mark.parametrize("routing", routings(), ids=lambda r: r.routing.value)
def test_many_rows_use_every_unit(routing: RoutingSpec) -> None:
    spec = spec_of(
        routing,
        equality=routing.routing in (Routing.HASH, Routing.CONTRAND),
        rule=band(-1, 1, Arithmetic.INTEGER) if routing.routing is Routing.BAND else None,
    )
    rows = [(i, i, 0, "a") for i in range(2000)]
    for stream in (0, 1):
        found = placed(spec, stream, [rows], pa.int64())
        loads = Counter(unit for places in found.values() for unit in role_units(places, HOME))
        count = routing.units[stream]
        if routing.routing in (Routing.MATRIX, Routing.BROADCAST):
            count = routing.units[0] * routing.units[1]
        assert len(loads) == count
        assert max(loads.values()) < 1.5 * len(rows) / count


@pytest.mark.parametrize("routing", [Routing.RANDOM, Routing.MATRIX])
def test_rows_that_differ_in_a_string_alone_still_spread(routing: Routing) -> None:
    words = pa.array([f"a long beginning and then {number}" for number in range(400)])
    loads = Counter(text_homes(text_spec(routing), words))
    assert max(loads.values()) < 200


def text_spec(routing: Routing) -> Routed:
    """Streams of nothing but a text."""
    spec, made = spec_of(RoutingSpec(routing=routing, units=(4, 4)))
    column = ColumnSpec(name="w", type="string")
    streams = tuple(
        dataclasses.replace(stream, columns=(column,), keys=()) for stream in spec.streams
    )
    return Routed(two_streams(streams, Edge(streams=(0, 1))), made)


def text_homes(routed: Routed, words: pa.Array) -> list[int]:
    """The home of each row."""
    numbers = pa.array(range(len(words)))
    homes: dict[int, int] = {}
    tuples = Tuples(pa.RecordBatch.from_arrays([words], ["c_0"]), [])
    batch = pa.RecordBatch.from_arrays([words, numbers], ["c_0", "row"])
    for unit, role, some in routed.dispatcher(0).cut(tuples, batch):
        if role & HOME:
            homes.update(dict.fromkeys(some.column("row").to_pylist(), unit))
    return [homes[row] for row in range(len(words))]


def test_a_narrow_band_replicates_nearly_nothing() -> None:
    routing = RoutingSpec(routing=Routing.BAND, units=(16, 16))
    spec = spec_of(routing, rule=band(-5, 5, Arithmetic.INTEGER), width=80)
    rows = [(i, i, 0, "a") for i in range(4000)]
    found = placed(spec, 0, [rows], pa.int64())
    probes = sum(len(role_units(places, visiting(0))) for places in found.values())
    assert probes / len(rows) < 1.3


@pytest.mark.parametrize(
    ("routing", "copies", "visited"),
    [
        (RoutingSpec(routing=Routing.RANDOM, units=(4, 3)), (1, 1), (3, 4)),
        (RoutingSpec(routing=Routing.SPLIT, units=(4, 4)), (1, 1), (4, 4)),
        (RoutingSpec(routing=Routing.MATRIX, units=(2, 3)), (3, 2), (3, 2)),
        (RoutingSpec(routing=Routing.BROADCAST, units=(4, 1)), (1, 4), (1, 4)),
        (RoutingSpec(routing=Routing.BROADCAST, units=(1, 4)), (4, 1), (4, 1)),
        (RoutingSpec(routing=Routing.MULTI_CHAINED, units=(4, 4)), (4, 4), (1, 1)),
    ],
    ids=lambda value: value.routing.value if isinstance(value, RoutingSpec) else "",
)
def test_copies_and_visits(
    routing: RoutingSpec, copies: tuple[int, int], visited: tuple[int, int]
) -> None:
    """What each baseline pays: units that store a tuple, and units that it visits."""
    spec = spec_of(routing)
    rows = [(i, i % 7, 0, "a") for i in range(40)]
    for stream in (0, 1):
        for places in placed(spec, stream, [rows], pa.int64()).values():
            assert len(role_units(places, STORE)) == copies[stream]
            assert len(role_units(places, visiting(stream))) == visited[stream]


def test_an_empty_batch_makes_no_packs() -> None:
    for routing in routings():
        if routing.routing is not Routing.BAND:
            spec = spec_of(routing, equality=True)
            assert not list(spec.dispatcher(0).dispatch(batch_of([], pa.int64())))
