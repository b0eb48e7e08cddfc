"""Random histories of joins whose tables change: any edit at any batch, crashes, lost reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from thetastream.options import JoinOptions
from thetastream.steering.edits import edit_from_json, edit_to_json
from thetastream.testing import Batch, InProcessJoin, expected_rows, multiset, rows_of
from thetastream.testing.cases import SECOND, START
from thetastream.testing.inprocess import rows_in, stream_names
from thetastream.testing.queries import InProcessQuery, expected_query
from thetastream.testing.steered import Steering, random_edit

MAX_UNITS = 5
GROUPS = 60
"""A multiple of every number of units; what holds for these holds for thousands."""


@dataclass(frozen=True)
class Kind:
    """A join to play."""

    predicate: str
    streams: int = 2
    within: str | None = "12 seconds"
    options: dict[str, Any] | None = None


EXTENDIBLE = {"index": "extendible", "theta": "4 KB"}
NESTED = {"index": "nested-loops"}
PIM = {"index": "pim"}
AWARE = {"topology": "stream-aware", "index": "stream-aware"}
KINDS = {
    "hash": Kind("r.k = s.k"),
    "hash, full history": Kind("r.k = s.k AND r.n < s.n", within=None),
    "contrand": Kind("r.k = s.k", options={"topology": "contrand", "subgroups": (2, 1)}),
    "contrand, full history": Kind(
        "r.k = s.k", within=None, options={"topology": "contrand", "subgroups": (1, 2)}
    ),
    "band": Kind("abs(r.n - s.n) <= 1", options={"bucket_width": 1}),
    "random": Kind("r.n > s.n AND r.x > s.x"),
    "random, full history": Kind("r.n > s.n AND r.x > s.x", within=None),
    "symmetric": Kind("r.k = s.k AND s.k = t.k", streams=3),
    "symmetric bands": Kind("abs(r.n-s.n)<=1 AND abs(s.k-t.k)<=1 AND abs(r.k-t.n)<=1", streams=3),
    "chain": Kind("abs(r.n - s.n) <= 1 AND abs(s.k - t.k) <= 1", streams=3),
    "extendible": Kind("r.k = s.k", options=EXTENDIBLE),
    "extendible, full history": Kind("r.k = s.k AND r.n < s.n", within=None, options=EXTENDIBLE),
    "nested loops": Kind("r.k = s.k", options={"topology": "contrand", **NESTED}),
    "nested loops, full history": Kind("r.n > s.n", within=None, options=NESTED),
    "pim": Kind("r.k = s.k AND r.n < s.n", options=PIM),
    "pim, full history": Kind("r.n > s.n AND r.x > s.x", within=None, options=PIM),
    "stream-aware": Kind("r.n > s.n AND r.x > s.x", options=AWARE),
    "stream-aware, full history": Kind("abs(r.n - s.n) <= 1", within=None, options=AWARE),
    "symmetric, pim": Kind("r.k = s.k AND s.k = t.k", streams=3, options=PIM),
    "symmetric, extendible": Kind("r.k = s.k AND s.k = t.k", streams=3, options=EXTENDIBLE),
    "tree": Kind("r.k = s.k AND s.k = t.k", streams=3, options={"scheme": "tree"}),
}
CARRIED = ("id", "k", "n", "x", "t")


def batches(
    random: np.random.Generator, streams: int, count: int, rows: int, first: int = 0
) -> list[Batch]:
    """Batches whose times go on, with a watermark behind them."""
    found = []
    for number in range(first, first + count):
        tables = []
        for stream in range(streams):
            size = int(random.integers(0, rows))
            table = rows_of(int(random.integers(1 << 30)), size, first=1000 * number, seconds=4.0)
            moved = later(table.select(CARRIED), number * 4 * SECOND)
            tables.append(moved.slice(0, 0) if stream and random.random() < 0.1 else moved)
        mark = START + (number * 4 - 5) * SECOND
        found.append(Batch(*tables, watermark=mark if number > 1 else None))
    return found


def later(table: pa.Table, micros: int) -> pa.Table:
    """The rows with later times."""
    place = table.schema.get_field_index("t")
    times = table.column("t").cast(pa.int64()).to_pylist()
    moved = [None if time is None else time + micros for time in times]
    kind = table.schema.field("t").type
    return table.set_column(place, table.schema.field("t"), pa.array(moved, pa.int64()).cast(kind))


def play_view(seed: int, *, count: int = 16) -> Steering:
    """One history of a query that aggregates in place, and sends its views every few batches."""
    random = np.random.default_rng(seed)
    every = int(random.integers(1, 4))
    units = int(random.integers(1, MAX_UNITS))
    script = batches(random, 2, count, 14)
    schemas = dict(zip("rs", (table.schema for table in script[0].tables), strict=True))
    query = InProcessQuery(
        "SELECT r.k AS k, count(*) AS c, sum(s.n) AS n FROM r, s"
        " WHERE r.n <= s.n WITHIN 12 seconds GROUP BY r.k",
        schemas,
        time={"r": "t", "s": "t"},
        options=JoinOptions(units=units, update_batches=every),
        groups=GROUPS,
    )
    steering = Steering(query, max_units=MAX_UNITS)
    play_script(steering, script, random, ["r", "s"], query.take)
    come_to_an_end(steering, script, random, query.take)
    # What the units have not sent yet is sent with batches that bring nothing new.
    empty = Batch(*(table.slice(0, 0) for table in script[0].tables), watermark=None)
    for _ in range(2 * every):
        query.take(steering.batch(empty))
    expected = expected_query(
        "SELECT r.k, count(*), CAST(sum(s.n) AS BIGINT) FROM r, s WHERE r.n <= s.n"
        " AND abs(epoch_us(r.t) - epoch_us(s.t)) <= 12000000 GROUP BY r.k",
        script,
        time={"r": "t", "s": "t"},
    )
    found = [tuple(None if v is None else int(v) for v in row) for row in query.rows()]
    assert multiset(found) == multiset(expected), f"seed {seed}"
    return steering


def play(kind: Kind, seed: int, *, count: int = 16, rows: int = 14) -> Steering:
    """One history; it fails if a row is lost, doubled or wrong."""
    random = np.random.default_rng(seed)
    names = list(stream_names(kind.streams))
    time = dict.fromkeys(names, "t") if kind.within is not None else None
    given = dict(kind.options or {})
    topology = given.get("topology")
    given["units"] = (
        tuple(int(n) for n in random.integers(2, MAX_UNITS, kind.streams))
        if random.random() < 0.5 and kind.streams == 2
        else int(random.integers(2 if topology == "contrand" else 1, MAX_UNITS))
    )
    options = JoinOptions(**given, full_history=kind.within is None)
    script = batches(random, kind.streams, count, rows)
    schemas = [table.schema for table in script[0].tables]
    join = InProcessJoin(
        kind.predicate,
        schemas,
        within=kind.within,
        time=time,
        options=options,
        chunk_rows=64,
        groups=GROUPS,
    )
    steering = Steering(join, max_units=MAX_UNITS)
    found: list[Any] = []

    def take(table: pa.Table) -> None:
        found.extend(rows_in(table))

    play_script(steering, script, random, names, take)
    come_to_an_end(steering, script, random, take)
    expected = expected_rows(kind.predicate, script, within=kind.within, time=time)
    assert multiset(found) == multiset(expected), f"seed {seed}"
    return steering


def play_script(
    steering: Steering,
    script: Sequence[Batch],
    random: np.random.Generator,
    names: list[str],
    take: Callable[[pa.Table], None],
) -> None:
    """Play batches while all sorts of things happen."""
    for number, step in enumerate(script):
        if random.random() < 0.35 and number < len(script) - 3:
            edit = random_edit(random, steering.version, names)
            steering.ask(edit_from_json(edit_to_json(edit)))
        if random.random() < 0.1:
            steering.running.restart()
        if random.random() < 0.1:
            steering.replace_loop()
        losing = random.random() < 0.15
        dropped = float(random.random()) if losing else 0.0
        take(
            steering.batch(
                step,
                mixed=bool(random.random() < 0.4),
                pieces=int(random.integers(1, 4)),
                crash=bool(random.random() < 0.15),
                lose=lambda _, share=dropped: bool(random.random() < share),  # type: ignore[misc]
            )
        )
        assert not steering.loop.problem, steering.loop.problem


def come_to_an_end(
    steering: Steering,
    script: list[Batch],
    random: np.random.Generator,
    take: Callable[[pa.Table], None],
) -> None:
    """More batches, until no change is under way: every change comes to its end."""
    for _ in range(60):
        if steering.version.step.value == "settled" and not steering.files.names("requests"):
            return
        script += batches(random, len(script[0].tables), 1, 8, first=len(script))
        take(steering.batch(script[-1]))
    raise AssertionError(f"still in {steering.version.step}: {steering.version.note.what}")


def ends(steering: Steering) -> Sequence[str]:
    """The steps that a history has seen."""
    return [version.step.value for version in steering.loop.tables.history()]
