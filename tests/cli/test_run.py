"""Jobs on Spark: every example, restarts, failures, and the command as a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

from tests.conftest import SHORT_LIVED, committed_files
from thetastream.cli.main import DONE, FAILED, OTHER_QUERY, WRONG, main

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SIZES = {"city": 1500, "power": 150, "fares": 400, "zipf": 1500, "gps": 600}


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the examples with their streams."""
    folder = tmp_path_factory.mktemp("examples") / "examples"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("data", "out"))
    for workload, rows in SIZES.items():
        out = str(folder / "data" / workload)
        assert main(["generate", workload, out, "--rows", str(rows), "--files", "4"]) == DONE
    return folder


def rows_of(sql: str, **files: str) -> Counter[Any]:
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for name, pattern in files.items():
            database.execute(f"CREATE VIEW {name} AS FROM read_parquet('{pattern}')")
        return Counter(
            tuple(f"{v:.6g}" if isinstance(v, float) else repr(v) for v in row)
            for row in database.execute(sql).fetchall()
        )


def written(folder: Path, select: str, kind: str = "parquet") -> Counter[Any]:
    files = committed_files(folder)
    reader = "read_parquet" if kind == "parquet" else "read_json"
    return rows_of(f"SELECT {select} FROM {reader}({files!r})") if files else Counter()


def close(first: str, second: str, seconds: int) -> str:
    return f"abs(epoch_us({first}) - epoch_us({second})) <= {seconds * 1_000_000}"


def test_offers(spark: SparkSession, examples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = str(examples / "offers.sql")
    assert main(["check", job]) == DONE
    assert main(["explain", job]) == DONE
    assert "Join of orders and rides" in capsys.readouterr().out
    assert main(["explain", job, "--html"]) == DONE
    assert "<table" in capsys.readouterr().out
    assert main(["run", job]) == DONE
    assert "batch 0: " in capsys.readouterr().out
    city = examples / "data/city"
    wanted = rows_of(
        "SELECT order_id, ride_id, round(o.fare - r.fare, 2) FROM o, r WHERE o.zone = r.zone"
        f" AND o.fare > r.fare AND abs(o.x - r.x) <= 5 AND {close('placed_at', 'seen_at', 600)}",
        o=f"{city}/orders/*",
        r=f"{city}/rides/*",
    )
    assert written(examples / "out/offers", "*") == wanted
    # A second run finds nothing new and changes nothing.
    assert main(["run", job, "--json"]) == DONE
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(line["rows_in"] for line in lines) == 0
    assert written(examples / "out/offers", "*") == wanted
    # Another query must not go on from this checkpoint.
    other = (examples / "offers.sql").read_text().replace("<= 5", "<= 6")
    changed = examples / "changed.sql"
    changed.write_text(other)
    for command in ("check", "run"):
        assert main([command, str(changed)]) == OTHER_QUERY
        message = capsys.readouterr().err
        assert "belongs to another query" in message
        assert "<= 6" in message
    assert written(examples / "out/offers", "*") == wanted


def test_demand(spark: SparkSession, examples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(examples / "demand.toml")]) == DONE
    assert "are still open: each is written when later rows" in capsys.readouterr().out
    city = examples / "data/city"
    newest = "greatest(epoch_us(placed_at), epoch_us(seen_at)) // 300000000 * 300000000"
    wanted = rows_of(
        f"SELECT o.zone, {newest} AS since, count(*), sum(r.fare) FROM o, r WHERE"
        f" o.zone = r.zone AND o.fare > r.fare AND {close('placed_at', 'seen_at', 600)}"
        " GROUP BY ALL",
        o=f"{city}/orders/*",
        r=f"{city}/rides/*",
    )
    found = written(
        examples / "out/demand", "zone::INT, epoch_us(since::TIMESTAMP), offers, takings", "json"
    )
    # Only windows that the watermark has passed are written: here the one before midnight.
    assert found
    assert found <= wanted


