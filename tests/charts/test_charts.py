"""Charts on awkward data: every text is inside the picture and none lies over another."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from thetastream.bench.charts import (
    Bar,
    Points,
    _look,
    bar_chart,
    heat_map,
    line_chart,
    number,
    svg,
)

LONG = "a contestant whose name nobody had expected to be as long as this one turned out to be"
UNBROKEN = "x" * 90


def ratio_bars(*values: float) -> list[Bar]:
    return [
        Bar(f"contestant {at}", value, value * 0.9, value * 1.1, "7.5× slower")
        for at, value in enumerate(values)
    ]


def lines(names: list[str], points: list[tuple[float, ...]]) -> dict[str, Points]:
    return dict.fromkeys(names, points)


FIGURES: dict[str, Callable[[], Figure]] = {
    "one bar": lambda: bar_chart("One", [Bar("thetastream", 1.0)], label="rows per second"),
    "no bar": lambda: bar_chart("None", [], label="rows per second"),
    "many bars": lambda: bar_chart(
        "Many", ratio_bars(*(1000.0 + at for at in range(60))), label="rows per second"
    ),
    "nearly equal": lambda: bar_chart(
        "Equal", ratio_bars(99_999.0, 100_000.0, 100_000.1), label="rows per second"
    ),
    "over twenty": lambda: bar_chart("Log", ratio_bars(1.0, 18.0), label="rows per second"),
    "two decades and a half": lambda: bar_chart(
        "Log", ratio_bars(1.1, 280.0), label="rows per second"
    ),
    "fifteen decades": lambda: bar_chart("Log", ratio_bars(1e-3, 1.0, 1e12), label="rows/s"),
    "zero among large": lambda: bar_chart("Zero", ratio_bars(0.0, 1e9), label="rows/s"),
    "all zero": lambda: bar_chart("Zero", ratio_bars(0.0, 0.0), label="rows/s"),
    "long names": lambda: bar_chart(
        f"{LONG}: {LONG}",
        [Bar(LONG, 3.0, 1.0, 9.0, LONG), Bar(UNBROKEN, 2.0, note=UNBROKEN), Bar("c", 1.0)],
        label="rows per second",
        ours=LONG,
    ),
    "long names, logarithmic": lambda: bar_chart(
        LONG, [Bar(LONG, 3.0, note=LONG), Bar("b", 700.0)], label="rows per second", ours=LONG
    ),
    "without values": lambda: bar_chart(
        "Failed", [Bar("a", None, note="failed"), Bar("b", None, note=LONG)], label="rows/s"
    ),
    "mathematical names": lambda: bar_chart(
        "$x_1$ & <b>", [Bar("$a$", 1.0), Bar("a_b^c", 2.0)], label="$"
    ),
    "no line": lambda: line_chart("None", {}, x_label="batch", y_label="rows"),
    "no points": lambda: line_chart("None", lines([""], []), x_label="batch", y_label="rows"),
    "one point": lambda: line_chart("One", lines([""], [(7, 0)]), x_label="batch", y_label="s"),
    "one point, logarithmic": lambda: line_chart(
        "One", lines([""], [(7, 3)]), x_label="batch", y_label="s", log_x=True
    ),
    "many points": lambda: line_chart(
        "Many",
        lines([""], [(float(at), at**3.0) for at in range(3000)]),
        x_label="batch",
        y_label="rows per second",
    ),
    "many lines": lambda: line_chart(
        "Many",
        lines([f"{LONG} {at}" for at in range(15)], [(1.0, 1e6), (2.0, 1e6 + 1)]),
        x_label="batch",
        y_label="rows per second",
    ),
    "close on a logarithmic axis": lambda: line_chart(
        "Close",
        lines(["a", "b"], [(10, 1.0), (10.1, 1.0), (10.2, 1.1), (11, 0), (999.99, 2), (1000, 2)]),
        x_label="window",
        y_label="rows per second",
        log_x=True,
    ),
    "every x on a logarithmic axis": lambda: line_chart(
        "All",
        lines(["a"], [(float(at), 1.0, 0.5, 2.0) for at in range(1, 500)]),
        x_label="window",
        y_label="rows per second",
        log_x=True,
    ),
    "narrow on a logarithmic axis": lambda: line_chart(
        "Narrow",
        lines(["a"], [(1000.0, 1.0), (1000.4, 1.0), (1001.0, 1.0)]),
        x_label="window",
        y_label="rows per second",
        log_x=True,
    ),
    "far batches": lambda: line_chart(
        "Far",
        lines([""], [(123_456_789.0 + at, at) for at in range(10)]),
        x_label="batch",
        y_label="rows per second",
    ),
    "no cells": lambda: heat_map("None", [], x_label="batch", unit="s busy"),
    "no columns": lambda: heat_map("None", [("unit 0", [])], x_label="batch", unit="s busy"),
    "one cell": lambda: heat_map("One", [("unit 0", [0.0])], x_label="batch", unit="s busy"),
    "two rows": lambda: heat_map(
        "Two",
        [("unit 0", [0.1, 0.2]), ("unit 1", [0.3, 1234.5])],
        x_label="batch",
        unit="s busy",
    ),
    "many rows": lambda: heat_map(
        "Many",
        [(f"unit {at}", [float(at)] * 9) for at in range(100)],
        x_label="batch",
        unit="s busy",
    ),
    "long rows": lambda: heat_map(
        "Long", [(LONG, [1.0, 2.0]), (UNBROKEN, [1.0, 2.0])], x_label="batch", unit=LONG[:30]
    ),
}


@dataclass(frozen=True)
class Drawn:
    """A text and the place that it took in the picture."""

    text: str
    box: Bbox


def drawn(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> list[Drawn]:
    """What a reader sees of the figure's texts; marks outside the axes are made but not drawn."""
    found: dict[int, Drawn] = {}
    draw = Text.draw

    def watched(self: Text, renderer: object, *more: object, **named: object) -> None:
        draw(self, renderer, *more, **named)
        if self.get_visible() and self.get_text().strip():
            # By the artist: the layout draws once before the picture is drawn.
            found[id(self)] = Drawn(self.get_text(), self.get_window_extent(renderer))

    with monkeypatch.context() as patch, _look():
        patch.setattr(Text, "draw", watched)
        FigureCanvasAgg(figure).draw()
    return list(found.values())


