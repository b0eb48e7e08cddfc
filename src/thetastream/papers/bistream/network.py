"""Figures 11, 14, 18 and 19, and the equations: what is sent, and what is stored."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Final

from thetastream.options import JoinOptions
from thetastream.papers.bistream.data import PREDICATES, QUERIES, streams, tuple_bytes
from thetastream.papers.bistream.settings import (
    CAPACITY,
    CPU,
    LINK,
    PAGE,
    SEED,
    Setting,
    label,
    simulation,
)
from thetastream.papers.figure import Figure, Finding, Outcome, at_most, ordered
from thetastream.simulator import Cluster, Simulation, Trace

FOUR_PARTITIONS: Final = ("JB8", "JM16", "JB8-CR2", "JB8-CR4")
RATES: Final = {
    "Q5": (4_000, 20_000, 40_000, 60_000),
    "Q7": (10_000, 20_000, 30_000, 40_000, 50_000),
    "Band": (200, 600, 1_000, 1_600),
}
"""Tuples per second of both streams together, as in the paper."""
SECONDS: Final = {"Q5": 1.0, "Q7": 1.0, "Band": 20.0}
"""How long a run is."""


def biclique_bandwidth(
    sigma: tuple[float, float], sides: tuple[int, int], groups: tuple[int, int]
) -> float:
    """Equation 5: bytes per second to all units of a biclique.

    >>> biclique_bandwidth((100.0, 100.0), (4, 4), (2, 2))
    600.0
    """
    (m, n), (d, e) = sides, groups
    return (n / e + 1) * sigma[0] + (m / d + 1) * sigma[1]


def matrix_bandwidth(sigma: tuple[float, float], sides: tuple[int, int]) -> float:
    """Equation 6: bytes per second to all units of a matrix.

    >>> matrix_bandwidth((100.0, 100.0), (4, 4))
    800.0
    """
    return sides[1] * sigma[0] + sides[0] * sigma[1]


@lru_cache(maxsize=64)
def _sent(query: str, setting: str, rate: float, seconds: float) -> tuple[float, float]:
    """Bytes per second that were sent to the units, and what the equation says."""
    cluster = Cluster(epoch=seconds / 2, cpu=CPU, network=LINK)
    rows = int(rate * seconds) + 100
    trace = simulation(query, setting, rate, rows=rows, cluster=cluster).run(seconds)
    chosen, both = Setting(setting), streams(query, rows)
    # The rates that came: arrivals are random.
    came = trace.rows() / seconds / rate
    sigma = tuple(
        tuple_bytes(table) * one * came
        for table, one in zip((both.r, both.s), both.rates(rate), strict=True)
    )
    sides = (chosen.side, chosen.side)
    groups = (chosen.subgroups, chosen.subgroups)
    if query == "Band" and chosen.subgroups > 1:
        # Buckets: a tuple goes where its bucket is stored, and seldom to a second unit.
        groups = sides
    pair = (sigma[0], sigma[1])
    said = (
        matrix_bandwidth(pair, sides) if chosen.matrix else biclique_bandwidth(pair, sides, groups)
    )
    return trace.bytes() / seconds, said


def _bandwidth(query: str, number: str) -> Figure:
    def run(quick: bool) -> Outcome:
        rates = RATES[query][-1:] if quick else RATES[query]
        seconds = SECONDS[query] * (0.1 if quick else 1.0)
        names = [one for one in FOUR_PARTITIONS if query != "Band" or one != "JB8-CR2"]
        found = {
            (name, rate): _sent(query, name, rate, seconds) for name in names for rate in rates
        }
        off = max(abs(sent / said - 1) for sent, said in found.values())
        top = {name: found[name, rates[-1]][0] / 1e6 for name in names}
        content = [name for name in names if "-CR" in name]
        findings = [
            ordered(
                "JB8 with random routing sends most, more than JM16 (MB/s)",
                {"JB8": top["JB8"], "JM16": top["JM16"]},
            ),
            ordered(
                "content-sensitive routing sends less than JB8"
                + (", CR4 less than CR2 (MB/s)" if len(content) > 1 else " (MB/s)"),
                {label(query, name): top[name] for name in ("JB8", *content)},
            ),
            at_most(
                "equations 5 and 6 give the bandwidth",
                100 * off,
                3,
                unit=" % off at most",
                why="For buckets, equation 5 with as many subgroups as units: a tuple near the edge"
                " of its bucket is sent to two."
                if query == "Band"
                else "",
            ),
        ]
        series = {
            label(query, name): [(rate, found[name, rate][0] / 1e6) for rate in rates]
            for name in names
        } | {
            f"{label(query, name)}, equation": [
                (rate, found[name, rate][1] / 1e6) for rate in rates
            ]
            for name in names
        }
        return Outcome(
            findings=findings,
            series=series,
            x_label="input tuples per second",
            y_label="MB/s to all units",
        )

    more = (
        " A band has no key to hash: buckets of the order key stand for ContRand with 4 subgroups,"
        " and there is nothing to stand for CR2."
        if query == "Band"
        else ""
    )
    return Figure(
        name=f"bistream-{number}",
        paper=PAGE,
        number=f"figure {number}",
        title=f"bandwidth against input rate, {query}",
        setting="Four partitions of each relation, the paper's own rates,"
        f" {SECONDS[query]:g} s each; the bytes are those of the packs that are sent.{more}",
        run=run,
    )


MERGER_RATES: Final = {"Q5": 450_000, "Q7": 270_000, "Band": 9_000}
"""Tuples per second, as in the paper."""
MERGER_SCALE: Final = 10
"""The rates are divided by this."""
SIGNALS: Final = 0.1
"""Seconds: as many tuples come between two signals as in 10 ms at the paper's rates."""
BATCHES: Final = 10
"""Signals after which the units send their views, if they update in batches."""
STRATEGIES: Final = ("each result", "each signal", f"each {BATCHES} signals")


