"""Texts among the observed metrics of a batch."""

from __future__ import annotations

from collections.abc import Iterator


def texts(row: object) -> Iterator[str]:
    """The reports in an observed row; a unit that had no turn left none."""
    if isinstance(row, str):
        if row.startswith("{"):
            yield row
    elif isinstance(row, list | tuple):
        # On Connect the values are a list of their own, beside their names.
        for item in row:
            yield from texts(item)
