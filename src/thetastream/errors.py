"""Every error that a user can see, and the one kind of warning.

    ThetastreamError
    ├── PredicateError (ValueError)        something in the predicate's text
    │   ├── ParseError                     not a Spark SQL expression
    │   ├── UnknownStreamError             an alias that no stream has
    │   ├── UnknownColumnError             a column that its stream lacks
    │   ├── AmbiguousColumnError           a bare name that several streams have
    │   ├── NotBooleanError                it does not evaluate to true or false
    │   ├── TypeMismatchError              two sides that cannot be compared
    │   └── RefusedExpressionError         a function or construct that is not allowed
    ├── WindowError (ValueError)           within, delay or time does not fit the streams
    ├── UnsupportedColumnError (TypeError)  a column that cannot travel to the workers
    ├── OptionError (ValueError)           a choice that makes no sense
    ├── JobError (ValueError)              a job file that cannot be carried out
    ├── SettingError (RuntimeError)        the Spark session lacks something
    ├── SumOverflowError (ArithmeticError)  a sum with more digits than Spark has
    ├── TriggerSizeError (RuntimeError)    a trigger that brings too much for one unit
    ├── SiteError (RuntimeError)           a site that does not do what is asked of it
    │   ├── SiteUnreachableError           no usable answer within the time that was allowed
    │   ├── SiteRequestError               a request, rows or a token that the site refuses
    │   ├── ForgottenError                 numbers of tuples that are past the site's retention
    │   ├── SiteChangedError               not the site that numbered these tuples
    │   └── SiteDataError                  stored or received bytes that are not what was written
    └── StateError (RuntimeError)          the checkpoint does not fit this query
        ├── ManifestVersionError           written by another release
        ├── FingerprintError               written by another query
        ├── CorruptRunError                bytes that fail their checksum
        └── ControlError                   a control directory that does not fit the checkpoint
            ├── RequestError               a change of the routing that cannot be made
            └── ControlTimeoutError        the query did not answer or finish a change in time

    ThetastreamWarning (UserWarning)       a join that works, but is probably not what was intended

Each message has the same three parts: what is wrong, where or in what detail, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ThetastreamError(Exception):
    """An error with its details and what to do about it.

    >>> try:
    ...     ts.streams(orders=orders, rides=rides).join("orders.fair > rides.fare")
    ... except ts.ThetastreamError as error:
    ...     print(error.hint)
    did you mean 'fare'?
    """

    def __init__(self, what: str, *, detail: str = "", hint: str = "") -> None:
        self.what = what
        self.detail = detail
        self.hint = hint
        super().__init__(what, detail, hint)

    def __str__(self) -> str:
        lines = [self.what]
        if self.detail:
            lines.append(self.detail)
        if self.hint:
            lines.append(f"What to do: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments: the default reduction would drop the detail and the hint.
        return _rebuild, (type(self), dict(self.__dict__))


class ThetastreamWarning(UserWarning):
    """A join works, but is slower or keeps more than necessary."""


class PredicateError(ThetastreamError, ValueError):
    """Something is wrong at one place in the predicate's text."""

    def __init__(
        self, what: str, *, text: str, start: int = 0, end: int | None = None, hint: str = ""
    ) -> None:
        self.text = text
        self.start = start
        self.end = end if end is not None else start + 1
        if len(what) > _WIDEST:
            what = f"{what[:_WIDEST]}…"
        super().__init__(what, detail=_underline(text, self.start, self.end), hint=hint)


class ParseError(PredicateError):
    """The text is not an expression in Spark's dialect."""


class UnknownStreamError(PredicateError):
    """The predicate names a stream that was not given."""


class UnknownColumnError(PredicateError):
    """The stream has no column of that name."""


class AmbiguousColumnError(PredicateError):
    """A bare column name that more than one stream has."""


class NotBooleanError(PredicateError):
    """The predicate, or one conjunct of it, does not evaluate to true or false."""


class TypeMismatchError(PredicateError):
    """The two sides of a comparison have types that Spark does not compare."""


class RefusedExpressionError(PredicateError):
    """A function or construct that is not allowed in a join predicate."""


class WindowError(ThetastreamError, ValueError):
    """The window, the delay and the time columns do not fit together."""


class UnsupportedColumnError(ThetastreamError, TypeError):
    """A column has a type that cannot travel to Spark's Python workers."""


class OptionError(ThetastreamError, ValueError):
    """An option has a value that makes no sense."""


class SettingError(ThetastreamError, RuntimeError):
    """The Spark session lacks a setting or a package that the join needs."""


class SumOverflowError(ThetastreamError, ArithmeticError):
    """A sum has more digits than Spark's widest number."""


class TriggerSizeError(ThetastreamError, RuntimeError):
    """One trigger brings more rows for one unit than its worker can hold."""


class SiteError(ThetastreamError, RuntimeError):
    """A site does not do what is asked of it."""


class SiteUnreachableError(SiteError):
    """A site has given no usable answer within the time that was allowed."""


class SiteRequestError(SiteError):
    """A site refuses a request, rows or a token, and would do so again."""


class ForgottenError(SiteError):
    """A request names tuples that are past the site's retention."""


class SiteChangedError(SiteError):
    """The site is not the one that numbered these tuples, or has lost some of them."""


class SiteDataError(SiteError):
    """Bytes that a site stored or sent are not what was written."""


class JobError(ThetastreamError, ValueError):
    """A job file says something that cannot be carried out."""


class StateError(ThetastreamError, RuntimeError):
    """The state in the checkpoint cannot serve this query."""


class ManifestVersionError(StateError):
    """The manifest was written in a format that this release does not know."""


class FingerprintError(StateError):
    """The state was written by a query that differs in a way that would lose results."""


class CorruptRunError(StateError):
    """Stored bytes do not have the checksum that they were written with."""


class ControlError(StateError):
    """A control directory cannot serve this query, or a request to change it cannot be met."""


class RequestError(ControlError):
    """A change of the routing was asked for that cannot be made; nothing has changed."""


class ControlTimeoutError(ControlError):
    """The query has not answered a request, or has not carried a change through, in time."""


_WIDEST = 400
"""How many characters of a line an error shows."""


def _underline(text: str, start: int, end: int) -> str:
    """The line of `text` that holds `start`, with a caret line below it."""
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line_end = len(text) if line_end < 0 else line_end
    width = max(1, min(end, line_end) - start)
    before = after = ""
    if line_end - line_start > _WIDEST:
        # As much of a long line as shows the place.
        first = max(line_start, start - _WIDEST // 3)
        last = min(line_end, first + _WIDEST)
        before, after = ("…" if first > line_start else ""), ("…" if last < line_end else "")
        line_start, line_end = first, last
        width = min(width, max(1, line_end - start))
    # What does not print could move the caret, or do something to a terminal.
    line = "".join(char if char.isprintable() else " " for char in text[line_start:line_end])
    indent = " " * (len(before) + start - line_start)
    return f"  {before}{line}{after}\n  {indent}{'^' * width}"


def _rebuild(kind: type[ThetastreamError], fields: dict[str, object]) -> ThetastreamError:
    error = kind.__new__(kind)
    error.__dict__.update(fields)
    error.args = (fields["what"], fields["detail"], fields["hint"])
    return error


def unknown_option(
    given: Iterable[str], known: Iterable[str], where: str
) -> tuple[str, str] | None:
    """What to say of the first name in a file that is none of those known there, and a hint."""
    names = sorted(known)
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"the options are {', '.join(names)}"
            return f"{where} has no option {name!r}", hint
    return None
