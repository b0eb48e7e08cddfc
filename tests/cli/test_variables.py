"""`${NAME}` in a job: whatever goes wrong, messages name the variable and not its value."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.examples import examples
from thetastream.cli.job import load
from thetastream.cli.main import FAILED, WRONG, main
from thetastream.cli.variables import UnsetVariableError, Variables
from thetastream.errors import JobError, ThetastreamError

JOB = """
checkpoint = "checkpoint"
query = "SELECT a.id FROM a, b WHERE a.id = b.id WITHIN 1 minute"
trigger = "available now"
delay = "1 minute"
[streams.a]
format = "json"
path = "a"
schema = "id INT, at TIMESTAMP"
time = "at"
[streams.b]
format = "json"
path = "b"
schema = "id INT, at TIMESTAMP"
time = "at"
[sink]
format = "parquet"
path = "out"
"""
SECRETS = ("hunter2-hunter2", "pw", "s3://key:pa'ss\"word@bucket/x")


def job_with(folder: Path, old: str, new: str) -> Path:
    assert old in JOB
    for name in "ab":
        (folder / name).mkdir(exist_ok=True)
    file = folder / "job.toml"
    file.write_text(JOB.replace(old, new, 1))
    return file


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('trigger = "available now"', 'trigger = "${SECRET}"'),
        ('trigger = "available now"', 'trigger = "10 ${SECRET}"'),
        ('delay = "1 minute"', 'output_mode = "${SECRET}"'),
        (
            "[streams.a]",
            '[control]\npath = "c"\n[control.scaling]\ncapacity = "${SECRET}"\n[streams.a]',
        ),
        ("[streams.a]", '[spark]\n"${SECRET}" = [1]\nspark.x = [1]\n[streams.a]'),
        ('format = "parquet"\npath = "out"', 'format = "${SECRET}"\noptions = { x = [1] }'),
        ('path = "a"', 'path = "${SECRET}"\noptions = { password = "${SECRET}", x = [1] }'),
    ],
)
def test_errors_of_a_job_file_name_the_variable(
    old: str, new: str, secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", secret)
    with pytest.raises(JobError) as caught:
        load(job_with(tmp_path, old, new))
    shown = f"{caught.value!r} {caught.value}".replace(str(tmp_path), "")
    assert secret not in shown
    assert repr(secret)[1:-1] not in shown


@pytest.mark.parametrize("secret", ["hunter2-hunter2", "x7"])
def test_a_path_that_does_not_exist_is_named_by_its_variable(
    secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SECRET", secret)
    job = job_with(tmp_path, 'path = "a"', 'path = "in/${SECRET}/a"')
    assert main(["check", str(job)]) == WRONG
    shown = capsys.readouterr().err
    assert "does not exist" in shown
    assert secret not in shown.replace(str(tmp_path), "")
    assert "in/${SECRET}/a" in shown


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('schema = "id INT, at TIMESTAMP"', 'schema = "id INT, ${SECRET}"'),
        ('format = "json"\npath = "b"', 'format = "${SECRET}"\npath = "b"'),
        ('format = "parquet"\npath = "out"', 'format = "${SECRET}"'),
        ('time = "at"', 'time = "${SECRET}"'),
    ],
)
def test_errors_of_spark_and_of_the_planner_name_the_variable(
    old: str,
    new: str,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SECRET", "hunter2-hunter2")
    assert main(["check", str(job_with(tmp_path, old, new))]) == WRONG
    shown = capsys.readouterr()
    assert "error: " in shown.err
    assert "hunter2" not in shown.out + shown.err


def test_errors_of_a_running_query_name_the_variable(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Spark quotes an option that it cannot read when the first batch is planned."""
    monkeypatch.setenv("SECRET", "hunter2-hunter2")
    limit = 'path = "a"\noptions = { maxFilesPerTrigger = "${SECRET}" }'
    assert main(["run", str(job_with(tmp_path, 'path = "a"', limit))]) == FAILED
    shown = capsys.readouterr()
    assert "${SECRET}" in shown.err
    assert "hunter2" not in shown.out + shown.err


def test_a_plan_names_the_variable(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMN", "hunter2_at")
    text = JOB.replace("at TIMESTAMP", "hunter2_at TIMESTAMP").replace('"at"', '"${COLUMN}"')
    for name in "ab":
        (tmp_path / name).mkdir()
    file = tmp_path / "job.toml"
    file.write_text(text)
    for form in ([], ["--html"]):
        assert main(["explain", str(file), *form]) == 0
        shown = capsys.readouterr()
        assert "Join of a and b" in shown.out
        assert "hunter2" not in shown.out + shown.err


@examples(60)
@given(
    value=st.text(min_size=1, max_size=12).filter(str.strip),
    around=st.tuples(st.sampled_from(["", "/", "'", " "]), st.sampled_from(["", "/", "'", " "])),
)
def test_values_are_hidden_however_they_were_quoted(value: str, around: tuple[str, str]) -> None:
    variables = Variables()
    variables._values["NAME"] = value
    before, after = around
    for quoted in (value, repr(value)[1:-1]):
        # A part of the variable's own name is no secret.
        hidden = variables.hide(f"{before}{quoted}{after}").replace("${NAME}", "")
        assert quoted not in hidden


def test_a_value_inside_of_another_one_is_hidden_too() -> None:
    variables = Variables()
    variables._values.update(USER="admin", LOGIN="admin:secret")
    assert variables.hide("no such host admin:secret@x") == "no such host ${LOGIN}@x"
    assert variables.hide("user admin") == "user ${USER}"


def test_all_parts_of_an_error_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2-hunter2")
    variables = Variables()
    assert variables.expand("a${SECRET}b") == "ahunter2-hunter2b"
    assert variables.written("ahunter2-hunter2b") == "a${SECRET}b"
    text = "x hunter2-hunter2 y"
    error = variables.hidden(ThetastreamError(text, detail=text, hint=text))
    assert "hunter2" not in f"{error} {error!r} {error.args}"
    with pytest.raises(UnsetVariableError, match="NOT_SET_HERE"):
        variables.expand("${NOT_SET_HERE}")
