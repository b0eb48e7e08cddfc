"""Figures 7, 8, 9 and 13: throughput, with and without a disk, and latency."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np

from thetastream.papers.bistream.data import QUERIES
from thetastream.papers.bistream.settings import (
    CPU,
    DISK,
    LINK,
    PAGE,
    busiest,
    label,
    largest_volume,
    simulation,
    spilling,
    volumes,
)
from thetastream.papers.figure import Figure, Finding, Outcome, at_least, at_most, ordered
from thetastream.simulator import Cluster, Counted, Trace, Turn

CONTESTANTS: Final = ("JM16", "JB8", "JB16", "JB16-CR4", "JB16-CR8")
GIGABYTES: Final = {10: 5, 80: 40, 320: 160}
"""Million tuples of each data set: the paper says only that 80 GB are more than JM16's 28 M and
less than JB8's 52 M of Q5; 40 M is the middle, and the others follow."""
STEP: Final = 5
"""Million tuples in a tick."""
JM16_FULL: Final = 28
"""Million tuples of Q5 at which JM16 is full: the one number that scales the axis."""
OTHER_DISKS: Final = (0.0001, 0.001, 0.004, DISK)
"""Seconds: a solid-state disk, a page cache that helps a little, a fast hard disk, and ours."""


@lru_cache(maxsize=1)
def _million() -> float:
    """Tuples here for a million there."""
    return largest_volume("Q5", "JM16", 4) / JM16_FULL


@lru_cache(maxsize=32)
def _growing(query: str, setting: str, millions: int, step: int = STEP) -> Trace:
    """Full history of growing volume, on units that go to a disk when they are full."""
    cluster = Cluster(epoch=1.0, cpu=CPU, network=LINK, memory=spilling())
    rows = int(millions * _million()) + 1
    running = simulation(query, setting, step * _million(), rows=rows, cluster=cluster)
    return running.run(millions / step)


def with_disk(seconds: float) -> Callable[[Turn], float]:
    """What a turn takes with a disk of another latency: the waits are in proportion to it."""
    return lambda turn: turn.cpu - turn.disk + turn.disk * seconds / DISK


def average(trace: Trace, ticks: int, cost: Callable[[Turn], float]) -> float:
    """Tuples per second over the first ticks, if the busiest unit never waits for tuples."""
    work: dict[object, float] = {}
    for turn in trace.turns:
        if turn.tick < ticks:
            work[turn.place] = work.get(turn.place, 0.0) + max(cost(turn), turn.transfer)
    return sum(rows for _, rows in trace.arrived[:ticks]) / max(work.values())


