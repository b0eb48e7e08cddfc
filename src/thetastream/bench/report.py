"""From the JSON of the cases to the summary and the plots. Reads nothing but those files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from thetastream.bench import cases
from thetastream.bench.cases import (
    DUCKDB,
    LISTED,
    OURS,
    PAIRS,
    PLAIN,
    SPARK_DEFAULT,
    SPARK_ROCKSDB,
    TREE,
)
from thetastream.demo.plot import Bar, Series, bar_chart, line_chart, number

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
    """All result rows, if each trigger told its own."""
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


def rates(document: Document, contestant: str) -> Spread | None:
    return spread(throughput(run, skip_of(document)) for run in of(document, contestant))


def ratios(
    document: Document, figure: Callable[[Run, int], float | None], other: str
) -> list[float]:
    """Ours over the other's, run by run."""
    skip = skip_of(document)
    own = {run["run"]: figure(run, skip) for run in of(document, OURS)}
    theirs = {run["run"]: figure(run, skip) for run in of(document, other)}
    return [
        ours / their
        for at in sorted(own)
        if (ours := own[at]) is not None and (their := theirs.get(at))
    ]


def note(document: Document, contestant: str) -> str:
    """What a reader must know about how far the contestant came."""
    runs = of(document, contestant)
    parts = []
    if runs and runs[0]["capped"]:
        parts.append(f"{runs[0]['rows_per_trigger']:,} rows per trigger")
    if any(run.get("failed") for run in runs):
        parts.append("failed")
    elif any(not run["finished"] for run in runs):
        reached = min(len(run.get("triggers", [])) for run in runs)
        total = document["case"]["triggers"]
        parts.append(f"{reached} of {total} triggers within {document['limit']:.0f} s")
    if runs and not any(run.get("failed") for run in runs):
        few = [run for run in runs if 0 < len(run.get("triggers", [])) <= skip_of(document)]
        if few:
            parts.append("warm-up counted")
    return "; ".join(parts)


def names(document: Document) -> list[str]:
    """The contestants of the case, in its own order."""
    present = {run["contestant"] for run in document["runs"]}
    return [name for name in document["case"]["contestants"] if name in present]


def table(document: Document) -> list[str]:
    """Throughput of each contestant."""
    lines = [
        "| | rows per second | s per trigger | thetastream is | |",
        "|---|---:|---:|---:|---|",
    ]
    for name in names(document):
        rate = rates(document, name)
        each = spread(trigger_seconds(run, skip_of(document)) for run in of(document, name))
        times = spread(ratios(document, throughput, name)) if name != OURS else None
        lines.append(
            f"| {name} | {rate.text(number) if rate else '–'} "
            f"| {each.text(lambda v: f'{v:.2f}') if each else '–'} "
            f"| {times.text(lambda v: f'{v:.2f}') + ' ×' if times else ''} "
            f"| {note(document, name)} |"
        )
    return lines


# All cases


class Figure(NamedTuple):
    """Something the project sets out to reach."""

    what: str
    wanted: str
    measured: Spread | None
    reached: Callable[[float], bool]


