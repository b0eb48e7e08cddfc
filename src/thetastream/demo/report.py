"""The demo's report: one HTML page with its charts inside, which needs nothing else to be read."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

import thetastream as ts
from thetastream.bench.charts import Bar, bar_chart, heat_map, line_chart, svg
from thetastream.demo.check import Comparison
from thetastream.demo.job import PREDICATE, WITHIN

MIB = 1024**2

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>thetastream demo</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root{{color-scheme:light dark}}
body{{font:15px/1.5 system-ui,sans-serif;max-width:760px;margin:2rem auto;padding:0 1rem}}
img{{max-width:100%;height:auto;border-radius:6px;margin:.5rem 0}}
pre{{overflow-x:auto;padding:.75rem;border:1px solid #8884;border-radius:6px;font-size:12px}}
td{{padding:.1rem 1.5rem .1rem 0}}td:last-child{{font-variant-numeric:tabular-nums}}
.ok{{color:#2e8f6e;font-weight:600}}.failed{{color:#b23a48;font-weight:600}}
</style></head><body>
<h1>orders ⋈ rides</h1>
<pre>{predicate}
within {within}</pre>
<p class="{kind}">{verdict}</p>
<table>{facts}</table>
{charts}
<h2>Plan</h2>
<pre>{plan}</pre>
</body></html>
"""


def write(
    path: Path, batches: Sequence[ts.BatchMetrics], comparison: Comparison, plan: str
) -> None:
    """The page, readable by its owner only."""
    rows = sum(batch.rows_in for batch in batches)
    seconds = sum(batch.seconds for batch in batches)
    last = batches[-1] if batches else None
    facts = {
        "Rows in": f"{rows:,}",
        # Not the batches' sum: that counts pairs before Spark re-checks the band in floats.
        "Results": f"{comparison.got:,}",
        "Late rows": f"{sum(batch.late for batch in batches):,}",
        "Batches": f"{len(batches)}, {seconds:.1f} s of work",
        "Rows in per second of work": f"{rows / seconds:,.0f}" if seconds else "-",
        "State at the end": f"{last.stored_rows:,} rows, {last.stored_bytes / MIB:.1f} MiB"
        if last
        else "-",
    }
    page = PAGE.format(
        predicate=escape(PREDICATE),
        within=escape(WITHIN),
        kind="ok" if comparison.equal else "failed",
        verdict=escape(str(comparison)),
        facts="".join(
            f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in facts.items()
        ),
        charts="\n".join(image(title, drawn) for title, drawn in charts(batches).items()),
        plan=escape(plan),
    )
    # An older report may have wider permissions; a new file takes them from here.
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(page)


def image(title: str, drawn: str) -> str:
    """An SVG file as an element of the page; inside an image its ids meet no others."""
    data = base64.b64encode(drawn.encode()).decode()
    return f'<img alt="{escape(title)}" src="data:image/svg+xml;base64,{data}">'


def charts(batches: Sequence[ts.BatchMetrics]) -> dict[str, str]:
    """Throughput, results, lag, state and unit load over the batches: titles and SVG files."""
    units = sorted({unit.unit for batch in batches for unit in batch.units})
    busy = [{unit.unit: unit.busy for unit in batch.units} for batch in batches]
    received = dict.fromkeys(units, 0)
    for batch in batches:
        for unit in batch.units:
            received[unit.unit] += unit.rows_in
    lines: dict[str, tuple[str, Sequence[float | None]]] = {
        "Throughput": ("rows in per second", [b.rows_per_second for b in batches]),
        "Results": ("rows out per batch", [b.results for b in batches]),
        "Watermark behind the newest event": ("seconds of event time", [b.lag for b in batches]),
        "State, rows": ("stored tuples", [b.stored_rows for b in batches]),
        "State, size": ("MiB", [b.stored_bytes / MIB for b in batches]),
    }
    figures = {
        title: line_chart(
            title,
            {"": [(b.batch, y) for b, y in zip(batches, values, strict=True) if y is not None]},
            x_label="batch",
            y_label=y_label,
        )
        for title, (y_label, values) in lines.items()
    }
    load, rows = "Load of each unit", "Rows that each unit received"
    figures[load] = heat_map(
        load,
        [(f"unit {unit}", [loads.get(unit, 0.0) for loads in busy]) for unit in units],
        x_label="batch",
        unit="s busy",
    )
    figures[rows] = bar_chart(
        rows,
        [Bar(f"unit {unit}", float(received[unit])) for unit in units],
        label="rows over all batches, copies included",
    )
    return {title: svg(figure) for title, figure in figures.items()}
