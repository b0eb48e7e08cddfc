"""Joins of three and four streams against DuckDB: any graph, order, batching, window, restart."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import thetastream.index.runs as runs_module
from tests.examples import examples
from thetastream.engine.indexes import pack_index
from thetastream.errors import OptionError, WindowError
from thetastream.index.packing import Links
from thetastream.index.part import Tuples
from thetastream.options import JoinOptions
from thetastream.spec import Grouping, Retention, StreamSpec
from thetastream.testing import CRASH, RESTART, multiset, rows_of
from thetastream.testing.cases import SCHEMA, SECOND, START
from thetastream.testing.duck import DuckJoin
from thetastream.testing.inprocess import Batch, InProcessJoin, expected_rows, run_script

CYCLIC = (
    "r.k = s.k AND s.n > t.n AND abs(t.n - r.n) <= 3",
    "abs(r.n - s.n) <= 1 AND abs(s.n - t.n) <= 1 AND abs(t.n - r.n) <= 1",
    "r.k = s.k AND s.k = t.k",
    "r.k = s.k AND r.x >= s.x AND s.k = t.k AND t.n < r.n",
    "r.g = s.g AND s.k <> t.k AND r.p > t.p",
    "r.x < s.x AND s.f < t.f AND t.d BETWEEN r.d - 1 AND r.d + 1",
)
CHAINS = (
    "abs(r.n - s.n) <= 1 AND abs(s.n - t.n) <= 1",
    "r.g = s.g AND r.k = t.k",
    "s.x < t.x AND r.k = t.k AND r.b",
    "r.k <> s.k AND s.k = t.k",
    "r.n + s.n = t.n AND r.k = s.k AND s.g = t.g",
    "r.p BETWEEN s.p - 0.25 AND s.p + 1 AND s.f > t.f AND t.n >= 0",
)


@st.composite
def scripts(draw: st.DrawFn, streams: int = 3, most: int = 30) -> list[Any]:
    """Rows of each stream over some batches, with watermarks, restarts and crashes between."""
    seed = draw(st.integers(0, 10_000))
    batches = draw(st.integers(1, 5))
    shuffled = draw(st.booleans())
    tables = []
    for stream in range(streams):
        table = rows_of(seed + stream, draw(st.integers(0, most)), first=1000 * stream)
        if shuffled:
            order = np.random.default_rng(seed).permutation(table.num_rows)
            table = table.take(pa.array(order))
        tables.append(table)
    script: list[Any] = []
    watermark = None
    seen = 0
    for batch in range(batches):
        script += draw(st.sampled_from([[], [], [RESTART], [CRASH]]))
        parts = []
        for table in tables:
            edges = np.linspace(0, table.num_rows, batches + 1).astype(int)
            parts.append(table.slice(edges[batch], edges[batch + 1] - edges[batch]))
        script.append(Batch(*parts, watermark=watermark))
        times = [v for part in parts for v in _micros(part) if v is not None]
        seen = max([seen, *times])
        if seen and draw(st.booleans()):
            late = draw(st.sampled_from([0, 2, 8])) * SECOND
            watermark = max(seen - late, watermark or 0)
    return script


def _micros(table: pa.Table) -> list[int | None]:
    found: list[int | None] = (
        table.column("t").cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
    )
    return found


def check(predicate: str, script: list[Any], within: str, **options: Any) -> InProcessJoin:
    chunk = options.pop("chunk_rows", 1 << 16)
    hashes = options.pop("hashes", None)
    join = run_script(
        predicate,
        script,
        within=within,
        time="t",
        options=JoinOptions(**options),
        chunk_rows=chunk,
        hashes=hashes,
    )
    expected = expected_rows(predicate, script, within=within, time="t")
    assert multiset(join.rows) == multiset(expected)
    return join


UNITS = st.sampled_from([1, 2, (1, 2, 3), (3, 1, 2)])
WITHIN = st.sampled_from(["0 seconds", "3 seconds", "20 seconds", "2 minutes"])


@examples(50)
@given(
    predicate=st.sampled_from(CYCLIC + CHAINS),
    script=scripts(),
    within=WITHIN,
    units=UNITS,
    topology=st.sampled_from(["auto", "random"]),
    intermediate=st.sampled_from(["packed", "pairs"]),
    chunk_rows=st.sampled_from([3, 1 << 16]),
    hashes=st.sampled_from([None, 2]),
)
def test_three_streams_equal_the_oracle(
    predicate: str, script: list[Any], within: str, **given_options: Any
) -> None:
    join = check(predicate, script, within, **given_options)
    assert len(join.plan.spec.stages) == (1 if predicate in CYCLIC else 2)


@examples(12)
@given(
    predicate=st.sampled_from(CYCLIC + CHAINS),
    script=scripts(),
    within=WITHIN,
    units=st.sampled_from([1, 2]),
)
def test_trees_equal_the_oracle(
    predicate: str, script: list[Any], within: str, **given_options: Any
) -> None:
    join = check(predicate, script, within, scheme="tree", **given_options)
    assert len(join.plan.steps) == 2


@examples(8)
@given(
    predicate=st.sampled_from(
        [
            "r.k = s.k AND s.k = t.k AND t.k = u.k",
            "abs(r.n - s.n) <= 1 AND s.k = t.k AND t.x < u.x AND r.n + t.n > u.n",
            "r.k = u.k AND s.g = t.g AND u.n > s.n",
        ]
    ),
    script=scripts(streams=4, most=14),
    within=st.sampled_from(["3 seconds", "20 seconds"]),
)
def test_four_streams_equal_the_oracle(predicate: str, script: list[Any], within: str) -> None:
    check(predicate, script, within, units=2)


def _one(number: int, stream: int, seconds: float = 0.0) -> pa.Table:
    """A row that matches every other."""
    table = rows_of(1, 1, first=number)
    columns: dict[str, Any] = {name: table.column(name) for name in SCHEMA.names}
    columns["k"] = pa.array([1], pa.int32())
    columns["n"] = pa.array([stream], pa.int64())
    columns["t"] = pa.array([START + int(seconds * SECOND)], SCHEMA.field("t").type)
    return pa.table(columns, schema=SCHEMA)


EMPTY = rows_of(1, 0)
SHAPES = (
    ("r.k = s.k AND s.k = t.k", {}),
    ("r.k = s.k AND s.n <> t.n AND abs(t.n - r.n) <= 3", {}),
    ("abs(r.n - s.n) <= 2 AND abs(s.n - t.n) <= 2", {}),
    ("abs(r.n - s.n) <= 2 AND abs(r.n - t.n) <= 2", {}),
    ("abs(r.n - t.n) <= 2 AND abs(s.n - t.n) <= 2", {}),
    ("r.k = s.k AND s.k = t.k", {"scheme": "tree"}),
)


@pytest.mark.parametrize(("predicate", "options"), SHAPES)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_each_order_of_arrival_gives_the_triple_once(
    predicate: str, options: dict[str, Any], order: tuple[int, ...]
) -> None:
    script = []
    for stream in order:
        tables = [EMPTY, EMPTY, EMPTY]
        tables[stream] = _one(stream, stream)
        script += [Batch(*tables), RESTART]
    join = check(predicate, script, "10 seconds", units=2, **options)
    assert len(join.rows) == 1


@pytest.mark.parametrize(("predicate", "options"), SHAPES)
@pytest.mark.parametrize("apart", list(itertools.product([0, 1], repeat=3)))
def test_members_of_one_batch_and_of_two(
    predicate: str, options: dict[str, Any], apart: tuple[int, ...]
) -> None:
    batches = [[EMPTY, EMPTY, EMPTY], [EMPTY, EMPTY, EMPTY]]
    for stream, batch in enumerate(apart):
        batches[batch][stream] = _one(stream, stream)
    join = check(predicate, [Batch(*batch) for batch in batches], "10 seconds", **options)
    assert len(join.rows) == 1


@pytest.mark.parametrize(("predicate", "options"), SHAPES)
def test_the_window_is_of_the_newest_and_the_oldest(
    predicate: str, options: dict[str, Any]
) -> None:
    near = [_one(0, 0, 0.0), _one(1, 1, 5.0), _one(2, 2, 10.0)]
    assert len(check(predicate, [Batch(*near)], "10 seconds", **options).rows) == 1
    far = [_one(0, 0, 0.0), _one(1, 1, 5.0), _one(2, 2, 10.000001)]
    assert check(predicate, [Batch(*far)], "10 seconds", **options).rows == []


@pytest.mark.parametrize(("predicate", "options"), SHAPES)
def test_late_tuples_are_counted_once_and_make_nothing(
    predicate: str, options: dict[str, Any]
) -> None:
    """Wherever it would be used, a late tuple is late."""
    for late in range(3):
        first = [_one(n, n, 100.0) if n != late else EMPTY for n in range(3)]
        then = [_one(late, late, 99.0) if n == late else EMPTY for n in range(3)]
        script = [Batch(*first), Batch(*then, watermark=START + 100 * SECOND)]
        join = check(predicate, script, "10 seconds", units=2, **options)
        assert join.rows == []
        assert join.late == 1


def test_packs_are_not_cut_because_of_their_members() -> None:
    """Each piece has its own copy of the members, so that more pieces would not make it smaller."""
    join = InProcessJoin(
        "abs(r.n - s.n) <= 2 AND abs(s.n - t.n) <= 2",
        [SCHEMA] * 3,
        options=JoinOptions(full_history=True),
    )
    spec = join.plan.spec
    layout = pack_index(spec, spec.stages[0].packing[0], Retention())
    duck = DuckJoin(join.plan.spec)
    streams = [stream.name for stream in join.plan.spec.streams]

    def tuples(stream: StreamSpec, count: int) -> Tuples:
        rows = [_one(number, 0) for number in range(count)]
        number = streams.index(stream.name)
        return Tuples.encode(duck.derive(number, pa.concat_tables(rows)), stream)

    hubs, members = tuples(layout.hub, 4), tuples(layout.member, 500)
    pairs = Links(hubs, np.repeat(np.arange(4), 500), members, np.tile(np.arange(500), 4))
    with patch.object(runs_module, "PART_BYTES", int(members.batch.nbytes)):
        assert len(list(layout.cut(pairs, layout.latest(pairs)))) == 1
    with patch.object(runs_module, "PART_BYTES", 4 * 500):
        pieces = list(layout.cut(pairs, layout.latest(pairs)))
    assert [len(piece) for piece in pieces] == [1] * 4
    assert sum(piece.pairs for piece in pieces) == 2000


@pytest.mark.parametrize("predicate", [CYCLIC[1], CHAINS[0]])
def test_intermediate_results_expire(predicate: str) -> None:
    """After the window nothing is left of tuples, packs and members."""
    script = [Batch(*(rows_of(n, 40, first=100 * n) for n in range(3)))]
    end = START + 200 * SECOND
    join = run_script(
        predicate, script, within="20 seconds", time="t", options=JoinOptions(units=2)
    )
    kept = join.join.reports
    assert sum(report.pairs for report in kept) > sum(report.entries for report in kept) > 0
    join.join.batch(Batch(EMPTY, EMPTY, EMPTY, watermark=end))
    assert sum(len(state.parts) for state in join.join.runner.state.values()) == 0


def test_members_of_a_pack_are_trimmed() -> None:
    """Merging packs drops the members that can no longer be completed."""
    script: list[Any] = []
    for step in range(40):
        now = START + step * SECOND
        old = [_one(1000 * n + step, n, step - 4 * (n == 0)) for n in range(3)]
        script.append(Batch(*old, watermark=max(START, now - 5 * SECOND) if step else None))
    join = check("r.k = s.k AND s.k = t.k AND r.n < t.n", script, "8 seconds", units=1)
    last = join.join.reports[-1]
    made = sum(1 for _ in join.rows)
    assert made > 100
    # Six indexes of pairs, each over a window of about 13 seconds of one tuple a second.
    assert last.pairs < 6 * 13 * 13
    assert last.entries < last.pairs


def test_packs_are_fewer_than_pairs_and_give_the_same() -> None:
    script = [Batch(*(rows_of(n, 50, first=100 * n) for n in range(3))) for _ in range(2)]
    found = {}
    for kind in ("packed", "pairs"):
        join = check(CYCLIC[1], script, "20 seconds", units=2, intermediate=kind)
        found[kind] = join.join.reports[-1]
    assert found["packed"].pairs == found["pairs"].pairs == found["pairs"].entries
    assert found["packed"].entries < found["pairs"].entries / 2


def test_state_of_another_join_is_refused() -> None:
    from thetastream.errors import FingerprintError

    script = [Batch(*(rows_of(n, 10) for n in range(3)))]
    join = run_script(CYCLIC[0], script, within="20 seconds", time="t")
    other = InProcessJoin(CYCLIC[1], [SCHEMA] * 3, within="20 seconds", time="t")
    other.runner.state = join.join.runner.state
    with pytest.raises(FingerprintError, match="predicate"):
        other.batch(script[0])


@pytest.mark.parametrize("predicate", [CYCLIC[0], CHAINS[0]])
def test_more_units_where_every_unit_is_visited(predicate: str) -> None:
    tables = [rows_of(n, 40, first=100 * n) for n in range(3)]
    parts = [[table.slice(0, 20) for table in tables], [table.slice(20) for table in tables]]
    script = [Batch(*part) for part in parts]
    rows: list[Any] = []
    state = None
    for units, step in zip((2, 3), script, strict=True):
        options = JoinOptions(units=units, topology="random")
        given: dict[str, Any] = {"within": "20 seconds", "time": "t", "options": options}
        join = InProcessJoin(predicate, [SCHEMA] * 3, **given)
        if state is not None:
            join.runner.state.update(state)
        rows += join.batch(step)
        state = join.runner.state
    expected = expected_rows(predicate, script, within="20 seconds", time="t")
    assert multiset(rows) == multiset(expected)


def plan(
    predicate: str, *, within: str | None = "10 seconds", count: int = 3, **options: Any
) -> Any:
    chosen = JoinOptions(**options)
    return InProcessJoin(predicate, [SCHEMA] * count, within=within, time="t", options=chosen).plan


def test_full_history_only_when_asked_for() -> None:
    with pytest.raises(WindowError, match="kept for ever"):
        plan("r.k = s.k AND s.k = t.k", within=None)
    script = [Batch(*(rows_of(n, 20) for n in range(3))), RESTART] * 2
    join = run_script(
        "r.k = s.k AND s.n < t.n", script, time="t", options=JoinOptions(full_history=True, units=2)
    )
    assert multiset(join.rows) == multiset(expected_rows("r.k = s.k AND s.n < t.n", script))


def test_time_ranges_in_the_predicate() -> None:
    predicate = (
        "r.k = s.k AND s.t BETWEEN r.t AND r.t + INTERVAL 10 SECONDS"
        " AND s.n <> t.n AND t.t >= s.t - INTERVAL 2 SECONDS AND t.t <= s.t + INTERVAL 4 SECONDS"
    )
    script = [Batch(*(rows_of(n + 5, 30, first=100 * n) for n in range(3))), RESTART]
    end = START + 30 * SECOND
    script += [Batch(*(rows_of(n + 8, 30, first=500 * n) for n in range(3)), watermark=end)]
    join = run_script(predicate, script, time="t", options=JoinOptions(units=2))
    assert multiset(join.rows) == multiset(expected_rows(predicate, script, time="t"))
    # s is at most 10 seconds after r and t at most 4 after s, so t is at most 14 after r.
    assert join.plan.spec.reach[0][2] == 14 * SECOND
    assert join.plan.spec.reach[2][0] == 2 * SECOND


def test_a_stream_that_nothing_is_compared_with() -> None:
    with pytest.raises(OptionError, match="compares t with no other"):
        plan("r.k = s.k AND t.n > 3")
    script = [Batch(*(rows_of(n, 8, first=100 * n) for n in range(3)))] * 2
    check("r.k = s.k", script, "20 seconds", cross=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "semi-symmetric"}, "is for a chain"),
        ({"topology": "hash"}, "is for two streams"),
        ({"units": (1, 2)}, "there are 3"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        plan(CYCLIC[1], **options)


def test_bounds_of_a_pair_are_refused() -> None:
    with pytest.raises(WindowError, match="is for two streams"):
        plan(CYCLIC[0], within=("1 second", "2 seconds"))  # type: ignore[arg-type]


def test_ranges_that_exclude_each_other() -> None:
    predicate = (
        "s.t >= r.t + INTERVAL 5 SECONDS AND t.t >= s.t + INTERVAL 5 SECONDS"
        " AND t.t <= r.t + INTERVAL 1 SECOND AND r.k = s.k"
    )
    with pytest.raises(WindowError, match="no tuples"):
        plan(predicate, within=None, full_history=True)


def test_an_implied_equality_sends_all_streams_by_content() -> None:
    spec = plan("r.k = s.k AND s.k = t.k").spec
    assert len(spec.stages) == 1
    assert {store.group_by.kind for store in spec.stages[0].stores} == {Grouping.KEY}
    chain = plan("r.k = s.k AND s.g = t.g").spec
    assert len(chain.stages) == 2
    assert chain.order == (0, 1, 2)
    assert plan("r.k = s.k AND r.g = t.g").spec.order == (1, 0, 2)


def test_the_tree_begins_with_the_strongest_predicate() -> None:
    assert plan("r.n > s.n AND abs(s.n - t.n) <= 1", scheme="tree").tree.order == (1, 2, 0)
    assert plan("r.n > s.n AND s.k = t.k AND t.x < u.x", count=4).tree.order[:2] == (1, 2)


def test_explain_draws_the_graph() -> None:
    text = plan(CYCLIC[0]).explain()
    assert "r --equality-- s --inequality-- t" in text
    assert "band" in text
    assert "s is sent by content, t is sent to every unit" in text
    html = plan(CHAINS[0])._repr_html_()
    assert "semi-symmetric" in html
    steps = plan(CHAINS[0], scheme="tree").explain()
    assert "Join 1" in steps
    assert "Join 2" in steps
    assert steps.count("\nTerms\n") == 1


@pytest.mark.parametrize(
    ("predicate", "scheme", "explained"),
    [
        (CYCLIC[0], "auto", ["join graph", "cyclic", "symmetric", "store of", "pack", "unit"]),
        (CHAINS[0], "auto", ["chain", "semi-symmetric", "by content", "intermediate"]),
        (CHAINS[0], "tree", ["tree of two-way joins", "topology", "driving predicate"]),
    ],
)
def test_terms_of_three_streams_are_explained(
    predicate: str, scheme: str, explained: list[str]
) -> None:
    found = plan(predicate, scheme=scheme)
    assert str(found) == repr(found) == found.explain()
    terms = found.explain().split("\nTerms\n")[1]
    assert all(f"\n  {term}  " in f"\n{terms}" for term in explained)
    assert all(f"<td style=\"text-align:left\">{term}</td>" in found._repr_html_()
               for term in explained)  # fmt: skip


def test_each_join_of_a_tree_is_explained_with_its_window() -> None:
    """The window of a later join follows from those of its members."""
    for step in plan(CHAINS[0], scheme="tree").steps:
        about = {decision.subject: decision for decision in step.decisions}
        assert about["archive period"].choice != "none"
        assert "never expired" not in about["index"].reason


def test_results_are_counted() -> None:
    script = [Batch(*(rows_of(n, 30, first=100 * n) for n in range(3)))]
    join = check("r.k = s.k AND s.k = t.k", script, "20 seconds", units=2)
    reports = Counter[str]()
    for report in join.join.reports:
        reports.update(results=report.results, rows_in=report.rows_in)
    assert reports["results"] == len(join.rows)
    untimed = sum(1 for step in script for t in step.tables for v in _micros(t) if v is None)
    nulls = sum(
        1
        for step in script
        for table in step.tables
        for key, time in zip(table.column("k").to_pylist(), _micros(table), strict=True)
        if key is None and time is not None
    )
    assert reports["rows_in"] == 90 - untimed - nulls