@lru_cache(maxsize=32)
def _to_merger(query: str, strategy: str, ticks: int) -> tuple[float, int]:
    """Bytes per second from the units to the merger, and the results of the join."""
    setting = Setting("JB16-CR4")
    options = setting.options(query, update_batches=BATCHES if strategy == STRATEGIES[2] else 1)
    if strategy == STRATEGIES[0]:
        options = dataclasses.replace(options, aggregation="enumerate")
    rate = MERGER_RATES[query] / MERGER_SCALE
    cluster = Cluster(epoch=SIGNALS, cpu=CPU, network=LINK)
    rows = int(rate * ticks * SIGNALS) + 100
    trace = simulation(
        query, setting.name, rate, rows=rows, cluster=cluster, aggregate=True, options=options
    ).run(ticks * SIGNALS)
    return sum(turn.out_bytes for turn in trace.turns) / trace.seconds, trace.results()


def _merger(quick: bool) -> Outcome:
    queries = ("Q5",) if quick else QUERIES
    ticks = BATCHES if quick else 3 * BATCHES
    series: dict[str, list[tuple[float, float]]] = {one: [] for one in STRATEGIES}
    findings = []
    for at, query in enumerate(queries, 1):
        found = {one: _to_merger(query, one, ticks)[0] / 1e3 for one in STRATEGIES}
        results = _to_merger(query, STRATEGIES[0], ticks)[1]
        for one, value in found.items():
            series[one].append((at, value))
        shown = ", ".join(f"{one} {value:.3g}" for one, value in found.items())
        findings.append(
            Finding(
                claim=f"{query}: views that are updated in batches greatly lower the bandwidth to"
                " the merger (here: to a third of that of single results, or less)",
                found=f"kB/s, sent at {shown}",
                holds=found[STRATEGIES[2]] <= found[STRATEGIES[0]] / 3,
                why="A group is sent once for each update, however many results it has: there were"
                f" {results:,} results in all. Where a group has hardly one in a unit between two"
                " updates there is nothing to put together, and a row of a view may be wider than a"
                " result.",
            )
        )
    return Outcome(
        findings=findings,
        series=series,
        x_label=", ".join(f"{at} {query}" for at, query in enumerate(queries, 1)),
        y_label="kB/s to the merger",
        log_y=True,
    )


SHAPES: Final = ((2, 2), (4, 4), (2, 6), (6, 2))
ROWS: Final = 40_000


@lru_cache(maxsize=32)
def _stored(matrix: bool, sides: tuple[int, int], rows: int) -> Trace:
    """Q5, full history, stored in four ticks."""
    options = JoinOptions(topology="matrix" if matrix else "random", units=sides, full_history=True)
    both = streams("Q5", rows)
    running = Simulation(
        both.sources(rows / 4),
        PREDICATES["Q5"],
        options=options,
        cluster=Cluster(epoch=1.0, cpu=CPU, network=LINK),
        separate=not matrix,
        seed=SEED,
    )
    return running.run(4.0)


