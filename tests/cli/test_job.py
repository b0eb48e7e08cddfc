"""Job files and the command line, as far as they need no Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from thetastream.cli import completion
from thetastream.cli.job import load
from thetastream.cli.main import DONE, NO_SPARK, WRONG, main, parser
from thetastream.cli.main import WORKLOADS as OFFERED
from thetastream.cli.start import own_error
from thetastream.errors import JobError
from thetastream.spec import SketchOptions
from thetastream.steering.policy import Holding, Load, Moment
from thetastream.steering.rebalance import Rebalance
from thetastream.steering.scaling import TwoPhaseScaling
from thetastream.workloads import WORKLOADS

TOML = """
checkpoint = "checkpoint"
query = "SELECT a.id FROM a, b WHERE a.id = b.id"
[streams.a]
format = "parquet"
path = "a"
[streams.b]
format = "kafka"
time = "arrival"
options = { subscribe = "topic", "kafka.bootstrap.servers" = "${SERVERS}" }
[sink]
format = "parquet"
path = "out"
[options]
units = [2, 3]
[spark]
cores = 2
spark.sql.shuffle.partitions = 4
"""


def written(folder: Path, text: str, name: str = "job.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_a_job_has_what_the_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVERS", "broker:9092")
    job = load(written(tmp_path, TOML))
    assert job.name == "job"
    assert job.streams["a"].path == str(tmp_path / "a")
    assert job.streams["b"].options == {
        "subscribe": "topic",
        "kafka.bootstrap.servers": "broker:9092",
    }
    assert job.join.units == (2, 3)
    assert job.cores == 2
    assert job.spark == {"spark.sql.shuffle.partitions": "4"}
    assert job.trigger == "continuous"
    # What may hold a password is not shown with the job.
    assert "broker" not in repr(job)


def test_a_sql_file_has_its_settings_in_its_first_comment(tmp_path: Path) -> None:
    text = """-- # About the job.
-- checkpoint = "c"
-- delay = "5 seconds"
-- [streams.a]
-- format = "rate"
-- [sink]
-- format = "console"

