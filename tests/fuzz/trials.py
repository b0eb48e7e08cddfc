"""A join carried out in this process with Spark's expressions, many predicates at a time.

As in the library Spark drops the rows that a filter refuses, derives the keys of the others and
re-checks the candidates; only the jobs are shared by all predicates over the same tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import SparkRuntimeException
from pyspark.sql import SparkSession

from tests.fuzz.oracle import (
    NOT_TRUE,
    RAISED,
    RAISED_BY_DATA,
    TRUE,
    Codes,
    Pairs,
    Setting,
    configured,
    evaluate,
    first_line,
    interpreted,
    raising,
)
from tests.fuzz.tables import ROW, Table, quote
from thetastream.api.analyst import SparkAnalyst
from thetastream.api.columns import column_specs
from thetastream.engine.runner import Runner
from thetastream.errors import OptionError, ThetastreamError
from thetastream.options import JoinOptions
from thetastream.planner import Plan, parse_duration, plan_join
from thetastream.spec import Step, carried_column
from thetastream.spec.codec import from_json, to_json
from thetastream.testing import units_for
from thetastream.topology.makers import make


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How a join is carried out; no choice of it may change a result."""

    topology: str = "auto"
    units: tuple[int, int] | None = None
    chunk_rows: int = 1 << 16
    batches: int = 1
    pieces: int = 1
    restarts: bool = False
    hashes: int | None = None
    """So many different hashes at most."""
    order: int = 0
    """The seed of the order in which rows come."""

    def options(self) -> JoinOptions:
        """As the options of a join; a topology that does not fit is left out later."""
        return JoinOptions(
            topology=self.topology,  # type: ignore[arg-type]
            units="auto" if self.units is None else units_for(self.topology, self.units),
            chunk_rows=self.chunk_rows,
        )


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A predicate and how its join is carried out."""

    predicate: str
    within: tuple[str, str] | None = None
    times: tuple[str, str] | None = None
    """The event-time columns of the two tables."""
    manner: Manner = Manner()

    def to_json(self) -> dict[str, Any]:
        """The trial as JSON takes it."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Trial:
        """The trial that `to_json` wrote."""
        manner = dict(raw["manner"])
        if manner["units"] is not None:
            manner["units"] = tuple(manner["units"])
        pairs = {name: raw[name] and tuple(raw[name]) for name in ("within", "times")}
        return cls(predicate=raw["predicate"], manner=Manner(**manner), **pairs)


@dataclass(frozen=True)
class Verdict:
    """What came of a trial: a kind, and what there is to say of it."""

    kind: str
    detail: str = ""
    share: float = 0.0
    """The part of all pairs that are results."""
    pair: tuple[str, str] | None = None
    """The row numbers of a pair that is wrong."""

    @property
    def failed(self) -> bool:
        """Whether something is wrong."""
        return self.kind in FAILURES


EQUAL = "equal"
REFUSED = "refused by thetastream alone"
BOTH_REFUSE = "refused by both"
BOTH_RAISE = "raised by both"
EARLY = "raised, where Spark's plain evaluation came to an end"
LENIENT = "equal on the pairs for which Spark does not raise"
WRONG = "wrong result"
CRASHED = "raw exception"
ACCEPTED = "accepted what Spark refuses"
OPEN = "a known defect"
UNEXPLAINED = "refused without a documented reason"
FAILURES = frozenset({WRONG, CRASHED, ACCEPTED, UNEXPLAINED})


