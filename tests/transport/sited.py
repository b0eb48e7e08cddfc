"""Joins of streams at a site, in this process, batch by batch as Spark would carry them out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa

from thetastream.options import JoinOptions
from thetastream.planner import Plan, SiteFacts, plan_join
from thetastream.spec import ColumnSpec, Travel, result_column
from thetastream.testing.duck import DuckAnalyst, column_specs
from thetastream.testing.inprocess import Batch, InProcess, rows_in
from thetastream.transport.access import Access
from thetastream.transport.client import SiteStream
from thetastream.transport.config import StreamConfig
from thetastream.transport.feed import WIRE, Feed
from thetastream.transport.fetching import Errand, complete
from thetastream.transport.messages import NUMBER

TIMES = {"p": "at", "a": "raised", "q": "at", "b": "raised"}
STREAMS = {
    "packets": StreamConfig("packets", "at"),
    "alarms": StreamConfig("alarms", "raised"),
}
NUMBER_SPEC = ColumnSpec(name=NUMBER, type="bigint")


class Served(Protocol):
    """Whatever has the address of a site."""

    @property
    def address(self) -> str:
        """Where it listens."""


def infos_of(running: Served, names: Mapping[str, str]) -> dict[str, SiteStream]:
    """The streams of a site, by the names that a join gives them."""
    with Access(address=running.address, patience=5.0).connect() as client:
        return {name: client.stream(stream) for name, stream in names.items()}


def facts_of(info: SiteStream) -> SiteFacts:
    """Columns of ten bytes each."""
    assert info.schema is not None
    return SiteFacts(sizes=dict.fromkeys(info.schema.names, 10.0))


class Wires:
    """What a plan reads of a site, and fetches from it."""

    def __init__(self, running: Served, infos: Mapping[str, SiteStream], plan: Plan) -> None:
        self.plan = plan
        self.infos = infos
        self.access = Access(address=running.address, patience=5.0)
        self.feeds = [self._feed(travel) for travel in plan.travels]
        self.errands = [
            Errand(feed=feed, number=travel.number, fetched=travel.fetched)
            for feed, travel in zip(self.feeds, plan.travels, strict=True)
            if travel.number is not None
        ]
        self.fetched = 0
        self.received = 0
        """Bytes from the site."""
        self.reports: list[dict[str, Any]] = []
        """What tasks said of the wire."""

    def _feed(self, travel: Travel) -> Feed:
        info = self.infos[travel.name]
        return Feed(
            access=self.access,
            stream=info.name,
            id=info.id,
            schema=info.schema,
            columns=travel.columns,
            numbered=travel.number is not None,
            rest=travel.rest,
            whole=travel.whole,
            where=travel.where,
            tasks=2,
        )

    def tables(self, start: int, stop: int, *, whole: bool = False) -> list[pa.Table]:
        """What travels of the tuples with these numbers; `whole` with mixed transports."""
        found = []
        most = {info.name: info.next for info in self.infos.values()}
        for feed in self.feeds:
            fields = [pa.field(NUMBER, pa.int64())] if feed.numbered else []
            fields += [feed.schema.field(name) for name in (*feed.columns, *feed.rest)]
            schema = pa.schema([*fields, pa.field(WIRE, pa.string())])
            about = {"id": feed.id, "whole": whole}
            ends = (start, min(stop, most[feed.stream]))
            offsets = [{**about, "number": number} for number in ends]
            batches = [one for part in feed.parts(*offsets) for one in feed.read(part, schema)]
            found.append(self._counted(pa.Table.from_batches(batches, schema)))
        return found

    def _counted(self, table: pa.Table) -> pa.Table:
        """The rows that are tuples; what the others report is counted."""
        for text in table.column(WIRE).drop_null().to_pylist():
            report = json.loads(text)
            self.received += report["received"]
            self.reports.append(report)
        return table.filter(table.column(WIRE).is_null()).drop_columns([WIRE])

    def complete(self, found: pa.Table) -> pa.Table:
        """Results with the columns that they lack."""
        if not found.num_columns:
            return found
        tree = self.plan.tree
        if len(tree.steps) > 1:
            named = [
                result_column(stream, number)
                for stream, names in enumerate(tree.output)
                for number in range(len(names))
            ]
            found = found.rename_columns(named)
        fields = list(found.schema)
        for errand in self.errands:
            fields += [
                pa.field(to, errand.feed.schema.field(name).type)
                for name, to in errand.fetched
                if to not in found.column_names
            ]
        schema = pa.schema([*fields, pa.field(WIRE, pa.string())])
        whole = pa.Table.from_batches(complete(self.errands, found.to_batches(), schema), schema)
        self.fetched += whole.num_rows - whole.column(WIRE).null_count
        return self._counted(whole)


class Sited(Wires):
    """A join on a predicate; `names` are those of its streams, with the site's own."""

    def __init__(self, running: Served, predicate: str, names: dict[str, str], **how: Any) -> None:
        infos = infos_of(running, names)
        transport = how.get("transport", "semijoin")
        facts = how.get("facts", facts_of)
        specs = {
            name: [*column_specs(info.schema), *([] if transport == "simple" else [NUMBER_SPEC])]
            for name, info in infos.items()
        }
        plan = plan_join(
            streams=specs,
            predicate=predicate,
            within=how.get("within"),
            time={name: TIMES[name] for name in names},
            options=JoinOptions(transport=transport, scheme=how.get("scheme", "auto")),
            analyst=DuckAnalyst.of(specs),
            fixed_zone=True,
            sites={name: facts(info) for name, info in infos.items()},
        )
        super().__init__(running, infos, plan)
        self.join = InProcess(plan)

    def completed(self, found: pa.Table) -> list[tuple[Any, ...]]:
        """The rows of results, with all columns in the order of the streams."""
        if not found.num_columns:
            return []
        order = []
        for travel in self.plan.travels:
            places = dict((*travel.held, *travel.fetched))
            order += [places[name] for name in self.infos[travel.name].schema.names]
        return rows_in(self.complete(found).select(order))

    def play(self, ends: list[int], *between: Any) -> list[tuple[Any, ...]]:
        """The results of batches that end at these numbers, with what happens between them."""
        rows, start = [], 0
        for place, end in enumerate(ends):
            # With mixed transports every other batch has whole tuples.
            whole = bool(self.feeds[0].rest) and place % 2 == 1
            script = [*between[place : place + 1], Batch(*self.tables(start, end, whole=whole))]
            for found in self.join.play(script):
                rows += self.completed(found)
            start = end
        return rows
