"""Sizes as people write them, in bytes."""

from __future__ import annotations

import re
from fractions import Fraction

from thetastream.errors import OptionError

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([kmgt]?)i?b?(?:ytes?)?\s*", re.I | re.ASCII)
_NAMES = ("bytes", "KB", "MB", "GB", "TB")

FORMS = 'give a size such as "1.5 MB" or "64 KB", or a number of bytes'


def parse_size(value: object, what: str) -> int:
    """Bytes of a text or a number; a KB has 1024 of them, as in Spark's own settings."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise OptionError(f"{what}={value!r} is not a size", hint=FORMS)
    return int(Fraction(found[1]) * 1024 ** _POWERS[found[2].lower()])


def format_size(size: int) -> str:
    """The size as people read it, such as 1.5 MB."""
    power = min(len(_NAMES) - 1, max(0, size.bit_length() - 1) // 10)
    return f"{size / 1024**power:.4g} {_NAMES[power]}"
