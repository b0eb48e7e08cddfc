"""Texts that mean harm are refused, or are harmless in what Spark gets; none is slow or hungry."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.planner.hostile import FAMILIES, MARK

LONGEST_ERROR = 5_000


def test_there_are_enough() -> None:
    assert len({text for texts in FAMILIES.values() for text in texts}) > 500


@pytest.mark.parametrize("family", FAMILIES)
def test_refused_or_harmless(family: str) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "tests.planner.hostile", family],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in child.stdout.splitlines()]
    last = FAMILIES[family][lines[-1][0]][:200] if lines else ""
    assert child.returncode == 0, f"{last!r}: {child.stderr[-2000:]}"
    found = [(number, said) for number, _, said in lines if said != "began"]
    assert {number for number, _ in found} == set(range(len(FAMILIES[family])))
    for number, said in found:
        if said.startswith("refused: "):
            assert len(said) < LONGEST_ERROR, FAMILIES[family][number][:200]
        else:
            assert MARK not in said, FAMILIES[family][number][:200]
