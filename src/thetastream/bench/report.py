"""From the JSON of the cases to the summary and the charts. Reads nothing but those files."""

from __future__ import annotations

import json
from pathlib import Path

from thetastream.bench import cases
from thetastream.bench.aims import counts_for_aims, figures
from thetastream.bench.cases import DUCKDB, OURS, PAIRS, SPARK_DEFAULT
from thetastream.bench.charts import Bar, bar_chart, line_chart, number, svg
from thetastream.bench.measures import (
    GIB,
    Document,
    baseline,
    bytes_per_tuple,
    completeness,
    entries,
    of,
    peak_memory,
    rates,
    ratios,
    skip_of,
    spread,
    state_bytes,
    throughput,
    trigger_seconds,
)


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
        parts.append(f"{reached} of {total} triggers within {runs[0]['limit']:.0f} s")
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
        f"| | rows per second | s per trigger | {baseline(document)} is | |",
        "|---|---:|---:|---:|---|",
    ]
    for name in names(document):
        rate = rates(document, name)
        each = spread(trigger_seconds(run, skip_of(document)) for run in of(document, name))
        times = spread(ratios(document, throughput, name)) if name != baseline(document) else None
        lines.append(
            f"| {name} | {rate.text(number) if rate else '–'} "
            f"| {each.text(lambda v: f'{v:.2f}') if each else '–'} "
            f"| {times.text(lambda v: f'{v:.2f}') + ' ×' if times else ''} "
            f"| {note(document, name)} |"
        )
    return lines


def write(out: Path) -> None:
    """README.md and the charts, from every JSON file in the folder."""
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
        "ratios of contestants are taken within a run, those of two cases are of their medians.",
        "Throughput is input rows per second of trigger time, after the warm-up. Every contestant",
        "reads the same files, on two cores with two shuffle partitions, and the number of results",
        "of each trigger is compared: a difference fails the run. `spark-default` is Spark's own",
        "stream-stream join with its default settings, `spark-rocksdb4` the",
        "same with RocksDB and join state format 4, `spark-tuned` that with what our session sets",
        "for the state store and the checkpoint's files, `workaround` what Spark accepts where it",
        "refuses the predicate (buckets exploded into an equality, or a constant key), `duckdb`",
        "the same rows as one batch, `listed` our query with the pairs listed and aggregated by",
        "Spark, `plain join` our join without the aggregates, `tree` our two-way joins one after",
        "the other, `pairs` our three-way join with intermediate results that are not packed,",
        "`spark-cascade` two of Spark's own joins; `STA`, `CI`, `SJ`, `BCHJ`, `MCI` and `PIM-tree`",
        "are [the systems of a paper](../papers/sta.md). The newest member of a result arrives",
        "when its trigger begins, so the time of a trigger is the latency of its results.",
        "",
        "## Aims",
        "",
        "From the cases that ran at full size and whose contestants agree. Where a figure is",
        "missed, [where the time goes](limits.md) says why.",
        "",
        "| figure | wanted | measured | |",
        "|---|---:|---:|---|",
    ]
    for figure in figures({n: d for n, d in documents.items() if counts_for_aims(d)}):
        value = figure.measured
        shown = value.text(lambda v: f"{v:.3g}") if value else "not measured"
        lines.append(f"| {figure.what} | {figure.wanted} | {shown} | {figure.verdict} |")

    growth = [name for name in documents if name.startswith("growth-")]
    for name, document in documents.items():
        if name in growth:
            continue
        lines += ["", *section(name, document, out)]
    if growth:
        lines += ["", *growth_section({name: documents[name] for name in growth}, out)]
    elastic = out / "elastic.json"
    if elastic.exists():
        lines += ["", *elastic_section(elastic)]
    sites = out / "sites.json"
    if sites.exists():
        lines += ["", *sites_section(sites)]
    if documents:
        lines += ["", *environments(documents)]
    _publish(out / "README.md", "\n".join(lines) + "\n")


def section(name: str, document: Document, out: Path) -> list[str]:
    """One case: what it is, its table, its chart."""
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
    lines += completeness_lines(document)
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
    if drawn := chart(document):
        _publish(out / f"{name}.svg", drawn)
        lines += ["", f"![{case['title']}]({name}.svg)"]
    return lines


