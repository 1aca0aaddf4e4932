"""The benchmark's program of Spark's own functions does the same work as the ETL, but for what `from_avro` lets pass."""

from bench.programs import spark_from_avro
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from spark.tests.lake.test_layers import click, records, silver

from contracts.records import USER_CLICK
from streamtable_spark.transforms import layers
from streamtable_spark.transforms.avro import AvroCodec


def test_spark_alone_marks_the_same_repeats_and_takes_bytes_behind_a_value_for_an_event(
    spark: SparkSession,
) -> None:
    rows = [(b"u", click(n)) for n in (1, 2, 1)]
    rows += [(b"u", click(4)[:-1]), (b"u", b"\xc3\x01" + bytes(8) + click(5)[10:]), (b"u", click(6) + b"?")]
    raw = layers.bronze(records(spark, *rows), 0)
    columns = ("offset", "key", "event.id", "repeat")
    before = spark.createDataFrame([("id-2",)], "id string").select(fn.struct("id").alias("event"))
    alone = spark_from_avro.silver(spark_from_avro.decoded(raw, "PERMISSIVE"), before)
    found = {tuple(row) for row in alone.select(*columns).collect()}
    good = {(0, "u", "id-1", False), (1, "u", "id-2", True), (2, "u", "id-1", True)}
    assert found == {*good, (5, "u", "id-6", False)}
    ours = silver(layers.read(raw, AvroCodec.released(USER_CLICK))).select(*columns).collect()
    assert {tuple(row)[:3] for row in ours} == {each[:3] for each in good}
