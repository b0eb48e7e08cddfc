"""Join-matrix routing, the baseline: m x n cells, a tuple is kept in a whole row or column."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from thetastream.topology.routes import HOME, PROBE, STORE, Route, RoutingKeys, mixed


class Matrix:
    """Cell (i, j) is unit i * n + j; a pair meets in the cell of its row and its column."""

    needs_spread = True

    def __init__(self, rows: int, columns: int) -> None:
        self._rows = rows
        self._columns = columns

    @property
    def units(self) -> int:
        """Cells of the matrix."""
        return self._rows * self._columns

    def route(self, stream: int, keys: RoutingKeys) -> Iterator[Route]:
        """Where the rows go."""
        assert keys.spread is not None
        lines, crossing = (self._rows, self._columns)
        if stream == 1:
            lines, crossing = crossing, lines
        line = keys.spread % np.uint64(lines)
        home = mixed(keys.spread) % np.uint64(crossing)
        for number in range(lines):
            for other in range(crossing):
                unit = (
                    number * self._columns + other
                    if stream == 0
                    else other * self._columns + number
                )
                here = line == number
                for role, rows in (
                    (STORE | PROBE | HOME, here & (home == other)),
                    (STORE | PROBE, here & (home != other)),
                ):
                    positions = np.flatnonzero(rows)
                    if len(positions):
                        yield Route(unit, role, positions)
