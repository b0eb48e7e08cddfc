"""The size of the predictor of hot keys."""

from __future__ import annotations

from dataclasses import dataclass

from thetastream.errors import OptionError

SKETCH_ROWS = 4
"""Rows of a count-min sketch: about one estimate in fifty may be off by more than its bound."""

CELL_BYTES = 4
"""Bytes of a stored cell. A sketch with a cell that needs more is stored with twice as many."""


@dataclass(frozen=True, kw_only=True)
class SketchOptions:
    """The size of an ASketch, and how fast it forgets.

    >>> ts.SketchOptions().width
    1024
    """

    filter_keys: int = 32
    """Keys in the filter: as many can be hot at a time."""
    sketch_bytes: int = 16 * 1024
    """Bytes of the count-min sketch. Four times as many make its error a fourth."""
    half_life: int | None = 1 << 16
    """Rows after which all counts are halved; None for never."""

    def __post_init__(self) -> None:
        if self.filter_keys < 1:
            raise OptionError(
                f"filter_keys={self.filter_keys!r} is no place for a key", hint="give at least 1"
            )
        if self.width < 1:
            least = SKETCH_ROWS * CELL_BYTES
            raise OptionError(
                f"sketch_bytes={self.sketch_bytes!r} is less than one cell in each of"
                f" {SKETCH_ROWS} rows",
                hint=f"give at least {least}, better some thousands",
            )
        if self.half_life is not None and self.half_life < 1:
            raise OptionError(
                f"half_life={self.half_life!r} is not a number of rows",
                hint="give at least 1, or None to forget nothing",
            )

    @property
    def width(self) -> int:
        """Cells of a row of the sketch."""
        return self.sketch_bytes // (SKETCH_ROWS * CELL_BYTES)

    @property
    def size(self) -> str:
        """The two sizes in words."""
        cells = f"{SKETCH_ROWS} × {self.width} cells"
        return f"a filter of {self.filter_keys} keys and a sketch of {cells}"
