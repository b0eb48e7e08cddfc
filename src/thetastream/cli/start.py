"""From a job to a running query: sources, the plan, the sink, the checkpoint's owner."""

from __future__ import annotations

import glob
import json
import os
import re
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import thetastream as ts
from thetastream.cli.job import FILE_FORMATS, Job, SiteSource, Source, local_path
from thetastream.engine.manifest import compare
from thetastream.errors import JobError, ThetastreamError, TriggerSizeError
from thetastream.planner import AGGREGATION, TIME_WINDOW, Plan, parse_duration, suggestion
from thetastream.steering.directory import Directory
from thetastream.steering.files import full_path

KNOWN_SINKS = FILE_FORMATS | {"console", "kafka", "memory", "noop"}
OWNER = "thetastream-job.json"
"""The file in a checkpoint that says which query it belongs to."""


def check_paths(job: Job) -> None:
    """Refuse sources that do not exist, before Spark is started."""
    for source in job.streams.values():
        path = None if source.path is None else local_path(source.path)
        if source.format in FILE_FORMATS and path is not None and not glob.glob(str(path)):
            raise JobError(
                f"{job.file}: the source of stream {source.name!r} does not exist: {path}",
                hint="create the folder, or correct the path, which is relative to the job's file",
            )


def session(job: Job) -> SparkSession:
    """A session with the job's settings."""
    return ts.session(app=job.name, cores=job.cores, memory=job.memory, config=dict(job.spark))


class Prepared:
    """A job whose streams Spark knows and whose query is planned."""

    def __init__(self, spark: SparkSession, job: Job) -> None:
        self.job = job
        self._spark = spark
        frames = {name: self._read(source) for name, source in job.streams.items()}
        self._streams = ts.Streams(frames, origin=str(job.file))
        self._time: dict[str, Any] = {
            name: ts.ARRIVAL if source.time == "arrival" else source.time
            for name, source in job.streams.items()
            if source.time is not None
        }
        self.plan: Plan = self._streams.explain(
            job.query, delay=job.delay, time=self._time or None, options=job.join
        )

    def _read(self, source: Source) -> DataFrame | ts.RemoteStream:
        if source.site is not None:
            return self._remote(source.site)
        reader = self._spark.readStream.format(source.format).options(**source.options)
        where = f"{self.job.file}: stream {source.name!r}"
        try:
            schema = source.schema
            if schema is None and source.format in FILE_FORMATS:
                static = self._spark.read.format(source.format).options(**source.options)
                reader = reader.schema(static.load(source.path).schema)
            elif schema is not None:
                reader = reader.schema(schema)
            return reader.load(source.path) if source.path is not None else reader.load()
        except Exception as error:
            # Spark refuses a source in several ways, some of them Java's own.
            raise JobError(
                f"{where} cannot be read as {source.format}: {first_line(error)}",
                hint="check format, schema and options; a folder without files needs a schema",
            ) from None

    def _remote(self, source: SiteSource) -> ts.RemoteStream:
        site = ts.site(
            source.address,
            token_file=source.token_file,
            tls_root=source.tls_root,
            tls_cert=source.tls_cert,
            tls_key=source.tls_key,
        )
        return site.stream(source.stream, max_rows=source.max_rows)

    def result(self, *, live: bool = True) -> DataFrame:
        """The query's result, not started; unless it is `live`, without its control directory."""
        options = self.job.join
        if not live:
            options = replace(options, control=None, max_units=None)
        return self._streams.sql(
            self.job.query, delay=self.job.delay, time=self._time or None, options=options
        )

    def check_control(self) -> None:
        """Refuse a control directory of another query; one that does not exist is not made."""
        if self.job.join.control is None:
            return
        Directory(full_path(self.job.join.control)).check(self.plan.tree)

    def manage(self, query: StreamingQuery) -> ts.Manager | None:
        """Let the job's policies change the query's routing, if it has any."""
        if not self.job.policies or self.job.join.control is None:
            return None
        try:
            return ts.manage(query, self.job.join.control, self.job.policies)
        except ThetastreamError:
            query.stop()
            raise

    @property
    def writes_windows(self) -> bool:
        """Whether its rows are windows of time, each written when it is over."""
        subjects = {decision.subject for decision in self.plan.decisions}
        return TIME_WINDOW in subjects and self.job.output_mode == "append"

    def check_sink(self) -> None:
        """Refuse an output mode that does not fit the query."""
        mode = self.job.output_mode
        subjects = {decision.subject for decision in self.plan.decisions}
        grouped, windowed = AGGREGATION in subjects, TIME_WINDOW in subjects
        files = self.job.sink.format in FILE_FORMATS
        self._check_format()
        if self.job.join.update_batches > 1 and self.job.trigger == "available now":
            raise JobError(
                f"{self.job.file}: update_batches would hold back the results of the last batches",
                hint='leave update_batches out, or use a trigger other than "available now"',
            )
        if grouped and mode == "append" and not windowed:
            raise JobError(
                f"{self.job.file}: an aggregate over all results so far has no final rows",
                hint="use GROUP BY window(time, ...), whose rows become final as the watermark"
                f" passes; or {'choose a sink that is not files, with' if files else 'add'}"
                ' output_mode = "update" or "complete"',
            )
        if not grouped and mode == "complete":
            raise JobError(
                f"{self.job.file}: output_mode = 'complete' needs an aggregation",
                hint='leave it out, or write output_mode = "append"',
            )
        if files and mode != "append":
            raise JobError(
                f"{self.job.file}: output_mode = {mode!r} needs a sink that replaces rows, and"
                f" {self.job.sink.format} files can only be appended to",
                hint="leave output_mode out and use GROUP BY window(time, ...), or choose another"
                " sink",
            )

    def _check_format(self) -> None:
        """Refuse a sink of a format that Spark does not know."""
        wanted = self.job.sink.format
        if wanted in KNOWN_SINKS:
            return
        try:
            # Spark looks the format up before anything else; what else it says is about reading.
            self._spark.read.format(wanted).load(self.job.sink.path)
        except Exception as error:
            if "[DATA_SOURCE_NOT_FOUND]" not in str(error):
                return
            raise JobError(
                f"{self.job.file}: Spark knows no format {wanted!r} for the sink",
                hint=suggestion(
                    wanted,
                    sorted(KNOWN_SINKS),
                    "name the package of the sink in [spark] spark.jars.packages; Spark itself has",
                ),
            ) from None

    def check_checkpoint(self) -> None:
        """Refuse a checkpoint that another query wrote."""
        folder = local_path(self.job.checkpoint)
        owner = None if folder is None else folder / OWNER
        if owner is None or not owner.exists():
            return
        try:
            stored: dict[str, str] = json.loads(owner.read_text())["fingerprint"]
        except (OSError, ValueError, KeyError) as error:
            raise JobError(
                f"{owner} cannot be read: {error}", hint="restore it, or use another checkpoint"
            ) from None
        compare(stored, self.plan.tree.fingerprint(), "the checkpoint belongs to another query")

    def claim_checkpoint(self) -> None:
        """Record which query the checkpoint belongs to."""
        folder = local_path(self.job.checkpoint)
        if folder is None or (folder / OWNER).exists():
            return
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = folder / f".{OWNER}"
        temporary.write_text(
            json.dumps({"query": self.job.query, "fingerprint": self.plan.tree.fingerprint()})
        )
        temporary.chmod(0o600)
        os.replace(temporary, folder / OWNER)

    def start(self) -> StreamingQuery:
        """The query, running."""
        job = self.job
        try:
            writer = (
                self.result()
                .writeStream.format(job.sink.format)
                .outputMode(job.output_mode)
                .queryName(job.name)
                .options(**job.sink.options)
                .option("checkpointLocation", job.checkpoint)
            )
            if job.sink.partition_by:
                writer = writer.partitionBy(*job.sink.partition_by)
            if job.trigger == "available now":
                writer = writer.trigger(availableNow=True)
            else:
                length = (
                    0 if job.trigger == "continuous" else parse_duration(job.trigger, "trigger")
                )
                writer = writer.trigger(processingTime=f"{length // 1000} milliseconds")
            fresh = self._is_fresh()
            query = writer.start(job.sink.path) if job.sink.path is not None else writer.start()
        except ThetastreamError:
            raise
        except Exception as error:
            # Spark refuses a sink in several ways, some of them Java's own.
            raise JobError(
                f"{job.file}: Spark cannot start the query: {first_line(error)}",
                hint="check the sink's format, its options and output_mode",
            ) from None
        if fresh:
            self.claim_checkpoint()
        return query

    def _is_fresh(self) -> bool:
        """Whether no query has committed anything to the checkpoint yet."""
        folder = local_path(self.job.checkpoint)
        return folder is not None and not any(folder.glob("commits/[0-9]*"))