def _kept(trace: Trace, stream: str) -> dict[int, int]:
    """Bytes of a stream in each unit at the end."""
    last = max(turn.tick for turn in trace.turns)
    return {turn.unit: dict(turn.kept).get(stream, 0) for turn in trace.turns if turn.tick == last}


def gain_ratio(capacity: float, replicas: float) -> float:
    """Equations 3 and 4: the share of a new unit's memory that is not filled with replicas.

    >>> gain_ratio(100.0, 25.0)
    0.75
    """
    return 1 - replicas / capacity


def _equations(quick: bool) -> Outcome:
    rows = 10_000 if quick else ROWS
    shapes = SHAPES[:1] if quick else SHAPES
    base = _stored(False, (1, 1), rows)
    size = {stream: sum(_kept(base, stream).values()) for stream in "rs"}
    jb, jm = {}, {}
    for m, n in shapes:
        jb[m, n] = sum(sum(_kept(_stored(False, (m, n), rows), one).values()) for one in "rs")
        jm[m, n] = sum(sum(_kept(_stored(True, (m, n), rows), one).values()) for one in "rs")
    flat = max(abs(value / sum(size.values()) - 1) for value in jb.values())
    said = {(m, n): n * size["r"] + m * size["s"] for m, n in shapes}
    grown = max(abs(jm[one] / said[one] - 1) for one in shapes)
    gains, equations, replicas = {}, {}, 0
    for m, n in shapes:
        # A new row takes the replicas of S that each unit of its column holds, a new column of R.
        matrix, biclique = _stored(True, (m, n), rows), _stored(False, (m, n), rows)
        for new, other, parts in (("R", "s", n), ("S", "r", m)):
            held = _kept(matrix, other).values()
            name = f"{m} by {n}, {new}"
            gains[name] = gain_ratio(CAPACITY, sum(held) / len(held))
            equations[name] = gain_ratio(CAPACITY, size[other] / parts)
        replicas += sum(list(_kept(biclique, "s").values())[:m])
        replicas += sum(list(_kept(biclique, "r").values())[m:])
    off = max(abs(gains[name] - equations[name]) for name in gains)
    tolerance = 20 if quick else 10
    return Outcome(
        findings=[
            at_most(
                "equation 1: a biclique stores each tuple once, however many units there are",
                100 * flat,
                tolerance,
                unit=" % off at most",
                why="What differs is what each index takes beside its tuples.",
            ),
            at_most(
                "equation 2: a matrix stores R in n and S in m copies",
                100 * grown,
                tolerance,
                unit=" % off at most",
            ),
            at_most(
                "equations 3 and 4: of a new unit of a matrix, the replicas that it needs are lost",
                off,
                0.05,
                unit=" off the ratio at most",
            ),
            Finding(
                claim="a new unit of a biclique needs no replicas: its ratio is 1",
                found=f"{replicas} bytes of the other stream in any unit",
                holds=replicas == 0,
            ),
        ],
        series={
            "biclique": [(at, jb[one] / 1e6) for at, one in enumerate(shapes, 1)],
            "equation 1": [(at, sum(size.values()) / 1e6) for at, _ in enumerate(shapes, 1)],
            "matrix": [(at, jm[one] / 1e6) for at, one in enumerate(shapes, 1)],
            "equation 2": [(at, said[one] / 1e6) for at, one in enumerate(shapes, 1)],
        },
        x_label=", ".join(f"{at}: {m} and {n}" for at, (m, n) in enumerate(shapes, 1)),
        y_label="MB stored in all units",
        numbers={"gain ratio": gains, "equations 3 and 4": equations},
    )


FIGURES: Final = (
    _bandwidth("Q5", "11"),
    _bandwidth("Q7", "18"),
    _bandwidth("Band", "19"),
    Figure(
        name="bistream-14",
        paper=PAGE,
        number="figure 14",
        title="bandwidth to the merger",
        setting=f"JB16-CR4, full history, the paper's rates divided by {MERGER_SCALE}; signals"
        f" every {1000 * SIGNALS:.0f} ms, so that as many tuples come between two of them as in"
        " 10 ms there. Units send each result, or their views at each signal, or at each"
        f" {BATCHES} signals. Band has buckets in place of ContRand.",
        run=_merger,
    ),
    Figure(
        name="bistream-equations",
        paper=PAGE,
        number="equations 1 to 4",
        title="memory and the gain of a new unit",
        setting=f"Q5, {ROWS:,} tuples of full history, partitions m and n of both models; tuple"
        " sizes are those of one unit for each stream. A unit's capacity is that of the other"
        " figures.",
        run=_equations,
    ),
)
