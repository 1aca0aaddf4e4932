from datetime import UTC, date, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.testing import assertDataFrameEqual

from contracts.records import USER_CLICK
from streamtable import Avro
from streamtable_spark.transforms import layers
from streamtable_spark.transforms.avro import AvroCodec

AT = datetime(2026, 3, 1, 23, 59, 59, 999000, tzinfo=UTC)
SOURCE = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)
CLICKS = Avro(USER_CLICK)


def click(number: int) -> bytes:
    return CLICKS.encode({"id": f"id-{number}", "user_id": "u", "url": "/", "at": number})


def silver(decoded: DataFrame, earlier: DataFrame | None = None) -> DataFrame:
    event_id = fn.col("event.id")
    return layers.silver(decoded, layers.repeated(layers.ids(decoded, event_id), earlier, 7), event_id)


def records(spark: SparkSession, *rows: tuple[bytes | None, bytes | None]) -> DataFrame:
    """Records of one partition, from offset 0."""
    return spark.createDataFrame(
        [(key, value, "clicks", 0, offset, AT, 0, None) for offset, (key, value) in enumerate(rows)], SOURCE
    )


def test_bronze_keeps_what_came_and_adds_its_day_in_utc_and_its_batch(spark: SparkSession) -> None:
    (row,) = layers.bronze(records(spark, (b"u", b"anything")), 7).collect()
    assert tuple(row)[:3] == ("clicks", 0, 0)
    assert (bytes(row["key"]), bytes(row["value"])) == (b"u", b"anything")
    assert (row["day"], row["batch"]) == (date(2026, 3, 1), 7)


def test_each_record_is_either_in_silver_or_in_quarantine(spark: SparkSession) -> None:
    raw = layers.bronze(
        records(
            spark,
            (b"u", click(1)),
            (None, click(2)),
            (b"\xff", click(3)),
            (b"u", None),
            (b"u", b"junk"),
            ("ä".encode(), click(4)),
        ),
        0,
    )
    found = layers.read(raw, AvroCodec.released(USER_CLICK)).persist()
    good = silver(found).select("offset", "key", "event.id", "repeat")
    assertDataFrameEqual(
        good,
        spark.createDataFrame(
            [(0, "u", "id-1", False), (5, "ä", "id-4", False)],
            "offset long, key string, id string, repeat boolean",
        ),
    )
    bad = layers.quarantine(found).select("offset", "reason")
    assertDataFrameEqual(
        bad,
        spark.createDataFrame(
            [
                (1, "no key"),
                (2, "the key is not UTF-8"),
                (3, "no value"),
                (4, "shorter than the 10 bytes in front of a body"),
            ],
            "offset long, reason string",
        ),
    )
    found.unpersist()


def test_an_event_that_comes_again_is_marked_in_its_batch_and_across_batches(spark: SparkSession) -> None:
    codec = AvroCodec.released(USER_CLICK)
    first = silver(
        layers.read(
            layers.bronze(records(spark, (b"u", click(1)), (b"u", click(1)), (b"u", click(2))), 0), codec
        )
    ).persist()
    assert {row["offset"]: row["repeat"] for row in first.collect()} == {0: False, 1: True, 2: False}
    second = silver(
        layers.read(layers.bronze(records(spark, (b"u", click(2)), (b"u", click(3))), 1), codec), first
    )
    assert {row["offset"]: row["repeat"] for row in second.collect()} == {0: True, 1: False}
    first.unpersist()


def test_only_records_whose_ids_come_again_are_looked_at_for_repetitions(spark: SparkSession) -> None:
    codec = AvroCodec.released(USER_CLICK)
    peeked = codec.peek("id")
    first = layers.bronze(records(spark, (b"u", click(1)), (b"u", click(2)), (b"u", click(1))), 0)
    before = silver(layers.read(first, codec)).persist()
    second = layers.bronze(
        records(spark, (b"u", click(2)), (b"u", click(3)), (b"u", b"junk"), (b"u", None), (b"u", b"junk")), 1
    )
    for raw, earlier, again in ((first, None, {0, 2}), (second, None, set()), (second, before, {0})):
        suspects = layers.suspects(raw, peeked, earlier)
        found = layers.of_suspects(raw, peeked, suspects).collect()
        assert {row["offset"] for row in found} == again
    before.unpersist()


def test_times_that_no_calendar_has_have_no_day(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(0,), (2**63 - 1,), (-(2**63),), (-1,)], "at long")
    assert [row[0] for row in frame.select(layers.day_of(frame["at"])).collect()] == [
        date(1970, 1, 1),
        None,
        None,
        date(1969, 12, 31),
    ]


def test_a_record_dated_outside_of_the_years_1_to_9999_keeps_its_timestamp_and_has_the_nearest_day(
    spark: SparkSession,
) -> None:
    sent = spark.createDataFrame(
        [("c", 0, 0, 253_402_300_800_000), ("c", 0, 1, 1_700_000_000_000_000), ("c", 0, 2, -(10**14))],
        "topic string, partition int, offset long, ms long",
    ).withColumns({name: fn.lit(None).cast("binary") for name in ("key", "value", "headers")})
    raw = layers.bronze(sent.withColumn("timestamp", fn.timestamp_millis("ms")), 0)
    found = raw.select("day", fn.unix_millis("timestamp").alias("ms")).collect()
    assert [tuple(row) for row in found] == [
        (date.max, 253_402_300_800_000),
        (date.max, 1_700_000_000_000_000),
        (date.min, -(10**14)),
    ]
