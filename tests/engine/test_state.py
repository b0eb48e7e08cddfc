"""State: it goes on where it stopped, and is refused when it is damaged or of another query."""

from __future__ import annotations

import dataclasses
import json
import zlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from thetastream.engine.indexes import put_part
from thetastream.engine.manifest import FORMAT, Manifest
from thetastream.errors import (
    CorruptRunError,
    FingerprintError,
    ManifestVersionError,
    StateError,
)
from thetastream.index.part import PartMeta
from thetastream.options import JoinOptions
from thetastream.spec import JoinSpec, Routing, Step
from thetastream.spec.codec import from_json, to_json
from thetastream.testing import (
    CASES,
    Batch,
    Case,
    InProcessJoin,
    expected_rows,
    multiset,
    rows_of,
)
from thetastream.testing.cases import SCHEMA, SECOND, START, TIMES
from thetastream.testing.duck import DuckJoin
from thetastream.topology.makers import make

LEFT, RIGHT = rows_of(1, 40), rows_of(2, 40, first=1000)
FIRST = Batch(left=LEFT.slice(0, 20), right=RIGHT.slice(0, 20))
SECOND_BATCH = Batch(left=LEFT.slice(20), right=RIGHT.slice(20))
PREDICATE = "r.k = s.k AND r.n >= s.n AND r.id >= 0"


def join_of(
    predicate: str = PREDICATE,
    *,
    within: Any = "1 hour",
    schema: pa.Schema = SCHEMA,
    names: tuple[str, str] = ("r", "s"),
    **options: Any,
) -> InProcessJoin:
    chosen = {"topology": "random", "units": (2, 2), **options}
    time = dict.fromkeys(names, "t") if within is not None else None
    return InProcessJoin(
        predicate,
        (schema, schema),
        names=names,
        within=within,
        time=time,
        options=JoinOptions(**chosen),
    )


def read(text: str | None, join: InProcessJoin, spec: JoinSpec | None = None) -> Manifest:
    """The manifest, as the units of a join (or of another spec) read it."""
    step = join.plan.tree.steps[0]
    table = make(step.spec, step.routing)
    return Manifest.read(text, spec or step.spec, step.spec.stages[0], table)


def listed(manifest: Manifest, *indexes: int) -> list[PartMeta]:
    """The parts of all indexes, or of some."""
    return [
        PartMeta.from_json(part)
        for number, index in enumerate(manifest.indexes)
        if not indexes or number in indexes
        for sub in index
        for run in sub["runs"]
        for part in run
    ]


def after_a_batch(**given: Any) -> InProcessJoin:
    join = join_of(**given)
    join.batch(FIRST)
    return join


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_spec_survives_its_json(case: Case) -> None:
    join = InProcessJoin(case.predicate, (SCHEMA, SCHEMA), within=case.within, time=case.time)
    (step,) = join.plan.tree.steps
    again = from_json(Step, to_json(step))
    assert again == step
    assert again.spec.fingerprint() == join.spec.fingerprint()


def test_a_manifest_survives_its_json() -> None:
    join = after_a_batch()
    for state in join.runner.state.values():
        assert state.manifest is not None
        again = read(state.manifest, join)
        step = join.plan.tree.steps[0]
        table = make(step.spec, step.routing)
        assert again.write(step.spec, step.spec.stages[0], table) == state.manifest
        assert sorted(part.id for part in listed(again)) == sorted(state.parts)


def test_the_stored_parts_are_those_of_the_manifest_after_any_batch() -> None:
    join = join_of(within="5 seconds")
    for number in range(12):
        rows = rows_of(number, 30)
        join.batch(Batch(left=rows, right=rows, watermark=START + number * 8 * SECOND))
        for state in join.runner.state.values():
            assert state.manifest is not None
            metas = {part.id: part for part in listed(read(state.manifest, join))}
            assert set(metas) == set(state.parts)
            assert all(len(state.parts[name]) == meta.bytes for name, meta in metas.items())


@pytest.mark.parametrize("version", [0, FORMAT - 1, FORMAT + 1, 99, "1", None])
def test_a_manifest_of_another_version_is_refused(version: Any) -> None:
    join = after_a_batch()
    for state in join.runner.state.values():
        raw = json.loads(state.manifest or "")
        state.manifest = json.dumps({**raw, "format": version})
    with pytest.raises(ManifestVersionError, match=f"format {version}"):
        join.batch(SECOND_BATCH)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", "7", '"x"', '{"version": 1}'])
def test_what_is_no_manifest_is_refused(text: str) -> None:
    join = after_a_batch()
    join.runner.state[0, 0].manifest = text
    with pytest.raises(StateError):
        join.batch(SECOND_BATCH)


