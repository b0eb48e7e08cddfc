"""The simulator's arithmetic against closed forms, and its joins against DuckDB."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import thetastream as ts
from thetastream.cli.main import main
from thetastream.engine.protocol import Report
from thetastream.errors import OptionError
from thetastream.simulator import (
    BModel,
    Cluster,
    Counted,
    Generated,
    Measured,
    Memory,
    Network,
    Replayed,
    Simulation,
    Steps,
    Trace,
    Uniform,
    ZipfKeys,
)
from thetastream.simulator.scenario import read
from thetastream.testing.duck import query

TUPLE = 24
"""Bytes of a tuple with two columns of eight bytes and its time."""


def streams(rate: float, domain: int = 50) -> dict[str, Generated]:
    """Two streams with a key and a value."""
    one = Generated(rate=rate, columns={"k": Uniform(domain), "v": Uniform(1000)})
    return {"r": one, "s": one}


def simulated(
    seconds: float = 10.0,
    *,
    rate: float = 100.0,
    predicate: str = "r.k = s.k",
    cluster: Cluster | None = None,
    **more: Any,
) -> Trace:
    options = ts.JoinOptions(
        **{"topology": "hash", "units": 2} | {k: more.pop(k) for k in list(more) if k in OPTIONS}
    )
    simulation = Simulation(
        streams(rate), predicate, within="3 seconds", options=options, cluster=cluster, **more
    )
    return simulation.run(seconds)


OPTIONS = ("topology", "units", "subgroups", "scheme")


# -- exactness ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topology", "separate", "slots"),
    [
        ("hash", False, 1),
        ("hash", False, 3),
        ("random", True, 1),
        ("contrand", True, 1),
        ("matrix", False, 1),
        ("split", True, 1),
        ("multi-chained", True, 1),
    ],
)
def test_results_are_those_of_the_join(topology: str, separate: bool, slots: int) -> None:
    inputs: dict[str, list[pa.Table]] = {"r": [], "s": []}

    class Noted:
        """A source that keeps what it gave."""

        def __init__(self, name: str) -> None:
            self._inner, self._name = streams(60.0)[name], name
            self.schema = self._inner.schema
            self.most = self._inner.most

        def between(self, start: float, end: float, rng: np.random.Generator) -> pa.Table:
            found = self._inner.between(start, end, rng)
            inputs[self._name].append(found)
            return found

    units = (3, 3) if slots == 3 else (4, 2)
    if topology in ("matrix", "split", "multi-chained"):
        units = (2, 2)
    more = {"subgroups": (2, 1)} if topology == "contrand" else {}
    simulation = Simulation(
        {"r": Noted("r"), "s": Noted("s")},
        "r.k = s.k",
        within="3 seconds",
        options=ts.JoinOptions(topology=topology, units=units, **more),  # type: ignore[arg-type]
        cluster=Cluster(epoch=0.6, network=Network(slots=slots)),
        separate=separate,
        seed=5,
    )
    kept: list[pa.Table] = []
    simulation.run(12.0, keep=lambda found: kept.append(found))
    # What waits at the router at the end has not been joined yet: look at what came before.
    tables = {name: pa.concat_tables(some) for name, some in inputs.items()}
    wanted = query(
        "SELECT r.k, r.v AS rv, s.v AS sv FROM r, s WHERE r.k = s.k"
        " AND abs(epoch_us(r.t) - epoch_us(s.t)) <= 3000000"
        " AND greatest(r.t, s.t) < '2026-01-01 00:00:11'",
        **tables,
    )
    got = [
        (row["s0_0"], row["s0_1"], row["s1_1"])
        for table in kept
        for row in _renamed(table).to_pylist()
        if max(row["s0_2"], row["s1_2"]).second < 11
    ]
    assert len(got) > 300
    assert Counter(got) == Counter(tuple(row.values()) for row in wanted.to_pylist())


def _renamed(table: pa.Table) -> pa.Table:
    """The result with columns s0_0, s0_1, ..., whatever they are called."""
    names = [f"s{stream}_{number}" for stream in range(2) for number in range(3)]
    return table.rename_columns(names) if table.num_rows else table.slice(0, 0)


def test_three_streams_in_every_scheme_give_the_same_results() -> None:
    one = Generated(rate=60.0, columns={"a": Uniform(60), "b": Uniform(60)})
    found = {}
    for scheme in ("semi-symmetric", "tree"):
        simulation = Simulation(
            {"r": one, "s": one, "t": one},
            "abs(r.a - s.a) <= 1 AND abs(s.b - t.b) <= 1",
            within="2 seconds",
            options=ts.JoinOptions(scheme=scheme, units=3),  # type: ignore[arg-type]
            cluster=Cluster(epoch=0.25),
        )
        found[scheme] = simulation.run(5.0)
    assert found["tree"].results() == found["semi-symmetric"].results() > 500
    # The second join waits for the first one and for a signal: one period more on average.
    assert found["semi-symmetric"].delay(2.0) == pytest.approx(0.125, rel=0.1)
    assert found["tree"].delay(2.0) == pytest.approx(0.375, rel=0.1)


# -- the clock ------------------------------------------------------------------------------------


def test_a_result_waits_for_half_an_epoch_on_average() -> None:
    trace = simulated(
        20.0, cluster=Cluster(epoch=2.0, cpu=Counted(row=0, comparison=0, update=0, result=0))
    )
    assert trace.delay(after=4.0) == pytest.approx(1.0, rel=0.05)
    assert trace.utilisation() == 0.0


def test_units_work_off_what_waits_in_the_order_in_which_it_came() -> None:
    cluster = Cluster(epoch=0.5, cpu=Counted(row=0.003, comparison=0, update=0, result=0))
    trace = simulated(20.0, rate=160.0, cluster=cluster, units=1)
    free = 0.0
    for turn in trace.turns:
        assert turn.start == pytest.approx(max(turn.arrived, free))
        assert turn.cpu == pytest.approx(0.003 * (turn.rows + turn.probes))
        free = turn.start + turn.cpu
        assert turn.finish == pytest.approx(free)
    # 320 tuples a second at 6 ms each: nearly twice what one unit can do.
    assert trace.utilisation() == pytest.approx(320 * 0.006, rel=0.1)
    assert trace.delay(after=10.0) > 4.0
    assert trace.throughput() == pytest.approx(1 / 0.006, rel=0.02)


def test_the_mean_wait_is_that_of_a_queue_with_constant_service() -> None:
    # A service takes as long as an epoch: the wait before each epoch's tuples is that of M/D/1.
    service = 0.02
    load = 0.5
    cluster = Cluster(epoch=service, cpu=Counted(row=service / 2, comparison=0, update=0, result=0))
    simulation = Simulation(
        streams(load / service / 2, domain=10**9),
        "r.k = s.k",
        within="1 second",
        options=ts.JoinOptions(topology="hash", units=1),
        cluster=cluster,
        seed=3,
    )
    trace = simulation.run(1200 * service)
    waits = [turn.start - turn.arrived for turn in trace.turns]
    counts = [turn.rows for turn in trace.turns]
    # Those of an epoch wait for each other, too.
    inside = [service * (n - 1) / 2 for n in counts]
    wait = np.average(np.add(waits, inside), weights=counts)
    assert wait == pytest.approx(service * load / (2 * (1 - load)), rel=0.25)


def test_the_same_seed_gives_the_same_trace() -> None:
    one, two, other = (simulated(5.0, seed=seed) for seed in (1, 1, 2))
    assert [turn.to_json() for turn in one.turns] == [turn.to_json() for turn in two.turns]
    assert one.summary() != other.summary()


# -- the network ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "copies"),
    [
        # Equation 5: a tuple of a matrix of m x n goes to n units, or to m.
        ({"topology": "matrix", "units": (4, 4)}, 4),
        # Equation 6: in a biclique it is stored in one unit and visits those of the other stream.
        ({"topology": "random", "units": (4, 4), "separate": True}, 1 + 4),
        ({"topology": "contrand", "units": (4, 4), "subgroups": (2, 2), "separate": True}, 1 + 2),
        ({"topology": "contrand", "units": (4, 4), "subgroups": (4, 4), "separate": True}, 1 + 1),
        ({"topology": "hash", "units": 4}, 1),
    ],
)
def test_bytes_are_those_of_the_equations(how: dict[str, Any], copies: int) -> None:
    trace = simulated(4.0, **how)
    assert trace.bytes() == trace.rows() * copies * TUPLE
    assert sum(turn.tuples for turn in trace.turns) == trace.rows() * copies


def test_a_serial_router_serves_one_unit_after_the_other() -> None:
    network = Network(bandwidth=1000.0, latency=0.1, message=0.5, serial=True)
    found = network.arrivals(10.0, {0: (100, 1), 1: (0, 0), 2: (200, 2)}, range(3))
    assert found == pytest.approx({0: 10.7, 1: 10.6, 2: 11.9})
    side_by_side = Network(bandwidth=1000.0, latency=0.1, message=0.5)
    assert side_by_side.arrivals(10.0, {0: (100, 1), 2: (200, 2)}, range(3)) == pytest.approx(
        {0: 10.7, 1: 10.0, 2: 11.3}
    )


@pytest.mark.parametrize("slots", [1, 2, 4, 8])
def test_the_routers_buffer_is_that_of_the_formula(slots: int) -> None:
    rate, epoch = 1000.0, 2.0
    cluster = Cluster(epoch=epoch, network=Network(slots=slots))
    trace = simulated(12.0, rate=rate / 2, cluster=cluster, units=8)
    held = np.mean(trace.held[2 * slots :])
    assert held == pytest.approx(rate * epoch / 2 * (1 + 1 / slots), rel=0.08)


# -- memory ---------------------------------------------------------------------------------------


def test_what_does_not_fit_waits_for_the_disk() -> None:
    memory = Memory(capacity=1000.0, disk=0.01)
    assert memory.seconds(Report(0, rows_in=5, probes=5, stored_bytes=900)) == 0.0
    assert memory.seconds(Report(0, rows_in=5, probes=5, stored_bytes=4000)) == pytest.approx(0.075)


def test_a_simulation_that_does_not_fit_is_refused_before_it_starts() -> None:
    simulation = Simulation(streams(1e9), "r.k = s.k", within="1 hour")
    with pytest.raises(OptionError, match=r"take about .* GiB; this machine has"):
        simulation.run(7200.0)


# -- sources --------------------------------------------------------------------------------------


def test_the_b_model_gives_each_half_its_share() -> None:
    keys = BModel(1024, 0.7).draw(np.random.default_rng(1), 200_000)
    assert np.mean(keys < 512) == pytest.approx(0.7, abs=0.01)
    assert np.mean(keys[keys >= 512] < 768) == pytest.approx(0.7, abs=0.01)
    assert keys.min() == 0
    assert BModel(10, 0.9).draw(np.random.default_rng(1), 10_000).max() <= 9


def test_a_rate_can_change() -> None:
    source = Generated(rate=Steps(((0, 100), (10, 400))), columns={"k": ZipfKeys(9)})
    rng = np.random.default_rng(0)
    assert source.between(0, 10, rng).num_rows == pytest.approx(1000, rel=0.2)
    assert source.between(10, 20, rng).num_rows == pytest.approx(4000, rel=0.1)
    assert source.most(10) == 4000


def test_a_table_is_replayed_from_its_first_row() -> None:
    table = pa.table({"k": [1, 2, 3]})
    again = Replayed(table, 10.0)
    rng = np.random.default_rng(0)
    for _ in range(2):
        found = again.between(0, 2, rng)["k"].to_pylist()
        assert found == ([1, 2, 3] * 20)[: len(found)]
    once = Replayed(table, 100.0, again=False)
    assert once.between(0, 2, rng)["k"].to_pylist() == [1, 2, 3]
    assert once.between(2, 4, rng).num_rows == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Network(slots=0),
        lambda: Network(bandwidth=0),
        lambda: Cluster(epoch=0),
        lambda: Cluster(epoch=math.inf),
        lambda: Counted(row=-1),
        lambda: Measured(speed=0),
        lambda: Memory(capacity=-1),
        lambda: Uniform(0),
        lambda: BModel(10, 1.0),
        lambda: ZipfKeys(10, -1),
        lambda: Steps(((5, 1),)),
        lambda: Generated(rate=-1, columns={}),
        lambda: Generated(rate=1, columns={"t": Uniform(1)}),
        lambda: Replayed(pa.table({"k": pa.array([], pa.int64())}), 1),
        lambda: Simulation(streams(1)),
        lambda: Simulation({"r": streams(1)["r"]}, "r.k = 1"),
        lambda: Simulation(streams(1), "r.k = s.k").run(0),
        lambda: Simulation(
            streams(1),
            "r.k = s.k",
            cluster=Cluster(network=Network(slots=2)),
            policies=[ts.TwoPhaseScaling(capacity=1)],
        ),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(OptionError):
        wrong()


# -- policies and scenarios -----------------------------------------------------------------------

SCENARIO = """
seconds = 24
after = 12
seed = 3
predicate = "r.k = s.k"
within = "4 seconds"
max_units = 8
[streams.r]
rate = 100
k = { values = "zipf", domain = 1000 }
[streams.s]
rate = [[0, 100], [8, 900]]
k = { values = "uniform", domain = 1000 }
payload = 8
[join]
topology = "hash"
units = 2
[cluster]
epoch = 1.0
cpu = { kind = "counted", row = 1e-5 }
network = { bandwidth = 1e6, latency = 0.001 }
[[policies]]
name = "two-phase-scaling"
capacity = 30000
every = 1.0
low = 0.01
"""


def test_a_policy_scales_a_simulated_join(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(SCENARIO)
    assert main(["simulate", str(file), "--json", "--plot", str(tmp_path / "plot.svg")]) == 0
    found = json.loads(capsys.readouterr().out)
    units = [count for _, count in found["units"]]
    assert units[0] == 2
    assert units[-1] > 2
    assert any("is above 0.80, 3 times in a row" in text for text in found["decisions"])
    assert (tmp_path / "plot.svg").read_text().startswith("<?xml")
    assert main(["simulate", str(file)]) == 0
    assert "mean delay of a result" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "by", "message"),
    [
        ("seconds = 24", "secands = 24", "no option 'secands'"),
        ("after = 12", "after = 24", "leaves nothing"),
        ('values = "zipf"', 'values = "zopf"', "does not say what its values are"),
        ("rate = 100", "", "has no rate"),
        ("units = 2", "units = 0", "is not a number of units"),
        ("epoch = 1.0", "epoch = 0", "is not a positive number"),
        ("latency = 0.001", "slots = 0", "is not a number of sub-groups"),
        ('kind = "counted"', 'kind = "guessed"', "unknown kind of cpu"),
        ('name = "two-phase-scaling"', 'name = "magic"', "no name that is known"),
        ("capacity = 30000", "capacity = -1", "is not a number of bytes"),
        ("seed = 3", "seed = ", "is not valid TOML"),
    ],
)
def test_a_wrong_scenario_is_refused_by_name(
    line: str, by: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(SCENARIO.replace(line, by, 1))
    assert main(["simulate", str(file)]) == 2
    assert message in capsys.readouterr().err


def test_a_scenario_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(tmp_path / "none.toml")]) == 2
    assert "there is no file" in capsys.readouterr().err
    with pytest.raises(OptionError, match="no streams"):
        read({})


def test_a_query_with_aggregates_is_simulated() -> None:
    simulation = Simulation(
        streams(50.0),
        query="SELECT r.k, count(*) AS n FROM r, s WHERE r.k = s.k WITHIN 3 seconds GROUP BY r.k",
        options=ts.JoinOptions(units=2),
    )
    trace = simulation.run(6.0)
    assert sum(turn.out_bytes for turn in trace.turns) > 0
