"""A failure made small: shorter predicates, fewer rows and columns, plainer settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.fuzz.expressions import LITERALS, Node
from tests.fuzz.oracle import Setting
from tests.fuzz.tables import ROW, Table, quote
from tests.fuzz.trials import Manner, Trial


@dataclass(frozen=True)
class Case:
    """Tables, a session and a trial: all that a failure needs."""

    tables: tuple[Table, Table]
    setting: Setting
    trial: Trial
    whole: bool = False
    """Whether it only fails as a whole join on Spark."""

    def to_json(self) -> dict[str, Any]:
        """The case as JSON takes it."""
        return {
            "fuzzer": "predicates",
            "tables": [table.to_json() for table in self.tables],
            "ansi": self.setting.ansi,
            "zone": self.setting.zone,
            "whole": self.whole,
            **self.trial.to_json(),
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Case:
        """The case that `to_json` wrote."""
        one, two = (Table.from_json(table) for table in raw["tables"])
        setting = Setting(raw["ansi"], raw["zone"])
        return cls((one, two), setting, Trial.from_json(raw), raw["whole"])

    def reproduction(self) -> str:
        """A program that shows the failure, as far as it does not depend on the manner."""
        names = [repr(table.name) for table in self.tables]
        lines = [
            "import thetastream as ts",
            "from pyspark.sql import functions as F",
            f"spark = ts.session(cores=2, config={self.setting.config!r})",
        ]
        for variable, table in zip(("one", "two"), self.tables, strict=True):
            lines.append(f'{variable} = spark.sql(r"""{table.sql()}""")')
        arguments = [f"predicate := {self.trial.predicate!r}"]
        if self.trial.within is not None and self.trial.times is not None:
            times = {t.name: c for t, c in zip(self.tables, self.trial.times, strict=True)}
            arguments += [f"within={self.trial.within!r}", f"time={times!r}"]
        if self.trial.manner.topology != "auto" or self.trial.manner.units is not None:
            arguments.append(f"options=ts.{self.trial.manner.options()!r}")
        named = f"**{{{names[0]}: one, {names[1]}: two}}"
        lines += [
            f"ts.streams({named}).join({', '.join(arguments)}).show()",
            f"one.alias({names[0]}).join(two.alias({names[1]}), F.expr(predicate)).show()",
        ]
        if self.trial.manner != Manner():
            lines.append(f"# in process: {self.trial.manner!r}")
        return "\n".join(lines)


Judge = Callable[[Case, Sequence[Trial]], Sequence[bool]]
"""Which of some trials fail as the first one did, over the tables and in the session of a case."""

_ROUND = 60
"""Predicates that are tried together: one job serves all of them."""


def shrunk(
    case: Case, tree: Node | None, fails: Judge, pair: tuple[str, str] | None = None
) -> Case:
    """The smallest case found that still fails.

    `tree` is its predicate if that is known, `pair` the numbers of two rows that show the failure.
    """
    case = _plain_manner(case, fails)
    case = _plain_setting(case, fails)
    case = _two_rows(case, fails, pair)
    if tree is not None:
        case = _simplified(case, tree, fails)
    case = _few_columns(case, fails)
    case = _plain_names(case, fails)
    return _few_rows(case, fails)


def _still(case: Case, fails: Judge) -> bool:
    return bool(fails(case, [case.trial])[0])


def _plain_manner(case: Case, fails: Judge) -> Case:
    """The case carried out in the plainest manner that shows the failure."""
    trial, manner = case.trial, case.trial.manner
    timeless = replace(trial, within=None, times=None)
    candidates = [
        replace(timeless, manner=Manner()),
        replace(trial, manner=Manner()),
        replace(trial, manner=Manner(topology=manner.topology, units=manner.units)),
        replace(trial, manner=Manner(hashes=manner.hashes)),
        replace(trial, manner=Manner(chunk_rows=manner.chunk_rows)),
        replace(trial, manner=Manner(batches=manner.batches, order=manner.order)),
        replace(trial, manner=replace(manner, topology="auto", units=None)),
        replace(trial, manner=replace(manner, chunk_rows=1 << 16)),
        replace(trial, manner=replace(manner, restarts=False)),
        timeless,
    ]
    for candidate, failed in zip(candidates, fails(case, candidates), strict=True):
        if failed:
            return replace(case, trial=candidate)
    return case


def _plain_setting(case: Case, fails: Judge) -> Case:
    for changes in ({"zone": "UTC"}, {"ansi": True}):
        candidate = replace(case, setting=replace(case.setting, **changes))
        if candidate != case and _still(candidate, fails):
            case = candidate
    return case


def _two_rows(case: Case, fails: Judge, pair: tuple[str, str] | None) -> Case:
    """The case with one row per side: those of the pair, or any."""
    wanted = pair or (case.tables[0].rows[0][0], case.tables[1].rows[0][0])
    one, two = (
        replace(table, rows=tuple(row for row in table.rows if row[0] == mark))
        for table, mark in zip(case.tables, wanted, strict=True)
    )
    candidate = replace(case, tables=(one, two))
    return candidate if _still(candidate, fails) else case


def _few_rows(case: Case, fails: Judge) -> Case:
    """The case with fewer rows, in large steps first."""
    for side in (0, 1):
        size = len(case.tables[side].rows) // 2
        while size:
            place = 0
            while place < len(case.tables[side].rows):
                table = case.tables[side]
                rows = table.rows[:place] + table.rows[place + size :]
                candidate = _with(case, side, replace(table, rows=rows))
                if rows and _still(candidate, fails):
                    case = candidate
                else:
                    place += size
            size //= 2
    return case


def _simplified(case: Case, tree: Node, fails: Judge) -> Case:
    """The case with parts of the predicate taken out, or replaced by parts of themselves."""
    while True:
        found: dict[str, Node] = {}
        for node in tree.walk():
            for other in _smaller(node):
                made = tree.replaced(node, other)
                if len(made.sql()) < len(tree.sql()):
                    found.setdefault(made.sql(), made)
        texts = sorted(found, key=len)
        # All the short ones, and of the many that are nearly as long as the whole some.
        texts = texts[: _ROUND // 2] + texts[_ROUND // 2 :][-_ROUND // 2 :]
        trials = [replace(case.trial, predicate=text) for text in texts]
        failed = fails(case, trials) if trials else []
        better = next((text for text, bad in zip(texts, failed, strict=True) if bad), None)
        if better is None:
            return case
        tree = found[better]
        case = replace(case, trial=replace(case.trial, predicate=better))


def _smaller(node: Node) -> Iterator[Node]:
    """What may stand in the node's place: something below it, or a literal."""
    below = [other for child in node.children for other in child.walk()]
    yield from (other for other in below if other.family == node.family)
    if node.family == "boolean":
        yield Node("boolean", ("true",))
    if node.children and node.family in LITERALS:
        yield Node(node.family, (LITERALS[node.family][1 % len(LITERALS[node.family])],))


