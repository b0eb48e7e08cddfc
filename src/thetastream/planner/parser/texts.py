"""Checks of a text before the parser sees it, in time that is linear in its length."""

from __future__ import annotations

import re

from thetastream.errors import ParseError

MAX_TEXT = 50_000
_SELECT = "SELECT"
_LINE = re.compile(r"[\r\n]")
_UNFIT = re.compile("[\0\ud800-\udfff]")
_BRACKET = re.compile(r"/\*|\*/")


def is_query(text: str) -> bool:
    """Whether a text is a query rather than a predicate: its first word is SELECT."""
    start = _after_comments(text)
    end = start + len(_SELECT)
    if text[start:end].upper() != _SELECT:
        return False
    return not (text[end : end + 1].isalnum() or text[end : end + 1] == "_")


def check_text(text: str, noun: str) -> None:
    """Refuse a text that is unfit for any parser, or that Spark's parser would read differently."""
    if len(text) > MAX_TEXT:
        raise ParseError(
            f"the {noun} is too long", text=text[:60], hint=f"use at most {MAX_TEXT:,} characters"
        )
    unfit = _UNFIT.search(text)
    if unfit is not None:
        raise ParseError(
            f"the {noun} has a character that no text can have, U+{ord(unfit.group()):04X}",
            text=text,
            start=unfit.start(),
            hint="leave it out; in a literal, write it as an escape",
        )
    place = 0
    for line in text.split("\n"):
        # To Spark the comment goes on in the next line, to the parser it does not.
        if line.rstrip("\r").endswith("\\") and "--" in line and place + len(line) < len(text):
            raise ParseError(
                "a comment ends with a backslash, which makes the next line a part of it",
                text=text,
                start=place + line.index("--"),
                hint="leave the backslash out",
            )
        place += len(line) + 1


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