def test_power(spark: SparkSession, examples: Path) -> None:
    assert main(["run", str(examples / "power.sql")]) == DONE
    power = examples / "data/power"
    wanted = rows_of(
        f"SELECT r.id, s.id FROM r, s WHERE v1 > v2 AND i1 < i2 AND {close('r.t', 's.t', 1)}",
        r=f"{power}/r/*",
        s=f"{power}/s/*",
    )
    assert written(examples / "out/power", "R_id, S_id") == wanted
    assert wanted


def test_fares(spark: SparkSession, examples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(examples / "fares.sql"), "--json"]) == DONE
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    wanted = rows_of(
        f"SELECT count(*) FROM a, a b WHERE a.fare > b.fare AND {close('a.t', 'b.t', 60)}",
        a=f"{examples}/data/fares/trips/*",
    )
    assert {(repr(sum(line["results"] for line in lines)),)} == set(wanted)


def test_meetings(spark: SparkSession, examples: Path) -> None:
    assert main(["run", str(examples / "meetings.sql")]) == DONE
    gps = examples / "data/gps"
    wanted = rows_of(
        "SELECT r.vehicle, s.vehicle, t.vehicle FROM r, s, t WHERE abs(r.x - s.x) <= 100"
        " AND abs(s.y - t.y) <= 100 AND abs(t.x - r.x) <= 100 AND"
        f" {close('r.t', 's.t', 20)} AND {close('s.t', 't.t', 20)} AND {close('r.t', 't.t', 20)}",
        **{name: f"{gps}/{name}/*" for name in "rst"},
    )
    assert written(examples / "out/meetings", "first, second, third") == wanted
    assert wanted


def test_pairs(spark: SparkSession, examples: Path) -> None:
    assert main(["run", str(examples / "pairs.toml")]) == DONE
    zipf = examples / "data/zipf"
    wanted = rows_of(
        "SELECT a, b FROM (SELECT DISTINCT r.k AS a, s.k AS b,"
        " greatest(epoch_us(r.t), epoch_us(s.t)) // 10000000 AS slice FROM r, s"
        f" WHERE abs(r.k - s.k) <= 1 AND r.v < 1000 AND {close('r.t', 's.t', 10)})",
        r=f"{zipf}/r/*",
        s=f"{zipf}/s/*",
    )
    assert written(examples / "out/pairs", "left_key, right_key") == wanted
    assert wanted


