"""Checks that imports inside the package point downwards only.

    python tools/imports.py [path of the package, src/thetastream by default]

Prints one line per violation and exits with 1 when there is any. Imports inside functions and
under TYPE_CHECKING count as well: they too mean that a layer knows of one above it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LAYERS: tuple[tuple[str, ...], ...] = (
    (
        "cli",
        "dashboard",
        "demo",
        "bench",
        "papers",
        "simulator",
        "testing",
        "workloads",
        "__main__",
    ),
    # The package itself re-exports the public names, so importing it means importing the api.
    ("api", "__init__"),
    ("planner",),
    ("runtime",),
    ("steering",),
    ("transport",),
    ("engine",),
    ("topology",),
    ("index",),
    ("spec", "errors", "options", "arrow", "durations", "sizes", "version"),
)
"""From top to bottom; a module may import from its own line and from those below."""

FORBIDDEN = {
    ("planner", "runtime"): "the planner must run without Spark",
}
"""Pairs (importer, imported) that the order of the layers alone would allow."""

WEB = frozenset({"aiohttp", "fastapi", "flask", "http.server", "starlette", "tornado", "uvicorn"})

ONLY_IN: tuple[tuple[frozenset[str], frozenset[str]], ...] = (
    (
        frozenset({"pyspark", "py4j"}),
        frozenset({"api", "runtime", "bench", "cli", "demo", "testing"}),
    ),
    (frozenset({"sqlglot"}), frozenset({"planner", "testing"})),
    (frozenset({"pyarrow.flight"}), frozenset({"transport"})),
    (WEB, frozenset({"dashboard"})),
    # Packages of the extras: the minimal installation must be able to import the rest.
    (
        frozenset({"duckdb", "psutil", "rich"}),
        frozenset({"bench", "cli", "dashboard", "demo", "testing", "workloads"}),
    ),
    (frozenset({"matplotlib"}), frozenset({"bench", "demo", "api/control_charts"})),
    (frozenset({"shtab"}), frozenset({"cli"})),
    (frozenset({"confluent_kafka"}), frozenset({"transport/kafka"})),
    (frozenset({"grpc"}), frozenset({"transport/service"})),
)
"""Outside packages, and the only parts of this one, or modules of a part, that may import them."""

ONE_PLACE = {"sqlglot": "planner"}
"""Outside packages that at most one file or one folder of the given part may import."""

DEPTH = {part: depth for depth, layer in enumerate(LAYERS) for part in layer}


class Import(NamedTuple):
    """One imported module, by its full name, and where it is imported."""

    file: Path
    line: int
    module: str


def imports_of(file: Path, module: str, *, is_package: bool) -> Iterator[Import]:
    """Every module that the file imports, relative ones resolved against its own name."""
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), filename=str(file))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            # `from a import b` may name a module a.b; the longer name decides more.
            for alias in node.names:
                yield Import(file, node.lineno, f"{base}.{alias.name}")
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("importlib.import_module", "import_module", "__import__")
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, str)
        ):
            yield Import(file, node.lineno, node.args[0].value)


def part_of(module: str, root: str, parts: frozenset[str]) -> str:
    """The part of the package that holds the module: `engine` for `thetastream.engine.unit`."""
    names = module.split(".")
    if len(names) == 1:
        return "__init__"
    # `from thetastream import JoinOptions`: a name of the package itself, not a module.
    return names[1] if names[1] in parts else "__init__"


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def violations(package: Path) -> list[str]:
    """A message `file:line: what` for each import that breaks a rule."""
    root = package.name
    files = sorted(package.rglob("*.py"))
    parts = frozenset(
        path.stem if path.is_file() else path.name
        for path in package.iterdir()
        if path.suffix == ".py" or (path.is_dir() and any(path.rglob("*.py")))
    )
    found: list[str] = []
    users: dict[str, list[Import]] = {outside: [] for outside in ONE_PLACE}

    for file in files:
        names = list(file.relative_to(package).with_suffix("").parts)
        is_package = names[-1] == "__init__"
        own = names[0]
        module = ".".join([root, *(names[:-1] if is_package else names)])
        if own not in DEPTH:
            found.append(f"{file}:1: {own} is in no layer: add it to LAYERS in tools/imports.py")
            continue
        reported: set[tuple[int, str]] = set()
        for item in imports_of(file, module, is_package=is_package):
            where = f"{file}:{item.line}"
            if within(item.module, root):
                target = part_of(item.module, root, parts)
                problem = ""
                if target in DEPTH and DEPTH[target] < DEPTH[own]:
                    problem = f"{own} imports {target}, which lies above it"
                elif (own, target) in FORBIDDEN:
                    problem = f"{own} imports {target}: {FORBIDDEN[own, target]}"
                if problem and (item.line, problem) not in reported:
                    reported.add((item.line, problem))
                    found.append(f"{where}: {problem}")
                continue
            for packages, allowed in ONLY_IN:
                for outside in packages:
                    if within(item.module, outside) and not {own, "/".join(names)} & allowed:
                        problem = f"{outside} may be imported only in {', '.join(sorted(allowed))}"
                        if (item.line, problem) not in reported:
                            reported.add((item.line, problem))
                            found.append(f"{where}: {problem}")
            for outside, part in ONE_PLACE.items():
                if within(item.module, outside) and own == part:
                    users[outside].append(item)

    for outside, uses in users.items():
        part = package / ONE_PLACE[outside]
        places = [item.file if item.file.parent == part else item.file.parent for item in uses]
        for item, place in zip(uses, places, strict=True):
            if place != places[0]:
                found.append(
                    f"{item.file}:{item.line}: {outside} is already imported in {places[0]}"
                )
    return found


def main(arguments: list[str]) -> int:
    default = Path(__file__).resolve().parent.parent / "src" / "thetastream"
    package = Path(arguments[0]) if arguments else default
    found = violations(package)
    for message in found:
        print(message)
    if found:
        print(f"{len(found)} imports point the wrong way")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
