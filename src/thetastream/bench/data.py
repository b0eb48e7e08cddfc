"""The streams of each case as parquet files, one file of each stream per trigger."""

from __future__ import annotations

import itertools
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from thetastream.bench.cases import BAND, BAND_KEYS, INEQUALITY_DOMAIN, SPAN_SECONDS, Case
from thetastream.workloads import (
    SECOND,
    TIME_TYPE,
    Integers,
    Pace,
    Zipf,
    fare_streams,
    uniform_keys,
    write_batches,
)

SEED = 20_260_101
_SPREAD = 10
"""How far from its hot spot a position is, in either coordinate."""
_VALUES, _EXPONENT = 1000, 1.5
"""Of the skewed inequality join: its values, and how unequal their frequencies are."""
_SAMPLED = 1_000_000
"""Fares by which it is worked out how often one is higher than another."""
_POPULAR = 0.375
"""With a fifth of the others, these make half of the packets go to a fifth of the spots."""
HOT_DATA = ("hot", "hot_results")
HOT_OTHERS = 20
"""The rows of a case with a hot key, out of which one is of the other stream."""
HOT_ROW_GROUPS = 16
"""Row groups of such a trigger, which tasks can share."""
HOT_KEY = 4_711
LINEITEMS_PER_SCALE = 6_000_000
"""Rows of lineitem at scale factor 1, about."""

Columns = Callable[[np.random.Generator, int, int], tuple[Integers, Integers]]
"""From generator, rows and side to the columns k and v."""


def prepare(case: Case, root: Path) -> Path:
    """The folder with the streams of the case; created if it does not exist yet."""
    folder = root / case.dataset
    if (folder / "done").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    if case.data.startswith("tpch_"):
        _tpch(case, folder, root)
    else:
        for side, name in enumerate(case.names):
            # A stream that is most of a trigger comes in parts, as from any source that is meant
            # for it: read by one task, it would keep one core busy and not the other.
            row_group = case.rows // HOT_ROW_GROUPS if case.data in HOT_DATA else None
            write_batches(_synthetic(case, side), folder / name, row_group)
    # Written last: an interrupted run leaves no half dataset that looks whole.
    (folder / "done").touch()
    return folder


def _synthetic(case: Case, side: int) -> Iterator[pa.Table]:
    columns = _columns(case)
    rows = _rows_of(case, side)
    pace = Pace(span=SPAN_SECONDS * SECOND)
    for trigger in range(case.triggers):
        rng = np.random.default_rng((SEED, trigger, side))
        k, v = columns(rng, rows, side)
        ids = np.arange(trigger * rows, (trigger + 1) * rows, dtype=np.int64)
        times = pa.array(pace.times(rng, trigger, rows), type=TIME_TYPE)
        yield pa.table({"id": ids, "k": k, "v": v, "t": times})


def _rows_of(case: Case, side: int) -> int:
    """Rows of a stream per trigger: of a case with a hot key, nearly all are of the first one."""
    if case.data in HOT_DATA:
        few = case.rows // HOT_OTHERS
        return few if side else case.rows - few
    return case.rows // len(case.names)