def figures(documents: dict[str, Document]) -> list[Figure]:
    """The aims, each with what was measured, as far as the cases have been run."""

    def against_spark(name: str) -> Spread | None:
        document = documents.get(name)
        if document is None:
            return None
        both = [ratios(document, throughput, other) for other in (SPARK_DEFAULT, SPARK_ROCKSDB)]
        # The faster of Spark's two set-ups is the one with the smaller ratio.
        return min((s for r in both if (s := spread(r))), key=lambda s: s.middle, default=None)

    def against_own(name: str, other: str) -> Spread | None:
        if name not in documents or other not in documents:
            return None
        own, base = rates(documents[name], OURS), rates(documents[other], OURS)
        if own is None or base is None:
            return None
        return Spread(own.middle / base.middle, own.low / base.high, own.high / base.low)

    def small() -> Spread | None:
        document = documents.get("small")
        if document is None:
            return None
        both = [
            ratios(document, trigger_seconds, other) for other in (SPARK_DEFAULT, SPARK_ROCKSDB)
        ]
        return max((s for r in both if (s := spread(r))), key=lambda s: s.middle, default=None)

    def state() -> Spread | None:
        document = documents.get("equality")
        return spread(ratios(document, bytes_per_tuple, SPARK_DEFAULT)) if document else None

    def within(name: str, what: Callable[[Run, int], float | None], other: str) -> Spread | None:
        document = documents.get(name)
        return spread(ratios(document, what, other)) if document else None

    def memory() -> Spread | None:
        document = documents.get("memory")
        if document is None:
            return None
        return spread(peak_memory(run) for run in of(document, OURS))

    faster = "throughput against the faster of Spark's set-ups"
    own = "throughput relative to our equality join"
    return [
        Figure(f"equality, uniform: {faster}", "≥ 8", against_spark("equality"), lambda v: v >= 8),
        Figure(f"equality, skewed: {faster}", "≥ 10", against_spark("skew"), lambda v: v >= 10),
        Figure(f"band: {own}", "≥ 0.6", against_own("band", "equality"), lambda v: v >= 0.6),
        Figure(
            f"key + band: {own}", "≥ 0.6", against_own("key-band", "equality"), lambda v: v >= 0.6
        ),
        Figure(
            "state bytes per stored tuple against Spark's default",
            "≤ 0.125",
            state(),
            lambda v: v <= 0.125,
        ),
        Figure(
            "trigger of 1,000 rows: time against the faster of Spark's set-ups",
            "≤ 1.15",
            small(),
            lambda v: v <= 1.15,
        ),
        Figure(
            "window of 30 triggers: throughput relative to 3",
            "≥ 0.5",
            against_own("growth-30", "growth-3"),
            lambda v: v >= 0.5,
        ),
        Figure(
            "memory of all processes, 10 M live tuples on each side, GiB",
            "≤ 12",
            memory(),
            lambda v: v <= 12,
        ),
        *(
            Figure(
                f"count and sum by {groups} groups, 1,000 pairs a row: in place against listed",
                "≥ 50",
                within(f"sum-{groups}", throughput, LISTED),
                lambda v: v >= 50,
            )
            for groups in (10, 10_000)
        ),
        Figure(
            "the same with 10,000 pairs a row: time relative to 1,000",
            "≤ 1.5",
            against_own("sum-10", "sum-more"),
            lambda v: v <= 1.5,
        ),
        *(
            Figure(
                f"TPC-H {name}: throughput with aggregates relative to without",
                "≥ 0.95",
                within(f"tpch-{name.lower()}-sum", throughput, PLAIN),
                lambda v: v >= 0.95,
            )
            for name in ("Q5", "Q7", "Band")
        ),
        *(
            Figure(
                f"three streams, cyclic, {title}: time of a trigger against the tree",
                "≤ 0.5",
                within(f"cyclic-{data}", trigger_seconds, TREE),
                lambda v: v <= 0.5,
            )
            for data, title in (("gps", "GPS"), ("packets", "packets"))
        ),
        *(
            Figure(
                f"three streams, chain, {title}: time of a trigger against the tree",
                "≤ 0.7",
                within(f"chain-{data}", trigger_seconds, TREE),
                lambda v: v <= 0.7,
            )
            for data, title in (("gps", "GPS"), ("packets", "packets"))
        ),
        *(
            Figure(
                f"three streams, {shape}, {title}: throughput against the tree",
                "≥ 1.1",
                within(f"{shape}-{data}", throughput, TREE),
                lambda v: v >= 1.1,
            )
            for shape in ("cyclic", "chain")
            for data, title in (("gps", "GPS"), ("packets", "packets"))
        ),
        *(
            Figure(
                f"three streams, {shape}, {title}: intermediate entries, packed against pairs",
                "≤ 0.35",
                within(f"{shape}-{data}", entries, PAIRS),
                lambda v: v <= 0.35,
            )
            for shape in ("cyclic", "chain")
            for data, title in (("gps", "GPS"), ("packets", "packets"))
        ),
        Figure(
            "TPC-H Band: bytes that leave the units with local views relative to without",
            "≤ 0.1",
            within("tpch-band-sum", out_bytes, PLAIN),
            lambda v: v <= 0.1,
        ),
    ]


def counts_for_aims(document: Document) -> bool:
    """Whether the case ran at its full size and all agree: anything else proves nothing."""
    defined = {case.name: case for case in cases.CASES}[document["case"]["name"]]
    size = ("rows", "triggers", "window", "results")
    return not document.get("disagreements") and all(
        document["case"][field] == getattr(defined, field) for field in size
    )