JOB = """
checkpoint = "checkpoint"
trigger = "available now"
query = "SELECT r.id AS a, s.id AS b FROM r, s WHERE abs(r.k - s.k) <= 2"
options.full_history = true
[streams.r]
format = "parquet"
path = "data/r"
options.maxFilesPerTrigger = 1
[streams.s]
format = "parquet"
path = "data/s"
options.maxFilesPerTrigger = 1
[sink]
format = "{sink}"
path = "out"
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    arguments = ["--rows", "200", "--files", "4"]
    assert main(["generate", "zipf", str(tmp_path / "data"), *arguments]) == DONE
    file = tmp_path / "job.toml"
    file.write_text(JOB.format(sink="parquet"))
    return file


def expected(folder: Path) -> Counter[Any]:
    return rows_of(
        "SELECT r.id, s.id FROM r, s WHERE abs(r.k - s.k) <= 2",
        r=f"{folder}/data/r/*.parquet",
        s=f"{folder}/data/s/*.parquet",
    )


def test_a_damaged_source_loses_nothing(
    spark: SparkSession, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    third = sorted((job.parent / "data/r").glob("*.parquet"))[2]
    good = third.read_bytes()
    schema = "id bigint, k bigint, v bigint, t timestamp"
    job.write_text(
        job.read_text().replace('path = "data/r"', f'path = "data/r"\nschema = "{schema}"')
    )
    third.write_bytes(b"not a parquet file")
    assert main(["run", str(job)]) == FAILED
    message = capsys.readouterr().err
    assert "the query failed" in message
    assert "run the job again" in message
    third.write_bytes(good)
    assert main(["run", str(job)]) == DONE
    assert written(job.parent / "out", "a, b") == expected(job.parent)


class Fragile(DataSource):
    """A sink that fails at its second commit while a file says so."""

    @classmethod
    def name(cls) -> str:
        return "fragile"

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        return FragileWriter(self.options["path"])


class FragileWriter(DataSourceStreamWriter):
    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        message = WriterCommitMessage()
        message.rows = [tuple(row) for row in iterator]  # type: ignore[attr-defined]
        return message

    def commit(self, messages: list[Any], batchId: int) -> None:
        folder = Path(self.path)
        folder.mkdir(parents=True, exist_ok=True)
        if batchId == 1 and (folder.parent / "fail").exists():
            raise OSError("the disk is full")
        rows = [row for message in messages for row in message.rows]
        (folder / f"{batchId}.json").write_text(json.dumps(rows))


def test_a_sink_that_fails_is_written_again(
    spark: SparkSession, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.dataSource.register(Fragile)
    job.write_text(JOB.format(sink="fragile"))
    (job.parent / "fail").touch()
    assert main(["run", str(job)]) == FAILED
    assert "the disk is full" in capsys.readouterr().err
    (job.parent / "fail").unlink()
    assert main(["run", str(job)]) == DONE
    rows: list[Any] = []
    for file in (job.parent / "out").glob("*.json"):
        rows += json.loads(file.read_text())
    assert Counter(tuple(repr(v) for v in row) for row in rows) == expected(job.parent)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("SELECT r.id", "SELECT r.idd"), "did you mean 'id'"),
        (("abs(r.k - s.k) <= 2", "r.k = s.nothing"), "no column 'nothing'"),
        (("SELECT r.id AS a", "SELECT abs(r.t) AS a"), "Spark does not accept this query"),
        (("[streams.r]", "options.update_batches = 2\n[streams.r]"), "would hold back"),
        (("SELECT r.id AS a, s.id AS b", "SELECT count(*) AS n"), 'output_mode = "update"'),
        (('format = "parquet"\npath = "out"', 'format = "nothing"\npath = "out"'), "nothing"),
        (('format = "parquet"\npath = "out"', 'format = "parket"\npath = "out"'), "'parquet'?"),
        (("SELECT r.id AS a, s.id AS b", "SELECT count(*) AS n"), "GROUP BY window(time"),
        (('"checkpoint"', '"c"\noutput_mode = "update"'), "files can only be appended to"),
        (('"checkpoint"', '"c"\noutput_mode = "complete"'), "aggregation"),
        (("WHERE abs(r.k - s.k) <= 2", "WHERE abs(r.k - s.k) <= 2 WITHIN 1 minute"), "delay"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_before_it_does(
    spark: SparkSession,
    job: Path,
    capsys: pytest.CaptureFixture[str],
    change: tuple[str, str],
    words: str,
) -> None:
    text = job.read_text()
    assert change[0] in text
    job.write_text(text.replace(*change))
    assert main(["check", str(job)]) == WRONG
    assert words in capsys.readouterr().err
    assert main(["run", str(job)]) == WRONG
    assert words in capsys.readouterr().err
    assert not (job.parent / "out").exists()


def test_rows_that_are_late_are_told_at_the_end(
    spark: SparkSession, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = job.read_text().replace('<= 2"', '<= 2 WITHIN 1 second"')
    job.write_text(f'delay = "0 seconds"\n{text}')
    files = {side: sorted((job.parent / "data" / side).iterdir()) for side in "rs"}
    # The newest rows come first.
    for side in "rs":
        os.utime(files[side][-1], (1, 1))
    assert main(["run", str(job)]) == DONE
    newest = [duckdb.sql(f"SELECT max(t) FROM '{files[side][-1]}'") for side in "rs"]
    watermark = min(row.fetchall()[0][0] for row in newest)
    watermark -= timedelta(microseconds=watermark.microsecond % 1000)
    late = sum(
        duckdb.sql(f"SELECT count(*) FROM '{file}' WHERE t < '{watermark}'").fetchall()[0][0]
        for side in "rs"
        for file in files[side][:-1]
    )
    assert late > 100
    said = capsys.readouterr().out
    assert f"{late:,} of 1,600 rows came after the watermark" in said
    assert "stored rows can still match later rows" in said


LIVE = """
[control]
path = "control"
max_units = 2
[control.scaling]
capacity = "1 B"
patience = 1
every = 0
[options]
units = 1
"""


def test_a_job_that_is_scaled_while_it_runs(
    spark: SparkSession, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = job.read_text().replace("options.full_history = true\n", "")
    job.write_text(f"{text}{LIVE}full_history = true\n")
    control = job.parent / "control"
    assert main(["check", str(job)]) == DONE
    assert not control.exists()
    assert main(["explain", str(job)]) == DONE
    assert "routing tables" in capsys.readouterr().out
    assert main(["run", str(job), "--json"]) == DONE
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert [(one["stream"], one["rows_in"]) for one in first["streams"]] == [("r", 200), ("s", 200)]
    assert written(job.parent / "out", "a, b") == expected(job.parent)
    # One unit is more than full with any row at all: there was a decision.
    assert main(["control", str(control), "history", "--json"]) == DONE
    changes = json.loads(capsys.readouterr().out)["changes"]
    assert [change["by"] for change in changes[:2]] == ["join", "two-phase scaling"]
    assert changes[1]["what"].startswith("scale to 2 units")
    # The directory is this query's: another one must not use it.
    job.write_text(job.read_text().replace("<= 2", "<= 3").replace('"checkpoint"', '"new"'))
    for command in ("check", "run"):
        assert main([command, str(job)]) == OTHER_QUERY
        assert "belongs to another query" in capsys.readouterr().err


def test_a_full_history_is_told_without_a_line_of_python(
    spark: SparkSession, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.write_text(job.read_text().replace("options.full_history = true\n", ""))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["check", str(job)]) == DONE
    said = capsys.readouterr().err
    assert said.startswith("warning: every row of r and s is kept for ever")
    assert "full_history = true in the job's [options]" in said


@pytest.mark.slow
def test_ctrl_c_stops_after_a_whole_batch(spark: SparkSession, tmp_path: Path) -> None:
    """The command as a process: stopped in the middle, run again; nothing is lost or doubled."""
    file = tmp_path / "job.toml"
    text = JOB.format(sink="parquet").replace("available now", "continuous")
    # The time zone of the tests' own session, which runs the job again: keys depend on it.
    zone = 'spark.sql.session.timeZone = "UTC"\n'
    java = f'spark.driver.extraJavaOptions = "{SHORT_LIVED}"\n'
    file.write_text(text + f"[spark]\ncores = 2\nspark.ui.enabled = false\n{zone}{java}")
    paced = ["--rows", "200", "--files", "4"]
    assert main(["generate", "zipf", str(tmp_path / "data"), *paced]) == DONE
    command = [sys.executable, "-m", "thetastream", "run", str(file), "--json"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert running.stdout is not None
    first = json.loads(running.stdout.readline())
    assert first["batch"] == 0
    assert first["rows_in"] == 400
    running.send_signal(signal.SIGINT)
    out, errors = running.communicate(timeout=120)
    assert running.returncode == 0, errors
    assert "stopped after a complete batch" in errors
    for line in out.splitlines():
        json.loads(line)
    file.write_text(file.read_text().replace("continuous", "available now"))
    assert main(["run", str(file)]) == DONE
    assert written(tmp_path / "out", "a, b") == expected(tmp_path)
    assert pq.read_table(committed_files(tmp_path / "out")[0]).num_columns == 2