class Scene:
    """Two tables in a session, and what is known about them already."""

    def __init__(self, spark: SparkSession, tables: tuple[Table, Table], setting: Setting) -> None:
        self.spark = spark
        self.tables = tables
        self.setting = setting
        with self._set():
            self.frames = tuple(table.frame(spark) for table in tables)
            self.pairs = Pairs(tables, self.frames)
            self._named = dict(zip((t.name for t in tables), self.frames, strict=True))
            self._analyst = SparkAnalyst(spark, self._named)
            self._specs = {name: column_specs(name, frame) for name, frame in self._named.items()}
            self._fixed_zone = self._analyst.fixed_zone
            self._carried = [frame.toArrow().sort_by(ROW).combine_chunks() for frame in self.frames]

    def _set(self) -> Any:
        return configured(self.spark, self.setting.config)

    def judge(self, trials: Sequence[Trial]) -> list[Verdict]:
        """What comes of each trial."""
        with self._set(), interpreted(self.spark):
            return self._judge(trials)

    def _judge(self, trials: Sequence[Trial]) -> list[Verdict]:
        verdicts: dict[int, Verdict] = {}
        plans: dict[int, Plan] = {}
        for number, trial in enumerate(trials):
            refusal = self.pairs.refusal(self.condition(trial))
            found = self._planned(trial)
            if isinstance(found, Verdict):
                known = found.kind == REFUSED and refusal is not None
                verdicts[number] = Verdict(BOTH_REFUSE, found.detail) if known else found
            elif refusal is not None:
                verdicts[number] = Verdict(ACCEPTED, f"Spark says: {refusal}")
            else:
                plans[number] = found
        for number, verdict in self._carried_out(trials, plans).items():
            verdicts[number] = verdict
        return [verdicts[number] for number in range(len(trials))]

    def _planned(self, trial: Trial) -> Plan | Verdict:
        options = trial.manner.options()
        try:
            try:
                plan = self._plan(trial, options)
            except OptionError as error:
                if "does not fit" not in error.what:
                    raise
                plan = self._plan(trial, replace(options, topology="auto"))
        except ThetastreamError as error:
            return Verdict(REFUSED, f"{type(error).__name__}: {error.what}")
        except Exception as error:
            return Verdict(CRASHED, f"while planning, {type(error).__name__}: {first_line(error)}")
        return plan

    def _plan(self, trial: Trial, options: JoinOptions) -> Plan:
        names = [table.name for table in self.tables]
        return plan_join(
            streams=self._specs,
            predicate=trial.predicate,
            within=trial.within,
            time=None if trial.times is None else dict(zip(names, trial.times, strict=True)),
            options=options,
            analyst=self._analyst,
            fixed_zone=self._fixed_zone,
        )

    def condition(self, trial: Trial) -> str:
        """Predicate and window as one condition."""
        if trial.within is None or trial.times is None:
            return trial.predicate
        one, two = (
            f"{quote(table.name)}.{quote(name)}"
            for table, name in zip(self.tables, trial.times, strict=True)
        )
        before, after = (parse_duration(length, "within") for length in trial.within)
        # Differences of far times do not fit: what is compared has 38 digits.
        distance = " - ".join(f"CAST(unix_micros({name}) AS DECIMAL(20,0))" for name in (two, one))
        return f"({trial.predicate}) AND {distance} BETWEEN {-before} AND {after}"

    # -- carrying out ---------------------------------------------------------------------------

    def _carried_out(self, trials: Sequence[Trial], plans: dict[int, Plan]) -> dict[int, Verdict]:
        if not plans:
            return {}
        numbers = list(plans)
        truths = dict(
            zip(
                numbers,
                self.pairs.truth([self.condition(trials[n]) for n in numbers]),
                strict=True,
            )
        )
        derived = self._derived(plans)
        candidates: dict[int, Codes] = {}
        ours: dict[int, Codes | Exception] = {}
        for number, plan in plans.items():
            inputs = derived[number]
            if isinstance(inputs, Exception):
                ours[number] = inputs
                continue
            try:
                candidates[number] = self._joined(plan, inputs, trials[number].manner)
            except Exception as error:
                ours[number] = error
        checked = [n for n in candidates if plans[n].spec.recheck_sql is not None]
        rechecks = self.pairs.rechecked(
            self.frames,
            [str(plans[n].spec.recheck_sql) for n in checked],
            [candidates[n] for n in checked],
        )
        ours.update({n: codes for n, codes in candidates.items() if n not in checked})
        ours.update(zip(checked, rechecks, strict=True))
        return {n: compared(truths[n], ours[n], self.tables) for n in numbers}

    def _derived(self, plans: dict[int, Plan]) -> dict[int, Exception | list[pa.RecordBatch]]:
        """The rows of each stream that each plan lets travel, with their keys."""
        wanted: list[dict[str, str]] = [{}, {}]
        for plan in plans.values():
            for side, stream in enumerate(plan.spec.streams):
                for sql in _texts(stream):
                    wanted[side].setdefault(sql, "")
        values: list[dict[str, pa.ChunkedArray | Exception]] = []
        for side, texts in enumerate(wanted):
            # As in the library, where SQL calls a stream by its name.
            frame = self.frames[side].alias(self.tables[side].name)
            flags = dict(zip(texts, raising(frame, list(texts), [ROW]), strict=True))
            calm = [ROW, *(text for text in texts if not flags[text])]
            found = dict(zip(calm, evaluate(frame, calm, keep=1), strict=True))
            raised = {text: SparkRuntimeException("it raises") for text in texts if flags[text]}
            values.append({**found, **raised})
        result: dict[int, Exception | list[pa.RecordBatch]] = {}
        for number, plan in plans.items():
            try:
                result[number] = [
                    self._batch(side, stream, values[side])
                    for side, stream in enumerate(plan.spec.streams)
                ]
            except Exception as error:
                result[number] = error
        return result

    def _batch(
        self, side: int, stream: Any, values: dict[str, pa.ChunkedArray | Exception]
    ) -> pa.RecordBatch:
        def column(text: str) -> pa.ChunkedArray:
            found = values[text]
            if isinstance(found, Exception):
                raise found
            return found

        carried = self._carried[side]
        if column(ROW).to_pylist() != carried.column(0).to_pylist():
            raise AssertionError("the rows came in another order")
        names = [carried_column(n) for n in range(len(stream.columns))]
        columns = list(carried.columns)
        keep = None
        for sql, key in zip(_texts(stream), _text_keys(stream), strict=True):
            if key is None:
                keep = np.array([value is True for value in column(sql).to_pylist()], dtype=bool)
            else:
                names.append(key)
                columns.append(column(sql))
        table = pa.table(columns, names)
        if keep is not None:
            table = table.filter(pa.array(keep))
        return _one_batch(table)

    def _joined(self, plan: Plan, inputs: list[pa.RecordBatch], manner: Manner) -> Codes:
        """Which pairs the units find."""
        (step,) = plan.tree.steps
        equality = step.spec.edge(0, 1).equality
        if manner.hashes is not None and equality is not None and not equality.exact:
            inputs = [
                _collided(batch, stream.key_column(equality.of(side)), manner.hashes)
                for side, (stream, batch) in enumerate(zip(step.spec.streams, inputs, strict=True))
            ]
        codes = np.zeros(self.pairs.shape, dtype=np.int8)
        for pairs in run_batches(step, inputs, manner):
            ids = (pairs.column(name).to_pylist() for name in ("s0_0", "s1_0"))
            for one, two in zip(*ids, strict=True):
                place = (self._place(0, one), self._place(1, two))
                if codes[place]:
                    raise AssertionError(f"the pair {one}, {two} came twice")
                codes[place] = TRUE
        return codes

    def _place(self, side: int, row: int) -> int:
        return [int(str(cells[0])) for cells in self.tables[side].rows].index(row)


