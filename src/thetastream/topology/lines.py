"""Lines of units: for each group the units that hold it together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thetastream.index.encoding import Int64s


class Lines:
    """For each group a line of units, for lookups."""

    def __init__(self, lines: tuple[tuple[int, ...], ...], chosen: tuple[int, ...]) -> None:
        self.of = np.array(chosen, dtype=np.int64)
        """The line of each group."""
        self.sizes = np.array([len(line) for line in lines], dtype=np.int64)
        """The number of units in each line."""
        self.starts: Int64s = np.cumsum(self.sizes) - self.sizes
        """Where each line begins among the `members`."""
        self.members: npt.NDArray[np.int16] = np.array(
            [unit for line in lines for unit in line], dtype=np.int16
        )
        """The units of all lines, one after the other."""
        used = set(chosen)
        self.everywhere = tuple(sorted({unit for line in used for unit in lines[line]}))
        """All units that are in a group's line."""
        self.is_single = all(len(lines[line]) == 1 for line in used)
        """Whether each group has one unit."""
        self._firsts = self.members[self.starts[self.of]]

    def firsts(self, groups: Int64s) -> npt.NDArray[np.int16]:
        """The first unit of each group's line."""
        return self._firsts[groups]

    def chosen(self, groups: Int64s, spread: Int64s) -> npt.NDArray[np.int16]:
        """One unit of each group's line, by a number for each tuple."""
        lines = self.of[groups]
        place = spread.view(np.uint64) % self.sizes[lines].view(np.uint64)
        return self.members[self.starts[lines] + place.view(np.int64)]