def _columns(case: Case) -> Columns:
    """Columns whose join has the case's selectivity."""
    share = case.selectivity
    width = 2 * BAND + 1
    if case.data in HOT_DATA:
        return _hot_key(case)
    if case.data in ("uniform", "zipf"):
        keys = max(1, round(1 / share))
        zipf = Zipf(keys)
        skewed = case.data == "zipf"

        def equality(rng: np.random.Generator, rows: int, side: int) -> tuple[Integers, Integers]:
            # Zipf on one side and uniform on the other match as often as uniform on both.
            k = zipf.draw(rng, rows) if skewed and side == 0 else uniform_keys(rng, rows, keys)
            return k, uniform_keys(rng, rows, 2**31)

        return equality
    if case.data == "band":
        domain = max(1, round(width / share))
        return lambda rng, rows, side: (
            uniform_keys(rng, rows, 2**31),
            uniform_keys(rng, rows, domain),
        )
    if case.data == "key_band":
        domain = max(1, round(width / share / BAND_KEYS))
        return lambda rng, rows, side: (
            uniform_keys(rng, rows, BAND_KEYS),
            uniform_keys(rng, rows, domain),
        )
    if case.data in ("inequality", "key_inequality"):
        keys = BAND_KEYS if case.data == "key_inequality" else 2**31
        if case.data == "key_inequality":
            share *= BAND_KEYS
        # r is uniform on [0, 1) and s on [c, 1 + c): r > s in a share (1 - c)^2 / 2 of the pairs.
        shift = round((1 - math.sqrt(2 * share)) * INEQUALITY_DOMAIN)
        return lambda rng, rows, side: (
            uniform_keys(rng, rows, keys),
            uniform_keys(rng, rows, INEQUALITY_DOMAIN) + (shift if side else 0),
        )
    if case.data == "inequality_zipf":
        return _frequent_values(share)
    if case.data == "fares":
        return _fares(share)
    if case.data in ("gps", "packets"):
        return _hot_spots(case)
    raise ValueError(f"no generator for {case.data}")


def _hot_key(case: Case) -> Columns:
    """One key has half of the rows of r. Its partners in s are as rare as any key's, or so many
    that they make the case's results."""
    domain = max(2, round(1 / case.selectivity))
    key = np.int64(HOT_KEY % domain)
    partners = 0
    if case.data == "hot_results":
        # Within the window a row meets so many triggers of the other stream, before and after it.
        met = 2 * (case.window or 1) * _rows_of(case, 0) / 2 / case.rows
        partners = max(1, round(case.results / met))

    def columns(rng: np.random.Generator, rows: int, side: int) -> tuple[Integers, Integers]:
        k = uniform_keys(rng, rows, domain)
        if side:
            k[:partners] = key
        else:
            k = np.where(rng.random(rows) < 0.5, key, k)
        return k, uniform_keys(rng, rows, 2**31)

    return columns


