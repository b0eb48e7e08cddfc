"""What the project sets out to reach, and what was measured of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from thetastream.bench import cases
from thetastream.bench.cases import (
    HASH,
    LISTED,
    LIVE,
    OURS,
    PAIRS,
    PLAIN,
    SPARK_DEFAULT,
    SPARK_ROCKSDB,
    TREE,
)
from thetastream.bench.measures import (
    Document,
    Run,
    Spread,
    bytes_per_tuple,
    entries,
    of,
    out_bytes,
    peak_memory,
    rates,
    ratios,
    spread,
    throughput,
    trigger_seconds,
)


class Figure(NamedTuple):
    """Something the project sets out to reach."""

    what: str
    measured: Spread | None
    least: float | None = None
    most: float | None = None

    @property
    def wanted(self) -> str:
        """The bound as text."""
        return f"≥ {self.least:g}" if self.least is not None else f"≤ {self.most:g}"

    @property
    def verdict(self) -> str:
        """Whether the middle of the runs is within the bound."""
        if self.measured is None:
            return ""
        middle = self.measured.middle
        low = self.least is None or middle >= self.least
        return "reached" if low and (self.most is None or middle <= self.most) else "missed"


def figures(documents: dict[str, Document]) -> list[Figure]:
    """The aims, each with what was measured, as far as the cases have been run."""

    def against_spark(name: str) -> Spread | None:
        document = documents.get(name)
        if document is None:
            return None
        both = [ratios(document, throughput, other) for other in (SPARK_DEFAULT, SPARK_ROCKSDB)]
        # The faster of Spark's two set-ups is the one with the smaller ratio.
        return min((s for r in both if (s := spread(r))), key=lambda s: s.middle, default=None)

    def against_own(name: str, other: str) -> Spread | None:
        if name not in documents or other not in documents:
            return None
        own, base = rates(documents[name], OURS), rates(documents[other], OURS)
        if own is None or base is None:
            return None
        return Spread(own.middle / base.middle, own.low / base.high, own.high / base.low)

    def small() -> Spread | None:
        document = documents.get("small")
        if document is None:
            return None
        both = [
            ratios(document, trigger_seconds, other) for other in (SPARK_DEFAULT, SPARK_ROCKSDB)
        ]
        return max((s for r in both if (s := spread(r))), key=lambda s: s.middle, default=None)

    def state() -> Spread | None:
        document = documents.get("equality")
        return spread(ratios(document, bytes_per_tuple, SPARK_DEFAULT)) if document else None

    def within(name: str, what: Callable[[Run, int], float | None], other: str) -> Spread | None:
        document = documents.get(name)
        return spread(ratios(document, what, other)) if document else None

    def memory() -> Spread | None:
        document = documents.get("memory")
        if document is None:
            return None
        return spread(peak_memory(run) for run in of(document, OURS))

    faster = "throughput against the faster of Spark's set-ups"
    own = "throughput relative to our equality join"
    found = [
        Figure(f"equality, uniform: {faster}", against_spark("equality"), least=8),
        Figure(f"equality, skewed: {faster}", against_spark("skew"), least=10),
        Figure(
            "equality, one key has half of a stream: throughput with hot keys against without",
            within("hot", throughput, HASH),
            least=1.5,
        ),
        Figure(f"equality, one key has half of a stream: {faster}", against_spark("hot"), least=8),
        Figure(
            "equality, uniform: time of a trigger when looking for hot keys against not",
            within("hot-uniform", trigger_seconds, LIVE),
            most=1.03,
        ),
        Figure(f"band: {own}", against_own("band", "equality"), least=0.6),
        Figure(f"key + band: {own}", against_own("key-band", "equality"), least=0.6),
        Figure("state bytes per stored tuple against Spark's default", state(), most=0.125),
        Figure(
            "trigger of 1,000 rows: time against the faster of Spark's set-ups", small(), most=1.15
        ),
        Figure(
            "window of 30 triggers: throughput relative to 3",
            against_own("growth-30", "growth-3"),
            least=0.5,
        ),
        Figure("memory of all processes, 10 M live tuples on each side, GiB", memory(), most=12),
    ]
    for groups in (10, 10_000):
        what = f"count and sum by {groups} groups, 1,000 pairs per row: in place against listed"
        found.append(Figure(what, within(f"sum-{groups}", throughput, LISTED), least=50))
    found.append(
        Figure(
            "the same with 10,000 pairs per row: time relative to 1,000",
            against_own("sum-10", "sum-more"),
            most=1.5,
        )
    )
    for name in ("Q5", "Q7", "Band"):
        what = f"TPC-H {name}: throughput with aggregates relative to without"
        measured = within(f"tpch-{name.lower()}-sum", throughput, PLAIN)
        found.append(Figure(what, measured, least=0.95))
    found.append(
        Figure(
            "TPC-H Band: bytes that leave the units with local views relative to without",
            within("tpch-band-sum", out_bytes, PLAIN),
            most=0.1,
        )
    )
    for shape, time in (("cyclic", 0.5), ("chain", 0.7)):
        for data, title in (("gps", "GPS"), ("packets", "packets")):
            what, case = f"three streams, {shape}, {title}", f"{shape}-{data}"
            found += [
                Figure(
                    f"{what}: time of a trigger against the tree",
                    within(case, trigger_seconds, TREE),
                    most=time,
                ),
                Figure(
                    f"{what}: throughput against the tree",
                    within(case, throughput, TREE),
                    least=1.1,
                ),
                Figure(
                    f"{what}: intermediate entries, packed against pairs",
                    within(case, entries, PAIRS),
                    most=0.35,
                ),
            ]
    return found


def counts_for_aims(document: Document) -> bool:
    """Whether the case ran at its full size and all agree: anything else proves nothing."""
    defined = {case.name: case for case in cases.CASES}[document["case"]["name"]]
    size = ("rows", "triggers", "window", "results")
    return not document.get("disagreements") and all(
        document["case"][field] == getattr(defined, field) for field in size
    )