def run_batches(
    step: Step, inputs: Sequence[pa.RecordBatch], manner: Manner
) -> list[pa.RecordBatch]:
    """The results of a join that gets its rows in so many batches and any order."""
    rng = Random(manner.order)
    cut: list[list[list[pa.RecordBatch]]] = []
    for batch in inputs:
        rows = list(range(batch.num_rows))
        if manner.order:
            rng.shuffle(rows)
        parts: list[list[int]] = [[] for _ in range(manner.batches)]
        for row in rows:
            parts[rng.randrange(manner.batches)].append(row)
        cut.append([_pieces(batch, part, manner.pieces) for part in parts])
    runner = _runner(step, manner)
    results: list[pa.RecordBatch] = []
    for number in range(manner.batches):
        if manner.restarts and number:
            state = runner.state
            runner = _runner(from_json(Step, to_json(step)), manner)
            runner.state.update(state)
        results += runner.batch([stream[number] for stream in cut])
    return results


def _runner(step: Step, manner: Manner) -> Runner:
    table = make(step.spec, step.routing)
    return Runner(step.spec, table, chunk_rows=manner.chunk_rows, validate=True)


def compared(truth: Codes | Exception, ours: Codes | Exception, tables: Sequence[Table]) -> Verdict:
    """The verdict on what the join gave, by what Spark gives for each pair."""
    raised = isinstance(truth, Exception) or bool((truth == RAISED).any())
    if isinstance(ours, Exception) and not isinstance(ours, RAISED_BY_DATA):
        return Verdict(CRASHED, f"{type(ours).__name__}: {first_line(ours)}")
    if isinstance(ours, Exception) or bool((ours == RAISED).any()):
        what = first_line(ours) if isinstance(ours, Exception) else "the re-check raised"
        return Verdict(BOTH_RAISE if raised else EARLY, what)
    if isinstance(truth, Exception):
        return Verdict(LENIENT, f"Spark raised {first_line(truth)}")
    share = float((truth == TRUE).mean()) if truth.size else 0.0
    # Bounds are added as if integers had no end: for a pair that Spark raises for, both are right.
    differing = np.argwhere(((truth == TRUE) != (ours == TRUE)) & (truth != RAISED))
    if not len(differing):
        return Verdict(LENIENT if raised else EQUAL, share=share)
    one, two = (int(place) for place in differing[0])
    ids = str(tables[0].rows[one][0]), str(tables[1].rows[two][0])
    how = "missing" if truth[one, two] == TRUE else "too much"
    missing = int(((truth == TRUE) & (ours == NOT_TRUE)).sum())
    detail = f"{missing} pairs missing, {len(differing) - missing} too many"
    return Verdict(WRONG, f"{detail}; the pair {ids[0]}, {ids[1]} is {how}", share, ids)


