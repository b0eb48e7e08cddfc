"""What a session lacks, told by builders and sessions that are only pretended."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import thetastream as ts
from thetastream.api import interpreter
from thetastream.api import session as sessions
from thetastream.api.session import HELPFUL, LOCAL, REQUIRED, check_session, tasks_at_a_time
from thetastream.planner import Parallelism

STATE = "spark.sql.streaming.stateStore"
NEEDED = {name: value for name, (value, _) in REQUIRED.items()}
PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable that says where Spark is, and none that stays behind."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith(("PYSPARK", "SPARK", "MASTER"))]:
        monkeypatch.delenv(name)
    yield
    os.environ.pop("PYSPARK_PYTHON", None)


def options(builder: SparkSession.Builder) -> dict[str, Any]:
    return dict(builder._options)  # type: ignore[attr-defined]


class Settings:
    """The runtime settings of a session that is not there."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.getAll = dict(given)

    def get(self, name: str, default: str | None = None) -> str | None:
        defaults = {PARTITIONS: "200", f"{STATE}.checkpointFormatVersion": "1"}
        return self.getAll.get(name, defaults.get(name, default))


class Session:
    """A classic session that is not there."""

    def __init__(self, master: str, given: Mapping[str, str]) -> None:
        self.conf = Settings(given)
        self.sparkContext = SimpleNamespace(
            master=master, pythonExec=sys.executable, defaultParallelism=2
        )


def session(*settings: Mapping[str, str], master: str = "local[2]") -> Any:
    return Session(master, {name: value for given in settings for name, value in given.items()})


@pytest.fixture(autouse=True)
def _no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shipped with Spark's help is in a folder that only Spark knows."""
    monkeypatch.setattr(interpreter.SparkFiles, "getRootDirectory", lambda: "/nowhere")


def test_configure_sets_all() -> None:
    found = options(ts.configure(SparkSession.builder.master("yarn")))
    assert found == {"spark.master": "yarn", **NEEDED, **HELPFUL}
    assert "PYSPARK_PYTHON" not in os.environ


def test_configure_with_local_checkpoints() -> None:
    found = options(ts.configure(SparkSession.builder.master("yarn"), local_checkpoints=True))
    assert found == {"spark.master": "yarn", **NEEDED, **HELPFUL, **LOCAL}