@pytest.mark.parametrize("indexes", [[], [[]], [[], [], []], {}, None, 7, [7, 7], [[{}], []]])
def test_a_manifest_with_other_indexes_is_refused(indexes: Any) -> None:
    join = after_a_batch()
    raw = json.loads(join.runner.state[0, 0].manifest or "")
    join.runner.state[0, 0].manifest = json.dumps({**raw, "indexes": indexes})
    with pytest.raises(StateError, match="not a manifest"):
        join.batch(SECOND_BATCH)


@pytest.mark.parametrize("missing", ["fingerprint", "sequence", "indexes", "table", "stage"])
def test_a_manifest_that_lacks_something_is_refused(missing: str) -> None:
    join = after_a_batch()
    raw = json.loads(join.runner.state[0, 0].manifest or "")
    del raw[missing]
    join.runner.state[0, 0].manifest = json.dumps(raw)
    with pytest.raises(StateError):
        join.batch(SECOND_BATCH)


OTHER_TYPE = SCHEMA.set(SCHEMA.get_field_index("b"), pa.field("b", pa.int32()))
OTHER_KEY = SCHEMA.set(SCHEMA.get_field_index("n"), pa.field("n", pa.int32()))
BAND = {"predicate": "r.n - s.n BETWEEN -1 AND 1", "topology": "band"}
CONTRAND = {"topology": "contrand", "units": (4, 4), "subgroups": (2, 2)}
CHANGES: list[Any] = [
    pytest.param({}, {"predicate": "r.k = s.k AND r.n > s.n AND r.id >= 0"}, "predicate", id="op"),
    pytest.param({}, {"predicate": PREDICATE + " AND s.b"}, "filters", id="filter"),
    pytest.param({}, {"within": "2 hours"}, "window", id="longer window"),
    pytest.param({}, {"within": ("1 hour", "2 hours")}, "window", id="asymmetric window"),
    pytest.param({}, {"within": None}, "window", id="full history"),
    pytest.param({}, {"names": ("a", "b")}, "streams", id="names"),
    pytest.param({}, {"schema": OTHER_TYPE}, "columns", id="column type"),
    pytest.param({}, {"schema": OTHER_KEY}, "keys", id="key type"),
    pytest.param({}, {"topology": "matrix"}, "topology", id="topology"),
    pytest.param({}, {"units": (1, 2)}, "units", id="fewer on the left"),
    pytest.param({}, {"units": (3, 1)}, "units", id="fewer on the right"),
    pytest.param({"topology": "hash"}, {"topology": "hash", "units": (3, 3)}, "units", id="hash"),
    pytest.param(
        {"topology": "matrix"}, {"topology": "matrix", "units": (3, 2)}, "units", id="matrix"
    ),
    pytest.param(BAND, {**BAND, "units": (3, 3)}, "units", id="band"),
    pytest.param(BAND, {**BAND, "bucket_width": 77}, "groups", id="bucket width"),
    pytest.param(CONTRAND, {**CONTRAND, "subgroups": (4, 2)}, "subgroups", id="subgroups"),
    pytest.param(CONTRAND, {**CONTRAND, "units": (3, 4)}, "units", id="contrand"),
]


@pytest.mark.parametrize(("before", "after", "named"), CHANGES)
def test_state_of_another_query_is_refused_by_name(
    before: dict[str, Any], after: dict[str, Any], named: str
) -> None:
    old = after_a_batch(**before)
    if "names" in after:
        after = {**after, "predicate": PREDICATE.replace("r.", "a.").replace("s.", "b.")}
    new = join_of(**after)
    text = old.runner.state[0, 0].manifest
    assert text is not None
    with pytest.raises(FingerprintError) as caught:
        read(text, new)
    assert named in caught.value.what
    assert f"{named}: was" in caught.value.detail
    assert caught.value.hint


@pytest.mark.parametrize("column", ["f", "at"])
def test_another_time_column_is_refused(column: str) -> None:
    at = pa.field("at", SCHEMA.field("t").type)
    schema = SCHEMA.append(at)
    one = InProcessJoin("r.k = s.k", (schema, schema), within="1 hour", time=TIMES)
    two = InProcessJoin("r.k = s.k", (schema, schema), within="1 hour", time={"r": "at", "s": "t"})
    step = one.plan.tree.steps[0]
    table = make(step.spec, step.routing)
    text = Manifest().write(step.spec, step.spec.stages[0], table)
    with pytest.raises(FingerprintError, match="keys"):
        read(text, two)