@pytest.mark.parametrize("name", FIGURES)
def test_texts_stay_apart_and_inside(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = FIGURES[name]()
    texts = drawn(figure, monkeypatch)
    assert texts
    width, height = figure.bbox.size
    for at, one in enumerate(texts):
        assert one.box.x0 >= 0, one
        assert one.box.y0 >= 0, one
        assert one.box.x1 <= width, one
        assert one.box.y1 <= height, one
        for other in texts[:at]:
            common = Bbox.intersection(one.box, other.box)
            assert common is None or not (common.width and common.height), (one, other)


@pytest.mark.parametrize("name", FIGURES)
def test_a_file_has_room_for_its_marks_and_neither_date_nor_version(name: str) -> None:
    figure = FIGURES[name]()
    text = svg(figure)
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert text.count("dc:date") == text.count(matplotlib.__version__) == 0
    axes = figure.axes[0].get_window_extent()
    assert axes.width > 0.3 * figure.bbox.width
    assert axes.height > 20


@pytest.mark.parametrize(
    "name",
    ["far batches", "nearly equal", "many points", "many rows", "close on a logarithmic axis"],
)
def test_marks_of_an_axis_differ(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = FIGURES[name]()
    drawn(figure, monkeypatch)
    labels = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert len(set(labels)) == len(labels) >= 2


def test_the_same_data_give_the_same_file() -> None:
    program = (
        "from thetastream.bench.charts import *\n"
        "bars = [Bar('a', 3.0, 2.0, 4.0), Bar('b', 900.0, note='300× faster')]\n"
        "lines = {'a': [(1, 2), (3, 4)], 'b': [(1, 3), (3, 5)]}\n"
        "print(svg(bar_chart('bars', bars, label='rows')))\n"
        "print(svg(line_chart('lines', lines, x_label='x', y_label='y')))\n"
        "print(svg(heat_map('heat', [('a', [1, 2]), ('b', [3, 4])], x_label='x', unit='s')))\n"
    )
    first, second = (
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
        for _ in range(2)
    )
    assert first == second


def test_settings_of_the_reader_change_nothing() -> None:
    before = svg(FIGURES["two rows"]())
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "none"}):
        same = svg(FIGURES["two rows"]()) == before
    assert same


def test_values_far_apart_are_dots_where_length_would_mean_nothing() -> None:
    near = bar_chart("Near", [Bar("a", 1.0), Bar("b", 19.0)], label="rows").axes[0]
    far = bar_chart("Far", [Bar("a", 1.0), Bar("b", 21.0)], label="rows").axes[0]
    assert (near.get_xscale(), far.get_xscale()) == ("linear", "log")
    assert near.get_xlim()[0] == 0
    assert (len(near.patches), len(far.patches)) == (2, 0)
    assert far.get_xlabel() == "rows, logarithmic"
    bars = [Bar("a", 0.0), Bar("b", 1.0), Bar("c", 21.0)]
    assert bar_chart("A zero is shown", bars, label="rows").axes[0].get_xscale() == "linear"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.123456, "0.123"),
        (999.4, "999"),
        (999.6, "1k"),
        (1234567, "1.23M"),
        (999_950, "1M"),
        (-59_700, "-59.7k"),
        (2e9, "2G"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text