def _texts(stream: Any) -> list[str]:
    """What Spark evaluates for a stream: its filter, and its keys where the filter holds."""
    guard = stream.filter_sql
    keys = [key.sql for key in stream.keys if key.column is None]
    if guard is None:
        return [f"({key})" for key in keys]
    return [f"({guard})", *(f"CASE WHEN ({guard}) THEN ({key}) END" for key in keys)]


def _text_keys(stream: Any) -> list[str | None]:
    names: list[str | None] = [
        stream.key_column(n) for n, key in enumerate(stream.keys) if key.column is None
    ]
    return names if stream.filter_sql is None else [None, *names]


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches: Sequence[Any] = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _pieces(batch: pa.RecordBatch, rows: list[int], pieces: int) -> list[pa.RecordBatch]:
    step = max(1, -(-len(rows) // pieces))
    return [
        batch.take(pa.array(rows[start : start + step], pa.int64()))
        for start in range(0, len(rows), step)
    ]


def _collided(batch: pa.RecordBatch, name: str, hashes: int) -> pa.RecordBatch:
    place = batch.schema.get_field_index(name)
    column = batch.column(place)
    if not pa.types.is_int64(column.type) or column.null_count:
        return batch
    values = column.to_numpy(zero_copy_only=False) % hashes
    return batch.set_column(place, name, pa.array(values, pa.int64()))