@pytest.mark.parametrize("change", ["session", "comparisons"])
def test_what_keys_and_runs_depend_on_may_not_change(change: str) -> None:
    """A time zone or ANSI mode changes keys; another driving range changes how runs are sorted."""
    old = after_a_batch()
    text = old.runner.state[0, 0].manifest
    assert text is not None
    if change == "session":
        other = dataclasses.replace(old.spec, session=old.spec.session.replace("UTC", "Asia/Tokyo"))
    else:
        edge = old.spec.edge(0, 1)
        assert len(edge.ranges) > 1
        turned = dataclasses.replace(edge, ranges=tuple(reversed(edge.ranges)))
        other = dataclasses.replace(old.spec, edges=(turned,))
    with pytest.raises(FingerprintError, match=change):
        read(text, old, other)


def test_what_only_the_stored_fingerprint_knows_is_a_difference() -> None:
    old = after_a_batch()
    raw = json.loads(old.runner.state[0, 0].manifest or "")
    raw["fingerprint"]["shape"] = "round"
    with pytest.raises(FingerprintError, match="shape: was round, is not known"):
        read(json.dumps(raw), old)


def test_what_state_does_not_depend_on_may_change() -> None:
    old = after_a_batch()
    text = old.runner.state[0, 0].manifest
    assert text is not None
    moved = dataclasses.replace(old.spec, origin="another_program.py:7", archive_period=5)
    read(text, old, moved)


@examples(12)
@given(
    more=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    again=st.tuples(st.integers(0, 2), st.integers(0, 2)),
)
def test_units_may_be_added_to_random_routing(
    more: tuple[int, int], again: tuple[int, int]
) -> None:
    script = [Batch(left=LEFT.slice(at, 10), right=RIGHT.slice(at, 10)) for at in (0, 10, 20, 30)]
    units = (2, 1)
    join = join_of(units=units)
    rows = join.batch(script[0])
    for step, (left, right) in zip(script[1:], (more, again, (0, 0)), strict=True):
        state = join.stored()
        units = (units[0] + left, units[1] + right)
        join = join_of(units=units)
        join.restart(state)
        rows += join.batch(step)
    expected = expected_rows(PREDICATE, script, within="1 hour", time=TIMES)
    assert multiset(rows) == multiset(expected)


@pytest.mark.parametrize(
    "changes", [{"subgroups": (1, 2)}, {"subgroups": (1, 1)}, {"units": (5, 4)}]
)
def test_a_table_may_follow_if_its_visitors_reach_all_that_is_stored(changes: Any) -> None:
    """A key's subgroup may grow, because all of its members are visited."""
    script = [Batch(LEFT.slice(at, 20), RIGHT.slice(at, 20)) for at in (0, 20)]
    before = {"topology": "contrand", "units": (4, 4), "subgroups": (2, 2)}
    join, other = join_of(**before), join_of(**{**before, **changes})
    rows = join.batch(script[0])
    other.restart(join.stored())
    rows += other.batch(script[1])
    expected = expected_rows(PREDICATE, script, within="1 hour", time=TIMES)
    assert multiset(rows) == multiset(expected)


def _damage(data: bytes, place: float, kind: str) -> bytes:
    at = int(place * (len(data) - 1))
    if kind == "flip":
        return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]
    if kind == "cut":
        return data[:at]
    return data + b"\0"


@examples(40)
@given(place=st.floats(0, 1), kind=st.sampled_from(["flip", "cut", "grow"]))
def test_damaged_parts_are_refused(place: float, kind: str) -> None:
    join = DAMAGE_ME
    whole = join.stored()
    try:
        for state in join.runner.state.values():
            state.parts = {name: _damage(data, place, kind) for name, data in state.parts.items()}
        with pytest.raises(CorruptRunError, match="damaged"):
            join.batch(SECOND_BATCH)
    finally:
        join.restart(whole)


DAMAGE_ME = after_a_batch()

CRC_GENERATOR = f"1{0x04C11DB7:032b}"
"""The bits that CRC-32 does not see: those of its own generator."""


def same_crc(data: bytes, at: int) -> bytes:
    """Other bytes with the CRC-32 of the given ones."""
    bits = CRC_GENERATOR.ljust(40, "0")
    # The checksum takes the bits of a byte from the lowest to the highest.
    pattern = [int(bits[place : place + 8][::-1], 2) for place in range(0, 40, 8)]
    changed = bytearray(data)
    for place, mask in enumerate(pattern, at):
        changed[place] ^= mask
    return bytes(changed)


