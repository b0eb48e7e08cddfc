"""A plan as people read it: aligned text, or HTML in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from thetastream.graph import TreeSpec, TriSpec
from thetastream.planner.conjuncts import Conjunct
from thetastream.planner.costs import Cost, messages
from thetastream.spec import JoinSpec


@dataclass(frozen=True)
class Alternative:
    """What was not chosen, and its estimated cost in tuple copies if there is one."""

    name: str
    cost: float | None
    note: str = ""


@dataclass(frozen=True)
class Decision:
    """One choice of the planner."""

    subject: str
    choice: str
    reason: str
    alternatives: tuple[Alternative, ...] = ()


def explain_text(
    spec: JoinSpec,
    conjuncts: Sequence[Conjunct],
    decisions: Sequence[Decision],
    costs: Sequence[Cost],
) -> str:
    """The plan as aligned text."""
    first, second = (stream.name for stream in spec.streams)
    lines = [f"Join of {first} and {second} on {spec.predicate}"]
    if spec.origin:
        lines.append(f"  built at {spec.origin}")
    lines += ["", "Decisions"]
    lines += _table((d.subject, d.choice, d.reason) for d in decisions)
    lines += ["", "Conjuncts"]
    lines += _table((c.text, c.kind.value, c.handling) for c in conjuncts) or ["  none"]
    lines += ["", "Streams"]
    for stream in spec.streams:
        keys = ", ".join(f"{key.sql} ({key.encoding.value})" for key in stream.keys)
        lines += _table(
            [
                (stream.name, "keys", keys or "none"),
                ("", "filter", stream.filter_sql or "none"),
            ]
        )
    if spec.recheck_sql:
        lines += ["", "Re-checked by Spark", f"  {spec.recheck_sql}"]
    lines += ["", "Estimated cost (copies stored and messages sent, one tuple of each stream)"]
    lines += _table(_cost_rows(spec, costs))
    return "\n".join(lines)


def explain_html(
    spec: JoinSpec,
    conjuncts: Sequence[Conjunct],
    decisions: Sequence[Decision],
    costs: Sequence[Cost],
) -> str:
    """The plan as HTML that needs nothing else."""
    first, second = (stream.name for stream in spec.streams)
    parts = [
        "<div>",
        f"<p><b>Join of {html.escape(first)} and {html.escape(second)}</b> on "
        f"<code>{html.escape(spec.predicate)}</code></p>",
        _html_table(
            ("decision", "choice", "reason"),
            ((d.subject, d.choice, d.reason) for d in decisions),
        ),
        _html_table(
            ("conjunct", "class", "how it is handled"),
            ((c.text, c.kind.value, c.handling) for c in conjuncts),
        ),
        _html_table(
            ("stream", "keys", "filter"),
            (
                (
                    stream.name,
                    ", ".join(f"{key.sql} ({key.encoding.value})" for key in stream.keys),
                    stream.filter_sql or "",
                )
                for stream in spec.streams
            ),
        ),
    ]
    if spec.recheck_sql:
        parts.append(f"<p>Re-checked by Spark: <code>{html.escape(spec.recheck_sql)}</code></p>")
    head, *rows = _cost_rows(spec, costs)
    parts += [_html_table(head, rows), "</div>"]
    return "".join(parts)


def explain_graph(
    spec: TriSpec, conjuncts: Sequence[Conjunct], decisions: Sequence[Decision]
) -> str:
    """The plan of a three-way join as aligned text."""
    names = [stream.name for stream in spec.streams]
    lines = [f"Join of {names[0]}, {names[1]} and {names[2]} on {spec.predicate}"]
    if spec.origin:
        lines.append(f"  built at {spec.origin}")
    lines += ["", "Join graph", *drawing(spec)]
    lines += ["", "Decisions"]
    lines += _table((d.subject, d.choice, d.reason) for d in decisions)
    lines += ["", "Conjuncts"]
    lines += _table((c.text, c.kind.value, c.handling) for c in conjuncts) or ["  none"]
    lines += ["", "Streams"]
    for stream in spec.streams:
        keys = ", ".join(f"{key.sql} ({key.encoding.value})" for key in stream.keys)
        lines += _table(
            [
                (stream.name, "keys", keys or "none"),
                ("", "filter", stream.filter_sql or "none"),
            ]
        )
    if spec.recheck_sql:
        lines += ["", "Re-checked by Spark", f"  {spec.recheck_sql}"]
    lines += ["", "Estimated cost (copies stored and messages sent, one tuple of the stream)"]
    lines += _table(_message_rows(spec))
    return "\n".join(lines)


def explain_graph_html(
    spec: TriSpec, conjuncts: Sequence[Conjunct], decisions: Sequence[Decision]
) -> str:
    """The plan of a three-way join as HTML that needs nothing else."""
    names = ", ".join(stream.name for stream in spec.streams)
    picture = html.escape("\n".join(drawing(spec)))
    parts = [
        f"<div><p><b>Join of {html.escape(names)}</b> on "
        f"<code>{html.escape(spec.predicate)}</code></p><pre>{picture}</pre>",
        _html_table(
            ("decision", "choice", "reason"),
            ((d.subject, d.choice, d.reason) for d in decisions),
        ),
        _html_table(
            ("conjunct", "class", "how it is handled"),
            ((c.text, c.kind.value, c.handling) for c in conjuncts),
        ),
    ]
    if spec.recheck_sql:
        parts.append(f"<p>Re-checked by Spark: <code>{html.escape(spec.recheck_sql)}</code></p>")
    head, *rows = _message_rows(spec)
    parts += [_html_table(head, rows), "</div>"]
    return "".join(parts)


def explain_steps(spec: TreeSpec, decisions: Sequence[Decision], steps: Sequence[str]) -> str:
    """The plan of a tree of joins as text: why in this order, then each join."""
    lines = [f"Join of {len(spec.order)} streams on {spec.predicate}"]
    if spec.origin:
        lines.append(f"  built at {spec.origin}")
    lines += ["", "Decisions"]
    lines += _table((d.subject, d.choice, d.reason) for d in decisions)
    for number, step in enumerate(steps, 1):
        lines += ["", f"Join {number}", *(f"  {line}".rstrip() for line in step.splitlines())]
    return "\n".join(lines)


def explain_steps_html(spec: TreeSpec, decisions: Sequence[Decision], steps: Sequence[str]) -> str:
    """The plan of a tree of joins as HTML."""
    table = _html_table(
        ("decision", "choice", "reason"), ((d.subject, d.choice, d.reason) for d in decisions)
    )
    head = f"<div><p><b>Join</b> on <code>{html.escape(spec.predicate)}</code></p>{table}"
    return head + "".join(steps) + "</div>"


def drawing(spec: TriSpec) -> list[str]:
    """The join graph in a few lines."""
    names = [stream.name for stream in spec.streams]
    first, middle, last = spec.order
    one, two = spec.edge(first, middle), spec.edge(middle, last)
    line = f"  {names[first]} --{one.kind}-- {names[middle]} --{two.kind}-- {names[last]}"
    ends = spec.edge(first, last)
    if not ends.joined:
        return [line]
    start, stop = 2, len(line) - len(names[last])
    closing = f"--{ends.kind}--".center(stop - start - 2, "-")
    return [line, " " * start + "|" + " " * (stop - start - 1) + "|", " " * start + "+" + closing
            + "-+"]  # fmt: skip


def _message_rows(spec: TriSpec) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("stream", "memory", "bandwidth")]
    for number, stream in enumerate(spec.streams):
        rows.append((stream.name, "1", f"{messages(spec, number):g}"))
    return rows


def _cost_rows(spec: JoinSpec, costs: Sequence[Cost]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("topology", "memory", "bandwidth", "")]
    for item in costs:
        chosen = "chosen" if item.routing is spec.routing.routing else ""
        memory, bandwidth = f"{sum(item.memory):g}", f"{sum(item.bandwidth):g}"
        rows.append((item.routing.value, memory, bandwidth, chosen))
    return rows


def _table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    found = list(rows)
    if not found:
        return []
    widths = [max(len(row[i]) for row in found) for i in range(len(found[0]))]
    return [
        "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in found
    ]


def _html_table(head: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    def cells(tag: str, row: Iterable[str]) -> str:
        style = ' style="text-align:left"'
        return "".join(f"<{tag}{style}>{html.escape(cell)}</{tag}>" for cell in row)

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', head)}</tr>{body}</table>"
