"""Tables as people read them: aligned text, or HTML."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable

WIDTH = 100
"""Characters of a line of prose."""


def text_table(rows: Iterable[tuple[str, ...]], *, right: int = 0, indent: int = 2) -> list[str]:
    """The rows as lines of aligned cells; the last `right` columns are aligned to the right."""
    found = list(rows)
    if not found:
        return []
    widths = [max(len(row[i]) for row in found) for i in range(len(found[0]))]
    left = len(widths) - right
    return [
        " " * indent
        + "  ".join(
            cell.rjust(width) if place >= left else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in found
    ]


def text_notes(notes: Iterable[str]) -> list[str]:
    """The notes as lines, each note with a dash in front."""
    return [
        line
        for note in notes
        for line in textwrap.wrap(
            note,
            WIDTH,
            initial_indent="  - ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def html_table(head: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    """The rows as an HTML table that needs nothing else."""

    def cells(tag: str, row: Iterable[str]) -> str:
        style = ' style="text-align:left"'
        return "".join(f"<{tag}{style}>{html.escape(cell)}</{tag}>" for cell in row)

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', head)}</tr>{body}</table>"
