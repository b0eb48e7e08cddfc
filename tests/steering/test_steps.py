"""Steps and edits of live tables: whatever is asked for, every stored tuple is met exactly once."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.steering.histories import GROUPS, KINDS, MAX_UNITS
from tests.steering.model import Model
from thetastream.errors import ControlError
from thetastream.options import JoinOptions
from thetastream.spec import JoinTree
from thetastream.steering.edits import Edit, Move, Moves, Scale, edit_from_json, edit_to_json
from thetastream.steering.steps import Heard, advance, confirmed
from thetastream.steering.targets import start
from thetastream.steering.version import DamagedControlError, Note, Version, first_version
from thetastream.testing import InProcessJoin
from thetastream.testing.cases import SCHEMA
from thetastream.testing.inprocess import stream_names
from thetastream.testing.steered import random_edit
from thetastream.topology.live import Step


def planned(name: str, units: int, groups: int | None = None) -> JoinTree:
    kind = KINDS[name]
    names = stream_names(kind.streams)
    time = dict.fromkeys(names, "t") if kind.within is not None else None
    options = JoinOptions(**(kind.options or {}), units=units, full_history=kind.within is None)
    schemas = [SCHEMA] * kind.streams
    join = InProcessJoin(
        kind.predicate, schemas, within=kind.within, time=time, options=options, groups=groups
    )
    return join.plan.tree


def first(tree: JoinTree, max_units: int = MAX_UNITS) -> Version:
    return first_version("c0ffee", tree, max_units, 0.0)


def begin(version: Version, edit: Edit, tree: JoinTree) -> Version:
    found = start(version, edit, tree, Note(change=1), 1.0)
    assert found is not None
    return found


def all_heard(version: Version, **fields: int) -> list[Heard]:
    return [
        Heard(join=join, stage=stage, unit=unit, version=version.version, **fields)
        for join, table in enumerate(version.joins)
        for stage in range(len(table.stages))
        for unit in table.active(stage)
    ]


@examples(100)
@given(seed=st.integers(0, 1 << 30), name=st.sampled_from(sorted(KINDS)))
def test_every_stored_tuple_is_met_exactly_once(seed: int, name: str) -> None:
    random = np.random.default_rng(seed)
    tree = planned(name, int(random.integers(2, MAX_UNITS)), GROUPS)
    models = [
        Model((join, stage.number, number), store.group_by.key is None, lives)
        for join, step in enumerate(tree.steps)
        for stage in step.spec.stages
        for number, store in enumerate(stage.stores)
        for lives in [None if store.retention.keeps is None else 4]
    ]
    names = list(stream_names(KINDS[name].streams))
    used = version = first(tree)
    for now in range(60):
        mixed = used.version < version.version and random.random() < 0.4
        versions = [used, version] if mixed else [version]
        heard: list[Heard] = []
        for model in models:
            model.batch(now, versions, random)
            heard += model.heard(versions[-1], versions[0].version, tree)
        used = version
        if random.random() < 0.1:
            continue
        merged = _merged(heard)
        following = advance(version, merged, tree, float(now))
        if following is None and version.step is Step.SETTLED and confirmed(version, merged):
            edit = random_edit(random, version, names)
            with suppress(ControlError):
                note = Note(change=version.note.change + 1)
                following = start(version, edit, tree, note, float(now))
        if following is not None:
            following.validate(tree, "a step")
            text = following.to_text()
            assert Version.from_text(text, "text") == following
            version = following


def _merged(heard: list[Heard]) -> list[Heard]:
    """The reports of units that hold several stores, as one."""
    found: dict[tuple[int, int, int], Heard] = {}
    for one in heard:
        place = (one.join, one.stage, one.unit)
        if place in found:
            old = found[place]
            one = replace(
                one,
                draining=one.draining + old.draining,
                to_export=one.to_export + old.to_export,
                transfers=one.transfers + old.transfers,
            )
        found[place] = one
    return list(found.values())


def test_scaling_out_takes_four_steps() -> None:
    tree = planned("hash", 2)
    version = first(tree)
    steps = []
    following: Version | None = begin(version, Scale(units=3), tree)
    while following is not None:
        version = following
        units = version.joins[0].stages[0][0]
        steps.append((version.step.value, units.holders.everywhere, units.visits.everywhere))
        following = advance(version, all_heard(version), tree, 2.0)
    assert steps == [
        ("announce", (0, 1), (0, 1, 2)),
        ("switch", (0, 1, 2), (0, 1, 2)),
        ("forget", (0, 1, 2), (0, 1, 2)),
        ("settled", (0, 1, 2), (0, 1, 2)),
    ]
    shares = Counter(version.joins[0].stages[0][0].holders.firsts(np.arange(5040)).tolist())
    assert shares == {0: 1680, 1: 1680, 2: 1680}


def test_as_few_groups_move_as_possible() -> None:
    tree = planned("hash", 2)
    version = first(tree)
    before = version.joins[0].stages[0][0].holders.firsts(np.arange(5040))
    after = begin(version, Scale(units=3), tree).joins[0].stages[0][0]
    planned_units = np.array([after.lines[line][0] for line in after.planned])
    assert int((before != planned_units).sum()) == 1680


def test_a_step_waits_for_what_it_relies_on() -> None:
    tree = planned("hash", 3)
    announced = begin(first(tree), Scale(units=2), tree)
    assert announced.step is Step.ANNOUNCE
    # A router used the version before.
    late = [replace(one, version=0) for one in all_heard(announced)]
    assert advance(announced, late, tree, 1.0) is None
    # Only a new unit was heard of: it does not know which routers have not heard of it.
    some = [one for one in all_heard(announced) if one.unit]
    assert advance(announced, some, tree, 1.0) is None
    switched = advance(announced, all_heard(announced), tree, 1.0)
    assert switched is not None
    assert advance(switched, all_heard(switched, draining=5), tree, 1.0) is None
    # The unit that drains has not reported.
    missing = [one for one in all_heard(switched) if one.unit != 2]
    assert advance(switched, missing, tree, 1.0) is None
    forgotten = advance(switched, all_heard(switched), tree, 1.0)
    assert forgotten is not None
    assert forgotten.joins[0].active(0) == (0, 1, 2)
    assert forgotten.joins[0].stages[0][0].left == (2,)
    settled = advance(forgotten, all_heard(forgotten), tree, 1.0)
    assert settled is not None
    assert settled.joins[0].active(0) == (0, 1)


def test_a_full_history_is_carried_over() -> None:
    tree = planned("hash, full history", 2)
    version = begin(first(tree), Scale(units=1), tree)
    switched = advance(version, all_heard(version), tree, 1.0)
    assert switched is not None
    assert switched.joins[0].stages[0][0].moves
    waiting = all_heard(switched, to_export=3, draining=3)
    assert advance(switched, waiting, tree, 1.0) is None


@pytest.mark.parametrize(
    ("name", "edit", "says", "hint"),
    [
        ("hash", Scale(units=MAX_UNITS + 1), "more than the 5", "from 1 to 5"),
        ("hash", Scale(units={"q": 2}), "no stream 'q'", "among r, s"),
        ("hash", Move(groups=(5040,), to=0), "no group 5040", "0 to 5039"),
        ("hash", Move(groups=(-1,), to=0), "no group -1", "0 to 5039"),
        ("hash", Move(groups=(1,), to=4), "unit 4 is not active", "0, 1"),
        ("hash", Move(groups=(1,), to=1, stream="q"), "no stream 'q'", "among r, s"),
        ("hash", Moves(moves=(Move(groups=(1,), to=5),)), "not one of the 5 units", "from 0 to 4"),
        ("hash", Moves(moves=(Move(groups=(1,), to=-1),)), "not one of the 5 units", "from 0 to 4"),
        ("hash", Moves(moves=(Move(groups=(5040,), to=1),)), "no group 5040", "0 to 5039"),
        (
            *("hash", Moves(moves=(Move(groups=(1, 2), to=0), Move(groups=(2,), to=1)))),
            *("group 2 is moved to several units", "name each group once"),
        ),
        ("hash", Move(groups=(1,), to=1, join=1), "no store is meant", "counted from 0"),
        ("hash", Move(groups=(1,), to=1, stage=1), "no store is meant", "counted from 0"),
        ("hash", Scale(units=2, subgroup=0), "no subgroups", "leave out"),
        ("contrand", Scale(units=1), "2 subgroups", "from 2 to 5"),
        ("contrand", Scale(units=2, subgroup=7), "no subgroup 7", "0 to 1"),
        ("hash, full history", Scale(units=3, drain="expire"), "never drain", "move"),
        ("symmetric", Scale(units=3, drain="move"), "cannot be carried over", "expire"),
    ],
)
def test_what_cannot_be_met_is_refused_with_what_is_possible(
    name: str, edit: Edit, says: str, hint: str
) -> None:
    tree = planned(name, 2)
    with pytest.raises(ControlError, match=says) as caught:
        start(first(tree), edit, tree, Note(), 0.0)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "raw",
    [
        None,
        "scale",
        {},
        {"kind": "drop"},
        {"kind": "scale", "units": 0},
        {"kind": "scale", "units": -1},
        {"kind": "scale", "units": True},
        {"kind": "scale", "units": {}},
        {"kind": "scale", "units": {"r": "2"}},
        {"kind": "scale", "units": 2, "drain": "never"},
        {"kind": "scale", "units": 2, "subgroup": "x"},
        {"kind": "move", "groups": [], "to": 1},
        {"kind": "move", "groups": "12", "to": 1},
        {"kind": "move", "groups": [1], "to": None},
        {"kind": "move", "groups": [1.5], "to": 1},
        {"kind": "move", "groups": [1], "to": 1, "stream": 7},
        {"kind": "move", "groups": [1], "to": 1, "join": "0"},
        {"kind": "moves"},
        {"kind": "moves", "moves": []},
        {"kind": "moves", "moves": [3]},
        {"kind": "moves", "moves": "move"},
        {"kind": "moves", "moves": [{"groups": [1]}]},
    ],
)
def test_a_request_that_makes_no_sense_is_refused(raw: object) -> None:
    with pytest.raises(ControlError) as caught:
        edit_from_json(raw)
    assert caught.value.hint


def test_edits_go_through_json() -> None:
    for edit in (
        Scale(units=3),
        Scale(units={"r": 2}, subgroup=1, drain="move"),
        Move(groups=(1, 2), to=3, stream="s"),
        Move(groups=(1,), to=0, join=1, stage=0),
        Moves(moves=(Move(groups=(1, 2), to=3), Move(groups=(7,), to=1, stream="s")), drain="move"),
    ):
        assert edit_from_json(edit_to_json(edit)) == edit


def test_several_moves_are_one_change() -> None:
    """Unit 0 gives a group to unit 1 and one to unit 2, which has held nothing so far."""
    tree = planned("hash", 2)
    moves = (Move(groups=(0, 1), to=1), Move(groups=(2,), to=2), Move(groups=(9,), to=1, join=0))
    version: Version | None = begin(first(tree), Moves(moves=moves, drain="move"), tree)
    steps = []
    while version is not None:
        last = version
        steps.append((version.step.value, version.joins[0].active(0)))
        version = advance(version, all_heard(version), tree, 2.0)
    assert steps == [
        (step, (0, 1, 2)) for step in ("announce", "switch", "take", "forget", "settled")
    ]
    for placement in last.joins[0].stages[0]:
        units = placement.holders.firsts(np.arange(5040)).tolist()
        assert units[:10] == [1, 1, 2, 0, 0, 0, 0, 0, 0, 1]
        assert Counter(units) == {0: 2516, 1: 2523, 2: 1}


def test_a_unit_that_gives_all_it_has_is_gone() -> None:
    tree = planned("hash", 3)
    halves = (
        Move(groups=tuple(range(3360, 4200)), to=0),
        Move(groups=tuple(range(4200, 5040)), to=1),
    )
    version: Version | None = begin(first(tree), Moves(moves=halves), tree)
    while version is not None:
        last = version
        version = advance(version, all_heard(version), tree, 2.0)
    assert last.joins[0].active(0) == (0, 1)


def test_a_move_of_one_join_leaves_the_others_alone() -> None:
    tree = planned("tree", 2)
    found = begin(first(tree), Move(groups=(0,), to=1, join=1), tree)
    changed = [[bool(one.planned) for one in table.stages[0]] for table in found.joins]
    assert changed == [[False, False], [True, True]]


def test_several_moves_drain_in_one_way() -> None:
    with pytest.raises(ControlError, match="drain in one way"):
        Moves(moves=(Move(groups=(1,), to=1, drain="move"),))


def test_what_is_so_already_is_no_change() -> None:
    tree = planned("hash", 2)
    assert start(first(tree), Scale(units=2), tree, Note(), 0.0) is None


def test_a_table_that_was_tampered_with_is_refused() -> None:
    text = first(planned("hash", 2)).to_text()
    for bad in (
        text.replace('"version": 0', '"version": 1'),
        text[:-20],
        "[]",
        "{}",
        text.replace('"max_units": 5', '"max_units": 1'),
    ):
        with pytest.raises(DamagedControlError, match="refused"):
            Version.from_text(bad, "here")
    with pytest.raises(ControlError, match="has format 9"):
        Version.from_text(text.replace('"format": 1', '"format": 9'), "here")


def test_a_table_that_does_not_fit_is_refused() -> None:
    tree = planned("hash", 3)
    version = first(tree)
    with pytest.raises(ControlError, match="unit 2 is beyond"):
        replace(version, max_units=2).lived().validate(tree, "here")
    with pytest.raises(ControlError, match="for 1 joins"):
        version.validate(planned("tree", 2), "here")
