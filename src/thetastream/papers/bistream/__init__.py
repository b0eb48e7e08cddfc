"""BiStream: the join-biclique against the join-matrix, figure by figure."""

from __future__ import annotations

import re
from typing import Final

from thetastream.papers.bistream import memory, network, scaling, speed
from thetastream.papers.figure import Figure, Paper


def _place(figure: Figure) -> tuple[int, str]:
    """Where a figure stands: figures by number, then tables and equations."""
    number = re.search(r"-(\d+)", figure.name)
    return (int(number[1]) if number and "table" not in figure.name else 99, figure.name)


PAPER: Final = Paper(
    name="bistream",
    title="BiStream: join-biclique",
    about="A biclique stores each tuple in one unit and sends it to the units of the other stream;"
    " a matrix stores it in a whole row or column. JM16 is a matrix of 4 by 4 units; JB16 a"
    " biclique with 8 units for each stream and random routing; JB16-CR4 the same with ContRand in"
    " 4 subgroups. The streams follow the public rules of TPC-H and have as much data as each"
    " other; the queries' filters are applied before the join. Band has no key to hash: where the"
    " paper has ContRand, buckets of the order key take its place. CPU time is counted, with the"
    " same costs for all.",
    figures=tuple(
        sorted((*memory.FIGURES, *speed.FIGURES, *network.FIGURES, *scaling.FIGURES), key=_place)
    ),
)
