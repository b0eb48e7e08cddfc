"""A site without its network: the logs of its streams, what fills them, and how it is doing."""

from __future__ import annotations

import base64
import fcntl
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from thetastream.errors import SiteChangedError, SiteError, SiteRequestError
from thetastream.transport.config import SiteConfig, StreamConfig
from thetastream.transport.disk import make_folder
from thetastream.transport.log import TOPIC, WRITER, Clock, Log, LogOptions, brief, monotonic, now
from thetastream.transport.messages import checked, stream_schema
from thetastream.transport.sources import FolderSource, check_time
from thetastream.transport.topics import TopicSource
from thetastream.version import VERSION

INTERVAL = 0.5
"""Seconds between two looks at folders, topics and what is to be forgotten."""
_SHARES = 10
"""Files over which a stream's retention is spread, at least: they are forgotten whole."""
_SMALLEST = 1024**2
"""Bytes below which entries are not sealed for their size."""


class Source(Protocol):
    """What fills a stream's log."""

    kind: str
    refused: dict[str, str]
    problem: str

    def poll(self, now: int) -> int:
        """Take in what is new; how many tuples."""

    def close(self) -> None:
        """End it."""


class Site:
    """The streams of one site, open in this process and in no other."""

    def __init__(
        self, config: SiteConfig, *, clock: Clock = now, monotonic: Clock = monotonic
    ) -> None:
        """Opens or creates the site's folder; raises SiteError if it is in use or damaged."""
        self.config = config
        self._clock = clock
        make_folder(config.dir)
        self._lock = _locked(config)
        self.logs: dict[str, Log] = {}
        self._sources: dict[str, Source] = {}
        options = _options(config)
        try:
            for stream in config.streams.values():
                log = Log(config.dir / stream.name, options, clock=clock, monotonic=monotonic)
                self.logs[stream.name] = log
                if log.schema is not None:
                    check_time(log.schema, stream.time)
                source = self._source(stream)
                if source is not None:
                    self._sources[stream.name] = source
        except BaseException:
            self._close_files()
            raise
        self._pushing = threading.Lock()
        self._started = time.time()
        self._problem = ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="site", daemon=True)

    def _source(self, stream: StreamConfig) -> Source | None:
        log, limits = self.logs[stream.name], self.config.limits
        if stream.topic is not None:
            return TopicSource(log, stream.topic, limits)
        if stream.folder is not None:
            return FolderSource(log, stream.folder, stream.time, limits)
        return None

    def start(self) -> None:
        """Begin to take tuples in and to forget."""
        self._thread.start()

    def close(self) -> None:
        """Stop, and let another process open the folder."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self._close_files()

    def _close_files(self) -> None:
        with ExitStack() as stack:
            # One that fails does not keep the others open.
            stack.callback(os.close, self._lock)
            for log in self.logs.values():
                stack.callback(log.close)
            for source in self._sources.values():
                stack.callback(source.close)

    def log(self, stream: str, expected: str | None = None) -> Log:
        """The log of a stream, if it is the one that the caller knows by its id."""
        found = self.logs.get(stream)
        if found is None:
            raise SiteRequestError(
                f"the site has no stream {stream[:80]!r}",
                hint=f"its streams are {', '.join(self.logs)}",
            )
        if expected is not None and expected != found.id:
            raise SiteChangedError(
                f"the stream {stream!r} of this site has been set up anew",
                hint="its tuples have other numbers now: what was read from it before must be"
                " read again",
            )
        return found

    def push(
        self,
        stream: str,
        batch: pa.RecordBatch,
        *,
        crc: int | None,
        writer: str,
        sequence: int,
        data: pa.Buffer | None = None,
    ) -> tuple[int, int]:
        """Check and store a batch; return its first number, and how many tuples.

        `data` is the batch as it came, if `crc` has been compared with it already.
        """
        log = self.log(stream)
        if stream in self._sources:
            raise SiteRequestError(
                f"the stream {stream!r} takes its tuples from a {self._sources[stream].kind}",
                hint="put them there, or give it push = true in the site's file",
            )
        if not batch.num_rows:
            # It would be remembered, and move no clock by which it is forgotten.
            raise SiteRequestError("a push without rows", hint="push when there is a row")
        limits = self.config.limits
        # Two first pushes must not both decide the columns.
        with self._pushing if log.schema is None else nullcontext():
            schema = log.schema
            if schema is None:
                schema = stream_schema(batch.schema)
                check_time(schema, self.config.streams[stream].time)
            batch = checked(batch, schema, crc=None if data is not None else crc, limits=limits)
            source = WRITER + writer if writer else ""
            return log.append(batch, source=source, position=sequence, data=data, crc=crc)

    def status(self) -> dict[str, Any]:
        """How the site is doing, as JSON takes it."""
        return {
            "version": VERSION,
            "seconds": round(time.time() - self._started, 3),
            "retain": self.config.retain,
            "retain_bytes": self.config.retain_bytes,
            "problem": self.problem(),
            "streams": {name: self._stream_status(name) for name in self.logs},
        }

    def problem(self) -> str:
        """What is wrong at the moment; empty if nothing is."""
        if self._problem:
            return self._problem
        problems = [log.problem for log in self.logs.values()]
        problems += [source.problem for source in self._sources.values()]
        return next(filter(None, problems), "")

    def poll(self) -> None:
        """Look at folders and topics once, and forget what is old.

        A stream that fails does not hold up the others; the first error is raised at the end.
        """
        errors: list[Exception] = []
        for name, log in self.logs.items():
            steps: list[Callable[[], object]] = [log.maintain]
            if name in self._sources:
                steps.insert(0, partial(self._sources[name].poll, self._clock()))
            for step in steps:
                try:
                    step()
                except Exception as error:
                    errors.append(error)
        if errors:
            raise errors[0]

    def _stream_status(self, name: str) -> dict[str, Any]:
        log = self.logs[name]
        schema = log.schema
        source = self._sources.get(name)
        return {
            "id": log.id,
            "time": self.config.streams[name].time,
            "source": "push" if source is None else source.kind,
            "positions": log.positions(TOPIC),
            "first": log.first,
            "next": log.next,
            "bytes": log.size(),
            "files": log.files(),
            "columns": {} if schema is None else {one.name: str(one.type) for one in schema},
            "schema": None if schema is None else _base64(schema.serialize()),
            "refused": {} if source is None else dict(source.refused),
        }

    def _work(self) -> None:
        while not self._ending.wait(INTERVAL):
            try:
                self.poll()
                self._problem = ""
            except Exception as error:
                # A full disk, for example: it may have room again. Whatever else it is, nothing
                # would be taken in or forgotten without this thread.
                self._problem = brief(error)


def _options(config: SiteConfig) -> LogOptions:
    retain, size = config.retain, config.retain_bytes
    options = LogOptions(
        retain=retain,
        retain_bytes=size,
        seal_after=None if retain is None else retain // _SHARES,
        message_bytes=config.limits.message_bytes,
        free_bytes=config.free_bytes,
    )
    if size is None:
        return options
    return replace(options, seal_bytes=min(options.seal_bytes, max(_SMALLEST, size // _SHARES)))


def _locked(config: SiteConfig) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(config.dir / "lock", flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise SiteError(
            f"another process serves the site in {config.dir}",
            hint="stop it first, or give this site a dir of its own",
        ) from None
    return descriptor


def _base64(data: pa.Buffer) -> str:
    return base64.b64encode(data).decode("ascii")
