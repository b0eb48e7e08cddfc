"""The baselines of the literature: what they cost, how many units they have, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from thetastream.errors import OptionError
from thetastream.planner import Plan
from thetastream.planner.costs import cost
from thetastream.spec import ColumnSpec, Routing


@pytest.mark.parametrize(
    ("routing", "units", "memory", "bandwidth"),
    [
        (Routing.SPLIT, (4, 4), (1, 1), (5, 5)),
        (Routing.BROADCAST, (4, 1), (1, 4), (1, 4)),
        (Routing.BROADCAST, (1, 4), (4, 1), (4, 1)),
        (Routing.MULTI_CHAINED, (4, 4), (4, 4), (4, 4)),
    ],
)
def test_costs(
    routing: Routing,
    units: tuple[int, int],
    memory: tuple[int, int],
    bandwidth: tuple[int, int],
) -> None:
    found = cost(routing, units, (1, 1), None)
    assert (found.memory, found.bandwidth) == (memory, bandwidth)


@pytest.mark.parametrize(
    ("topology", "given", "units", "said"),
    [
        ("broadcast", 4, (4, 1), "4, each with all of s"),
        ("broadcast", (1, 3), (1, 3), "3, each with all of r"),
        ("broadcast", (3, 1), (3, 1), "3, each with all of s"),
        ("broadcast", 1, (1, 1), "1, each with all of s"),
        ("broadcast", "auto", (4, 1), "4, each with all of s"),
        ("split", 5, (5, 5), "5 for r, 5 for s"),
        ("split", (2, 2), (2, 2), "2 for r, 2 for s"),
        ("multi-chained", "auto", (4, 4), "4, each with all of r and s"),
    ],
)
@pytest.mark.parametrize("predicate", ["r.id < s.id", "r.id = s.id", "abs(r.id - s.id) < 2"])
def test_units(
    predicate: str,
    topology: str,
    given: Any,
    units: tuple[int, int],
    said: str,
    plan: Callable[..., Plan],
) -> None:
    found = plan(predicate, options={"topology": topology, "units": given})
    assert found.tree.steps[0].routing.units == units
    decisions = {one.subject: one.choice for one in found.decisions}
    assert (decisions["topology"], decisions["units"]) == (topology, said)
    assert f"  {topology}" in found.explain()
    chosen = [one for one in found.costs if one.routing.value == topology]
    assert len(chosen) == 1, "a plan shows the costs of what was chosen"


def test_baselines_are_not_offered(plan: Callable[..., Plan]) -> None:
    """They are there to be compared: a plan that did not ask for one does not speak of them."""
    text = plan("r.id < s.id").explain()
    assert not any(name in text for name in ("split", "broadcast", "multi-chained"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topology": "broadcast", "units": (2, 3)}, r"units=\(2, 1\) stores the second stream"),
        ({"topology": "split", "units": (2, 3)}, "give one number, for instance units=3"),
        ({"topology": "multi-chained", "units": (4, 1)}, "the same units for both streams"),
        ({"topology": "broadcasted"}, "choose one of auto, hash"),
    ],
)
def test_refusals(options: dict[str, Any], message: str, plan: Callable[..., Plan]) -> None:
    with pytest.raises(OptionError, match=message):
        plan("r.id < s.id", options=options)


@pytest.mark.parametrize("topology", ["split", "broadcast", "multi-chained"])
def test_three_streams_have_topologies_of_their_own(
    topology: str, plan: Callable[..., Plan], streams: dict[str, list[ColumnSpec]]
) -> None:
    options = {"topology": topology, "full_history": True}
    with pytest.raises(OptionError, match="is for two streams"):
        plan("r.id < s.id AND s.id < t.id", streams={**streams, "t": streams["r"]}, options=options)
