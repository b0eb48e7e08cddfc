"""What is measured: each case with its data, its predicate and how each contestant writes it.

The generated streams r and s have the same 32-byte tuples (id, k, v, t). In steady state a trigger
of n rows, half of them in each stream, meets w triggers of the other stream on either side of its
time, so a predicate of selectivity 2 R / (w n) gives R results per input row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

SPAN_SECONDS = 10
"""Event time of one trigger."""
DELAY_SECONDS = 1
"""Nothing is late; a delay only has to be given."""

SCHEMA = "id BIGINT, k BIGINT, v BIGINT, t TIMESTAMP"
BAND = 5
"""Half the width of the band joins."""
BUCKET = 8 * BAND
"""Bucket of the exploded workaround: at this width only every fourth row is exploded twice, which
suits Spark's join, where a stored row costs far more than a candidate."""
KEY_SHIFT = 2**34
"""Larger than any v of the key + band case: turns both into one exact band for DuckDB."""
BAND_KEYS = 1000
INEQUALITY_DOMAIN = 2**31

OURS = "thetastream"
SPARK_DEFAULT = "spark-default"
SPARK_ROCKSDB = "spark-rocksdb4"
SPARK_TUNED = "spark-tuned"
"""The same with those settings of our session that also help Spark's own join."""
WORKAROUND = "workaround"
DUCKDB = "duckdb"
LISTED = "listed"
"""The same query with the pairs listed and aggregated by Spark."""
PLAIN = "plain join"
"""The join of the query without its aggregates."""
TREE = "tree"
"""Three streams as two two-way joins, one after the other."""
PAIRS = "pairs"
"""Three streams with intermediate results that are not packed."""
CASCADE = "spark-cascade"
"""Spark's own joins one after the other, as far as it accepts them."""
PIM = "pim"
STREAM_AWARE = "stream-aware"
NESTED_LOOPS = "nested-loops"
EXTENDIBLE = "extendible"
"""The same join with another index than sorted runs."""
HASH = "plain hash"
"""The join of a case with hot keys, without them."""
LIVE = "live table"
"""The same with a control directory."""
STA, CI, SJ, BCHJ, MCI, PIM_TREE = "STA", "CI", "SJ", "BCHJ", "MCI", "PIM-tree"
SYSTEMS = (STA, CI, SJ, BCHJ, MCI, PIM_TREE)
"""STA and what its paper compares it with, by the paper's names: a chained index, a split join, a
broadcast join, a multi-chained index and a PIM-tree."""
OWN = (
    OURS,
    LISTED,
    PLAIN,
    TREE,
    PAIRS,
    PIM,
    STREAM_AWARE,
    NESTED_LOOPS,
    EXTENDIBLE,
    HASH,
    LIVE,
    *SYSTEMS,
)
NATIVE = (OURS, SPARK_DEFAULT, SPARK_ROCKSDB)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One measured join."""

    name: str
    title: str
    data: str
    """The generator of `bench.data` that makes the streams."""
    predicate: str
    """In the library's words, and in Spark's where Spark accepts it."""
    duckdb: str
    """The same for DuckDB, in the form that it joins fastest."""
    contestants: tuple[str, ...]
    baseline: str = OURS
    """The contestant that ratios are taken of."""
    units: int | None = None
    """Units of our own contestants; as many as they choose if none is given."""
    duckdb_joins_on_time: bool = False
    """Whether DuckDB is faster when the window takes part in its choice of a join."""
    workaround: str = ""
    """`buckets` or `constant`: what a user of Spark's own join would write instead."""
    rows: int = 1_000_000
    """Rows per trigger, both streams together."""
    triggers: int = 12
    window: int | None = 3
    """Triggers; None is the full history."""
    results: float = 1.0
    """Result rows per input row."""
    skip: int = 4
    """Triggers that are not counted: the JVM warms up, and a window of three triggers fills."""
    driver_memory: str = "10g"
    watch_memory: bool = False
    schemas: tuple[str, ...] = (SCHEMA, SCHEMA)
    """One for each stream: r, s, and perhaps t."""
    bucket_column: str = "v"
    bucket_width: int = BUCKET
    band: int = BAND
    query: str = ""
    """A query with aggregates; `{within}` stands for the window."""
    hot_keys: bool = False
    """Whether our own join splits hot keys."""
    cap: tuple[str, int] | None = None
    """A contestant that would never finish, and the rows per trigger that it gets instead."""

    @property
    def names(self) -> str:
        """The streams' names, one letter each."""
        return "rst"[: len(self.schemas)]

    @property
    def selectivity(self) -> float:
        """The share of pairs within the window that must match."""
        return 2 * self.results / ((self.window or 1) * self.rows)

    @property
    def within(self) -> str | None:
        """The window as text."""
        return None if self.window is None else f"{self.window * SPAN_SECONDS} seconds"

    def sql(self) -> str:
        """The query with its window."""
        within = "" if self.within is None else f"WITHIN {self.within}"
        return self.query.format(within=within, predicate=self.predicate)

    @property
    def aggregates(self) -> bool:
        """Whether the query has aggregates: then it puts out groups."""
        return "GROUP BY" in self.query

    @property
    def dataset(self) -> str:
        """A name for the files: equal for cases that read the same rows."""
        parts = (self.data, self.rows, self.triggers, self.window, self.results)
        return "-".join(str(part) for part in parts)

    def time_range(self) -> str:
        """The window as two comparisons of r.t and s.t; Spark and DuckDB read them alike."""
        if self.window is None:
            return "TRUE"
        width = f"INTERVAL {self.window * SPAN_SECONDS} SECONDS"
        return f"s.t >= r.t - {width} AND s.t <= r.t + {width}"

    def duckdb_condition(self) -> str:
        """The predicate and the window for DuckDB."""
        if self.window is None:
            return self.duckdb
        if self.duckdb_joins_on_time:
            return f"{self.duckdb} AND {self.time_range()}"
        # As a difference the window cannot drive the join, only filter it. Where the predicate
        # selects far better than the window, DuckDB does not see that by itself.
        width = self.window * SPAN_SECONDS * 1_000_000
        return f"{self.duckdb} AND abs(epoch_us(s.t) - epoch_us(r.t)) <= {width}"

    def scaled(self, rows: int | None, triggers: int | None, results: float | None) -> Case:
        """The case at another size; `None` leaves a value as it is."""
        return replace(
            self,
            rows=rows or self.rows,
            triggers=triggers or self.triggers,
            results=results or self.results,
            skip=min(self.skip, (triggers or self.triggers) // 2),
        )


EQUALITY = Case(
    name="equality",
    title="Equality, uniform keys",
    data="uniform",
    predicate="r.k = s.k",
    duckdb="r.k = s.k",
    contestants=(*NATIVE, DUCKDB),
)

BAND_PREDICATE = f"abs(r.v - s.v) <= {BAND}"

LINEITEM = "l_orderkey BIGINT, l_suppkey BIGINT, l_extendedprice DECIMAL(15,2)"
SUPPLIER = "s_suppkey BIGINT, s_nation STRING, s_region STRING"

Q5_PREDICATE = "r.s_suppkey = s.l_suppkey AND r.s_region = 'AMERICA'"
Q7_PREDICATE = (
    "r.s_suppkey = s.l_suppkey AND r.s_nation IN ('PERU', 'ETHIOPIA') "
    "AND s.l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'"
)
TPCH_BAND_FILTER = "r.l_shipmode = 'TRUCK' AND r.l_quantity > 48 AND s.l_shipinstruct = 'NONE'"

AGGREGATE = replace(
    EQUALITY,
    data="inequality",
    predicate="r.v > s.v",
    duckdb="r.v > s.v",
    triggers=7,
    results=1000.0,
    contestants=(OURS, LISTED),
    # A thousand pairs per row: listing them takes minutes where a million rows arrive at once.
    # Its cost per row is that of the pairs; the share of the trigger's own cost is small.
    cap=(LISTED, 100_000),
)


def _aggregate(groups: int) -> str:
    return (
        f"SELECT r.k % {groups} AS g, count(*) AS c, sum(s.v) AS t FROM r, s"
        f" WHERE r.v > s.v {{within}} GROUP BY r.k % {groups}"
    )


CASES: tuple[Case, ...] = (
    EQUALITY,
    replace(
        EQUALITY,
        name="equality-10",
        title="Equality, uniform keys, ten results per row",
        results=10.0,
    ),
    replace(
        EQUALITY,
        name="skew",
        title="Equality, one side Zipf 1.0",
        data="zipf",
        results=10.0,
    ),
    replace(
        EQUALITY,
        name="hot",
        title="Equality, one key has half of the rows of a large stream",
        data="hot",
        contestants=(OURS, HASH, SPARK_DEFAULT, SPARK_ROCKSDB, DUCKDB),
        hot_keys=True,
    ),
    replace(
        EQUALITY,
        name="hot-results",
        title="Equality, one key has half of the rows of a large stream, ten results per row",
        data="hot_results",
        contestants=(OURS, HASH),
        hot_keys=True,
        results=10.0,
    ),
    replace(
        EQUALITY,
        name="hot-uniform",
        title="Equality, uniform keys, looking for hot ones",
        contestants=(OURS, LIVE, HASH),
        hot_keys=True,
    ),
    replace(
        EQUALITY,
        name="band",
        title="Band",
        data="band",
        predicate=BAND_PREDICATE,
        duckdb=f"s.v BETWEEN r.v - {BAND} AND r.v + {BAND}",
        workaround="buckets",
        contestants=(OURS, WORKAROUND, DUCKDB),
    ),
    replace(
        EQUALITY,
        name="key-band",
        title="Key + band",
        data="key_band",
        predicate=f"r.k = s.k AND {BAND_PREDICATE}",
        duckdb=(
            f"s.k * {KEY_SHIFT} + s.v BETWEEN r.k * {KEY_SHIFT} + r.v - {BAND} "
            f"AND r.k * {KEY_SHIFT} + r.v + {BAND}"
        ),
        workaround="buckets",
        contestants=(*NATIVE, WORKAROUND, DUCKDB),
    ),
    replace(
        EQUALITY,
        name="inequality",
        title="Inequality, ten results per row",
        data="inequality",
        predicate="r.v > s.v",
        duckdb="r.v > s.v",
        duckdb_joins_on_time=True,
        workaround="constant",
        contestants=(OURS, WORKAROUND, DUCKDB),
        results=10.0,
        # Every row meets every row of the window in one task: a trigger of a million rows would
        # take hours. A smaller trigger flatters the workaround, whose cost per row grows with it.
        cap=(WORKAROUND, 10_000),
    ),
    *(
        replace(
            EQUALITY,
            name=f"index-{kind}",
            title=f"Indexes on an inequality, {values} values, ten results per row",
            data=data,
            predicate="r.v > s.v",
            duckdb="r.v > s.v",
            contestants=(OURS, PIM, STREAM_AWARE, NESTED_LOOPS),
            results=10.0,
            # Every row looks at every stored row. A smaller trigger flatters it.
            cap=(NESTED_LOOPS, 20_000),
        )
        for kind, values, data in (
            ("uniform", "uniform", "inequality"),
            ("zipf", "Zipf 1.5", "inequality_zipf"),
        )
    ),
    replace(
        EQUALITY,
        name="index-key",
        title="Indexes on a key and an inequality, ten results per row",
        data="key_inequality",
        predicate="r.k = s.k AND r.v > s.v",
        duckdb="r.k = s.k AND r.v > s.v",
        contestants=(OURS, PIM, EXTENDIBLE),
        results=10.0,
        # A row looks at all stored rows of its partition-group. A smaller trigger flatters it.
        cap=(EXTENDIBLE, 200_000),
    ),
    replace(
        EQUALITY,
        name="sta",
        title="STA and its baselines, taxi fares, ten results per row",
        data="fares",
        predicate="r.v > s.v",
        duckdb="r.v > s.v",
        contestants=(*SYSTEMS, DUCKDB),
        baseline=STA,
        units=4,
        rows=400_000,
        triggers=8,
        results=10.0,
    ),
    replace(
        EQUALITY,
        name="tpch-q5",
        title="TPC-H Q5, full history",
        data="tpch_q5",
        predicate=Q5_PREDICATE,
        duckdb=Q5_PREDICATE,
        window=None,
        schemas=(SUPPLIER, f"{LINEITEM}, l_discount DECIMAL(15,2)"),
    ),
    replace(
        EQUALITY,
        name="tpch-q7",
        title="TPC-H Q7, full history",
        data="tpch_q7",
        predicate=Q7_PREDICATE,
        duckdb=Q7_PREDICATE,
        window=None,
        schemas=(SUPPLIER, f"{LINEITEM}, l_shipdate DATE"),
    ),
    replace(
        EQUALITY,
        name="tpch-band",
        title="TPC-H Band, full history",
        data="tpch_band",
        predicate=f"abs(r.l_orderkey - s.l_orderkey) <= 1 AND {TPCH_BAND_FILTER}",
        duckdb=(
            f"s.l_orderkey BETWEEN r.l_orderkey - 1 AND r.l_orderkey + 1 AND {TPCH_BAND_FILTER}"
        ),
        workaround="buckets",
        contestants=(OURS, WORKAROUND, DUCKDB),
        window=None,
        bucket_column="l_orderkey",
        bucket_width=8,
        band=1,
        schemas=(
            "l_orderkey BIGINT, l_shipmode STRING, l_quantity DECIMAL(15,2)",
            "l_orderkey BIGINT, l_shipinstruct STRING",
        ),
    ),
    replace(
        EQUALITY,
        name="small",
        title="Trigger of 1,000 rows",
        rows=1_000,
        triggers=40,
        skip=10,
        contestants=(*NATIVE, SPARK_TUNED),
    ),
    replace(
        AGGREGATE,
        name="sum-10",
        title="Count and sum by 10 groups, 1,000 pairs per row",
        query=_aggregate(10),
    ),
    replace(
        AGGREGATE,
        name="sum-10000",
        title="Count and sum by 10,000 groups, 1,000 pairs per row",
        query=_aggregate(10_000),
    ),
    replace(
        AGGREGATE,
        name="sum-more",
        title="Count and sum by 10 groups, 10,000 pairs per row",
        query=_aggregate(10),
        results=10_000.0,
        # After the seventh the sums leave the BIGINT that Spark gives to sums.
        triggers=6,
        contestants=(OURS,),
    ),
    *(
        replace(
            EQUALITY,
            name=f"growth-{window}",
            title=f"Window of {window} triggers",
            window=window,
            triggers=36,
            # The largest window is full after 30 triggers; all are measured over the same ones.
            skip=30,
            contestants=(OURS,),
        )
        for window in (1, 3, 10, 30)
    ),
    replace(
        EQUALITY,
        name="memory",
        title="10 M live tuples on each side",
        window=20,
        triggers=24,
        skip=20,
        contestants=(OURS,),
        driver_memory="4g",
        watch_memory=True,
    ),
)


THREE = replace(
    EQUALITY,
    schemas=(SCHEMA, SCHEMA, SCHEMA),
    contestants=(OURS, TREE, PAIRS),
    rows=300_000,
    triggers=7,
    # After three the window is full.
    skip=3,
    # The stored tuples that a new one meets in each other stream, were all spots as popular.
    results=4.0,
    # The join is measured, not how fast Spark takes in wide rows.
    query="SELECT r.id AS a, s.id AS b, t.id AS c FROM r, s, t WHERE {predicate} {within}",
)
_CYCLIC = f"abs(r.k - s.k) <= {BAND} AND abs(s.v - t.v) <= {BAND} AND abs(r.v - t.k) <= {BAND}"
_CHAIN = f"abs(r.k - s.k) <= {BAND} AND abs(s.v - t.v) <= {BAND}"
CASES += (
    *(
        replace(
            THREE,
            name=f"{shape}-{data}",
            title=f"Three streams, {shape}, {title}",
            data=data,
            predicate=predicate,
            duckdb=predicate,
            results=partners,
        )
        for data, title, partners in (("gps", "GPS-like", 4.0), ("packets", "packet-like", 2.0))
        for shape, predicate in (("cyclic", _CYCLIC), ("chain", _CHAIN))
    ),
    replace(
        THREE,
        name="star",
        title="Three streams, one key",
        data="uniform",
        predicate="r.k = s.k AND s.k = t.k",
        duckdb="r.k = s.k AND s.k = t.k",
        contestants=(OURS, TREE, CASCADE),
    ),
)

_TPCH_QUERIES = {
    "tpch-q5": (
        "SELECT r.s_nation, sum(s.l_extendedprice * (1 - s.l_discount)) AS revenue"
        f" FROM r, s WHERE {Q5_PREDICATE} GROUP BY r.s_nation"
    ),
    "tpch-q7": (
        "SELECT r.s_nation, year(s.l_shipdate) AS y, sum(s.l_extendedprice) AS volume"
        f" FROM r, s WHERE {Q7_PREDICATE} GROUP BY r.s_nation, year(s.l_shipdate)"
    ),
    "tpch-band": (
        "SELECT s.l_shipinstruct, count(*) AS c, min(r.l_quantity) AS low,"
        " max(r.l_quantity) AS high FROM r, s WHERE abs(r.l_orderkey - s.l_orderkey) <= 1"
        f" AND {TPCH_BAND_FILTER} GROUP BY s.l_shipinstruct"
    ),
}
CASES += tuple(
    replace(
        case,
        name=f"{case.name}-sum",
        title=f"{case.title}, with and without aggregates",
        query=_TPCH_QUERIES[case.name],
        contestants=(OURS, PLAIN),
    )
    for case in CASES
    if case.name in _TPCH_QUERIES
)


def chosen(only: list[str]) -> list[Case]:
    """The cases of the given names, `growth` standing for all that begin so; all without any."""
    if not only:
        return list(CASES)
    known = {case.name for case in CASES}
    found = [
        case
        for case in CASES
        if case.name in only
        or any(name not in known and case.name.startswith(f"{name}-") for name in only)
    ]
    if not found:
        raise SystemExit(f"no case of that name; there are {', '.join(sorted(known))}")
    return found
