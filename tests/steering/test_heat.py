"""Steps of hot keys: whatever becomes hot or cool, each pair meets exactly once."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.steering.histories import MAX_UNITS
from tests.steering.hot_model import Model, hot_key
from tests.steering.test_steps import all_heard, begin, first, planned
from thetastream.errors import ControlError
from thetastream.spec import JoinTree
from thetastream.steering.edits import Heat, HotWish, Move, Moves, Scale, edit_from_json
from thetastream.steering.heat import check_wish, next_keys
from thetastream.steering.steps import advance, confirmed
from thetastream.steering.targets import start
from thetastream.steering.version import Version, _checksum
from thetastream.testing import rows_of
from thetastream.testing.duck import DuckJoin
from thetastream.testing.steered import random_edit, random_heat
from thetastream.topology.dispatch import HOME, STORE, Dispatcher, visit
from thetastream.topology.hot import HotKey, HotStep, equality_key, hot_groups
from thetastream.topology.live import Step

KEYS = [1, 2, 3, 4, 5, 77]


@examples(12)
@given(seed=st.integers(0, 1 << 30), name=st.sampled_from(["hash", "hash, full history"]))
def test_each_pair_meets_once_whatever_becomes_hot(seed: int, name: str) -> None:
    play_model(seed, name)


@pytest.mark.chaos
@pytest.mark.parametrize("name", ["hash", "hash, full history"])
def test_each_pair_meets_once_in_many_histories(name: str) -> None:
    for seed in range(2000):
        play_model(seed, name)


tree_of = lru_cache(planned)


def play_model(seed: int, name: str) -> Counter[str]:
    """Random edits at random batches; the steps that keys have gone through."""
    random = np.random.default_rng(seed)
    tree = tree_of(name, int(random.integers(2, MAX_UNITS)))
    version = used = first(tree)
    model = Model(None if "full" in name else 3, KEYS)
    seen: Counter[str] = Counter()
    for now in range(26):
        mixed = random.random() < 0.4 and used.version < version.version
        versions = [used, version] if mixed else [version]
        model.batch(now, versions, random)
        used = version
        oldest = versions[0].version
        heard = [one for one in model.heard(version, oldest, tree) if random.random() > 0.05]
        following = advance(version, heard, tree, 1.0)
        quiet = confirmed(version, heard) and version.step is Step.SETTLED
        if following is None and quiet and random.random() < 0.25:
            edit = random_edit(random, version, ["r", "s"])
            note = replace(version.note, change=version.note.change + 1)
            with suppress(ControlError):
                following = start(version, edit, tree, note, 1.0)
        if following is None:
            wish = None
            if random.random() < 0.5:
                wish = random_heat(random, version, tree, [(0, key) for key in KEYS])
            following = next_keys(version, heard, wish, tree, 1.0)
        if following is not None:
            following.validate(tree, "a test")
            if random.random() < 0.1:
                assert Version.from_text(following.to_text(), "a test") == following
            version = following
            seen.update({one.step.value for one in version.joins[0].hot})
    return seen


def test_the_model_sees_every_step() -> None:
    seen: Counter[str] = Counter()
    for seed in range(4):
        seen += play_model(seed, "hash")
    assert all(seen[step.value] for step in HotStep), seen


def heated(
    tree: JoinTree, version: Version, key: int = 7, *, stream: str = "r", units: int = 2
) -> Version:
    wish = Heat(keys=(HotWish(stream=stream, key=key, units=units),))
    found = next_keys(version, all_heard(version), wish, tree, 5.0)
    assert found is not None
    return found


def hot(tree: JoinTree, version: Version, key: int = 7, *, units: int = 2) -> Version:
    """A version in which a key is hot."""
    found = heated(tree, version, key, units=units)
    one = replace(found.joins[0].hot[0], step=HotStep.HOT, spread=found.joins[0].hot[0].units)
    table = replace(found.joins[0], hot=(one,))
    found = replace(found, joins=(table,)).lived()
    found.validate(tree, "a test")
    return found


def test_the_first_step_only_makes_copies() -> None:
    tree = planned("hash", 3)
    version = heated(tree, first(tree))
    (one,) = version.joins[0].hot
    assert (one.step, one.spread, one.since, one.changed) == (HotStep.COPY, (), 1, 1)
    assert len(one.units) == 2
    assert version.version == 1
    assert version.step is Step.SETTLED
    assert (one.stream, one.split, one.at) == ("r", 0, 5.0)


def test_without_an_export_nothing_goes_on() -> None:
    tree = planned("hash", 3)
    version = heated(tree, first(tree))
    assert next_keys(version, all_heard(version), None, tree, 1.0) is None
    # Nor before every router makes copies.
    assert next_keys(version, all_heard(first(tree)), None, tree, 1.0) is None


def test_a_flicker_is_one_version_each_way() -> None:
    tree = planned("hash", 3)
    version = hot(tree, first(tree))
    cooled = next_keys(version, all_heard(version), Heat(cool=((0, 7),)), tree, 1.0)
    assert cooled is not None
    assert [one.step for one in cooled.joins[0].hot] == [HotStep.COOLING]
    again = heated(tree, cooled)
    assert [one.step for one in again.joins[0].hot] == [HotStep.HOT]
    assert again.joins[0].hot[0].since == version.joins[0].hot[0].since


def test_a_hot_key_gets_more_units() -> None:
    tree = planned("hash", 4)
    version = hot(tree, first(tree))
    before = version.joins[0].hot[0]
    wider = heated(tree, version, units=4).joins[0].hot[0]
    assert (wider.step, wider.spread, wider.units) == (HotStep.COPY, before.units, (0, 1, 2, 3))
    assert wider.since > before.since


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (HotWish(stream="r", key=7, units=4), "more than the 3"),
        (HotWish(stream="x", key=7), "no stream 'x'"),
        (HotWish(stream="r", key=7, join=1), "no join 1"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused(wish: HotWish, said: str) -> None:
    tree = planned("hash", 3)
    with pytest.raises(ControlError, match=said):
        check_wish(first(tree), Heat(keys=(wish,)), tree)


@pytest.mark.parametrize("name", ["contrand", "band", "random", "symmetric", "chain"])
def test_other_joins_have_no_hot_keys(name: str) -> None:
    tree = planned(name, 3)
    with pytest.raises(ControlError, match="cannot be split"):
        check_wish(first(tree), Heat(keys=(HotWish(stream="r", key=7),)), tree)


@pytest.mark.parametrize(
    "raw",
    [
        {"kind": "heat", "keys": [{"stream": "r", "key": "7"}], "cool": []},
        {"kind": "heat", "keys": [{"stream": 3, "key": 7}], "cool": []},
        {"kind": "heat", "keys": [{"stream": "r", "key": 7, "units": 1}], "cool": []},
        {"kind": "heat", "keys": [{"stream": "r", "key": 1 << 63}], "cool": []},
        {"kind": "heat", "keys": [{"stream": "r", "key": 7, "evil": 1}], "cool": []},
        {"kind": "heat", "keys": [], "cool": [[0, 1, 2]]},
        {"kind": "heat", "keys": None, "cool": []},
        {"kind": "heat", "keys": [7], "cool": []},
        {"kind": "heat", "keys": [], "cool": [["a", "b"]]},
    ],
)
def test_requests_that_make_no_sense_are_refused(raw: object) -> None:
    with pytest.raises(ControlError):
        edit_from_json(raw)


# -- beside scales and moves ----------------------------------------------------------------------


def test_groups_and_units_of_hot_keys_stay() -> None:
    tree = planned("hash", 3)
    version = hot(tree, first(tree))
    (group,) = hot_groups(version.joins[0], tree.steps[0].spec)
    one = version.joins[0].hot[0]
    before = [placement.assigned[group] for placement in version.joins[0].stages[0]]
    moved = begin(version, Moves(moves=(Move(groups=(group, 11, 12), to=2),)), tree)
    for placement, line in zip(moved.joins[0].stages[0], before, strict=True):
        assert placement.lines[placement.planned[group]] == (line,)
        assert placement.lines[placement.planned[11]] == (2,)
    with pytest.raises(ControlError, match="groups of hot keys stay"):
        begin(version, Move(groups=(group,), to=(line + 1) % 3), tree)
    fewer = begin(version, Scale(units=2), tree)
    for placement in fewer.joins[0].stages[0]:
        planned_units = {placement.lines[line][0] for line in placement.planned}
        assert planned_units == set(one.units)
    with pytest.raises(ControlError, match="fewer than the 2 that hot keys have"):
        begin(version, Scale(units=1), tree)


def test_a_key_whose_group_moves_waits() -> None:
    tree = planned("hash", 3)
    version = first(tree)
    probe = hot_groups(heated(tree, version).joins[0], tree.steps[0].spec)
    switched = advance(
        announced := begin(version, Move(groups=tuple(probe), to=2), tree),
        all_heard(announced),
        tree,
        1.0,
    )
    assert switched is not None
    wish = Heat(keys=(HotWish(stream="r", key=7), HotWish(stream="r", key=8)))
    found = next_keys(switched, all_heard(switched), wish, tree, 1.0)
    assert found is not None
    assert [one.key for one in found.joins[0].hot] == [8]
    assert found.step is Step.SWITCH


def test_keys_wait_for_the_short_steps_of_a_change() -> None:
    tree = planned("hash", 3)
    announced = begin(first(tree), Scale(units=2), tree)
    wish = Heat(keys=(HotWish(stream="r", key=7),))
    assert next_keys(announced, all_heard(announced), wish, tree, 1.0) is None


# -- tables that are refused ----------------------------------------------------------------------


def damaged(one: HotKey) -> list[HotKey]:
    return [
        replace(one, units=one.units[:1]),
        replace(one, units=tuple(reversed(one.units))),
        replace(one, units=(0, 9)),
        replace(one, units=tuple(unit for unit in range(4) if unit not in one.units)),
        replace(one, spread=one.units[:1]),
        replace(one, spread=(), step=HotStep.HOT),
        replace(one, step=HotStep.COOLING),
        replace(one, since=0),
        replace(one, since=one.changed + 1),
        replace(one, changed=99),
        replace(one, split=2),
        replace(one, stream="s"),
    ]


def test_tables_with_damaged_keys_are_refused() -> None:
    tree = planned("hash", 4)
    version = hot(tree, first(tree))
    for one in damaged(version.joins[0].hot[0]):
        table = replace(version.joins[0], hot=(one,))
        with pytest.raises(ControlError):
            replace(version, joins=(table,)).lived().validate(tree, "a test")
    twice = replace(version.joins[0], hot=version.joins[0].hot * 2)
    with pytest.raises(ControlError, match="each once"):
        replace(version, joins=(twice,)).lived().validate(tree, "a test")


@pytest.mark.parametrize(
    ("name", "value"),
    [("key", "seven"), ("units", ["a", "b"]), ("units", 3), ("step", "warm"), ("since", None)],
)
def test_tables_that_were_written_by_somebody_else_are_refused(name: str, value: object) -> None:
    tree = planned("hash", 3)
    raw = hot(tree, first(tree)).to_json()
    raw["joins"][0]["hot"][0][name] = value
    text = json.dumps(raw | {"checksum": _checksum(raw)})
    with pytest.raises(ControlError, match="a routing table is refused"):
        Version.from_text(text, "a test")


def test_a_table_with_hot_keys_has_a_format_of_its_own() -> None:
    tree = planned("hash", 3)
    assert first(tree).to_json()["format"] == 1
    raw = hot(tree, first(tree)).to_json()
    assert raw["format"] == 2
    (one,) = raw["joins"][0]["hot"]
    assert (one["key"], one["stream"], one["step"]) == (7, "r", "hot")


# -- dispatching ----------------------------------------------------------------------------------


def test_tuples_of_hot_keys_go_where_the_table_says() -> None:
    tree = planned("hash", 4)
    spec = tree.steps[0].spec
    version = hot(tree, first(tree), key=1, units=3)
    table, (one,) = version.joins[0], version.joins[0].hot
    rows = rows_of(3, 400)
    model = Model(None, KEYS)
    for stream in (0, 1):
        batch = DuckJoin(spec).derive(stream, rows)
        key = batch.column(spec.streams[stream].key_column(equality_key(spec, stream)))
        went: dict[int, list[tuple[int, int]]] = {}
        for pack in Dispatcher(spec, table, spec.stages[0], stream).dispatch(
            batch.append_column("row", pa.array(np.arange(batch.num_rows)))
        ):
            for row in pack.batch.column("row").to_pylist():
                went.setdefault(row, []).append((pack.unit, pack.role))
        spread = set()
        for row, value in enumerate(key.to_pylist()):
            units = [unit for unit, _ in went[row]]
            assert len(set(units)) == len(units)
            assert sum(bool(role & HOME) for _, role in went[row]) == 1
            stored = {unit for unit, role in went[row] if role & STORE}
            visits = {unit for unit, role in went[row] if role & visit(1 - stream)}
            if value != 1:
                assert stored == {model.base(version, stream, value)}
                assert visits == model.looked_for(version, 1 - stream, value)
            elif stream == one.split:
                assert len(stored) == 1
                assert stored == visits
                spread |= stored
            else:
                assert stored == visits == set(one.units)
        assert stream != one.split or spread == set(one.units)
    assert hot_key(version, 1) == one
