"""Tables with hot values: whatever these list, a tuple is stored once and reached by all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.steering.test_hot_values import AWARE, Stream
from tests.steering.test_hotkeys import SCHEMA
from thetastream.errors import ControlError
from thetastream.options import JoinOptions
from thetastream.spec import StreamSpec
from thetastream.steering.version import Version, first_version
from thetastream.testing import InProcessJoin
from thetastream.topology.dispatch import STORE, Dispatcher, visit
from thetastream.topology.hotvalues import HotValue, with_values


def with_list(version: Version, codes: Sequence[int]) -> Version:
    values = tuple(HotValue(key=code, stream="r", at=1.5) for code in sorted(set(codes)))
    joins = tuple(replace(table, values=values) for table in version.joins)
    return replace(version, joins=joins, version=version.version + 1).lived()


KEY_AND_ID = ("c_0", "c_1")


def batch_of(stream: StreamSpec, keys: Sequence[int]) -> pa.RecordBatch:
    """Rows of a stream as they travel to the units."""
    assert [one.name for one in stream.columns[:2]] == ["k", "id"]
    times = pa.nulls(len(keys), SCHEMA.field("t").type)
    columns = [pa.array(keys, pa.int64()), pa.array(range(len(keys)), pa.int64()), times]
    return pa.RecordBatch.from_arrays(columns, names=[*KEY_AND_ID, "c_2"])


CODES = st.lists(st.integers(-3, 3), max_size=4)


@examples(60)
@given(
    lists=st.tuples(CODES, CODES),
    keys=st.lists(st.integers(-3, 3), min_size=1, max_size=20),
    units=st.tuples(st.integers(2, 5), st.integers(2, 5)),
)
def test_whatever_is_listed_each_tuple_is_met_once(
    lists: tuple[list[int], list[int]], keys: list[int], units: tuple[int, int]
) -> None:
    join = InProcessJoin(
        "r.k < s.k",
        [SCHEMA, SCHEMA],
        options=JoinOptions(**AWARE, units=units, full_history=True),
    )
    spec = join.plan.spec
    first = first_version("c", join.plan.tree, 8, 0.0)
    tables = [with_list(first, codes).table(0, spec, "here") for codes in lists]
    # The hot units of a stream may be cold ones of the other.
    apart = [range(count - tables[0].made.hot_units, count) for count in units]
    for stream in (0, 1):
        everywhere = range(units[1 - stream])
        batch = batch_of(spec.streams[stream], keys)
        for table, codes in zip(tables, lists, strict=True):
            stored: Counter[int] = Counter()
            visited: Counter[tuple[int, int]] = Counter()
            for pack in Dispatcher(spec, table, spec.stages[0], stream).dispatch(batch):
                columns = [pack.batch.column(name).to_pylist() for name in KEY_AND_ID]
                for key, number in zip(*columns, strict=True):
                    if pack.role & STORE:
                        stored[number] += 1
                        assert (pack.unit in apart[stream]) == (key in codes)
                    if pack.role & visit(1 - stream):
                        visited[number, pack.unit] += 1
            assert stored == Counter(range(len(keys)))
            # All places of the other stream, whichever of the lists has chosen among these.
            expected = {(number, unit): 1 for number in range(len(keys)) for unit in everywhere}
            assert visited == expected


def test_a_version_is_read_as_it_was_written() -> None:
    stream = Stream(hot_values=(7,))
    version = with_list(stream.version, [-5, 7])
    found = Version.from_text(version.to_text(), "here")
    assert found == version
    assert (version.to_json()["format"], with_list(version, []).to_json()["format"]) == (3, 1)
    found.validate(stream.steering.tree, "here")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ((HotValue(key=2, stream="r"), HotValue(key=1, stream="r")), "ascending order"),
        ((HotValue(key=1, stream="r"), HotValue(key=1, stream="s")), "ascending order"),
        ((HotValue(key=1, stream="q"),), "a stream of the join"),
        ((HotValue(key=1 << 63, stream="r"),), "64 bits"),
    ],
)
def test_lists_that_nobody_has_written_are_refused(values: tuple[HotValue, ...], says: str) -> None:
    stream = Stream()
    joins = (replace(stream.version.joins[0], values=values),)
    with pytest.raises(ControlError, match="refused") as caught:
        replace(stream.version, joins=joins).validate(stream.steering.tree, "here")
    assert says in caught.value.detail


def test_values_need_units() -> None:
    join = InProcessJoin(
        "r.k < s.k",
        [SCHEMA, SCHEMA],
        options=JoinOptions(topology="stream-aware", units=3, full_history=True),
    )
    version = first_version("c", join.plan.tree, 8, 0.0)
    with pytest.raises(ControlError) as caught:
        with_list(version, [1]).validate(join.plan.tree, "here")
    assert "units of their own" in caught.value.detail
    # A query that is restarted without hot_keys stores any value anywhere.
    stage, table = join.plan.spec.stages[0], Stream(units=3).version.joins[0]
    assert with_values(stage, table) is stage


def test_tables_without_hot_units_are_followed_as_they_are() -> None:
    stage = Stream(units=3).join.plan.spec.stages[0]
    plain = InProcessJoin(
        "abs(r.k - s.k) <= 1",
        [SCHEMA, SCHEMA],
        options=JoinOptions(topology="stream-aware", units=3, full_history=True),
    )
    (table,) = first_version("c", plain.plan.tree, 8, 0.0).joins
    assert [one.group_by.hot for one in with_values(stage, table).stores] == [None, None]
