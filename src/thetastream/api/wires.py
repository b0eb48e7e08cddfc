"""What went over the wire to and from sites, as a batch's observed metrics report it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from thetastream.api.observed import texts
from thetastream.runtime.sitesource import WIRES


@dataclass(frozen=True, kw_only=True)
class SiteLoad:
    """One stream of a site in one batch: rows and bytes on the wire, protocols and all.

    >>> load = ts.SiteLoad(site="grpc://10.0.0.7:8815", stream="packets", read_received=900)
    >>> load.received, load.sent
    (900, 0)
    """

    site: str
    stream: str
    read_rows: int = 0
    """Tuples that came because they were new."""
    partial_rows: int = 0
    """Those of them that came without all of their columns."""
    read_sent: int = 0
    """Bytes towards the site, to ask for them."""
    read_received: int = 0
    fetched_rows: int = 0
    """Tuples whose other columns were asked for, because they are in results."""
    fetch_sent: int = 0
    fetch_received: int = 0
    feed: str = field(default="", repr=False, compare=False)
    """By which a query tells its streams apart."""

    @property
    def sent(self) -> int:
        """All bytes towards the site."""
        return self.read_sent + self.fetch_sent

    @property
    def received(self) -> int:
        """All bytes from the site."""
        return self.read_received + self.fetch_received


_READ = ("read_rows", "read_sent", "read_received")
_FETCHED = ("fetched_rows", "fetch_sent", "fetch_received")
_NUMBERS = (*_READ, *_FETCHED, "partial_rows")

SITES_HEAD = (
    *("stream", "site"),
    *("rows read", "partial", "bytes read", "rows fetched", "bytes fetched", "bytes sent"),
)


def site_row(load: SiteLoad) -> tuple[str, ...]:
    """The load as a row of a table."""
    read = load.read_rows, load.partial_rows, load.read_received
    numbers = *read, load.fetched_rows, load.fetch_received, load.sent
    return load.stream, load.site, *(f"{number:,}" for number in numbers)


def added(loads: Iterable[SiteLoad]) -> list[SiteLoad]:
    """One load for each stream, over several batches."""
    found: dict[tuple[str, str], SiteLoad] = {}
    for load in loads:
        place = load.site, load.stream
        old = found.get(place, SiteLoad(site=load.site, stream=load.stream))
        numbers = {name: getattr(old, name) + getattr(load, name) for name in _NUMBERS}
        found[place] = replace(old, **numbers, feed=load.feed)
    return list(found.values())


def wire_texts(observed: dict[str, Any]) -> Iterator[str]:
    """What tasks reported of the wire, as they wrote it."""
    for name, row in observed.items():
        if name.startswith(WIRES):
            yield from texts(row)


def site_loads(observed: dict[str, Any]) -> tuple[tuple[SiteLoad, ...], int]:
    """The streams of sites in a batch; and how many rows of the sources were reports."""
    totals: dict[tuple[str, str], dict[str, int]] = {}
    feeds: dict[tuple[str, str], str] = {}
    markers = 0
    for text in wire_texts(observed):
        found = json.loads(text)
        is_read = found["what"] == "read"
        markers += is_read
        place = found["site"], found["stream"]
        feeds[place] = found["token"]
        mine = totals.setdefault(place, {})
        names = _READ if is_read else _FETCHED
        for name, key in zip(names, ("rows", "sent", "received"), strict=True):
            mine[name] = mine.get(name, 0) + int(found[key])
        if is_read and not found["whole"]:
            mine["partial_rows"] = mine.get("partial_rows", 0) + int(found["rows"])
    loads = tuple(
        SiteLoad(site=place[0], stream=place[1], feed=feeds[place], **numbers)
        for place, numbers in sorted(totals.items())
    )
    return loads, markers
