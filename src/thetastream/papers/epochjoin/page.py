"""The Epoch join and its figures."""

from __future__ import annotations

from typing import Final

from thetastream.papers.epochjoin import balance, communication, rates
from thetastream.papers.epochjoin.setting import NAME
from thetastream.papers.figure import Paper

_FIGURES: Final = {
    figure.name: figure for figure in (*rates.FIGURES, *communication.FIGURES, *balance.FIGURES)
}
_ORDER: Final = (*(f"epoch-{number}" for number in range(5, 15)), "epoch-buffer", "epoch-rebalance")

PAPER: Final = Paper(
    name=NAME,
    title="The Epoch join",
    about="A master hands out the tuples of two streams at the end of every distribution epoch;"
    " slaves join them by block nested loops, in partition-groups that extendible hashing divides"
    " into mini-groups. The slaves, their indexes, the routing and `Rebalance` are the real ones."
    " One number is fitted, the cost of a comparison: four slaves without fine tuning, at"
    " 4,000 tuples/s, are to have the mean delay of 48 s that the paper reports. That they have no"
    " idle time there follows from it; everything else is predicted. The other costs are named in"
    " `thetastream.papers.epochjoin.setting`, and are the same in all figures. The paper's text has"
    " no numbers but those quoted, so that most of its claims are orders.",
    figures=tuple(_FIGURES[name] for name in _ORDER),
)