@pytest.mark.parametrize(
    ("master", "partitions"),
    [
        ("local", "1"),
        ("local[3]", "3"),
        ("local[3,4]", "3"),
        ("local[*]", str(os.cpu_count())),
        ("local-cluster[2,3,1024]", "6"),
        (None, str(os.cpu_count())),
    ],
)
def test_configure_for_a_local_master(master: str | None, partitions: str) -> None:
    builder = SparkSession.builder
    found = options(ts.configure(builder if master is None else builder.master(master)))
    assert found[PARTITIONS] == partitions
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize("variable", ["SPARK_HOME", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"])
def test_configure_where_the_master_is_not_known(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "1")
    assert PARTITIONS not in options(ts.configure(SparkSession.builder))
    assert "PYSPARK_PYTHON" not in os.environ


def test_configure_leaves_what_the_user_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    mine = {"spark.sql.execution.arrow.maxRecordsPerBatch": "500", PARTITIONS: "7"}
    builder = SparkSession.builder.master("local[2]")
    for name, value in mine.items():
        builder = builder.config(name, value)
    found = options(ts.configure(builder))
    assert {name: found[name] for name in mine} == mine
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"


def test_configure_refuses_what_joins_do_not_run_with() -> None:
    builder = SparkSession.builder.config(f"{STATE}.providerClass", "mine")
    builder = builder.config(f"{STATE}.checkpointFormatVersion", 1)
    with pytest.raises(ts.SettingError) as caught:
        ts.configure(builder)
    for part in (
        f"{STATE}.providerClass = mine",
        f"{STATE}.checkpointFormatVersion = 1",
        "can load state",
    ):
        assert part in str(caught.value)
    same = SparkSession.builder.config(f"{STATE}.checkpointFormatVersion", 2)
    assert options(ts.configure(same))[f"{STATE}.checkpointFormatVersion"] == "2"


def test_session_has_the_settings_of_configure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", options)
    found: Any = ts.session(cores=3, config={"spark.ui.enabled": "true"})
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.master"] == "local[3,4]"
    assert found[PARTITIONS] == "3"
    assert {**NEEDED, **HELPFUL, **LOCAL}.items() <= found.items()


def test_everything_that_is_missing_in_one_message() -> None:
    bare = session()
    bare.sparkContext.pythonExec = "no-such-python"
    with pytest.raises(ts.SettingError) as caught:
        check_session(bare, 2)
    text = str(caught.value)
    assert text.startswith("this Spark session lacks 3 things")
    assert "no-such-python" in text
    assert 'os.environ["PYSPARK_PYTHON"] = sys.executable' in text
    assert "ts.configure(SparkSession.builder)" in text
    lines = [line.strip() for line in text.splitlines() if "conf.set" in line]
    wanted = {**NEEDED, PARTITIONS: "2"} | {
        name: value for name, value in HELPFUL.items() if name.startswith("spark.sql.")
    }
    assert lines == [f'spark.conf.set("{name}", "{value}")' for name, value in wanted.items()]


def test_helpful_settings_are_asked_for_once() -> None:
    one = session(NEEDED, {PARTITIONS: "2"})
    with pytest.warns(ts.ThetastreamWarning, match=r"slower[\s\S]*ts\.configure") as caught:
        check_session(one, 2)
    assert "spark.python.unix.domain.socket.enabled" in str(caught[0].message)
    assert 'conf.set("spark.python' not in str(caught[0].message), "it cannot be set at run time"
    assert caught[0].filename == __file__
    check_session(one, 2)


def test_no_warning_for_what_the_user_chose() -> None:
    chosen = dict.fromkeys((name for name in HELPFUL if name.startswith("spark.sql.")), "mine")
    check_session(session(NEEDED, chosen, {PARTITIONS: "8"}), 2)


def test_idle_partitions() -> None:
    for units, said in ((2, True), (200, False)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check_session(session(NEEDED, HELPFUL), units)
        assert [item.filename for item in caught] == [__file__] * said
        for item in caught:
            assert 'spark.conf.set("spark.sql.shuffle.partitions", "2")' in str(item.message)
    assert sessions.idle_partitions(Parallelism(None, 200), 200) == []
    assert sessions.idle_partitions(Parallelism(2, 8), 2) == []


@pytest.mark.parametrize(
    ("master", "settings", "tasks"),
    [
        ("local[*]", {}, 12),
        ("local[*,4]", {}, 12),
        ("local[4,8]", {"default.parallelism": "100"}, 4),
        ("local[4]", {"task.cpus": "2"}, 2),
        ("yarn", {"executor.instances": "5"}, 5),
        ("yarn", {"executor.instances": "5", "executor.cores": "4"}, 20),
        (
            "k8s://host",
            {"dynamicAllocation.enabled": "true", "dynamicAllocation.maxExecutors": "3"},
            3,
        ),
        ("yarn", {"dynamicAllocation.enabled": "true", "executor.instances": "3"}, None),
        ("spark://host:7077", {"executor.instances": "5"}, None),
        ("spark://host:7077", {"cores.max": "6"}, 6),
        ("yarn", {"default.parallelism": "9"}, 9),
        ("", {}, None),
    ],
)
def test_tasks_at_a_time(master: str, settings: dict[str, str], tasks: int | None) -> None:
    named = {f"spark.{name}": value for name, value in settings.items()}
    assert tasks_at_a_time(master, named.get, 12) == tasks


def test_all_cores_of_the_machine() -> None:
    one = session(master="local[*]")
    assert sessions.parallelism(one) == Parallelism(2, 200), "as many as Java counts"
    other = session({"spark.default.parallelism": "100"}, master="local[*,4]")
    assert sessions.parallelism(other) == Parallelism(os.cpu_count(), 200)


def test_a_server_elsewhere_is_not_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    remote: Any = SimpleNamespace(conf=Settings({"spark.master": "local[*]"}))
    assert sessions.parallelism(remote) == Parallelism(None, 200)
    assert interpreter.worker(remote) is None
    monkeypatch.setenv("SPARK_LOCAL_REMOTE", "1")
    assert sessions.parallelism(remote) == Parallelism(os.cpu_count(), 200)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "ipython")
    found = interpreter.worker(remote)
    assert found is not None
    assert found.executable == "ipython"


def python(folder: Path, body: str) -> interpreter.Worker:
    """A program that stands for another Python."""
    folder.mkdir(exist_ok=True)
    program = folder / "python3"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return interpreter.Worker(str(program), ("thetastream",))


def test_the_python_of_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = interpreter.problem_of
    own = "{}.{}".format(*sys.version_info)
    assert problem(interpreter.Worker(sys.executable, ("no_such_package",))) is None
    old = problem(python(tmp_path, "echo 3.8; exit 1"))
    assert old is not None
    assert f"Python 3.8 ({tmp_path}/python3), and this program runs Python {own}" in old
    bare = python(tmp_path, f"echo {own}; echo 'E: no module thetastream' >&2; exit 1")
    assert str(problem(bare)).endswith("what a join needs: E: no module thetastream")
    assert problem(python(tmp_path, f"echo {own}")) is None
    assert "no such program" in str(problem(interpreter.Worker("no-such-python", ())))
    monkeypatch.setattr(interpreter, "PATIENCE", 0.1)
    assert problem(python(tmp_path, "exec sleep 60")) is None, "no answer is not a wrong one"


def test_the_same_python_by_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every virtual environment links to the same program: the folder is what counts."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "python").symlink_to(os.path.realpath(sys.executable))
        (tmp_path / folder / "python3").symlink_to("python")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "one" / "python"))
    worker = interpreter.Worker(str(tmp_path / "one" / "python3"), ("no_such_package",))
    assert interpreter.problem_of(worker) is None
    worker = worker._replace(executable=str(tmp_path / "two" / "python3"))
    assert "no_such_package" in str(interpreter.problem_of(worker))


def test_a_good_answer_is_remembered(tmp_path: Path) -> None:
    one = session()
    log = tmp_path / "asked"
    one.sparkContext.pythonExec = python(tmp_path / "bin", f"echo no >> {log}; exit 1").executable
    assert interpreter.other_python(one) is not None
    version = "{}.{}".format(*sys.version_info)
    python(tmp_path / "bin", f"echo yes >> {log}; echo {version}")
    assert [interpreter.other_python(one) for _ in range(2)] == [None, None]
    assert log.read_text().split() == ["no", "yes"]


def test_workers_that_this_machine_does_not_know() -> None:
    cluster = session(master="spark://host:7077")
    assert interpreter.worker(cluster) is None
    shipped = session({"spark.archives": "environment.tar.gz"})
    assert interpreter.worker(shipped) is None
