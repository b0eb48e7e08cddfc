"""Figure 2: the time of the simple join and of the semijoin, over five parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final

from thetastream.papers.figure import Figure, Finding, Outcome
from thetastream.papers.semijoin.sites import Join, Method, Setting, Spent, run
from thetastream.transport import costmodel
from thetastream.transport.costmodel import Quantities

NAME: Final = "semijoin"
JOINS: Final[tuple[Join, Join]] = ("SPJ", "SMJ")
METHODS: Final[tuple[Method, Method]] = ("hash", "nested loops")
TUPLES: Final = {True: 500, False: 3000}
"""Of each stream, which are counted once the windows are full; in the quick form and the full."""
SLACK: Final = 0.05
"""An advantage that grows may fall by this share of the largest one: keys are drawn at random."""
NEAR: Final = 0.05
"""A number that a limit of the equations gives holds if what is found is so near."""


@dataclass(frozen=True)
class Panel:
    """One parameter, and what is claimed when it is varied."""

    letter: str
    title: str
    parameter: str
    at: Callable[[float], Setting]
    """The defaults but for this parameter."""
    x_label: str
    values: tuple[float, ...]
    few: tuple[float, ...]
    """Values of the quick form."""
    findings: Callable[[Runs], list[Finding]]
    log_x: bool = False


@dataclass(frozen=True)
class Runs:
    """Both joins by both methods, at each value of a parameter."""

    settings: tuple[Setting, ...]
    values: tuple[float, ...]
    seconds: tuple[float, ...]
    """That the counted tuples of each run are of."""
    spent: dict[tuple[Join, Method], tuple[Spent, ...]]

    def times(self, join: Join, method: Method = "hash") -> list[float]:
        """Seconds for the tuples of one second."""
        pairs = zip(self.spent[join, method], self.seconds, strict=True)
        return [one.total / seconds for one, seconds in pairs]

    def advantage(self, method: Method = "hash") -> list[float]:
        """By how many seconds the semijoin is faster."""
        both = zip(self.times("SPJ", method), self.times("SMJ", method), strict=True)
        return [spj - smj for spj, smj in both]

    def shown(self, values: Sequence[float]) -> str:
        """Values of all points as text."""
        pairs = zip(self.values, values, strict=True)
        return ", ".join(f"{value:.3g} s at {x:g}" for x, value in pairs)


@lru_cache(maxsize=512)
def spent(setting: Setting, join: Join, seconds: float) -> Spent:
    """A run; each is made once."""
    return run(setting, join, seconds)


def quantities(setting: Setting) -> Quantities:
    """What the paper's equations work on."""
    return costmodel.of_the_paper(
        link=setting.link,
        rates=(setting.rate, setting.rate),
        windows=(setting.window, setting.window),
        distinct=setting.distinct,
        full=setting.full,
        partial=setting.partial,
    )


def runs(panel: Panel, quick: bool) -> Runs:
    """All runs of a panel."""
    values = panel.few if quick else panel.values
    settings = [panel.at(x) for x in values]
    seconds = tuple(TUPLES[quick] / one.rate for one in settings)
    return Runs(
        tuple(settings),
        values,
        seconds,
        {
            (join, method): tuple(
                spent(replace(one, method=method), join, of)
                for one, of in zip(settings, seconds, strict=True)
            )
            for join in JOINS
            for method in METHODS
        },
    )


def grows(values: Sequence[float]) -> bool:
    """Whether they grow, but for the slack."""
    slack = SLACK * max(abs(one) for one in values)
    return values[-1] > values[0] and all(b >= a - slack for a, b in pairwise(values))


def alike(found: Runs) -> Finding:
    """Nested loops beside hash joins."""
    hashed, looped = found.advantage("hash"), found.advantage("nested loops")
    signs = all((a > 0) == (b > 0) for a, b in zip(hashed, looped, strict=True))
    dearer = all(
        a < b
        for join in JOINS
        for a, b in zip(found.times(join, "hash"), found.times(join, "nested loops"), strict=True)
    )
    furthest = max(abs(a - b) / abs(a) for a, b in zip(hashed, looped, strict=True))
    return Finding(
        claim="nested loops show the same as hash joins, at higher costs",
        found=f"the same join is ahead at every point: {'yes' if signs else 'no'};"
        f" nested loops always take longer: {'yes' if dearer else 'no'};"
        f" advantages differ by at most {furthest:.1%}",
        holds=signs and dearer,
        why=""
        if dearer
        else "A scan of 100 tuples takes no longer than a probe of a hash table with the costs"
        " taken here; the paper does not say what a comparison costs",
    )


