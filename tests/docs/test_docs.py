"""The documentation, executed: what it shows is what happens, and what it names exists.

Every block marked `python` runs, in order, in one namespace a file. A block marked `text` that
follows one directly is what it must have printed. A block of TOML or SQL whose first line says
`file: name` is written to that file, and each line of a `sh` block is a command that is run.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

import thetastream as ts
from thetastream.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "thetastream"
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "ARCHITECTURE.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "decisions").glob("*.md"),
        *(ROOT / "docs" / "papers").glob("*.md"),
    ]
)
EXECUTED = [
    page
    for page in PAGES
    if re.search(r"^```(python|toml|sql)$", page.read_text(encoding="utf-8"), re.MULTILINE)
]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(
    r"[\w.-]+(?:/[\w.-]+)+/?"  # a folder in front: a file, or a name in a module
    r"|[\w-]+\.(?:py|md|toml)"
    r"|(?:arrow|errors|options|spec)\.\w[\w.]*"  # a name in a module of the package itself
)
_PUBLIC = re.compile(r"ts\.(\w+)")
_MAKE = re.compile(r"^\s*make\s+(\w+)", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block of a page."""

    line: int
    language: str
    body: str
    end: int


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [
        Block(text.count("\n", 0, found.start(2)), found[1], found[2], found.end())
        for found in _FENCE.finditer(text)
    ]


def expected_output(text: str, block: Block, following: Block | None) -> str | None:
    """The `text` block that directly follows, if one does."""
    if following is None or following.language != "text":
        return None
    between = text[block.end :].split("```", 1)[0]
    return following.body if not between.strip() else None


def trimmed(text: str) -> str:
    """The text without the spaces and lines that a renderer would not show."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("page", EXECUTED, ids=lambda page: page.name)
def test_examples_do_what_the_page_shows(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    found = blocks(text)
    namespace: dict[str, object] = {"__name__": "__main__"}
    try:
        for block, following in zip(found, [*found[1:], None], strict=True):
            if block.language in ("toml", "sql"):
                name = re.match(r".*\bfile: (\S+)$", block.body.splitlines()[0])
                assert name is not None, f"line {block.line} does not say which file it is"
                (tmp_path / name[1]).write_text(block.body)
            if block.language == "sh":
                for command in block.body.splitlines():
                    words = shlex.split(command)
                    assert words[0] == "thetastream"
                    assert main(words[1:]) == 0, command
            if block.language != "python":
                continue
            # Empty lines in front, so that a traceback names the page's own line.
            source = "\n" * block.line + block.body
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(source, str(page), "exec"), namespace)  # noqa: S102
            expected = expected_output(text, block, following)
            if expected is not None:
                assert trimmed(printed.getvalue()) == trimmed(expected), f"line {block.line}"
        assert not spark.streams.active, "the page leaves a query running"
    finally:
        for query in spark.streams.active:
            query.stop()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in _LINK.findall(text) if not re.match(r"\w+:", link)]
    missing = [link for link in links if not _target_exists(page, link)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_that_is_named_exists(page: Path) -> None:
    prose = _FENCE.sub("", page.read_text(encoding="utf-8"))
    missing = [word for word in _CODE.findall(prose) if not _exists(word)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    text = page.read_text(encoding="utf-8")
    shell = [block.body for block in blocks(text) if block.language in ("bash", "sh", "")]
    inline = _CODE.findall(_FENCE.sub("", text))
    named = {target for part in [*shell, *inline] for target in _MAKE.findall(part)}
    assert named <= targets


def _target_exists(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page if not path else page.parent / path
    if not target.exists():
        return False
    return not anchor or anchor in _anchors(target)


def _anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get."""
    prose = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


def _exists(word: str) -> bool:
    """Whether a path, `folder/module.name` or `ts.name` exists; other words are not looked up."""
    public = _PUBLIC.match(word)
    if public is not None:
        return hasattr(ts, public[1])
    if _PATH.fullmatch(word) is None or word.startswith(("-", ".")):
        return True
    if any((base / word).exists() for base in (ROOT, PACKAGE, ROOT / "docs")):
        return True
    return _is_name_in_module(word)


def _is_name_in_module(word: str) -> bool:
    folder, _, dotted = word.rpartition("/")
    module, *names = dotted.split(".")
    place = PACKAGE / folder / module
    if not place.with_suffix(".py").exists() and not (place / "__init__.py").exists():
        return False
    path = [part for part in ("thetastream", *folder.split("/"), module) if part]
    found: object = importlib.import_module(".".join(path))
    for name in names:
        annotations = getattr(found, "__annotations__", {})
        if not hasattr(found, name) and name not in annotations:
            return False
        found = getattr(found, name, None)
    return True
