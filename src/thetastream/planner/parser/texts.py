"""What can be said of a text before the parser sees it, in time that grows with its length."""

from __future__ import annotations

import re

_SELECT = "SELECT"
_LINE = re.compile(r"[\r\n]")
_BRACKET = re.compile(r"/\*|\*/")


def is_query(text: str) -> bool:
    """Whether a text is a query rather than a predicate: its first word is SELECT."""
    start = _after_comments(text)
    end = start + len(_SELECT)
    if text[start:end].upper() != _SELECT:
        return False
    return not (text[end : end + 1].isalnum() or text[end : end + 1] == "_")


def _after_comments(text: str) -> int:
    """Where the white space and the comments at the beginning end."""
    place = 0
    while place < len(text):
        if text[place].isspace():
            place += 1
        elif text.startswith("--", place):
            line = _LINE.search(text, place)
            place = len(text) if line is None else line.end()
        elif text.startswith("/*", place):
            place = _after_bracketed(text, place)
        else:
            break
    return place


def _after_bracketed(text: str, place: int) -> int:
    """Where a comment in brackets ends; as in Spark, it may hold others."""
    depth = 0
    for bracket in _BRACKET.finditer(text, place):
        depth += 1 if bracket.group() == "/*" else -1
        if depth == 0:
            return bracket.end()
    return len(text)
