"""All papers and their figures, by name."""

from __future__ import annotations

import difflib

from thetastream.errors import OptionError
from thetastream.papers.bistream import PAPER as BISTREAM
from thetastream.papers.epochjoin import PAPER as EPOCH_JOIN
from thetastream.papers.figure import Figure, Paper
from thetastream.papers.semijoin import PAPER as SEMIJOIN
from thetastream.papers.sta import PAPER as STA
from thetastream.papers.trijoin import PAPER as TRIJOIN

PAPERS: tuple[Paper, ...] = (BISTREAM, EPOCH_JOIN, TRIJOIN, STA, SEMIJOIN)


def figures() -> dict[str, Figure]:
    """All figures, by name."""
    return {figure.name: figure for paper in PAPERS for figure in paper.figures}


def find(name: str) -> list[Figure]:
    """The figure of that name, or the panels of the one with that number: 6a and 6b for 6."""
    known = figures()
    panels = [figure for one, figure in known.items() if one[:-1] == name and one[-1].isalpha()]
    if name in known:
        return [known[name]]
    if not panels:
        near = difflib.get_close_matches(name, known, 3)
        raise OptionError(
            f"there is no figure {name!r}",
            hint=f"perhaps {' or '.join(near)}"
            if near
            else "thetastream reproduce --list names them",
        )
    return panels