SELECT x.value FROM a x, a y -- not a setting
WHERE x.value = y.value
"""
    job = load(written(tmp_path, text, "job.sql"))
    assert job.query.startswith("SELECT x.value FROM a x, a y -- not a setting\nWHERE")
    assert job.delay == "5 seconds"
    assert job.streams["a"].format == "rate"


CONTROL = """
[control]
path = "control"
max_units = 8
[control.scaling]
capacity = "512 MB"
high = 0.9
patience = 2
every = "30 seconds"
[options]
"""
LIVE = TOML.replace("[options]", CONTROL)


def test_a_job_that_is_scaled_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVERS", "broker:9092")
    job = load(written(tmp_path, LIVE))
    assert job.join.control == str(tmp_path / "control")
    assert job.join.max_units == 8
    (scaling,) = job.policies
    assert isinstance(scaling, TwoPhaseScaling)
    assert scaling.every == 30.0
    load_of = Load(join=0, stage=0, unit=0, stored_bytes=470_000_000)
    held = Holding(stream="a", join=0, stage=0, units=(0,))
    moment = Moment(at=0, batch=1, interval=1, loads=(load_of,), holdings=(held,), max_units=8)
    assert scaling.decide(moment, []).why.startswith("a: load 0.92 is above 0.90")
    plain = load(written(tmp_path, LIVE.split("[control.scaling]")[0], "plain.toml"))
    assert plain.join.control == str(tmp_path / "control")
    assert plain.policies == ()
    there = LIVE.replace('path = "control"', 'path = "s3://bucket/rides"')
    assert load(written(tmp_path, there)).join.control == "s3://bucket/rides"
    assert load(written(tmp_path, TOML)).join.control is None


@pytest.mark.parametrize(
    ("size", "found"),
    [
        ("512", 512.0),
        ('"512 B"', 512.0),
        ('"2 KB"', 2000.0),
        ('"1.5 GiB"', 1.5 * 1024**3),
        ('"3mb"', 3_000_000.0),
    ],
)
def test_sizes(tmp_path: Path, size: str, found: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVERS", "broker:9092")
    job = load(written(tmp_path, LIVE.replace('"512 MB"', size)))
    (scaling,) = job.policies
    load_of = Load(join=0, stage=0, unit=0, stored_bytes=round(found / 2))
    held = Holding(stream="a", join=0, stage=0, units=(0,))
    moment = Moment(at=0, batch=1, interval=1, loads=(load_of,), holdings=(held,), max_units=8)
    assert scaling.decide(moment, []).why.startswith("a: load 0.50 is between")


REBALANCE = """
[control.rebalance]
every = "20 seconds"
balance = 1.1
declustering = false
[options]
"""
BALANCED = LIVE.replace("[options]", REBALANCE)


def test_a_job_that_is_balanced_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVERS", "broker:9092")
    scaling, rebalance = load(written(tmp_path, BALANCED)).policies
    assert isinstance(scaling, TwoPhaseScaling)
    assert isinstance(rebalance, Rebalance)
    assert (rebalance.every, rebalance.scales) == (20.0, False)


HOT = """
[control.hot_keys]
factor = 0.5
most = 4
[options]
sketch = { half_life = 1000 }
"""
HEATED = LIVE.replace("[options]", HOT)


def test_a_job_that_splits_hot_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVERS", "broker:9092")
    job = load(written(tmp_path, HEATED))
    assert [policy.name for policy in job.policies] == ["two-phase scaling", "hot keys"]
    assert job.join.hot_keys == "watch"
    assert job.join.sketch == SketchOptions(half_life=1000)
    own = load(written(tmp_path, LIVE.replace("[options]", '[options]\nhot_keys = "auto"')))
    assert own.join.hot_keys == "auto"
    assert [policy.name for policy in own.policies] == ["two-phase scaling"]


BROKEN = [
    (HEATED.replace("factor = 0.5", "factor = 0"), "not a share of a unit's load"),
    (HEATED.replace("most = 4", "moost = 4"), "did you mean 'most'"),
    (HEATED.replace("half_life = 1000", "half_life = 0"), "not a number of rows"),
    (HEATED.replace("half_life = 1000", "halflife = 1000"), "halflife"),
    (HEATED.replace("sketch =", 'hot_keys = "auto"\nsketch ='), "a policy of their own"),
    (LIVE.replace("[options]", '[options]\nhot_keys = "on"'), "unknown hot_keys"),
    (LIVE.replace('path = "control"', ""), "[control] has no path"),
    (LIVE.replace("max_units", "max_unit"), "did you mean 'max_units'"),
    (LIVE.replace("max_units = 8", "max_units = 0"), "not a number of units"),
    (LIVE.replace("patience", "patiense"), "did you mean 'patience'"),
    (LIVE.replace("512 MB", "a lot"), "is not a size"),
    (LIVE.replace('capacity = "512 MB"', ""), "is not a number of bytes"),
    (LIVE.replace("high = 0.9", "high = 0.1"), "not in this order"),
    (LIVE.replace("high = 0.9", 'high = "0.9"'), "is not a number"),
    (LIVE.replace("patience = 2", "patience = 2.5"), "is not a whole number"),
    (LIVE.replace("30 seconds", "later"), "not a length of time"),
    (LIVE.replace("high = 0.9", "measure = 1"), "is not text"),
    (BALANCED.replace("declustering = false", ""), "both decide how many units"),
    (BALANCED.replace("= false", '= "no"'), "is not true or false"),
    (BALANCED.replace("balance = 1.1", "balanse = 1.1"), "did you mean 'balance'"),
    (BALANCED.replace("balance = 1.1", "beta = 1.1"), "beta=1.1 is not between 0 and 1"),
    (BALANCED.replace("balance = 1.1", "groups = 1.5"), "is not a whole number"),
    (BALANCED.replace("balance = 1.1", "balance = true"), "is not a number"),
    (TOML.replace("units = [2, 3]", 'control = "control"'), "write a table [control]"),
    (
        TOML.replace("[options]", "control = 1\n[options]").replace(
            "control = 1\n", "[control]\nscaling = 1\npath = 'c'\n"
        ),
        "is not a table",
    ),
    ("checkpoint = ", "not valid TOML"),
    (TOML.replace("checkpoint", "checkpont"), "did you mean 'checkpoint'"),
    (TOML.replace("units", "unit"), "did you mean 'units'"),
    (TOML.replace("units = [2, 3]", "units = 0"), "not a number of units"),
    (TOML.replace('format = "kafka"', 'fromat = "kafka"'), "did you mean 'format'"),
    (TOML.replace('checkpoint = "checkpoint"', ""), "has no checkpoint"),
    (TOML.replace('path = "a"', ""), "has no path"),
    (TOML.replace("[sink]", "[sinks]"), "did you mean 'sink'"),
    (TOML.replace("[streams.a]", 'trigger = "soon"\n[streams.a]'), "available now"),
    (TOML.replace("[streams.a]", 'delay = "later"\n[streams.a]'), "not a length of time"),
    (TOML.replace("[streams.a]", 'output_mode = "all"\n[streams.a]'), "choose one of append"),
    (TOML.replace("SERVERS", "NO_SUCH_VARIABLE"), "export NO_SUCH_VARIABLE"),
    ('checkpoint = "c"\nquery = "SELECT 1"\n', "no streams"),
]


@pytest.mark.parametrize(("text", "words"), BROKEN, ids=[words for _, words in BROKEN])
def test_a_broken_job_says_what_to_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    words: str,
) -> None:
    monkeypatch.setenv("SERVERS", "broker:9092")
    file = written(tmp_path, text)
    with pytest.raises(JobError, match="What to do"):
        load(file)
    assert main(["check", str(file)]) == WRONG
    message = capsys.readouterr().err
    assert words in message
    assert "What to do" in message


def test_a_source_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = TOML.replace("${SERVERS}", "x")
    assert main(["run", str(written(tmp_path, text))]) == WRONG
    assert f"does not exist: {tmp_path / 'a'}" in capsys.readouterr().err
    assert main(["run", str(tmp_path / "nothing.toml")]) == WRONG


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    assert main(["generate", "zipf", str(file), "--rows", "10", "--files", "1"]) == WRONG
    assert f"{file} cannot be written" in capsys.readouterr().err


def test_the_command_line_offers_every_workload() -> None:
    """It lists them without importing what makes them."""
    assert set(OFFERED) == {*WORKLOADS, "tpch"}


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_generated_streams_repeat_with_their_seed(workload: str, tmp_path: Path) -> None:
    arguments = ["--rows", "300", "--files", "2", "--seed", "3"]
    for name in ("one", "two"):
        assert main(["generate", workload, str(tmp_path / name), *arguments]) == DONE
    assert main(["generate", workload, str(tmp_path / "other"), *arguments[:-1], "4"]) == DONE
    streams = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert streams == sorted(WORKLOADS[workload](3))
    for stream in streams:
        tables = {name: pq.read_table(tmp_path / name / stream) for name in ("one", "two", "other")}
        assert tables["one"].equals(tables["two"])
        assert not tables["one"].equals(tables["other"])
        assert tables["one"].num_rows == 600
        assert oct((tmp_path / "one" / stream).stat().st_mode & 0o777) == "0o700"


def test_a_paced_stream_arrives_file_by_file(tmp_path: Path) -> None:
    arguments = ["--rows", "10", "--files", "3", "--every", "0.05"]
    assert main(["generate", "zipf", str(tmp_path), *arguments]) == DONE
    times = [path.stat().st_mtime for path in sorted((tmp_path / "r").glob("*.parquet"))]
    assert times == sorted(times)
    assert len(set(times)) == 3


def test_tpch_is_generated(tmp_path: Path) -> None:
    assert main(["generate", "tpch", str(tmp_path), "--scale", "0.001"]) == DONE
    assert (tmp_path / "lineitem.parquet").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == DONE
    script = capsys.readouterr().out
    for word in ("run", "explain", "check", "generate", "demo", "bench", "gps", "json"):
        assert word in script


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ch"], ["check"]),
        (["run", "--j"], ["--json"]),
        (["generate", "g"], ["gps"]),
        (["generate", "gps", "--sc"], ["--scale"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["run", "orders"], ["orders.toml"]),
        (["generate", "gps", "orders"], ["orders.toml"]),
        (["explain", "--html", "orders"], ["orders.toml"]),
    ],
)
def test_the_bash_script_completes(words: list[str], found: list[str], tmp_path: Path) -> None:
    (tmp_path / "orders.toml").touch()
    probe = (
        f"{completion.script(parser(), 'bash')}\n"
        'COMP_WORDS=(thetastream "$@"); COMP_CWORD=$#\n'
        # The name of the function is the library's affair.
        "$(complete -p thetastream | sed 's/.*-F \\([^ ]*\\) .*/\\1/')\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "-c", probe, "bash", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == found


@pytest.mark.parametrize(
    ("package", "command", "packages"),
    [
        ("matplotlib", ["bench", "--list"], "duckdb matplotlib psutil rich"),
        ("matplotlib", ["demo"], "duckdb matplotlib psutil rich"),
        ("shtab", ["completion", "bash"], "shtab"),
    ],
)
def test_the_package_works_without_the_extras(
    package: str, command: list[str], packages: str
) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "import thetastream\n"
        "from thetastream.cli.main import main\n"
        f"sys.exit(main({command!r}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == NO_SPARK, done.stderr
    assert done.stderr == (
        f"error: thetastream {command[0]} needs {package}\nWhat to do: pip install {packages}\n"
    )


def test_errors_of_the_library_are_found_in_sparks_stack() -> None:
    text = (
        "[STREAM_FAILED] ...\n  File x\nthetastream.errors.CorruptRunError: stored part 3 is"
        " damaged\nWhat to do: restore it\n\n\tat org.apache.spark.X\n"
    )
    assert own_error(text) == (
        "CorruptRunError",
        "stored part 3 is damaged\nWhat to do: restore it",
    )
    assert own_error("java.lang.Error") is None


def test_a_stream_of_a_job_can_be_at_a_site(tmp_path: Path) -> None:
    site = """
