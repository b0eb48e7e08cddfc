"""`thetastream simulate`: a scenario on a simulated cluster."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from thetastream.errors import JobError
from thetastream.simulator.scenario import Scenario, load
from thetastream.simulator.trace import Trace

_SHOWN = (
    ("units", "units that worked", "{:,.0f}"),
    ("rows", "tuples", "{:,.0f}"),
    ("results", "results", "{:,.0f}"),
    ("delay", "mean delay of a result", "{:.3g} s"),
    ("throughput", "throughput at saturation", "{:,.0f} tuples/s"),
    ("utilisation", "busiest unit, share of the time", "{:.1%}"),
    ("imbalance", "busiest unit over the mean", "{:.3g}"),
    ("bytes", "bytes sent to the units", "{:,.0f}"),
    ("stored_bytes", "bytes stored at the end", "{:,.0f}"),
    ("largest_unit_bytes", "of them in the largest unit", "{:,.0f}"),
)


def simulate(chosen: argparse.Namespace) -> int:
    """Runs the scenario and prints its measures."""
    scenario = load(chosen.scenario)
    trace = scenario.simulation.run(scenario.seconds, progress=_bar())
    found = trace.summary(scenario.after)
    if chosen.plot is not None:
        _plot(chosen.plot, trace, scenario)
    if chosen.json:
        kept = {"summary": found, "decisions": trace.decisions, "units": trace.units}
        print(json.dumps(kept))
        return 0
    for name, label, form in _SHOWN:
        print(f"{label:<32} {form.format(found[name])}")
    for text in trace.decisions:
        print(text)
    return 0


def _bar() -> Callable[[float], None] | None:
    """How far it is, on a terminal."""
    if not sys.stderr.isatty():
        return None

    def show(share: float) -> None:
        done = round(30 * share)
        end = "\n" if share >= 1 else ""
        bar = "█" * done + "░" * (30 - done)
        print(f"\r{bar} {share:4.0%}", end=end, file=sys.stderr, flush=True)

    return show


def _plot(file: Path, trace: Trace, scenario: Scenario) -> None:
    from thetastream.bench.charts import panels, svg

    xs = [closed for closed, _ in trace.arrived]
    ticks = range(len(xs))
    busy = trace.by_tick(lambda turn: turn.cpu)
    stored = trace.by_tick(lambda turn: turn.stored_bytes)
    count = trace.by_tick(lambda turn: turn.delays)
    delay = trace.by_tick(lambda turn: turn.delay)
    units = dict(trace.units)
    rows = [
        ("tuples/s", [rows / (trace.seconds / len(xs)) for _, rows in trace.arrived], ()),
        ("delay, s", [delay[t] / count[t] if count.get(t) else 0.0 for t in ticks], ()),
        ("CPU s", [busy.get(t, 0.0) for t in ticks], ()),
        ("stored MB", [stored.get(t, 0.0) / 1e6 for t in ticks], ()),
        ("units", [float(units[at]) for at in xs], ()),
    ]
    shaded = (0.0, scenario.after) if scenario.after else None
    figure = panels("Simulation", xs, rows, x_label="seconds", shaded=shaded)
    try:
        file.write_text(svg(figure))
    except OSError as error:
        raise JobError(
            f"{file} cannot be written: {error.strerror or error}", hint="choose another path"
        ) from None