def first_line(error: BaseException | str) -> str:
    """What an error of Spark's says, without its stack."""
    text = str(error).strip() or type(error).__name__
    named = re.search(r"\[[A-Z][A-Z_.0-9]+\] [^\n]*", text)
    return named[0] if named else text.splitlines()[0]


def cause(text: str) -> str:
    """The innermost cause in a stack of Spark's: Python's, if there is one."""
    own = re.findall(r"^\s*((?:\w+\.)*\w*(?:Error|Exception|Interrupt): .+)$", text, re.MULTILINE)
    python = [line for line in own if not line.startswith(("org.", "java.", "py4j."))]
    java = re.findall(r"^Caused by: (.+)$", text, re.MULTILINE)
    found = python or java or own
    return str(found[-1]).strip() if found else ""


def own_error(text: str) -> tuple[str, str] | None:
    """Kind and message of this library's error inside a stack of Spark's."""
    if "OversizedAllocationException" in text:
        error = TriggerSizeError(
            "Spark cannot send this trigger's rows to Python: a column of one Arrow batch is too"
            " large",
            hint="add spark.sql.execution.arrow.maxBytesPerBatch = 268435456 to [spark] and start"
            " the job again",
        )
        return type(error).__name__, str(error)
    found = re.search(r"thetastream\.errors\.(\w+): (.*?)(?=\n\s*\n|\n\tat |\Z)", text, re.DOTALL)
    return (found[1], found[2].strip()) if found else None
