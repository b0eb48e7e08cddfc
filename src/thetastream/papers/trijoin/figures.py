"""The figures of TriJoin's evaluation, and what is claimed about each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from thetastream.papers.figure import Figure, Finding, Outcome, Paper, ordered
from thetastream.papers.trijoin import packing
from thetastream.papers.trijoin.compare import (
    JOINS,
    POINTS,
    Latencies,
    higher,
    latencies,
    latency_findings,
    throughput_findings,
    throughputs,
)
from thetastream.papers.trijoin.runs import (
    PERIOD,
    RATE,
    SLOWER,
    WINDOW,
    Setting,
    Wait,
    delays,
    first_done,
    mean_delay,
    ready,
    run,
)
from thetastream.papers.trijoin.streams import Data, Join

FEW: Final = 36
"""Instances where nothing is said about their number."""
INSTANCES: Final = (36, 96, 180)
PERIODS: Final = (0.05, 0.1, 0.2, 0.3)
WINDOWS: Final = (0.3, 0.6, 1.2)
HEAVY: Final = 5
"""So many times the usual costs show what the latency of busier units is."""
SPARSE: Final = 0.5
"""Partners of a tuple where the tree has less to send than TriJoin."""


def _base(quick: bool) -> Setting:
    """Quick runs have fewer units and a shorter window."""
    base = Setting(join="cyclic", system="TriJoin", instances=FEW)
    return replace(base, instances=12, window=0.2, seconds=0.4) if quick else base


def _long(quick: bool) -> Setting:
    return replace(_base(quick), seconds=0.6 if quick else 2.4)


# -- figure 2 ---------------------------------------------------------------------------------


def waiting(setting: Setting, wait: Wait) -> tuple[float, float, float]:
    """Mean seconds of a result of the tree: until its own signal, until what the first join found
    can be joined, and until it is found then."""
    tree = replace(setting, system="BiStream+Tree")
    trace = run(tree)
    done = first_done(trace)
    count = waited = joined = 0.0
    for turn in trace.since(setting.window + 1e-9):
        if turn.join:
            begin = ready(done[turn.tick], turn.closed, setting.period, wait)
            count += turn.delays
            waited += turn.delays * (begin - turn.closed)
            # Results come all along a turn, half of them in its first half.
            joined += turn.delays * (turn.transfer + turn.cpu / 2)
    waited, joined = waited / count, joined / count
    return mean_delay(tree, wait) - waited - joined, waited, joined


def figure_2(quick: bool) -> Outcome:
    """What a tuple of T waits for in the tree."""
    setting = _base(quick)
    found = {wait: waiting(setting, wait) for wait in (Wait.IN_STEP, Wait.APART, Wait.ARRIVAL)}
    own, waited, joined = found[Wait.IN_STEP]
    share = {wait: 100 * parts[1] / sum(parts) for wait, parts in found.items()}
    others = ", ".join(f"{share[wait]:.0f} % with {wait}" for wait in (Wait.APART, Wait.ARRIVAL))
    ratio, alone = (
        100 * found[wait][1] / sum(found[wait][1:]) for wait in (Wait.IN_STEP, Wait.ARRIVAL)
    )
    names = ("until its own signal", "for results of the first join", "to be joined")
    return Outcome(
        findings=[
            Finding(
                claim="a tuple of T waits for most of its latency, and is joined for little of it",
                found=f"{share[Wait.IN_STEP]:.0f} % of {1000 * (own + waited + joined):.0f} ms"
                f" it waits for results of the first join, with {Wait.IN_STEP};"
                f" {100 * own / (own + waited + joined):.0f} % for its own signal",
                holds=share[Wait.IN_STEP] > 50,
                why=f"It hangs on the signals: {others}",
            ),
            Finding(
                claim="from its signal on, a tuple of T waits longer than it is joined",
                found=f"{ratio:.0f} % of that time it waits, with {Wait.IN_STEP}",
                holds=waited > joined,
                why=f"Without signals between the joins it is {alone:.0f} %: of what the tree adds,"
                " nearly all is waiting for a signal, hardly any for the first join's work",
            ),
        ],
        series={
            name: [(at, 1000 * parts[part]) for at, parts in enumerate(found.values(), 1)]
            for part, name in enumerate(names)
        },
        x_label="1: signals in step, 2: half a period apart, 3: no signals between the joins",
        y_label="milliseconds",
        numbers={
            str(wait): {
                name: round(1000 * value, 2) for name, value in zip(names, parts, strict=True)
            }
            for wait, parts in found.items()
        },
    )


# -- figures 10 to 13: over time -----------------------------------------------------------------


def latency_over_time(join: Join, claimed: float) -> Callable[[bool], Outcome]:
    """Figures 10 and 12."""

    def outcome(quick: bool) -> Outcome:
        setting = replace(_long(quick), join=join)
        found = latencies([(setting.instances, setting)], join)
        tree = replace(setting, system="BiStream+Tree")
        heavy = latencies([(0.0, replace(_base(quick), slower=HEAVY * SLOWER))], join).numbers()
        lines = {
            "TriJoin": delays(setting),
            **({"TriJoin, packs wait": delays(setting, Wait.PACKS)} if join == "chain" else {}),
            **{f"BiStream+Tree, {wait}": delays(tree, wait) for wait in found.tree},
        }
        return Outcome(
            findings=latency_findings(found, claimed),
            series={
                name: [
                    ((tick + 1) * setting.period, 1000 * total / count)
                    for tick, (count, total) in sums.items()
                    if count
                ]
                for name, sums in lines.items()
            },
            x_label="seconds",
            y_label="latency, milliseconds",
            numbers={
                **found.numbers(),
                **{f"{name}, all costs {HEAVY} times as high": x for name, x in heavy.items()},
            },
        )

    return outcome


def throughput_over_time(join: Join, claimed: float) -> Callable[[bool], Outcome]:
    """Figures 11 and 13."""

    def outcome(quick: bool) -> Outcome:
        setting = replace(_long(quick), join=join)
        series = {}
        for system in ("TriJoin", "BiStream+Tree"):
            trace = run(replace(setting, system=system))
            busiest: dict[int, float] = {}
            for turn in trace.turns:
                busiest[turn.tick] = max(busiest.get(turn.tick, 0.0), turn.cpu, turn.transfer)
            series[system] = [
                (closed, rows / busiest[tick]) for tick, (closed, rows) in enumerate(trace.arrived)
            ]
        return Outcome(
            findings=throughput_findings([(setting.instances, setting)], join, claimed),
            series=series,
            x_label="seconds",
            y_label="tuples per second that the busiest unit could take",
        )

    return outcome


# -- figures 14 to 17, 20 and 21: over a parameter --------------------------------------------


def _parallelisms(quick: bool, data: Data = "gps") -> list[tuple[float, Setting]]:
    counts = (12, 24) if quick else INSTANCES
    return [(n, replace(_base(quick), instances=n, data=data)) for n in counts]


def _periods(quick: bool) -> list[tuple[float, Setting]]:
    base = _base(quick)
    seconds = 0.6 if quick else 1.2
    return [
        (1000 * period, replace(base, period=period, seconds=seconds))
        for period in (PERIODS[1:3] if quick else PERIODS)
    ]


def _windows(quick: bool) -> list[tuple[float, Setting]]:
    return [
        (window, replace(_base(quick), window=window, seconds=window + (0.2 if quick else 0.4)))
        for window in ((0.2, 0.3) if quick else WINDOWS)
    ]


def _latency_outcome(
    points: Sequence[tuple[float, Setting]],
    x_label: str,
    claims: dict[Join, float],
    more: str = "",
) -> tuple[Outcome, dict[Join, Latencies]]:
    found = {join: latencies(points, join) for join in JOINS}
    outcome = Outcome(
        findings=[
            one
            for join in JOINS
            for one in latency_findings(found[join], claims[join], where=", on average", more=more)
        ],
        series={name: line for join in JOINS for name, line in found[join].series().items()},
        x_label=x_label,
        y_label="latency, milliseconds",
        numbers={name: value for join in JOINS for name, value in found[join].numbers().items()},
    )
    return outcome, found


def latency_over_instances(
    data: Data, average: dict[Join, float], most: dict[Join, float]
) -> Callable[[bool], Outcome]:
    """Figures 14 and 21."""

    def outcome(quick: bool) -> Outcome:
        more = (
            ". The paper's gain grows with the instances; here it does not, as units have little to"
            " do at any number of them, and all of them wait as long"
        )
        found, by_join = _latency_outcome(_parallelisms(quick, data), "instances", average, more)
        for join in JOINS:
            last = len(by_join[join].points) - 1
            found.findings += latency_findings(by_join[join], most[join], at=last)
        return found

    return outcome


def _throughput_outcome(
    points: Sequence[tuple[float, Setting]],
    x_label: str,
    claims: dict[Join, float],
    more: dict[Join, str] | None = None,
) -> Outcome:
    series = {}
    for join in JOINS:
        for name, values in zip(
            ("TriJoin", "BiStream+Tree"), throughputs(points, join), strict=True
        ):
            series[f"{name}, {join}"] = [
                (x, value) for (x, _), value in zip(points, values, strict=True)
            ]
    return Outcome(
        findings=[
            one
            for join in JOINS
            for one in throughput_findings(
                points, join, claims[join], where=", on average", more=(more or {}).get(join, "")
            )
        ],
        series=series,
        x_label=x_label,
        y_label="tuples per second that the busiest unit could take",
    )


def figure_15(quick: bool) -> Outcome:
    """Throughput over instances; and where it is the other way round."""
    sparse = [(0.0, replace(_base(quick), partners=SPARSE))]
    gains = {join: higher(*throughputs(sparse, join)) for join in JOINS}
    more: dict[Join, str] = {
        join: f". With {SPARSE} partners of a tuple in place of 4, TriJoin's throughput is"
        f" {abs(gain):.0f} % {'higher' if gain > 0 else 'lower'}"
        for join, gain in gains.items()
    }
    found = _throughput_outcome(_parallelisms(quick), "instances", {"cyclic": 8, "chain": 14}, more)
    found.numbers = {
        f"{join}, with {SPARSE} partners of a tuple: per cent higher": round(gain, 1)
        for join, gain in gains.items()
    }
    return found


def figure_16(quick: bool) -> Outcome:
    """Latency over signal periods."""
    found, by_join = _latency_outcome(
        _periods(quick), "signal period, milliseconds", {"cyclic": 68, "chain": 31}
    )
    for join in JOINS:
        for name, values in (
            ("TriJoin", by_join[join].trijoin),
            ("BiStream+Tree", by_join[join].tree[Wait.IN_STEP]),
        ):
            found.findings.append(
                ordered(
                    f"{join} join, {name}: the longer the period, the higher the latency",
                    {
                        f"{x:.0f} ms:": 1000 * value
                        for x, value in reversed(
                            list(zip(by_join[join].points, values, strict=True))
                        )
                    },
                )
            )
    return found


def figure_17(quick: bool) -> Outcome:
    """Throughput over signal periods."""
    return _throughput_outcome(
        _periods(quick), "signal period, milliseconds", {"cyclic": 14, "chain": 18}
    )


def figure_20(quick: bool) -> Outcome:
    """Latency over windows."""
    return _latency_outcome(_windows(quick), "window, seconds", {"cyclic": 65, "chain": 44})[0]


# -- the paper --------------------------------------------------------------------------------


_USUAL = (
    f"Three GPS-like streams of {RATE:.0f} tuples/s each, a window of {WINDOW} s, a signal each"
    f" {1000 * PERIOD:.0f} ms, {FEW} instances"
)
_SAME_UNITS = "TriJoin has them in three groups, the tree in four of the same size."


def _figure(number: str, title: str, setting: str, run: Callable[[bool], Outcome]) -> Figure:
    return Figure(
        name=f"trijoin-{number}",
        paper="trijoin",
        number=f"figure {number}",
        title=title,
        setting=setting,
        run=run,
    )


PAPER = Paper(
    name="trijoin",
    title="TriJoin",
    about=(
        "Three-way band joins: a cyclic join of three bands, which TriJoin runs in the symmetric"
        " scheme, and a chain of two, in the semi-symmetric one; against a tree of two BiStreams on"
        " as many units. Positions and packets lie around hot spots; a tuple meets about 4 (GPS) or"
        " 2 (packets) of another stream's in the window. The paper gives neither rates nor costs;"
        f" here rates and windows are small, and all costs are {SLOWER} times those of a compiled"
        " engine, the same for both systems. A tuple waits for"
        " the next signal of its router; latency is from the arrival of a result's newest member."
        " Units have little to do here (a tenth of the time or so), so that latency is almost all"
        " waiting: half a period for TriJoin. What the tree adds hangs on when its second join gets"
        " its signals. If both joins get them at the same times, as from one router, intermediate"
        " results have just missed one and wait a whole period: 1.5 against 0.5 periods is 67 %,"
        " and this is what the paper's numbers agree with. If the two routers know nothing of each"
        " other they wait half a period on average, and the gain is 50 %. If the second join waits"
        " for no signal but only until the first has done with the batch, little of the gain is"
        " left. Each figure is judged by the first and says what the other two give. A claimed"
        f" number of per cent holds if it is met within {POINTS:.0f} points."
    ),
    figures=(
        _figure(
            "2",
            "What a tuple of T waits for in the tree",
            f"{_USUAL}, cyclic join, BiStream+Tree. The parts of the latency of a result.",
            figure_2,
        ),
        _figure(
            "10",
            "Latency of the cyclic join over time",
            f"{_USUAL}. {_SAME_UNITS}",
            latency_over_time("cyclic", 63),
        ),
        _figure(
            "11",
            "Throughput of the cyclic join over time",
            f"{_USUAL}. {_SAME_UNITS} Throughput is that at which the busiest unit has no rest.",
            throughput_over_time("cyclic", 7),
        ),
        _figure(
            "12",
            "Latency of the chain join over time",
            f"{_USUAL}. {_SAME_UNITS}",
            latency_over_time("chain", 45),
        ),
        _figure(
            "13",
            "Throughput of the chain join over time",
            f"{_USUAL}. {_SAME_UNITS} Throughput is that at which the busiest unit has no rest.",
            throughput_over_time("chain", 15),
        ),
        _figure(
            "14",
            "Latency over instances",
            f"{_USUAL[: _USUAL.rindex(',')]}, {', '.join(map(str, INSTANCES))} instances."
            f" {_SAME_UNITS}",
            latency_over_instances("gps", {"cyclic": 51, "chain": 26}, {"cyclic": 65, "chain": 47}),
        ),
        _figure(
            "15",
            "Throughput over instances",
            "The runs of figure 14. Throughput is that at which the busiest unit has no rest.",
            figure_15,
        ),
        _figure(
            "16",
            "Latency over signal periods",
            f"As figure 10, with periods from {1000 * PERIODS[0]:.0f} to {1000 * PERIODS[-1]:.0f}"
            " ms.",
            figure_16,
        ),
        _figure(
            "17",
            "Throughput over signal periods",
            "The runs of figure 16. Throughput is that at which the busiest unit has no rest.",
            figure_17,
        ),
        _figure("18", packing.title("cyclic"), packing.SETTING, packing.figure("cyclic", 71)),
        _figure("19", packing.title("chain"), packing.SETTING, packing.figure("chain", 66)),
        _figure(
            "20",
            "Latency over windows",
            f"As figure 10, with windows of {', '.join(map(str, WINDOWS))} s.",
            figure_20,
        ),
        _figure(
            "21",
            "Latency over instances, packets",
            "As figure 14, with packet-like streams: a fifth of the spots have half of the tuples.",
            latency_over_instances(
                "packets", {"cyclic": 51, "chain": 29}, {"cyclic": 60, "chain": 44}
            ),
        ),
    ),
)