def growing(name: str) -> Callable[[Runs], list[Finding]]:
    """Panels of which the paper says that the advantage grows."""

    def findings(found: Runs) -> list[Finding]:
        gains = found.advantage()
        return [
            Finding(
                claim=f"the semijoin's advantage grows with {name}",
                found=found.shown(gains),
                holds=grows(gains),
                why=""
                if all(a < b for a, b in pairwise(gains))
                else "Where all match already it does not grow: a falling by less than"
                f" {SLACK:.0%} of the largest advantage is taken as level",
            ),
            *limits(found),
            alike(found),
        ]

    return findings


def limits(found: Runs) -> list[Finding]:
    """The equations where hardly anything matches, and where nearly everything does."""
    listed = []
    for setting, gain in zip(found.settings, found.advantage(), strict=True):
        share = costmodel.found_in(setting.window, setting.distinct)
        link = setting.link
        if share > 0.99:
            claimed = -2 * setting.rate * link.seconds(1, setting.partial)
            claim = (
                f"with {setting.distinct:,} values nearly all match, and the semijoin takes"
                " 2λ₁(l + d_P/λ₁₂) longer"
            )
        elif share < 0.01 and setting.ratio > 1:
            claimed = setting.rate * (setting.full - setting.partial) / setting.bandwidth
            claim = (
                f"with {setting.distinct:,} values hardly any match, and the semijoin saves"
                " λ₁/λ₁₂(d_F − d_P)"
            )
        else:
            continue
        why = "Probes and updates, which the limit leaves out, are counted here"
        if claimed < 0:
            why = (
                "The limit leaves out that a tuple may be fetched for a later partner although p"
                " is near 1, and the work of the sites"
            )
        listed.append(
            Finding(
                claim=f"{claim}: {abs(claimed):.1f} s",
                found=f"{abs(gain):.1f} s {'less' if gain > 0 else 'more'}",
                holds=abs(gain - claimed) <= NEAR * abs(claimed),
                why=why,
            )
        )
    return listed


def over_bandwidth(found: Runs) -> list[Finding]:
    """Equations 1 and 2 over the transmission rate."""
    gains = found.advantage()
    times = found.times("SPJ"), found.times("SMJ")
    return [
        Finding(
            claim="both joins are faster on a faster link, and the semijoin gains less there"
            " (equations 1 and 2)",
            found=f"advantage {found.shown(gains)}",
            holds=all(grows([-one for one in line]) for line in (*times, gains)),
        ),
        ahead(found),
        alike(found),
    ]


def over_windows(found: Runs) -> list[Finding]:
    """Equations 1 and 2 over the window size."""
    gains = found.advantage()
    flat = found.times("SPJ")
    spread = max(flat) / min(flat) - 1
    return [
        Finding(
            claim="larger windows have more matches: the semijoin takes longer, and its advantage"
            " falls (equation 2)",
            found=f"advantage {found.shown(gains)}",
            holds=grows(found.times("SMJ")) and grows([-one for one in gains]),
        ),
        Finding(
            claim="the simple join sends the same whatever the window (equation 1)",
            found=f"its times are within {spread:.2%} of each other",
            holds=spread <= NEAR,
        ),
        ahead(found),
        alike(found),
    ]


def over_rates(found: Runs) -> list[Finding]:
    """Equations 1 and 2 over the stream rate."""
    gains = found.advantage()
    each = [gain / setting.rate for gain, setting in zip(gains, found.settings, strict=True)]
    spread = max(each) / min(each) - 1
    return [
        Finding(
            claim="both joins take longer the faster the streams are, and the semijoin's advantage"
            " grows (equations 1 and 2)",
            found=f"advantage {found.shown(gains)}",
            holds=all(grows(line) for line in (found.times("SPJ"), found.times("SMJ"), gains)),
        ),
        Finding(
            claim="in proportion to the rate (equations 1 and 2)",
            found=f"advantages per tuple are within {spread:.1%} of each other",
            holds=spread <= 2 * NEAR,
        ),
        ahead(found),
        alike(found),
    ]