def write(out: Path) -> None:
    """README.md and the plots, from every JSON file in the folder."""
    documents = {
        case.name: json.loads(file.read_text())
        for case in cases.CASES
        if (file := out / f"{case.name}.json").exists()
    }
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`; the JSON files beside this one hold every trigger of every run.",
        "Each figure is the median of the runs, with the smallest and the largest in brackets;",
        "ratios are taken within a run. Throughput is input rows per second of trigger time, after",
        "the warm-up. Every contestant reads the same files, on two cores with two shuffle",
        "partitions, and the number of results of each trigger is compared: a difference fails the",
        "run. `spark-default` is Spark's own stream-stream join as it comes, `spark-rocksdb4` the",
        "same with RocksDB and join state format 4, `workaround` what Spark accepts where it",
        "refuses the predicate (buckets exploded into an equality, or a constant key), `duckdb`",
        "the same rows as one batch, `listed` our query with the pairs listed and aggregated by",
        "Spark, `plain join` our join without the aggregates, `tree` our two-way joins one after",
        "the other, `pairs` our three-way join with intermediate results that are not packed,",
        "`spark-cascade` two of Spark's own joins. The newest member of a result arrives when its",
        "trigger begins, so the time of a trigger is the latency of its results.",
        "",
        "## Aims",
        "",
        "From the cases that ran at full size and whose contestants agree.",
        "",
        "| figure | wanted | measured | |",
        "|---|---:|---:|---|",
    ]
    for figure in figures({n: d for n, d in documents.items() if counts_for_aims(d)}):
        value = figure.measured
        shown = value.text(lambda v: f"{v:.3g}") if value else "not measured"
        verdict = "" if value is None else "reached" if figure.reached(value.middle) else "missed"
        lines.append(f"| {figure.what} | {figure.wanted} | {shown} | {verdict} |")

    growth = [name for name in documents if name.startswith("growth-")]
    for name, document in documents.items():
        if name in growth:
            continue
        lines += ["", *section(name, document, out)]
    if growth:
        lines += ["", *growth_section({name: documents[name] for name in growth}, out)]
    if documents:
        lines += ["", *environments(documents)]
    _publish(out / "README.md", "\n".join(lines) + "\n")


def section(name: str, document: Document, out: Path) -> list[str]:
    """One case: what it is, its table, its plot."""
    case = document["case"]
    window = "full history" if case["window"] is None else f"window of {case['window']} triggers"
    lines = [
        f"## {case['title']}",
        "",
        f"`{case.get('query') or case['predicate']}`, {window}, {case['rows']:,} rows per trigger, "
        f"{case['triggers']} triggers, the first {case['skip']} not counted.",
        "",
        *table(document),
    ]
    problems = document.get("disagreements", [])
    if problems:
        lines += ["", "**Results differ:** " + "; ".join(problems)]
    state = [
        f"{who} {value.text(lambda v: f'{v:.0f}')}"
        for who in (OURS, SPARK_DEFAULT)
        if (value := spread(bytes_per_tuple(run, case["skip"]) for run in of(document, who)))
    ]
    if state:
        lines += ["", "State bytes per stored tuple: " + ", ".join(state) + "."]
    packs = [
        f"{who} {value.text(number)} ({number(size.middle)}B of state)"
        for who in (OURS, PAIRS)
        if (value := spread(entries(run, case["skip"]) for run in of(document, who)))
        and (size := spread(state_bytes(run, case["skip"]) for run in of(document, who)))
    ]
    if packs:
        lines += ["", "Intermediate entries after the last trigger: " + ", ".join(packs) + "."]
    if peak := spread(peak_memory(run) for run in of(document, OURS)):
        text = peak.text(lambda v: f"{v:.1f}")
        lines += ["", f"Peak memory of all processes, shared pages counted once: {text} GiB."]
    bars = [
        Bar(who, rate.middle, rate.low, rate.high)
        for who in names(document)
        if (rate := rates(document, who))
    ]
    if bars:
        svg = bar_chart(case["title"], bars, label="input rows per second")
        _publish(out / f"{name}.svg", svg + "\n")
        lines += ["", f"![{case['title']}]({name}.svg)"]
    return lines


def growth_section(documents: dict[str, Document], out: Path) -> list[str]:
    """Throughput over the size of the window."""
    lines = ["## Growth of the window", "", "As many results per row at every size.", ""]
    lines += ["| window, triggers | contestant | rows per second |", "|---:|---|---:|"]
    points: dict[str, list[tuple[float, float]]] = {}
    for document in documents.values():
        window = document["case"]["window"]
        for who in names(document):
            rate = rates(document, who)
            if rate:
                lines.append(f"| {window} | {who} | {rate.text(number)} |")
                points.setdefault(who, []).append((window, rate.middle))
    title = "Throughput over the window"
    svg = line_chart(
        title,
        [Series(who, sorted(line)) for who, line in points.items()],
        x_label="window, triggers",
        y_label="input rows per second",
        log_x=True,
    )
    _publish(out / "growth.svg", svg + "\n")
    return [*lines, "", f"![{title}](growth.svg)"]


def environments(documents: dict[str, Document]) -> list[str]:
    """Where the numbers come from; one line for each set of versions that occurs."""
    lines = ["## Where it ran", ""]
    texts: dict[str, list[str]] = {}
    for name, document in documents.items():
        facts = document["environment"]
        runs = len({run["run"] for run in document["runs"]})
        text = (
            f"{facts['date']}, {facts['cores']} cores, {facts['memory_gib']} GiB, {runs} runs, "
            f"Python {facts['python']}, PySpark {facts['pyspark']}, pyarrow {facts['pyarrow']}, "
            f"pandas {facts['pandas']}, numpy {facts['numpy']}, DuckDB {facts['duckdb']}"
        )
        texts.setdefault(text, []).append(name)
    return [*lines, *(f"- {', '.join(found)}: {text}" for text, found in texts.items())]


def _publish(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o644)