[streams.a]
site = "grpc+tls://plant.example:8815"
stream = "packets"
token_file = "secrets/token"
max_rows = 1000
time = "at"
"""
    plain = TOML.replace(
        """
[streams.a]
format = "parquet"
path = "a"
""",
        site,
    ).replace("${SERVERS}", "broker")
    source = load(written(tmp_path, plain)).streams["a"]
    assert source.time == "at"
    assert source.site is not None
    assert source.site.address == "grpc+tls://plant.example:8815"
    assert (source.site.stream, source.site.max_rows) == ("packets", 1000)
    assert source.site.token_file == str(tmp_path / "secrets/token")
    for wrong, match in (
        (plain.replace("max_rows = 1000", "max_rows = 0"), "max_rows"),
        (plain.replace('time = "at"', 'format = "json"'), "format"),
        (plain.replace('stream = "packets"', "stream = 3"), "stream"),
    ):
        with pytest.raises(JobError, match=match):
            load(written(tmp_path, wrong))


def test_spark_s_own_limit_is_named_with_the_way_out() -> None:
    text = (
        "Job aborted\nCaused by: org.apache.arrow.vector.util.OversizedAllocationException: Memory"
        " required for vector is (2147483700), which is overflow or more than max allowed"
    )
    found = own_error(text)
    assert found is not None
    assert found[0] == "TriggerSizeError"
    assert "spark.sql.execution.arrow.maxBytesPerBatch" in found[1]
