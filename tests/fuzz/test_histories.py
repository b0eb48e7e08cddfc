"""The short form of the fuzzer of histories: fixed seeds, and a planted bug."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.fuzz.histories import HistoryFuzzer, generate
from tests.fuzz.history import SECOND, Condition, History, Question, Row, Run
from tests.fuzz.history_model import Model, Watermark
from tests.fuzz.protocol import Budget, silent
from thetastream.runtime import shipped

START = 1_700_000_000 * SECOND


# -- the model itself -----------------------------------------------------------------------------


def test_the_watermark_is_that_of_the_slowest_stream_in_whole_milliseconds() -> None:
    mark = Watermark("min", {"r": 1500, "s": 0})
    mark.see("r", [START + 2999, None])
    mark.move()
    assert mark.now == 0, "nothing came of s yet"
    mark.see("s", [START + 9000])
    mark.move()
    assert mark.now == START // 1000 + 2 - 1
    mark.see("r", [START])
    mark.move()
    assert mark.now == START // 1000 + 1, "it never goes back"


def test_a_restart_forgets_the_streams_but_not_the_watermark() -> None:
    mark = Watermark("min", {"r": 0, "s": 0})
    mark.see("r", [START])
    mark.see("s", [START])
    mark.move()
    mark.restart()
    mark.see("r", [START + SECOND])
    mark.move()
    assert mark.now == START // 1000, "s holds it back until it brings a row"


def edge(kind: str = "rows", **changes: Any) -> History:
    """A row of `s` at the watermark, and one that is a microsecond older."""
    question = Question(
        kind=kind,
        conditions=(Condition("equal", ("r", "s")),),
        within=(SECOND, SECOND),
        time=("r", "s"),
        delays=(None, None),
        delay=0,
        **changes,
    )
    files = {
        "r": ((Row(1, 1, 1, START),), ()),
        "s": ((Row(2, 2, 1, START),), (Row(3, 1, 1, START), Row(4, 1, 1, START - 1))),
    }
    return History(question, (Run(files, {"units": 1}),))


def test_the_model_leaves_out_what_is_late() -> None:
    history = edge()
    model = Model(history, lambda *_: True)
    for place in range(2):
        found = model.batch({name: history.files(name)[place] for name in "rs"})
    assert (dict(found.rows), found.late) == ({(1, 3): 1}, 1)


def test_histories_are_written_and_read() -> None:
    for seed in range(50):
        history = generate(random.Random(seed))
        assert History.from_case(json.loads(json.dumps(history.to_case()))) == history


# -- on Spark -------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.slow
def test_random_histories_agree_with_the_model(spark: SparkSession) -> None:
    """Distinct pairs, a running aggregate and a join of three streams; two of them restart."""
    summary = HistoryFuzzer(spark).run(457, Budget(count=3), silent)
    assert not summary.failures, summary.text()
    assert summary.counts["with results"] == 3
    assert summary.counts["with late rows"] == 2


@pytest.mark.spark
def test_a_planted_bug_is_found(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers take a row at the watermark for late: only a row at its very edge shows it."""
    real = shipped.processor

    def planted(*arguments: Any) -> Any:
        made: Any = real(*arguments)
        handle_rows = made.handleInputRows

        def wrong(key: Any, rows: Any, timers: Any) -> Iterator[Any]:
            import thetastream.engine.unit as imported

            unit: Any = imported

            right = unit.on_time
            unit.on_time = lambda tuples, stream, mark: right(tuples, stream, mark and mark + 1)
            try:
                yield from handle_rows(key, rows, timers)
            finally:
                # The worker goes on to serve other queries.
                unit.on_time = right

        made.handleInputRows = wrong
        return made

    fuzzer = HistoryFuzzer(spark)
    assert fuzzer.replay(edge().to_case()) is None
    monkeypatch.setattr(shipped, "processor", planted)
    wrong = fuzzer.replay(edge().to_case())
    assert wrong is not None
    assert "2 rows were late, of the model's 1" in wrong
