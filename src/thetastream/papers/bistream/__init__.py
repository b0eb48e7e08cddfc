"""BiStream: the join-biclique against the join-matrix, figure by figure."""

from __future__ import annotations

from typing import Final

from thetastream.papers.bistream import memory
from thetastream.papers.figure import Paper

PAPER: Final = Paper(
    name="bistream",
    title="BiStream: join-biclique",
    about="x",
    figures=memory.FIGURES,
)
