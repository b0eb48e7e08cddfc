"""What may be refused although Spark takes it, and where the documentation says so."""

from __future__ import annotations

import re

from tests.fuzz.trials import ACCEPTED, OPEN, REFUSED, UNEXPLAINED, Verdict

DOCUMENTED: tuple[tuple[str, str], ...] = (
    (r"AmbiguousColumnError: ", "a bare name that several streams have"),
    (r"no two tuples can satisfy the window", "a window that nothing fits"),
    (r"is not allowed in a (join predicate|query over streams)", "a construct outside of the list"),
    (r"the predicate compares [\w, ]+ with no other stream", "a cross join that is not asked for"),
    (r"two columns of the result would be called", "two columns of one name"),
    (r"needs a window", "results whose state would never end"),
    (r"the variable '.*' of a lambda has the name of", "a lambda variable that hides a name"),
    (r"is not a function that a predicate may call", "a function outside of the list"),
    (r"cannot be rebuilt without changing its meaning", "text that cannot be rebuilt safely"),
    (r"nested too deeply", "text that is nested too deeply"),
)
"""Patterns of a refusal, and its reason in a few words; see `The predicate` and `Time` in
docs/semantics.md."""


OPEN_DEFECTS: tuple[tuple[str, str], ...] = ()
"""Patterns of defects that are known and not mended yet, each with a kept case that is marked as
open, and what they are in a few words."""


def explained(verdict: Verdict) -> tuple[Verdict, str]:
    """The verdict with a refusal judged by its reason, and the reason in a few words."""
    if verdict.kind not in (REFUSED, ACCEPTED):
        return verdict, ""
    for pattern, reason in OPEN_DEFECTS:
        if re.search(pattern, verdict.detail):
            return Verdict(OPEN, verdict.detail), reason
    if verdict.kind == ACCEPTED:
        return verdict, ""
    for pattern, reason in DOCUMENTED:
        if re.search(pattern, verdict.detail):
            return verdict, reason
    return Verdict(UNEXPLAINED, verdict.detail), general(verdict.detail)


def general(detail: str) -> str:
    """The detail without what differs from case to case."""
    return re.sub(r"'[^']*'|`[^`]*`|struct<\S*>|\d+", "…", detail)[:160]
