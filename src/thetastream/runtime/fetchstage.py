"""The stage behind a join that fetches the rest of the tuples that are in results."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from thetastream.runtime import shipped
from thetastream.runtime.sitesource import spark_schema, without_reports
from thetastream.transport.feed import WIRE
from thetastream.transport.fetching import Errand
from thetastream.version import VERSION

CACHE_SHARE = 4
"""Fetched tuples take a quarter of the bytes that stored runs may take on a host's disk."""


def with_rest(joined: DataFrame, errands: Sequence[Errand], *, cache_bytes: int) -> DataFrame:
    """The results with the columns that only the sites have so far."""
    if not errands:
        return joined
    fields = list(joined.schema.fields)
    for errand in errands:
        known = spark_schema(errand.feed.stream, errand.feed.schema)
        fields += [
            StructField(to, known[name].dataType)
            for name, to in errand.fetched
            if to not in joined.columns
        ]
    schema = StructType([*fields, StructField(WIRE, StringType())])
    fetch = shipped.fetcher(
        errands,
        schema,
        VERSION,
        token=uuid.uuid4().hex,
        cache_bytes=cache_bytes // CACHE_SHARE,
    )
    return without_reports(joined.mapInArrow(fetch, schema))
