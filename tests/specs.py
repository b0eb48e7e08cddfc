"""Specs of joins for tests that need no predicate."""

from __future__ import annotations

from collections.abc import Sequence

from thetastream.spec import (
    Edge,
    GroupBy,
    Grouping,
    JoinSpec,
    Meeting,
    Retention,
    Stage,
    Store,
    StreamSpec,
    Then,
)

CONTENT = GroupBy(kind=Grouping.CONTENT)


def two_streams(
    streams: Sequence[StreamSpec], edge: Edge, group_by: Sequence[GroupBy] = (CONTENT, CONTENT)
) -> JoinSpec:
    """Two streams over their full history."""
    stores = tuple(
        Store(
            stream=stream,
            group_by=by,
            order=edge.order(stream),
            retention=Retention(time=streams[stream].time),
        )
        for stream, by in enumerate(group_by)
    )
    meetings = tuple(Meeting(new=new, stored=1 - new, then=Then.EMIT) for new in (0, 1))
    return JoinSpec(
        streams=tuple(streams),
        edges=(edge,),
        reach=((None, None), (None, None)),
        stages=(Stage(number=0, stores=stores, meetings=meetings),),
        order=(0, 1),
    )
