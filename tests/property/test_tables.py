"""Tables place every group, refuse what would lose or double a pair, and share few keys evenly."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.specs import CONTENT, two_streams
from thetastream.errors import OptionError
from thetastream.index.hashing import dealt, scaled
from thetastream.spec import (
    GROUPS,
    ColumnSpec,
    Edge,
    Encoding,
    Equality,
    GroupBy,
    Grouping,
    HotValues,
    JoinSpec,
    KeySpec,
    Meeting,
    Retention,
    Routing,
    RoutingSpec,
    SortOrder,
    Stage,
    Store,
    StreamSpec,
    Then,
)
from thetastream.topology.makers import make
from thetastream.topology.table import Copies, Placement, Table

KEY = GroupBy(kind=Grouping.KEY, key=0)
STREAMS = tuple(
    StreamSpec(
        name=name,
        columns=(ColumnSpec(name="k", type="bigint"),),
        keys=(KeySpec(sql="k", type="bigint", encoding=Encoding.INTEGER, column="k"),),
    )
    for name in ("r", "s")
)
EDGE = Edge(streams=(0, 1), equality=Equality(left=0, right=0))
BY_KEY = two_streams(STREAMS, EDGE, (KEY, KEY))
BY_CONTENT = two_streams(STREAMS, Edge(streams=(0, 1)))


@examples(60)
@given(
    first=st.integers(-(2**40), 2**40),
    count=st.integers(1, 60),
    units=st.integers(1, 40),
)
def test_keys_that_follow_each_other_are_dealt_evenly(first: int, count: int, units: int) -> None:
    """Four symbols on two units are two and two, or nearly so; a hash would make one unit idle."""
    low = first - first % 65536 + min(first % 65536, 65536 - count)
    keys = np.arange(low, low + count)
    groups = scaled(dealt(keys), GROUPS)
    loads = Counter((groups * units // GROUPS).tolist())
    # Three distances at most between neighbours on the circle, the largest under twice the mean.
    assert max(loads.values()) <= -(-2 * count // units) + 1
    if count >= 3 * units:
        assert len(loads) == units


def test_four_keys_on_two_units() -> None:
    """Both units have some of them, wherever the keys begin; mostly two each."""
    shares = Counter[int]()
    for first in range(-500, 500):
        groups = scaled(dealt(np.arange(first, first + 4)), GROUPS)
        loads = Counter((groups * 2 // GROUPS).tolist())
        assert len(loads) == 2
        shares[max(loads.values())] += 1
    assert shares[2] > shares[3]


@pytest.mark.parametrize("units", [1, 2, 3, 7, 64, 1000])
def test_shares_of_the_groups_are_even(units: int) -> None:
    table = make(BY_KEY, RoutingSpec(routing=Routing.HASH, units=(units, units)))
    loads = Counter(table.stages[0][0].assigned)
    assert len(loads) == units
    assert max(loads.values()) - min(loads.values()) <= 1


def placed(*lines: tuple[int, ...]) -> Placement:
    return Placement(lines, tuple(g * len(lines) // GROUPS for g in range(GROUPS)))


HASH = RoutingSpec(routing=Routing.HASH, units=(2, 2))
MATRIX = RoutingSpec(routing=Routing.MATRIX, units=(2, 2))
CHAINED = RoutingSpec(routing=Routing.MULTI_CHAINED, units=(2, 2))
TWO = placed((0,), (1,))
ALL = placed((0, 1))


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (Table(((TWO,),), HASH), "each store"),
        (Table(((TWO, Placement(((0,),), (0,) * 7)),), HASH), "all of 5040 groups"),
        (Table(((TWO, Placement(((0,),), (1,) * GROUPS)),), HASH), "lines that it has"),
        (Table(((TWO, placed((0, 0))),), HASH), "different numbers"),
        (Table(((TWO, placed(())),), HASH), "different numbers"),
        (Table(((TWO, placed((-1,))),), HASH), "different numbers"),
        (Table(((TWO, TWO),), MATRIX, copies=Copies.CROSSING), "cross in one unit"),
        (
            Table(((placed((0, 1)), placed((0, 1))),), MATRIX, copies=Copies.CROSSING),
            "cross in one unit",
        ),
        (Table(((TWO, TWO),), CHAINED, copies=Copies.EVERYWHERE), "all units have all tuples"),
        (Table(((ALL, placed((0, 2))),), CHAINED, copies=Copies.EVERYWHERE), "would lack some"),
    ],
)
def test_a_table_that_would_lose_or_double_pairs_is_refused(table: Table, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        table.validate(BY_KEY)


@pytest.mark.parametrize("routing", list(Routing))
def test_what_is_made_is_valid_and_covers_itself(routing: Routing) -> None:
    subgroups = (2, 3) if routing is Routing.CONTRAND else ()
    spec = BY_KEY if routing is not Routing.RANDOM else BY_CONTENT
    units = {"broadcast": (1, 6), "split": (6, 6), "multi-chained": (6, 6)}.get(routing, (4, 6))
    table = make(spec, RoutingSpec(routing=routing, units=units, subgroups=subgroups))
    table.validate(spec)
    assert table.covers(table, spec)


def test_which_tables_cover_which() -> None:
    def hashed(*units: int) -> Table:
        return make(BY_KEY, RoutingSpec(routing=Routing.HASH, units=units))

    def random(*units: int) -> Table:
        return make(BY_CONTENT, RoutingSpec(routing=Routing.RANDOM, units=units))

    assert not hashed(3, 3).covers(hashed(2, 2), BY_KEY)
    assert not hashed(2, 2).covers(hashed(3, 3), BY_KEY)
    assert random(3, 4).covers(random(2, 4), BY_CONTENT)
    assert not random(2, 4).covers(random(3, 4), BY_CONTENT)
    matrix, chained = make(BY_CONTENT, MATRIX), make(BY_CONTENT, CHAINED)
    assert not matrix.covers(random(4, 4), BY_CONTENT)
    assert not random(4, 4).covers(chained, BY_CONTENT)
    assert not replace(chained, copies=Copies.CROSSING).covers(chained, BY_CONTENT)


@pytest.mark.parametrize(
    "routing",
    [
        {"routing": Routing.HASH, "units": (0, 1)},
        {"routing": Routing.HASH, "units": (2, 2), "subgroups": (1, 1)},
        {"routing": Routing.CONTRAND, "units": (2, 2)},
        {"routing": Routing.CONTRAND, "units": (2, 2), "subgroups": (3, 1)},
        {"routing": Routing.BROADCAST, "units": (2, 3)},
        {"routing": Routing.SPLIT, "units": (2, 3)},
        {"routing": Routing.STREAM_AWARE, "units": (3, 2), "hot_units": 2},
        {"routing": Routing.STREAM_AWARE, "units": (3, 3), "hot_units": -1},
        {"routing": Routing.RANDOM, "units": (3, 3), "hot_units": 1},
        {"routing": Routing.MULTI_CHAINED, "units": (1, 2)},
    ],
)
def test_sizes_that_do_not_fit_are_refused(routing: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        RoutingSpec(**routing)


def changed(stage: Stage | None = None, **changes: Any) -> JoinSpec:
    stages = BY_KEY.stages if stage is None else (stage,)
    return replace(BY_KEY, **{"stages": stages, **changes})


STAGE = BY_KEY.stages[0]
OTHER_STORE = replace(STAGE.stores[0], order=SortOrder(3, None))
SHORT = replace(STAGE.stores[0], retention=Retention(keeps=5))


@pytest.mark.parametrize(
    "make_it",
    [
        lambda: changed(streams=STREAMS[:1]),
        lambda: changed(edges=()),
        lambda: changed(edges=(replace(EDGE, equality=Equality(left=1, right=0)),)),
        lambda: changed(edges=(replace(EDGE, compared=((0, 1),)),)),
        lambda: changed(order=(0, 0)),
        lambda: changed(reach=((None,),)),
        lambda: changed(reach=((None, 5), (None, None))),
        lambda: changed(stages=()),
        lambda: changed(replace(STAGE, number=1)),
        lambda: changed(replace(STAGE, stores=STAGE.stores[:1])),
        lambda: changed(replace(STAGE, stores=(OTHER_STORE, STAGE.stores[1]))),
        lambda: changed(replace(STAGE, stores=(SHORT, STAGE.stores[1]))),
        lambda: changed(replace(STAGE, meetings=(STAGE.meetings[0],) * 2)),
        lambda: changed(
            replace(STAGE, meetings=(Meeting(new=0, stored=1, then=Then.PACK, hub=0),))
        ),
        lambda: Meeting(new=1, stored=1, then=Then.EMIT),
        lambda: Meeting(new=0, stored=1, then=Then.EMIT, hub=0),
        lambda: Meeting(new=0, stored=1, then=Then.PACK),
        lambda: Meeting(new=0, stored=1, then=Then.FORWARD, hub=1),
        lambda: GroupBy(kind=Grouping.KEY),
        lambda: GroupBy(kind=Grouping.CONTENT, key=1),
        lambda: GroupBy(kind=Grouping.BUCKET, key=1),
        lambda: GroupBy(kind=Grouping.BUCKET, key=1, width=0),
        lambda: GroupBy(kind=Grouping.KEY, key=1, width=2),
        lambda: Edge(streams=(1, 0)),
        lambda: HotValues(key=0, codes=(1, 1)),
        lambda: HotValues(key=0, codes=(2, 1)),
        lambda: replace(KEY, hot=HotValues(key=0, codes=(1,))),
        lambda: replace(CONTENT, groups=9, hot=HotValues(key=0, codes=(1,))),
    ],
)
def test_a_spec_whose_parts_do_not_fit_is_refused(make_it: Any) -> None:
    with pytest.raises(OptionError):
        make_it()


def test_a_store_of_another_stream_does_not_stand_for_it() -> None:
    twice = Store(stream=0, group_by=CONTENT, order=SortOrder(0, None), retention=Retention())
    with pytest.raises(OptionError, match="each stream stored in one stage"):
        changed(replace(STAGE, stores=(twice, twice)))
