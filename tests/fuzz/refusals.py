"""What may be refused although Spark takes it, and where the documentation says so."""

from __future__ import annotations

import re

from tests.fuzz.trials import REFUSED, UNEXPLAINED, Verdict

DOCUMENTED: tuple[tuple[str, str], ...] = (
    (r"AmbiguousColumnError: ", "a bare name that several streams have"),
    (r"no two tuples can be within the window", "a window that nothing fits"),
    (r"has no place in a join predicate", "a construct outside of the list"),
    (r"is not among the functions", "a function outside of the list"),
    (r"cannot be rebuilt without a change of meaning", "text that cannot be rebuilt safely"),
    (r"nested too deeply", "text that is nested too deeply"),
)
"""Patterns of a refusal, and its reason in a few words; see `The predicate` and `Time` in
docs/semantics.md."""


def explained(verdict: Verdict) -> tuple[Verdict, str]:
    """The verdict with a refusal judged by its reason, and the reason in a few words."""
    if verdict.kind != REFUSED:
        return verdict, ""
    for pattern, reason in DOCUMENTED:
        if re.search(pattern, verdict.detail):
            return verdict, reason
    return Verdict(UNEXPLAINED, verdict.detail), general(verdict.detail)


def general(detail: str) -> str:
    """The detail without what differs from case to case."""
    return re.sub(r"'[^']*'|`[^`]*`|struct<\S*>|\d+", "…", detail)[:160]
