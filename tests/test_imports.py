"""The import-direction check passes on the package and catches each kind of violation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "tools" / "imports.py"


def run(package: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOL), str(package)], capture_output=True, text=True, check=False
    )


def tree(folder: Path, files: dict[str, str]) -> Path:
    package = folder / "thetastream"
    for name, text in {"__init__.py": "", **files}.items():
        file = package / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return package


def test_package_is_clean() -> None:
    done = run(ROOT / "src" / "thetastream")
    assert done.returncode == 0, done.stdout + done.stderr


def test_downward_imports_are_allowed(tmp_path: Path) -> None:
    package = tree(
        tmp_path,
        {
            "__init__.py": "from thetastream.api import join\n",
            "api/__init__.py": "import pyspark\nfrom thetastream.planner import text\n",
            "api/control_charts.py": "from matplotlib.figure import Figure\n",
            "planner/__init__.py": "",
            "planner/text.py": "import sqlglot\nfrom sqlglot import exp\n",
            "runtime/__init__.py": "from pyspark.sql import DataFrame\nfrom ..engine import unit\n",
            "engine/__init__.py": "",
            "engine/unit.py": "from . import unit\nfrom thetastream import errors\n",
            "errors.py": "",
            "demo/__main__.py": "import thetastream as ts\nimport duckdb\n",
        },
    )
    done = run(package)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("index/run.py", "\nfrom thetastream.engine import unit\n", "index imports engine"),
        ("index/run.py", "\nfrom ..engine import unit\n", "index imports engine"),
        ("index/run.py", "\nfrom .. import engine\n", "index imports engine"),
        ("index/run.py", "\nimport thetastream\n", "index imports __init__"),
        ("index/run.py", "\nfrom thetastream import JoinOptions\n", "index imports __init__"),
        ("errors.py", "def f():\n    import thetastream.api\n", "errors imports api"),
        (
            "engine/unit.py",
            "import importlib\nimportlib.import_module('thetastream.runtime')\n",
            "engine imports runtime",
        ),
        ("planner/cost.py", "\nfrom thetastream.runtime import route\n", "planner imports runtime"),
        ("engine/unit.py", "\nimport pyspark.sql\n", "pyspark may be imported only in"),
        ("runtime/route.py", "\nfrom sqlglot import exp\n", "sqlglot may be imported only in"),
        ("engine/unit.py", "\nfrom pyarrow import flight\n", "pyarrow.flight may be imported only"),
        ("api/join.py", "\nimport duckdb\n", "duckdb may be imported only in"),
        ("cli/job.py", "\nimport matplotlib\n", "matplotlib may be imported only in"),
        ("api/control.py", "\nimport matplotlib\n", "matplotlib may be imported only in"),
        ("api/join.py", "\nimport shtab\n", "shtab may be imported only in"),
    ],
)
def test_violation_is_reported(tmp_path: Path, file: str, text: str, message: str) -> None:
    parts = {f"{part}/__init__.py": "" for part in ("api", "engine", "runtime", "planner")}
    done = run(tree(tmp_path, {**parts, file: text}))
    assert done.returncode == 1
    assert f"{file}:2: " in done.stdout
    assert message in done.stdout


def test_sqlglot_stays_in_one_place(tmp_path: Path) -> None:
    folder = {"planner/a/x.py": "import sqlglot\n", "planner/a/y.py": "import sqlglot\n"}
    assert run(tree(tmp_path / "folder", folder)).returncode == 0
    files = {"planner/a.py": "import sqlglot\n", "planner/b.py": "from sqlglot import exp\n"}
    done = run(tree(tmp_path, files))
    assert done.returncode == 1
    assert "planner/b.py:1: sqlglot is already imported in" in done.stdout


def test_part_without_layer_is_reported(tmp_path: Path) -> None:
    done = run(tree(tmp_path, {"helpers.py": ""}))
    assert done.returncode == 1
    assert "helpers is in no layer" in done.stdout


def test_workers_do_not_import_the_planner() -> None:
    """What Spark's workers import leaves out the api, the planner and the SQL parser."""
    program = (
        "import sys\n"
        "import thetastream.runtime.joiner, thetastream.runtime.router\n"
        "unwanted = {'sqlglot', 'thetastream.planner', 'thetastream.api'} & set(sys.modules)\n"
        "assert not unwanted, unwanted\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
