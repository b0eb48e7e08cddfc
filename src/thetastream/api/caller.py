"""The line of the user's program that called the library: where errors and warnings point."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

from thetastream.errors import ThetastreamWarning

_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep


def caller() -> str:
    """The file and the line that asked for the join."""
    frame = sys._getframe(_depth())
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def warn(what: str, *, hint: str) -> None:
    """Warn of something that works but is probably not intended, at the caller's line."""
    text = f"{what}\nWhat to do: {hint}"
    warnings.warn(ThetastreamWarning(text), stacklevel=_depth() + 1)


def _depth() -> int:
    """How far above the function that asks the first frame outside of the package is."""
    depth = 1
    frame = sys._getframe(depth)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        depth += 1
    return depth - 1
