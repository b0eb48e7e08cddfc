"""All papers and their figures, by name."""

from __future__ import annotations

import difflib

from thetastream.errors import OptionError
from thetastream.papers.bistream import PAPER as BISTREAM
from thetastream.papers.epochjoin import PAPER as EPOCH_JOIN
from thetastream.papers.figure import Figure, Paper
from thetastream.papers.trijoin import PAPER as TRIJOIN

PAPERS: tuple[Paper, ...] = (BISTREAM, EPOCH_JOIN, TRIJOIN)


def figures() -> dict[str, Figure]:
    """All figures, by name."""
    return {figure.name: figure for paper in PAPERS for figure in paper.figures}


def find(name: str) -> Figure:
    """The figure of that name."""
    known = figures()
    if name not in known:
        near = difflib.get_close_matches(name, known, 3)
        raise OptionError(
            f"there is no figure {name!r}",
            hint=f"perhaps {' or '.join(near)}"
            if near
            else "thetastream reproduce --list names them",
        )
    return known[name]
