"""STA and its figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from thetastream.papers.figure import Figure, Outcome, Paper
from thetastream.papers.sta import checkpoints, completeness, indexes, partitioning, speed
from thetastream.papers.sta.setting import NAME


def _figure(number: int, title: str, setting: str, run: Callable[[bool], Outcome]) -> Figure:
    return Figure(
        name=f"{NAME}-{number}",
        paper=NAME,
        number=f"figure {number}",
        title=title,
        setting=setting,
        run=run,
    )


PAPER: Final = Paper(
    name=NAME,
    title="STA",
    about="A predictor finds frequent values, which have elements of their own; all others are"
    " spread at random over a chained index. The other contestants are a broadcast hash join"
    " (BCHJ), a split join (SJ), a chained index (CI), a multi-chained index (MCI) and a PIM-tree."
    " All of them run on real elements, and the costs of a tuple, a comparison, an update, a result"
    " and a message are the same for all; they are named in `thetastream.papers.sta.setting`. None"
    " is fitted. One thing is not as in the paper: there the chained index, the PIM-tree and STA"
    " visit one element for what is cold, and miss what it does not know yet. Here every result is"
    " found, but for the two figures that are about what is missed.",
    figures=(
        _figure(5, "Index updates with the top keys apart", indexes.SETTING, indexes.figure_5),
        _figure(6, "Redundancy of keys in sub-indexes", indexes.SETTING, indexes.figure_6),
        *speed.FIGURES,
        checkpoints.FIGURE,
        _figure(
            32,
            "Load imbalance of hash and random partitioning",
            partitioning.SETTING_32,
            partitioning.figure_32,
        ),
        _figure(
            33,
            "Elements from which results are gathered",
            partitioning.SETTING_33,
            partitioning.figure_33,
        ),
        _figure(
            34,
            "Completeness with 10 elements and check points every second",
            completeness.SETTING,
            completeness.figure_34,
        ),
        _figure(
            35,
            "Completeness with 100 elements and check points every 5 seconds",
            completeness.SETTING,
            completeness.figure_35,
        ),
    ),
    on_spark=(
        "sta",
        "The six systems on Spark itself: the same taxi fares, `r.v > s.v`, the same units and two"
        " cores. The fares of one stream are raised by so much that a row has ten results. STA is"
        ' `topology="stream-aware"`, whose index keeps frequent values apart in every unit; CI is'
        ' `topology="random"` with sorted runs; SJ is `topology="split"`; BCHJ is'
        ' `topology="broadcast"`, which copies one of the streams only; MCI is'
        ' `topology="multi-chained"`, and the PIM-tree is `index="pim"` with `topology="random"`.'
        " DuckDB joins the same rows as one batch, to tell how many results there are.",
    ),
)