def _few_columns(case: Case, fails: Judge) -> Case:
    """The case without the columns that the failure does not need."""
    text = case.trial.predicate.casefold()
    times = case.trial.times or ()
    named = case
    for side in (0, 1):
        for place in reversed(range(1, len(named.tables[side].columns))):
            name = named.tables[side].columns[place].name
            if name.casefold() not in text and name not in times:
                named = _with(named, side, named.tables[side].without_column(place))
    if _still(named, fails):
        case = named
    for side in (0, 1):
        for place in reversed(range(1, len(case.tables[side].columns))):
            candidate = _with(case, side, case.tables[side].without_column(place))
            if _still(candidate, fails):
                case = candidate
    return case


def _plain_names(case: Case, fails: Judge) -> Case:
    """The case with plain names for odd ones, where they are not what fails."""
    for side in (0, 1):
        for place, column in enumerate(case.tables[side].columns):
            if column.name == ROW or quote(column.name) not in case.trial.predicate:
                continue
            table = case.tables[side]
            plain = replace(column, name=f"c{place}")
            columns = (*table.columns[:place], plain, *table.columns[place + 1 :])
            text = case.trial.predicate.replace(quote(column.name), f"c{place}")
            candidate = _with(case, side, replace(table, columns=columns))
            candidate = replace(candidate, trial=replace(candidate.trial, predicate=text))
            if _still(candidate, fails):
                case = candidate
    return case


def _with(case: Case, side: int, table: Table) -> Case:
    one, two = case.tables
    return replace(case, tables=(table, two) if side == 0 else (one, table))
