"""The stage behind a join that fetches the rest of the tuples that are in results."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from thetastream.runtime import shipped
from thetastream.runtime.sitesource import spark_schema, without_reports
from thetastream.transport.feed import WIRE
from thetastream.transport.fetching import Errand
from thetastream.version import VERSION


def with_rest(joined: DataFrame, errands: Sequence[Errand]) -> DataFrame:
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
    return without_reports(joined.mapInArrow(shipped.fetcher(errands, schema, VERSION), schema))