def _frequent_values(share: float) -> Columns:
    """A thousand values of r by Zipf's law, the most frequent ones largest; s is uniform and so far
    above 0 that r > s in such a share of the pairs."""
    zipf = Zipf(_VALUES, _EXPONENT)
    values = (_VALUES - np.arange(_VALUES)) * (INEQUALITY_DOMAIN // _VALUES)

    def smaller(shift: int) -> float:
        below = np.clip((values - shift) / INEQUALITY_DOMAIN, 0, 1)
        return float((zipf.shares() * below).sum())

    low, high = -INEQUALITY_DOMAIN, INEQUALITY_DOMAIN
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if smaller(middle) > share else (low, middle)

    def columns(rng: np.random.Generator, rows: int, side: int) -> tuple[Integers, Integers]:
        k = uniform_keys(rng, rows, 2**31)
        if side:
            return k, uniform_keys(rng, rows, INEQUALITY_DOMAIN) + low
        return k, values[zipf.draw(rng, rows)]

    return columns


def _fares(share: float) -> Columns:
    """Taxi fares in cents: the trips of s cost so much more, always by the same amount, that those
    of r do so in such a share of the pairs only."""

    def fares(rng: np.random.Generator, rows: int, side: int) -> Integers:
        trips = fare_streams(SEED + side)["trips"](int(rng.integers(2**31)), rows)
        found: Integers = np.round(trips["fare"].to_numpy() * 100).astype(np.int64)
        return found

    rng = np.random.default_rng(SEED)
    first, second = (np.bincount(fares(rng, _SAMPLED, side)) / _SAMPLED for side in (0, 1))
    above = np.r_[np.cumsum(first[::-1])[::-1][1:], np.zeros(len(second) + len(first))]

    def greater(shift: int) -> float:
        return float((second * above[shift : shift + len(second)]).sum())

    low, high = 0, len(first)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if greater(middle) > share else (low, middle)
    # Fares are multiples of half a dollar, and so the share is one of few: the nearest one.
    shift = min((low, high), key=lambda one: abs(greater(one) - share))
    return lambda rng, rows, side: (
        uniform_keys(rng, rows, 2**31),
        fares(rng, rows, side) + (shift if side else 0),
    )


def _hot_spots(case: Case) -> Columns:
    """Positions (k, v) around hot spots, so that a tuple meets as many others as the case says.

    All spots of GPS are as popular as each other; of packets (port and length) a fifth of the spots
    have half of the tuples.
    """
    # Two tuples of a spot are near in one coordinate with this probability.
    offsets = np.arange(-_SPREAD, _SPREAD + 1)
    near = float(np.mean(np.abs(offsets[:, None] - offsets[None, :]) <= BAND))
    stored = (case.window or 1) * case.rows / len(case.names)
    spots = max(2, round(stored * near / case.results))
    skewed = case.data == "packets"
    distance = 4 * _SPREAD + 2 * BAND

    def columns(rng: np.random.Generator, rows: int, side: int) -> tuple[Integers, Integers]:
        spot = uniform_keys(rng, rows, spots)
        if skewed:
            spot = np.where(rng.random(rows) < _POPULAR, spot // 5, spot)
        k = spot * distance + rng.integers(-_SPREAD, _SPREAD + 1, rows)
        return k, spot * distance + rng.integers(-_SPREAD, _SPREAD + 1, rows)

    return columns


TPCH = {
    "tpch_q5": (
        """SELECT s_suppkey, n_name AS s_nation, r_name AS s_region
           FROM supplier JOIN nation ON s_nationkey = n_nationkey
           JOIN region ON n_regionkey = r_regionkey ORDER BY hash(s_suppkey)""",
        "SELECT l_orderkey, l_suppkey, l_extendedprice, l_discount FROM lineitem",
    ),
    "tpch_q7": (
        """SELECT s_suppkey, n_name AS s_nation, r_name AS s_region
           FROM supplier JOIN nation ON s_nationkey = n_nationkey
           JOIN region ON n_regionkey = r_regionkey ORDER BY hash(s_suppkey)""",
        "SELECT l_orderkey, l_suppkey, l_extendedprice, l_shipdate FROM lineitem",
    ),
    "tpch_band": (
        "SELECT l_orderkey, l_shipmode, l_quantity FROM lineitem",
        "SELECT l_orderkey, l_shipinstruct FROM lineitem",
    ),
}
"""The two streams of each query: the columns that it needs, nothing filtered yet."""


def _tpch(case: Case, folder: Path, root: Path) -> None:
    copies = 2 if case.data == "tpch_band" else 1
    scale = case.rows * case.triggers / copies / LINEITEMS_PER_SCALE
    tables = root / f"tpch-{scale:g}"
    if not (tables / "done").exists():
        generator = Path(sys.executable).with_name("tpchgen-cli")
        command = [str(generator), "parquet", "-s", f"{scale:g}", "-o", str(tables)]
        command += ["--tables", "supplier,nation,region,lineitem", "--overwrite", "-q"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (tables / "done").touch()
    with duckdb.connect() as database:
        for table in ("supplier", "nation", "region", "lineitem"):
            database.execute(
                f"CREATE VIEW {table} AS FROM read_parquet('{tables / table}.parquet')"
            )
        for name, query in zip("rs", TPCH[case.data], strict=True):
            whole = database.sql(query).to_arrow_table()
            write_batches(_slices(whole, case.triggers), folder / name)


def _slices(table: pa.Table, count: int) -> Iterator[pa.Table]:
    edges = [round(at * table.num_rows / count) for at in range(count + 1)]
    for low, high in itertools.pairwise(edges):
        yield table.slice(low, high - low)
