"""Sites and their streams, as a user names them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from thetastream.api.remotes import Remote
from thetastream.errors import OptionError
from thetastream.transport.access import Access
from thetastream.transport.addresses import Address, read_file, read_secret, read_token
from thetastream.transport.feed import MOST_ROWS


def site(
    address: str,
    *,
    token: str | None = None,
    token_file: str | Path | None = None,
    tls_root: str | Path | None = None,
    tls_cert: str | Path | None = None,
    tls_key: str | Path | None = None,
    patience: float = 60.0,
    stall: float = 10.0,
) -> Site:
    """A site whose streams can be joined: `ts.site("grpc+tls://plant:8815").stream("packets")`.

    The token is the one for reading. It can be given, or be in a file that only its owner can
    read, or in the variable THETASTREAM_SITE_TOKEN. `tls_root`: a file of certificates (PEM) to
    trust instead of the system's own. `tls_cert` and `tls_key`: files with the client's own
    certificate and its key, for a site that asks for one. `patience` and `stall` are those of
    `ts.SiteClient`.

    >>> rides = ts.site(address).stream("rides")
    >>> pair = ts.streams(orders=orders, rides=rides)
    >>> pair.join("orders.x = rides.x", within="1 hour", delay="1 minute").columns[-2:]
    ['rides_fare', 'seen_at']
    """
    if token is not None and token_file is not None:
        raise OptionError("a token and a token file were given", hint="give one of them")
    where = Address.parse(address)
    if token is None:
        token = read_token(None if token_file is None else Path(token_file))
    access = Access(
        address=str(where),
        token=token,
        tls_roots=None if tls_root is None else read_file(Path(tls_root), "the certificates"),
        tls_cert=None if tls_cert is None else read_file(Path(tls_cert), "the certificate"),
        tls_key=None if tls_key is None else read_secret(Path(tls_key), "the key"),
        patience=patience,
        stall=stall,
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
        self, name: str, *, max_rows: int | None = MOST_ROWS, batch: bool = False
    ) -> RemoteStream:
        """A stream of the site, for `ts.streams`.

        `max_rows`: tuples that a micro-batch takes at most, a million unless another number is
        given; None takes all that have gathered, also after a long outage. `batch`: read what
        there is as a batch DataFrame instead.
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
        kept = retain if isinstance(retain, int) else None
        return RemoteStream(
            Remote(self._access, found, retain=kept, max_rows=max_rows, batch=batch)
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

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    @property
    def schema(self) -> StructType:
        """Its columns, as Spark has them."""
        return self._remote.schema

    @property
    def retain(self) -> timedelta | None:
        """How long its site keeps tuples; None for ever."""
        kept = self._remote.retain
        return None if kept is None else timedelta(microseconds=kept)

    @property
    def is_batch(self) -> bool:
        """Whether it is what the site has now, and not a stream."""
        return self._remote.is_batch

    def frame(self, spark: SparkSession | None = None) -> DataFrame:
        """All its columns as a DataFrame, for whatever else Spark does with it."""
        return self._remote.frame(spark or active_session())

    def __repr__(self) -> str:
        return f"RemoteStream({self._remote.name!r} of {self._remote.address!r})"


def remote_of(stream: RemoteStream) -> Remote:
    """What a join works with."""
    return stream._remote


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
