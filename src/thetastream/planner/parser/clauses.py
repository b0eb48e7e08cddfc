"""The clauses of stream queries that SQL does not know: ONLINE, WITHIN, and the papers' WINDOW.

They are read first and blanked out, so that every place in the text keeps its position and the
parser sees plain SQL.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import sqlglot
from sqlglot import TokenType
from sqlglot.errors import SqlglotError

from thetastream.durations import parse_duration
from thetastream.errors import ParseError, PredicateError, WindowError
from thetastream.planner.functions import words
from thetastream.planner.parser.expressions import PlainSpark, count_tokens
from thetastream.planner.window import Within

_ENDS = frozenset({"GROUP BY", "HAVING", "ORDER BY", "LIMIT", "WHERE", "WINDOW", "WITHIN", ";"})
_NOT_AFTER_ONLINE = (
    words(", FROM . AS / % = == <> != < > <= >= || & | ^ :: [ IS IN NOT LIKE ILIKE RLIKE BETWEEN")
) | {"AND", "OR", "DIV"}
"""What follows a column called online, and never the word ONLINE."""
_QUOTED = "`"
_IN_QUOTES = frozenset(
    {
        TokenType.IDENTIFIER,
        TokenType.STRING,
        TokenType.RAW_STRING,
        TokenType.HEX_STRING,
        TokenType.HEREDOC_STRING,
    }
)
WINDOW_CALL = "windo_"
"""What the parser gets to see of window(...), which it would take for the clause; as long."""


class Clauses:
    """Clauses that the SQL parser does not know."""

    def __init__(self, text: str, *, online: bool) -> None:
        """`online`: whether a stream has a column of that name."""
        self.text = text
        self.source = text
        self.within: Within = None
        try:
            self.tokens: list[Any] = list(sqlglot.tokenize(text, dialect=PlainSpark))
        except SqlglotError:
            # The parser meets the same quote or comment and says where it is.
            self.tokens = []
        count_tokens(self.tokens, text, "query")
        self.words = [_word(token) for token in self.tokens]
        self._online(online)
        self._complete()
        for place, token in enumerate(self.tokens):
            if self.words[place : place + 2] == ["WINDOW", "("]:
                end = token.start + len(WINDOW_CALL)
                self.source = self.source[: token.start] + WINDOW_CALL + self.source[end:]
        found = [clause for clause in map(self._clause, self._tops()) if clause is not None]
        if len(found) > 1:
            raise WindowError(
                "the query has more than one window",
                detail=marked(text, found[1][0], found[1][1]),
                hint="keep one WITHIN clause",
            )
        for start, end, within in found:
            self.within = within
            self._blank(start, end)

    def _blank(self, start: int, end: int) -> None:
        # Lines stay lines, so that every place keeps its own.
        gone = "".join(char if char == "\n" else " " for char in self.source[start:end])
        self.source = self.source[:start] + gone + self.source[end:]

    def _online(self, is_column: bool) -> None:
        if len(self.words) < 3 or self.words[:2] != ["SELECT", "ONLINE"]:
            return
        word, next_token = self.tokens[1:3]
        after, *rest = self.words[2:]
        if after in _NOT_AFTER_ONLINE:
            return
        if after == "*" and rest and rest[0] not in ("FROM", ","):
            return
        if after in ("+", "-") and is_column:
            return
        if after == "(" and next_token.start == word.end + 1:
            return
        self._blank(word.start, word.end + 1)

    def _complete(self) -> None:
        """Refuse what the parser reads as if nothing were missing."""
        if self.words and self.words[-1] == ";":
            last = self.tokens.pop()
            self.words.pop()
            self._blank(last.start, len(self.text))
        if not self.words:
            return
        if self.words[0] == "FROM":
            self._missing(self.tokens[0], "the query does not begin with SELECT")
        ends = ("", "WHERE", "GROUP BY", "HAVING", "JOIN", "WITHIN", "FROM", "ORDER BY", ",", ")")
        for place, word in enumerate(self.words):
            after = self.words[place + 1] if place + 1 < len(self.words) else ""
            if word in ("ON", "WHERE", "GROUP BY", "HAVING") and after in ends:
                self._missing(self.tokens[place], f"nothing follows {word}")
            if word in (",", "SELECT") and after in ("", "FROM", ","):
                self._missing(self.tokens[place], "something is missing here")

    def _missing(self, token: Any, what: str) -> NoReturn:
        raise ParseError(
            what,
            text=self.text,
            start=token.start,
            end=token.end + 1,
            hint="write SELECT ... FROM ... [WHERE ...] [WITHIN ...] [GROUP BY ...]",
        )

    def _tops(self) -> list[int]:
        """Tokens outside of parentheses."""
        depth, found = 0, []
        for place, word in enumerate(self.words):
            if word == "(":
                depth += 1
            elif word == ")":
                depth -= 1
            elif depth == 0:
                found.append(place)
        return found

    def _clause(self, place: int) -> tuple[int, int, Within] | None:
        """A window clause that begins at a token: where it stands, and what it says."""
        word = self.words[place]
        if word not in ("WITHIN", "WINDOW"):
            return None
        before = self.words[place - 1] if place else ""
        after = self.words[place + 1] if place + 1 < len(self.words) else ""
        if before in (".", "AS", "SELECT", ",") or after in (".", "GROUP"):
            # A name, or WITHIN GROUP after an aggregate.
            return None
        end = place + 1
        while end < len(self.words) and self.words[end] not in _ENDS:
            end += 1
        inner = self.tokens[place + 1 : end]
        start, stop = self.tokens[place].start, self.tokens[end - 1].end + 1
        if word == "WITHIN":
            if not inner:
                self._unclear(start, stop)
            return start, stop, self._within(place + 1, end, start, stop)
        # WINDOW name AS (RANGE INTERVAL ... PRECEDING): both streams look back that far.
        said = self.words[place + 1 : end]
        if len(said) < 7 or said[1:4] != ["AS", "(", "RANGE"] or said[-2:] != ["PRECEDING", ")"]:
            return None
        return start, stop, self._length(inner[4:-2], start, stop)

    def _within(self, first: int, end: int, start: int, stop: int) -> Within:
        inner, said = self.tokens[first:end], self.words[first:end]
        if said[-1] not in ("PRECEDING", "FOLLOWING"):
            return self._length(inner, start, stop)
        bounds: dict[str, str] = {}
        piece: list[Any] = []
        for token, word in zip(inner, said, strict=True):
            if word in ("PRECEDING", "FOLLOWING"):
                if word in bounds or not piece:
                    self._unclear(start, stop)
                bounds[word] = self._length(piece, start, stop)
                piece = []
            elif word != "AND" or piece:
                piece.append(token)
        return bounds.get("PRECEDING", "0 seconds"), bounds.get("FOLLOWING", "0 seconds")

    def _length(self, tokens: list[Any], start: int, stop: int) -> str:
        length = self.text[tokens[0].start : tokens[-1].end + 1] if tokens else ""
        length = re.sub(r"(?i)^\s*interval\b", "", length)
        length = " ".join(length.replace("'", " ").replace('"', " ").split())
        try:
            parse_duration(length, "WITHIN")
        except WindowError as error:
            raise WindowError(
                error.what, detail=marked(self.text, start, stop), hint=_WITHIN_FORMS
            ) from None
        return length

    def _unclear(self, start: int, stop: int) -> NoReturn:
        raise WindowError(
            "the WITHIN clause is not complete",
            detail=marked(self.text, start, stop),
            hint=_WITHIN_FORMS,
        )


_WITHIN_FORMS = (
    "write WITHIN 10 minutes, WITHIN INTERVAL 90 SECONDS, or"
    " WITHIN 5 minutes PRECEDING AND 1 minute FOLLOWING"
)


def marked(text: str, start: int, end: int) -> str:
    return PredicateError("", text=text, start=start, end=end).detail


def _word(token: Any) -> str:
    """The keyword that a token is; a string, or a name in quotes, is none, whatever is in it."""
    return _QUOTED if token.token_type in _IN_QUOTES else token.text.upper()
