"""Lengths of time as people write them, in microseconds."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from thetastream.errors import WindowError

MICROSECOND = 1
MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY

_UNITS = {
    "microsecond": MICROSECOND,
    "us": MICROSECOND,
    "millisecond": MILLISECOND,
    "ms": MILLISECOND,
    "second": SECOND,
    "sec": SECOND,
    "s": SECOND,
    "minute": MINUTE,
    "min": MINUTE,
    "hour": HOUR,
    "h": HOUR,
    "day": DAY,
    "d": DAY,
    "week": WEEK,
    "w": WEEK,
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_TERM = re.compile(r"\s*([+-]?\d{1,24}(?:\.\d{1,24})?)\s*([A-Za-zµ]+)\s*,?", re.ASCII)

_LONGEST = 500
"""How long the text of a length may be."""

MAX_DURATION = 2**62
"""Larger lengths could not be added to a timestamp in 64 bits."""

FORMS = 'give a length such as "10 minutes", "1 hour 30 minutes", "500 ms" or a timedelta'


def parse_duration(value: object, what: str) -> int:
    """Microseconds of a text or a timedelta; raises WindowError for anything else."""
    if isinstance(value, timedelta):
        length = (value.days * 86_400 + value.seconds) * SECOND + value.microseconds
    elif isinstance(value, str):
        length = _from_text(value, what)
    else:
        raise WindowError(
            f"{what}={value!r} has no unit of time",
            hint=FORMS,
        )
    if length < 0:
        raise WindowError(f"{what}={value!r} is negative", hint="give a length of at least 0")
    if length > MAX_DURATION:
        raise WindowError(f"{what}={value!r} is too long", hint="leave it out for no limit")
    return length


def _from_text(text: str, what: str) -> int:
    total = Fraction(0)
    place = 0
    stripped = text.strip()
    if len(stripped) > _LONGEST:
        raise WindowError(f"{what} is not a length of time: the text is too long", hint=FORMS)
    if stripped.lower().startswith("interval "):
        stripped = stripped[len("interval ") :]
    while place < len(stripped):
        term = _TERM.match(stripped, place)
        if term is None:
            raise WindowError(f"{what}={text!r} is not a length of time", hint=FORMS)
        unit = _singular(term[2])
        if unit in _MONTHS:
            raise WindowError(
                f"{what}={text!r}: a {unit} has no fixed length",
                hint="give it in days",
            )
        if unit not in _UNITS:
            raise WindowError(
                f"{what}={text!r}: {term[2]!r} is not a unit of time",
                hint=FORMS,
            )
        total += Fraction(term[1]) * _UNITS[unit]
        place = term.end()
    if not stripped:
        raise WindowError(f"{what}={text!r} is not a length of time", hint=FORMS)
    if total.denominator != 1:
        raise WindowError(f"{what}={text!r} is not a whole number of microseconds", hint="round it")
    return int(total)


def interval_length(value: str, unit: str | None) -> tuple[int, int] | None:
    """(months, microseconds) of an INTERVAL literal; None when it has another form."""
    text = f"{value} {unit}" if unit is not None else value
    if len(text) > _LONGEST:
        return None
    months, micros = 0, Fraction(0)
    place = 0
    while place < len(text):
        term = _TERM.match(text, place)
        if term is None:
            return None
        name = _singular(term[2])
        if name in _MONTHS and "." not in term[1]:
            months += int(term[1]) * _MONTHS[name]
        elif name in _UNITS and ("." not in term[1] or name == "second"):
            micros += Fraction(term[1]) * _UNITS[name]
        else:
            return None
        place = term.end()
    if micros.denominator != 1 or not text.strip():
        return None
    return months, int(micros)


def format_duration(micros: int) -> str:
    """A length as people write it."""
    if micros < 0:
        return f"-{format_duration(-micros)}"
    if micros == 0:
        return "0 seconds"
    words = []
    for name, size in (
        ("day", DAY),
        ("hour", HOUR),
        ("minute", MINUTE),
        ("second", SECOND),
        ("millisecond", MILLISECOND),
        ("microsecond", MICROSECOND),
    ):
        count, micros = divmod(micros, size)
        if count:
            words.append(f"{count} {name}{'' if count == 1 else 's'}")
    return " ".join(words)


def _singular(unit: str) -> str:
    name = unit.lower().replace("µ", "u")
    if len(name) > 2 and name.endswith("s"):
        name = name[:-1]
    return "hour" if name == "hr" else name
