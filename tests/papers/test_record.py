"""What is published of the papers' figures, and the command that runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from thetastream.cli.main import main
from thetastream.papers import catalogue, record
from thetastream.papers.figure import (
    Figure,
    Finding,
    Outcome,
    Paper,
    Verdict,
    at_least,
    at_most,
    ordered,
)

FOLDER = Path(__file__).parents[2] / "docs" / "papers"


def outcome(*holds: bool) -> Outcome:
    findings = [Finding(claim="more", found="1", holds=held, why="because") for held in holds]
    return Outcome(findings=findings, series={"ours": [(1, 2), (2, 3)]}, x_label="x", y_label="y")


def figure(*holds: bool) -> Figure:
    return Figure(
        name="toy-1",
        paper="toy",
        number="figure 1",
        title="a toy",
        setting="Nothing is run.",
        run=lambda quick: outcome(*holds),
    )


def test_the_verdict_follows_from_the_findings() -> None:
    assert outcome(True, True).verdict is Verdict.REPRODUCED
    assert outcome(True, False).verdict is Verdict.PARTLY
    assert outcome(False).verdict is Verdict.NOT
    assert outcome().verdict is Verdict.NOT
    assert at_least("", 2.0, 2.0).holds
    assert not at_least("", 1.9, 2.0).holds
    assert at_most("", 2.0, 2.0).holds
    assert not at_most("", 2.1, 2.0).holds
    assert ordered("", {"a": 3, "b": 3, "c": 1}).holds
    assert not ordered("", {"a": 3, "b": 4}).holds
    assert ordered("", {"a": 3, "b": 3.1}, slack=0.1).holds


def test_every_figure_has_a_full_record_and_a_plot() -> None:
    known = catalogue.figures()
    assert len(known) == sum(len(paper.figures) for paper in catalogue.PAPERS)
    for name in known:
        kept = json.loads((FOLDER / f"{name}.json").read_text())
        assert kept["figure"] == name
        assert not kept["quick"]
        held = [one["holds"] for one in kept["findings"]]
        assert held
        wanted = (
            "reproduced" if all(held) else "reproduced in part" if any(held) else "not reproduced"
        )
        assert kept["verdict"] == wanted
        for one in kept["findings"]:
            assert one["holds"] or one["why"], f"{name} does not say why: {one['claim']}"
        assert (FOLDER / f"{name}.svg").exists() == bool(kept["series"])
    assert {file.stem for file in FOLDER.glob("*.json")} == set(known)


@pytest.mark.parametrize("paper", catalogue.PAPERS, ids=lambda paper: paper.name)
def test_the_pages_are_made_from_the_records(paper: Paper) -> None:
    text = (FOLDER / f"{paper.name}.md").read_text()
    measured = record.measured(FOLDER, paper)
    assert text == record.page(paper, record.read(FOLDER, paper), measured)
    assert (FOLDER / "README.md").read_text() == record.index(catalogue.PAPERS, FOLDER)


def test_a_figure_is_run_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    toys = (Paper(name="toy", title="Toy", about="A toy.", figures=(figure(True, False),)),)
    monkeypatch.setattr(catalogue, "PAPERS", toys)
    assert main(["reproduce", "--list"]) == 0
    assert "toy-1" in capsys.readouterr().out
    assert main(["reproduce", "toy-1", "--out", str(tmp_path)]) == 0
    assert "verdict: reproduced in part" in capsys.readouterr().out
    assert json.loads((tmp_path / "toy-1.json").read_text())["verdict"] == "reproduced in part"
    assert (tmp_path / "toy-1.svg").read_text().startswith("<?xml")
    page = (tmp_path / "toy.md").read_text()
    assert re.search(r"\| more \| 1\. Because\. \| no \|", page)
    assert main(["reproduce", "--all", "--quick", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["quick"] is True


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["toy-11"], "there is no figure 'toy-11'"),
        ([], "name the figures to run, or give --all"),
        (["bistream-6a", "--all"], "name the figures to run, or give --all"),
        (["bistrem-6a"], "perhaps bistream-6a"),
    ],
)
def test_what_cannot_be_run(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *words]) == 2
    assert message in capsys.readouterr().err
