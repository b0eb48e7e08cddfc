"""What a join reads of a stream at a site: what travels, what is fetched, what is refused."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from thetastream.api.session import parallelism
from thetastream.api.transports import chosen_while_running
from thetastream.durations import format_duration
from thetastream.errors import SiteRequestError, WindowError
from thetastream.planner import SiteFacts
from thetastream.runtime.sitesource import read_site, spark_schema
from thetastream.spec import JoinTree, Travel
from thetastream.transport.access import Access
from thetastream.transport.choosing import assumed
from thetastream.transport.client import SiteStream
from thetastream.transport.feed import Feed
from thetastream.transport.fetching import Errand
from thetastream.transport.sampling import sample


class Remote:
    """A stream at a site, while a join is built of it."""

    def __init__(
        self,
        access: Access,
        stream: SiteStream,
        *,
        retain: int | None,
        max_rows: int | None,
        batch: bool,
    ) -> None:
        if stream.schema is None:
            raise SiteRequestError(
                f"the stream {stream.name!r} of {access.address} has no tuples yet, and its first"
                " tuples decide its columns",
                hint="push some, or wait until the site has taken some in",
            )
        self.address = access.address
        self._access = access
        self._stream = stream
        self._arrow = stream.schema
        self._most_rows = max_rows
        self._facts: SiteFacts | None = None
        self.retain = retain
        """Microseconds for which the site keeps tuples; None for ever."""
        self.is_batch = batch
        """Whether it is what the site has now, and not a stream."""
        self.name = stream.name
        self.schema: StructType = spark_schema(stream.name, stream.schema)
        """Its columns, as Spark has them."""

    def facts(self, *, sampled: bool = True) -> SiteFacts:
        """What the cost model needs to know of it, from a small sample."""
        if not sampled:
            return SiteFacts(sizes=dict.fromkeys(self._arrow.names, 0.0))
        if self._facts is None:
            sizes, link = sample(self._access, self._stream, self._arrow)
            self._facts = SiteFacts(sizes=sizes, link=link)
        return self._facts

    def frame(self, spark: SparkSession) -> DataFrame:
        """All its columns."""
        feed = self._feed(spark, tuple(self._arrow.names))
        return read_site(spark, feed, batch=self.is_batch)

    def typed(self, spark: SparkSession) -> DataFrame:
        """An empty DataFrame with its columns, which types are asked of."""
        return spark.createDataFrame([], self.schema)

    def travelling(self, spark: SparkSession, travel: Travel) -> tuple[DataFrame, Errand | None]:
        """What travels at once as a DataFrame, and what is fetched afterwards."""
        feed = self._feed(
            spark, travel.columns, numbered=travel.number is not None, where=travel.where
        )
        if travel.rest:
            feed = replace(feed, rest=travel.rest, whole=travel.whole)
            if not self.is_batch:
                sizes = self.facts().sizes
                first, later = (
                    sum(sizes[name] for name in some) for some in (travel.columns, travel.rest)
                )
                path, token = chosen_while_running(
                    spark, assumed(self.facts().link, first, later), whole=travel.whole
                )
                feed = replace(feed, choice=path, token=token)
        frame = read_site(spark, feed, batch=self.is_batch)
        if travel.number is None:
            return frame, None
        return frame, Errand(feed=feed, number=travel.number, fetched=travel.fetched)

    def _feed(
        self,
        spark: SparkSession,
        columns: tuple[str, ...],
        *,
        numbered: bool = False,
        where: object = None,
    ) -> Feed:
        return Feed(
            access=self._access,
            stream=self._stream.name,
            id=self._stream.id,
            schema=self._arrow,
            columns=columns,
            numbered=numbered,
            where=where,
            tasks=parallelism(spark).tasks or 1,
            most_rows=self._most_rows,
        )

    def check_retention(self, tree: JoinTree, travel: Travel, delay: int) -> None:
        """Refuse a site that forgets tuples while they can still be in a result."""
        if self.retain is None or travel.number is None:
            return
        name, kept = travel.name, format_duration(self.retain)
        others = [
            length
            for place, length in enumerate(tree.reach[travel.stream])
            if place != travel.stream
        ]
        lengths = [length for length in others if length is not None]
        if len(lengths) < len(others) and tree.span is None:
            raise WindowError(
                f"the site of {name!r} keeps tuples for {kept}, and this join fetches them at any"
                " time: nothing limits how much later a matching row may come",
                hint="give a window, or remove retain from the site's file, or use"
                ' transport="simple"',
            )
        needed = max([*lengths, tree.span or 0, 0]) + delay
        if self.retain < needed:
            raise WindowError(
                f"the site of {name!r} keeps tuples for {kept}, and this join may fetch them up to"
                f" {format_duration(needed)} later: its window and delay",
                hint=f'set retain = "{format_duration(needed)}" or more in the site\'s file, or'
                ' use transport="simple"',
            )
