"""The benchmarks' own arithmetic: data of the right selectivity, ratios, disagreements, aims."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thetastream.bench import aims, cases, data, measures, report, run, worker
from thetastream.bench.cases import CASES, DUCKDB, LISTED, OURS, SPARK_DEFAULT
from thetastream.options import JoinOptions
from thetastream.papers import catalogue, record
from thetastream.testing import Batch, InProcessJoin, expected_rows, multiset


def case_of(name: str) -> cases.Case:
    return next(case for case in CASES if case.name == name)


@pytest.mark.parametrize(
    "name",
    [
        "equality",
        "skew",
        "hot-results",
        "band",
        "key-band",
        "inequality",
        "index-zipf",
        "index-key",
        "sta",
        "sum-10",
    ],
)
def test_generated_streams_have_the_results_they_promise(name: str, tmp_path: Path) -> None:
    case = case_of(name).scaled(rows=40_000, triggers=8, results=10.0)
    done = worker.in_duckdb(case, data.prepare(case, tmp_path))
    assert done["rows"] == 320_000
    # The first triggers meet a window that is not full yet.
    assert 5 * done["rows"] < done["results"] < 11 * done["rows"]


def test_a_hot_key_has_half_of_the_rows_of_a_stream(tmp_path: Path) -> None:
    case = case_of("hot").scaled(rows=20_000, triggers=2, results=None)
    folder = data.prepare(case, tmp_path)
    keys = pq.read_table(folder / "r").column("k").to_numpy()
    assert len(keys) == 2 * 19_000
    assert pq.read_table(folder / "s").num_rows == 2 * 1_000
    values, counts = np.unique(keys, return_counts=True)
    assert counts.max() / len(keys) == pytest.approx(0.5, abs=0.02)
    assert len(values) > 5_000
    # Few results: the other stream has the key as rarely as any.
    done = worker.in_duckdb(case, folder)
    assert done["results"] < done["rows"]


def test_only_our_own_join_looks_for_hot_keys(tmp_path: Path) -> None:
    case, path = case_of("hot-uniform"), str(tmp_path / "c")
    found = [worker.live_options(case, who, path) for who in case.contestants]
    assert [one.get("hot_keys") for one in found] == ["auto", "off", None]
    assert [one.get("control") for one in found] == [f"{path}-control"] * 2 + [None]
    assert worker.live_options(case_of("equality"), OURS, path) == {}


def test_fares_are_few_values_and_some_of_them_frequent(tmp_path: Path) -> None:
    case = case_of("sta").scaled(rows=20_000, triggers=2, results=None)
    folder = data.prepare(case, tmp_path)
    for name in case.names:
        values = pq.read_table(folder / name).column("v").to_numpy()
        _, counts = np.unique(values, return_counts=True)
        assert len(counts) < 500
        assert counts.max() / len(values) > 0.1


def test_the_systems_of_sta_have_the_same_units_and_the_results_of_a_batch_join() -> None:
    case = case_of("sta")
    assert case.contestants == (*cases.SYSTEMS, DUCKDB)
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    for who in cases.SYSTEMS:
        given: dict[str, Any] = {"units": case.units, "full_history": True, **worker.VARIANTS[who]}
        join = InProcessJoin(case.predicate, [schema, schema], options=JoinOptions(**given))
        units = {
            unit for place in join.runner.tables[0].stages[0] for unit in place.holders.everywhere
        }
        assert units == {0, 1, 2, 3}, who
        rng = np.random.default_rng(3)
        steps = [
            Batch(*(pa.table({"id": np.arange(60), "v": rng.zipf(1.5, 60) % 50}) for _ in "rs"))
            for _ in range(3)
        ]
        found = [row for step in steps for row in join.batch(step)]
        assert multiset(found) == multiset(expected_rows(case.predicate, steps)), who


def trigger(batch: int, seconds: float, results: int, **more: Any) -> dict[str, Any]:
    return {"batch": batch, "rows": 100, "seconds": seconds, "results": results, **more}


def document(name: str, times: dict[str, float], **more: dict[str, Any]) -> dict[str, Any]:
    case = case_of(name)
    runs = [
        {
            "contestant": who,
            "run": at,
            "capped": False,
            "finished": True,
            "rows_per_trigger": case.rows,
            "limit": 10.0,
            "triggers": [
                trigger(batch, seconds, 7, **more.get(who, {})) for batch in range(case.triggers)
            ],
        }
        for at in range(3)
        for who, seconds in times.items()
    ]
    fields = {name: getattr(case, name) for name in ("name", "title", "skip", "triggers", "query")}
    fields |= {name: getattr(case, name) for name in ("rows", "window", "results", "predicate")}
    fields |= {"baseline": case.baseline, "units": case.units}
    fields["contestants"] = list(case.contestants)
    return {
        "case": fields,
        "runs": runs,
        "disagreements": [],
        "environment": run.environment(),
    }


def test_a_contestant_has_a_limit_of_its_own_where_one_is_given() -> None:
    chosen = run.arguments(["--limit", "75", "spark-default=200"])
    assert run.limit_of("spark-default", chosen.limit) == 200.0
    assert run.limit_of("thetastream", chosen.limit) == 75.0
    assert run.limit_of("thetastream", run.arguments([]).limit) == run.LIMIT


def test_aims_are_reached_or_missed_by_the_ratio_within_a_run() -> None:
    found = {
        "equality": document("equality", {OURS: 1.0, SPARK_DEFAULT: 9.0}),
        "sum-10": document("sum-10", {OURS: 1.0, LISTED: 30.0}),
    }
    figures = {figure.what: figure for figure in aims.figures(found)}
    equality = next(figure for what, figure in figures.items() if what.startswith("equality, uni"))
    assert equality.measured is not None
    assert equality.measured.middle == pytest.approx(9.0)
    assert (equality.wanted, equality.verdict) == ("≥ 8", "reached")
    listed = next(
        figure for what, figure in figures.items() if what.startswith("count and sum by 10 ")
    )
    assert listed.measured is not None
    assert listed.measured.middle == pytest.approx(30.0)
    assert listed.verdict == "missed"
    skew = next(figure for what, figure in figures.items() if what.startswith("equality, skewed"))
    assert skew.measured is None
    assert skew.verdict == ""


def test_contestants_that_disagree_are_named() -> None:
    bad = document("equality", {OURS: 1.0, SPARK_DEFAULT: 9.0})
    assert measures.disagreements(bad) == []
    bad["runs"][0]["triggers"][3]["results"] = 8
    problems = measures.disagreements(bad)
    assert any(problem.startswith("trigger 3: ") for problem in problems)
    assert any(problem.startswith("in all: ") for problem in problems)


def test_the_summary_is_written_from_the_files(tmp_path: Path) -> None:
    made = document("equality", {OURS: 1.0, SPARK_DEFAULT: 9.0, DUCKDB: 0.1})
    (tmp_path / "equality.json").write_text(json.dumps(made))
    report.write(tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert (
        "| equality, uniform: throughput against the faster of Spark's set-ups | ≥ 8 | 9 |" in text
    )
    assert "<svg" in (tmp_path / "equality.svg").read_text()
    small = document("equality", {OURS: 1.0, SPARK_DEFAULT: 9.0})
    small["case"]["rows"] = 10
    (tmp_path / "equality.json").write_text(json.dumps(small))
    report.write(tmp_path)
    assert "not measured" in (tmp_path / "README.md").read_text().split("## Equality")[0]


def test_where_systems_are_compared_ratios_are_of_the_first_and_completeness_is_told(
    tmp_path: Path,
) -> None:
    times = dict.fromkeys(cases.SYSTEMS, 1.0) | {cases.CI: 2.0}
    found = document("sta", times)
    for one in found["runs"]:
        one["triggers"][-1]["results"] -= one["contestant"] == cases.PIM_TREE
    triggers = case_of("sta").triggers
    found["runs"].append(
        {"contestant": DUCKDB, "run": 0, "capped": False, "finished": True, "seconds": 1.0}
        | {"rows": 1, "results": 7 * triggers, "rows_per_trigger": 1, "limit": 10.0}
    )
    assert measures.ratios(found, measures.throughput, cases.CI) == [2.0] * 3
    assert report.completeness_lines(found)[-1] == (
        "Completeness, by the results that DuckDB finds: STA 1.0, CI 1.0, SJ 1.0, BCHJ 1.0,"
        f" MCI 1.0, PIM-tree {(7 * triggers - 1) / (7 * triggers):.6f}."
    )
    assert report.completeness_lines(document("equality", {OURS: 1.0})) == []
    sta = next(paper for paper in catalogue.PAPERS if paper.name == "sta")
    assert "Not measured yet" in record.page(sta, {})
    (tmp_path / "papers").mkdir()
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "sta.json").write_text(json.dumps(found))
    record.write_pages(tmp_path / "papers", [sta])
    shown = (tmp_path / "papers" / "sta.md").read_text()
    assert "| | rows per second | s per trigger | STA is | |" in shown
    assert "Completeness, by the results" in shown


def test_a_bar_says_how_the_contestant_compares_or_why_it_has_no_figure() -> None:
    made = document("equality", {OURS: 1.0, SPARK_DEFAULT: 7.5, DUCKDB: 0.1})
    assert report.bar(made, OURS).label == "100"
    assert report.bar(made, SPARK_DEFAULT).label == "13.3, 7.5× slower"
    batch = report.bar(made, DUCKDB)
    assert (batch.name, batch.label) == ("duckdb, one batch", "1k, 10× faster")
    for one in measures.of(made, SPARK_DEFAULT):
        one |= {"triggers": [], "finished": False}
    assert report.bar(made, SPARK_DEFAULT).label == "0 of 12 triggers within 10 s"


@pytest.mark.parametrize(
    ("times", "text"),
    [
        (7.47, "7.5× slower"),
        (0.0717, "14× faster"),
        (723.09, "723× slower"),
        (0.0004, "2.5k× faster"),
        (1.04, "equally fast"),
        (0.97, "equally fast"),
        (1.06, "1.1× slower"),
    ],
)
def test_ratios_in_words(times: float, text: str) -> None:
    assert report.compared(times) == text


def test_a_case_has_a_chart_if_there_is_something_to_compare() -> None:
    assert report.chart(document("equality", {OURS: 1.0})) is None
    assert report.chart(document("equality", {OURS: 1.0, SPARK_DEFAULT: 9.0})) is not None
    memory = document("memory", {OURS: 1.0})
    for one in memory["runs"]:
        one["memory"] = [2**30, 2**31]
    assert report.chart(memory) is not None


def test_every_published_chart_is_shown_in_the_summary() -> None:
    folder = Path(__file__).parents[2] / "docs" / "benchmarks"
    text = (folder / "README.md").read_text()
    shown = set(re.findall(r"\]\(([^)]*\.svg)\)", text))
    assert shown == {file.name for file in folder.glob("*.svg")}


def test_every_case_is_listed_and_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert all(case.name in shown for case in CASES)
    assert [case.name for case in cases.chosen(["growth"])] == [
        "growth-1", "growth-3", "growth-10", "growth-30"
    ]  # fmt: skip
    with pytest.raises(SystemExit, match="no case of that name"):
        cases.chosen(["nothing"])
