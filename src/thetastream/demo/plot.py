"""Small plots as SVG text, without a plotting package and without anything from the network.

Each function returns one `<svg>` element that stands alone: it follows the reader's light or dark
mode, and each mark has a tooltip with its exact value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 720
HEIGHT = 260
LEFT, RIGHT, TOP, BOTTOM = 64, 96, 40, 40
"""Margins: the y labels, the names of the lines, the title, the x labels."""

COLOURS = ("#2a6fbb", "#d9662b", "#2e8f6e", "#8f5bb3", "#b23a48", "#6b7280")
"""Told apart by most colour-blind readers, and each readable on white and on black."""

STYLE = """
svg{font:12px system-ui,sans-serif;background:#fff}
.t{font-weight:600;font-size:14px}.t,.v{fill:#1f2937}.l{fill:#6b7280}
.g{stroke:#e5e7eb}.a{stroke:#9ca3af}
@media (prefers-color-scheme:dark){svg{background:#14171c}.t,.v{fill:#e5e7eb}.l{fill:#9ca3af}
.g{stroke:#2b313a}.a{stroke:#6b7280}}
"""


@dataclass(frozen=True)
class Series:
    """One line: a name and its points."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Bar:
    """One bar, with the spread of its runs when there were several."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    note: str = ""


def number(value: float) -> str:
    """A value as a short text: 1234567 becomes 1.23M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def ticks(high: float, count: int = 4) -> list[float]:
    """Round values from zero to at least `high`."""
    if not high > 0:
        return [0.0, 1.0]
    rough = high / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    return [step * i for i in range(math.ceil(high / step - 1e-9) + 1)]


def line_chart(
    title: str, series: Sequence[Series], *, x_label: str, y_label: str, log_x: bool = False
) -> str:
    """Lines over a common x axis, each named at its end."""
    shown = [line for line in series if line.points]
    xs = [x for line in shown for x, _ in line.points]
    ys = [y for line in shown for _, y in line.points]
    if not xs:
        return _frame(title, [_text(WIDTH / 2, HEIGHT / 2, "no data", anchor="middle")])

    def along(x: float) -> float:
        return math.log(x) if log_x else x

    low, high = along(min(xs)), along(max(xs))
    marks = ticks(max(ys))
    top = marks[-1]

    def px(x: float) -> float:
        return LEFT + (along(x) - low) / ((high - low) or 1.0) * (WIDTH - LEFT - RIGHT)

    def py(y: float) -> float:
        return HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM)

    parts = _grid(marks, py)
    parts += [_text(px(x), HEIGHT - BOTTOM + 16, number(x), anchor="middle") for x in _x_marks(xs)]
    parts += _labels(x_label, y_label)
    ends = _apart([py(line.points[-1][1]) for line in shown])
    for at, (line, end) in enumerate(zip(shown, ends, strict=True)):
        colour = COLOURS[at % len(COLOURS)]
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in line.points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y in line.points:
            tip = escape(f"{line.name}: {number(y)} at {number(x)}")
            parts.append(
                f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="2.5" fill="{colour}">'
                f"<title>{tip}</title></circle>"
            )
        parts.append(_text(WIDTH - RIGHT + 6, end + 4, line.name, fill=colour))
    return _frame(title, parts)


def bar_chart(title: str, bars: Sequence[Bar], *, label: str) -> str:
    """Horizontal bars, each with its value beside it; a thin line shows the spread."""
    left, step = 160, 30
    height = TOP + step * len(bars) + BOTTOM
    marks = ticks(max((bar.high or bar.value for bar in bars), default=1.0))

    def px(value: float) -> float:
        return left + value / marks[-1] * (WIDTH - left - RIGHT)

    parts = [
        f'<line class="g" x1="{px(m):.1f}" x2="{px(m):.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>'
        + _text(px(m), height - BOTTOM + 16, number(m), anchor="middle")
        for m in marks
    ]
    for at, bar in enumerate(bars):
        y = TOP + step * at + 6
        middle = y + 9
        tip = escape(f"{bar.name}: {number(bar.value)} {bar.note}".strip())
        parts.append(_text(left - 8, middle + 4, bar.name, anchor="end", kind="v"))
        parts.append(
            f'<rect x="{left}" y="{y}" width="{max(1.0, px(bar.value) - left):.1f}" height="18" '
            f'rx="2" fill="{COLOURS[0 if at == 0 else 5]}"><title>{tip}</title></rect>'
        )
        end = bar.value
        if bar.low is not None and bar.high is not None and bar.high > bar.low:
            end = max(end, bar.high)
            parts.append(
                f'<line class="a" x1="{px(bar.low):.1f}" x2="{px(bar.high):.1f}" y1="{middle}" '
                f'y2="{middle}" stroke-width="2"/>'
            )
        text = f"{number(bar.value)} {bar.note}".strip()
        parts.append(_text(px(end) + 6, middle + 4, text, kind="v"))
    parts.append(_text(left, height - 6, label))
    return _frame(title, parts, height=height)


def heat_map(
    title: str, rows: Sequence[tuple[str, Sequence[float]]], *, x_label: str, unit: str
) -> str:
    """One row of cells per name; the darker a cell, the nearer to the largest value."""
    cells = max((len(values) for _, values in rows), default=0)
    high = max((value for _, values in rows for value in values), default=0.0)
    step = min(26, max(8, 240 // max(1, len(rows))))
    height = TOP + step * len(rows) + BOTTOM
    width = (WIDTH - LEFT - RIGHT) / max(1, cells)
    parts: list[str] = []
    for at, (name, values) in enumerate(rows):
        y = TOP + step * at
        parts.append(_text(LEFT - 8, y + step / 2 + 4, name, anchor="end"))
        for column, value in enumerate(values):
            shade = 0.06 + 0.94 * (value / high if high > 0 else 0.0)
            tip = escape(f"{name}, batch {column}: {number(value)} {unit}")
            parts.append(
                f'<rect x="{LEFT + column * width:.1f}" y="{y}" width="{max(0.5, width - 1):.1f}" '
                f'height="{step - 1}" fill="{COLOURS[0]}" fill-opacity="{shade:.2f}">'
                f"<title>{tip}</title></rect>"
            )
    parts.append(_text(WIDTH - RIGHT + 6, TOP + 12, f"darkest: {number(high)}"))
    parts.append(_text(WIDTH - RIGHT + 6, TOP + 26, unit))
    parts.append(_text(LEFT, height - 14, x_label))
    return _frame(title, parts, height=height)


def _frame(title: str, parts: Sequence[str], *, height: float = HEIGHT) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" role="img" aria-label="{escape(title)}">'
        f"<style>{STYLE}</style>"
        f'<text class="t" x="8" y="20">{escape(title)}</text>\n{body}\n</svg>'
    )


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", kind: str = "l", fill: str = ""
) -> str:
    colour = f' style="fill:{fill}"' if fill else ""
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{colour}>'
        f"{escape(text)}</text>"
    )


def _grid(marks: Sequence[float], py: Callable[[float], float]) -> list[str]:
    return [
        f'<line class="{"a" if m == 0 else "g"}" x1="{LEFT}" x2="{WIDTH - RIGHT}" '
        f'y1="{py(m):.1f}" y2="{py(m):.1f}"/>' + _text(LEFT - 8, py(m) + 4, number(m), anchor="end")
        for m in marks
    ]


def _labels(x_label: str, y_label: str) -> list[str]:
    return [
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_label, anchor="middle"),
        _text(8, TOP - 4, y_label),
    ]


def _x_marks(xs: Sequence[float]) -> list[float]:
    """At most about ten of the x values themselves: batches and window sizes are whole numbers."""
    distinct = sorted(set(xs))
    return distinct[:: max(1, math.ceil(len(distinct) / 10))]


def _apart(places: Sequence[float], gap: float = 14.0) -> list[float]:
    """The places of labels, pushed down where two would overlap."""
    placed = list(places)
    last = -math.inf
    for at in sorted(range(len(placed)), key=placed.__getitem__):
        placed[at] = last = max(placed[at], last + gap)
    return placed
