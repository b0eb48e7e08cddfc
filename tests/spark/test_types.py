"""Types as texts: Spark reads them back, whatever the fields of a struct are called."""

from __future__ import annotations

import pytest
from pyspark.ml.linalg import DenseVector
from pyspark.sql import SparkSession

import thetastream as ts
from thetastream.api.analyst import SparkAnalyst
from thetastream.api.columns import column_specs, type_text

ODD = (
    "struct<`a b`:int,`x.y`:string,`c``d`:int,`e:f`:int,`<g`:int,`h>`:int,`i,j`:int,`é`:int,``:int>"
)


@pytest.mark.parametrize(
    "name",
    [
        ODD,
        f"array<{ODD}>",
        f"map<string,struct<`m n`:{ODD}>>",
        "struct<select:int,timestamp:int,`1`:int,`1e5`:int,from:array<int>>",
        "struct<>",
        "string collate UNICODE_CI",
        "struct<`s t`:string collate UTF8_LCASE,u:array<string collate UNICODE>>",
        "map<int,map<int,void>>",
        "struct<`v w`:variant,n:void>",
        "struct<`d t`:interval day to second,h:interval hour,y:interval year to month>",
        "struct<`c h`:char(5),v:varchar(7)>",
        "decimal(10,2)",
        "timestamp_ntz",
    ],
)
def test_spark_reads_a_type_back(spark: SparkSession, name: str) -> None:
    first = spark.sql(f"SELECT CAST(NULL AS {name}) AS c").schema["c"].dataType
    again = spark.sql(f"SELECT CAST(NULL AS {type_text(first)}) AS c").schema["c"].dataType
    assert again == first


def test_reserved_words_are_read_back(spark: SparkSession) -> None:
    setting = "spark.sql.ansi.enforceReservedKeywords"
    kind = spark.sql("SELECT CAST(NULL AS struct<select:int>) AS c").schema["c"].dataType
    spark.conf.set(setting, "true")
    try:
        again = spark.sql(f"SELECT CAST(NULL AS {type_text(kind)}) AS c").schema["c"].dataType
    finally:
        spark.conf.unset(setting)
    assert again == kind


def test_a_type_of_the_user_is_the_type_that_it_is_stored_as(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, DenseVector([1.0]))], ["id", "v"])
    columns = column_specs("r", frame)
    analyst = SparkAnalyst(spark, {"r": frame}).with_stream("more", columns)
    assert analyst.type_over(["more"], "v.size") == "int"


def test_four_streams_with_odd_fields(spark: SparkSession) -> None:
    value = "named_struct('a b', id, 'x.y', named_struct('<', 'v', 'it''s', id))"
    frame = spark.range(3).selectExpr(
        "CAST(id AS int) AS id",
        f"{value} AS s",
        f"array({value}) AS list",
        "NULL AS nothing",
        "CAST(id AS string) COLLATE UNICODE AS text",
    )
    streams = ts.streams(a=frame, b=frame, c=frame, d=frame)
    joined = streams.join(
        "a.s.`a b` = b.s.`a b` AND b.s = c.s AND c.s.`x.y`.`it's` = d.id AND a.s <=> d.s",
        options=ts.JoinOptions(full_history=True),
    )
    found = joined.select("a_s.`a b`", "d_s.`x.y`.`it's`", "c_list").collect()
    assert sorted((row[0], row[1], row[2][0]["a b"]) for row in found) == [
        (0, 0, 0),
        (1, 1, 1),
        (2, 2, 2),
    ]
