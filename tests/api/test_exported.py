"""The public face: what is exported is there, is documented, and is all that one is handed."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import thetastream as ts

ROOT = Path(__file__).parents[2]
NAMES = [name for name in ts.__all__ if name != "__version__"]
INNER = frozenset({"tree", "spec", "explanation"})
"""Attributes of plans that are not part of the interface; their docstrings say so."""


def members(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class has of its own."""
    for name, value in vars(kind).items():
        if not name.startswith("_") and isinstance(value, types.FunctionType | property):
            yield name, value


def annotated(kind: object) -> Iterator[type[Any]]:
    """The classes in an annotation."""
    if isinstance(kind, type):
        yield kind
    for part in typing.get_args(kind):
        yield from annotated(part)


def handed_out(found: object) -> Iterator[type[Any]]:
    """The classes of this package that a public name hands out."""
    if isinstance(found, types.FunctionType):
        yield from annotated(typing.get_type_hints(found).get("return"))
    elif isinstance(found, type):
        for name, member in members(found):
            function = member.fget if isinstance(member, property) else member
            if name not in INNER:
                yield from handed_out(function)
        if dataclasses.is_dataclass(found):
            for name, kind in typing.get_type_hints(found).items():
                if name not in INNER:
                    yield from annotated(kind)


def test_everything_that_is_listed_can_be_imported_and_nothing_else_is_public() -> None:
    assert sorted(ts.__all__) == sorted(set(ts.__all__))
    for name in ts.__all__:
        assert getattr(ts, name) is not None
    modules = {item.name for item in pkgutil.iter_modules(ts.__path__)}
    helpers = {"annotations", "import_module", "TYPE_CHECKING", "Any"}
    public = {name for name in dir(ts) if not name.startswith("_")} - modules - helpers
    assert public == set(NAMES)


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ts.nonsense


@pytest.mark.parametrize("name", NAMES)
def test_what_is_public_is_documented(name: str) -> None:
    found = getattr(ts, name)
    if isinstance(found, type) or callable(found):
        assert inspect.getdoc(found)
    if isinstance(found, type):
        lacking = [member for member, value in members(found) if not inspect.getdoc(value)]
        assert lacking == []
    pages = "\n".join(
        page.read_text(encoding="utf-8")
        for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    )
    assert re.search(rf"\bts\.{name}\b", pages), f"no page of the documentation names ts.{name}"


@pytest.mark.parametrize("name", NAMES)
def test_what_is_handed_out_is_exported(name: str) -> None:
    """Nobody has to look for a type in an inner module."""
    exported = {getattr(ts, name) for name in NAMES if isinstance(getattr(ts, name), type)}
    own = {
        kind for kind in handed_out(getattr(ts, name)) if kind.__module__.startswith(ts.__name__)
    }
    assert own <= exported, sorted(kind.__name__ for kind in own - exported)


def test_plans_say_what_of_them_is_inner() -> None:
    said = " ".join((ts.Plan.__doc__ or "").split())
    assert "`tree` is what the workers carry out" in said
    assert "It may change from one release to the next" in said


def test_importing_the_package_imports_nothing_heavy() -> None:
    """Workers import it for each task, and a minimal installation lacks the extras."""
    heavy = ("pyspark", "sqlglot", "duckdb", "matplotlib", "pandas", "rich")
    code = f"import sys, thetastream; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(ts.__file__).parent / "py.typed").exists()


def test_no_hint_sends_people_to_an_index_that_does_not_have_the_package() -> None:
    """Nor does a page: it is installed from a clone."""
    files = [*(ROOT / "src").rglob("*.py"), ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"pip install ['\"]?thetastream", line)
    ]
    assert found == []


def test_names_that_come_later_are_those_of_their_modules() -> None:
    for name, module in ts._MODULES.items():
        assert getattr(importlib.import_module(f"thetastream.{module}"), name) is getattr(ts, name)
