"""The semijoin: joins across sites with a thin link between them."""

from typing import Final

from thetastream.papers.figure import Paper
from thetastream.papers.semijoin import auto, panels

__all__ = ["PAPER"]

PAPER: Final = Paper(
    name=panels.NAME,
    title="The semijoin for streams",
    about="Two sites join their streams over a thin link. The simple join (SPJ) ships every tuple;"
    " the semijoin (SMJ) ships what the predicate looks at, and the rest of a tuple when it has a"
    " partner. Both run here tuple by tuple as the paper describes them, on a virtual clock, and"
    " equations 1 and 2 are plotted beside them; `transport/costmodel.py` has both, and chooses.",
    figures=(*panels.FIGURES, auto.FIGURE),
)
