"""What the runs of a case say: throughput, time, state, and ratios within a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any, NamedTuple

from thetastream.bench.cases import DUCKDB, OURS

Document = dict[str, Any]
Run = dict[str, Any]
GIB = 1024**3


class Spread(NamedTuple):
    """The runs of one figure."""

    middle: float
    low: float
    high: float

    def text(self, show: Callable[[float], str]) -> str:
        if self.low == self.high:
            return show(self.middle)
        return f"{show(self.middle)} ({show(self.low)}–{show(self.high)})"


def spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(median(known), min(known), max(known)) if known else None


# One run


def counted(run: Run, skip: int) -> list[dict[str, Any]]:
    """The triggers that count: those after the warm-up, or all if nothing came after it."""
    triggers: list[dict[str, Any]] = run.get("triggers", [])
    return triggers[skip:] or triggers


def throughput(run: Run, skip: int) -> float | None:
    """Input rows per second of trigger time; for DuckDB, of the one query."""
    if "seconds" in run:
        return float(run["rows"] / run["seconds"])
    triggers = counted(run, skip)
    seconds = sum(trigger["seconds"] for trigger in triggers)
    return sum(trigger["rows"] for trigger in triggers) / seconds if seconds else None


def trigger_seconds(run: Run, skip: int) -> float | None:
    triggers = counted(run, skip)
    return median(trigger["seconds"] for trigger in triggers) if triggers else None


def bytes_per_tuple(run: Run, skip: int) -> float | None:
    """State bytes per stored tuple after the last trigger that reports them."""
    for trigger in reversed(counted(run, skip)):
        if trigger.get("state_rows") and trigger.get("state_bytes"):
            return float(trigger["state_bytes"] / trigger["state_rows"])
    return None


def out_bytes(run: Run, skip: int) -> float | None:
    """Bytes that left the units in the triggers that count."""
    values: list[Any] = [trigger.get("out_bytes") for trigger in counted(run, skip)]
    return float(sum(values)) if values and None not in values else None


def entries(run: Run, skip: int) -> float | None:
    """Intermediate results that are stored after the last trigger that reports them."""
    for trigger in reversed(counted(run, skip)):
        if trigger.get("entries"):
            return float(trigger["entries"])
    return None


def state_bytes(run: Run, skip: int) -> float | None:
    """Bytes of state after the last trigger that reports them."""
    for trigger in reversed(counted(run, skip)):
        if trigger.get("state_bytes"):
            return float(trigger["state_bytes"])
    return None


def peak_memory(run: Run) -> float | None:
    """GiB at the worst moment, of a run that came to its end: one that broke off needs less."""
    return max(run["memory"]) / GIB if run["finished"] and run.get("memory") else None


def results(run: Run) -> int | None:
    """All result rows, if each trigger reported its own."""
    if "results" in run:
        return int(run["results"])
    numbers = [trigger["results"] for trigger in run.get("triggers", [])]
    return None if not numbers or None in numbers else sum(numbers)


def one_line(skip: int, run: Run) -> str:
    """A run for the terminal."""
    if run.get("failed"):
        return f"FAILED\n{run.get('log', '')}"
    rate = throughput(run, skip)
    if rate is None:
        return "no trigger finished"
    found = results(run)
    count = "?" if found is None else f"{found:,}"
    done = "" if run["finished"] else f", stopped after {len(run['triggers'])} triggers"
    each = trigger_seconds(run, skip)
    took = f"{each:6.2f} s a trigger" if each is not None else f"{run['seconds']:6.2f} s in all"
    return f"{rate:12,.0f} rows/s  {took}  {count} results{done}"


def disagreements(document: Document) -> list[str]:
    """Every way in which contestants that read the same rows gave different numbers of results."""
    found = [
        f"{run['contestant']} failed in run {run['run']}"
        for run in document["runs"]
        if run.get("failed")
    ]
    for rows in sorted({run["rows_per_trigger"] for run in document["runs"]}):
        runs = [run for run in document["runs"] if run["rows_per_trigger"] == rows]
        seen: dict[int, dict[int, str]] = {}
        for run in runs:
            for trigger in run.get("triggers", []):
                if trigger["results"] is not None:
                    counts = seen.setdefault(trigger["batch"], {})
                    counts.setdefault(trigger["results"], run["contestant"])
        found += [
            f"trigger {batch}: " + ", ".join(f"{who} {count:,}" for count, who in counts.items())
            for batch, counts in sorted(seen.items())
            if len(counts) > 1
        ]
        totals: dict[int, str] = {}
        for run in runs:
            count = results(run)
            if run["finished"] and count is not None:
                totals.setdefault(count, run["contestant"])
        if len(totals) > 1:
            found.append("in all: " + ", ".join(f"{who} {n:,}" for n, who in totals.items()))
    return found


# One case


def of(document: Document, contestant: str) -> list[Run]:
    """The contestant's runs; DuckDB's runs on a capped dataset are only a check."""
    return [
        run
        for run in document["runs"]
        if run["contestant"] == contestant and not (contestant == DUCKDB and run["capped"])
    ]


def skip_of(document: Document) -> int:
    return int(document["case"]["skip"])


def baseline(document: Document) -> str:
    """The contestant that ratios are taken of."""
    return str(document["case"].get("baseline", OURS))


def completeness(document: Document, contestant: str) -> Spread | None:
    """The results of a contestant in each run over those that DuckDB found in the same rows; None
    if DuckDB was not asked."""
    known = {results(run) for run in of(document, DUCKDB) if run["finished"]}
    expected = next(iter(known), None) if len(known) == 1 else None
    if not expected:
        return None
    found = (results(run) for run in of(document, contestant) if run["finished"])
    return spread(None if count is None else count / expected for count in found)


def rates(document: Document, contestant: str) -> Spread | None:
    return spread(throughput(run, skip_of(document)) for run in of(document, contestant))


def ratios(
    document: Document, figure: Callable[[Run, int], float | None], other: str
) -> list[float]:
    """Ours over the other's, run by run; that of the baseline, if the case has another one."""
    skip = skip_of(document)
    own = {run["run"]: figure(run, skip) for run in of(document, baseline(document))}
    theirs = {run["run"]: figure(run, skip) for run in of(document, other)}
    return [
        ours / their
        for at in sorted(own)
        if (ours := own[at]) is not None and (their := theirs.get(at))
    ]
