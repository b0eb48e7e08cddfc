"""What is under a DataFrame, told by ones that only have a plan."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import thetastream as ts
from thetastream.api import lineage


class Frame:
    """A DataFrame that only has a plan."""

    def __init__(self, *nodes: str) -> None:
        self.nodes = nodes

    def explain(self, mode: str) -> None:
        other = threading.Thread(target=print, args=("from another thread",))
        other.start()
        other.join()
        for depth, node in enumerate(self.nodes):
            print(f"{'   ' * depth}+- ~{node} x#1, EventTimeWatermark#2")


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (("Project", "StreamingRelation"), None),
        (("Project", "EventTimeWatermark"), "on a column that is no longer its event time"),
        (
            ("Filter", "TransformWithStateInPySpark", "EventTimeWatermark"),
            "the result of a join with a window",
        ),
        (("Filter", "TransformWithStateInPySpark", "StreamingRelation"), None),
    ],
)
def test_a_second_watermark(
    nodes: tuple[str, ...], said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    frames: Any = {"a": Frame("StreamingRelation"), "b": Frame(*nodes)}
    if said is None:
        lineage.refuse_second_watermark(frames)
    else:
        with pytest.raises(ts.WindowError, match=said) as caught:
            lineage.refuse_second_watermark(frames)
        assert "stream 'b'" in str(caught.value)
    assert set(capsys.readouterr().out.splitlines()) == {"from another thread"}
