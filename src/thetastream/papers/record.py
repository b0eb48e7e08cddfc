"""Reproductions as files: JSON and a plot for each figure, and one page for each paper."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from thetastream.papers.figure import Figure, Outcome, Paper
from thetastream.version import VERSION


def record(figure: Figure, outcome: Outcome, *, seconds: float, quick: bool) -> dict[str, Any]:
    """All that came of a run, as JSON takes it."""
    return {
        "figure": figure.name,
        "title": figure.title,
        "verdict": outcome.verdict.value,
        "findings": [
            {"claim": one.claim, "found": one.found, "holds": one.holds, "why": one.why}
            for one in outcome.findings
        ],
        "setting": figure.setting,
        "quick": quick,
        "series": {name: [list(point) for point in of] for name, of in outcome.series.items()},
        "x_label": outcome.x_label,
        "y_label": outcome.y_label,
        "numbers": dict(outcome.numbers),
        "seconds": round(seconds, 1),
        "version": VERSION,
        "python": platform.python_version(),
    }


def write(folder: Path, figure: Figure, outcome: Outcome, kept: Mapping[str, Any]) -> list[Path]:
    """Writes the JSON and the plot."""
    from thetastream.bench.charts import svg

    folder.mkdir(parents=True, exist_ok=True)
    found = [folder / f"{figure.name}.json"]
    found[0].write_text(json.dumps(kept, indent=1) + "\n")
    if outcome.series:
        found.append(folder / f"{figure.name}.svg")
        found[1].write_text(svg(picture(figure, outcome)))
    return found


def picture(figure: Figure, outcome: Outcome) -> Any:
    """The plot of a figure."""
    from thetastream.bench.charts import line_chart

    return line_chart(
        _heading(figure),
        outcome.series,
        x_label=outcome.x_label,
        y_label=outcome.y_label,
        log_x=outcome.log_x,
        log_y=outcome.log_y,
    )


def text(figure: Figure, outcome: Outcome) -> str:
    """What is printed of a run."""
    lines = [f"{figure.name}: {figure.title} ({figure.number})", f"  {figure.setting}"]
    for one in outcome.findings:
        lines += [
            f"  claim  {one.claim}",
            f"  found  {one.found}{'' if one.holds else '  (differs)'}",
        ]
        if one.why:
            lines.append(f"         {one.why}")
    return "\n".join([*lines, f"  verdict: {outcome.verdict.value}"])


def page(
    paper: Paper,
    kept: Mapping[str, Mapping[str, Any]],
    measured: Mapping[str, Any] | None = None,
) -> str:
    """The page of a paper; `kept` are the records of its figures that were run, `measured` is that
    of its benchmark on Spark."""
    lines = [f"# {paper.title}", "", paper.about, "", *_overview(paper, kept)]
    if paper.on_spark is not None:
        lines += _on_spark(*paper.on_spark, measured)
    for figure in paper.figures:
        if figure.name in kept:
            lines += _section(figure, kept[figure.name])
    return "\n".join(lines) + "\n"


def _overview(paper: Paper, kept: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["| figure | what | verdict |", "|---|---|---|"]
    for figure in paper.figures:
        verdict = kept[figure.name]["verdict"] if figure.name in kept else "not run yet"
        anchor = re.sub(r"[^\w\- ]", "", _heading(figure).lower()).replace(" ", "-")
        lines.append(f"| [{figure.number}](#{anchor}) | {figure.title} | {verdict} |")
    return lines


def _heading(figure: Figure) -> str:
    return f"{figure.number[0].upper()}{figure.number[1:]}: {figure.title}"


def _section(figure: Figure, kept: Mapping[str, Any]) -> list[str]:
    lines = ["", f"## {_heading(figure)}", ""]
    lines += [figure.setting, ""]
    if kept["series"]:
        lines += [f"![{figure.title}]({figure.name}.svg)", ""]
    lines += ["| the paper | here | |", "|---|---|---|"]
    for one in kept["findings"]:
        why = f" {_sentence(one['why'])}" if one["why"] else ""
        lines.append(
            f"| {one['claim']} | {one['found']}.{why} | {'yes' if one['holds'] else 'no'} |"
        )
    verdict = f"**{kept['verdict'][0].upper()}{kept['verdict'][1:]}**"
    quick = ", in the quick form" if kept["quick"] else ""
    again = f"`thetastream reproduce {figure.name}`"
    return [*lines, "", f"{verdict}{quick}. {again} took {kept['seconds']:,.0f} s."]


def _on_spark(name: str, about: str, measured: Mapping[str, Any] | None) -> list[str]:
    from thetastream.bench.report import completeness_lines, table

    lines = ["", "## On Spark", "", about, ""]
    again = f'`make bench BENCH_ARGS="--only {name}"`'
    if measured is None:
        return [*lines, f"Not measured yet: {again}."]
    case, document = measured["case"], dict(measured)
    size = f"{case['rows']:,} rows per trigger and {case['units']} units"
    lines += [*table(document), *completeness_lines(document), ""]
    return [*lines, f"With {size}; [more of it](../benchmarks/README.md). Again with {again}."]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text[-1] in ".?!" else ".")


def read(folder: Path, paper: Paper) -> dict[str, Any]:
    """The records of a paper's figures in a folder."""
    found = {}
    for figure in paper.figures:
        file = folder / f"{figure.name}.json"
        if file.exists():
            found[figure.name] = json.loads(file.read_text())
    return found


def index(papers: Sequence[Paper], folder: Path) -> str:
    """The page that leads to the papers' pages."""
    lines = [
        "# The papers, run again",
        "",
        "`thetastream reproduce NAME` runs a figure again and prints the paper's claim, what came"
        " out and a verdict; `--list` names them, `--all` runs them all. Routers, units, tables,"
        " indexes and policies are the real ones, on the clock of the"
        " [simulator](../simulator.md); only the semijoin's two sites have a small clock of their"
        " own.",
        "",
        "| paper | figures | reproduced | in part | not |",
        "|---|---|---|---|---|",
    ]
    for paper in papers:
        verdicts = [one["verdict"] for one in read(folder, paper).values()]
        counts = [
            verdicts.count(one) for one in ("reproduced", "reproduced in part", "not reproduced")
        ]
        shown = " | ".join(map(str, counts))
        lines.append(f"| [{paper.title}]({paper.name}.md) | {len(paper.figures)} | {shown} |")
    return "\n".join(lines) + "\n"


def write_pages(folder: Path, papers: Sequence[Paper]) -> None:
    """Writes all pages from the records in the folder."""
    for paper in papers:
        text = page(paper, read(folder, paper), measured(folder, paper))
        (folder / f"{paper.name}.md").write_text(text)
    (folder / "README.md").write_text(index(papers, folder))


def measured(folder: Path, paper: Paper) -> dict[str, Any] | None:
    """What the paper's benchmark on Spark has written, if it is beside the pages."""
    if paper.on_spark is None:
        return None
    file = folder.parent / "benchmarks" / f"{paper.on_spark[0]}.json"
    if not file.exists():
        return None
    found: dict[str, Any] = json.loads(file.read_text())
    return found
