"""What a fuzzer is: seeds and a budget in, a summary with reproductions out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Budget:
    """How long a fuzzer goes on: so many seconds, or so many tries, whichever comes first."""

    seconds: float | None = None
    count: int | None = None
    started: float = field(default_factory=time.monotonic)

    def left(self, done: int) -> int:
        """How many tries may still be made at most; 0 when the budget is used up."""
        if self.seconds is not None and time.monotonic() - self.started >= self.seconds:
            return 0
        return 1 << 30 if self.count is None else max(0, self.count - done)


class Progress(Protocol):
    """Who is told how far a fuzzer is."""

    def __call__(self, done: int, note: str) -> None:
        """So many more tries are done; the note says what came of all so far."""


def silent(done: int, note: str) -> None:
    """A progress that nobody looks at."""


@dataclass(frozen=True)
class Failure:
    """A result that is wrong, as small as it could be made."""

    title: str
    reproduction: str
    """Text that a reader can paste."""
    case: Mapping[str, Any]
    """The same as JSON, for the folder of kept cases."""


@dataclass
class Summary:
    """What a run of a fuzzer found."""

    fuzzer: str
    seed: int
    done: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """Tries by what came of them."""
    refusals: Counter[str] = field(default_factory=Counter)
    """What was refused, by reason."""
    notes: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def share(self, name: str) -> float:
        """The part of all tries that a count makes up."""
        return self.counts[name] / self.done if self.done else 0.0

    def text(self) -> str:
        """The summary for people."""
        lines = [f"{self.fuzzer}: {self.done} tries from seed {self.seed}"]
        lines += [f"  {count:6d}  {name}" for name, count in self.counts.most_common()]
        if self.refusals:
            lines.append("  refused:")
            lines += [f"  {count:6d}    {name}" for name, count in self.refusals.most_common()]
        lines += [f"  {note}" for note in self.notes]
        for number, failure in enumerate(self.failures, start=1):
            lines += ["", f"FAILURE {number}: {failure.title}", failure.reproduction]
        return "\n".join(lines)


class Fuzzer(Protocol):
    """A machine that finds wrong results."""

    @property
    def name(self) -> str:
        """Its name on the command line."""

    def run(self, seed: int, budget: Budget, progress: Progress) -> Summary:
        """Try until the budget is used up; the same seed tries the same."""

    def replay(self, case: Mapping[str, Any]) -> str | None:
        """What is wrong with a kept case; None if nothing is any more."""
