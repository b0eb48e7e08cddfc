"""The loop beside a query: hears what units report, and publishes the next version of the tables.

All effects of live routing on the driver are in this file. What is to be done is decided by pure
functions: `steps.advance` for a change that is under way, `targets.start` for what was asked for by
hand, and policies.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from thetastream.engine.protocol import KeyNews
from thetastream.errors import ControlError, ThetastreamError
from thetastream.spec.codec import read
from thetastream.steering.asking import Asked, ask, check_together, heats
from thetastream.steering.directory import Answer, ControlledJoin, Directory, Request
from thetastream.steering.edits import Edit, Heat, edit_to_json
from thetastream.steering.frequent import frequent_keys, gain, split_keys
from thetastream.steering.heat import OPEN_STEPS, check_stream, check_wish, is_due, next_keys
from thetastream.steering.policy import Moment, Policy, Verdict, holdings_of, load_of
from thetastream.steering.steps import Heard, advance, confirmed, leaving_units
from thetastream.steering.table_log import OvertakenError
from thetastream.steering.targets import start
from thetastream.steering.version import Note, Version
from thetastream.topology.hot import HotStep
from thetastream.topology.live import Step, Transfer

SAMPLES = 240
"""Batches whose loads are kept for the plots of a status."""
SAMPLED = ("stage", "unit", "busy", "stored_rows", "stored_bytes")
"""What a sample says of each unit."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A batch that is committed."""

    query: str
    """Spark's name of the query."""
    batch: int
    at: float
    rows_in: int
    seconds: float
    reports: tuple[tuple[int, dict[str, Any]], ...]
    """The number of a join, and the report of one of its units; Spark may have lost some."""


