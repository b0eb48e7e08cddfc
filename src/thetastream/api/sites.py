"""Streams that are at sites, and what a join reads of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from thetastream.api.session import parallelism
from thetastream.api.transports import chosen_while_running
from thetastream.durations import format_duration
from thetastream.errors import OptionError, SiteRequestError, WindowError
from thetastream.planner import SiteFacts
from thetastream.runtime.sitesource import read_site, spark_schema
from thetastream.spec import JoinTree, Travel
from thetastream.transport.access import Access
from thetastream.transport.addresses import Address, read_token
from thetastream.transport.choosing import assumed
from thetastream.transport.client import SiteStream
from thetastream.transport.feed import Feed
from thetastream.transport.fetching import Errand
from thetastream.transport.sampling import sample


def site(
    address: str,
    *,
    token: str | None = None,
    token_file: str | Path | None = None,
    tls_root: str | Path | None = None,
    patience: float = 60.0,
    stall: float = 10.0,
) -> Site:
    """A site whose streams can be joined: `ts.site("grpc+tls://plant:8815").stream("packets")`.

    The token can be given, or be in a file that only its owner can read, or in the variable
    THETASTREAM_SITE_TOKEN. `tls_root`: a file of certificates (PEM) to trust instead of the
    system's own. `patience` and `stall` are those of `ts.SiteClient`.

    >>> rides = ts.site(address).stream("rides")
    >>> pair = ts.streams(orders=orders, rides=rides)
    >>> pair.join("orders.x = rides.x", within="1 hour", delay="1 minute").columns[-2:]
    ['rides_fare', 'seen_at']
    """
    if token is not None and token_file is not None:
        raise OptionError("a token and a token file were given", hint="give one of them")
    where = Address.parse(address)
    roots = None
    if tls_root is not None:
        try:
            roots = Path(tls_root).read_bytes()
        except OSError as error:
            raise OptionError(
                f"the certificates {tls_root} cannot be read: {error.strerror}",
                hint="give a file of certificates (PEM)",
            ) from None
    if token is None:
        token = read_token(None if token_file is None else Path(token_file))
    access = Access(
        address=str(where), token=token, tls_roots=roots, patience=patience, stall=stall
    )
    # Says at once what is wrong with the address or the token's way there.
    access.connect().close()
    return Site(access)


class Site:
    """A site, as `ts.site` returns it. Nothing is asked of it before a stream is named.

    >>> isinstance(ts.site("grpc://127.0.0.1:8815"), ts.Site)
    True
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    def stream(
        self, name: str, *, max_rows: int | None = None, batch: bool = False
    ) -> RemoteStream:
        """A stream of the site, for `ts.streams`.

        `max_rows`: tuples that a micro-batch takes at most. `batch`: read what there is as a
        batch DataFrame instead.
        """
        if max_rows is not None and (
            isinstance(max_rows, bool) or not isinstance(max_rows, int) or max_rows < 1
        ):
            raise OptionError(
                f"max_rows={max_rows!r} is not a number of rows", hint="give at least 1"
            )
        with self._access.connect() as client:
            found = client.stream(name)
            retain = client.status().get("retain")
        return RemoteStream(
            self._access,
            found,
            retain=retain if isinstance(retain, int) else None,
            max_rows=max_rows,
            batch=batch,
        )

    def __repr__(self) -> str:
        return f"Site({self._access.address!r})"


class RemoteStream:
    """A stream at a site; `ts.streams` takes it like a DataFrame.

    >>> rides = ts.site(address).stream("rides")
    >>> rides.schema.simpleString()
    'struct<ride_id:bigint,x:int,fare:double,seen_at:timestamp>'
    >>> rides.frame(spark).isStreaming
    True
    """

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
        self._access = access
        self._stream = stream
        self._arrow = stream.schema
        self._max_rows = max_rows
        self._facts: SiteFacts | None = None
        self.retain = retain
        """Microseconds for which the site keeps tuples; None for ever."""
        self.is_batch = batch
        """Whether it is what the site has now, and not a stream."""
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

    def frame(self, spark: SparkSession | None = None) -> DataFrame:
        """All its columns as a DataFrame, for whatever else Spark does with it."""
        return read_site(
            spark or active_session(),
            self._feed(spark or active_session(), tuple(self._arrow.names)),
            batch=self.is_batch,
            max_rows=self._max_rows,
        )

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
        frame = read_site(spark, feed, batch=self.is_batch, max_rows=self._max_rows)
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

    def __repr__(self) -> str:
        return f"RemoteStream({self._stream.name!r} of {self._access.address!r})"


def active_session() -> SparkSession:
    """The session that runs; raises OptionError if there is none."""
    found = SparkSession.getActiveSession()
    if found is None:
        raise OptionError(
            "there is no Spark session yet", hint="create one first: spark = ts.session()"
        )
    return found


def session_of(frames: Mapping[str, object]) -> SparkSession:
    """The session of the DataFrames among the streams, or the one that runs."""
    for frame in frames.values():
        if isinstance(frame, DataFrame):
            return frame.sparkSession
    return active_session()
