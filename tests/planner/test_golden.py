"""Plans as text a reviewer can read: tests/golden/*.txt.

A case is a predicate, optional settings, and what the planner makes of it. After a change that is
meant, `UPDATE_GOLDEN=1 pytest tests/planner/test_golden.py` rewrites the files; read the diff.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from thetastream.planner import Plan
from thetastream.spec import Bound, JoinSpec

FOLDER = Path(__file__).parent.parent / "golden"
FILES = sorted(FOLDER.glob("*.txt"))


def bound(end: Bound | None, sign: str) -> str:
    if end is None:
        return ""
    return f" {sign}{'=' if end.inclusive else ''} {end.value}"


def describe(plan: Plan) -> str:
    spec: JoinSpec = plan.spec
    edge, window = spec.edge(0, 1), spec.window(0, 1)
    lines = [f"  {c.kind.value}: {c.text} | {c.handling}" for c in plan.conjuncts]
    for stream in spec.streams:
        for place, key in enumerate(stream.keys):
            own = "" if key.column is None else " (column)"
            lines.append(
                f"  key {stream.name}[{place}]: {key.sql} : {key.type} {key.encoding.value}{own}"
            )
    if edge.equality:
        exact = "exact" if edge.equality.exact else "re-checked"
        lines.append(f"  equality: r[{edge.equality.left}] = s[{edge.equality.right}] {exact}")
    for item in edge.ranges:
        exact = "exact" if item.exact else "re-checked"
        lines.append(
            f"  {item.kind.value}: r[{item.left}] - s[{item.right}]"
            f"{bound(item.low, '>')}{bound(item.high, '<')}"
            f" (arithmetic {item.arithmetic.value}, {exact})"
        )
    if window:
        lines.append(f"  window: {window.low} .. {window.high}")
    for stream in spec.streams:
        if stream.filter_sql:
            lines.append(f"  filter {stream.name}: {stream.filter_sql}")
    if spec.recheck_sql:
        lines.append(f"  recheck: {spec.recheck_sql}")
    routing, by = plan.tree.steps[0].routing, spec.stages[0].stores[0].group_by
    width = "" if by.width is None else f" bucket {by.width}"
    lines.append(f"  topology: {routing.routing.value} {routing.units}{width}")
    return "\n".join(lines)


def cases(path: Path) -> list[tuple[str, dict[str, object], str]]:
    found = []
    for block in path.read_text().split("\n\n"):
        lines = block.strip("\n").split("\n")
        if not lines[0] or lines[0].startswith("#"):
            continue
        settings: dict[str, object] = {}
        if len(lines) > 1 and lines[1].startswith("with "):
            settings = ast.literal_eval(lines.pop(1).removeprefix("with "))
        found.append((lines[0], settings, "\n".join(lines[1:])))
    return found


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_plans_are_as_written(path: Path, plan: Callable[..., Plan]) -> None:
    actual = [describe(plan(text, **settings)) for text, settings, _ in cases(path)]
    if os.environ.get("UPDATE_GOLDEN"):
        head = path.read_text().split("\n\n")[0]
        blocks = [head]
        for (text, settings, _), now in zip(cases(path), actual, strict=True):
            middle = [f"with {settings!r}"] if settings else []
            blocks.append("\n".join([text, *middle, now]))
        path.write_text("\n\n".join(blocks) + "\n")
    for (text, _, expected), now in zip(cases(path), actual, strict=True):
        assert now == expected, text


def test_there_are_golden_files() -> None:
    assert len(FILES) >= 6
    assert sum(len(cases(path)) for path in FILES) >= 50
