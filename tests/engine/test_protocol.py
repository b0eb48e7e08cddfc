"""Instructions of units, and what their reports say of their time."""

from __future__ import annotations

from collections.abc import Iterator

from thetastream.engine.protocol import Instruction, PutManifest, Report, metered


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_unit_is_busy_only_while_it_works() -> None:
    clock = Clock()

    def unit() -> Iterator[Instruction]:
        clock.now += 2
        yield PutManifest("one")
        clock.now += 3
        yield PutManifest("two")
        clock.now += 4
        yield Report(7)

    reports = []
    for step in metered(unit(), clock):
        if isinstance(step, Report):
            reports.append(step.busy)
        # What it takes to carry an instruction out is not the unit's own time.
        clock.now += 1000
    assert reports == [9.0]
