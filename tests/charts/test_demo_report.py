"""The demo's report: one page that holds everything it shows."""

from __future__ import annotations

import base64
import re
import stat
from pathlib import Path
from xml.etree import ElementTree

import pytest

import thetastream as ts
from thetastream.demo import report
from thetastream.demo.check import Comparison


def batch(number: int) -> ts.BatchMetrics:
    units = [
        ts.UnitLoad(
            unit=unit,
            rows_in=100 * unit,
            probes=1,
            results=1,
            out_bytes=1,
            late=0,
            stored_rows=10,
            stored_bytes=1000,
            runs=1,
            busy=0.1 * unit * number,
        )
        for unit in range(4)
    ]
    return ts.BatchMetrics(
        batch=number,
        rows_in=1000 * number,
        seconds=0.5,
        results=10,
        late=0,
        stored_rows=40,
        stored_bytes=4000,
        watermark=None,
        newest=None,
        streams=(),
        units=tuple(units),
    )


@pytest.mark.parametrize("batches", [0, 1, 30])
def test_the_page_holds_all_its_charts(batches: int, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    comparison = Comparison(expected=5, got=5, missing=0, surplus=0)
    report.write(path, [batch(number) for number in range(batches)], comparison, "a < b")
    page = path.read_text()
    sources = re.findall(r'src="([^"]*)"', page)
    assert len(sources) == 7
    for source in sources:
        head, _, data = source.partition(",")
        assert head == "data:image/svg+xml;base64"
        assert ElementTree.fromstring(base64.b64decode(data)).tag.endswith("svg")
    assert "http" not in page
    assert "a &lt; b" in page
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
