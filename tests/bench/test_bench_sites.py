"""The benchmark of sites: its link, its rows, and what it makes of its runs."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from thetastream.bench import report, sites
from thetastream.bench.run import write_json


def run(case: str, transport: str, seconds: float, size: int, ends: str) -> dict[str, Any]:
    triggers = [{"rows": 100, "seconds": seconds, "transport": ends} for _ in range(3)]
    return {
        "case": case,
        "transport": transport,
        "run": 0,
        "bytes": size,
        "triggers": triggers,
        "right": True,
    }


def document(**changed: Any) -> dict[str, Any]:
    runs = [
        run("1 %", "simple", 10.0, 1000, "simple"),
        run("1 %", "semijoin", 1.0, 40, "semijoin"),
        run("1 %", "auto", 1.05, 41, "semijoin"),
        run("100 %", "simple", 10.0, 1000, "simple"),
        run("100 %", "semijoin", 10.2, 1020, "semijoin"),
        run("100 %", "auto", 10.1, 1005, "simple"),
    ]
    return {"bandwidth": 2e6, "runs": runs, "ingest": {"pushed": 3e5, "files": 2.5e5}} | changed


def test_figures_and_their_section(tmp_path: Path) -> None:
    found = sites.figures(document())
    assert [one.measured for one in found[:5]] == ["0.04", "10", "1.02", "simple", "1.05"]
    assert all(one.reached for one in found)
    write_json(tmp_path / "sites.json", document(figures=[vars(one) for one in found]))
    report.write(tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "| match rate 1 %: bytes, semijoin against simple | ≤ 0.05 | 0.04 | reached |" in text


def test_what_is_missed_is_said() -> None:
    runs = document()["runs"]
    runs[1] |= {"bytes": 60, "right": False}
    runs[2]["triggers"][1]["seconds"] = 2.0
    runs[4]["bytes"] = 1200
    runs[5] = run("100 %", "auto", 10.1, 1005, "semijoin")
    found = sites.figures(document(runs=runs, ingest={"pushed": 3e5, "files": 1e5}))
    assert [one.reached for one in found] == [False, True, False, False, False, False, False]


def test_rows_match_as_often_as_they_should() -> None:
    for case in sites.CASES:
        small = case.scaled(0.05)
        keys = set(sites.remote_rows(small, 1).column("k").to_pylist())
        partners = sites.local_rows(small, 1).column("k").to_pylist()
        assert set(partners) <= keys
        assert len(partners) * case.matching == pytest.approx(len(keys), rel=0.1)
    assert sites.remote_rows(small, 0).schema.field("payload").type == "binary"


def test_a_thin_link_is_one_link_for_all_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = sites.ThinLink(server.getsockname()[1], 200_000)

        def answer() -> None:
            for _ in range(2):
                one, _ = server.accept()
                with one:
                    one.sendall(bytes(40_000))

        threading.Thread(target=answer, daemon=True).start()
        begun = time.monotonic()
        both = [socket.create_connection(("127.0.0.1", link.port)) for _ in range(2)]
        got = 0
        for one in both:
            with one:
                while data := one.recv(65_536):
                    got += len(data)
        link.close()
    assert got == link.passed[False] == 80_000
    # By its own account it was taken for the bytes of both, one after the other.
    assert link._free[False] - begun >= 0.4
