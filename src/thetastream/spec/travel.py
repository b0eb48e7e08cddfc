"""What of a site's stream travels at once, and what is fetched for results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Travel:
    """The columns of a stream that is at a site, on their way into results.

    >>> rides = ts.site(address).stream("rides")
    >>> plan = ts.streams(orders=orders, rides=rides).explain(
    ...     "orders.x = rides.x", options=ts.JoinOptions(transport="semijoin")
    ... )
    >>> plan.travels[0].columns
    ('x',)
    >>> [column for column, _ in plan.travels[0].fetched]
    ['ride_id', 'fare', 'seen_at']
    """

    stream: int
    name: str
    columns: tuple[str, ...]
    """Those that travel at once."""
    held: tuple[tuple[str, str], ...]
    """Columns that results of the join have, and their names in them."""
    number: str | None = None
    """The name of the tuple's number in results; None if nothing is fetched."""
    fetched: tuple[tuple[str, str], ...] = ()
    """Columns that are fetched, and their names in results afterwards."""
    rest: tuple[str, ...] = ()
    """Of the fetched columns, those that travel at once in batches for which that is cheaper."""
    whole: bool = False
    """Whether the first batches are such ones."""
    where: dict[str, Any] | None = None
    """A filter that the site evaluates."""