def contestants(query: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those that take part: buckets have no subgroups, so Band has one kind of them only."""
    return tuple(name for name in names if query != "Band" or name != "JB16-CR4")


def _first_spill(trace: Trace) -> float | None:
    """Million tuples that had come when a unit first went to its disk, if one did."""
    came = [came[turn.tick] for came in (volumes(trace),) for turn in trace.turns if turn.disk > 0]
    return min(came) / _million() if came else None


def reached(found: Callable[[str, str, int, float], float], ratio: float) -> float:
    """The latency of a disk with which JB16-CR8 is so many times ahead of JM16 at 80 GB."""
    low, high = 0.0, 10 * DISK
    for _ in range(40):
        middle = (low + high) / 2
        ahead = found("Q5", "JB16-CR8", 80, middle) / found("Q5", "JM16", 80, middle)
        low, high = (middle, high) if ahead < ratio else (low, middle)
    return high


def _real_time(quick: bool) -> Outcome:
    names = ("JM16", "JB8", "JB16-CR8") if quick else CONTESTANTS
    millions, step = (60, 20) if quick else (GIGABYTES[320], STEP)
    lines = {}
    for name in names:
        trace = _growing("Q5", name, millions, step)
        seconds = busiest(trace, lambda turn: turn.cpu)
        lines[name] = [
            (volume / _million(), rows / spent)
            for volume, (_, rows), spent in zip(volumes(trace), trace.arrived, seconds, strict=True)
        ]
    ahead = min(
        first[1] / other[1]
        for name in names
        if name != "JB16-CR8"
        for first, other in zip(lines["JB16-CR8"], lines[name], strict=True)
    )
    full = {name: largest_volume("Q5", name, 4) for name in ("JM16", "JB8")}
    spills = {name: _first_spill(_growing("Q5", name, millions, step)) for name in names}
    known = {name: at for name, at in spills.items() if at is not None}
    findings = [
        at_least(
            "JB16-CR8 is the fastest at every volume", ahead, 1.0, unit=" times the next at least"
        ),
        Finding(
            claim="JM16 is the first whose memory is full (28 M tuples)",
            found=", ".join(f"{name} {at:.0f} M" for name, at in known.items()),
            holds=all(known["JM16"] < at for name, at in known.items() if name != "JM16"),
            why="The volume at the end of the step in which a first unit goes to its disk.",
        ),
        Finding(
            claim="JB8, with half the units, takes 1.9 times the volume of JM16 (52 M)",
            found=f"{full['JB8'] / full['JM16']:.2f} times,"
            f" {JM16_FULL * full['JB8'] / full['JM16']:.0f} M",
            holds=1.75 <= full["JB8"] / full["JM16"] <= 2.15,
            why="Equations 1 and 2 give 2.",
        ),
    ]
    if not quick:
        early = {name: lines[name][0][1] for name in ("JB16-CR8", "JB16-CR4", "JB16")}
        findings.append(ordered("more subgroups, more throughput, in memory", early))
    return Outcome(
        findings=findings,
        series=lines,
        x_label="million tuples (JM16 is full at 28)",
        y_label="tuples per second",
        log_y=True,
        numbers={"first spill, million tuples": spills},
    )


def _by_volume(quick: bool) -> Outcome:
    queries = ("Q5",) if quick else QUERIES
    names = ("JM16", "JB8", "JB16-CR8") if quick else CONTESTANTS
    sizes = (10, 80) if quick else tuple(GIGABYTES)
    millions = GIGABYTES[sizes[-1]]

    def found(query: str, name: str, size: int, disk: float = DISK) -> float:
        trace = _growing(query, name, millions)
        return average(trace, GIGABYTES[size] // STEP, with_disk(disk))

    values = {
        (query, name, size): found(query, name, size)
        for query in queries
        for name in contestants(query, names)
        for size in sizes
    }
    findings = []
    for query in queries:
        findings += _about_query(query, values, contestants(query, names))
    ratios = {
        f"{1000 * disk:g} ms": found("Q5", "JB16-CR8", 80, disk) / found("Q5", "JM16", 80, disk)
        for disk in OTHER_DISKS
    }
    if not quick:
        findings += _between_queries(values)
    shown = ", ".join(f"{disk}: {ratio:,.0f}" for disk, ratio in ratios.items())
    about = f"Q5 at 80 GB, JB16-CR8 over JM16 with a disk that takes {shown}."
    why = (
        f"{about} How many orders of magnitude it is depends on the disk's latency against a"
        " tuple's CPU time, not on the models: 100 times would be a disk that takes"
        f" {1000 * reached(found, 100):.2f} ms for an access. The paper does not say how its units"
        " reach their disks."
    )
    for name, low, high, text in (
        ("JB16-CR8", 30, 300, "nearly two orders of magnitude"),
        ("JB8", 3, 30, "one order of magnitude"),
    ):
        ratio = values["Q5", name, 80] / values["Q5", "JM16", 80]
        findings.append(
            Finding(
                claim=f"Q5 at 80 GB: {name} is {text} above JM16",
                found=f"{ratio:,.0f} times",
                holds=low <= ratio <= high,
                why=why if name == "JB16-CR8" else "As before: it depends on the disk.",
            )
        )
    return Outcome(
        findings=findings,
        series={
            f"{query}, {label(query, name)}": [(size, values[query, name, size]) for size in sizes]
            for query in queries
            for name in contestants(query, names)
        },
        x_label="GB in the paper",
        y_label="tuples per second",
        log_x=True,
        log_y=True,
        numbers={
            "tuples per second": {
                f"{query}, {label(query, name)}, {size} GB": round(value)
                for (query, name, size), value in values.items()
            },
            "JB16-CR8 over JM16 at 80 GB, by disk": ratios,
        },
    )


def _about_query(
    query: str, values: dict[tuple[str, str, int], float], names: tuple[str, ...]
) -> list[Finding]:
    """What is claimed of each query alike."""
    content = [name for name in names if "-CR" in name]
    found = [
        at_least(
            f"{query} at 10 GB: content-sensitive routing is equal to JM16 or above",
            min(values[query, name, 10] for name in content) / values[query, "JM16", 10],
            0.95,
            unit=" times at least",
        ),
        at_least(
            f"{query} at 80 GB: JM16 is far behind all others",
            min(values[query, name, 80] for name in names if name != "JM16")
            / values[query, "JM16", 80],
            3.0,
            unit=" times JM16 at least",
        ),
    ]
    if "JB16" in names:
        pair = {name: values[query, name, 10] for name in ("JM16", "JB16")}
        found.append(ordered(f"{query} at 10 GB: JB16 with random routing is below JM16", pair))
        found.append(
            at_most(
                f"{query}: at 320 GB JB8 has fallen, too",
                values[query, "JB8", 320] / values[query, "JB8", 80],
                0.5,
                unit=" times its throughput at 80 GB",
            )
        )
    return found


def _between_queries(values: dict[tuple[str, str, int], float]) -> list[Finding]:
    """How the queries compare, in memory."""
    seven = [values["Q5", name, 10] / values["Q7", name, 10] for name in CONTESTANTS]
    both = contestants("Band", CONTESTANTS)
    band = [values["Band", name, 10] / values["Q5", name, 10] for name in both]
    return [
        Finding(
            claim="Q5 has about 1.5 times the throughput of Q7",
            found=f"{np.mean(seven):.2f} times on average, at 10 GB",
            holds=bool(1.25 <= np.mean(seven) <= 1.75),
            why="Filters are applied before the join, so both are the same equality join of streams"
            " that differ only in width and in matches; the paper gives no reason for the factor.",
        ),
        at_most(
            "Band is far below both",
            float(np.mean(band)),
            0.33,
            unit=" times Q5 on average, at 10 GB",
            why="Here both predicates are looked up in sorted runs: a band takes two searches, and"
            " so does an equality. The paper has hash maps for equalities and search trees for the"
            " rest, and names the dearer computation as its reason.",
        ),
    ]


SIGNALS: Final = 0.01
"""Seconds between two signals of the routers, as the paper suggests."""
SLOWER: Final = 20.0
"""Processors and links are so many times slower, and so are the rates: the same share of each tick
is work, with fewer tuples."""
LOAD: Final = 0.9
"""The share of its largest throughput at which a contestant runs."""
FIRST_RATE: Final = 40_000.0
"""Tuples per second of the run that finds the largest throughput."""


def _slow_cluster() -> Cluster:
    cpu = Counted(
        row=SLOWER * CPU.row,
        comparison=SLOWER * CPU.comparison,
        update=SLOWER * CPU.update,
        result=SLOWER * CPU.result,
    )
    network = replace(LINK, bandwidth=LINK.bandwidth / SLOWER)
    return Cluster(epoch=SIGNALS, cpu=cpu, network=network)


@lru_cache(maxsize=64)
def _timed(query: str, setting: str, rate: float, ticks: int) -> Trace:
    rows = int(rate * ticks * SIGNALS) + 100
    running = simulation(query, setting, rate, rows=rows, cluster=_slow_cluster())
    return running.run(ticks * SIGNALS)


def _latency(quick: bool) -> Outcome:
    queries = ("Q5",) if quick else QUERIES
    names = ("JM16", "JB16", "JB16-CR8") if quick else CONTESTANTS
    ticks = 4 if quick else 16
    after = SIGNALS * ticks / 2
    series: dict[str, list[tuple[float, ...]]] = {}
    boxes, findings, same = {}, [], {}
    for at, query in enumerate(queries, 1):
        chosen = contestants(query, names)
        # Full history grows dearer with every tuple: the second half is what counts.
        most = {name: _timed(query, name, FIRST_RATE, ticks).throughput(after) for name in chosen}
        own = {}
        for name in chosen:
            trace = _timed(query, name, LOAD * most[name], ticks)
            own[name] = 1000 * trace.delay(after)
            percents = np.percentile(1000 * trace.delays(after), (0, 25, 50, 75, 100))
            best, low, middle, high, worst = (round(float(one), 2) for one in percents)
            shown = label(query, name)
            boxes[f"{query}, {shown}"] = [best, low, middle, high, worst]
            series.setdefault(shown, []).append((at + names.index(name) / 10, middle, low, high))
        one_rate = {}
        if not quick:
            rate = LOAD * min(most.values())
            one_rate = {
                label(query, name): round(1000 * _timed(query, name, rate, ticks).delay(after), 2)
                for name in chosen
            }
            same[query] = one_rate
        findings += _about_latency(query, own, one_rate)
    return Outcome(
        findings=findings,
        series=series,
        x_label=", ".join(f"{at} {query}" for at, query in enumerate(queries, 1)),
        y_label="ms, median and quartiles",
        numbers={
            "best, 25 %, median, 75 %, worst in ms": boxes,
            "mean ms at one rate for all": same,
        },
    )


def _about_latency(query: str, own: dict[str, float], one_rate: dict[str, float]) -> list[Finding]:
    """What is claimed of each query alike."""
    others = [value for name, value in own.items() if name != "JB16"]
    level = ", ".join(f"{name} {value:.1f}" for name, value in one_rate.items())
    found = [
        Finding(
            claim=f"{query}: mean latencies are within 10 ms of each other",
            found=", ".join(f"{label(query, name)} {value:.1f} ms" for name, value in own.items()),
            holds=max(own.values()) - min(own.values()) <= 10,
        ),
        Finding(
            claim=f"{query}: JB16 is a little slower than the others",
            found=f"JB16 {own['JB16']:.2f} ms, the slowest other {max(others):.2f} ms",
            holds=own["JB16"] > max(others),
        ),
        Finding(
            claim=f"{query}: JB16-CR8 is faster than JM16",
            found=f"{label(query, 'JB16-CR8')} {own['JB16-CR8']:.2f} ms, JM16 {own['JM16']:.2f} ms",
            holds=own["JB16-CR8"] < own["JM16"],
        ),
    ]
    why = (
        "Each runs at the same share of its own largest rate: its busiest unit works as long in"
        " every tick, whatever the routing, and with random routing only the units of one stream"
        " are that busy, as the rates of the streams differ."
    )
    if level:
        why += f" At one rate for all, {LOAD:.0%} of the slowest one's largest, in ms: {level}."
    return [one if one.holds else replace(one, why=why) for one in found]


AGGREGATING: Final = replace(CPU, result=2 * CPU.result)
"""A result costs twice as much: it is found, and added to its group."""


@lru_cache(maxsize=32)
def _aggregated(query: str, setting: str, ticks: int, *, aggregate: bool) -> float:
    cluster = Cluster(epoch=1.0, cpu=AGGREGATING if aggregate else CPU, network=LINK)
    rate = 4000.0
    running = simulation(
        query, setting, rate, rows=int(rate * ticks), cluster=cluster, aggregate=aggregate
    )
    return running.run(ticks).throughput()


def _aggregation(quick: bool) -> Outcome:
    queries = ("Q5",) if quick else QUERIES
    names = ("JB16", "JB16-CR4")
    ticks = 2 if quick else 8
    series: dict[str, list[tuple[float, float]]] = {}
    findings = []
    for at, query in enumerate(queries, 1):
        ratios = {}
        for name in names:
            plain = _aggregated(query, name, ticks, aggregate=False)
            summed = _aggregated(query, name, ticks, aggregate=True)
            shown = label(query, name)
            series.setdefault(f"{shown}, without", []).append((at, plain))
            series.setdefault(f"{shown}, with", []).append((at, summed))
            ratios[shown] = summed / plain
        listed = ", ".join(f"{name} {ratio:.3f}" for name, ratio in ratios.items())
        findings.append(
            Finding(
                claim=f"{query}: nearly the same throughput with aggregates",
                found=f"with aggregates over without: {listed}",
                holds=all(ratio >= 0.9 for ratio in ratios.values()),
                why="Adding a result to its group is counted as much as finding it.",
            )
        )
    return Outcome(
        findings=findings,
        series=series,
        x_label=", ".join(f"{at} {query}" for at, query in enumerate(queries, 1)),
        y_label="tuples per second",
    )


_DISK_TEXT: Final = (
    f" A full unit goes to a hard disk, {1000 * DISK:.1f} ms for each access, with the probability"
    " that a tuple is not in memory."
)

FIGURES: Final = (
    Figure(
        name="bistream-7",
        paper=PAGE,
        number="figure 7",
        title="throughput while the volume grows, Q5",
        setting="Full history, in steps of 5 M tuples up to 160 M. The axis is scaled by one"
        f" number: JM16 is full at 28 M tuples.{_DISK_TEXT}",
        run=_real_time,
    ),
    Figure(
        name="bistream-8",
        paper=PAGE,
        number="figure 8",
        title="average throughput at 10, 80 and 320 GB",
        setting="Full history of 5, 40 and 160 M tuples for 10, 80 and 320 GB of benchmark data:"
        " the paper gives no tuples, but 80 GB lies between JM16's 28 M and JB8's 52 M, and 40 M is"
        f" the middle. Scaled as in figure 7.{_DISK_TEXT} For Band, whose predicate has no key to"
        " hash, buckets of the order key stand for ContRand, the same for CR4 and CR8.",
        run=_by_volume,
    ),
    Figure(
        name="bistream-9",
        paper=PAGE,
        number="figure 9",
        title="latency",
        setting=f"Full history in memory; signals every {1000 * SIGNALS:.0f} ms; each contestant at"
        f" {LOAD:.0%} of its own largest throughput. Processors, links and rates are"
        f" {SLOWER:.0f} times slower. Band has buckets in place of ContRand.",
        run=_latency,
    ),
    Figure(
        name="bistream-13",
        paper=PAGE,
        number="figure 13",
        title="throughput with and without aggregation",
        setting="Full history in memory, JB16 and JB16-CR4; sums by nation (Q5), by nation and year"
        " (Q7), count, least and greatest by nation (Band, with buckets in place of ContRand).",
        run=_aggregation,
    ),
)
