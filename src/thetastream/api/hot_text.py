"""Hot keys as people read them, in the status of a query and in its metrics."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from thetastream.planner import Decision
from thetastream.steering.policy import SplitKey

HEAD: tuple[str, ...] = ("stream", "key", "step", "units", "share", "since (UTC)")
SHOWN_KEYS = 20
"""Keys that are listed."""


def key_rows(keys: Iterable[SplitKey]) -> list[tuple[str, ...]]:
    """A row for each key, the most frequent first."""
    ranked = sorted(keys, key=lambda one: (-one.share, one.join, one.key))
    return [
        (
            one.stream if one.join == 0 else f"{one.stream} (join {one.join})",
            one.shown or str(one.key),
            one.step,
            ", ".join(map(str, one.units)),
            f"{100 * one.share:.1f} %",
            datetime.fromtimestamp(one.since, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        )
        for one in ranked[:SHOWN_KEYS]
    ]


def decisions(
    keys: Iterable[SplitKey], balance: tuple[float, float] | None, batch: int | None
) -> tuple[Decision, ...]:
    """What a plan says of the keys that were hot in the last batch of its query: which ones, where,
    since when, and what that gains."""
    found = [
        Decision(
            "hot key",
            f"{key} of {stream} in units {units}",
            f"split since {since} UTC; in batch {batch} it is in step {step}, with {share} of the"
            " rows",
        )
        for stream, key, step, units, share, since in key_rows(keys)
    ]
    said = balance_note(balance)
    if found and said:
        gain = f"{balance[1] / balance[0]:.1f} times" if balance and balance[0] else "none"
        found.append(Decision("gain of hot keys", gain, said[0].removesuffix(".")))
    return tuple(found)


def balance_note(balance: tuple[float, float] | None) -> list[str]:
    """What splitting keys has gained."""
    if balance is None:
        return []
    found, without = balance
    return [
        f"With hot keys the busiest unit has {found:.2f} times its share of the rows that look for"
        f" partners; without, it would have {without:.2f} times its share."
    ]