def test_damage_that_a_crc_does_not_see_is_refused() -> None:
    join = after_a_batch()
    for state in join.runner.state.values():
        for name, data in state.parts.items():
            state.parts[name] = same_crc(data, len(data) // 2)
            assert zlib.crc32(state.parts[name]) == zlib.crc32(data)
    with pytest.raises(CorruptRunError, match="damaged"):
        join.batch(SECOND_BATCH)


def test_contents_with_the_same_crc_have_different_ids() -> None:
    """Or the cache of a worker would take the part of a failed attempt for that of the next."""
    first = bytes(range(100))
    second = same_crc(first, 40)
    assert zlib.crc32(first) == zlib.crc32(second)
    meta = PartMeta(id="1-0-0-0", rows=1, bytes=0, low=(), high=())
    ids = {put_part(meta, Stub(data)).meta.id for data in (first, second)}
    assert len(ids) == 2
    assert all(len(name.rpartition("-")[2]) >= 32 for name in ids), "at least 128 bits"


class Stub:
    """A part of nothing but bytes."""

    pairs = 0
    nbytes = 100
    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __len__(self) -> int:
        return 1

    def to_bytes(self, *, compress: bool = False) -> pa.Buffer:
        return pa.py_buffer(self.data)


def test_parts_that_were_swapped_are_refused() -> None:
    join = after_a_batch()
    state = next(s for s in join.runner.state.values() if len(s.parts) > 1)
    names = sorted(state.parts)
    state.parts = dict(zip(names, (state.parts[n] for n in reversed(names)), strict=True))
    with pytest.raises(CorruptRunError):
        join.batch(SECOND_BATCH)


def test_a_missing_part_is_named() -> None:
    join = after_a_batch()
    names = {name for state in join.runner.state.values() for name in state.parts}
    for state in join.runner.state.values():
        state.parts.clear()
    with pytest.raises(CorruptRunError) as caught:
        join.batch(SECOND_BATCH)
    assert any(name in caught.value.what for name in names)
    assert "missing" in caught.value.what


def test_a_batch_that_runs_again_stores_the_same() -> None:
    join = after_a_batch()
    before = join.stored()
    first = multiset(join.batch(SECOND_BATCH))
    stored = join.stored()
    join.restart(before)
    assert multiset(join.batch(SECOND_BATCH)) == first
    assert join.stored() == stored


def test_empty_batches_expire_state_when_the_watermark_moves() -> None:
    join = join_of(within="5 seconds")
    join.batch(FIRST)
    assert any(state.parts for state in join.runner.state.values())
    empty = Batch(left=LEFT.slice(0, 0), right=RIGHT.slice(0, 0), watermark=START + 3600 * SECOND)
    assert join.batch(empty) == []
    assert not any(state.parts for state in join.runner.state.values())
    assert join.runner.reports[-1].stored_rows == 0


@pytest.mark.parametrize(("op", "kept"), [("<=", 0), (">=", 1)])
def test_a_window_open_on_one_side_still_lets_the_other_side_go(op: str, kept: int) -> None:
    """With r.t <= s.t alone a row of r may match for ever, one of s only until the watermark."""
    join = InProcessJoin(
        f"r.t {op} s.t AND r.k = s.k",
        (SCHEMA, SCHEMA),
        time=TIMES,
        options=JoinOptions(topology="hash", units=1),
    )
    keeps = [store.retention.keeps for store in join.spec.stages[0].stores]
    assert [length is None for length in keeps] == [kept == 0, kept == 1]
    batches = 28
    rows_each = 10
    for number in range(batches):
        rows = rows_of(number, rows_each, seconds=5)
        start = number * 10 * SECOND
        place = SCHEMA.get_field_index("t")
        moved = pc.add(rows.column(place).cast(pa.int64()), start)
        rows = rows.set_column(place, SCHEMA.field(place), moved.cast(SCHEMA.field(place).type))
        join.batch(Batch(left=rows, right=rows, watermark=START + start - 25 * SECOND))
    manifest = read(join.runner.state[0, 0].manifest or "", join)
    stored = [sum(part.rows for part in listed(manifest, n)) for n in (0, 1)]
    assert stored[kept] > 5 * batches
    # Four batches are within the delay; a run that holds some of them may hold older ones too.
    assert stored[1 - kept] <= 16 * rows_each


def test_reports_add_up() -> None:
    join = join_of("r.k = s.k", topology="matrix", units=(2, 3), within=None)
    rows = join.batch(FIRST)
    reports = join.runner.reports
    assert len(reports) == 6
    travelling = sum(
        DuckJoin(join.spec).derive(stream, table).num_rows
        for stream, table in enumerate(FIRST.tables)
    )
    assert sum(report.rows_in for report in reports) == travelling
    assert sum(report.results for report in reports) == len(rows)
    for report in reports:
        state = join.runner.state[0, report.unit]
        assert report.stored_bytes == sum(len(data) for data in state.parts.values())


def test_a_runner_has_as_many_units_as_the_plan() -> None:
    for routing, units in ((Routing.RANDOM, 5), (Routing.MATRIX, 15)):
        join = after_a_batch(topology=routing.value, units=(3, 5))
        assert len(join.runner.state) == units