class Loop:
    """Publishes for one control directory."""

    def __init__(
        self,
        directory: Directory,
        join: ControlledJoin,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.directory = directory
        self.control = join.control
        self.tables = directory.tables(join.control)
        self._join = join
        self._tree = join.tree
        self._clock = clock
        self._lock = threading.Lock()
        self._asked: list[Asked] = []
        self._published: Version | None = None
        self._samples: deque[dict[str, Any]] = deque(maxlen=SAMPLES)
        self._confirmed = -1
        self._ended: float | None = None
        self._units: list[tuple[int, ...]] = []
        """The units of each store before the change that is under way."""
        self._untidy = True
        """Whether there may be exported tuples that nobody needs."""
        self.problem = ""
        """Why nothing was published last, if something was in the way."""

    # -- policies ---------------------------------------------------------------------------------

    def add(self, policies: Iterable[Policy]) -> None:
        """Ask these policies as well, from now on."""
        added = list(policies)
        with self._lock:
            check_together([*(one.policy for one in self._asked), *added])
            self._asked += [Asked(policy) for policy in added]

    def use_own(self, policy: Policy | None) -> None:
        """Ask a policy that belongs to the join itself, in the place of an earlier one."""
        with self._lock:
            self._asked = [one for one in self._asked if not one.own]
            if policy is not None:
                self._asked.append(Asked(policy, own=True))

    def remove(self, policies: Iterable[Policy]) -> None:
        """Ask these policies no more."""
        gone = {id(policy) for policy in policies}
        with self._lock:
            self._asked = [one for one in self._asked if id(one.policy) not in gone]

    def decisions(self, policy: Policy) -> list[Verdict]:
        """What a policy has decided, oldest first."""
        with self._lock:
            for one in self._asked:
                if one.policy is policy:
                    return list(one.log)
        return []

    # -- events -----------------------------------------------------------------------------------

    def committed(self, progress: Progress) -> None:
        """A batch is committed."""
        with self._lock, self._noting_problems():
            self._committed(progress)

    def idle(self) -> None:
        """Nothing has happened for a while; what was asked for can still be answered."""
        with self._lock, self._noting_problems():
            version = self._version()
            if version.step is Step.SETTLED and self._confirmed >= version.version:
                self._start_next(version)

    def recover(self) -> ControlError | None:
        """Put a sound version in the place of a damaged one; return why that one is refused."""
        with self._lock:
            try:
                return self.tables.recover(self._tree, self._clock())
            except OvertakenError:
                # Another process has done so.
                return None

    def stop(self) -> None:
        """Forget the query, which has ended: the next one may be another process's."""
        with self._lock:
            self._confirmed, self._published, self._ended = -1, None, None
            self._samples.clear()

    def _noting_problems(self) -> _Noting:
        return _Noting(self)

    def _committed(self, progress: Progress) -> None:
        interval = progress.seconds
        if self._ended is not None:
            interval = max(progress.at - self._ended, progress.seconds)
        self._ended = progress.at
        if not progress.reports:
            return
        if not self._samples:
            self._samples.extend(self._earlier_samples())
        self.directory.claim_for(progress.query, self.control)
        version = self._version()
        heard = [_heard(join, report) for join, report in progress.reports]
        if confirmed(version, heard):
            self._confirmed = version.version
            self._tidy(version)
        following = advance(version, heard, self._tree, self._clock())
        if following is not None:
            self._publish(following)
        elif version.step is Step.SETTLED and self._confirmed >= version.version:
            moment = self._moment(version, progress, interval)
            decided = ask(self._asked, moment, heating=False)
            if not self._start_next(version) and decided is not None:
                self._start_decided(version, *decided)
        if self._published is version:
            self._step_keys(version, progress, interval, heard)
        self._tell(progress, interval, heard)

    def _version(self) -> Version:
        """The version in use."""
        newest = self.tables.newest()
        if self._published is None or self._published.version != newest:
            # At the start, or after another process has published.
            self._published = self.tables.checked(newest, self._tree)
        return self._published

    def _earlier_samples(self) -> list[dict[str, Any]]:
        """Return the samples that a process before this one has written."""
        try:
            samples = self.directory.status().get("samples", [])
            return [sample for sample in samples if isinstance(sample, dict)][-SAMPLES:]
        except ControlError:
            self.directory.put_aside("status.json")
            return []

    # -- changes ----------------------------------------------------------------------------------

    def _publish(self, version: Version) -> None:
        version.validate(self._tree, f"version {version.version}")
        self.tables.publish(version)
        if version.step is Step.ANNOUNCE:
            self._units = self._held(version)
        self._published = version
        for one in self._asked:
            one.heard = {}
        if version.step is Step.SETTLED:
            self._untidy = True
            self.directory.clear_answers()
            if version.note.request:
                self.directory.answer(
                    Answer(request=version.note.request, state="done", change=version.note.change)
                )
            units = self._held(version)
            for one in self._asked:
                # Groups that others have moved between the same units are no reason to start anew.
                if units != self._units or version.note.by == one.policy.name:
                    one.since_change = []

    def _held(self, version: Version) -> list[tuple[int, ...]]:
        """The units that hold tuples, for each store."""
        return [one.units for one in holdings_of(version, self._tree)]

    def _start_next(self, version: Version) -> bool:
        """Begin with the oldest request that can be met; whether there was one."""
        for request in list(self.directory.requests()):
            if isinstance(request, Answer):
                self.directory.answer(request)
            elif isinstance(request.edit, Heat):
                # Hot keys have steps of their own.
                continue
            elif self._answered(version, request):
                return True
        return False

    def _answered(self, version: Version, request: Request) -> bool:
        """Answer a request; whether it changes anything.

        Only what the request itself asks for is refused: if publishing fails, it is tried again.
        """
        try:
            following = self._following(
                version, request.edit, by=request.by, why=request.why, request=request.id
            )
        except ControlError as error:
            refusal = Answer(request=request.id, state="refused", what=error.what, hint=error.hint)
            self.directory.answer(refusal)
            return False
        if following is None:
            self.directory.answer(Answer(request=request.id, state="nothing"))
            return False
        self._publish(following)
        change = following.note.change
        self.directory.answer(Answer(request=request.id, state="started", change=change))
        return True

    def _following(
        self, version: Version, edit: Edit, *, by: str, why: str, request: str = ""
    ) -> Version | None:
        """Return the first version of a change; None if everything is so already."""
        note = Note(
            change=version.note.change + 1,
            by=by,
            why=why,
            request=request,
            what=edit_to_json(edit),
        )
        allowed = replace(version, max_units=self.directory.max_units(self._join))
        following = start(allowed, edit, self._tree, note, self._clock())
        if following is None:
            return None
        following = replace(following, previous=version.digest).lived()
        following.validate(self._tree, f"version {following.version}")
        return following

    def _start_decided(self, version: Version, asked: Asked, verdict: Verdict) -> None:
        """Begin with what a policy wants, if that is possible."""
        if verdict.edit is None:
            return
        asked.served = verdict.at
        try:
            if isinstance(verdict.edit, Heat):
                raise ControlError(
                    "the policy asks for hot keys", hint="let it have an attribute heats = True"
                )
            following = self._following(
                version, verdict.edit, by=asked.policy.name, why=verdict.why
            )
        except ControlError as error:
            why = f"refused: {error.what}" + (f"; {error.hint}" if error.hint else "")
            asked.log.append(Verdict(why=why, at=verdict.at))
            return
        if following is not None:
            self._publish(following)

    # -- hot keys ---------------------------------------------------------------------------------

    def _step_keys(
        self, version: Version, progress: Progress, interval: float, heard: Sequence[Heard]
    ) -> None:
        """Let keys become hot or cool, and go on with those that do."""
        if version.step not in OPEN_STEPS or not confirmed(version, heard):
            return
        found, answers = self._wishes_by_hand(version)
        wish = self._wish(version, progress, interval, found)
        following = next_keys(version, heard, wish, self._tree, self._clock())
        if following is not None:
            following.validate(self._tree, f"version {following.version}")
            self.tables.publish(following)
            self._published = following
            self._untidy = True
        # Last: a wish that is met twice changes nothing, and one that is lost would.
        for answer in answers:
            self.directory.answer(answer)

    def _wishes_by_hand(self, version: Version) -> tuple[list[Heat], list[Answer]]:
        """What was asked for by hand, and the answers to what can begin now.

        Of several requests for one key, a later one waits for those before it.
        """
        found, answers = list[Heat](), list[Answer]()
        named = set[tuple[int, int]]()
        for request in list(self.directory.requests()):
            if isinstance(request, Answer) or not isinstance(request.edit, Heat):
                continue
            keys = {(one.join, one.key) for one in request.edit.keys} | set(request.edit.cool)
            if not named.isdisjoint(keys):
                continue
            answer = Answer(request=request.id, state="done", change=version.note.change)
            try:
                check_wish(version, request.edit, self._tree)
                check_stream(version, request.edit)
                found.append(request.edit)
                named |= keys
                if not is_due(version, request.edit, self._tree):
                    continue
            except ControlError as error:
                answer = replace(answer, state="refused", what=error.what, hint=error.hint)
            answers.append(answer)
        return found, answers

    def _wish(
        self, version: Version, progress: Progress, interval: float, by_hand: Sequence[Heat]
    ) -> Heat | None:
        """What was asked for by hand, and what policies want."""
        found = list(by_hand)
        if any(heats(one.policy) for one in self._asked):
            decided = ask(self._asked, self._moment(version, progress, interval), heating=True)
            if decided is not None:
                asked, verdict = decided
                asked.served = verdict.at
                try:
                    if not isinstance(verdict.edit, Heat):
                        raise ControlError("a policy with heats = True asks for hot keys only")
                    check_wish(version, verdict.edit, self._tree)
                    found.append(verdict.edit)
                except ControlError as error:
                    asked.log.append(Verdict(why=f"refused: {error.what}", at=verdict.at))
        if not found:
            return None
        keys = {(one.join, one.key): one for wish in found for one in wish.keys}
        cool = tuple(dict.fromkeys(pair for wish in found for pair in wish.cool))
        return Heat(keys=tuple(keys.values()), cool=cool)

    def _tidy(self, version: Version) -> None:
        """Remove exported tuples, once every unit has those that it needs."""
        under_way = any(
            one.step in (HotStep.COPY, HotStep.TAKE) for table in version.joins for one in table.hot
        )
        if self._untidy and version.step is Step.SETTLED and not under_way:
            self.directory.clear_exports(version.version)
            self._untidy = False

    def _moment(self, version: Version, progress: Progress, interval: float) -> Moment:
        return Moment(
            at=progress.at,
            batch=progress.batch,
            interval=interval,
            loads=tuple(load_of(join, report) for join, report in progress.reports),
            holdings=holdings_of(version, self._tree),
            max_units=self.directory.max_units(self._join),
            frequent=frequent_keys(version, progress.reports),
            split=split_keys(version),
        )

    # -- for people -------------------------------------------------------------------------------

    def tell_problem(self) -> None:
        """Let the status say what is in the way."""
        with suppress(ThetastreamError, OSError):
            self.directory.set_status(self.directory.status() | {"problem": self.problem})

    def _tell(self, progress: Progress, interval: float, heard: Sequence[Heard]) -> None:
        version = self._published
        if version is None:
            return
        leaving = leaving_units(version, self._tree)
        sample = {
            "batch": progress.batch,
            "at": progress.at,
            "rows_in": progress.rows_in,
            "seconds": progress.seconds,
            "version": version.version,
            "units": [
                [join, *(round(report[name], 4) for name in SAMPLED)]
                for join, report in progress.reports
            ],
        }
        self._samples.append(sample)
        self.directory.set_status(
            {
                "batch": progress.batch,
                "at": progress.at,
                "interval": interval,
                "confirmed": self._confirmed,
                "draining": [
                    [one.join, one.stage, one.unit, one.draining, one.to_export]
                    for one in heard
                    if (one.join, one.stage, one.unit) in leaving
                ],
                "hot": gain(progress.reports),
                "problem": "",
                "samples": list(self._samples),
            }
        )


class _Noting:
    """Keeps a problem for the status: the query itself goes on."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None:
            self._loop.problem = ""
            return False
        if not isinstance(error, Exception):
            return False
        if isinstance(error, OvertakenError):
            # Not a problem: the next batch goes on from what the other process has published.
            return True
        said = (
            error.what
            if isinstance(error, ThetastreamError)
            else f"{type(error).__name__}: {error}"
        )
        if said != self._loop.problem:
            self._loop.problem = said
            self._loop.tell_problem()
        return True


def _heard(join: int, report: dict[str, Any]) -> Heard:
    return Heard(
        join=join,
        stage=int(report["stage"]),
        unit=int(report["unit"]),
        version=int(report["version"]),
        draining=int(report["draining"]),
        to_export=int(report["to_export"]),
        pending=bool(report["pending"]),
        transfers=tuple(read(Transfer, one) for one in report["transfers"]),
        hot=tuple(read(KeyNews, one) for one in report.get("hot", ())),
    )


def reports_of(texts: Iterable[str]) -> dict[str, tuple[tuple[int, dict[str, Any]], ...]]:
    """The reports of a batch by the control directories of their joins, each once: a stage that
    Spark ran again reports again."""
    found: dict[str, dict[tuple[int, int, int], dict[str, Any]]] = {}
    for text in texts:
        report = json.loads(text)
        if report.get("control"):
            place = report["join"], report["stage"], report["unit"]
            found.setdefault(report["control"], {})[place] = report
    return {
        control: tuple((place[0], report) for place, report in sorted(some.items()))
        for control, some in found.items()
    }
