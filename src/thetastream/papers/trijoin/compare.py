"""TriJoin beside the tree: by how much latency is lower and throughput higher, as findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from thetastream.papers.figure import Finding
from thetastream.papers.trijoin.runs import RATE, Setting, Wait, mean_delay, run, throughput
from thetastream.papers.trijoin.streams import Join

POINTS: Final = 10.0
"""A claimed number of per cent holds if what is found is no more than so many points away."""
JOINS: Final[tuple[Join, Join]] = ("cyclic", "chain")
TREE_WAITS: Final = (Wait.IN_STEP, Wait.APART, Wait.ARRIVAL)


def lower(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Per cent by which the mean of ours is below that of theirs."""
    return 100 * (1 - sum(ours) / sum(theirs)) if sum(theirs) else 0.0


def higher(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Per cent by which the mean of ours is above that of theirs."""
    return 100 * (sum(ours) / sum(theirs) - 1) if sum(theirs) else 0.0


@dataclass(frozen=True)
class Latencies:
    """Of one join, at each point of a figure."""

    join: Join
    points: tuple[float, ...]
    trijoin: tuple[float, ...]
    packs: tuple[float, ...]
    """If packs wait for a signal as well."""
    tree: dict[Wait, tuple[float, ...]]

    def gain(
        self, wait: Wait = Wait.IN_STEP, at: int | None = None, *, packs: bool = False
    ) -> float:
        """Per cent by which TriJoin's latency is lower, over all points or at one."""
        ours, theirs = self.packs if packs else self.trijoin, self.tree[wait]
        chosen = slice(None) if at is None else slice(at, at + 1)
        return lower(ours[chosen], theirs[chosen])

    def series(self) -> dict[str, list[tuple[float, float]]]:
        """The lines of the plot, in milliseconds."""
        lines = {f"TriJoin, {self.join}": self.trijoin}
        if self.join == "chain":
            lines["TriJoin, chain, packs wait for signals"] = self.packs
        lines[f"BiStream+Tree, {self.join}"] = self.tree[Wait.IN_STEP]
        return {
            name: [(x, 1000 * y) for x, y in zip(self.points, values, strict=True)]
            for name, values in lines.items()
        }

    def numbers(self) -> dict[str, float]:
        """By how much it is lower under each rule, in per cent."""
        found = {f"{self.join}, {wait}": self.gain(wait) for wait in TREE_WAITS}
        if self.join == "chain":
            for wait in TREE_WAITS[:2]:
                found[f"chain, {wait}, packs wait as well"] = self.gain(wait, packs=True)
        return {name: round(value, 1) for name, value in found.items()}


def latencies(points: Sequence[tuple[float, Setting]], join: Join) -> Latencies:
    """Of TriJoin and of the tree, under all rules."""
    ours = [replace(setting, join=join, system="TriJoin") for _, setting in points]
    theirs = [replace(setting, join=join, system="BiStream+Tree") for _, setting in points]
    return Latencies(
        join=join,
        points=tuple(x for x, _ in points),
        trijoin=tuple(mean_delay(one) for one in ours),
        packs=tuple(mean_delay(one, Wait.PACKS) for one in ours),
        tree={wait: tuple(mean_delay(one, wait) for one in theirs) for wait in TREE_WAITS},
    )


def latency_findings(
    found: Latencies, claimed: float, *, where: str = "", at: int | None = None, more: str = ""
) -> list[Finding]:
    """Whether it is lower everywhere, and by as much as claimed; `more` is said where the reason
    is."""
    findings = []
    name = f"{found.join} join{where}"
    if at is None:
        pairs = list(zip(found.trijoin, found.tree[Wait.IN_STEP], strict=True))
        shown = ", ".join(f"{1000 * a:.0f} against {1000 * b:.0f} ms" for a, b in pairs)
        findings.append(
            Finding(
                claim=f"{name}: TriJoin's results are there sooner than the tree's",
                found=shown,
                holds=all(a < b for a, b in pairs),
            )
        )
    else:
        name += f", {found.points[at]:.0f} instances"
    others = ", ".join(f"{found.gain(wait, at):.0f} % with {wait}" for wait in TREE_WAITS[1:])
    gain = found.gain(at=at)
    at_once = ", packs are joined at once as the text has it" if found.join == "chain" else ""
    findings.append(
        Finding(
            claim=f"{name}: latency {claimed:.0f} % lower",
            found=f"{gain:.0f} % lower with {Wait.IN_STEP}{at_once}",
            holds=abs(gain - claimed) <= POINTS,
            why=f"It hangs on when the second join of the tree gets its signals: {others}{more}",
        )
    )
    if found.join == "chain":
        gain = found.gain(at=at, packs=True)
        findings.append(
            Finding(
                claim=f"{name}: latency {claimed:.0f} % lower",
                found=f"{gain:.0f} % lower with {Wait.IN_STEP}, packs wait for the next signal as"
                " in the published code",
                holds=abs(gain - claimed) <= POINTS,
                why="There packs go into the queue that the next signal opens: a result whose"
                " newest member is of the middle stream waits a period longer",
            )
        )
    return findings


def throughputs(
    points: Sequence[tuple[float, Setting]], join: Join
) -> tuple[list[float], list[float]]:
    """Of TriJoin and of the tree."""
    return (
        [throughput(replace(one, join=join, system="TriJoin")) for _, one in points],
        [throughput(replace(one, join=join, system="BiStream+Tree")) for _, one in points],
    )


def pairs_per_tuple(setting: Setting) -> float:
    """Pairs that the first join of the tree finds, for each tuple of one stream."""
    trace = run(replace(setting, system="BiStream+Tree"))
    after = setting.window + 1e-9
    found = sum(turn.results for turn in trace.since(after) if turn.join == 0)
    return found / (RATE * (trace.seconds - setting.window))


def throughput_findings(
    points: Sequence[tuple[float, Setting]],
    join: Join,
    claimed: float,
    *,
    where: str = "",
    more: str = "",
) -> list[Finding]:
    """Whether it is higher, and by as much as claimed; `more` is said where the reason is."""
    ours, theirs = throughputs(points, join)
    gain = higher(ours, theirs)
    pairs = pairs_per_tuple(replace(points[-1][1], join=join))
    shown = ", ".join(f"{a:,.0f} against {b:,.0f}" for a, b in zip(ours, theirs, strict=True))
    return [
        Finding(
            claim=f"{join} join{where}: TriJoin takes in more tuples per second than the tree",
            found=shown,
            holds=all(a > b for a, b in zip(ours, theirs, strict=True)),
        ),
        Finding(
            claim=f"{join} join{where}: throughput {claimed:.0f} % higher",
            found=f"{gain:.0f} % higher",
            holds=abs(gain - claimed) <= POINTS,
            why="By how much is a matter of the data: every tuple visits two of TriJoin's three"
            " groups, every pair of the first join visits all units that store T. Here there are"
            f" {pairs:.1f} pairs for each tuple of R"
            + ("; with TriJoin, packs visit those units" if join == "chain" else "")
            + more,
        ),
    ]
