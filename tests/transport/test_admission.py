"""Who is let in: those who push leave memory, places and time to others."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from thetastream.errors import SiteError, SiteRequestError
from thetastream.transport import admission
from thetastream.transport.admission import Budget, Gate, Right, Visit
from thetastream.transport.messages import Limits


class Context:
    """What gRPC gives a call."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def invocation_metadata(self) -> list[Any]:
        return []


def test_pushing_leaves_memory_to_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MEMORY_SECONDS", 0.0)
    budget = Budget(800)
    with budget.reserved(700, Right.PUSH):
        with pytest.raises(SiteError, match="memory is in use"), budget.reserved(1, Right.PUSH):
            pass
        with budget.reserved(100, Right.READ):
            assert budget.used == 800
    assert budget.used == 0
    with pytest.raises(SiteRequestError, match="needs 701"), budget.reserved(701, Right.PUSH):
        pass


def test_pushing_leaves_places_to_reading() -> None:
    gate = Gate({}, Limits(requests=8))
    try:
        with ExitStack() as stack:
            for _ in range(6):
                stack.enter_context(gate.visit(Context(), Right.PUSH))
            with pytest.raises(SiteError, match="too many"), gate.visit(Context(), Right.PUSH):
                pass
            for _ in range(2):
                stack.enter_context(gate.visit(Context(), Right.READ))
            with pytest.raises(SiteError, match="too many"), gate.visit(Context(), Right.READ):
                pass
        assert gate.requests == 0
    finally:
        gate.close()


def test_the_pieces_of_a_batch_have_one_deadline() -> None:
    """A call whose client sends a byte now and then ends like one whose client sends nothing."""
    context = Context()
    visit = Visit(context, 10.0, Right.PUSH)
    for now in (104.0, 108.0):
        with visit.awaiting(since=100.0):
            visit.end_if_idle(now)
    assert not context.cancelled
    with visit.awaiting(since=100.0):
        visit.end_if_idle(111.0)
    assert context.cancelled