def completeness_lines(document: Document) -> list[str]:
    """Where the systems of a paper are compared: the share of the results that each has found."""
    if baseline(document) == OURS:
        return []
    shares = [
        f"{who} {value.text(lambda v: '1.0' if v == 1 else f'{v:.6f}')}"
        for who in names(document)
        if who != DUCKDB and (value := completeness(document, who))
    ]
    if not shares:
        return []
    return ["", "Completeness, by the results that DuckDB finds: " + ", ".join(shares) + "."]


def chart(document: Document) -> str | None:
    """The memory over time where it was watched, else the throughputs if there are several."""
    title = document["case"]["title"]
    watched = {
        f"run {run['run'] + 1}": [(at, size / GIB) for at, size in enumerate(run["memory"])]
        for run in of(document, OURS)
        if run.get("memory")
    }
    if watched:
        title = f"{title}: memory of all processes"
        y_label = "GiB, shared pages counted once"
        return svg(line_chart(title, watched, x_label="seconds since the start", y_label=y_label))
    bars = [made for who in names(document) if (made := bar(document, who)).label]
    if len(bars) < 2:
        # A bar alone says no more than the table.
        return None
    about = "; lines span the runs, factors are taken within a run"
    ours = baseline(document)
    return svg(bar_chart(title, bars, label="input rows per second", about=about, ours=ours))


def bar(document: Document, contestant: str) -> Bar:
    """The contestant's throughput and how it compares with ours, or why it has none."""
    name = f"{contestant}, one batch" if contestant == DUCKDB else contestant
    rate = rates(document, contestant)
    if rate is None:
        return Bar(name, None, note=note(document, contestant))
    times = None
    if contestant != baseline(document):
        times = spread(ratios(document, throughput, contestant))
    return Bar(name, *rate, note=compared(times.middle) if times else "")


def compared(times: float) -> str:
    """A contestant's speed in words, when we have so many times its throughput."""
    factor = max(times, 1 / times)
    text = number(factor) if factor >= 100 else f"{factor:.2g}"
    return "equally fast" if text == "1" else f"{text}× {'slower' if times > 1 else 'faster'}"


def growth_section(documents: dict[str, Document], out: Path) -> list[str]:
    """Throughput over the size of the window."""
    lines = ["## Growth of the window", "", "As many results per row at every size.", ""]
    lines += ["| window, triggers | contestant | rows per second |", "|---:|---|---:|"]
    points: dict[str, list[tuple[float, ...]]] = {}
    for document in documents.values():
        window = document["case"]["window"]
        for who in names(document):
            rate = rates(document, who)
            if rate:
                lines.append(f"| {window} | {who} | {rate.text(number)} |")
                points.setdefault(who, []).append((window, *rate))
    title = "Throughput over the size of the window"
    figure = line_chart(
        title,
        {who: sorted(line) for who, line in points.items()},
        x_label="triggers in the window, logarithmic",
        y_label="input rows per second",
        log_x=True,
    )
    _publish(out / "growth.svg", svg(figure))
    return [*lines, "", f"![{title}](growth.svg)"]


def elastic_section(file: Path) -> list[str]:
    """What `thetastream.bench.elastic` found: a join that scales while it runs."""
    found = json.loads(file.read_text())
    cost = found["cost"]
    lines = ["## A join that scales while it runs", ""]
    lines += [
        "BiStream's figure 12, its minutes shortened: `python -m thetastream.bench.elastic`.",
        "",
        "| claim | |",
        "|---|---|",
        *(f"| {claim} | {'yes' if held else 'no'} |" for claim, held in found["claims"].items()),
        "",
        f"Time of a trigger against the median of those before a change: {cost['during']:.2f} ×"
        f" while it is under way, {cost['after']:.2f} × after it.",
        "",
        f"![{file.stem}]({file.stem}.svg)",
    ]
    return lines


def sites_section(file: Path) -> list[str]:
    """What `thetastream.bench.sites` found: a join over a thin link."""
    found = json.loads(file.read_text())
    bandwidth = found["bandwidth"] / 1e6
    return [
        "## A stream at a site",
        "",
        f"Rows of 1,500 bytes with a key of 12, on a link of {bandwidth:g} MB/s:"
        " `python -m thetastream.bench.sites`. Ratios are taken within a run.",
        "",
        "| figure | wanted | measured | |",
        "|---|---:|---:|---|",
        *(
            f"| {one['what']} | {one['wanted']} | {one['measured']}"
            f" | {'reached' if one['reached'] else 'missed'} |"
            for one in found["figures"]
        ),
    ]


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
