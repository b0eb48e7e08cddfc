"""The window: what `within` and the predicate together say about the two event times."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from thetastream.durations import DAY, FORMS, format_duration, parse_duration
from thetastream.errors import WindowError
from thetastream.planner.expression import Column, Comparison
from thetastream.planner.forms import ConstantKind, RangeForm
from thetastream.planner.keys import Scope
from thetastream.planner.ranges import calendar_aware, whole_bound
from thetastream.planner.types import Family, family
from thetastream.spec import Arithmetic, Bound, Range, RangeKind, Window

Within = str | int | timedelta | tuple[object, ...] | Window | None


@dataclass(frozen=True)
class TimeRange:
    """A comparison of the event times: second - first lies between low and high."""

    source: Comparison
    low: int | None
    high: int | None
    exact: bool


def parse_within(within: Within) -> Window | None:
    """The window that `within` asks for; None for the full history."""
    if within is None or isinstance(within, Window):
        return within
    if isinstance(within, tuple):
        if len(within) != 2:
            raise WindowError(
                f"within={within!r} has {len(within)} parts",
                hint="give one length, or (before, after): how much earlier and how much later "
                "the second stream's tuple may be",
            )
        before = parse_duration(within[0], "within")
        return Window(low=-before, high=parse_duration(within[1], "within"))
    length = parse_duration(within, "within")
    return Window(low=-length, high=length)


def check_times(within: Within, times: tuple[Column | None, ...], scope: Scope) -> None:
    """Raise unless every stream has a usable event time where the window needs one."""
    found: list[tuple[str, str]] = []
    for stream, column in enumerate(times):
        name = scope.names.streams[stream]
        if column is None:
            if within is not None:
                raise WindowError(
                    f"within={within!r} needs the event time of stream {name!r}",
                    hint=f'say which column it is: time={{"{name}": "..."}}',
                )
            continue
        spec = scope.names.columns[stream][column.index]
        if family(spec.type) not in (Family.TIMESTAMP, Family.TIMESTAMP_NTZ):
            raise WindowError(
                f"the time column {name}.{spec.name} is of type {spec.type}",
                hint="cast it to a timestamp before the join",
            )
        found.append((f"{name}.{spec.name}", spec.type))
    if within is not None and len({kind for _, kind in found}) > 1:
        detail = ", ".join(f"{name} is {kind}" for name, kind in found)
        raise WindowError(
            "the time columns have different types", detail=detail, hint="cast one of them"
        )


def time_range(form: RangeForm, times: tuple[Column | None, ...], scope: Scope) -> TimeRange | None:
    """The form as a bound on the event times; None if it is about something else."""
    if times[0] is None or form.left != times[0] or form.right != times[1]:
        return None
    if form.kinds - {ConstantKind.INTERVAL}:
        return None
    kinds = {
        scope.names.columns[stream][column.index].type
        for stream, column in enumerate(times)
        if column is not None
    }
    if len(kinds) > 1:
        # Spark casts one of them, so their difference is not that of the keys.
        return None
    local = kinds == {"timestamp"}
    exact = not (local and calendar_aware(form, scope))
    slack = 0 if exact else DAY

    def end(which: str) -> int | None:
        # The window is about second - first, a form about first - second.
        found = form.low if which == "high" else form.high
        if found is None:
            return None
        strict = found.strict and exact
        if which == "high":
            return -(whole_bound(found.value - slack, strict=strict, lower=True))
        return -(whole_bound(found.value + slack, strict=strict, lower=False))

    return TimeRange(form.source, end("low"), end("high"), exact)


def intersect(base: Window | None, ranges: list[TimeRange], text: str) -> Window | None:
    """The window that satisfies all; raises WindowError when nothing does."""
    lows = [base.low] if base is not None and base.low is not None else []
    highs = [base.high] if base is not None and base.high is not None else []
    lows += [item.low for item in ranges if item.low is not None]
    highs += [item.high for item in ranges if item.high is not None]
    low = max(lows) if lows else None
    high = min(highs) if highs else None
    if low is None and high is None:
        return None
    if low is not None and high is not None and low > high:
        raise WindowError(
            "no two tuples can satisfy the window",
            detail=f"  {text}\n  within and the predicate together ask for a second time at "
            f"least {format_duration(low)} and at most {format_duration(high)} after the first",
            hint="compare the bounds in the predicate with within; " + FORMS,
        )
    return Window(low=low, high=high)


def window_range(window: Window, left: int, right: int) -> Range:
    """The window as a range over the time keys."""
    return Range(
        left=left,
        right=right,
        low=None if window.high is None else Bound(value=-window.high),
        high=None if window.low is None else Bound(value=-window.low),
        kind=RangeKind.TIME,
        arithmetic=Arithmetic.INTEGER,
    )


def describe_window(window: Window | None, first: str, second: str) -> str:
    """The window in words."""
    if window is None:
        return "full history"
    low, high = window.low, window.high
    if low is not None and high is not None and low == -high:
        return f"{first} and {second} at most {format_duration(high)} apart"
    parts = []
    if low is not None:
        parts.append(
            f"{second} at most {format_duration(-low)} before {first}"
            if low <= 0
            else f"{second} at least {format_duration(low)} after {first}"
        )
    if high is not None:
        parts.append(
            f"{second} at most {format_duration(high)} after {first}"
            if high >= 0
            else f"{second} at least {format_duration(-high)} before {first}"
        )
    return ", ".join(parts)