def ahead(found: Runs) -> Finding:
    """With few matches and partial tuples that are small."""
    ratios = [b / a for a, b in zip(found.times("SMJ"), found.times("SPJ"), strict=True)]
    pairs = ", ".join(f"{r:.1f} × at {x:g}" for x, r in zip(found.values, ratios, strict=True))
    return Finding(
        claim="with few matches and small partial tuples the semijoin takes less time",
        found=pairs,
        holds=all(one > 1 for one in ratios),
        why="" if all(one > 1 for one in ratios) else "Where it does not, matches are not few",
    )


PANELS: Final = (
    Panel(
        "a",
        "over the number of distinct values",
        "distinct",
        lambda x: Setting(distinct=int(x)),
        "distinct values of the join attribute",
        (50, 100, 300, 1000, 3000, 10_000, 30_000, 100_000),
        (50, 1000, 10_000, 100_000),
        growing("the number of distinct values"),
        log_x=True,
    ),
    Panel(
        "b",
        "over the ratio of tuple sizes",
        "ratio",
        lambda x: Setting(ratio=x),
        "size of a full tuple over that of a partial one",
        (1, 2, 5, 10, 15, 20),
        (1, 10, 20),
        growing("the ratio of tuple sizes"),
    ),
    Panel(
        "c",
        "over the transmission rate",
        "bandwidth",
        lambda x: Setting(bandwidth=x),
        "bytes per second of the link",
        (500, 1000, 2000, 5000, 10_000),
        (500, 1000, 10_000),
        over_bandwidth,
        log_x=True,
    ),
    Panel(
        "d",
        "over the window size",
        "window",
        lambda x: Setting(window=int(x)),
        "tuples in each window",
        (100, 250, 500, 1000, 2000),
        (100, 500, 2000),
        over_windows,
    ),
    Panel(
        "e",
        "over the stream rate",
        "rate",
        lambda x: Setting(rate=x),
        "tuples per second of each stream",
        (100, 250, 500, 750, 1000),
        (100, 500, 1000),
        over_rates,
    ),
)


def outcome(panel: Panel) -> Callable[[bool], Outcome]:
    """A panel, run."""

    def of(quick: bool) -> Outcome:
        found = runs(panel, quick)
        model = [quantities(one) for one in found.settings]
        lines = {
            f"{join}, {method}": found.times(join, method) for method in METHODS for join in JOINS
        }
        lines["equation 1"] = [costmodel.simple(one) for one in model]
        lines["equation 2"] = [costmodel.semijoin(one) for one in model]
        shipped = [one.shipped for one in found.spent["SMJ", "hash"]]
        rows = [TUPLES[quick]] * len(shipped)
        return Outcome(
            findings=panel.findings(found),
            series={
                name: list(zip(found.values, line, strict=True)) for name, line in lines.items()
            },
            x_label=panel.x_label,
            y_label="seconds for the tuples of one second",
            log_x=panel.log_x,
            numbers={
                "full tuples per tuple that the semijoin shipped": {
                    f"{x:g}": round(count / all_rows, 4)
                    for x, count, all_rows in zip(found.values, shipped, rows, strict=True)
                },
                "the same by equation 2": {
                    f"{x:g}": round(one.match_rate, 4)
                    for x, one in zip(found.values, model, strict=True)
                },
            },
        )

    return of


SETTING: Final = (
    "The paper's algorithms on real tuples with uniform keys and windows of so many tuples; the"
    " link and the sites are a virtual clock, and the time is the sum of all steps, as in the"
    " paper's program, for the tuples of one second, once the windows are full. Defaults are the"
    " paper's: windows of 500 tuples, 500 tuples/s each, 1,000 bytes/s, 5 ms, 10,000 values, full"
    " tuples of 100 bytes, partial ones of 10. A probe or an update takes the 0.2 ms that the"
    " paper measured, a look at a stored tuple 2 µs. The paper's text does not give the values on"
    " the axis: they span its default by at least a factor of two each way. Nothing is scaled"
    " down."
)

FIGURES: Final = tuple(
    Figure(
        name=f"semijoin-2{panel.letter}",
        paper=NAME,
        number=f"figure 2, panel {number}",
        title=f"Time of the simple join and of the semijoin, {panel.title}",
        setting=SETTING,
        run=outcome(panel),
    )
    for number, panel in enumerate(PANELS, 1)
)
